"""Opening a shared state: the URL, the tables and their version."""

import asyncio
import gc
from contextlib import AsyncExitStack, suppress

import pytest

from svc_async.errors import Hint, InvalidArgument, StateUnavailable, UnusableState, WrongState
from svc_async.state import SharedState
from svc_async.state.migrations import LATEST, read_version
from tests.support.errors import has


async def test_opening_creates_the_tables_once(postgres_url: str, schema: str) -> None:
    for _ in range(2):
        async with SharedState.open(postgres_url, schema=schema) as state:
            assert await read_version(state.database) == LATEST


async def test_many_processes_may_open_a_new_database_at_once(postgres_url: str, schema: str) -> None:
    states = [SharedState.open(postgres_url, schema=schema) for _ in range(5)]
    await asyncio.gather(*(state.__aenter__() for state in states))
    assert await read_version(states[0].database) == LATEST
    await asyncio.gather(*(state.__aexit__(None, None, None) for state in states))


async def test_a_schema_of_a_newer_version_is_refused(postgres_url: str, schema: str) -> None:
    async with SharedState.open(postgres_url, schema=schema) as state:
        await state.database.execute("INSERT INTO schema_version VALUES ($1, 'of the future')", LATEST + 1)
    with pytest.raises(UnusableState):
        async with SharedState.open(postgres_url, schema=schema):
            pass


@pytest.mark.parametrize(
    "change", ["UPDATE schema_version SET checksum = 'another'", "ALTER TABLE schema_version DROP checksum"]
)
@pytest.mark.parametrize("migrate", [True, False])
async def test_tables_that_other_statements_created_are_refused(
    postgres_url: str, schema: str, change: str, migrate: bool
) -> None:
    async with SharedState.open(postgres_url, schema=schema) as state:
        await state.database.execute(change)
    with pytest.raises(UnusableState):
        async with SharedState.open(postgres_url, schema=schema, migrate=migrate):
            pass


async def test_the_url_comes_from_the_environment(
    postgres_url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SVC_STATE_URL", postgres_url)
    async with SharedState.open(schema=schema) as state:
        assert await read_version(state.database) == LATEST


def test_without_a_url_the_error_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SVC_STATE_URL", raising=False)
    with pytest.raises(InvalidArgument, match="SVC_STATE_URL"):
        SharedState.open()


@pytest.mark.parametrize("url", ["mysql://host/database", "customers.db", "postgresql//host", "http://[::1"])
def test_another_kind_of_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="state_url")) as caught:
        SharedState.open(url)
    assert url not in str(caught.value)


@pytest.mark.parametrize("schema", ["Customers", "a-b", "x" * 64, "a; DROP TABLE b", ""])
async def test_a_schema_with_another_name_is_refused(schema: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="schema")):
        async with SharedState.open("postgresql://127.0.0.1:1/none", schema=schema):
            pass


async def test_a_database_that_cannot_be_reached_is_named_without_its_password() -> None:
    with pytest.raises(StateUnavailable, check=has(name="127.0.0.1:1/customers")) as caught:
        async with SharedState.open("postgresql://user:secret@127.0.0.1:1/customers"):
            pass
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(SharedState("postgresql://user:secret@127.0.0.1:1/customers"))


def test_a_state_that_is_not_open_says_so() -> None:
    with pytest.raises(WrongState, check=has(hint=Hint.OPEN_IT)):
        _ = SharedState("postgresql://127.0.0.1/none").database


async def test_without_migrating_only_tables_of_this_version_are_accepted(postgres_url: str, schema: str) -> None:
    with pytest.raises(UnusableState) as caught:
        async with SharedState.open(postgres_url, schema=schema, migrate=False):
            pass
    assert caught.value.hint is Hint.MIGRATE
    async with SharedState.open(postgres_url, schema=schema) as state:
        async with SharedState.open(postgres_url, schema=schema, migrate=False):
            pass
        await state.database.execute("UPDATE schema_version SET version = 0")
    with pytest.raises(UnusableState) as caught:
        async with SharedState.open(postgres_url, schema=schema, migrate=False):
            pass
    assert caught.value.hint is Hint.MIGRATE


async def test_the_url_of_an_open_state_can_be_handed_on(postgres_url: str, schema: str) -> None:
    state = SharedState.open(postgres_url, schema=schema)
    with pytest.raises(WrongState) as caught:
        _ = state.url
    assert caught.value.hint is Hint.OPEN_IT
    async with state:
        assert state.url == postgres_url


async def test_a_connection_is_kept_for_what_is_executed_often_and_replaced_when_it_is_lost(
    postgres_url: str, schema: str
) -> None:
    statement = "SELECT pg_backend_pid() AS pid"
    async with SharedState.open(postgres_url, schema=schema) as state:
        database = state.database
        at_once = await asyncio.gather(*(database.fetch_row_often(statement) for _ in range(3)))
        assert len({*at_once}) == 3, "a connection executes one statement at a time"
        async with AsyncExitStack() as stack:
            for _ in range(6):  # the connections that are lent to others
                await stack.enter_async_context(database.connect())
            kept = await database.fetch_row_often(statement)
            assert kept == await database.fetch_row_often(statement)

        assert kept is not None
        await database.execute("SELECT pg_terminate_backend($1)", kept["pid"])
        with suppress(StateUnavailable):
            await database.fetch_row_often(statement)
        assert await database.fetch_row_often(statement) not in {None, kept}


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of what the closed event loop did not close
def test_a_state_whose_event_loop_was_closed_is_opened_and_closed_in_another_one(
    postgres_url: str, schema: str
) -> None:
    state = SharedState.open(postgres_url, schema=schema)

    async def read() -> None:
        database = await state.connect(reopen=True)
        assert await read_version(database) == LATEST

    for _ in range(2):
        asyncio.run(read())
        assert not state.is_open
    asyncio.run(state.__aexit__(None, None, None))
    with pytest.raises(WrongState, check=has(hint=Hint.OPEN_IT)):
        _ = state.database
    gc.collect()
