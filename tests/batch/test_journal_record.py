"""The record of a journal, also while its job runs."""

import asyncio
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from svc_async.batch.job import Job, SourceSpec, TargetSpec, from_plain
from svc_async.batch.journal.file import FORMAT, JournalFile
from svc_async.batch.journal.journal import JournalPath
from svc_async.batch.journal.record import JournalRecord, Moment
from svc_async.batch.packing.batch import Limits
from svc_async.batch.report import Report
from svc_async.errors import BatchError, Hint, UnusableFile
from svc_async.lists.audience_users import AudienceUsers
from svc_async.sandbox import VirtualClock
from tests.support.errors import has
from tests.support.fake_service import LOST, FakeService, adds_up, answer_counts, make_error, make_members
from tests.support.journals import FAST, Death, make_journal
from tests.support.tasks import wait_until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "job.journal"


async def run(service: FakeService, rows: Any, journal: JournalPath, **settings: Any) -> Report:
    users = AudienceUsers(service.pipeline, "a1", "c1", limits=Limits(operations=4))
    return await users.upload(rows, journal=journal, **{"users_per_operation": 1, "concurrency": 1, **settings})


async def test_the_record_of_a_finished_job_has_its_report(path: Path) -> None:
    report = await run(FakeService(), [*make_members(10), {"email": "no"}], path)
    record = JournalRecord.read(path)
    assert (record.finished, record.running, record.source_ended, record.runs) == (True, False, True, 1)
    assert record.report == report
    assert record.doubts == ()


@pytest.mark.long("thousands of rows fail")
async def test_the_record_of_a_finished_job_lists_each_of_thousands_of_failures(path: Path) -> None:
    users = AudienceUsers(FakeService(always=answer_counts(0, 1)).pipeline, "a1", "c1")
    report = await users.upload(
        make_members(2_000), journal=path, users_per_operation=1, concurrency=1, retry_delays=(), quarantine=0
    )
    assert report.failed == 2_000
    assert len(JournalRecord.read(path).report.failures) == 2_000


async def test_the_record_of_a_stopped_job_adds_up(path: Path) -> None:
    service = FakeService()
    service.script[3] = make_error(403)
    rows = [*make_members(6), {"email": "no"}, *make_members(14, first=50)]
    with pytest.raises(BatchError) as caught:
        await run(service, rows, path)
    record = JournalRecord.read(path)
    assert not record.finished
    assert adds_up(record.report)
    assert (record.report.read, record.report.accepted, record.report.failed) == (21, 8, 1)
    assert record.report.requests == caught.value.report.requests == 3
    assert record.doubts == ()
    await run(service, rows, path)
    again = JournalRecord.read(path)
    assert (again.finished, again.runs, again.report.accepted) == (True, 2, 20)


async def test_what_is_in_doubt_is_listed_with_its_time_while_the_job_runs(path: Path) -> None:
    clock = VirtualClock(mode="manual")
    service = FakeService(clock=clock, latency=5)
    task = asyncio.create_task(run(service, make_members(10), path))
    await wait_until(lambda: service.in_flight == 1)
    record = JournalRecord.read(path)
    assert record.running
    assert [(doubt.rows, doubt.sent_at) for doubt in record.doubts] == [(4, clock.now())]
    assert (record.report.read, record.report.in_doubt, record.report.pending) == (10, 4, 10)
    clock.mode = "jump"
    await clock.advance(seconds=5)
    assert (await task).accepted == 10


@attrs.frozen
class SlowToEnd:
    """Rows of which one more is expected until the journal was read."""

    service: FakeService
    path: Path

    async def __aiter__(self) -> AsyncIterator[Mapping[str, object]]:
        for row in make_members(8_192):  # so many are collected before the first are sent
            yield row
        await wait_until(lambda: self.service.bodies != [])
        assert not JournalRecord.read(self.path).source_ended


