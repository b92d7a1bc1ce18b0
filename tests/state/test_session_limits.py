"""Sessions that share their rate limits through PostgreSQL."""

import asyncio
import gc
from contextlib import AsyncExitStack

import pytest

from svc_async import Governor, Session, UserCredentials
from svc_async.errors import Hint, InvalidArgument, WrongState
from svc_async.governor.governor import BucketState
from svc_async.sandbox import Sandbox
from svc_async.state import SharedState
from tests.support.command import environment_of
from tests.support.contract import PRODUCT
from tests.support.errors import has
from tests.support.postgres import create_database

ACCOUNTS = "ads.reads.global"
"""Five in a quarter of an hour."""
NOWHERE = "postgresql://127.0.0.1:1/limits"


def find_bucket(session: Session) -> BucketState:
    return next(bucket for bucket in session.governor.snapshot() if bucket.name == ACCOUNTS)


async def test_two_sessions_count_one_limit_together(postgres_url: str, schema: str) -> None:
    async with SharedState.open(postgres_url, schema=schema) as state, Sandbox() as sandbox:
        async with Session.sandbox(sandbox, state=state) as first, Session.sandbox(sandbox, state=state) as second:
            for session in (first, second, first, second):
                await session.accounts.list().first()
            assert find_bucket(second).used == 4
            assert find_bucket(second).limit == 5
        rows = await state.database.fetch("SELECT outstanding, answered FROM limit_holders")
        assert sorted(map(tuple, rows)) == [(0, 2), (0, 2)], "a session that is closed holds nothing"


async def test_a_bucket_names_no_account_and_no_token(postgres_url: str, schema: str) -> None:
    async with SharedState.open(postgres_url, schema=schema) as state, Sandbox() as sandbox:
        async with Session.sandbox(sandbox, state=state) as session:
            account = await session.accounts.list().first()
            assert account is not None
            await session.account(account.id).cards.list().first()
        rows = await state.database.fetch("SELECT concat(b, h) AS row FROM limit_buckets b, limit_holders h")
        stored = " ".join(row["row"] for row in rows)
    assert ACCOUNTS in stored
    assert account.id not in stored
    assert not any(secret in stored for secret in sandbox.credentials.values())


async def test_users_of_one_session_count_apart_and_with_other_processes(postgres_url: str, schema: str) -> None:
    async with SharedState.open(postgres_url, schema=schema) as state, Sandbox() as sandbox:
        other = UserCredentials(**sandbox.other_credentials)
        async with Session.sandbox(sandbox, state=state) as first, Session.sandbox(sandbox, state=state) as second:
            for session in (first, first.as_user(other), second, second.as_user(other), second.as_user(other)):
                await session.accounts.list().first()
            used = [bucket.used for bucket in second.governor.snapshot() if bucket.name == ACCOUNTS]
            assert sorted(used) == [2, 3]


async def test_bulk_is_granted_the_first_request_of_a_limit_with_a_reserve(postgres_url: str, schema: str) -> None:
    async with (
        SharedState.open(postgres_url, schema=schema) as state,
        Sandbox() as sandbox,
        Session.sandbox(sandbox, state=state) as session,
    ):
        catalog = await session.product_catalogs.create(name="Shop")
        products = [{**PRODUCT, "id": f"p{number}"} for number in range(60)]
        report = await session.product_catalog(catalog.id).products.upsert(products)
        (bucket,) = [each for each in session.governor.snapshot() if each.name == "ads.products.put"]
    assert (report.accepted, report.requests) == (60, 3)
    assert bucket.used == 3


async def test_a_lost_connection_fails_no_call(postgres_url: str, schema: str) -> None:
    async with (
        SharedState.open(postgres_url, schema=schema) as state,
        SharedState.open(postgres_url, schema=schema) as other,
        Sandbox() as sandbox,
        Session.sandbox(sandbox, state=state) as session,
    ):
        await session.accounts.list().first()
        row = await state.database.fetch_row("SELECT pg_backend_pid() AS pid")  # of this state: others share the server
        assert row is not None
        await other.database.fetch("SELECT pg_terminate_backend($1)", row["pid"])
        for _ in range(3):
            await session.accounts.list().first()


