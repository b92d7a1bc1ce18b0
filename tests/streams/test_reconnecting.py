"""Reconnecting after drops, refusals and stalls, over sockets, on a clock that only the test advances."""

import asyncio

import pytest

from svc_async.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    NotFound,
    StreamDropped,
    TooManyConnections,
    Unauthorized,
)
from svc_async.sandbox import VirtualClock
from svc_async.streams.states import StreamState
from tests.support.stream_server import (
    HEARTBEAT,
    ROUNDING,
    TOO_MANY_CONNECTIONS,
    Follow,
    ServerConnection,
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


async def test_a_connection_that_reached_the_minimum_age_is_reopened_immediately(
    server: StreamServer, follow: Follow, states: StateLog, clock: VirtualClock
) -> None:
    async with follow() as stream:
        connection = await server.wait_for_connection(1)
        await clock.advance(seconds=20)
        await connection.send(event_line(1))
        await anext(stream)
        await clock.advance(seconds=10)
        connection.abort()
        change = await states.wait_for(StreamState.BACKOFF)
        assert change.wait == 0
        assert isinstance(change.error, StreamDropped)
        await server.wait_for_connection(2)


@pytest.mark.long("an hour of connections, each of which is a real one")
async def test_accept_and_close_costs_a_bounded_number_of_connects_in_an_hour(
    server: StreamServer, follow: Follow, states: StateLog, clock: VirtualClock
) -> None:
    server.scripts = [send_and_close(event_line(1))]

    async with follow(recover="off"):
        while clock.monotonic() < 3600:
            await skip_backoff(states, clock)
        assert 250 < len(server.connections) <= 258

    assert max(states.waits) == 16


async def test_an_unreachable_server_follows_the_network_rule(
    server: StreamServer, follow: Follow, states: StateLog, clock: VirtualClock
) -> None:
    async def hang_up(connection: ServerConnection) -> None:
        connection.abort()

    server.scripts = [hang_up, hang_up, hang_up, hold]
    entering = asyncio.ensure_future(follow().__aenter__())
    assert [await skip_backoff(states, clock) for _ in range(3)] == [0.25, 0.5, 0.75]
    stream = await entering
    assert stream.stats.refusals == 3
    await stream.aclose()


@pytest.mark.rule("STR-03", "ERR-07")
async def test_a_503_follows_the_rule_of_an_unavailable_service(
    server: StreamServer, follow: Follow, states: StateLog, clock: VirtualClock
) -> None:
    server.scripts = [refuse_with(503), refuse_with(503), refuse_with(503, retry_after="100"), hold]
    entering = asyncio.ensure_future(follow().__aenter__())
    waits = [await skip_backoff(states, clock) for _ in range(3)]
    assert waits == [pytest.approx(5, rel=0.1), pytest.approx(10, rel=0.1), 100]
    await (await entering).aclose()


@pytest.mark.parametrize("status", [420, 429])
async def test_a_rate_limit_is_waited_out_for_a_minute_at_least_and_until_its_reset(
    server: StreamServer, follow: Follow, states: StateLog, clock: VirtualClock, status: int
) -> None:
    reset = {"x-rate-limit-reset": str(int(clock.now().timestamp()) + 60 + 300)}
    server.scripts = [refuse_with(status), refuse_with(status, **reset), hold]
    entering = asyncio.ensure_future(follow().__aenter__())
    assert await skip_backoff(states, clock) == 60
    assert await skip_backoff(states, clock) == (300 if status == 429 else 120)
    await clock.advance(seconds=5)  # the governor's gate has its own second of chance
    await (await entering).aclose()


@pytest.mark.rule("STR-02", "ERR-07")
async def test_too_many_connections_has_its_own_rule_and_ends_with_advice(
    server: StreamServer, follow: Follow, states: StateLog, clock: VirtualClock
) -> None:
    reset = str(int(clock.now().timestamp()) + 800)  # of the request limit, which this is not about
    server.scripts = [refuse_with(429, TOO_MANY_CONNECTIONS, x_rate_limit_reset=reset, x_rate_limit_remaining="400")]
    entering = asyncio.ensure_future(follow().__aenter__())
    assert [await skip_backoff(states, clock) for _ in range(5)] == [15, 30, 60, 120, 240]
    with pytest.raises(TooManyConnections):
        await entering
    errors = [change.error for change in states.changes if change.state is StreamState.BACKOFF]
    assert {type(error) for error in errors} == {TooManyConnections}
    assert states.changes[-1].state is StreamState.CLOSED
    assert isinstance(states.changes[-1].error, TooManyConnections)


@pytest.mark.parametrize(
    ("status", "kind"), [(400, BadRequest), (401, Unauthorized), (403, Forbidden), (404, NotFound), (409, Conflict)]
)
async def test_a_final_refusal_is_raised_with_the_message_of_the_service(
    server: StreamServer, follow: Follow, status: int, kind: type[ApiError]
) -> None:
    server.scripts = [refuse_with(status, {"title": "RuleConfigurationIssue", "detail": "no rules", "status": status})]
    stream = follow()
    with pytest.raises(kind) as caught:
        await stream.__aenter__()
    assert caught.value.has_code("RuleConfigurationIssue")

    assert len(server.connections) == 1
    assert stream.state is StreamState.CLOSED


async def test_a_final_error_is_raised_after_the_events_before_it(
    server: StreamServer, follow: Follow, states: StateLog, clock: VirtualClock
) -> None:
    server.scripts = [send_and_close(event_line(1), event_line(2)), refuse_with(403)]
    async with follow(recover="off") as stream:
        await skip_backoff(states, clock)
        await states.wait_for(StreamState.CLOSED)
        assert await take_keys(stream, 2) == ["-1", "-2"]
        for _ in range(2):
            with pytest.raises(Forbidden):
                await anext(stream)


DISCONNECT = b'{"errors":[{"title":"operational-disconnect","disconnect_type":"UpstreamOperationalDisconnect"}]}\r\n'


async def test_a_disconnect_message_causes_a_backoff(
    server: StreamServer, follow: Follow, states: StateLog, clock: VirtualClock
) -> None:
    server.scripts = [send_and_hold(event_line(1), DISCONNECT), send_and_hold(event_line(2))]
    async with follow() as stream:
        change = await states.wait_for(StreamState.BACKOFF)
        assert change.wait == pytest.approx(5, rel=0.1)
        assert isinstance(change.error, StreamDropped)
        assert [each.code for each in change.error.errors] == ["UpstreamOperationalDisconnect"]
        await (await server.wait_for_connection(1)).closed.wait()
        await clock.advance(seconds=(change.wait or 0) + ROUNDING)
        assert await take_keys(stream, 2) == ["-1", "-2"]


async def test_too_many_connections_reported_in_the_stream_follows_the_same_rule(
    server: StreamServer, follow: Follow, states: StateLog
) -> None:
    server.scripts = [send_and_hold(b'{"title":"ConnectionException","connection_issue":"TooManyConnections"}\r\n')]

    async with follow():
        change = await states.wait_for(StreamState.BACKOFF)

    assert change.wait == 15
    assert isinstance(change.error, TooManyConnections)


async def test_an_unknown_error_in_the_stream_is_an_event_and_does_not_disconnect(
    server: StreamServer, follow: Follow
) -> None:
    server.scripts = [send_and_hold(b'{"errors":[{"title":"Not Found Error"}]}\r\n', event_line(1))]
    async with follow() as stream:
        event = await anext(stream)
        assert (event.event_type, event.raw["errors"]) == ("unknown", [{"title": "Not Found Error"}])
        assert await take_keys(stream, 1) == ["-1"]


async def test_silence_is_a_stall_after_25_seconds_unless_a_heartbeat_arrives(
    server: StreamServer, follow: Follow, states: StateLog, clock: VirtualClock
) -> None:
    async with follow() as stream:
        connection = await server.wait_for_connection(1)
        for beats in range(1, 4):
            await clock.advance(seconds=20)
            await connection.send(HEARTBEAT)
            await wait_for_heartbeats(stream, beats)
        await clock.advance(seconds=24)
        assert stream.state is StreamState.OPEN
        await clock.advance(seconds=1)
        change = await states.wait_for(StreamState.BACKOFF)
        assert (change.wait, stream.stats.stalls) == (0, 1)
        assert str(change.error) == "the stream stalled: nothing received for 25 s"
        await connection.closed.wait()
        await server.wait_for_connection(2)


async def test_time_with_a_full_queue_is_not_a_stall(server: StreamServer, follow: Follow, clock: VirtualClock) -> None:
    server.scripts = [send_and_hold(*map(event_line, range(5)))]
    async with follow(queue_size=1) as stream:
        await wait_until(lambda: stream.stats.waiting)
        await clock.advance(hours=1)
        assert await take_keys(stream, 5) == [f"-{number}" for number in range(5)]
        assert stream.stats.stalls == 0
        assert stream.stats.lag == 0  # the last one was read after the hour


async def test_an_answer_that_does_not_begin_times_out(
    server: StreamServer, follow: Follow, states: StateLog, clock: VirtualClock
) -> None:
    async def say_nothing(connection: ServerConnection) -> None:
        await connection.wait_for_hangup()

    server.scripts = [say_nothing, hold]
    entering = asyncio.ensure_future(follow().__aenter__())
    connection = await server.wait_for_connection(1)
    await clock.advance(seconds=25)
    assert await skip_backoff(states, clock) == 0.25
    await connection.closed.wait()
    await (await entering).aclose()
