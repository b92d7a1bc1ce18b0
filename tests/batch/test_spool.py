"""Rows of sources that can be read only once are spooled into the journal."""

import asyncio
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from svc_async import Rows
from svc_async.batch.journal.journal import JournalLocation
from svc_async.batch.journal.record import JournalRecord
from svc_async.batch.report import Progress
from svc_async.cli.job_page import describe_next
from svc_async.errors import BatchError, Hint, UnusableFile, UnusableState
from svc_async.sources.rows import from_cursor
from tests.support.errors import because, has
from tests.support.fake_service import FakeService, make_error, make_members
from tests.support.journaled_uploads import Row, create_users, find_expected, make_repeated_rows, read_values, upload
from tests.support.journals import execute, list_spooled, read_record


@pytest.mark.long("spools a row of five megabytes")
async def test_an_iterator_is_spooled_and_read_from_there(journal: JournalLocation) -> None:
    service = FakeService()
    service.script[3] = make_error(403)
    rows: list[Any] = [{"email": "no"}, *make_repeated_rows(), {"partner_user_id": "x" * 5_000_000}]
    with pytest.raises(BatchError):
        await upload(service, iter(rows), journal, concurrency=2)
    assert await list_spooled(journal) == [*range(21)]
    report = await upload(service, iter([]), journal)
    assert (report.read, report.failed) == (62, 2)
    assert [(failure.position, failure.code) for failure in report.failures] == [(0, "INVALID_ROW"), (61, "TOO_LARGE")]
    assert read_values(service) == find_expected(rows[1:-1])
    assert await list_spooled(journal) == []


@pytest.mark.long("a spool has to have grown by hundreds of rows")
async def test_the_file_of_a_finished_job_is_small_again(tmp_path: Path) -> None:
    service, path, sizes = FakeService(), tmp_path / "job.journal", list[int]()

    def note_size(_: Progress) -> None:
        sizes.append(sum(each.stat().st_size for each in tmp_path.iterdir()))

    await upload(service, iter(make_repeated_rows(600)), path, operations=100, progress=note_size)
    assert max(sizes) > 100_000
    assert path.stat().st_size < 50_000


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM records WHERE kind = 'row' AND number = 7",
        pytest.param("DELETE FROM records WHERE kind = 'rows'", marks=pytest.mark.long),
        pytest.param("UPDATE records SET number = 500 WHERE kind = 'row' AND number = 7", marks=pytest.mark.long),
        "UPDATE records SET checksum = 0 WHERE kind = 'row' AND number = 7",
    ],
)
async def test_a_spool_that_is_damaged_is_reported_and_nothing_is_sent(
    journal: JournalLocation, statement: str
) -> None:
    service = FakeService()
    service.script[1] = make_error(403)
    rows = make_repeated_rows()
    with pytest.raises(BatchError):
        await upload(service, iter(rows), journal)
    sent = len(service.bodies)
    await execute(journal, statement)
    with pytest.raises((UnusableFile, UnusableState), check=has(hint=Hint.SEND_AGAIN)):
        await upload(service, iter(rows), journal)
    assert len(service.bodies) == sent


async def test_an_iterator_that_fails_sends_nothing_and_is_read_anew(journal: JournalLocation) -> None:
    service = FakeService()

    async def failing() -> AsyncIterator[Row]:
        for row in make_repeated_rows():
            yield row
        raise LookupError("p7")

    with pytest.raises(BatchError, check=because(LookupError)) as caught:
        await upload(service, failing(), journal)
    assert "p7" not in str(caught.value)
    assert service.bodies == []
    assert (await upload(service, iter(make_members(10)), journal)).accepted == 10


async def test_no_rows_do_not_finish_a_job_that_had_some(journal: JournalLocation) -> None:
    """An iterator that yields none stands for the spooled rows only if all of them were."""
    service = FakeService()

    async def failing() -> AsyncIterator[Row]:
        for row in make_repeated_rows():
            yield row
        raise ConnectionError

    with pytest.raises(BatchError, check=because(ConnectionError)):
        await upload(service, failing(), journal)
    with pytest.raises((UnusableFile, UnusableState), check=has(hint=Hint.GIVE_ALL_ROWS)):
        await upload(service, iter([]), journal)
    assert not (await read_record(journal)).finished
    assert (await upload(service, iter(make_members(10)), journal)).accepted == 10
    assert (await read_record(journal)).finished


async def test_a_job_whose_source_failed_before_its_first_row_may_have_none(journal: JournalLocation) -> None:
    service = FakeService()

    async def failing() -> AsyncIterator[Row]:
        raise ConnectionError
        yield {}

    with pytest.raises(BatchError, check=because(ConnectionError)):
        await upload(service, failing(), journal)
    assert (await upload(service, iter([]), journal)).read == 0
    assert (await read_record(journal)).finished


