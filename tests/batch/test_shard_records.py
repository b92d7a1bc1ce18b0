"""What the journals of the shards of a job say together."""

from datetime import UTC, datetime, timedelta

import attrs

from svc_async.batch.journal.record import Doubt, JournalRecord, Moment, merge_records
from svc_async.batch.report import SLOTS, Report

BEGUN = datetime(2026, 11, 22, 2, 0, tzinfo=UTC)
FIRST = JournalRecord(
    name="nightly/0000",
    note={"fingerprint": "nightly/0"},
    running=True,
    begun_at=BEGUN,
    active_at=BEGUN + timedelta(seconds=30),
    worked=30.0,
    runs=2,
    source_ended=True,
    report=Report(read=100, accepted=60, pending=40, in_doubt=20, requests=3),
    doubts=(Doubt(20, BEGUN + timedelta(seconds=25)),),
    timeline=(Moment(5.0, 20, 1), Moment(20.0, 60, 2)),
)
SECOND = JournalRecord(
    name="nightly/0001",
    note={"fingerprint": "nightly/1"},
    running=False,
    begun_at=BEGUN + timedelta(seconds=8),
    active_at=BEGUN + timedelta(seconds=20),
    worked=12.0,
    runs=1,
    finished=True,
    source_ended=True,
    report=Report(read=50, accepted=49, failed=1, requests=1),
    timeline=(Moment(2.0, 49, 1), Moment(2.0, 49, 1)),
)


def test_a_job_is_the_sum_of_its_shards() -> None:
    job = merge_records("nightly", [FIRST, SECOND], planned=2)
    assert (job.name, job.running, job.finished, job.source_ended, job.runs) == ("nightly", True, False, True, 2)
    assert (job.begun_at, job.active_at, job.worked) == (BEGUN, FIRST.active_at, 30.0)
    assert job.report.counts == (FIRST.report + SECOND.report).counts
    assert job.doubts == list(FIRST.doubts)
    assert [*job.timeline] == [Moment(5.0, 20, 1), Moment(10.0, 69, 2), Moment(10.0, 69, 2), Moment(20.0, 109, 3)]


def test_a_job_is_finished_with_its_last_shard() -> None:
    done = attrs.evolve(SECOND, name="nightly/0000")
    assert not merge_records("nightly", [SECOND], planned=2).finished
    assert not merge_records("nightly", [SECOND], planned=2).source_ended
    assert merge_records("nightly", [done, SECOND], planned=2).finished


def test_a_job_whose_shards_have_not_begun_has_not_begun() -> None:
    waiting = JournalRecord(name="nightly/0000", note={}, running=False)
    assert merge_records("nightly", [], planned=3).begun_at is None
    assert merge_records("nightly", [waiting], planned=3) == JournalRecord(name="nightly", note={}, running=False)


def test_the_timeline_of_many_shards_is_as_long_as_that_of_one() -> None:
    shard = attrs.evolve(SECOND, timeline=tuple(Moment(number / 10, number, 1) for number in range(SLOTS)))
    merged = merge_records("nightly", [shard] * 3, planned=3).timeline
    assert SLOTS / 2 < len(merged) <= SLOTS
    assert merged[-1].accepted == 3 * (SLOTS - 1)
