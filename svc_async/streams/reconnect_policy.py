"""Decide when to reconnect; no I/O.

Each reason for which a connection can end or fail has a backoff rule: how long to wait, growing with every consecutive
failure that the rule counts, and how many such failures are tolerated. The counts are reset only after a connection has
lived for `Reconnects.min_age`: otherwise a server that accepts and closes would receive thousands of connections a
second.
"""

import enum
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

import attrs

from svc_async.errors import (
    ApiError,
    InvalidArgument,
    ServerError,
    StreamDropped,
    SvcError,
    TooManyConnections,
    TransportError,
)
from svc_async.value_rules import (
    MAPPING,
    POSITIVE_SECONDS,
    SECONDS,
    SECONDS_OR_INFINITE,
    ValueRule,
    is_number,
    or_none,
    whole_number,
)
from svc_async.wire.outcome import Repeat, outcome_of

__all__ = [
    "BACKOFF_RULES",
    "BackoffRule",
    "DisconnectReason",
    "Growth",
    "ReconnectPolicy",
    "Reconnects",
    "classify_error",
]

_MAX_DOUBLINGS = 64
_MAX_RETRY_AFTER = 86_400.0
"""Seconds; a service that requests more than a day is mistaken."""


class DisconnectReason(enum.Enum):
    """Why a connection ended or could not be opened."""

    CLOSED = "closed"
    """It was open for at least the minimum age, then was closed, dropped or stalled."""
    CLOSED_EARLY = "closed early"
    """The same, before the minimum age."""
    UNREACHABLE = "unreachable"
    """No answer: name resolution, network, TLS or timeout."""
    UNAVAILABLE = "unavailable"
    """5xx, 408, 423, or the service closed the stream with a message."""
    RATE_LIMITED = "rate limited"
    """429 or 420: too many attempts to connect."""
    TOO_MANY_CONNECTIONS = "too many connections"
    """429 `TooManyConnections`: too many connections are open at once (contract STR-02)."""
    REFUSED = "refused"
    """400, 403, 404, 409, 401 with a token that was just renewed, and any other error that a repeat cannot change."""


class Growth(enum.Enum):
    """How a delay grows from one failure to the next."""

    LINEAR = enum.auto()
    EXPONENTIAL = enum.auto()


_AMOUNT = ValueRule(lambda value: is_number(value) and value >= 0, "a number of at least 0")


