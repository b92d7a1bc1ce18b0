"""When a session is open: blocks, `open` and `close`, sessions of other users, and closing while calls are made."""

import asyncio
import copy
import gc
import pickle
import weakref
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import aiohttp
import pytest

from svc_async import (
    ApiError,
    AppCredentials,
    BearerToken,
    Endpoints,
    Governor,
    InvalidArgument,
    Session,
    TransportError,
    Unauthorized,
    UserCredentials,
    WouldWaitTooLong,
    WrongState,
)
from svc_async.errors import Hint, Sent
from svc_async.governor.limits import LIMITS, change_limit
from svc_async.sandbox import Fault, Sandbox, VirtualClock
from svc_async.state import SharedState
from svc_async.webhooks import SigningKey, WebhookReceiver
from tests.support.errors import has
from tests.support.tasks import run_ready_tasks

READ = ("GET", "*/accounts/*")


async def test_a_session_is_opened_and_closed_without_a_block(sandbox: Sandbox) -> None:
    session = Session.sandbox(sandbox)
    assert await session.open() is session
    await session.open()
    assert (await session.accounts.get(sandbox.account_id)).id == sandbox.account_id
    await session.close()
    await session.close()
    with pytest.raises(WrongState):
        session.account("a")


async def test_a_session_shows_what_it_is_and_no_token(sandbox: Sandbox) -> None:
    session = Session.sandbox(sandbox)
    assert repr(session) == "<Session with the sandbox, closed>"
    async with session:
        assert repr(session) == "<Session with the sandbox, open>"
    credentials = UserCredentials(consumer_key="key", consumer_secret="hush", token="hush", token_secret="hush")
    hosts = Endpoints(base_url="https://base.example.test", ads_url="https://ads.example.test")
    session = Session(credentials, endpoints=hosts, proxy="http://ann:hush@127.0.0.1:1")
    assert repr(session) == "<Session of UserCredentials at https://ads.example.test, closed>"


async def test_a_session_says_that_it_is_opened_with_async_with(sandbox: Sandbox) -> None:
    session: Any = Session.sandbox(sandbox)
    advice = "^a session is opened with `async with`, or with `await session.open\\(\\)`$"
    with pytest.raises(TypeError, match=advice), session:
        """Not reached."""


async def test_opening_and_closing_in_several_tasks_happens_once(sandbox: Sandbox) -> None:
    session = Session.sandbox(sandbox)
    await asyncio.gather(*(asyncio.create_task(session.open()) for _ in range(5)))
    transport = session._pipeline.transport
    assert (await session.accounts.list().first()) is not None
    await asyncio.gather(*(asyncio.create_task(session.close()) for _ in range(5)))
    with pytest.raises(WrongState):
        transport.check_open()


async def test_a_session_of_its_own_sandbox_is_closed_in_another_task() -> None:
    session = Session.sandbox()
    await asyncio.create_task(session.open())
    assert (await session.accounts.list().first()) is not None
    await asyncio.create_task(session.close())


async def test_a_session_that_was_closed_can_be_opened_again(sandbox: Sandbox) -> None:
    session = Session.sandbox(sandbox)
    for _ in range(2):
        async with session:
            assert (await session.accounts.get(sandbox.account_id)).id == sandbox.account_id
    await session.open()
    assert [bucket.used for bucket in session.governor.snapshot()] == []
    await session.close()


def test_a_session_can_be_opened_in_one_event_loop_after_another() -> None:
    session = Session.sandbox()

    async def read() -> bool:
        async with session:
            return await session.accounts.list().first() is not None

    assert asyncio.run(read())
    assert asyncio.run(read())


# --- closing while calls are made


async def test_a_session_that_is_used_in_another_event_loop_says_so_and_stays_usable(sandbox: Sandbox) -> None:
    async with Session.sandbox(sandbox) as session:

        def use_elsewhere() -> None:
            with pytest.raises(WrongState):
                asyncio.run(session.accounts.list().first())

        await asyncio.to_thread(use_elsewhere)
        assert await session.accounts.list().first() is not None


