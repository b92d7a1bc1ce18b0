"""What the journals of the shards of a job say together."""

from collections.abc import Sequence
from datetime import datetime

import attrs

from svc_async.batch.journal.record import JournalRecord, Moment
from svc_async.batch.report import Report
from svc_async.batch.timeline import SLOTS

__all__ = ["merge_records"]


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
