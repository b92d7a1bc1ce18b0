"""The state of a list in a SQLite file."""

import itertools
import random
import sqlite3
import stat
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from svc_async import UnusableFile
from svc_async.errors import Hint
from svc_async.store.file import DatabaseFile
from svc_async.store.records import compute_checksum, encode
from svc_async.sync.sending import ClockReading
from svc_async.sync.state import FORMAT
from tests.support.errors import has
from tests.support.sync_states import (
    NOW,
    YEAR,
    UnsyncedConnection,
    compare,
    open_file,
    sync,
)

SENT_AT = ClockReading(NOW, 1_000.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.mark.long("few rows are compared in memory")
async def test_a_comparison_writes_nothing_and_leaves_no_file(path: Path) -> None:
    async with open_file(path) as state:
        await sync(state, {1: 10})
        before = path.read_bytes()
        await compare(state, dict.fromkeys(range(5_000), 1))
        assert path.read_bytes() == before
        assert {file.name for file in path.parent.iterdir()} <= {"state", "state-journal", "state-lock"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_file_is_about_one_list(path: Path) -> None:
    async with open_file(path) as state:
        await sync(state, {1: 10})
    with pytest.raises(UnusableFile, check=has(path=str(path))):
        async with open_file(path, target="b"):
            pass


@pytest.mark.usefixtures("impatient")
def test_two_jobs_cannot_share_a_file(path: Path) -> None:
    with closing(DatabaseFile.open(path, FORMAT)), pytest.raises(UnusableFile, check=has(repeatable=True)):
        DatabaseFile.open(path, FORMAT)


def test_a_file_of_something_else_is_left_alone(path: Path) -> None:
    path.write_text("my notes, which are long enough to be read as the first page of a file\n" * 40)
    with pytest.raises(UnusableFile, check=has(hint=Hint.GIVE_A_STATE)):
        DatabaseFile.open(path, FORMAT)
    path.unlink()
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE mine (x)")
    database.close()
    with pytest.raises(UnusableFile, check=has(hint=Hint.GIVE_A_STATE)):
        DatabaseFile.open(path, FORMAT)


@pytest.mark.parametrize("change", [1, -1])
def test_a_file_of_another_version_is_left_alone(path: Path, change: int) -> None:
    DatabaseFile.open(path, FORMAT).close()
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {FORMAT.version + change}")
    database.close()
    written = path.read_bytes()
    with pytest.raises(UnusableFile, check=has(path=str(path))):
        DatabaseFile.open(path, FORMAT)
    assert path.read_bytes() == written


def test_a_folder_that_is_not_there_is_said(path: Path) -> None:
    with pytest.raises(UnusableFile, check=has(hint=Hint.CREATE_THE_FOLDER)):
        DatabaseFile.open(path / "nowhere", FORMAT)


class FullDisk(sqlite3.Connection):
    """Takes no page besides those in use, once the state is open."""

    begun = 0

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        self.begun += sql == "BEGIN IMMEDIATE"
        if self.begun == 3:
            super().execute("PRAGMA max_page_count = 1")
        return super().execute(sql, parameters)


async def test_a_full_disk_stops_clearly_and_loses_nothing(path: Path) -> None:
    async with open_file(path) as state:
        await sync(state, {1: 10})

    async with open_file(path, factory=FullDisk) as state:
        await compare(state, dict.fromkeys(range(5_000), 1))
        with pytest.raises(UnusableFile, check=has(path=str(path))):
            await state.begin(expires=NOW + YEAR)

    async with open_file(path) as state:
        assert (await compare(state, {1: 10})).unchanged == 1


@pytest.mark.parametrize("flips", [8, pytest.param(40, marks=pytest.mark.long)])
async def test_damage_is_noticed_and_changes_no_plan(path: Path, flips: int) -> None:
    async with open_file(path) as state:
        await sync(state, {number: number for number in range(1, 200)})
        await compare(state, {number: number for number in range(100, 300)})
        await state.begin(expires=NOW + YEAR)
        state.start("removals", "now")
        await state.admit(lambda: SENT_AT)
        state.record_accepted("removals", [3, 1, 7])
    whole, snapshot = path.read_bytes(), {number: number for number in range(150, 250)}
    async with open_file(path) as state:
        expected = await compare(state, snapshot)

    dice, noticed = random.Random(1), 0
    for _ in range(flips):
        damaged = bytearray(whole)
        damaged[dice.randrange(100, len(whole))] ^= 1 << dice.randrange(8)
        path.write_bytes(damaged)
        try:
            async with open_file(path, factory=UnsyncedConnection) as state:
                assert await compare(state, snapshot) == expected
        except UnusableFile as error:
            noticed += 1
            assert error.path == str(path)

    assert noticed > flips / 5


async def test_a_damaged_page_is_said_with_what_to_do(path: Path) -> None:
    async with open_file(path) as state:
        await sync(state, {1: 10})
    database = sqlite3.connect(path)
    database.execute("UPDATE records SET body = zeroblob(24) WHERE kind = 'page'")
    database.commit()
    database.close()

    with pytest.raises(UnusableFile, check=has(hint=Hint.SYNC_ANEW)):
        async with open_file(path) as state:
            await compare(state, {1: 10})


@pytest.mark.parametrize(
    ("kind", "number", "value"),
    [
        ("about", 1, ("a", 3, 1, 0, None, None)),
        pytest.param("sending", 1, (0, 0, 1.0, None, 9), marks=pytest.mark.long),
        ("outcome", 1, (1, 1, 0, 2**60, b"")),
        pytest.param("selection", 0, b"no zlib", marks=pytest.mark.long),
        ("plan", 1, (b"\xff" * 4, *[b""] * 7)),
        pytest.param("service_key", 1, (7, b""), marks=pytest.mark.long),
        pytest.param("service_key", 1, (b"k" * 16, b""), marks=pytest.mark.long),
        ("service_key", 1, (b"k" * 17, b"\3\0\0\0one")),
        pytest.param("service_key", 2, (b"k" * 16, b"\3\0\0\0one"), marks=pytest.mark.long),
    ],
)
async def test_what_no_sync_has_written_is_damage_whatever_its_checksum(
    path: Path, kind: str, number: int, value: object
) -> None:
    async with open_file(path) as state:
        await sync(state, {1: 10})
    with closing(sqlite3.connect(path)) as database, database:
        row = kind, number, encode(value), compute_checksum(kind, number, encode(value))
        database.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)", row)

    with pytest.raises(UnusableFile, check=has(hint=Hint.SYNC_ANEW)):
        async with open_file(path) as state:
            await compare(state, {1: 10})


def fail_at(number: int) -> type[sqlite3.Connection]:
    """Return a class of connections of which one statement fails."""
    statements = itertools.count(1)

    class Connection(UnsyncedConnection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if next(statements) == number:
                raise sqlite3.OperationalError("interrupted")
            return super().execute(sql, parameters)

    return Connection


@pytest.mark.parametrize("step", [15, pytest.param(1, marks=pytest.mark.long)])
async def test_a_sync_that_is_interrupted_at_any_statement_is_done_again(path: Path, step: int) -> None:
    for number in itertools.count(1, step):
        path.unlink(missing_ok=True)
        async with open_file(path, factory=UnsyncedConnection) as state:
            await sync(state, {1: 10, 2: 20})

        with suppress(UnusableFile):
            async with open_file(path, factory=fail_at(number)) as state:
                await sync(state, {1: 11, 3: 30})
                break

        async with open_file(path) as state:
            plan = await compare(state, {1: 11, 3: 30})
            assert plan.unchanged + plan.changes + plan.additions == 2
            assert plan.removals + plan.doubtful <= 1

    assert number > 40


# --- many rows


async def test_pages_divide_as_the_list_grows_and_stay_equal(path: Path, small_pages: int) -> None:
    async with open_file(path) as state:
        for count in (10, 2 * small_pages, 5 * small_pages, 4 * small_pages):
            await sync(state, dict.fromkeys(range(count), 1), slice_rows=512)
            assert (await compare(state, dict.fromkeys(range(count), 1), slice_rows=512)).unchanged == count
    database = sqlite3.connect(path)
    assert database.execute("SELECT count(*) FROM records WHERE kind = 'page'").fetchone() == (8,)
    database.close()


@pytest.mark.parametrize("rows", [3_000, *(pytest.param(rows, marks=pytest.mark.long) for rows in (12_000, 50_000))])
async def test_a_row_takes_few_bytes_also_after_all_rows_changed(path: Path, rows: int) -> None:
    async with open_file(path) as state:
        for content in range(3):
            await sync(state, dict.fromkeys(range(rows), content), slice_rows=512, replace=True)
            assert path.stat().st_size / rows < 48
