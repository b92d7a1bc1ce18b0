"""Reading, resuming and leaving a stream, over sockets, on a clock that only the test advances."""

import asyncio
import gc
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from svc_async.errors import Hint, InvalidArgument
from svc_async.events.models import Event, PostDeleted
from svc_async.events.router import EventRouter
from svc_async.sandbox import VirtualClock
from svc_async.streams.states import Checkpoint, MalformedLine, StreamState
from svc_async.streams.stream import RECENT_KEYS, EventStream
from tests.support.errors import has
from tests.support.panics import Panic
from tests.support.stream_server import (
    HEAD,
    HEARTBEAT,
    Follow,
    Script,
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
)


async def test_events_are_typed_and_heartbeats_are_hidden_and_counted(server: StreamServer, follow: Follow) -> None:
    server.scripts = [send_and_hold(HEARTBEAT, event_line(1), HEARTBEAT, HEARTBEAT, event_line(2))]
    async with follow() as stream:
        assert stream.state is StreamState.OPEN
        first, second = await anext(stream), await anext(stream)
        assert isinstance(first, PostDeleted)
        assert (first.post.id, first.filter.user_id, second.key) == ("1", "7", "-2")
        assert (stream.stats.heartbeats, stream.stats.events, stream.stats.connects) == (3, 2, 1)


async def test_a_byte_at_a_time_makes_no_difference(server: StreamServer, follow: Follow) -> None:
    text = event_line(1, payload={"id": "é€😀"}) + HEARTBEAT + event_line(2)
    server.scripts = [send_and_hold(*(text[place : place + 1] for place in range(len(text))))]

    async with follow() as stream:
        assert await take_keys(stream, 2) == ["-1", "-2"]
        assert stream.stats.heartbeats == 1


async def test_a_line_of_five_megabytes_is_read(server: StreamServer, follow: Follow) -> None:
    server.scripts = [send_and_hold(event_line(1, includes={"x": "y" * 5_000_000}))]
    async with follow() as stream:
        event = await anext(stream)
        assert len(event.raw["includes"]["x"]) == 5_000_000


@pytest.mark.parametrize("size", [1, 20])
async def test_a_line_that_the_connection_cut_off_is_discarded_and_counted(
    server: StreamServer, follow: Follow, states: StateLog, clock: VirtualClock, size: int
) -> None:
    async def cut(connection: ServerConnection) -> None:
        await connection.open()
        await connection.send(event_line(1), event_line(2)[:size])
        await connection.reader.read(1)  # until the test has seen the first line

    server.scripts = [cut, send_and_hold(event_line(2))]

    async with follow() as stream:
        assert await take_keys(stream, 1) == ["-1"]
        (await server.wait_for_connection(1)).abort()
        assert await skip_backoff(states, clock) == 0.25
        assert await take_keys(stream, 1) == ["-2"]
        assert stream.stats.partial_lines == 1


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (b"<html>", "must be a JSON object"),
        (b"[1]", "must be a JSON object"),
        (b'"x"', "must be a JSON object"),
        (b"\xff\xfe", "must be a JSON object"),
        (b"x" * 2_000, "longer than 1000 bytes"),
    ],
)
async def test_a_malformed_line_is_reported_and_the_next_one_is_read(
    server: StreamServer, follow: Follow, garbage: bytes, reason: str
) -> None:
    lines: list[MalformedLine] = []
    server.scripts = [send_and_hold(garbage + b"\r\n" + event_line(1))]

    async with follow(on_malformed=lines.append, max_line_bytes=1_000) as stream:
        assert await take_keys(stream, 1) == ["-1"]
        assert stream.stats.malformed == 1

    assert [each.reason for each in lines] == [reason]
    assert lines[0].line in {garbage, None}
    assert "html" not in repr(lines[0])