async def test_a_source_that_ends_after_its_last_row_was_sent_has_ended(path: Path) -> None:
    service = FakeService(script={2: make_error(403)})
    users = AudienceUsers(service.pipeline, "a1", "c1", limits=Limits(operations=5_000))
    with pytest.raises(BatchError):
        await users.upload(SlowToEnd(service, path), journal=path, users_per_operation=1, concurrency=1)
    assert JournalRecord.read(path).source_ended


_TAKE_UP = """
import asyncio, sys
from svc_async.batch.journal.file import JournalFile

asyncio.run(JournalFile(sys.argv[1]).open(lambda records: (None, {})))
"""


@pytest.mark.long("each case starts another interpreter; tests/store does so for any file")
@pytest.mark.parametrize("suffix", ["-wal", "", "-shm"])
async def test_a_backup_within_a_job_does_not_release_its_journal(path: Path, suffix: str) -> None:
    refusals: list[bytes] = []

    def back_up(_: object) -> None:
        if refusals or not Path(f"{path}{suffix}").exists():  # nothing was sent yet
            return
        shutil.copy(f"{path}{suffix}", f"{path}.backup")
        command = [sys.executable, "-c", _TAKE_UP, str(path)]
        refusals.append(subprocess.run(command, capture_output=True, check=False).stderr)
        assert JournalRecord.read(path).running

    report = await run(FakeService(), make_members(2), path, progress=back_up)

    assert report.accepted == 2
    assert refusals
    assert all(b"is locked by another job" in each for each in refusals)


@attrs.define
class PacedService(FakeService):
    """Answers every 20th request only when the journal was read once more.

    Attributes:
        reads: how often it was read.
    """

    reads: int = 0

    async def send_with_answer(self, request: Any) -> Any:
        if len(self.bodies) % 20 == 0:
            before = self.reads
            await wait_until(lambda: self.reads > before)
        return await super().send_with_answer(request)


@pytest.mark.parametrize("rows", [150, pytest.param(500, marks=pytest.mark.long)])
async def test_what_is_read_while_the_journal_is_written_is_whole_and_never_goes_back(path: Path, rows: int) -> None:
    """The log is restarted every few commits here, which is when a copy might be inconsistent."""
    service = PacedService()
    seen: list[int] = []
    task = asyncio.create_task(run(service, make_members(rows), make_journal(path, *FAST)))
    await wait_until(path.exists)
    while not task.done():
        record = await asyncio.to_thread(_try_to_read, path)
        if record is not None:
            assert adds_up(record.report)
            seen.append(record.report.accepted)
        service.reads += 1
    assert (await task).accepted == rows
    assert seen == sorted(seen)
    assert len(set(seen)) > 3


def _try_to_read(path: Path) -> JournalRecord | None:
    try:
        return JournalRecord.read(path)
    except UnusableFile as error:
        if "locked" in error.problem:  # the tables are being created, or the job has just ended
            return None
        raise


