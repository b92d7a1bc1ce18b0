"""A network that swallows everything: nobody waits for long, and a cancellation arrives."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from svc_async.errors import StateUnavailable
from svc_async.sandbox import VirtualClock
from svc_async.state import SharedState
from svc_async.state.events import SharedEvents
from svc_async.store.database_url import DatabaseUrl
from svc_async.store.postgres import Database
from tests.support.fake_service import FakeService, make_members
from tests.support.journaled_uploads import upload
from tests.support.journals import create_empty_job
from tests.support.postgres_proxy import PostgresProxy, run_postgres_proxy
from tests.support.tasks import wait_until

SOON = 0.2
_NOT_WRITING = "SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND backend_xid IS NULL"


@pytest.fixture
async def proxy(postgres_url: str) -> AsyncIterator[PostgresProxy]:
    async with run_postgres_proxy(postgres_url) as running:
        yield running


@pytest.fixture
async def state(proxy: PostgresProxy, schema: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SharedState]:
    """A state whose connections wait for a part of a second where they wait for seconds."""
    async with SharedState.open(proxy.url, schema=schema) as opened:
        for name in ("_CONNECT_SECONDS", "_RELEASE_SECONDS"):
            monkeypatch.setattr(f"svc_async.store.postgres.{name}", SOON)
        yield opened
        proxy.heal()


async def read(state: SharedState) -> None:
    await state.database.fetch("SELECT 1")


async def read_often(state: SharedState) -> None:
    await state.database.fetch_row_often("SELECT 1")


async def transact(state: SharedState) -> None:
    async with state.database.transaction() as connection:
        await connection.execute("SELECT 1")


async def take_up(state: SharedState) -> None:
    await create_empty_job(state.journal("job")).__aenter__()


@pytest.mark.parametrize(
    "work", [read, *(pytest.param(each, marks=pytest.mark.long) for each in (read_often, transact))]
)
async def test_what_is_cancelled_without_an_answer_ends_as_cancelled(
    proxy: PostgresProxy, state: SharedState, work: Callable[[SharedState], Awaitable[None]]
) -> None:
    await work(state)
    proxy.swallow()
    task = asyncio.ensure_future(work(state))
    await proxy.swallowed.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    proxy.heal()
    await work(state)


async def test_a_journal_that_is_being_taken_up_is_given_up_if_it_is_cancelled(
    proxy: PostgresProxy, state: SharedState
) -> None:
    await read(state)
    proxy.swallow()
    task = asyncio.ensure_future(take_up(state))
    await proxy.swallowed.wait()
    task.cancel()
    proxy.cut()
    with pytest.raises(asyncio.CancelledError):
        await task


async def use_all(state: SharedState) -> None:
    """Use every connection that the pool may have, so that all of them are open."""
    await asyncio.gather(*(state.database.fetch("SELECT pg_sleep(0.01)") for _ in range(20)))
    await asyncio.gather(*(read_often(state) for _ in range(2)))


@pytest.fixture
def impatient_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svc_async.store.postgres._ANSWER_SECONDS", SOON)


@pytest.mark.usefixtures("impatient_reads")
@pytest.mark.long("a job waits for connections that have died")
async def test_a_job_goes_on_when_its_connections_have_died_without_a_word(
    proxy: PostgresProxy, state: SharedState
) -> None:
    service = FakeService(script={2: lambda _: proxy.forget()})
    await use_all(state)

    report = await upload(service, make_members(60), state.journal("job"), concurrency=1)

    assert proxy.swallowed.is_set()
    assert report.accepted == 60


@pytest.mark.usefixtures("impatient_reads")
@pytest.mark.parametrize("work", [transact, take_up])
async def test_what_begins_on_a_connection_that_has_died_is_done_on_a_new_one(
    proxy: PostgresProxy,
    state: SharedState,
    work: Callable[[SharedState], Awaitable[None]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    await use_all(state)
    proxy.forget()

    await work(state)

    assert proxy.swallowed.is_set()
    await asyncio.gather(*(read(state) for _ in range(20)), read_often(state))  # the others were replaced
    await wait_until(lambda: not any("close" in str(task.get_coro()) for task in asyncio.all_tasks()))  # and are closed
    gc.collect()
    assert not caplog.records


@pytest.mark.usefixtures("impatient_reads")
@pytest.mark.long("a job waits for a connection that has died")
async def test_records_are_read_over_a_new_connection_when_one_has_died(
    proxy: PostgresProxy, state: SharedState
) -> None:
    async with create_empty_job(state.journal("job")) as ledger:
        proxy.forget()
        assert await ledger.store.list_numbers("none") == []


@pytest.mark.long("waits for a server that does not answer")
async def test_a_receiver_that_renews_its_lease_can_be_left(proxy: PostgresProxy, state: SharedState) -> None:
    clock = VirtualClock()
    async with SharedEvents(state, clock=clock):
        proxy.swallow()
        while not proxy.swallowed.is_set():
            await clock.advance(seconds=15)


@pytest.mark.long("waits for a server that does not answer")
@pytest.mark.usefixtures("state")
async def test_who_waits_for_a_connection_while_none_answers_waits_as_long_as_connecting_may_take(
    proxy: PostgresProxy, schema: str
) -> None:
    database = await Database.open(DatabaseUrl.parse(proxy.url), schema=schema, pool_size=1)
    await database.fetch("SELECT 1")
    proxy.swallow()
    silent = asyncio.ensure_future(database.fetch("SELECT 1"))
    await proxy.swallowed.wait()
    with pytest.raises(StateUnavailable):
        await database.fetch("SELECT 1")
    assert not silent.done()
    silent.cancel()
    await asyncio.wait([silent])
    await database.close()


async def test_a_process_that_stands_still_within_a_statement_keeps_no_lock(
    proxy: PostgresProxy, postgres_url: str, schema: str
) -> None:
    write = "UPDATE schema_version SET version = version WHERE length($1) > 0"
    async with SharedState.open(postgres_url, schema=schema) as other:
        stopped = await Database.open(DatabaseUrl.parse(proxy.url), schema=schema, pool_size=1)
        assert await stopped.execute(write, "prepared") == "UPDATE 1"
        (found,) = await stopped.fetch("SELECT current_setting('transaction_timeout') AS limit, pg_backend_pid()")
        assert found["limit"] == "30s"
        await stopped.execute("SET transaction_timeout = '100ms'")
        proxy.swallow_sync()
        task = asyncio.ensure_future(stopped.execute(write, "stopped"))
        await proxy.swallowed.wait()
        while await other.database.fetch(_NOT_WRITING, found["pg_backend_pid"]):
            pass

        assert await other.database.execute(write, "other") == "UPDATE 1"

        proxy.heal()
        with pytest.raises(StateUnavailable):
            await task
        await stopped.close()
