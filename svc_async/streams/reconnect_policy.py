"""When to connect again, decided without I/O.

Each way in which a connection can end has its row, its *lane*: how long to wait, growing with every failure in that
lane, and how many failures in a row are borne. The counts are forgotten only after a connection has lived a while
(`Reconnects.min_age`): a server that accepts and closes would else be connected to thousands of times in a second.
"""

import enum
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs

from svc_async.errors import (
    ApiError,
    InvalidArgument,
    StreamDropped,
    SvcError,
    TooManyConnections,
    TransportError,
)

__all__ = ["LANES", "Growth", "Lane", "Lanes", "Outcome", "Reconnects", "outcome_of"]

_MOST_DOUBLINGS = 64
_LONGEST_ASKED = 86_400.0
"""Seconds; a service that asks for more than a day is mistaken."""


class Outcome(enum.Enum):
    """How a connection ended, or why there was none."""

    ENDED = "ended"
    """It was open for at least the minimum age, then closed, broke off or fell silent."""
    ENDED_YOUNG = "ended young"
    """The same, before the minimum age."""
    UNREACHABLE = "unreachable"
    """No answer: name, network, TLS, or nothing in time."""
    TROUBLED = "troubled"
    """5xx, 408, 423, or the service said in the stream that it disconnects."""
    LIMITED = "limited"
    """429 or 420: too many connects."""
    CROWDED = "crowded"
    """429 `TooManyConnections`: too many are open at once (contract STR-02)."""
    REFUSED = "refused"
    """400, 403, 404, 409, 401 with a token that was just renewed, and what else no repeat will change."""


class Growth(enum.Enum):
    """How a wait grows from one failure to the next."""

    LINEAR = "linear"
    DOUBLING = "doubling"


def _not_negative(_: object, field: "attrs.Attribute[Any]", value: float | None) -> None:
    if value is not None and value < 0:
        raise InvalidArgument(field.name, "must be at least 0")


@attrs.frozen(kw_only=True)
class Lane:
    """One row: what to do after a failure of one kind.

    Attributes:
        name: lanes of one name share a count.
        first: seconds after the first failure.
        longest: seconds that the wait grows to.
        growth: how it grows.
        jitter: the share by which chance lengthens or shortens it.
        heeds_service: the wait does not end before the service's reset or `retry-after`.
        most: failures in a row that are borne, the next one ends the stream; None bears all.
    """

    name: str
    first: float = attrs.field(default=0.0, validator=_not_negative)
    longest: float = attrs.field(default=0.0, validator=_not_negative)
    growth: Growth = Growth.DOUBLING
    jitter: float = attrs.field(default=0.0, validator=_not_negative)
    heeds_service: bool = False
    most: int | None = attrs.field(default=None, validator=_not_negative)

    def wait(self, failures: int, chance: float) -> float:
        """Give the seconds to wait after so many failures, with a chance from 0 to 1."""
        linear = self.growth is Growth.LINEAR
        grown = self.first * (failures if linear else 2.0 ** min(failures - 1, _MOST_DOUBLINGS))
        return min(grown, self.longest) * (1 + self.jitter * (2 * chance - 1))


# Unspecified: the reference is silent on reconnection (contract UNS-stream-protocol); these are public habits of
# streams of this kind. The whole table is a setting: `Reconnects(lanes=)`.
# fmt: off
LANES: Mapping[Outcome, Lane] = MappingProxyType({
    Outcome.ENDED:       Lane(name="at once"),
    Outcome.ENDED_YOUNG: Lane(name="network", first=0.25, longest=16, growth=Growth.LINEAR),
    Outcome.UNREACHABLE: Lane(name="network", first=0.25, longest=16, growth=Growth.LINEAR),
    Outcome.TROUBLED:    Lane(name="service", first=5, longest=320, jitter=0.1, heeds_service=True),
    Outcome.LIMITED:     Lane(name="limited", first=60, longest=960, heeds_service=True),
    Outcome.CROWDED:     Lane(name="crowded", first=15, longest=320, most=5),
    Outcome.REFUSED:     Lane(name="final", most=0),
})
# fmt: on


@attrs.frozen(kw_only=True)
class Reconnects:
    """How a stream comes back.

    Attributes:
        min_age: seconds that a connection must live before earlier failures are forgotten.
        lanes: what to do after each kind of failure.
    """

    min_age: float = 30.0
    lanes: Mapping[Outcome, Lane] = LANES

    def __attrs_post_init__(self) -> None:
        if self.min_age <= 0:
            raise InvalidArgument("min_age", "must be greater than 0 seconds")
        if missing := [outcome.value for outcome in Outcome if outcome not in self.lanes]:
            raise InvalidArgument("lanes", f"must have a lane for {', '.join(missing)}")


@attrs.define
class Lanes:
    """The failures of one stream so far."""

    _settings: Reconnects
    _failures: Counter[str] = attrs.field(factory=Counter[str], init=False)

    def outcome(self, error: SvcError, *, age: float) -> Outcome:
        """Tell which lane a failure belongs to.

        Args:
            error: the failure.
            age: seconds for which the connection was open; 0 if it never was.
        """
        outcome = outcome_of(error)
        return Outcome.ENDED_YOUNG if outcome is Outcome.ENDED and age < self._settings.min_age else outcome

    def wait(self, outcome: Outcome, *, age: float, asked: float, chance: float) -> float | None:
        """Count a failure and give the seconds to wait; None says that no repeat will help.

        Args:
            outcome: what happened.
            age: seconds for which the connection was open; 0 if it never was.
            asked: seconds for which the service asks to be left alone.
            chance: from 0 to 1, for the jitter.
        """
        if age >= self._settings.min_age:
            self._failures.clear()
        lane = self._settings.lanes[outcome]
        self._failures[lane.name] += 1
        failures = self._failures[lane.name]
        if lane.most is not None and failures > lane.most:
            return None
        heeded = min(asked, _LONGEST_ASKED) if lane.heeds_service else 0.0
        return max(lane.wait(failures, chance), heeded)


_CALM = 420
"""An old name for 429."""
_SERVER_ERROR = 500
_BY_STATUS: Mapping[int, Outcome] = MappingProxyType(
    {
        408: Outcome.TROUBLED,
        _CALM: Outcome.LIMITED,
        423: Outcome.TROUBLED,
        429: Outcome.LIMITED,
    }
)


def outcome_of(error: SvcError) -> Outcome:
    """Tell what a failure means, leaving age aside."""
    if isinstance(error, StreamDropped):
        return Outcome.TROUBLED if error.errors else Outcome.ENDED
    if isinstance(error, TransportError):
        return Outcome.UNREACHABLE
    if isinstance(error, TooManyConnections):
        return Outcome.CROWDED
    if isinstance(error, ApiError):
        usual = Outcome.TROUBLED if error.status >= _SERVER_ERROR else Outcome.REFUSED
        return _BY_STATUS.get(error.status, usual)
    return Outcome.REFUSED
