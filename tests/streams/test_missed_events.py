"""Recovery of the events that were missed between two connections, and checkpoints."""

import asyncio
import logging
from datetime import timedelta

import pytest

from svc_async.events.models import Event
from svc_async.events.router import EventRouter
from svc_async.sandbox import VirtualClock
from svc_async.streams.recovery import Gap, GapRecovery
from svc_async.streams.states import Checkpoint, StreamState
from svc_async.streams.stream import EventStream
from tests.support.stream_server import (
    HEARTBEAT,
    Follow,
    StateLog,
    StreamServer,
    event_line,
    hold,
    refuse_with,
    send_and_close,
    send_and_hold,
    skip_backoff,
    take_keys,
    wait_for_heartbeats,
)
from tests.support.tasks import wait_until


async def test_a_short_gap_is_requested_in_minutes(
    server: StreamServer, follow: Follow, states: StateLog, clock: VirtualClock
) -> None:
    gaps: list[Gap] = []
    server.scripts = [
        send_and_close(event_line(1)),
        refuse_with(503, retry_after="100"),
        send_and_hold(event_line(1), event_line(2)),
    ]

    async with follow(on_gap=gaps.append) as stream:
        assert [await skip_backoff(states, clock), await skip_backoff(states, clock)] == [0.25, 100]
        assert await take_keys(stream, 2) == ["-1", "-2"]
        assert [connection.params for connection in server.connections] == [
            {},
            {"backfill_minutes": "1"},
            {"backfill_minutes": "2"},
        ]

    assert [(gap.recovery, round((gap.end - gap.start).total_seconds())) for gap in gaps] == [
        (GapRecovery.BACKFILL, 100)
    ]


async def test_a_gap_stays_open_until_a_connection_reaches_the_minimum_age(
    server: StreamServer, follow: Follow, states: StateLog, clock: VirtualClock
) -> None:
    server.scripts = [send_and_close(HEARTBEAT)]

    async with follow():
        while clock.monotonic() < 130:
            await skip_backoff(states, clock)

    assert [connection.params.get("backfill_minutes") for connection in server.connections][-1] == "3"


async def test_a_long_gap_is_replayed_on_a_second_connection(
    server: StreamServer, follow: Follow, clock: VirtualClock
) -> None:
    gaps: list[Gap] = []
    since = Checkpoint(at=clock.now(), key="-1")
    await clock.advance(hours=2)
    server.scripts = [send_and_hold(event_line(9)), send_and_close(event_line(1), event_line(2), event_line(3))]

    async with follow(since=since, on_gap=gaps.append) as stream:
        side = await server.wait_for_connection(2)
        assert side.params == {"start_time": "2026-06-10T11:59:50Z", "end_time": "2026-06-10T14:00:00Z"}
        assert sorted(await take_keys(stream, 3)) == ["-2", "-3", "-9"]
        await side.closed.wait()
        await wait_until(lambda: gaps)
        assert stream.checkpoint is not None
        assert stream.checkpoint.at == clock.now()
        assert server.open_connections == 1

    assert [(gap.recovery, gap.start) for gap in gaps] == [(GapRecovery.REPLAY, since.at)]


async def test_a_replay_comes_first_where_only_one_connection_is_allowed(
    server: StreamServer, follow: Follow, clock: VirtualClock
) -> None:
    since = Checkpoint(at=clock.now())
    await clock.advance(hours=2)
    server.scripts = [send_and_close(event_line(1), event_line(2)), send_and_hold(event_line(2), event_line(3))]

    async with follow(since=since, max_connections=1, queue_size=1) as stream:
        assert await take_keys(stream, 3) == ["-1", "-2", "-3"]

    assert [sorted(connection.params) for connection in server.connections] == [
        ["end_time", "start_time"],
        ["backfill_minutes"],
    ]


async def test_until_the_replay_is_complete_the_checkpoint_stays_before_the_gap(
    server: StreamServer, follow: Follow, clock: VirtualClock
) -> None:
    since = Checkpoint(at=clock.now())
    await clock.advance(hours=2)
    server.scripts = [send_and_hold(event_line(9)), send_and_hold(event_line(1))]

    async with follow(since=since) as stream:
        await take_keys(stream, 2)
        assert stream.checkpoint is not None
        assert stream.checkpoint.at == since.at


