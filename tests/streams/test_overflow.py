"""What happens to events that arrive while the queue is full."""

import logging
from datetime import timedelta

import pytest

from svc_async.errors import StreamOverflow
from svc_async.sandbox import VirtualClock
from svc_async.streams.states import Checkpoint
from svc_async.streams.stream import EventStream
from tests.support.errors import has
from tests.support.stream_server import Follow, StreamServer, event_line, hold, send_and_hold, take_keys
from tests.support.tasks import wait_until


async def test_block_makes_the_service_wait_and_loses_nothing(
    server: StreamServer, follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    server.scripts = [send_and_hold(b"".join(map(event_line, range(100))))]

    async with follow(queue_size=10) as stream:
        await wait_until(lambda: stream.stats.waiting == 10)
        assert stream.stats.events == 10
        assert await take_keys(stream, 100) == [f"-{number}" for number in range(100)]
        assert stream.stats.dropped == 0

    assert "stream queue is filling up: 8 of 10 events" in caplog.text


async def test_drop_oldest_keeps_the_newest_and_counts_the_dropped(server: StreamServer, follow: Follow) -> None:
    server.scripts = [send_and_hold(b"".join(map(event_line, range(100))))]
    async with follow(queue_size=10, overflow="drop_oldest") as stream:
        await wait_until(lambda: stream.stats.events == 100)
        assert await take_keys(stream, 10) == [f"-{number}" for number in range(90, 100)]
        assert stream.stats.dropped == 90


async def test_error_raises_after_the_queued_events(server: StreamServer, follow: Follow) -> None:
    server.scripts = [send_and_hold(b"".join(map(event_line, range(100))))]
    async with follow(queue_size=10, overflow="error") as stream:
        connection = await server.wait_for_connection(1)
        await connection.closed.wait()
        assert await take_keys(stream, 10) == [f"-{number}" for number in range(10)]
        with pytest.raises(StreamOverflow, check=has(queue_size=10)):
            await anext(stream)


async def test_an_overflow_by_a_replay_ends_the_stream(
    server: StreamServer, follow: Follow, clock: VirtualClock
) -> None:
    since = Checkpoint(at=clock.now() - timedelta(hours=2))
    server.scripts = [hold, send_and_hold(b"".join(map(event_line, range(20))))]

    async with follow(since=since, queue_size=10, overflow="error") as stream:
        for number in (1, 2):
            await (await server.wait_for_connection(number)).closed.wait()
        assert await take_keys(stream, 10) == [f"-{number}" for number in range(10)]
        with pytest.raises(StreamOverflow):
            await anext(stream)


def padded_line(number: int, size: int) -> bytes:
    """Return the line of an event that takes about this much memory."""
    line = event_line(number).removesuffix(b"\r\n")
    taken = len(line) + 64 * sum(line.count(each) for each in (b",", b":", b"[", b"{"))
    return line + b" " * (size - taken) + b"\r\n"


async def test_the_queue_is_bounded_in_bytes(server: StreamServer, follow: Follow) -> None:
    server.scripts = [send_and_hold(b"".join(padded_line(number, 2_000) for number in range(20)))]
    async with follow(queue_bytes=10_000) as stream:
        await wait_until(lambda: stream.stats.waiting == 5)
        assert stream.stats.events == 5
        assert await take_keys(stream, 20) == [f"-{number}" for number in range(20)]
        assert stream.stats.waiting == 0


async def test_an_event_that_is_larger_than_the_queue_waits_alone(server: StreamServer, follow: Follow) -> None:
    server.scripts = [send_and_hold(padded_line(0, 2_000) + padded_line(1, 90_000) + padded_line(2, 2_000))]
    async with follow(queue_bytes=5_000) as stream:
        await wait_until(lambda: stream.stats.waiting == 1)
        assert await take_keys(stream, 3) == ["-0", "-1", "-2"]


async def test_a_warning_is_logged_once_each_time_the_queue_becomes_nearly_full(
    server: StreamServer, follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    async with follow(queue_size=20, queue_bytes=60_000) as stream:
        connection = await server.wait_for_connection(1)
        sent = 0
        for size, count, warnings in (
            (1_500, 15, []),
            (1_500, 16, ["16 of 20 events and 24000 of 60000 bytes"]),
            (1_500, 18, ["16 of 20 events and 24000 of 60000 bytes"]),
            (6_000, 7, []),
            (6_000, 8, ["8 of 20 events and 48000 of 60000 bytes"]),
        ):
            caplog.clear()
            numbers = range(sent, sent + count)
            sent += count
            await connection.send(b"".join(padded_line(number, size) for number in numbers))
            assert await take_when_waiting(stream, count) == [f"-{number}" for number in numbers]
            messages = [f"stream queue is filling up: {warning} are waiting" for warning in warnings]
            assert caplog.record_tuples == [("svc_async", logging.WARNING, message) for message in messages]


async def test_an_event_that_fills_the_queue_by_itself_is_warned_of(
    server: StreamServer, follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    async with follow(queue_size=1) as stream:
        connection = await server.wait_for_connection(1)
        await connection.send(event_line(0))
        assert await take_when_waiting(stream, 1) == ["-0"]
    assert "stream queue is filling up: 1 of 1 events" in caplog.text


async def take_when_waiting(stream: EventStream, number: int) -> list[str]:
    """Take events once all of them wait, and return their keys."""
    await wait_until(lambda: stream.stats.waiting == number)
    return await take_keys(stream, number)


async def test_drop_oldest_makes_room_in_bytes(server: StreamServer, follow: Follow) -> None:
    server.scripts = [send_and_hold(b"".join(padded_line(number, 2_000) for number in range(20)))]
    async with follow(queue_bytes=7_000, overflow="drop_oldest") as stream:
        await wait_until(lambda: stream.stats.events == 20)
        assert await take_keys(stream, 3) == ["-17", "-18", "-19"]
        assert stream.stats.dropped == 17