async def test_a_malformed_line_is_logged_without_its_content(
    server: StreamServer, follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    server.scripts = [send_and_hold(b"private\r\n", event_line(1))]

    async with follow() as stream:
        await anext(stream)

    message = "skipped a malformed line of 7 bytes in a stream: must be a JSON object"
    assert caplog.record_tuples == [("svc_async", logging.WARNING, message)]


async def test_a_duplicate_event_is_hidden_and_counted(server: StreamServer, follow: Follow) -> None:
    server.scripts = [send_and_hold(event_line(1), event_line(1), event_line(2))]
    async with follow() as stream:
        assert await take_keys(stream, 2) == ["-1", "-2"]
        assert stream.stats.duplicates == 1


async def test_events_are_recognised_among_the_last_hundred_thousand(
    server: StreamServer, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert RECENT_KEYS == 100_000
    monkeypatch.setattr("svc_async.streams.stream.RECENT_KEYS", 2)  # so many lines would take seconds
    server.scripts = [send_and_hold(*map(event_line, (1, 2, 1, 3, 1, 2)))]
    async with follow() as stream:
        assert await take_keys(stream, 5) == ["-1", "-2", "-3", "-1", "-2"]
        assert stream.stats.duplicates == 1


async def test_without_dedupe_every_event_is_delivered(server: StreamServer, follow: Follow) -> None:
    server.scripts = [send_and_hold(event_line(1), event_line(1), event_line(2))]
    async with follow(dedupe=False) as stream:
        assert await take_keys(stream, 3) == ["-1", "-1", "-2"]


async def test_a_router_receives_the_events_and_the_stream(server: StreamServer, follow: Follow) -> None:
    router = EventRouter()
    given: list[tuple[str, Any]] = []
    server.scripts = [send_and_hold(event_line(1), event_line(2))]
    stream = follow()

    @router.on("post.*")
    async def noted(event: Event, context: Any) -> None:
        given.append((event.key, context))
        if len(given) == 2:
            await stream.aclose()

    async with stream:
        await stream.run(router)

    assert given == [("-1", stream), ("-2", stream)]


async def test_a_handler_that_fails_ends_the_call_and_not_the_stream(server: StreamServer, follow: Follow) -> None:
    router = EventRouter()
    seen: list[str] = []
    server.scripts = [send_and_hold(event_line(1), event_line(2), event_line(3))]

    @router.on("*")
    async def handle(event: Event, context: EventStream) -> None:
        seen.append(event.key)
        if event.key == "-3":
            await context.aclose()
        else:
            raise LookupError

    async with follow() as stream:
        for _ in range(2):
            with pytest.raises(LookupError):
                await stream.run(router)
        await stream.run(router)

    assert seen == ["-1", "-2", "-3"]


@pytest.mark.parametrize("router", [None, print, EventRouter])
async def test_a_router_of_another_type_is_refused_before_an_event(follow: Follow, router: Any) -> None:
    async with follow() as stream:
        with pytest.raises(InvalidArgument, check=has(parameter="router")):
            await stream.run(router)


async def test_leaving_closes_the_connection(server: StreamServer, follow: Follow) -> None:
    tasks = asyncio.all_tasks()
    server.scripts = [send_and_hold(event_line(1), event_line(2))]

    async with follow() as stream:
        await anext(stream)

    await (await server.wait_for_connection(1)).closed.wait()
    assert server.open_connections == 0
    assert stream.state is StreamState.CLOSED
    assert asyncio.all_tasks() == tasks
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    await stream.aclose()


async def test_leaving_during_a_backoff_does_not_wait_for_it(
    server: StreamServer, follow: Follow, states: StateLog
) -> None:
    server.scripts = [send_and_close()]
    async with follow():
        await states.wait_for(StreamState.BACKOFF)


async def test_closing_the_stream_ends_every_waiting_iteration(follow: Follow) -> None:
    async with follow() as stream:
        waiting = [asyncio.ensure_future(anext(stream)) for _ in range(2)]
        await asyncio.sleep(0)
        await stream.aclose()
        results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [StopAsyncIteration] * 2


async def test_a_stream_must_be_entered_and_only_once(follow: Follow) -> None:
    stream = follow()
    uses: list[Callable[[EventStream], Any]] = [aiter, anext, lambda each: each.run(EventRouter())]
    for use in uses:
        with pytest.raises(InvalidArgument) as caught:
            await use(stream)
        assert (caught.value.parameter, caught.value.hint) == ("stream", Hint.OPEN_IT)
    async with stream:
        with pytest.raises(InvalidArgument, check=has(parameter="stream")):
            await stream.__aenter__()


@pytest.mark.parametrize("kind", [LookupError, Panic])
async def test_an_error_of_an_observer_is_raised_to_the_caller(
    server: StreamServer, follow: Follow, kind: type[BaseException]
) -> None:
    def fail(_: object) -> None:
        raise kind("mine")

    async def all_at_once(connection: ServerConnection) -> None:
        connection.writer.write(HEAD + b"3\r\nx\r\n\r\n0\r\n\r\n")
        await connection.wait_for_hangup()

    server.scripts = [all_at_once]

    async with follow(on_malformed=fail) as stream:
        with pytest.raises(kind, match="mine"):
            await anext(stream)


@pytest.mark.parametrize("kind", [LookupError, Panic])
async def test_an_observer_that_always_fails_leaves_no_task_with_an_exception(
    follow: Follow, kind: type[BaseException]
) -> None:
    def fail(_: object) -> None:
        raise kind("mine")

    lost: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))
    with pytest.raises(kind, match="mine"):
        async with follow(on_state=fail):
            """It is not entered."""
    gc.collect()
    await asyncio.sleep(0)
    assert lost == []


TROUBLES: dict[str, list[Script]] = {
    "streams beside each other": [send_and_hold(event_line(1)), send_and_hold(event_line(2)), hold],
    "back-off": [send_and_close(event_line(1))],
    "refusals": [refuse_with(503)],
    "full queue": [send_and_hold(b"".join(map(event_line, range(50))))],
}


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize(
    "turns", [turns if turns % 12 == 0 else pytest.param(turns, marks=pytest.mark.long) for turns in range(0, 60, 2)]
)
async def test_cancelling_at_any_point_leaves_no_task_and_no_connection(
    server: StreamServer, follow: Follow, clock: VirtualClock, trouble: str, turns: int
) -> None:
    before = asyncio.all_tasks()

    async def use() -> None:
        async with follow(since=Checkpoint(at=clock.now() - timedelta(hours=4)), queue_size=2) as stream:
            async for _ in stream:
                await asyncio.sleep(0)

    server.scripts = [*TROUBLES[trouble]]
    using = asyncio.ensure_future(use())
    for _ in range(turns):
        await asyncio.sleep(0)
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    for connection in server.connections:
        await connection.closed.wait()

    assert server.open_connections == 0
    assert not {task for task in asyncio.all_tasks() - before if "svc_async" in repr(task.get_coro())}


@pytest.mark.parametrize(
    "wrong",
    [
        {"recover": "maybe"},
        {"overflow": "spill"},
        {"queue_size": 0},
        {"stall_timeout": 0},
        {"reconnects": 3},
        {"max_line_bytes": 0},
    ],
)
def test_invalid_settings_are_refused(follow: Follow, wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=next(iter(wrong)))):
        follow(**wrong)


def test_a_checkpoint_must_carry_a_time_zone() -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="at")) as caught:
        Checkpoint(at=datetime(2026, 6, 10))  # noqa: DTZ001 - that is the mistake
    assert caught.value.rule_ids == ("GEN-12",)