@pytest.mark.parametrize("last", [5, 10])  # the first is exactly the stall timeout after the connection opened
async def test_a_replay_with_only_heartbeats_is_complete(
    server: StreamServer, follow: Follow, clock: VirtualClock, last: int
) -> None:
    gaps: list[Gap] = []
    since = Checkpoint(at=clock.now())
    await clock.advance(hours=2)

    async with follow(since=since, on_gap=gaps.append) as stream:
        main, side = await server.wait_for_connection(1), await server.wait_for_connection(2)
        for connection, seconds, beats in ((main, 10, 1), (side, 10, 2), (main, last, 3)):
            await clock.advance(seconds=seconds)
            await connection.send(HEARTBEAT)
            await wait_for_heartbeats(stream, beats)
        await side.send(HEARTBEAT)
        await side.closed.wait()

    assert [gap.recovery for gap in gaps] == [GapRecovery.REPLAY]


async def test_a_failed_replay_is_retried_and_finally_abandoned(
    server: StreamServer, follow: Follow, clock: VirtualClock
) -> None:
    gaps: list[Gap] = []
    since = Checkpoint(at=clock.now())
    await clock.advance(hours=2)
    server.scripts = [hold, refuse_with(503)]

    async with follow(since=since, on_gap=gaps.append) as stream:
        main = await server.wait_for_connection(1)
        for beats in range(30):
            await main.send(HEARTBEAT)
            await wait_for_heartbeats(stream, beats + 1)
            await clock.advance(seconds=20)
        assert len(server.connections) == 6
        assert stream.stats.lost == 1

    assert [(gap.recovery, getattr(gap.error, "status", None)) for gap in gaps] == [(GapRecovery.NONE, 503)]


@pytest.mark.parametrize("status", [400, 403])
async def test_a_service_without_recovery_is_asked_once(
    server: StreamServer,
    follow: Follow,
    states: StateLog,
    clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    *,
    status: int,
) -> None:
    gaps: list[Gap] = []
    server.scripts = [
        send_and_close(event_line(1)),
        refuse_with(status),
        send_and_close(),
        send_and_hold(event_line(2)),
    ]

    async with follow(on_gap=gaps.append) as stream:
        await skip_backoff(states, clock)
        await server.wait_for_connection(3)
        await skip_backoff(states, clock)
        assert await take_keys(stream, 2) == ["-1", "-2"]

    assert [connection.params for connection in server.connections] == [{}, {"backfill_minutes": "1"}, {}, {}]
    ((logger, level, message),) = caplog.record_tuples
    assert (logger, level) == ("svc_async", logging.WARNING)
    assert message.startswith("the service refused to recover missed events, which are no longer requested: ")
    assert [(gap.recovery, getattr(gap.error, "status", None)) for gap in gaps] == [(GapRecovery.NONE, status)] * 2


async def test_a_refused_replay_disables_recovery(
    server: StreamServer, follow: Follow, states: StateLog, clock: VirtualClock
) -> None:
    gaps: list[Gap] = []
    since = Checkpoint(at=clock.now())
    await clock.advance(hours=2)
    server.scripts = [hold, refuse_with(400), hold]

    async with follow(since=since, on_gap=gaps.append):
        await wait_until(lambda: gaps)
        (await server.wait_for_connection(1)).abort()
        await skip_backoff(states, clock)
        assert (await server.wait_for_connection(3)).params == {}

    assert [gap.recovery for gap in gaps][:1] == [GapRecovery.NONE]


async def test_without_recovery_nothing_is_requested_and_the_gap_is_reported(
    server: StreamServer, follow: Follow, states: StateLog, clock: VirtualClock
) -> None:
    gaps: list[Gap] = []
    server.scripts = [send_and_close(), hold]

    async with follow(recover="off", on_gap=gaps.append):
        await skip_backoff(states, clock)
        assert (await server.wait_for_connection(2)).params == {}
        await states.wait_for(StreamState.OPEN)

    assert [gap.recovery for gap in gaps] == [GapRecovery.NONE]


