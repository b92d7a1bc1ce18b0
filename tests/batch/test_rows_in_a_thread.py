"""Rows that may block are read in one thread of the job, so that the event loop goes on."""

import asyncio
import itertools
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from contextvars import ContextVar
from typing import Any

import attrs
import pyarrow as pa
import pytest

from svc_async.batch.packing.batch import Limits
from svc_async.errors import BatchError, Hint, WrongState
from svc_async.lists.audience_users import AudienceUsers
from svc_async.sources.rows import from_arrow, from_cursor
from svc_async.users.encoding import SLICE_ROWS
from svc_async.users.tables import Columns, Rows
from tests.support.fake_service import FakeService, make_error
from tests.support.tasks import wait_until

EMAILS = [f"user{number}@example.org" for number in range(2_000)]
Pause = Callable[[], object]


def mappings(pause: Pause) -> Any:
    return (each for each in [{"email": email} for email in EMAILS] if pause() is None)


def tuples(pause: Pause) -> Any:
    return Rows(("email",), ((email,) for email in EMAILS if pause() is None))


def columns(pause: Pause) -> Any:
    return Columns(("email",), ([EMAILS[start : start + 100]] for start in range(0, 2_000, 100) if pause() is None))


def arrow(pause: Pause) -> Any:
    schema = pa.schema([("email", pa.string())])
    batches = (pa.record_batch([[email]], schema) for email in EMAILS if pause() is None)
    return pa.RecordBatchReader.from_batches(schema, batches)


def arrow_columns(pause: Pause) -> Any:
    return from_arrow(arrow(pause))


class Relation:
    """Runs its query where it is exported, as the relations of DuckDB do."""

    def __init__(self, pause: Pause) -> None:
        self.pause = pause

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        self.pause()
        return pa.table({"email": EMAILS}).__arrow_c_stream__(requested_schema)


class Query:
    """Begins anew each time, as a query set of Django does."""

    def __init__(self, pause: Pause) -> None:
        self.pause = pause

    def __iter__(self) -> Iterator[Any]:
        return iter(mappings(self.pause))


class Cursor:
    """A cursor of the DB-API."""

    description = (("email",),)

    def __init__(self, pause: Pause) -> None:
        self.pause = pause
        self.rows = iter(EMAILS)

    def fetchmany(self, size: int) -> list[tuple[str]]:
        self.pause()
        return [(email,) for _, email in zip(range(size), self.rows, strict=False)]


def cursor(pause: Pause) -> Any:
    return from_cursor(Cursor(pause))


SOURCES = [mappings, tuples, columns, arrow, arrow_columns, Relation, Query, cursor]


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
def users(service: FakeService) -> AudienceUsers:
    return AudienceUsers(service.pipeline, "a1", "c1")


@pytest.mark.parametrize("make", SOURCES)
async def test_the_loop_goes_on_while_rows_are_read(users: AudienceUsers, make: Callable[[Pause], Any]) -> None:
    asked, answered = threading.Event(), threading.Event()
    threads: set[str] = set()

    def pause() -> None:
        threads.add(threading.current_thread().name)
        asked.set()
        assert answered.wait(30)

    task = asyncio.create_task(users.upload(make(pause)))
    await wait_until(asked.is_set)
    answered.set()

    assert (await task).accepted == 2_000
    assert threading.current_thread().name not in threads


async def test_one_thread_reads_from_the_start_to_the_end_with_the_variables_of_the_caller(
    users: AudienceUsers,
) -> None:
    variable = ContextVar("variable", default="")
    seen: set[tuple[int, str]] = set()

    def read() -> Iterator[dict[str, str]]:
        for email in EMAILS:
            seen.add((threading.get_ident(), variable.get()))
            yield {"email": email}
        seen.add((threading.get_ident(), variable.get()))

    variable.set("of the caller")
    await users.upload(read())

    ((thread, value),) = seen
    assert thread != threading.get_ident()
    assert value == "of the caller"


async def test_operations_are_read_there_as_well(users: AudienceUsers) -> None:
    threads: set[int] = set()

    def read() -> Iterator[dict[str, Any]]:
        for email in EMAILS[:50]:
            threads.add(threading.get_ident())
            yield {"operation_type": "Update", "params": {"users": [{"email": [email]}]}}

    assert (await users.apply(read())).accepted == 50
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_no_more_than_a_slice_is_read_ahead(users: AudienceUsers) -> None:
    read: list[int] = []
    ahead: list[int] = []

    def rows() -> Iterator[dict[str, str]]:
        for number in range(20_000):
            read.append(number)
            yield {"email": f"user{number}@example.org"}

    await users.upload(rows(), progress=lambda progress: ahead.append(len(read) - progress.read))
    assert max(ahead) <= 2 * SLICE_ROWS


@pytest.mark.long("a thread reads whole slices of a generator without an end")
async def test_a_job_that_ends_early_closes_the_generator_in_its_thread(
    users: AudienceUsers, service: FakeService
) -> None:
    threads: list[int] = []

    def read() -> Iterator[Any]:
        try:
            for number in itertools.count():
                threads.append(threading.get_ident())
                yield {"email": f"user{number}@example.org"}
        finally:
            threads.append(0)
            threads.append(threading.get_ident())

    service.always = make_error(403)
    source = read()
    with pytest.raises(BatchError):
        await attrs.evolve(users, limits=Limits(operations=4)).upload(source, users_per_operation=1)
    assert threads[-2:] == [0, threads[0]]
    assert threading.get_ident() not in threads


async def test_a_cancellation_waits_for_the_read_in_progress(users: AudienceUsers) -> None:
    asked, answered = threading.Event(), threading.Event()
    ended: list[int] = []

    def read() -> Iterator[Any]:
        try:
            asked.set()
            assert answered.wait(30)
            yield {"email": "a@example.org"}
        finally:
            ended.append(threading.get_ident())

    task = asyncio.create_task(users.upload(read()))
    await wait_until(asked.is_set)
    task.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not task.done()
    answered.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended
    assert threading.get_ident() not in ended


@pytest.mark.parametrize("how", ["cursor", "rows", "generator"])
async def test_a_connection_that_only_its_thread_may_use_is_told_before_anything_is_sent(
    users: AudienceUsers, service: FakeService, how: str
) -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        found = database.execute("SELECT 'a@example.org' AS email")
        sources: dict[str, Any] = {
            "cursor": from_cursor(found),
            "rows": Rows(("email",), found),
            "generator": ({"email": email} for (email,) in found),
        }
        with pytest.raises(BatchError) as caught:
            await users.upload(sources[how])

    assert isinstance(caught.value.__cause__, WrongState)
    assert caught.value.__cause__.hint is Hint.SHARE_WITH_THREADS
    assert caught.value.report.read == 0
    assert service.bodies == []


async def test_what_a_source_raises_stays_as_it_is(users: AudienceUsers) -> None:
    def read() -> Iterator[Any]:
        yield {"email": "a@example.org"}
        raise LookupError("thread")

    with pytest.raises(BatchError) as caught:
        await users.upload(read())

    assert isinstance(caught.value.__cause__, LookupError)
    assert caught.value.report.accepted == 1


async def test_a_list_is_read_without_a_thread(users: AudienceUsers, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise AssertionError

    monkeypatch.setattr("threading.Thread.start", start)
    assert (await users.upload([{"email": email} for email in EMAILS])).accepted == 2_000