@attrs.frozen(kw_only=True)
class BackoffRule:
    """How long to wait after failures of one kind.

    Attributes:
        name: rules with the same name share a failure count.
        initial: seconds after the first failure.
        maximum: the upper bound of the delay in seconds.
        growth: how the delay grows.
        jitter: the share by which the delay is randomly lengthened or shortened.
        honors_retry_after: whether the delay lasts at least until the service's reset or `retry-after`.
        max_failures: consecutive failures that are tolerated, the next one ends the stream; None tolerates all.
    """

    name: str
    initial: float = attrs.field(default=0.0, validator=SECONDS)
    maximum: float = attrs.field(default=0.0, validator=SECONDS_OR_INFINITE)
    growth: Growth = Growth.EXPONENTIAL
    jitter: float = attrs.field(default=0.0, validator=_AMOUNT)
    honors_retry_after: bool = False
    max_failures: int | None = attrs.field(default=None, validator=or_none(whole_number(0), "any number"))

    def delay(self, failures: int, sample: float) -> float:
        """Return the seconds to wait after a number of consecutive failures.

        Args:
            failures: how many there were, at least 1.
            sample: a random number from 0 to 1, for the jitter.
        """
        is_linear = self.growth is Growth.LINEAR
        grown = self.initial * (failures if is_linear else 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
        return min(grown, self.maximum) * (1 + self.jitter * (2 * sample - 1))


# Unspecified: the reference does not mention reconnection (contract UNS-stream-protocol); these are values that public
# streams of this kind recommend. The whole table is a setting: `Reconnects(rules=)`.
# fmt: off
BACKOFF_RULES: Mapping[DisconnectReason, BackoffRule] = MappingProxyType({
    DisconnectReason.CLOSED:               BackoffRule(name="immediate"),
    DisconnectReason.CLOSED_EARLY:         BackoffRule(name="network", initial=0.25, maximum=16, growth=Growth.LINEAR),
    DisconnectReason.UNREACHABLE:          BackoffRule(name="network", initial=0.25, maximum=16, growth=Growth.LINEAR),
    DisconnectReason.UNAVAILABLE:          BackoffRule(name="service", initial=5, maximum=320, jitter=0.1,
                                                       honors_retry_after=True),
    DisconnectReason.RATE_LIMITED:         BackoffRule(name="rate limit", initial=60, maximum=960,
                                                       honors_retry_after=True),
    DisconnectReason.TOO_MANY_CONNECTIONS: BackoffRule(name="connections", initial=15, maximum=320, max_failures=5),
    DisconnectReason.REFUSED:              BackoffRule(name="final", max_failures=0),
})
# fmt: on


@attrs.frozen(kw_only=True)
class Reconnects:
    """How a stream reconnects.

    Attributes:
        min_age: seconds that a connection must live before earlier failures are forgotten.
        rules: how long to wait, by the reason of the disconnect.
    """

    min_age: float = attrs.field(default=30.0, validator=POSITIVE_SECONDS)
    rules: Mapping[DisconnectReason, BackoffRule] = attrs.field(default=BACKOFF_RULES, validator=MAPPING)

    def __attrs_post_init__(self) -> None:
        if missing := [reason.value for reason in DisconnectReason if reason not in self.rules]:
            raise InvalidArgument("rules", f"must have a rule for {', '.join(missing)}")


@attrs.define
class ReconnectPolicy:
    """Counts the failures of one stream and decides when it connects again."""

    _settings: Reconnects
    _failures: Counter[str] = attrs.field(factory=Counter[str], init=False)

    def classify(self, error: SvcError, *, age: float) -> DisconnectReason:
        """Return the reason of a disconnect.

        Args:
            error: the failure.
            age: seconds for which the connection was open; 0 if it never was.
        """
        reason = classify_error(error)
        is_early = reason is DisconnectReason.CLOSED and age < self._settings.min_age
        return DisconnectReason.CLOSED_EARLY if is_early else reason

    def next_delay(self, reason: DisconnectReason, *, age: float, retry_after: float, sample: float) -> float | None:
        """Count a failure and return the seconds to wait; None if connecting again cannot help.

        Args:
            reason: why the connection ended.
            age: seconds for which the connection was open; 0 if it never was.
            retry_after: seconds that the service asks the client to wait; 0 if it does not.
            sample: a random number from 0 to 1, for the jitter.
        """
        if age >= self._settings.min_age:
            self._failures.clear()
        rule = self._settings.rules[reason]
        self._failures[rule.name] += 1
        failures = self._failures[rule.name]
        if rule.max_failures is not None and failures > rule.max_failures:
            return None
        earliest = min(retry_after, _MAX_RETRY_AFTER) if rule.honors_retry_after else 0.0
        return max(rule.delay(failures, sample), earliest)


def classify_error(error: SvcError) -> DisconnectReason:
    """Return what a failure means, regardless of the age of the connection."""
    if isinstance(error, StreamDropped):
        return DisconnectReason.UNAVAILABLE if error.errors else DisconnectReason.CLOSED
    if isinstance(error, TransportError):
        return DisconnectReason.UNREACHABLE
    if isinstance(error, TooManyConnections):
        return DisconnectReason.TOO_MANY_CONNECTIONS
    return _classify_refusal(error) if isinstance(error, ApiError) else DisconnectReason.REFUSED


def _classify_refusal(error: ApiError) -> DisconnectReason:
    outcome = outcome_of(error)
    if outcome.throttled:
        return DisconnectReason.RATE_LIMITED
    # A stream also reconnects after a 5xx after which no single call is repeated.
    if isinstance(error, ServerError) or outcome.repeat is not Repeat.NEVER:
        return DisconnectReason.UNAVAILABLE
    return DisconnectReason.REFUSED
