"""Reads what the journal of a job says, also while the job runs; and what those of its shards say together."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs

from svc_async.batch.journal.file import JournalFile
from svc_async.batch.journal.records import KINDS, JobState, JournalRecords, OrderlyEnd
from svc_async.batch.report import SLOTS, Report
from svc_async.store.records import Records

__all__ = ["Doubt", "JournalRecord", "Moment", "merge_records"]


@attrs.frozen
class Moment:
    """The progress of a job at one moment.

    Attributes:
        seconds: of work until then, without the pauses between runs.
        accepted: rows that the service confirmed.
        requests: how many requests were sent, repeats included.
    """

    seconds: float
    accepted: int
    requests: int


@attrs.frozen
class Doubt:
    """A request without a conclusive answer so far.

    Attributes:
        rows: how many rows it carries.
        sent_at: when it was sent.
    """

    rows: int
    sent_at: datetime


@attrs.frozen(kw_only=True)
class JournalRecord:
    """The contents of a journal.

    Attributes:
        name: the path of the file, or the name of a job in a shared state.
        note: what was stored with `annotate`; empty if nothing was.
        running: whether a job uses the journal now.
        owner: the host and the process that have used it last, if it is in a shared state.
        begun_at: when the job began; None if it has not.
        active_at: when the journal was last written.
        worked: seconds that its runs took until then.
        runs: how many runs there were.
        finished: whether nothing is left to do.
        source_ended: whether the source was read to its end.
        spool_begun: whether rows of a source that can be read only once were spooled, all or some.
        spooled: whether all of them were.
        report: the result of the rows. It lists the first 10,000 failures and, for a job that is not finished, only
            rows that were sent: rows that break a rule are counted, and reported when the job is resumed.
        doubts: requests that were sent and are not settled.
        turned_away: how many requests certainly had no effect and are not settled: the job sends them again.
        end: when the last run ended, if in good order; None if it runs, was killed, or has finished the job.
        timeline: the course of the job.
    """

    name: str
    note: Mapping[str, Any]
    running: bool
    owner: str | None = None
    begun_at: datetime | None = None
    active_at: datetime | None = None
    worked: float = 0.0
    runs: int = 0
    finished: bool = False
    source_ended: bool = False
    spool_begun: bool = False
    spooled: bool = False
    report: Report = attrs.field(factory=Report)
    doubts: Sequence[Doubt] = ()
    turned_away: int = 0
    end: OrderlyEnd | None = None
    timeline: Sequence[Moment] = ()

    @classmethod
    def read(cls, path: str | Path) -> "JournalRecord":
        """Read a journal; nothing in it is changed, and a running job is not disturbed.

        Args:
            path: the file.

        Raises:
            UnusableFile: the file does not exist, or is not a journal that can be read.
        """
        file = JournalFile(path)
        is_running = file.is_in_use
        return cls.parse(file.name, file.read(kinds=KINDS), is_running=is_running)

    @classmethod
    def parse(cls, name: str, records: Records, *, is_running: bool) -> "JournalRecord":
        """Return what records say.

        Raises:
            SvcError: they are damaged.
        """
        try:
            return _parse(name, JournalRecords.of(records), is_running=is_running)
        except (ValueError, TypeError, OverflowError):  # a record is malformed
            raise records.make_damage_error() from None


def _parse(name: str, records: JournalRecords, *, is_running: bool) -> JournalRecord:
    record = JournalRecord(name=name, note=records.load_note(), running=is_running)
    if not records.has("job"):
        return record
    state = records.load("job", 0, JobState)
    intents = [*records.load_intents()]
    doubts = sorted(
        (Doubt(len(each.positions), _to_datetime(each.sent_at)) for each in intents if each.sent_at is not None),
        key=lambda doubt: doubt.sent_at,
    )
    counts, failures = state.count_rows(in_doubt=sum(doubt.rows for doubt in doubts)), records.load_failures()
    return attrs.evolve(
        record,
        begun_at=_to_datetime(state.began_at),
        active_at=_to_datetime(state.active_at),
        worked=state.worked,
        runs=state.runs,
        finished=state.finished,
        source_ended=state.checkpoint.ended,
        spool_begun=state.spool_begun,
        spooled=bool(state.spool_digest),
        report=Report(failures=tuple(failures)) + counts,
        doubts=tuple(doubts),
        turned_away=len(intents) - len(doubts),
        end=state.end,
        timeline=tuple(
            Moment(min((slot + 1) * state.slot_width, state.worked), accepted, requests)
            for slot, (accepted, requests) in records.load_all("slot", tuple[int, int])
        ),
    )


def _to_datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def merge_records(name: str, shards: Sequence[JournalRecord], *, planned: int) -> JournalRecord:
    """Return a record of a whole job.

    Args:
        name: the job.
        shards: the journals of its shards, as far as there are any.
        planned: how many shards there will be.
    """
    merged = JournalRecord(
        name=name,
        note=next((shard.note for shard in shards if shard.note), {}),
        running=any(shard.running for shard in shards),
    )
    begun = [shard.begun_at for shard in shards if shard.begun_at is not None]
    active = [shard.active_at for shard in shards if shard.active_at is not None]
    if not begun or not active:
        return merged
    return attrs.evolve(
        merged,
        begun_at=min(begun),
        active_at=max(active),
        worked=(max(active) - min(begun)).total_seconds(),
        runs=max(shard.runs for shard in shards),
        finished=len(shards) == planned and all(shard.finished for shard in shards),
        source_ended=len(shards) == planned and all(shard.source_ended for shard in shards),
        report=sum((shard.report for shard in shards), Report()),
        doubts=sorted((doubt for shard in shards for doubt in shard.doubts), key=lambda doubt: doubt.sent_at),
        turned_away=sum(shard.turned_away for shard in shards),
        timeline=_merge_timelines(shards, min(begun)),
    )


def _merge_timelines(shards: Sequence[JournalRecord], begun: datetime) -> Sequence[Moment]:
    """Return the sums at each moment of a shard, as many of them as a timeline has."""
    found = (
        ((shard.begun_at - begun).total_seconds() + each.seconds, number, each)
        for number, shard in enumerate(shards)
        if shard.begun_at is not None
        for each in shard.timeline
    )
    moments = sorted(found, key=lambda each: each[:2])
    last = dict.fromkeys(range(len(shards)), Moment(0.0, 0, 0))
    accepted = requests = 0
    merged: list[Moment] = []
    for seconds, number, moment in moments:
        accepted += moment.accepted - last[number].accepted
        requests += moment.requests - last[number].requests
        last[number] = moment
        merged.append(Moment(seconds, accepted, requests))
    step = -(-len(merged) // SLOTS) or 1
    return merged[::-1][::step][::-1]  # the last one stays