async def test_whoever_reads_a_journal_in_the_process_of_its_job_does_not_keep_it_from_writing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader has opened the index of the log, which connections of one process share, before the job does."""
    connect = sqlite3.connect
    has_opened, has_ended = threading.Event(), threading.Event()

    class Reader(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            cursor = super().execute(sql, parameters)
            if sql.startswith("PRAGMA application_id"):
                has_opened.set()
                has_ended.wait(30)
            return cursor

    class Writer(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            cursor = super().execute(sql, parameters)
            if sql == "PRAGMA journal_mode = WAL":
                cursor.fetchall()
                JournalRecord.read(path)  # it leaves the index
                monkeypatch.setattr("sqlite3.connect", partial(connect, factory=Reader))
                reader.start()
                assert has_opened.wait(30)
            return cursor

    reader = threading.Thread(target=JournalRecord.read, args=[path])
    try:
        report = await run(FakeService(), make_members(2), JournalFile(path, Writer))
    finally:
        has_ended.set()
        reader.join()
    assert report.accepted == 2


async def test_a_journal_describes_the_job_as_it_was_begun(path: Path) -> None:
    service = FakeService(script={1: make_error(403)})
    users = AudienceUsers(service.pipeline, "a1", "c1")
    source = SourceSpec(path="people.csv", fingerprint="f")
    job = Job(target=TargetSpec(kind="audience", account_id="a1", list_id="c1"), source=source, journal=path)
    with pytest.raises(BatchError):
        await users.run_job(job, make_members(3))
    assert from_plain(JournalRecord.read(path).note) == job.detach()

    await users.run_job(attrs.evolve(job, source=SourceSpec(path="others.csv")), make_members(3))

    record = JournalRecord.read(path)
    assert (from_plain(record.note), record.finished) == (job.detach(), True)


async def test_a_journal_does_not_describe_a_job_whose_rows_were_given(path: Path) -> None:
    await run(FakeService(), make_members(3), path)

    assert not JournalRecord.read(path).note


@pytest.mark.parametrize(("requests", "least"), [(50, 50), pytest.param(520, 256, marks=pytest.mark.long)])
async def test_the_timeline_has_a_bounded_number_of_samples_of_working_time(
    path: Path, requests: int, least: int
) -> None:
    clock = VirtualClock(mode="jump")
    service = FakeService(clock=clock, latency=7)
    refused, rows = requests * 2 // 5, make_members(4 * requests)
    service.script[refused] = make_error(403)
    journal = make_journal(path, *FAST)
    with pytest.raises(BatchError):
        await run(service, rows, journal)
    await clock.sleep(86_400)  # no run
    report = await run(service, rows, journal)
    record = JournalRecord.read(path)
    moments = record.timeline
    assert report.accepted == moments[-1].accepted == len(rows)
    assert record.worked == pytest.approx(report.requests * 7, rel=0.01)
    assert least <= len(moments) <= 512
    assert list(moments) == sorted(moments, key=lambda moment: moment.seconds)
    # Each is of the end of its slot: what is answered at that second counts in the next.
    assert all(each.accepted == 4 * ((each.seconds - 1) // 7) for each in moments if each.requests < refused)
    middle = next(moment for moment in moments if moment.seconds >= record.worked / 2)
    assert middle.accepted == pytest.approx(len(rows) / 2, rel=0.02, abs=8)
    assert middle.requests == pytest.approx(report.requests / 2, rel=0.02, abs=2)
    assert Moment(record.worked, len(rows), report.requests) == moments[-1]


async def test_a_request_that_had_no_effect_is_not_in_doubt(path: Path) -> None:
    service = FakeService()
    service.script[1] = LOST
    service.script[2] = make_error(403)
    with pytest.raises(BatchError):
        await run(service, make_members(3), path)
    assert [doubt.rows for doubt in JournalRecord.read(path).doubts] == [3]


async def test_a_request_that_is_about_to_be_repeated_counts_as_sent_then(path: Path) -> None:
    service = FakeService()
    service.script[1] = LOST
    began = service.clock.now()
    with pytest.raises(BatchError):
        await run(service, make_members(3), Death(2, after=True).wrap(path), quarantine=50)
    (doubt,) = JournalRecord.read(path).doubts
    assert (doubt.sent_at - began).total_seconds() >= 50


def test_what_is_no_journal_is_refused(tmp_path: Path) -> None:
    text, other, newer = tmp_path / "text", tmp_path / "other", tmp_path / "newer"
    text.write_text("a customer file, long enough to be no database" * 100)
    for each, statement in ((other, "CREATE TABLE mine (x)"), (newer, f"PRAGMA user_version={FORMAT.version + 1}")):
        with sqlite3.connect(each) as database:
            database.execute(statement)
        database.close()
    for each, hint in (
        (tmp_path / "none", Hint.GIVE_A_JOURNAL),
        (tmp_path, Hint.GIVE_A_JOURNAL),
        (text, Hint.GIVE_A_JOURNAL),
        (other, Hint.GIVE_A_JOURNAL),
        (newer, None),
    ):
        with pytest.raises(UnusableFile, check=has(path=str(each), hint=hint)):
            JournalRecord.read(each)
