"""The plan of a sync, and its report; no I/O."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs

from svc_async.batch.report import Report
from svc_async.errors import BatchError, Hint, InvalidArgument

__all__ = [
    "PARTS",
    "STAGES",
    "Part",
    "Plan",
    "Stage",
    "SyncReport",
]

Part = Literal["removals", "upserts"]
"""The two parts of a plan. Rows of a part are numbered from 0, through both stages."""

Stage = Literal["now", "later"]
"""When a row is sent: `later` is when no request of an earlier run can take effect any more."""

PARTS: Sequence[Part] = ("removals", "upserts")
STAGES: Sequence[Stage] = ("now", "later")


@attrs.frozen(kw_only=True)
class Plan:
    """The differences between a snapshot and the list.

    Attributes:
        present: rows that were on the list before: accepted, and not expired. A row that an interrupted run was about
            to remove or to send again is one of them.
        listed: distinct rows of the snapshot, apart from the invalid ones.
        additions: rows that are not on the list, or for which that is uncertain.
        changes: rows that are on the list with another content.
        refreshes: rows that are on the list and expire soon.
        linked: rows that share an identifier by which others are removed, which removes them as well; they are sent
            again.
        removals: rows that were on the list and are not in the snapshot.
        doubtful: rows that may be on the list after a run that was interrupted, and are not in the snapshot; they are
            removed as well.
        unchanged: rows for which nothing is sent.
        invalid_rows: rows of the snapshot that break a rule; they will fail. Until `is_checked`, they are only those
            without a key.
        repeated: rows of the snapshot with the key of a later one, which counts; with `listed` and `invalid_rows`, they
            are all of its rows.
        clashing: rows of the snapshot whose key three rows with different contents have; they are among `invalid_rows`,
            and nothing is sent.
        clashing_key: the identifier or the attribute that is the key of the first of these rows.
        kept: rows that were on the list and are not in the snapshot, but are not removed: it has rows whose key cannot
            be read, and each may be one of these.
        is_checked: whether the rows to send were checked. Products are, for a dry run and before any is deleted; else
            each is checked as it is sent, and invalid ones are among `listed` and the additions and changes.
        all_removals: how many rows are removed: `removals`, `doubtful`, and those that are replaced.
        size: bytes of the rows that are sent, approximately.
        waiting_removals: how many of the removals wait for requests of an earlier run that may still take effect.
        waiting_upserts: how many of the rows to send wait for them.
    """

    present: int = 0
    listed: int = 0
    additions: int = 0
    changes: int = 0
    refreshes: int = 0
    removals: int = 0
    doubtful: int = 0
    unchanged: int = 0
    invalid_rows: int = 0
    all_removals: int = 0
    size: int = 0
    waiting_removals: int = 0
    waiting_upserts: int = 0
    repeated: int = 0
    linked: int = 0
    kept: int = 0
    clashing: int = 0
    clashing_key: str | None = None
    is_checked: bool = True

    @property
    def rows(self) -> int:
        """How many rows the snapshot has."""
        return self.listed + self.invalid_rows + self.repeated

    @property
    def upserts(self) -> int:
        """How many rows are sent."""
        return self.additions + self.changes + self.refreshes + self.linked + self.invalid_rows

    @property
    def removal_share(self) -> float:
        """The share of the rows on the list that would be removed."""
        return self.removals / self.present if self.present else 0.0

    @property
    def invalid_share(self) -> float:
        """The share of the rows of the snapshot that cannot be sent."""
        return self.invalid_rows / self.rows if self.rows else 0.0

    def count(self, part: Part, stage: Stage) -> int:
        """Return how many rows of a part are sent in a stage."""
        waiting = self.waiting_removals if part == "removals" else self.waiting_upserts
        return waiting if stage == "later" else (self.all_removals if part == "removals" else self.upserts) - waiting

    def count_before(self, part: Part, stage: Stage) -> int:
        """Return how many rows of a part are sent before a stage."""
        return self.count(part, "now") if stage == "later" else 0

    def check(self, max_removal_share: float) -> None:
        """Refuse a snapshot of which most may be wrong, such as a file that was cut off.

        Raises:
            InvalidArgument: more than this share of the rows on the list is not in the snapshot, or rows clash.
        """
        if self.clashing_key is not None:
            raise InvalidArgument(
                self.clashing_key,
                f"must be that of one row, but {_count_rows(self.clashing)} have one that two others or more have, and "
                "differ: nothing was sent",
                hint=Hint.LEAVE_OUT_THE_COLUMN,
            )
        if self.removal_share > max_removal_share:
            raise InvalidArgument(
                "max_removal_share",
                f"is {max_removal_share:.0%}, but {self.removals:,} of the {self.present:,} rows on the list "
                f"({self.removal_share:.1%}) would be removed. Nothing was sent. "
                "Is the file complete? If it is, allow a larger share.",
            )

    def check_before_deletion(self, max_removal_share: float) -> None:
        """Refuse to delete for good by a snapshot most of which may be wrong, such as a feed with other prices.

        Raises:
            InvalidArgument: rows would be deleted, and more than this share of the snapshot cannot be sent.
        """
        if self.all_removals and self.invalid_share > max_removal_share:
            raise InvalidArgument(
                "max_removal_share",
                f"is {max_removal_share:.0%}, and {_count_rows(self.all_removals)} would be deleted for good by a file "
                f"of which {self.invalid_rows:,} of {self.rows:,} rows ({self.invalid_share:.1%}) cannot be sent. "
                "Nothing was sent. Is the file right? If it is, allow a larger share.",
            )

    def count_invalid(self, additions: int, changes: int) -> "Plan":
        """Return the plan after its rows were checked, with those that are invalid counted as such."""
        found = additions + changes
        return attrs.evolve(
            self,
            additions=self.additions - additions,
            changes=self.changes - changes,
            listed=self.listed - found,
            invalid_rows=self.invalid_rows + found,
            is_checked=True,
        )


def _count_rows(number: int) -> str:
    return f"{number:,} row{'' if number == 1 else 's'}"


@attrs.frozen(kw_only=True)
class SyncReport:
    """The plan of a sync, and the outcome of its rows.

    Attributes:
        plan: the differences between the source and the list.
        sent: what became of the rows that were sent; its failures are listed by position in the source.
        removed: what became of the removals; its failures are listed by number.
    """

    plan: Plan
    sent: Report = attrs.field(factory=Report)
    removed: Report = attrs.field(factory=Report)

    @property
    def total(self) -> Report:
        """Both parts together. Only failures of rows of the source are listed: a removal has no position there."""
        return attrs.evolve(self.removed, failures=()) + self.sent

    @property
    def complete(self) -> bool:
        """True if the list is now equal to the source."""
        return self.sent.complete and self.removed.complete

    def raise_for_failures(self) -> None:
        """Make sure that no row failed.

        Raises:
            BatchError: rows failed or are pending; it carries this report.
        """
        if not self.complete:
            total = self.total
            message = f"rows: {total.read} read, {total.failed} failed, {total.pending} pending"
            raise BatchError(message, report=self, sent=total.find_sent())

    def to_dict(self) -> dict[str, Any]:
        """Return the report as values that JSON can represent."""
        return {"plan": attrs.asdict(self.plan), "sent": self.sent.to_dict(), "removed": self.removed.to_dict()}

    def to_json(self) -> str:
        """Return `to_dict()` as JSON in ASCII."""
        return json.dumps(self.to_dict())

    def as_dict(self) -> Mapping[str, Any]:
        """Return `to_dict()`."""
        return self.to_dict()

    def _repr_html_(self) -> str:
        """Return tables of the counts, for notebooks."""
        from svc_async.notebook import render_fields, render_rows  # noqa: PLC0415 - only notebooks need it

        parts = [{"rows": "sent", **self.sent.counts}, {"rows": "removed", **self.removed.counts}]
        plan = render_fields("Plan", attrs.asdict(self.plan))
        return plan + render_rows("Complete" if self.complete else "Not complete", parts)