OPENED: Mapping[str, Callable[[], Coroutine[None, None, object]]] = {
    "a session": lambda: Session.sandbox().open(),
    "a receiver": lambda: WebhookReceiver(keys=[SigningKey("secret")]).start(),
    "a shared state": lambda: SharedState.open("postgresql://127.0.0.1/none").__aenter__(),
    "a sandbox": lambda: Sandbox().start(),
}


@pytest.mark.parametrize("what", OPENED)
def test_nothing_can_be_opened_without_an_event_loop_of_asyncio(what: str) -> None:
    error = RuntimeError if what == "a sandbox" else WrongState  # the sandbox knows no errors of the client
    with pytest.raises(error, match=f"^{what} needs an event loop of asyncio; with anyio, use its backend asyncio$"):
        OPENED[what]().send(None)


@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
async def test_closing_ends_calls_that_are_being_sent_and_says_that_they_may_have_an_effect(
    sandbox: Sandbox, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    session = await Session.sandbox(sandbox).open()
    sandbox.faults.on("*").do(Fault.hang())
    call = asyncio.ensure_future(session.request(method, f"/12/accounts/{sandbox.account_id}", surface="ads"))
    await sandbox.requests.wait(count=1)
    await session.close()
    with pytest.raises(TransportError) as caught:
        await call
    assert caught.value.sent is Sent.MAYBE
    assert "repeated" not in caplog.text
    assert sandbox.requests.count("*") == 1


async def test_a_call_in_doubt_whose_session_is_closed_before_the_repeat_ends_with_its_failure() -> None:
    clock = VirtualClock()
    async with Sandbox(clock=clock) as sandbox:
        session = await Session.sandbox(sandbox).open()
        sandbox.faults.on("*").once().do(Fault.drop_connection())
        call = asyncio.ensure_future(session.accounts.get(sandbox.account_id))
        await sandbox.requests.wait(count=1)
        await run_ready_tasks()
        await session.close()
        await clock.advance(seconds=60)
        with pytest.raises(TransportError) as caught:
            await call
        assert caught.value.sent is Sent.MAYBE
        assert sandbox.requests.count("*") == 1


async def test_a_closed_connector_of_the_caller_is_named(sandbox: Sandbox) -> None:
    connector = aiohttp.TCPConnector()
    async with Session.sandbox(sandbox, connector=connector) as session:
        await session.accounts.get(sandbox.account_id)
        await connector.close()
        with pytest.raises(WrongState):
            await session.accounts.get(sandbox.account_id)


async def test_closing_ends_calls_that_wait_for_their_turn_or_for_a_repeat() -> None:
    clock = VirtualClock()
    async with Sandbox(clock=clock) as sandbox:
        session = await Session.sandbox(sandbox).open()
        sandbox.faults.on(*READ).do(Fault.http(503, retry_after=1))  # turned away
        repeated = asyncio.ensure_future(session.accounts.get(sandbox.account_id))
        await sandbox.requests.wait(count=1)
        waiting = [asyncio.ensure_future(session.account("a").cards.list().first()) for _ in range(3)]
        await session.close()
        await clock.advance(seconds=60)
        with pytest.raises(WrongState) as caught:
            await repeated
        assert caught.value.sent is Sent.NO
        for call in waiting:
            with pytest.raises(WrongState):
                await call
        assert sandbox.requests.count("*") == 1


async def test_a_call_that_is_made_later_says_so_although_its_limit_is_used_up() -> None:
    limits = change_limit(LIMITS, "ads.reads.global", requests=1)
    async with Sandbox(clock=VirtualClock()) as sandbox:
        session = await Session.sandbox(sandbox, governor=Governor(clock=sandbox.clock, limits=limits)).open()
        pager = session.accounts.list()
        await pager
        with pytest.raises(WouldWaitTooLong):
            await pager
        await session.close()
        with pytest.raises(WrongState):
            await pager
        with pytest.raises(WrongState):
            await pager.collect()


async def test_a_session_closes_although_the_task_that_closes_it_is_cancelled(sandbox: Sandbox) -> None:
    session = await Session.sandbox(sandbox).open()
    bound = session.accounts
    closing = asyncio.ensure_future(session.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    with pytest.raises(WrongState):
        await bound.get(sandbox.account_id)


# --- sessions of other users


def other_user(sandbox: Sandbox) -> UserCredentials:
    return UserCredentials(**sandbox.other_credentials)


async def test_another_user_has_other_accounts_over_the_same_connections(session: Session, sandbox: Sandbox) -> None:
    own = {account.id for account in await session.accounts.list().collect()}
    user = session.as_user(other_user(sandbox))
    others = {account.id for account in await user.accounts.list().collect()}

    assert others
    assert not own & others
    assert user.governor is session.governor
    assert user.is_sandbox
    assert user.app == session.app


async def test_the_limits_of_users_are_counted_apart(session: Session, sandbox: Sandbox) -> None:
    user = session.as_user(other_user(sandbox))
    for each in (session, user, user):
        await each.accounts.get((await each.accounts.list().collect())[0].id)

    listed = {bucket.scope: bucket.used for bucket in session.governor.snapshot() if bucket.name == "ads.reads.global"}
    assert sorted(listed.values()) == [1, 2]


async def test_closing_the_session_of_a_user_leaves_the_connections_open(session: Session, sandbox: Sandbox) -> None:
    async with session.as_user(other_user(sandbox)) as user:
        assert await user.accounts.list().first() is not None
    with pytest.raises(WrongState):
        user.account("a")
    with pytest.raises(WrongState, check=has(hint=Hint.MAKE_ANOTHER_SESSION)):
        await user.open()

    assert await session.accounts.list().first() is not None
    assert await session.as_user(other_user(sandbox)).accounts.list().first() is not None


async def test_the_session_of_a_user_ends_with_the_one_it_was_made_from(sandbox: Sandbox) -> None:
    async with Session.sandbox(sandbox) as session:
        user = session.as_user(other_user(sandbox))
    with pytest.raises(WrongState):
        session.as_user(other_user(sandbox))
    async with session:  # opened again, with other connections
        await check_closed(user)


async def test_a_view_ends_with_any_session_that_it_was_made_from(session: Session, sandbox: Sandbox) -> None:
    user = session.as_user(other_user(sandbox))
    view = user.but(timeout=5)
    async with view:
        assert repr(view) == "<Session with the sandbox, open>"
    view = user.but(timeout=5)
    await user.close()
    await check_closed(user)
    await check_closed(view)
    assert await session.accounts.list().first() is not None


async def check_closed(session: Session) -> None:
    assert repr(session) == "<Session with the sandbox, closed>"
    with pytest.raises(WrongState, check=has(hint=Hint.MAKE_ANOTHER_SESSION)):
        await session.open()
    with pytest.raises(WrongState, check=has(hint=Hint.MAKE_ANOTHER_SESSION)):
        async with session:
            """Not reached."""
    with pytest.raises(WrongState, check=has(hint=Hint.MAKE_ANOTHER_SESSION)):
        session.account("a")
    with pytest.raises(WrongState, check=has(hint=Hint.MAKE_ANOTHER_SESSION)):
        session.but(timeout=5)
    with pytest.raises(WrongState, check=has(hint=Hint.MAKE_ANOTHER_SESSION)):
        await session.request("GET", "/12/accounts")
    await session.close()


async def test_a_user_needs_credentials_and_wrong_ones_are_refused(session: Session, sandbox: Sandbox) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="credentials")):
        session.as_user("ann")  # type: ignore[arg-type]  # the test
    wrong = UserCredentials(**{**sandbox.other_credentials, "token_secret": "hush"})
    with pytest.raises(Unauthorized):
        await session.as_user(wrong).accounts.list().first()
    assert await session.accounts.list().first() is not None