async def test_what_was_spooled_of_a_source_that_failed_is_replaced(journal: JournalLocation) -> None:
    def failing() -> Iterator[Row]:
        yield from make_repeated_rows(60)
        raise ConnectionError

    with pytest.raises(BatchError, check=because(ConnectionError)):
        await upload(FakeService(), failing(), journal)
    assert len(await list_spooled(journal)) > 4
    service = FakeService()
    service.script[1] = make_error(403)
    with pytest.raises(BatchError):
        await upload(service, iter(make_members(10)), journal)
    assert await list_spooled(journal) == [*range(4)]
    assert (await upload(service, iter(make_members(10)), journal)).accepted == 10


@pytest.mark.long("it kills a process")
async def test_what_a_process_has_spooled_that_is_killed_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "job.journal"
    program = (
        "import asyncio, os\n"
        "from pathlib import Path\n"
        "from tests.support.fake_service import FakeService\n"
        "from tests.support.journaled_uploads import upload\n"
        "def rows():\n"
        "    yield from ({'email': f'user{number}@example.org'} for number in range(5_000))\n"
        "    os.kill(os.getpid(), 9)\n"
        f"asyncio.run(upload(FakeService(), rows(), Path({str(path)!r})))\n"
    )
    for _ in range(2):
        killed = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
        assert await killed.wait() == -signal.SIGKILL
    assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}
    assert (await upload(FakeService(), iter(make_members(10)), path)).accepted == 10
    assert [each.name for each in tmp_path.iterdir()] == ["job.journal"]


@pytest.mark.parametrize("awaits", [False, True])
async def test_the_rows_of_a_cursor_are_spooled(journal: JournalLocation, awaits: bool) -> None:
    """The rows of a second call come from the query again, or from the spool when the cursor has none left."""
    service = FakeService()
    service.script[3] = make_error(403)
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as database:
        database.execute("CREATE TABLE customer (email, phone_number)")
        people = [(f"user{row}@example.org",) for row in range(50)]
        database.executemany("INSERT INTO customer VALUES (?, NULL)", people)

        def query() -> Rows:
            cursor = database.execute("SELECT email, phone_number FROM customer ORDER BY rowid")
            return from_cursor(_AwaitedCursor(cursor) if awaits else cursor)

        with pytest.raises(BatchError):
            await upload(service, query(), journal, concurrency=1)
        assert len(await list_spooled(journal)) == 17
        report = await upload(service, query(), journal)
    assert (report.read, report.accepted) == (50, 50)
    assert len(service.users) == 50


async def test_rows_that_can_be_read_only_once_although_they_are_no_iterator_are_told(journal: JournalLocation) -> None:
    """They cannot be told from a list before they are read again; as an iterator they finish the job."""
    service = FakeService()
    service.script[3] = make_error(403)
    with pytest.raises(BatchError):
        await upload(service, _ReadOnce(make_members(50)), journal, concurrency=1)
    with pytest.raises(BatchError, check=because((UnusableFile, UnusableState), hint=Hint.GIVE_THE_SAME_ROWS)):
        await upload(service, _ReadOnce(make_members(50)), journal)
    assert (await upload(service, iter(make_members(50)), journal)).accepted == 50
    assert len(service.users) == 50


class _AwaitedCursor:
    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self.description, self._cursor = cursor.description, cursor

    async def fetchmany(self, size: int) -> list[Any]:
        return self._cursor.fetchmany(size)


class _ReadOnce:
    def __init__(self, rows: Iterable[Any]) -> None:
        self._rows = iter(rows)

    def __iter__(self) -> Iterator[Any]:
        yield from self._rows


async def test_spooled_operations_keep_their_types_and_times(journal: JournalLocation) -> None:
    service = FakeService()
    users = create_users(service)
    end = service.clock.now() + timedelta(days=3)
    operations = [
        {"operation_type": "Update", "params": {"users": [{"svc_id": "1"}], "expires_at": end}},
        {"operation_type": "Delete", "params": {"users": [{"svc_id": "2"}]}},
        {"operation_type": "Update", "params": {"users": [{"svc_id": "3"}]}},
    ]
    service.script[1] = make_error(403)
    with pytest.raises(BatchError):
        await users.apply(iter(operations), journal=journal)
    await users.apply(iter(operations), journal=journal)
    kinds = {operation["operation_type"] for operation in service.accepted}
    ends = {operation["params"].get("expires_at") for operation in service.accepted}
    assert kinds == {"Update", "Delete"}
    assert len(ends) == 3


async def test_rows_that_are_spooled_are_announced_before_anything_is_sent(tmp_path: Path) -> None:
    service, path = FakeService(), tmp_path / "job.journal"
    seen: list[Progress] = []
    status: list[str] = []

    def rows() -> Iterator[Row]:
        yield from make_repeated_rows()
        status.append(describe_next(JournalRecord.read(path)))

    report = await upload(service, rows(), path, progress=seen.append)
    reading = [progress.phase_done for progress in seen if progress.phase == "reading"]
    assert reading == sorted(reading)
    assert 0 < reading[-1] < report.read
    assert [progress.phase for progress in seen][-1] == "sending"
    assert seen[-1].phase_done == 0
    assert status == ["The job reads its rows, before anything is sent; wait, or stop it with Ctrl-C or SIGTERM."]