async def test_events_older_than_a_day_are_lost_and_reported(
    server: StreamServer, follow: Follow, clock: VirtualClock
) -> None:
    gaps: list[Gap] = []
    since = Checkpoint(at=clock.now())
    await clock.advance(hours=30)
    server.scripts = [hold, send_and_close()]

    async with follow(since=since, on_gap=gaps.append) as stream:
        await wait_until(lambda: len(gaps) == 2)
        assert stream.stats.lost == 1

    lost = [(gap.start, (gap.end - gap.start).total_seconds()) for gap in gaps if gap.recovery is GapRecovery.NONE]

    assert lost == [(since.at, 6 * 3600 + 60)]


async def test_on_one_connection_all_parts_of_a_long_gap_are_reported(
    server: StreamServer, follow: Follow, clock: VirtualClock
) -> None:
    gaps: list[Gap] = []
    since = Checkpoint(at=clock.now())
    await clock.advance(hours=30)
    server.scripts = [send_and_close(event_line(1)), send_and_hold(event_line(2))]

    async with follow(since=since, max_connections=1, on_gap=gaps.append) as stream:
        assert await take_keys(stream, 2) == ["-1", "-2"]

    assert sorted((gap.recovery, (gap.end - gap.start).total_seconds()) for gap in gaps) == [
        (GapRecovery.BACKFILL, 0),
        (GapRecovery.NONE, 6 * 3600 + 60),
        (GapRecovery.REPLAY, 24 * 3600 - 60),
    ]


async def test_a_checkpoint_is_at_the_event_that_was_taken_last(
    server: StreamServer, follow: Follow, clock: VirtualClock
) -> None:
    stream = follow()
    assert stream.checkpoint is None

    async with stream:
        assert stream.checkpoint == Checkpoint(at=clock.now())
        connection = await server.wait_for_connection(1)
        for number in (1, 2):
            await clock.advance(seconds=20)
            await connection.send(event_line(number))
            await wait_until(lambda: stream.stats.waiting == number)  # noqa: B023 - awaited here
        await anext(stream)
        taken = stream.checkpoint
        assert taken == Checkpoint(at=clock.now() - timedelta(seconds=40), key="-1")

    assert stream.checkpoint == taken


async def test_the_checkpoint_of_an_event_waits_for_its_handlers(
    server: StreamServer, follow: Follow, clock: VirtualClock
) -> None:
    router, seen = EventRouter(), list[Checkpoint | None]()

    @router.on("*")
    def handle(event: Event, context: EventStream) -> None:
        seen.append(context.checkpoint)
        if event.key == "-2":
            raise LookupError

    async with follow() as stream:
        connection = await server.wait_for_connection(1)
        opened = clock.now()
        for number in (1, 2, 3):
            await clock.advance(seconds=20)
            await connection.send(event_line(number))
            await wait_until(lambda: stream.stats.waiting == number)  # noqa: B023 - awaited here
        with pytest.raises(LookupError):
            await stream.run(router)
        failed = stream.checkpoint
        running = asyncio.create_task(stream.run(router))
        await wait_until(lambda: len(seen) == 3)
        running.cancel()
        await asyncio.wait([running])
        assert seen == [Checkpoint(at=opened), Checkpoint(at=opened, key="-1"), Checkpoint(at=opened, key="-1")]
        assert failed == seen[1]
        assert stream.checkpoint is not None
        assert stream.checkpoint.key == "-3"


async def test_the_checkpoint_of_a_quiet_stream_advances(
    server: StreamServer, follow: Follow, clock: VirtualClock
) -> None:
    stream = follow()
    await stream.aclose()  # before it is entered, this changes nothing

    async with stream:
        connection = await server.wait_for_connection(1)
        for beats in range(1, 5):
            await clock.advance(seconds=20)
            await connection.send(HEARTBEAT)
            await wait_for_heartbeats(stream, beats)
        assert stream.checkpoint == Checkpoint(at=clock.now())


async def test_the_event_taken_last_is_not_repeated_by_the_next_stream(
    server: StreamServer, follow: Follow, clock: VirtualClock
) -> None:
    server.scripts = [send_and_hold(event_line(1), event_line(2))]
    since = Checkpoint(at=clock.now() - timedelta(seconds=9), key="-1")

    async with follow(since=since) as stream:
        await wait_until(lambda: stream.stats.waiting)
        assert stream.checkpoint == since
        assert await take_keys(stream, 1) == ["-2"]
