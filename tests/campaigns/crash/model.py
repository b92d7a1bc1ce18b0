"""What a service must have once a job has ended, for each person or product; nothing else of the job is needed."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs

from tests.campaigns.crash.holdings import POISON

__all__ = ["Allowed", "Change", "Damage", "check_report", "compare", "find_allowed"]


@attrs.frozen
class Change:
    """What one row of a job asks for: a value of a key, or None for its removal."""

    position: int
    key: str
    value: str | None


@attrs.frozen
class Damage:
    """What is not as it must be, in words."""

    lost: Sequence[str] = ()
    wrong: Sequence[str] = ()
    extra: Sequence[str] = ()
    other: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.lost or self.wrong or self.extra or self.other)

    @property
    def is_visible(self) -> bool:
        """Whether the service has something else than it must have."""
        return bool(self.lost or self.wrong or self.extra)

    def __add__(self, more: "Damage") -> "Damage":
        return Damage(
            [*self.lost, *more.lost],
            [*self.wrong, *more.wrong],
            [*self.extra, *more.extra],
            [*self.other, *more.other],
        )


Allowed = Mapping[str, set[str | None]]
"""The values that each key may have; None for its absence."""


def find_allowed(before: Allowed, changes: Sequence[Change], failed: Collection[int]) -> Allowed:
    """Return the values that each key may have: that of its last accepted row, or of a row after it that failed.

    A row that the service always refuses has no effect; another one that failed may have one, and so may the equal rows
    before it, which are coalesced with it if they share its request.
    """
    allowed = {key: {*values} for key, values in before.items()}
    failed = _add_coalesced(changes, failed)
    for change in changes:
        values = allowed.setdefault(change.key, {None})
        if change.key.startswith(POISON) and change.value is not None:
            continue
        if change.position not in failed:
            values.clear()
        values.add(change.value)
    return allowed


def _add_coalesced(changes: Sequence[Change], failed: Collection[int]) -> Collection[int]:
    """Return the positions of rows that failed, and of those before an equal row of their key that did."""
    found, following = {*failed}, dict[str, Change]()
    for change in reversed(changes):
        after = following.get(change.key)
        if after is not None and after.value == change.value and after.position in found:
            found.add(change.position)
        following[change.key] = change
    return found


def compare(allowed: Allowed, state: Mapping[str, str]) -> Damage:
    """Compare what a service has with what it may have."""
    lost: list[str] = []
    wrong: list[str] = []
    extra: list[str] = []
    for key in allowed.keys() | state.keys():
        values, value = allowed.get(key, {None}), state.get(key)
        if value in values:
            continue
        where = extra if values == {None} else lost if value is None else wrong
        where.append(f"{key} has {value} and not {sorted(map(str, values))}")
    return Damage(lost, wrong, extra)


def check_report(report: Mapping[str, Any], rows: int, must_fail: Collection[int], may_fail: Collection[int]) -> Damage:
    """Compare a report with what must be in it: every row, once.

    Args:
        report: the report.
        rows: how many rows the source has.
        must_fail: the positions of rows that fail in any case.
        may_fail: the positions of rows that may fail.
    """
    return Damage(other=[*_check_report(report, rows, must_fail, may_fail)])


def _check_report(
    report: Mapping[str, Any], rows: int, must_fail: Collection[int], may_fail: Collection[int]
) -> Iterator[str]:
    failed = [failure["position"] for failure in report["failures"]]
    if report["read"] != rows:
        yield f"{report['read']} rows were read, not {rows}"
    if report["accepted"] + report["coalesced"] + report["failed"] != rows or report["pending"]:
        yield f"rows are unaccounted for: {report}"
    if len({*failed}) != len(failed) or len(failed) != report["failed"]:
        yield f"{report['failed']} rows failed, and {len({*failed})} of {len(failed)} failures are listed"
    if missing := {*must_fail} - {*failed}:
        yield f"rows {sorted(missing)} should have failed"
    if more := {*failed} - {*may_fail}:
        reasons = [failure["reason"] for failure in report["failures"] if failure["position"] in more]
        yield f"rows {sorted(more)} failed: {reasons[:2]}"
