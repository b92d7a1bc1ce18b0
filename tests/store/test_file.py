import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import attrs
import pytest

from svc_async.cancellation import in_thread
from svc_async.errors import Hint, InvalidArgument, UnusableFile, WrongState
from svc_async.store.file import DatabaseFile, FileFormat, FileLock, Writer
from tests.support.errors import has

FORMAT = FileFormat(
    kind="a ledger",
    parameter="path",
    application_id=0x1234,
    version=3,
    tables="CREATE TABLE entries (entry TEXT UNIQUE NOT NULL)",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


def insert(entry: str | None) -> Callable[[sqlite3.Connection], None]:
    def work(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO entries VALUES (?)", (entry,))

    return work


def entries_in(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [entry for (entry,) in connection.execute("SELECT entry FROM entries ORDER BY rowid")]


class Commits:
    """Counts the commits of a writer, and holds the first one back until it is released."""

    def __init__(self) -> None:
        self.count = 0
        self.began = threading.Event()
        self.release = threading.Event()

    def __call__(self, _: sqlite3.Connection) -> None:
        self.count += 1
        self.began.set()
        assert self.release.wait(30)


@asynccontextmanager
async def writing(
    path: Path,
    *,
    before_commit: Callable[[sqlite3.Connection], object] | None = None,
    stop_on_error: bool = False,
    pages: int | None = None,
) -> AsyncIterator[Writer]:
    file = DatabaseFile.open(path, FORMAT, exclusive=False)
    file.begin_log()
    if pages:
        file.connection.execute(f"PRAGMA max_page_count = {pages}")
    writer = Writer(file, before_commit=before_commit, stop_on_error=stop_on_error)
    try:
        yield writer
    finally:
        await writer.close()


# --- the file


def test_a_new_file_gets_its_tables_and_says_what_it_is(path: Path) -> None:
    DatabaseFile.open(path, FORMAT, exclusive=False).close()

    with closing(sqlite3.connect(path)) as connection:
        header = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        assert header == [0x1234, 3]
    assert entries_in(path) == []


def test_a_file_is_opened_again_with_what_it_holds(path: Path) -> None:
    for entry in ("a", "b"):
        with closing(DatabaseFile.open(path, FORMAT)) as file:
            insert(entry)(file.connection)

    assert entries_in(path) == ["a", "b"]


@pytest.mark.parametrize("version", [4, 2])
def test_a_file_of_another_version_is_refused_and_left_alone(path: Path, version: int) -> None:
    DatabaseFile.open(path, attrs.evolve(FORMAT, version=version)).close()
    before = path.read_bytes()

    with pytest.raises(UnusableFile, check=has(parameter="path", path=str(path), hint=None)):
        DatabaseFile.open(path, FORMAT)

    assert path.read_bytes() == before


def test_a_file_of_something_else_is_refused_and_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mine (x)")
    before = path.read_bytes()

    with pytest.raises(UnusableFile, check=has(parameter="path", path=str(path), hint=None)):
        DatabaseFile.open(path, FORMAT, exclusive=False)

    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_text("notes that are longer than the header of a database\n" * 40)

    with pytest.raises(UnusableFile, check=has(parameter="path", path=str(path), hint=None)):
        DatabaseFile.open(path, FORMAT)


def test_a_folder_that_does_not_exist_is_reported(path: Path) -> None:
    with pytest.raises(UnusableFile, check=has(hint=Hint.CREATE_THE_FOLDER)):
        DatabaseFile.open(path / "file", FORMAT, exclusive=False)


@pytest.mark.usefixtures("impatient")
def test_an_exclusive_file_has_one_user_until_it_is_closed(path: Path) -> None:
    first = DatabaseFile.open(path, FORMAT)

    with pytest.raises(UnusableFile, check=has(path=str(path), repeatable=True)):
        DatabaseFile.open(path, FORMAT)

    first.close()
    DatabaseFile.open(path, FORMAT).close()


_READ = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT * FROM entries')"
_TAKE = """
import sys
from pathlib import Path
from svc_async.store.file import DatabaseFile, FileFormat

format = FileFormat(kind="a ledger", parameter="path", application_id=0x1234, version=3, tables=sys.argv[2])
DatabaseFile.open(Path(sys.argv[1]), format)
"""


def take_elsewhere(path: Path) -> bytes:
    """Open a file in another process; return what it writes about that."""
    command = [sys.executable, "-c", _TAKE, str(path), FORMAT.tables]
    return subprocess.run(command, capture_output=True, check=False).stderr


@pytest.mark.long("other interpreters take the lock")
def test_a_lock_ends_with_its_process_and_not_before(path: Path) -> None:
    with closing(DatabaseFile.open(path, FORMAT)):
        subprocess.run([sys.executable, "-c", _READ, str(path)], check=True)
        assert b"locked by another job" in take_elsewhere(path)

    assert take_elsewhere(path) == b""
    assert FileLock.is_taken(Path(f"{path}-lock")) is False


@pytest.mark.long("another interpreter tries to take the lock")
@pytest.mark.parametrize("suffix", ["", *(pytest.param(suffix, marks=pytest.mark.long) for suffix in ("-wal", "-shm"))])
def test_a_backup_by_the_process_that_has_a_file_keeps_the_lock(path: Path, suffix: str) -> None:
    with closing(DatabaseFile.open(path, FORMAT)) as file:
        file.begin_log()
        insert("a")(file.connection)
        Path(f"{path}{suffix}").read_bytes()  # which closes it, so that the locks of SQLite are lost

        assert b"locked by another job" in take_elsewhere(path)
        insert("b")(file.connection)

    assert entries_in(path) == ["a", "b"]


@pytest.mark.usefixtures("impatient")
def test_a_lock_file_that_was_deleted_by_who_had_the_lock_is_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = FileLock.take(path)
    with path.open() as late:  # opened it before it was deleted
        first.release()
        second = FileLock.take(path)
        assert not os.path.samestat(os.fstat(late.fileno()), path.stat())
        with pytest.raises(BlockingIOError):
            FileLock.take(path)
        first = FileLock(path, os.dup(late.fileno()))
        first.release()  # a file that is not at the path any more
    assert path.exists()
    second.release()
    assert [*tmp_path.iterdir()] == []


def test_a_file_is_private_with_those_beside_it(tmp_path: Path) -> None:
    with closing(DatabaseFile.open(tmp_path / "file", FORMAT, exclusive=False)):
        modes = {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}

    assert modes == {0o600}


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal", "-lock"])
@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to])
def test_a_link_that_was_put_there_is_not_followed(
    tmp_path: Path, suffix: str, plant: Callable[[Path, Path], None]
) -> None:
    target = tmp_path / "target"
    target.touch(0o666)
    plant(tmp_path / f"file{suffix}", target)

    with pytest.raises(UnusableFile, check=has(parameter="path", hint=None, repeatable=False)):
        DatabaseFile.open(tmp_path / "file", FORMAT)

    assert not target.read_bytes()


@pytest.mark.parametrize("suffix", ["", "-wal", "-journal"])
def test_a_file_that_all_users_could_open_is_withdrawn_from_them(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"file{suffix}").touch()
    (tmp_path / f"file{suffix}").chmod(0o666)

    with closing(DatabaseFile.open(tmp_path / "file", FORMAT, exclusive=False)):
        assert not {each.name for each in tmp_path.iterdir() if each.stat().st_mode & 0o007}


IN_MEMORY = (":memory:", "./:memory:", "file::memory:", "file::memory:?cache=shared", "file:x?mode=memory&cache=shared")


@pytest.mark.parametrize("name", [*IN_MEMORY, "", "."])
def test_what_names_no_file_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InvalidArgument, check=has(parameter=FORMAT.parameter)):
        DatabaseFile.open(Path(name), FORMAT, exclusive=False)

    assert [*tmp_path.iterdir()] == []


