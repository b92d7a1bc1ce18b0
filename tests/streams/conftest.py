"""A scripted streaming service, and streams that read from it, on a clock that only the test advances."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from svc_async import BearerToken, Endpoints, Session
from svc_async.sandbox import VirtualClock
from svc_async.streams.stream import EventStream
from tests.support.properties import examples  # noqa: F401 - fixture
from tests.support.stream_server import Follow, StateLog, StreamServer, run_stream_server


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def server() -> AsyncIterator[StreamServer]:
    async with run_stream_server() as server:
        yield server


@pytest.fixture
def states() -> StateLog:
    return StateLog()


@pytest.fixture
def endpoints(server: StreamServer) -> Endpoints:
    return Endpoints(base_url=server.url, ads_url=server.url)


@pytest.fixture
async def session(endpoints: Endpoints, clock: VirtualClock) -> AsyncIterator[Session]:
    async with Session(BearerToken("bear"), endpoints=endpoints, clock=clock) as session:
        yield session


@pytest.fixture
def follow(session: Session, states: StateLog) -> Follow:
    """Makes a stream of the session: of activity, which may have two connections, or of filtered posts, with one."""

    def follow(*, max_connections: int = 2, **settings: Any) -> EventStream:
        service = session.filtered_stream if max_connections == 1 else session.activity
        return service.stream(**{"on_state": states, **settings})

    return follow
