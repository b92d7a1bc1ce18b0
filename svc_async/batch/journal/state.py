"""The state of a job as a journal keeps it, and how much time has certainly passed since its last run."""

from collections.abc import Mapping
from typing import Any

import attrs

from svc_async.batch.ledger import JournalCheckpoint
from svc_async.counts import Counts

__all__ = ["JobState", "OrderlyEnd", "describe_difference"]


@attrs.frozen
class OrderlyEnd:
    """When a run ended in good order, by the monotonic clock of the machine; a run that is killed has none.

    The wall clock proves nothing, since it may have been set meanwhile.

    Attributes:
        boot: identifies the start from which the clock counts; None if it is not known.
        at: the monotonic time.
    """

    boot: str | None
    at: float

    def measure_time_since(self, now: float, boot: str | None) -> float:
        """Return how many seconds have passed for certain."""
        return max(0.0, now - self.at) if boot is not None and self.boot == boot else 0.0


@attrs.define(kw_only=True)
class JobState:
    """What a journal keeps of a job as a whole.

    Attributes:
        about: what identifies the job.
        lanes: how many lanes the rows are assigned to.
        accepted: settled rows, in all runs.
        coalesced: likewise.
        failed: likewise.
        requests: how many requests were sent, as far as can be known.
        checkpoint: how far the source was read.
        spool_begun: whether rows were spooled, all or some.
        spool_digest: the digest of the rows, if all were spooled.
        report: the report, if nothing is left to do.
        runs: how many runs there were.
        began_at: when the job began, in seconds since the epoch.
        active_at: when the journal was last written.
        worked: seconds that its runs took.
        slot_width: seconds of a slot of the timeline.
        end: when the last run ended, if in good order.
    """

    about: dict[str, Any]
    lanes: int
    began_at: float
    slot_width: float
    accepted: int = 0
    coalesced: int = 0
    failed: int = 0
    requests: int = 0
    checkpoint: JournalCheckpoint = attrs.field(factory=JournalCheckpoint)
    spool_begun: bool = False
    spool_digest: str = ""
    report: dict[str, int] | None = None
    runs: int = 0
    active_at: float = 0.0
    worked: float = 0.0
    end: OrderlyEnd | None = None

    def count_rows(self, *, in_doubt: int) -> Counts:
        """Return what became of the rows that were read, with those that break a rule among the failed."""
        failed = self.failed + self.checkpoint.invalid_rows
        settled = Counts(accepted=self.accepted, coalesced=self.coalesced, failed=failed, requests=self.requests)
        read = max(self.checkpoint.rows, settled.settled)
        return settled + Counts(read=read, pending=read - settled.settled, in_doubt=in_doubt)


def describe_difference(stored: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """Describe what differs between what identifies two jobs."""
    names = sorted(name for name in {*stored, *given} if stored.get(name) != given.get(name))
    return ", ".join(f"{name} is {stored.get(name)!r} there, not {given.get(name)!r}" for name in names)