async def test_the_app_of_the_session_serves_its_users(session: Session) -> None:
    token = await session.oauth2.token()
    app = session.as_user(BearerToken(token.access_token))
    own = session.app

    assert own is not None
    assert app.app == own
    assert await app.webhooks.list().collect() == []
    named = AppCredentials(consumer_key=own.consumer_key, consumer_secret=own.consumer_secret)
    assert session.as_user(named).app == own
    assert await session.as_user(named).webhooks.list().collect() == []


async def test_the_user_of_another_app_has_no_token_of_this_one(session: Session) -> None:
    other = AppCredentials(consumer_key="other", consumer_secret="hush")
    assert session.as_user(other).app == other
    with pytest.raises(ApiError):
        await session.as_user(other).webhooks.list().collect()
    assert await session.webhooks.list().collect() == []


async def test_sessions_of_users_that_are_not_used_any_more_are_forgotten(session: Session, sandbox: Sandbox) -> None:
    user = session.as_user(other_user(sandbox))
    await user.accounts.list().first()
    tokens = weakref.ref(user)
    del user
    gc.collect()
    assert tokens() is None
    assert len(session._require_open().shared_tokens.open) == 1


# --- cancelling calls


@pytest.mark.parametrize("stage", ["sending", "reading", "waiting for a repeat", "waiting for the rate limit"])
async def test_a_call_can_be_cancelled_at_any_stage(stage: str) -> None:
    clock = VirtualClock()
    faults = {
        "sending": Fault.hang(),
        "reading": Fault.slow_body(60),
        "waiting for a repeat": Fault.http(503, retry_after=60),
        "waiting for the rate limit": Fault.rate_limited(reset=50),
    }
    async with Sandbox(clock=clock) as sandbox, Session.sandbox(sandbox) as session:
        sandbox.faults.on(*READ).once().do(faults[stage])
        call = asyncio.ensure_future(session.accounts.get(sandbox.account_id))
        await sandbox.requests.wait(count=1)
        await run_ready_tasks()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await clock.advance(seconds=60)
        assert (await session.accounts.get(sandbox.account_id)).id == sandbox.account_id
        assert all(not bucket.waiting for bucket in session.governor.snapshot())


