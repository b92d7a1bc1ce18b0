"""A session belongs to one event loop: what another one may do, while that one runs and after it was closed."""

import asyncio
import gc
import weakref
from datetime import UTC, datetime
from typing import Any

import pytest

from svc_async import OAuth2UserCredentials, Session, Timeouts, UserCredentials, WrongState
from svc_async.governor.window_store import WindowStore
from svc_async.sandbox import Fault, Sandbox
from tests.support.tasks import run_ready_tasks

READ = ("GET", "*/accounts/*")
LEFT_SOCKETS = pytest.mark.filterwarnings("ignore::ResourceWarning")
"""Python reports what an event loop did not close when it is freed."""


class SlowState:
    """A shared state that is opened when it may."""

    is_open = False

    def __init__(self) -> None:
        self.may_open = asyncio.Event()

    def windows(self, **_: object) -> WindowStore:
        return WindowStore()

    def owns(self, _windows: object) -> bool:
        return True

    async def __aenter__(self) -> None:
        await self.may_open.wait()

    async def __aexit__(self, *_: object) -> None:
        """Nothing is to be closed."""


def derive(session: Session, sandbox: Sandbox) -> dict[str, Session]:
    return {
        "the session": session,
        "that of a user": session.as_user(UserCredentials(**sandbox.other_credentials)),
        "one with another timeout": session.but(timeout=5),
    }


@pytest.mark.parametrize("which", ["the session", "that of a user", "one with another timeout"])
@pytest.mark.parametrize("method", ["open", "close", "__aexit__"])
async def test_while_its_event_loop_runs_no_other_one_opens_or_closes_a_session(
    sandbox: Sandbox, which: str, method: str
) -> None:
    async with Session.sandbox(sandbox, timeouts=Timeouts(total=None)) as session:
        chosen = derive(session, sandbox)[which]
        sandbox.faults.on(*READ).once().do(Fault.hang())
        call = asyncio.ensure_future(session.accounts.get(sandbox.account_id))
        await sandbox.requests.wait(count=1)

        details = (None, None, None) if method == "__aexit__" else ()
        with pytest.raises(WrongState):
            await asyncio.to_thread(asyncio.run, getattr(chosen, method)(*details))

        await run_ready_tasks()
        assert not call.done()
        call.cancel()
        assert await chosen.accounts.list().first() is not None
        await chosen.close()


async def test_a_session_that_is_being_opened_is_not_opened_in_another_event_loop(sandbox: Sandbox) -> None:
    state: Any = SlowState()
    session = Session.sandbox(sandbox, state=state)
    opening = asyncio.ensure_future(session.open())
    await run_ready_tasks()
    for change in (session.open, session.close):
        with pytest.raises(WrongState):
            await asyncio.to_thread(asyncio.run, change())
    state.may_open.set()
    await opening
    assert await session.accounts.list().first() is not None
    await session.close()


async def test_a_closed_session_may_be_closed_anywhere(sandbox: Sandbox) -> None:
    session = Session.sandbox(sandbox)
    await asyncio.to_thread(asyncio.run, session.close())
    await session.open()
    await session.close()
    await asyncio.to_thread(asyncio.run, session.close())


def test_many_tasks_open_a_session_in_one_event_loop_after_another() -> None:
    session = Session.sandbox()

    async def open_and_close() -> None:
        for change in (session.open, session.close):
            await asyncio.gather(*(change() for _ in range(3)))

    for _ in range(2):
        asyncio.run(open_and_close())


@LEFT_SOCKETS
def test_a_session_whose_event_loop_was_closed_is_closed_in_another_one() -> None:
    session = Session.sandbox()

    async def open_and_read() -> "weakref.ref[object]":
        await session.open()
        assert await session.accounts.list().first() is not None
        return weakref.ref(session._pipeline.transport)

    connections = asyncio.run(open_and_read())
    asyncio.run(session.close())
    with pytest.raises(WrongState):
        session.account("a")
    gc.collect()
    assert connections() is None
    asyncio.run(open_and_read())
    asyncio.run(session.close())
    gc.collect()


@LEFT_SOCKETS
def test_a_session_whose_event_loop_was_closed_is_opened_in_another_one() -> None:
    session = Session.sandbox()
    bound: list[Any] = []

    async def read() -> None:
        assert await session.accounts.list().first() is not None
        bound.append(session.accounts)

    async def open_and_read() -> None:
        await session.open()
        await read()

    async def enter_and_read() -> None:
        async with session:
            await read()
            with pytest.raises(WrongState):
                await bound[0].get("a")

    asyncio.run(open_and_read())
    asyncio.run(enter_and_read())
    gc.collect()


def test_what_a_closed_event_loop_has_left_undone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    expired = OAuth2UserCredentials(
        access_token="hush-1", refresh_token="hush-2", client_id="c", expires_at=datetime(2000, 1, 1, tzinfo=UTC)
    )
    loop = asyncio.new_event_loop()

    async def begin() -> tuple[Sandbox, Session, Session, asyncio.Task[Any]]:
        sandbox = Sandbox()
        await sandbox.start()
        sandbox.faults.on("POST", "*/token").do(Fault.hang())
        session = await Session.sandbox(sandbox).open()
        user = session.as_user(expired)
        call = loop.create_task(user.accounts.list().collect())
        await sandbox.requests.wait(count=1)
        return sandbox, session, user, call

    sandbox, session, user, call = loop.run_until_complete(begin())
    with monkeypatch.context() as patched:  # not really, since Python complains of tasks that never end
        patched.setattr(loop, "is_closed", lambda: True)
        asyncio.run(asyncio.wait_for(user.close(), 1))
        asyncio.run(session.close())
    left = asyncio.all_tasks(loop)
    assert not call.done()
    for task in left:
        task.cancel()
    loop.run_until_complete(asyncio.wait(left))
    loop.run_until_complete(sandbox.aclose())
    loop.close()
