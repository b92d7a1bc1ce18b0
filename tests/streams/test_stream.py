"""A stream over sockets, from a service that misbehaves, on a clock that stands still until the test moves it."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from svc_async.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    InvalidArgument,
    NotFound,
    StreamDropped,
    StreamOverflow,
    TooManyConnections,
    Unauthorized,
)
from svc_async.events.models import Event, PostDeleted
from svc_async.events.router import EventRouter
from svc_async.sandbox import VirtualClock
from svc_async.streams.recovery import Cover, Gap
from svc_async.streams.states import Checkpoint, Malformed, StreamState
from svc_async.streams.stream import EventStream
from tests.streams.conftest import (
    CROWDED,
    HEAD,
    Adversary,
    Follow,
    Script,
    Steps,
    Visit,
    closing,
    hold,
    holding,
    line,
    refusing,
)

BEAT = b"\r\n"
MOMENT = 0.001
"""Sums of floats round."""


async def keys(stream: EventStream, number: int) -> list[str]:
    return [(await anext(stream)).key for _ in range(number)]


async def pause_of(steps: Steps, clock: VirtualClock) -> float:
    """Wait for a back-off and let its time pass."""
    change = await steps.next(StreamState.BACKOFF)
    assert change.wait is not None
    await clock.advance(seconds=change.wait + MOMENT)
    return change.wait


async def until(holds: Callable[[], object]) -> None:
    """Let the others go on until something holds."""
    while not holds():  # noqa: ASYNC110 - what is waited for is a number that sockets move
        await asyncio.sleep(0)


async def heard(stream: EventStream, beats: int) -> None:
    await until(lambda: stream.stats.heartbeats >= beats)


# --- reading


async def test_events_come_typed_and_heartbeats_are_hidden_and_counted(adversary: Adversary, follow: Follow) -> None:
    adversary.scripts = [holding(BEAT, line(1), BEAT, BEAT, line(2))]
    async with follow() as stream:
        assert stream.state is StreamState.OPEN
        first, second = await anext(stream), await anext(stream)
        assert isinstance(first, PostDeleted)
        assert (first.post.id, first.filter.user_id, second.key) == ("1", "7", "-2")
        assert (stream.stats.heartbeats, stream.stats.events, stream.stats.connects) == (3, 2, 1)


async def test_a_byte_at_a_time_makes_no_difference(adversary: Adversary, follow: Follow) -> None:
    text = line(1, payload={"id": "é€😀"}) + BEAT + line(2)
    adversary.scripts = [holding(*(text[place : place + 1] for place in range(len(text))))]
    async with follow() as stream:
        assert await keys(stream, 2) == ["-1", "-2"]
        assert stream.stats.heartbeats == 1


async def test_a_line_of_five_megabytes_is_read(adversary: Adversary, follow: Follow) -> None:
    adversary.scripts = [holding(line(1, includes={"x": "y" * 5_000_000}))]
    async with follow() as stream:
        event = await anext(stream)
        assert len(event.raw["includes"]["x"]) == 5_000_000


async def test_the_end_of_a_line_that_the_connection_cut_is_dropped_and_counted(
    adversary: Adversary, follow: Follow, steps: Steps, clock: VirtualClock
) -> None:
    async def cut(visit: Visit) -> None:
        await visit.open()
        await visit.send(line(1), line(2)[:20])
        await visit.reader.read(1)  # until the test has seen the first line

    adversary.scripts = [cut, holding(line(2))]
    async with follow() as stream:
        assert await keys(stream, 1) == ["-1"]
        (await adversary.visit(1)).cut()
        assert await pause_of(steps, clock) == 0.25
        assert await keys(stream, 1) == ["-2"]
        assert stream.stats.partial_lines == 1


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (b"<html>", "it is not a JSON object"),
        (b"[1]", "it is not a JSON object"),
        (b'"x"', "it is not a JSON object"),
        (b"\xff\xfe", "it is not a JSON object"),
        (b"x" * 2_000, "it has more than 1000 bytes"),
    ],
)
async def test_a_line_that_is_no_event_is_told_and_the_next_one_is_read(
    adversary: Adversary, follow: Follow, garbage: bytes, reason: str
) -> None:
    told: list[Malformed] = []
    adversary.scripts = [holding(garbage + b"\r\n" + line(1))]
    async with follow(on_malformed=told.append, max_line_bytes=1_000) as stream:
        assert await keys(stream, 1) == ["-1"]
        assert stream.stats.malformed == 1
    assert [each.reason for each in told] == [reason]
    assert told[0].line in {garbage, None}
    assert "html" not in repr(told[0])


async def test_a_line_that_is_no_event_is_logged_without_what_it_holds(
    adversary: Adversary, follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    adversary.scripts = [holding(b"private\r\n", line(1))]
    async with follow() as stream:
        await anext(stream)
    assert caplog.messages == ["a line of 7 bytes in a stream is no event: it is not a JSON object"]


async def test_an_event_that_came_before_is_hidden_and_counted(adversary: Adversary, follow: Follow) -> None:
    adversary.scripts = [holding(line(1), line(1), line(2))]
    async with follow() as stream:
        assert await keys(stream, 2) == ["-1", "-2"]
        assert stream.stats.duplicates == 1


async def test_without_dedupe_all_that_comes_is_given(adversary: Adversary, follow: Follow) -> None:
    adversary.scripts = [holding(line(1), line(1), line(2))]
    async with follow(dedupe=False) as stream:
        assert await keys(stream, 3) == ["-1", "-1", "-2"]


async def test_a_router_is_given_the_events_and_the_stream(adversary: Adversary, follow: Follow) -> None:
    router = EventRouter()
    given: list[tuple[str, Any]] = []
    adversary.scripts = [holding(line(1), line(2))]
    stream = follow()

    @router.on("post.*")
    async def noted(event: Event, context: Any) -> None:
        given.append((event.key, context))
        if len(given) == 2:
            await stream.aclose()

    async with stream:
        await stream.run(router)
    assert given == [("-1", stream), ("-2", stream)]


# --- coming back


async def test_a_connection_that_lived_is_opened_again_at_once(
    adversary: Adversary, follow: Follow, steps: Steps, clock: VirtualClock
) -> None:
    async with follow() as stream:
        visit = await adversary.visit(1)
        await clock.advance(seconds=20)
        await visit.send(line(1))
        await anext(stream)
        await clock.advance(seconds=10)
        visit.cut()
        change = await steps.next(StreamState.BACKOFF)
        assert change.wait == 0
        assert isinstance(change.error, StreamDropped)
        await adversary.visit(2)


async def test_accept_and_close_costs_a_bounded_number_of_connects_in_an_hour(
    adversary: Adversary, follow: Follow, steps: Steps, clock: VirtualClock
) -> None:
    adversary.scripts = [closing(line(1))]
    async with follow(recover="off"):
        while clock.monotonic() < 3600:
            await pause_of(steps, clock)
        assert 250 < len(adversary.visits) <= 258
    assert max(steps.waits) == 16


async def test_a_server_that_is_gone_is_asked_on_the_network_lane(
    adversary: Adversary, follow: Follow, steps: Steps, clock: VirtualClock
) -> None:
    async def hang_up(visit: Visit) -> None:
        visit.cut()

    adversary.scripts = [hang_up, hang_up, hang_up, hold]
    entering = asyncio.ensure_future(follow().__aenter__())
    assert [await pause_of(steps, clock) for _ in range(3)] == [0.25, 0.5, 0.75]
    stream = await entering
    assert stream.stats.refusals == 3
    await stream.aclose()


@pytest.mark.rule("STR-03", "ERR-07")
async def test_a_503_is_waited_out_on_the_lane_of_a_service_in_trouble(
    adversary: Adversary, follow: Follow, steps: Steps, clock: VirtualClock
) -> None:
    adversary.scripts = [refusing(503), refusing(503), refusing(503, retry_after="100"), hold]
    entering = asyncio.ensure_future(follow().__aenter__())
    waits = [await pause_of(steps, clock) for _ in range(3)]
    assert waits == [pytest.approx(5, rel=0.1), pytest.approx(10, rel=0.1), 100]
    await (await entering).aclose()


@pytest.mark.parametrize("status", [420, 429])
async def test_a_rate_limit_is_waited_out_for_a_minute_at_least_and_until_its_reset(
    adversary: Adversary, follow: Follow, steps: Steps, clock: VirtualClock, status: int
) -> None:
    reset = {"x-rate-limit-reset": str(int(clock.now().timestamp()) + 60 + 300)}
    adversary.scripts = [refusing(status), refusing(status, **reset), hold]
    entering = asyncio.ensure_future(follow().__aenter__())
    assert await pause_of(steps, clock) == 60
    assert await pause_of(steps, clock) == (300 if status == 429 else 120)
    await clock.advance(seconds=5)  # the governor's gate has its own second of chance
    await (await entering).aclose()


@pytest.mark.rule("STR-02", "ERR-07")
async def test_too_many_connections_has_its_own_lane_and_ends_with_advice(
    adversary: Adversary, follow: Follow, steps: Steps, clock: VirtualClock
) -> None:
    reset = str(int(clock.now().timestamp()) + 800)  # of the request limit, which this is not about
    adversary.scripts = [refusing(429, CROWDED, x_rate_limit_reset=reset, x_rate_limit_remaining="400")]
    entering = asyncio.ensure_future(follow().__aenter__())
    assert [await pause_of(steps, clock) for _ in range(5)] == [15, 30, 60, 120, 240]
    with pytest.raises(TooManyConnections, match="close the app's other streams"):
        await entering
    told = [change.error for change in steps.all if change.state is StreamState.BACKOFF]
    assert {type(error) for error in told} == {TooManyConnections}
    assert steps.all[-1].state is StreamState.CLOSED
    assert isinstance(steps.all[-1].error, TooManyConnections)


@pytest.mark.parametrize(
    ("status", "kind"), [(400, BadRequest), (401, Unauthorized), (403, Forbidden), (404, NotFound), (409, Conflict)]
)
async def test_what_no_repeat_changes_is_raised_with_the_service_s_words(
    adversary: Adversary, follow: Follow, status: int, kind: type[Exception]
) -> None:
    adversary.scripts = [refusing(status, {"title": "RuleConfigurationIssue", "detail": "no rules", "status": status})]
    stream = follow()
    with pytest.raises(kind, match="RuleConfigurationIssue no rules"):
        await stream.__aenter__()
    assert len(adversary.visits) == 1
    assert stream.state is StreamState.CLOSED


async def test_a_final_error_comes_after_the_events_that_came_before_it(
    adversary: Adversary, follow: Follow, steps: Steps, clock: VirtualClock
) -> None:
    adversary.scripts = [closing(line(1), line(2)), refusing(403)]
    async with follow(recover="off") as stream:
        await pause_of(steps, clock)
        await steps.next(StreamState.CLOSED)
        assert await keys(stream, 2) == ["-1", "-2"]
        for _ in range(2):
            with pytest.raises(Forbidden):
                await anext(stream)


DISCONNECT = b'{"errors":[{"title":"operational-disconnect","disconnect_type":"UpstreamOperationalDisconnect"}]}\r\n'


async def test_a_service_that_says_it_disconnects_is_left_alone_for_a_while(
    adversary: Adversary, follow: Follow, steps: Steps, clock: VirtualClock
) -> None:
    adversary.scripts = [holding(line(1), DISCONNECT), holding(line(2))]
    async with follow() as stream:
        change = await steps.next(StreamState.BACKOFF)
        assert change.wait == pytest.approx(5, rel=0.1)
        assert "UpstreamOperationalDisconnect" in str(change.error)
        await (await adversary.visit(1)).over.wait()
        await clock.advance(seconds=change.wait or 0)
        assert await keys(stream, 2) == ["-1", "-2"]


async def test_too_many_connections_said_in_the_stream_has_the_same_lane(
    adversary: Adversary, follow: Follow, steps: Steps
) -> None:
    adversary.scripts = [holding(b'{"title":"ConnectionException","connection_issue":"TooManyConnections"}\r\n')]
    async with follow():
        change = await steps.next(StreamState.BACKOFF)
    assert change.wait == 15
    assert isinstance(change.error, TooManyConnections)


async def test_an_unknown_error_in_the_stream_is_an_event_and_ends_nothing(
    adversary: Adversary, follow: Follow
) -> None:
    adversary.scripts = [holding(b'{"errors":[{"title":"Not Found Error"}]}\r\n', line(1))]
    async with follow() as stream:
        event = await anext(stream)
        assert (event.event_type, event.raw["errors"]) == ("unknown", [{"title": "Not Found Error"}])
        assert await keys(stream, 1) == ["-1"]


# --- silence


async def test_silence_is_a_stall_after_25_seconds_and_a_heartbeat_is_none(
    adversary: Adversary, follow: Follow, steps: Steps, clock: VirtualClock
) -> None:
    async with follow() as stream:
        visit = await adversary.visit(1)
        for beats in range(1, 4):
            await clock.advance(seconds=20)
            await visit.send(BEAT)
            await heard(stream, beats)
        await clock.advance(seconds=24)
        assert stream.state is StreamState.OPEN
        await clock.advance(seconds=1)
        change = await steps.next(StreamState.BACKOFF)
        assert (change.wait, stream.stats.stalls) == (0, 1)
        await visit.over.wait()
        await adversary.visit(2)


async def test_time_in_which_the_queue_is_full_is_no_silence(
    adversary: Adversary, follow: Follow, clock: VirtualClock
) -> None:
    adversary.scripts = [holding(*map(line, range(5)))]
    async with follow(queue_size=1) as stream:
        await until(lambda: stream.stats.waiting)
        await clock.advance(hours=1)
        assert await keys(stream, 5) == [f"-{number}" for number in range(5)]
        assert stream.stats.stalls == 0
        assert stream.stats.lag == 0  # the last one was read after the hour


async def test_an_answer_that_does_not_begin_is_given_up_on(
    adversary: Adversary, follow: Follow, steps: Steps, clock: VirtualClock
) -> None:
    async def say_nothing(visit: Visit) -> None:
        await visit.hung_up()

    adversary.scripts = [say_nothing, hold]
    entering = asyncio.ensure_future(follow().__aenter__())
    visit = await adversary.visit(1)
    await clock.advance(seconds=25)
    assert await pause_of(steps, clock) == 0.25
    await visit.over.wait()
    await (await entering).aclose()


# --- overflow


async def test_block_lets_the_service_wait_and_loses_nothing(
    adversary: Adversary, follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    adversary.scripts = [holding(b"".join(map(line, range(100))))]
    async with follow(queue_size=10) as stream:
        await until(lambda: stream.stats.waiting == 10)
        assert stream.stats.events == 10
        assert await keys(stream, 100) == [f"-{number}" for number in range(100)]
        assert stream.stats.dropped == 0
    assert "a stream's queue is filling up: 8 of 10 events wait to be taken" in caplog.messages


async def test_drop_oldest_keeps_what_is_new_and_counts_what_went(adversary: Adversary, follow: Follow) -> None:
    adversary.scripts = [holding(b"".join(map(line, range(100))))]
    async with follow(queue_size=10, overflow="drop_oldest") as stream:
        await until(lambda: stream.stats.events == 100)
        assert await keys(stream, 10) == [f"-{number}" for number in range(90, 100)]
        assert stream.stats.dropped == 90


async def test_error_raises_after_what_was_read(adversary: Adversary, follow: Follow) -> None:
    adversary.scripts = [holding(b"".join(map(line, range(100))))]
    async with follow(queue_size=10, overflow="error") as stream:
        (visit,) = [await adversary.visit(1)]
        await visit.over.wait()
        assert await keys(stream, 10) == [f"-{number}" for number in range(10)]
        with pytest.raises(StreamOverflow, match="10 events wait"):
            await anext(stream)


async def test_an_overflow_by_a_side_connection_ends_the_stream(
    adversary: Adversary, follow: Follow, clock: VirtualClock
) -> None:
    since = Checkpoint(at=clock.now() - timedelta(hours=2))
    adversary.scripts = [hold, holding(b"".join(map(line, range(20))))]
    async with follow(since=since, queue_size=10, overflow="error") as stream:
        for number in (1, 2):
            await (await adversary.visit(number)).over.wait()
        assert await keys(stream, 10) == [f"-{number}" for number in range(10)]
        with pytest.raises(StreamOverflow):
            await anext(stream)


# --- what was missed


async def test_a_short_gap_is_asked_for_in_minutes(
    adversary: Adversary, follow: Follow, steps: Steps, clock: VirtualClock
) -> None:
    told: list[Gap] = []
    adversary.scripts = [closing(line(1)), refusing(503, retry_after="100"), holding(line(1), line(2))]
    async with follow(on_gap=told.append) as stream:
        assert [await pause_of(steps, clock), await pause_of(steps, clock)] == [0.25, 100]
        assert await keys(stream, 2) == ["-1", "-2"]
        assert [visit.params for visit in adversary.visits] == [
            {},
            {"backfill_minutes": "1"},
            {"backfill_minutes": "2"},
        ]
    assert [(gap.cover, round((gap.end - gap.start).total_seconds())) for gap in told] == [(Cover.BACKFILL, 100)]


async def test_a_gap_stays_open_until_a_connection_has_lived(
    adversary: Adversary, follow: Follow, steps: Steps, clock: VirtualClock
) -> None:
    adversary.scripts = [closing(BEAT)]
    async with follow():
        while clock.monotonic() < 130:
            await pause_of(steps, clock)
    assert [visit.params.get("backfill_minutes") for visit in adversary.visits][-1] == "3"


async def test_a_long_gap_comes_by_a_side_connection(adversary: Adversary, follow: Follow, clock: VirtualClock) -> None:
    told: list[Gap] = []
    since = Checkpoint(at=clock.now(), key="-1")
    await clock.advance(hours=2)
    adversary.scripts = [holding(line(9)), closing(line(1), line(2), line(3))]
    async with follow(since=since, on_gap=told.append) as stream:
        side = await adversary.visit(2)
        assert side.params == {"start_time": "2026-06-10T11:59:50Z", "end_time": "2026-06-10T14:00:00Z"}
        assert sorted(await keys(stream, 3)) == ["-2", "-3", "-9"]
        await side.over.wait()
        await until(lambda: told)
        assert stream.checkpoint is not None
        assert stream.checkpoint.at == clock.now()
        assert adversary.open_now == 1
    assert [(gap.cover, gap.start) for gap in told] == [(Cover.REPLAY, since.at)]


async def test_a_side_connection_comes_first_where_there_is_only_one(
    adversary: Adversary, follow: Follow, clock: VirtualClock
) -> None:
    since = Checkpoint(at=clock.now())
    await clock.advance(hours=2)
    adversary.scripts = [closing(line(1), line(2)), holding(line(2), line(3))]
    async with follow(since=since, connections=1, queue_size=1) as stream:
        assert await keys(stream, 3) == ["-1", "-2", "-3"]
    assert [sorted(visit.params) for visit in adversary.visits] == [
        ["end_time", "start_time"],
        ["backfill_minutes"],
    ]


async def test_until_the_side_connection_is_done_the_checkpoint_stays_before_the_gap(
    adversary: Adversary, follow: Follow, clock: VirtualClock
) -> None:
    since = Checkpoint(at=clock.now())
    await clock.advance(hours=2)
    adversary.scripts = [holding(line(9)), holding(line(1))]
    async with follow(since=since) as stream:
        await keys(stream, 2)
        assert stream.checkpoint is not None
        assert stream.checkpoint.at == since.at


async def test_a_side_connection_that_only_beats_is_at_its_end(
    adversary: Adversary, follow: Follow, clock: VirtualClock
) -> None:
    told: list[Gap] = []
    since = Checkpoint(at=clock.now())
    await clock.advance(hours=2)
    async with follow(since=since, on_gap=told.append) as stream:
        main, side = await adversary.visit(1), await adversary.visit(2)
        for visit, beats in ((main, 1), (side, 2), (main, 3)):
            await clock.advance(seconds=10)
            await visit.send(BEAT)
            await heard(stream, beats)
        await side.send(BEAT)
        await side.over.wait()
    assert [gap.cover for gap in told] == [Cover.REPLAY]


async def test_a_side_connection_that_breaks_is_tried_again_and_given_up_on_in_the_end(
    adversary: Adversary, follow: Follow, clock: VirtualClock
) -> None:
    told: list[Gap] = []
    since = Checkpoint(at=clock.now())
    await clock.advance(hours=2)
    adversary.scripts = [hold, refusing(503)]
    async with follow(since=since, on_gap=told.append) as stream:
        main = await adversary.visit(1)
        for beats in range(30):
            await main.send(BEAT)
            await heard(stream, beats + 1)
            await clock.advance(seconds=20)
        assert len(adversary.visits) == 6
        assert stream.stats.lost == 1
    assert [(gap.cover, getattr(gap.error, "status", None)) for gap in told] == [(Cover.NONE, 503)]


@pytest.mark.parametrize("status", [400, 403])
async def test_a_service_that_does_not_know_recovery_is_asked_once(
    adversary: Adversary, follow: Follow, steps: Steps, clock: VirtualClock, status: int
) -> None:
    told: list[Gap] = []
    adversary.scripts = [closing(line(1)), refusing(status), closing(), holding(line(2))]
    async with follow(on_gap=told.append) as stream:
        await pause_of(steps, clock)
        await adversary.visit(3)
        await pause_of(steps, clock)
        assert await keys(stream, 2) == ["-1", "-2"]
    assert [visit.params for visit in adversary.visits] == [{}, {"backfill_minutes": "1"}, {}, {}]
    assert [(gap.cover, getattr(gap.error, "status", None)) for gap in told] == [(Cover.NONE, status)] * 2


async def test_a_side_connection_that_is_refused_switches_recovery_off(
    adversary: Adversary, follow: Follow, steps: Steps, clock: VirtualClock
) -> None:
    told: list[Gap] = []
    since = Checkpoint(at=clock.now())
    await clock.advance(hours=2)
    adversary.scripts = [hold, refusing(400), hold]
    async with follow(since=since, on_gap=told.append):
        await until(lambda: told)
        (await adversary.visit(1)).cut()
        await pause_of(steps, clock)
        assert (await adversary.visit(3)).params == {}
    assert [gap.cover for gap in told][:1] == [Cover.NONE]


async def test_without_recovery_nothing_is_asked_for_and_the_gap_is_told(
    adversary: Adversary, follow: Follow, steps: Steps, clock: VirtualClock
) -> None:
    told: list[Gap] = []
    adversary.scripts = [closing(), hold]
    async with follow(recover="off", on_gap=told.append):
        await pause_of(steps, clock)
        assert (await adversary.visit(2)).params == {}
        await steps.next(StreamState.OPEN)
    assert [gap.cover for gap in told] == [Cover.NONE]


async def test_what_is_older_than_a_day_is_lost_and_told(
    adversary: Adversary, follow: Follow, clock: VirtualClock
) -> None:
    told: list[Gap] = []
    since = Checkpoint(at=clock.now())
    await clock.advance(hours=30)
    adversary.scripts = [hold, closing()]
    async with follow(since=since, on_gap=told.append) as stream:
        await until(lambda: len(told) == 2)
        assert stream.stats.lost == 1
    lost = [(gap.start, (gap.end - gap.start).total_seconds()) for gap in told if gap.cover is Cover.NONE]
    assert lost == [(since.at, 6 * 3600)]


async def test_a_checkpoint_is_of_the_event_that_was_taken_last(
    adversary: Adversary, follow: Follow, clock: VirtualClock
) -> None:
    stream = follow()
    assert stream.checkpoint is None
    async with stream:
        assert stream.checkpoint == Checkpoint(at=clock.now())
        visit = await adversary.visit(1)
        for number in (1, 2):
            await clock.advance(seconds=20)
            await visit.send(line(number))
            await until(lambda: stream.stats.waiting == number)  # noqa: B023 - awaited here
        await anext(stream)
        taken = stream.checkpoint
        assert taken == Checkpoint(at=clock.now() - timedelta(seconds=40), key="-1")
    assert stream.checkpoint == taken


async def test_the_checkpoint_of_a_quiet_stream_moves_on(
    adversary: Adversary, follow: Follow, clock: VirtualClock
) -> None:
    async with follow() as stream:
        visit = await adversary.visit(1)
        for beats in range(1, 5):
            await clock.advance(seconds=20)
            await visit.send(BEAT)
            await heard(stream, beats)
        assert stream.checkpoint == Checkpoint(at=clock.now())


async def test_the_event_taken_last_is_not_repeated_by_the_next_stream(
    adversary: Adversary, follow: Follow, clock: VirtualClock
) -> None:
    adversary.scripts = [holding(line(1), line(2))]
    since = Checkpoint(at=clock.now() - timedelta(seconds=9), key="-1")
    async with follow(since=since) as stream:
        await until(lambda: stream.stats.waiting)
        assert stream.checkpoint == since
        assert await keys(stream, 1) == ["-2"]


# --- leaving


async def test_leaving_closes_the_connection_and_the_server_sees_it(adversary: Adversary, follow: Follow) -> None:
    tasks = asyncio.all_tasks()
    adversary.scripts = [holding(line(1), line(2))]
    async with follow() as stream:
        await anext(stream)
    await (await adversary.visit(1)).over.wait()
    assert adversary.open_now == 0
    assert stream.state is StreamState.CLOSED
    assert asyncio.all_tasks() == tasks
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    await stream.aclose()


async def test_leaving_in_a_back_off_does_not_wait_for_it(adversary: Adversary, follow: Follow, steps: Steps) -> None:
    adversary.scripts = [closing()]
    async with follow():
        await steps.next(StreamState.BACKOFF)


async def test_who_waits_for_an_event_learns_that_the_stream_was_closed(follow: Follow) -> None:
    async with follow() as stream:
        waiting = [asyncio.ensure_future(anext(stream)) for _ in range(2)]
        await asyncio.sleep(0)
        await stream.aclose()
        results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [StopAsyncIteration] * 2


async def test_a_stream_must_be_entered_and_only_once(follow: Follow) -> None:
    stream = follow()
    with pytest.raises(InvalidArgument, match="^stream must be open"):
        aiter(stream)
    async with stream:
        with pytest.raises(InvalidArgument, match="^stream must be entered once"):
            await stream.__aenter__()


async def test_an_error_of_an_observer_is_the_caller_s(adversary: Adversary, follow: Follow) -> None:
    def fail(_: object) -> None:
        raise LookupError("mine")

    async def all_at_once(visit: Visit) -> None:
        visit.writer.write(HEAD + b"3\r\nx\r\n\r\n0\r\n\r\n")
        await visit.hung_up()

    adversary.scripts = [all_at_once]
    async with follow(on_malformed=fail) as stream:
        with pytest.raises(LookupError, match="mine"):
            await anext(stream)


TROUBLES: dict[str, list[Script]] = {
    "streams beside each other": [holding(line(1)), holding(line(2)), hold],
    "back-off": [closing(line(1))],
    "refusals": [refusing(503)],
    "full queue": [holding(b"".join(map(line, range(50))))],
}


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("turns", range(0, 60, 2))
async def test_cancelling_at_any_point_leaves_no_task_and_no_connection(
    adversary: Adversary, follow: Follow, clock: VirtualClock, trouble: str, turns: int
) -> None:
    before = asyncio.all_tasks()

    async def use() -> None:
        async with follow(since=Checkpoint(at=clock.now() - timedelta(hours=4)), queue_size=2) as stream:
            async for _ in stream:
                await asyncio.sleep(0)

    adversary.scripts = [*TROUBLES[trouble]]
    using = asyncio.ensure_future(use())
    for _ in range(turns):
        await asyncio.sleep(0)
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    for visit in adversary.visits:
        await visit.over.wait()
    assert adversary.open_now == 0
    assert not {task for task in asyncio.all_tasks() - before if "svc_async" in repr(task.get_coro())}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"recover": "maybe"}, "^recover must be one of auto, off"),
        ({"overflow": "spill"}, "^overflow must be one of block, drop_oldest, error"),
        ({"queue_size": 0}, "^queue_size must be greater than 0"),
        ({"stall_timeout": 0}, "^stall_timeout must be greater than 0"),
        ({"max_line_bytes": 0}, "^max_line_bytes must be greater than 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(follow: Follow, wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        follow(**wrong)


def test_a_checkpoint_must_say_in_which_zone_it_is() -> None:
    with pytest.raises(InvalidArgument, match="^at must carry a time zone"):
        Checkpoint(at=datetime(2026, 6, 10))  # noqa: DTZ001 - that is the mistake