async def test_a_job_that_is_cancelled_says_what_was_done_and_the_session_closes(sandbox: Sandbox) -> None:
    session = await Session.sandbox(sandbox).open()
    users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
    sandbox.faults.on("POST", "*/users").do(Fault.hang())
    receipts = users.stream([{"email": "ann@example.test"}])
    job = asyncio.ensure_future(anext(receipts))
    await sandbox.requests.wait(count=1)
    job.cancel()
    await asyncio.wait([job])
    await session.close()
    assert (receipts.report.read, receipts.report.in_doubt) == (1, 1)


async def test_what_is_open_is_not_copied_and_says_so() -> None:
    user = UserCredentials(consumer_key="k", consumer_secret="s", token="t", token_secret="ts")
    endpoints = Endpoints(base_url="http://127.0.0.1:1", ads_url="http://127.0.0.1:1")
    session = Session(user, endpoints=endpoints)
    for copied in (copy.copy(session), copy.deepcopy(session), pickle.loads(pickle.dumps(session))):
        assert copied is not session
        async with session, copied:
            assert repr(copied) == repr(session)
    async with session:
        made = session.as_user(user)
        for held in (session, made, session.account("a"), session.accounts, [session], session.accounts.list()):
            for make in (copy.deepcopy, pickle.dumps):
                with pytest.raises(WrongState, check=has(hint=Hint.MAKE_ANOTHER_SESSION)):
                    make(held)
        with pytest.raises(WrongState):
            copy.copy(session)
    with pytest.raises(WrongState):  # it would be a session of the other user
        copy.deepcopy(made)
