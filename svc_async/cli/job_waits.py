"""What a journal knows of the waits of its job; until when a rate limit holds it, only the job itself knows."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import attrs

from svc_async.batch.journal.record import JournalRecord
from svc_async.batch.sender import GRACE
from svc_async.batch.settings import BatchSettings
from svc_async.cli.job_journal import JobNote
from svc_async.cli.output.wording import count, format_duration
from svc_async.clock import Clock, find_boot

__all__ = ["JobWaits", "find_waits"]


@attrs.frozen(kw_only=True)
class JobWaits:
    """The waits of a job.

    Attributes:
        turned_away: requests of a running job that had no effect, and are sent again.
        resends_from: when the first request without an answer is sent again at the earliest, while the job runs; None
            if that is not known.
        quarantine: seconds that the job waits, at most, before it sends anything in doubt when it is resumed now, on
            this machine; None if it runs, is finished, or that is not known.
        was_resumed: whether it is not the first run. After a kill it sends nothing before a quarantine is over that
            begins with its resumption; the journal does not know when that was.
    """

    turned_away: int = 0
    resends_from: datetime | None = None
    quarantine: float | None = None
    was_resumed: bool = False

    def describe(self) -> Sequence[str]:
        """Describe them in sentences."""
        told: list[str] = []
        if self.turned_away:
            were = "was turned away and is" if self.turned_away == 1 else "were turned away and are"
            told += [f"{count(self.turned_away, 'request')} {were} sent again after a delay."]
        if self.resends_from is not None:
            later = (
                ", or a whole quarantine after the job was resumed if it had been killed" if self.was_resumed else ""
            )
            told += [
                f"Requests without an answer are sent again at {self.resends_from:%H:%M:%S} UTC at the earliest{later}."
            ]
        if self.quarantine:
            told += [f"When it is resumed, it first waits up to {format_duration(self.quarantine)} for the quarantine."]
        return told


def find_waits(record: JournalRecord, clock: Clock) -> JobWaits:
    """Return what the journal of a job knows of its waits; settings are only in that of a command's job."""
    note = JobNote.read(record) if record.note else None
    if record.finished or record.begun_at is None:
        return JobWaits()
    settings = None if note is None else note.spec.settings
    if record.running:
        return JobWaits(
            turned_away=record.turned_away,
            resends_from=_find_earliest(record, settings, clock.now()),
            was_resumed=record.runs > 1,
        )
    is_on_cluster = note is not None and note.cluster_job is not None  # its shards wait for different times
    return JobWaits(quarantine=None if settings is None or is_on_cluster else _find_rest(record, settings, clock))


def _find_earliest(record: JournalRecord, settings: BatchSettings | None, now: datetime) -> datetime | None:
    if settings is None or not settings.ordered or not record.doubts:
        return None
    earliest = record.doubts[0].sent_at + timedelta(seconds=settings.quarantine)
    return earliest if earliest > now else None


def _find_rest(record: JournalRecord, settings: BatchSettings, clock: Clock) -> float:
    if not settings.ordered:
        return 0.0
    if record.end is not None:
        passed = record.end.measure_time_since(clock.monotonic(), find_boot(clock))
        return max(0.0, settings.quarantine - passed) if record.doubts else 0.0
    return settings.quarantine + (0.0 if record.owner is None else GRACE)