def test_a_name_that_only_looks_like_memory_is_that_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / ":memory:"

    DatabaseFile.open(path, FORMAT, exclusive=False).close()

    assert path.is_file()


# --- group commit


async def test_work_returns_its_result_when_it_is_in_the_file(path: Path) -> None:
    async with writing(path) as writer:
        await writer.run(insert("a"))
        assert entries_in(path) == ["a"]
        assert await writer.run(lambda connection: connection.execute("SELECT 7").fetchone()) == (7,)


async def test_work_that_waits_at_the_same_time_shares_a_transaction(path: Path) -> None:
    commits = Commits()
    async with writing(path, before_commit=commits) as writer:
        writer.submit(insert("first"))
        await asyncio.to_thread(commits.began.wait)
        waiting = asyncio.gather(*(writer.run(insert(f"{number}")) for number in range(20)))
        await asyncio.sleep(0)
        commits.release.set()
        await waiting

    assert commits.count == 2
    assert entries_in(path) == ["first", *map(str, range(20))]


async def test_what_was_submitted_is_committed_when_the_writer_closes(path: Path) -> None:
    async with writing(path) as writer:
        for number in range(5):
            writer.submit(insert(f"{number}"))

    assert entries_in(path) == [*"01234"]


async def test_a_closed_writer_refuses_work_and_has_ended_its_thread(path: Path) -> None:
    async with writing(path) as writer:
        pass

    with pytest.raises(WrongState):
        await writer.run(insert("a"))
    with pytest.raises(WrongState):
        writer.submit(insert("a"))
    await writer.close()
    assert "svc-async sqlite" not in {thread.name for thread in threading.enumerate()}


# --- errors


