"""The report of a sync."""

import json
from collections.abc import Mapping
from typing import Any

import attrs

from svc_async.batch.report import Report
from svc_async.batch.sync.plan import Plan
from svc_async.errors import BatchError

__all__ = ["SyncReport"]


@attrs.frozen(kw_only=True)
class SyncReport:
    """What a sync found, and what became of it.

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
        """Whether the list is now equal to the source."""
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