async def count_answered(state: SharedState) -> list[int]:
    """Return how many requests each process has reported."""
    return sorted(row["answered"] for row in await state.database.fetch("SELECT answered FROM limit_holders"))


@pytest.mark.long("creates a database")
async def test_a_governor_with_settings_of_its_own_counts_in_the_state_of_the_environment(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with create_database(postgres_url) as url, Sandbox() as sandbox:
        monkeypatch.setenv("SVC_STATE_URL", url)
        for name, value in environment_of(sandbox).items():
            monkeypatch.setenv(name, value)
        session = Session.from_env(governor=Governor(max_wait=300))
        for _ in range(2):  # it can be opened again
            async with session:
                assert (session.governor.max_wait, session.state is None) == (300, False)
                await session.accounts.list().first()
                bucket = find_bucket(session)
                assert (type(session.governor.windows).__name__, bucket.is_degraded) == ("SharedWindows", False)
        assert sandbox.requests.total == 2


@pytest.mark.parametrize("is_entered", [False, True])
async def test_sessions_that_share_a_governor_count_in_their_state_once(
    postgres_url: str, schema: str, is_entered: bool
) -> None:
    async with AsyncExitStack() as stack:
        state = await stack.enter_async_context(SharedState.open(postgres_url, schema=schema))
        sandbox = await stack.enter_async_context(Sandbox())
        governor = Governor(max_wait=300)
        if is_entered:
            await stack.enter_async_context(governor)
        first, second = (Session.sandbox(sandbox, state=state, governor=governor) for _ in "12")
        async with second:
            async with first:
                await first.accounts.list().first()
            await second.accounts.list().first()  # it goes on when the other one is closed
            assert (find_bucket(second).used, find_bucket(second).is_degraded) == (2, False)
        assert await count_answered(state) == [2]


async def test_a_governor_that_counts_elsewhere_already_is_refused_and_the_message_says_what_to_write(
    postgres_url: str, schema: str
) -> None:
    async with SharedState.open(postgres_url, schema=schema) as state, Sandbox() as sandbox:
        in_use, elsewhere = Governor(), Governor(windows=SharedState.open(NOWHERE).windows())
        async with Session.sandbox(sandbox, governor=in_use) as session:
            await session.accounts.list().first()
            for governor in (in_use, elsewhere):
                with pytest.raises(InvalidArgument, check=has(parameter="governor")):
                    await Session.sandbox(sandbox, state=state, governor=governor).open()
        async with (
            Governor(windows=state.windows()) as governor,
            Session.sandbox(sandbox, state=state, governor=governor) as session,
        ):
            await session.accounts.list().first()
        assert await count_answered(state) == [1]


async def test_a_governor_needs_an_open_state() -> None:
    with pytest.raises(WrongState, check=has(hint=Hint.OPEN_IT)):
        async with Governor(windows=SharedState.open(NOWHERE).windows()):
            pass


async def test_without_a_required_state_a_session_counts_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    async with Sandbox() as sandbox:
        state = SharedState.open(NOWHERE)
        async with Session.sandbox(sandbox, state=state, state_required=False) as session:
            await asyncio.gather(*(session.accounts.list().first() for _ in range(2)))
            assert find_bucket(session).is_degraded
    assert len([record for record in caplog.records if "keeps to its share" in record.getMessage()]) == 1


@pytest.mark.long("what the first session has not reported may hold up the second one for five seconds")
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of what the closed event loop did not close
@pytest.mark.parametrize("is_required", [True, False])
def test_a_session_and_its_state_are_opened_again_after_their_event_loop_was_closed(
    postgres_url: str, schema: str, is_required: bool
) -> None:
    session = Session.sandbox(state=SharedState.open(postgres_url, schema=schema), state_required=is_required)

    async def read() -> None:
        await session.open()
        await session.accounts.list().first()
        assert not find_bucket(session).is_degraded

    for _ in range(2):
        asyncio.run(read())
    asyncio.run(session.close())
    gc.collect()