async def test_work_that_fails_is_undone_alone(path: Path) -> None:
    def twice(connection: sqlite3.Connection) -> None:
        insert("undone")(connection)
        insert("a")(connection)

    async with writing(path) as writer:
        outcomes = await asyncio.gather(*map(writer.run, (insert("a"), twice, insert("b"))), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [type(None), sqlite3.IntegrityError, type(None)]
    assert entries_in(path) == ["a", "b"]


async def test_an_error_of_the_writer_reaches_every_waiter_and_nothing_is_written_any_more(path: Path) -> None:
    commits = Commits()
    async with writing(path, before_commit=commits, stop_on_error=True) as writer:
        writer.submit(insert("a"))
        await asyncio.to_thread(commits.began.wait)
        waiting = asyncio.gather(*map(writer.run, (insert("b"), insert(None), insert("c"))), return_exceptions=True)
        await asyncio.sleep(0)
        commits.release.set()
        assert [type(outcome) for outcome in await waiting] == [sqlite3.IntegrityError] * 3
        writer.submit(insert("d"))
        with pytest.raises(sqlite3.IntegrityError):
            await writer.run(insert("e"))

    assert entries_in(path) == ["a"]


async def test_an_error_of_submitted_work_reaches_the_next_waiter(path: Path) -> None:
    async with writing(path, stop_on_error=True) as writer:
        writer.submit(insert(None))
        with pytest.raises(sqlite3.IntegrityError):
            await writer.run(insert("a"))


@pytest.mark.parametrize(("stop_on_error", "written"), [(True, ["first"]), (False, ["first", "small enough"])])
async def test_a_full_disk_is_an_error_of_all_that_share_the_transaction(
    path: Path, *, stop_on_error: bool, written: list[str]
) -> None:
    commits = Commits()
    async with writing(path, before_commit=commits, stop_on_error=stop_on_error, pages=3) as writer:
        writer.submit(insert("first"))
        await asyncio.to_thread(commits.began.wait)
        waiting = asyncio.gather(*map(writer.run, (insert("x" * 50_000), insert("a"))), return_exceptions=True)
        await asyncio.sleep(0)
        commits.release.set()
        assert list(map(str, await waiting)) == ["database or disk is full"] * 2
        writer.submit(insert("small enough"))

    assert entries_in(path) == written


async def test_a_file_that_another_process_has_locked_is_waited_for(path: Path) -> None:
    async with writing(path) as writer:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            waiting = asyncio.create_task(writer.run(insert("a")))
            await asyncio.sleep(0)
            other.execute("COMMIT")
            await waiting

    assert entries_in(path) == ["a"]


# --- cancellation


async def test_work_whose_caller_is_cancelled_is_done_all_the_same(path: Path) -> None:
    commits = Commits()
    async with writing(path, before_commit=commits) as writer:
        waiting = asyncio.create_task(writer.run(insert("a")))
        await asyncio.to_thread(commits.began.wait)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        commits.release.set()
        await writer.run(insert("b"))

    assert entries_in(path) == ["a", "b"]


async def cancel_until_done(task: asyncio.Task[Any], release: threading.Event, times: int) -> None:
    """Cancel a task some times, let its thread go on, and check that the task ends as cancelled."""
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("times", [1, 2, 5])
async def test_closing_is_finished_however_often_it_is_cancelled(path: Path, times: int) -> None:
    commits = Commits()
    writer = Writer(DatabaseFile.open(path, FORMAT), before_commit=commits)
    writer.submit(insert("a"))
    await asyncio.to_thread(commits.began.wait)
    closing_ = asyncio.create_task(writer.close())
    await asyncio.sleep(0)

    await cancel_until_done(closing_, commits.release, times)

    assert not find_threads()
    assert entries_in(path) == ["a"]


@pytest.mark.parametrize("times", [1, 2, 5])
async def test_opening_is_undone_however_often_it_is_cancelled(path: Path, times: int) -> None:
    began, release = threading.Event(), threading.Event()

    def open_() -> Writer:
        began.set()
        assert release.wait(30)
        return Writer(DatabaseFile.open(path, FORMAT))

    opening = asyncio.create_task(in_thread(open_, undo=Writer.close))
    await asyncio.to_thread(began.wait)

    await cancel_until_done(opening, release, times)

    assert not find_threads()
    assert entries_in(path) == []


async def test_the_cancellation_wins_over_the_failure_of_the_work() -> None:
    began, release = threading.Event(), threading.Event()

    def fail() -> None:
        began.set()
        assert release.wait(30)
        raise OSError("full")

    async def undo(_: None) -> None:
        raise AssertionError

    working = asyncio.create_task(in_thread(fail, undo=undo))
    await asyncio.to_thread(began.wait)

    await cancel_until_done(working, release, 1)


def test_opening_is_undone_when_the_loop_ends(path: Path) -> None:
    began, release = threading.Event(), threading.Event()
    opened: list[asyncio.Task[Any]] = []

    def open_() -> Writer:
        began.set()
        assert release.wait(30)
        return Writer(DatabaseFile.open(path, FORMAT))

    async def leave_open() -> None:
        opened.append(asyncio.create_task(in_thread(open_, undo=Writer.close)))
        opened.append(asyncio.create_task(release_when_cancelled()))
        await asyncio.to_thread(began.wait)

    async def release_when_cancelled() -> Any:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            release.set()

    asyncio.run(leave_open())

    assert all(task.cancelled() for task in opened)
    assert not find_threads()
    assert entries_in(path) == []


def find_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "svc-async sqlite"]
