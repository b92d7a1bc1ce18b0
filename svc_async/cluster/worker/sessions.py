"""What the tasks of one worker process share: an event loop in a thread of its own, and the sessions that are open.

Tasks run in threads of the worker. The uploader is asyncio, so all shards of a process send in one event loop, over one
session: with one governor, one pool of connections and one share of the memory.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import attrs

from svc_async import profiles
from svc_async._version import __version__
from svc_async.cluster.job import WorkerSettings
from svc_async.errors import InvalidArgument
from svc_async.session import Session
from svc_async.state import SharedState

__all__ = ["run_in_loop", "share_session"]

T = TypeVar("T")


@attrs.define
class _OpenSession:
    """A session that is open as long as somebody uses it.

    Attributes:
        session: the session.
        users: how many shards use it.
        unused: set when no shard does.
        closing: the task that holds it open.
    """

    session: "asyncio.Future[Session]"
    users: int = 0
    unused: asyncio.Event = attrs.field(factory=asyncio.Event)
    closing: "asyncio.Task[None] | None" = None


_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_sessions: dict[WorkerSettings, _OpenSession] = {}


def run_in_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in the event loop of this process, and return its result."""
    return asyncio.run_coroutine_threadsafe(work(), _find_loop()).result()


def _find_loop() -> asyncio.AbstractEventLoop:
    global _loop  # noqa: PLW0603 - one for each process
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="svc-async", daemon=True).start()
        return _loop


@asynccontextmanager
async def share_session(settings: WorkerSettings) -> AsyncGenerator[Session]:
    """Share the session of this process: the first user opens it, the last one closes it.

    Raises:
        InvalidArgument: the worker has another version, or has no credentials, hosts or shared state.
        StateUnavailable: the database of the state cannot be reached.
    """
    _check_version(settings.version)
    found = _sessions.get(settings)
    if found is None:
        found = _sessions[settings] = _OpenSession(asyncio.get_running_loop().create_future())
        found.closing = asyncio.create_task(_hold_open(settings, found))
    found.users += 1
    try:
        yield await asyncio.shield(found.session)
    finally:
        found.users -= 1
        if not found.users:
            _sessions.pop(settings, None)
            found.unused.set()


async def _hold_open(settings: WorkerSettings, entry: _OpenSession) -> None:
    """Open a session and close it when nobody uses it any more, both in this task."""
    try:
        async with _open_state(settings) as state, _open_session(settings, state) as session:
            entry.session.set_result(session)
            await entry.unused.wait()
    except Exception as error:
        if entry.session.done():
            raise
        entry.session.set_exception(error)


def _open_state(settings: WorkerSettings) -> SharedState:
    url = profiles.find_state_url(settings.origin.profile)
    if url is None:
        raise InvalidArgument("SVC_STATE_URL", "is not set on a worker, and its profile has no state_url")
    return SharedState.open(url, schema=settings.schema)


def _open_session(settings: WorkerSettings, state: SharedState) -> Session:
    profile = settings.origin.profile
    return Session.from_env(state=state) if profile is None else Session.from_profile(profile, state=state)


def _check_version(version: str) -> None:
    if version != __version__:
        raise InvalidArgument("cluster", describe_versions(version, __version__))


def describe_versions(client: str, worker: str) -> str:
    """Return the rule that a worker of another version breaks."""
    return f"must have the same version of svc-async everywhere: a worker has {worker}, this process has {client}"
