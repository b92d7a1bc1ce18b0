"""Any number of bad rows: each fails by itself, with the rule that it breaks and never its value."""

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from svc_async.batch.report import Failure, Report
from svc_async.lists.audience_users import AudienceUsers

__all__ = ["FailureCounts", "count_problems", "upload_bad_rows"]

_MARK = "personal"
"""In every value, so that a value in a message is found."""
_CODES = {"INVALID_ROW", "TOO_LARGE"}

MakeValue = Callable[[random.Random], object]

_VALUES: tuple[MakeValue, ...] = (
    lambda dice: f"{_MARK}{dice.random()}",
    lambda dice: f"{_MARK}@{dice.choice(['', ' ', 'a', '.', 'a..b', 'a,b'])}",
    lambda dice: f"{_MARK}\n@{dice.random()}.de",
    lambda _: f"{_MARK}\ud800",
    lambda _: f"{_MARK}\x00",
    lambda dice: dice.random(),
    lambda dice: bytes([dice.randrange(256)]),
    lambda dice: {_MARK: dice.random()},
    lambda dice: [_MARK, [dice.random()]],
    lambda _: [None, "", " "],
    lambda _: True,
    lambda _: object(),
)
_NAMES = ("email", "phone_number", "svc_id", "device_id")
_ROWS: tuple[MakeValue, ...] = (
    lambda dice: {dice.choice(_NAMES): dice.choice(_VALUES)(dice)},
    lambda dice: {dice.choice(_NAMES): dice.choice(_VALUES)(dice) for _ in range(3)},
    lambda dice: {f"{_MARK}{dice.randrange(5)}": "x"},
    lambda dice: {dice.random(): "x"},
    lambda _: {},
    lambda _: None,
    lambda dice: dice.randrange(9),
    lambda _: _MARK,
    lambda dice: [_MARK] * dice.randrange(3),
    lambda _: {"email": None, "phone_number": " "},
)


@attrs.define
class FailureCounts:
    """The failures that were reported.

    Attributes:
        positions: the rows that failed.
        rules: how often each rule was broken.
        untyped: failures with a code that is not documented.
        leaks: failures that show a value.
    """

    positions: set[int] = attrs.field(factory=set)
    rules: dict[str, int] = attrs.field(factory=dict)
    untyped: int = 0
    leaks: int = 0

    def add(self, failure: Failure) -> None:
        """Count one failure."""
        self.positions.add(failure.position)
        self.rules[failure.reason] = self.rules.get(failure.reason, 0) + 1
        self.untyped += failure.code not in _CODES
        self.leaks += _MARK in failure.reason


def make_bad_rows(count: int, seed: int) -> Iterator[Any]:
    """Yield bad rows; the first one has no unknown key, which would end the job."""
    dice = random.Random(seed)
    yield {"email": _MARK}
    for _ in range(count - 1):
        yield dice.choice(_ROWS)(dice)


async def upload_bad_rows(users: AudienceUsers, count: int, seed: int) -> tuple[Report, FailureCounts]:
    """Upload bad rows; return the report and the failures."""
    failures = FailureCounts()
    report = await users.upload(make_bad_rows(count, seed), on_failure=failures.add)
    return report, failures


def count_problems(report: Report, failures: FailureCounts) -> Mapping[str, int]:
    """Count the rows, and everything that must not happen."""
    return {
        "rows": report.read,
        "failed": report.failed,
        "accepted": report.accepted,
        "failed twice": report.failed - len(failures.positions),
        "untyped": failures.untyped,
        "leaks": failures.leaks,
    }
