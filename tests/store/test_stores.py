"""Records in a file and in PostgreSQL: both keep what was committed, for one process at a time, and notice damage."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import attrs
import pytest

from svc_async.cancellation import in_thread
from svc_async.errors import Hint, TakenUpElsewhere, UnusableFile, UnusableState
from svc_async.state import SharedState
from svc_async.store.file import FileFormat, FileLocation
from svc_async.store.postgres import PostgresLocation
from svc_async.store.records import Changes, PendingChanges, RecordLocation, Records, RecordStore, encode
from tests.support.errors import has
from tests.support.tasks import run_ready_tasks

FORMAT = FileFormat(kind="a ledger", parameter="path", application_id=0x1234, version=3, shrinks=True)
UNUSABLE = (UnusableFile, UnusableState)


@attrs.frozen
class Place:
    """Where records are, and what changes them behind the back of the store."""

    location: RecordLocation
    execute: Callable[[str], Awaitable[object]]


@pytest.fixture(params=["file", "log", "postgres"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    if request.param != "postgres":
        path = tmp_path / "ledger"

        async def execute(statement: str) -> None:
            with closing(sqlite3.connect(path)) as database, database:
                assert database.execute(statement).rowcount == 1

        yield Place(FileLocation(path, attrs.evolve(FORMAT, has_log=request.param == "log")), execute)
        return
    url, schema = (request.getfixturevalue(name) for name in ("postgres_url", "schema"))
    async with SharedState.open(url, schema=schema) as state:
        yield Place(PostgresLocation("ledger", state.database, "job", Hint.RENAME_THE_JOB), state.database.execute)


def is_damage(place: Place) -> Callable[[BaseException], bool]:
    """Return a check: the error advises what to do about damage there."""
    return has(hint=Hint.RESTORE_OR_DELETE if isinstance(place.location, FileLocation) else Hint.RENAME_THE_JOB)


@asynccontextmanager
async def take_up(place: Place, **values: Any) -> AsyncIterator[RecordStore]:
    """Take up all records, and store values of a kind each under the number 0."""

    def begin(records: Records) -> tuple[None, Changes]:
        pending = PendingChanges(records)
        for kind, value in values.items():
            pending.put(kind, 0, value)
        return None, pending.take()

    _, store = await place.location.open(begin)
    try:
        yield store
    finally:
        await store.close()


async def read_all(place: Place, *kinds: str) -> dict[tuple[str, int], bytes]:
    found, store = await place.location.open(lambda records: ({**records.bodies}, {}), kinds=kinds or None)
    await store.close()
    return found


async def test_what_was_committed_is_there_with_what_was_submitted_before(place: Place) -> None:
    async with take_up(place) as store:
        store.submit({("a", 1): encode("x"), ("a", 2): encode("y")})
        store.submit({("a", 1): encode("z")})
        await store.commit({("a", 2): None, ("b", -1): encode(None), ("count", 0): encode(2)})
        assert await store.read("a", str) == [(1, "z")]
    assert await read_all(place) == {("a", 1): encode("z"), ("b", -1): encode(None)}
    assert await read_all(place, "b") == {("b", -1): encode(None)}


async def test_records_are_read_by_their_numbers(place: Place) -> None:
    async with take_up(place) as store:
        await store.commit({("a", number): encode(number) for number in (7, -3, 2**40, 5)})
        assert await store.list_numbers("a") == [-3, 5, 7, 2**40]
        assert await store.read("a", int) == [(number, number) for number in (-3, 5, 7, 2**40)]
        assert await store.read("a", int, range(5, 8)) == [(5, 5), (7, 7)]
        assert await store.read("a", int, range(5, 5)) == []
        assert await store.read("b", int) == []


async def test_an_event_loop_does_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads while the thread that writes is in the middle of a commit."""
    began, goes_on, timely = threading.Event(), threading.Event(), list[bool]()

    def hold(statement: str) -> None:
        if statement == "COMMIT" and threading.current_thread() is not threading.main_thread():
            began.set()
            timely.append(goes_on.wait(10))

    def connect(*arguments: Any, **keywords: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = sqlite3_connect(*arguments, **keywords)
        connection.set_trace_callback(hold)
        return connection

    sqlite3_connect = sqlite3.connect
    monkeypatch.setattr("sqlite3.connect", connect)
    goes_on.set()
    _, store = await FileLocation(tmp_path / "ledger", attrs.evolve(FORMAT, has_log=True)).open(lambda _: (None, {}))
    goes_on.clear()
    began.clear()
    store.submit({("a", 1): encode("x")})
    assert await in_thread(lambda: began.wait(10))
    reading = asyncio.create_task(store.read("a", str))
    await run_ready_tasks()
    goes_on.set()

    assert await reading == [(1, "x")]
    await store.close()
    assert all(timely)


@pytest.mark.parametrize("count", [100, pytest.param(1_000, marks=pytest.mark.long)])
async def test_a_transaction_is_done_whole_or_not_at_all(place: Place, count: int) -> None:
    async with take_up(place) as store:
        async with store.transaction() as writer:
            for number in range(count):
                await writer.put("a", number, bytes(100))
            await writer.put("b", 1, "b")

        async def fail() -> None:
            async with store.transaction() as writer:
                await writer.delete("a")
                raise LookupError

        with pytest.raises(LookupError):
            await fail()
        async with store.transaction() as writer:
            await writer.delete("a", range(30, 70))
        assert await store.list_numbers("a") == [*range(30), *range(70, count)]
        async with store.transaction() as writer:
            await writer.delete("a")
        await store.shrink()
        assert (await store.list_numbers("a"), await store.list_numbers("b")) == ([], [1])


@pytest.mark.parametrize("shrinks", [True, False])
async def test_what_was_deleted_leaves_the_file(tmp_path: Path, shrinks: bool) -> None:
    path = tmp_path / "ledger"
    place = Place(FileLocation(path, attrs.evolve(FORMAT, shrinks=shrinks)), AsyncMock())
    async with take_up(place) as store:
        await store.commit({("a", number): encode(bytes(1_000)) for number in range(500)})
        await store.commit({("a", number): None for number in range(490)})
        await store.shrink()
    assert path.stat().st_size < 50_000


async def test_whoever_cannot_begin_changes_nothing(place: Place) -> None:
    def refuse(_: Records) -> tuple[None, Changes]:
        raise LookupError

    async with take_up(place, a=1):
        pass
    before = await read_all(place)
    with pytest.raises(LookupError):
        await place.location.open(refuse)
    assert await read_all(place) == before


@pytest.mark.usefixtures("impatient")
async def test_one_at_a_time_has_the_records(place: Place) -> None:
    async with take_up(place, a=1) as first:
        if first.is_locked:
            with pytest.raises(UnusableFile, check=has(repeatable=True)):
                await read_all(place)
        else:
            await read_all(place)
            for use in (first.commit({}), first.read("a", int), first.list_numbers("a"), _write(first)):
                with pytest.raises(TakenUpElsewhere, check=has(name="the job ledger")):
                    await use


async def _write(store: RecordStore) -> None:
    async with store.transaction() as writer:
        await writer.put("b", 0, 1)


async def test_closing_stores_what_was_submitted_although_it_is_cancelled(place: Place) -> None:
    async def leave() -> None:
        async with take_up(place) as store:
            store.submit({("a", 0): encode(1), ("count", 0): encode(1)})

    for _ in range(2):
        task = asyncio.create_task(leave())
        for _ in range(100):  # the disk takes longer, and a loop that never waits keeps the processor from its thread
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait([task])
        assert await read_all(place) in ({}, {("a", 0): encode(1)})


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE records SET body = '' WHERE kind = 'a'",
        "DELETE FROM records WHERE kind = 'a'",
        pytest.param("UPDATE records SET number = 1 WHERE kind = 'a'", marks=pytest.mark.long),
        pytest.param("UPDATE records SET kind = 'c' WHERE kind = 'a'", marks=pytest.mark.long),
        pytest.param("UPDATE records SET checksum = checksum + 1 WHERE kind = 'a'", marks=pytest.mark.long),
        pytest.param("DELETE FROM records WHERE kind = 'count'", marks=pytest.mark.long),
    ],
)
async def test_damage_is_one_error_that_says_what_to_do(place: Place, statement: str) -> None:
    async with take_up(place, a=1, b=2):
        pass
    backup = place.location.path.read_bytes() if isinstance(place.location, FileLocation) else b""
    await place.execute(statement)

    with pytest.raises(UNUSABLE, check=is_damage(place)):
        await read_all(place)
    if isinstance(place.location, FileLocation):
        with pytest.raises(UnusableFile, check=is_damage(place)) as kept:
            place.location.read()
        place.location.path.write_bytes(backup)
        async with take_up(place):  # an error that is kept does not keep a lock
            assert not kept.value.repeatable


async def test_a_record_of_another_type_is_damage(place: Place) -> None:
    async with take_up(place, a="text") as store:
        with pytest.raises(UNUSABLE, check=is_damage(place)):
            await store.read("a", int)
    _, store = await place.location.open(lambda _: (None, {}))
    await store.close()

    def load(records: Records) -> tuple[int, Changes]:
        return records.load("a", 0, int), {}

    with pytest.raises(UNUSABLE, check=is_damage(place)):
        await place.location.open(load)
