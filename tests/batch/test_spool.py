"""Rows of sources that can be read only once are spooled beside the journal."""

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
from svc_async.batch.journal.record import JournalRecord
from svc_async.batch.report import Progress
from svc_async.cli.job_page import describe_next
from svc_async.errors import BatchError, UnusableFile
from svc_async.sources.rows import from_cursor
from tests.support.fake_service import FakeService, make_error, make_members
from tests.support.journaled_uploads import Row, create_users, find_expected, make_repeated_rows, read_values, upload


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "job.journal"


async def test_an_iterator_is_spooled_and_read_from_there(path: Path) -> None:
    service = FakeService()
    service.script[3] = make_error(403)
    rows: list[Any] = [{"email": "no"}, *make_repeated_rows(), {"partner_user_id": "x" * 5_000_000}]
    with pytest.raises(BatchError):
        await upload(service, iter(rows), path, concurrency=2)
    spool = path.with_name("job.journal.rows")
    assert spool.stat().st_mode & 0o777 == 0o600
    report = await upload(service, iter([]), path)
    assert (report.read, report.failed) == (62, 2)
    assert [(failure.position, failure.code) for failure in report.failures] == [(0, "INVALID_ROW"), (61, "TOO_LARGE")]
    assert read_values(service) == find_expected(rows[1:-1])
    assert not spool.exists()


async def test_the_spool_of_a_job_whose_journal_is_gone_is_not_read(path: Path) -> None:
    service = FakeService()
    service.script[1] = make_error(403)
    with pytest.raises(BatchError):
        await upload(service, iter(make_members(5)), path, concurrency=1)
    path.unlink()
    report = await upload(service, iter(make_members(3, first=90)), path)
    assert (report.read, {user["partner_user_id"][0] for user in service.users}) == (3, {"p90", "p91", "p92"})


async def test_a_spool_that_is_gone_is_reported(path: Path) -> None:
    service = FakeService()
    service.script[1] = make_error(403)
    with pytest.raises(BatchError):
        await upload(service, iter(make_members(5)), path)
    path.with_name("job.journal.rows").unlink()
    with pytest.raises(UnusableFile, match=r"job.journal.rows is missing"):
        await upload(service, iter(make_members(5)), path)


async def test_an_iterator_that_fails_sends_nothing_and_is_read_anew(path: Path) -> None:
    service = FakeService()

    async def failing() -> AsyncIterator[Row]:
        for row in make_repeated_rows():
            yield row
        raise LookupError("p7")

    with pytest.raises(BatchError, match="LookupError") as caught:
        await upload(service, failing(), path)
    assert "p7" not in str(caught.value)
    assert service.bodies == []
    assert (await upload(service, iter(make_members(10)), path)).accepted == 10


async def test_no_rows_do_not_finish_a_job_that_had_some(path: Path) -> None:
    """An iterator that yields none stands for the spooled rows only if all of them were."""
    service = FakeService()

    async def failing() -> AsyncIterator[Row]:
        for row in make_repeated_rows():
            yield row
        raise ConnectionError

    with pytest.raises(BatchError, match="ConnectionError"):
        await upload(service, failing(), path)
    with pytest.raises(UnusableFile, match=r"before all of its rows were spooled, .* pass all rows again"):
        await upload(service, iter([]), path)
    assert not JournalRecord.read(path).finished
    assert (await upload(service, iter(make_members(10)), path)).accepted == 10
    assert JournalRecord.read(path).finished


async def test_a_job_whose_source_failed_before_its_first_row_may_have_none(path: Path) -> None:
    service = FakeService()

    async def failing() -> AsyncIterator[Row]:
        raise ConnectionError
        yield {}

    with pytest.raises(BatchError, match="ConnectionError"):
        await upload(service, failing(), path)
    assert (await upload(service, iter([]), path)).read == 0
    assert JournalRecord.read(path).finished


async def test_what_a_process_has_left_that_was_killed_while_it_spooled_is_replaced(path: Path) -> None:
    left = path.with_name("job.journal.rows.new")
    left.write_bytes(b"a part of the rows")
    assert (await upload(FakeService(), iter(make_members(10)), path)).accepted == 10
    assert [each.name for each in path.parent.iterdir() if ".rows" in each.name] == []


@pytest.mark.long("it kills a process")
async def test_a_process_that_is_killed_while_it_spools_leaves_no_file_for_long(path: Path) -> None:
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
    left = path.with_name("job.journal.rows.new")
    assert left.stat().st_mode & 0o777 == 0o600
    assert not [each for each in path.parent.iterdir() if not each.name.startswith("job.journal")]
    assert (await upload(FakeService(), iter(make_members(10)), path)).accepted == 10
    assert not left.exists()
    assert not path.with_name("job.journal.rows").exists()


@pytest.mark.parametrize("awaits", [False, True])
async def test_the_rows_of_a_cursor_are_spooled(path: Path, awaits: bool) -> None:
    """The rows of a second call come from the query again, or from the spool when the cursor has none left."""
    service = FakeService()
    service.script[3] = make_error(403)
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE customer (email, phone_number)")
        people = [(f"user{row}@example.org",) for row in range(50)]
        database.executemany("INSERT INTO customer VALUES (?, NULL)", people)

        def query() -> Rows:
            cursor = database.execute("SELECT email, phone_number FROM customer ORDER BY rowid")
            return from_cursor(_AwaitedCursor(cursor) if awaits else cursor)

        with pytest.raises(BatchError):
            await upload(service, query(), path, concurrency=1)
        assert path.with_name("job.journal.rows").exists()
        report = await upload(service, query(), path)
    assert (report.read, report.accepted) == (50, 50)
    assert len(service.users) == 50


async def test_rows_that_can_be_read_only_once_although_they_are_no_iterator_are_told(path: Path) -> None:
    """They cannot be told from a list before they are read again; as an iterator they finish the job."""
    service = FakeService()
    service.script[3] = make_error(403)
    with pytest.raises(BatchError):
        await upload(service, _ReadOnce(make_members(50)), path, concurrency=1)
    with pytest.raises(BatchError, match=r"can be read only once; .* such as \(row for row in rows\)"):
        await upload(service, _ReadOnce(make_members(50)), path)
    assert (await upload(service, iter(make_members(50)), path)).accepted == 50
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


async def test_spooled_operations_keep_their_types_and_times(path: Path) -> None:
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
        await users.apply(iter(operations), journal=path)
    await users.apply(iter(operations), journal=path)
    kinds = {operation["operation_type"] for operation in service.accepted}
    ends = {operation["params"].get("expires_at") for operation in service.accepted}
    assert kinds == {"Update", "Delete"}
    assert len(ends) == 3


async def test_rows_that_are_spooled_are_announced_before_anything_is_sent(path: Path) -> None:
    service = FakeService()
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
