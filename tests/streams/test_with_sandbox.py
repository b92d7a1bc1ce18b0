"""The two streams of a session against the sandbox, on one clock."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal
from urllib.parse import unquote

import aiohttp
import pytest

from svc_async import Conflict, Session, TooManyConnections
from svc_async.events.models import MatchedPost, PostCreated
from svc_async.events.router import EventRouter
from svc_async.monitoring import StreamGapEvent
from svc_async.sandbox import Sandbox, SandboxConfig, VirtualClock
from svc_async.streams.recovery import Gap, GapRecovery
from svc_async.streams.states import StateChange, StreamState
from svc_async.streams.stream import EventStream
from tests.support.stream_server import ROUNDING, StateLog, wait_for_heartbeats
from tests.support.tasks import wait_until

Post = Callable[[int], Awaitable[None]]


@pytest.fixture
def config() -> SandboxConfig:
    return SandboxConfig(stream_recovery=True)


@pytest.fixture
async def sandbox(clock: VirtualClock, config: SandboxConfig) -> AsyncIterator[Sandbox]:
    async with Sandbox(clock=clock, config=config) as sandbox:
        yield sandbox


@pytest.fixture
async def session(sandbox: Sandbox) -> AsyncIterator[Session]:
    async with Session.sandbox(sandbox) as session:
        yield session


@pytest.fixture
async def post(sandbox: Sandbox, session: Session) -> Post:
    """Makes posts, with a subscription and a rule that let them through."""
    await session.activity.subscriptions.create(event_type="post.create", user_id=sandbox.user_id, tag="mine")
    await session.filtered_stream.rules.add(["number"])

    async def post(number: int) -> None:
        await sandbox.trigger("post.create", payload={"text": f"number {number}"})

    return post


async def take_texts(stream: EventStream, number: int) -> list[str | None]:
    events = [await anext(stream) for _ in range(number)]
    return [event.post.text for event in events if isinstance(event, PostCreated | MatchedPost)]


async def wait_for_reopen(states: StateLog, clock: VirtualClock) -> StateChange:
    """Let the next back-off pass and wait until the stream is open again."""
    change = await states.wait_for(StreamState.BACKOFF)
    await clock.advance(seconds=(change.wait or 0) + ROUNDING)
    await states.wait_for(StreamState.OPEN)
    return change


async def invalidate_token(sandbox: Sandbox, token: str) -> None:
    """End the app's bearer token, as another process of the app may do."""
    proof = b64encode(f"{sandbox.app['consumer_key']}:{sandbox.app['consumer_secret']}".encode()).decode()
    url, headers = f"{sandbox.base_url}/oauth2/invalidate_token", {"Authorization": f"Basic {proof}"}
    async with (
        aiohttp.ClientSession() as other,
        other.post(url, data={"access_token": unquote(token)}, headers=headers) as answer,
    ):
        assert answer.status == 200


@pytest.mark.rule("STR-01", "EV-04")
async def test_events_of_subscriptions_come_typed(sandbox: Sandbox, session: Session, post: Post) -> None:
    async with session.activity.stream() as stream:
        await post(1)
        event = await anext(stream)

    assert isinstance(event, PostCreated)
    assert (event.event_type, event.post.text, event.tag) == ("post.create", "number 1", "mine")
    assert event.filter.user_id == sandbox.user_id
    assert event.event_uuid is not None


@pytest.mark.rule("ACT-01")
async def test_only_events_of_the_subscribed_user_are_delivered(sandbox: Sandbox, session: Session, post: Post) -> None:
    async with session.activity.stream() as stream:
        await sandbox.trigger("post.create", user_id="999", payload={"text": "of somebody else"})
        await post(1)
        assert await take_texts(stream, 1) == ["number 1"]


@pytest.mark.rule("ACT-02")
async def test_only_events_with_the_keyword_are_delivered(sandbox: Sandbox, session: Session) -> None:
    await session.activity.subscriptions.create(event_type="post.create", keyword="cats")
    async with session.activity.stream() as stream:
        await sandbox.trigger("post.create", payload={"text": "of dogs"}, keyword="dogs")
        await sandbox.trigger("post.create", payload={"text": "of cats"}, keyword="cats")
        assert await take_texts(stream, 1) == ["of cats"]


@pytest.mark.rule("ACT-03")
async def test_only_the_subscribed_direction_is_delivered(sandbox: Sandbox, session: Session) -> None:
    await session.activity.subscriptions.create(
        event_type="dm.read", user_id=sandbox.user_id, direction="received", tag="in"
    )
    async with session.activity.stream() as stream:
        await sandbox.trigger("dm.read", direction="sent")
        await sandbox.trigger("dm.read", direction="received")
        event = await anext(stream)
        assert (event.event_type, event.raw["tag"]) == ("dm.read", "in")
        assert (stream.stats.waiting, event.raw["filter"]["direction"]) == (0, "received")


async def test_posts_come_with_the_rules_they_match(session: Session, post: Post) -> None:
    async with session.filtered_stream.stream() as stream:
        await post(1)
        event = await anext(stream)

    assert isinstance(event, MatchedPost)
    rules = await session.filtered_stream.rules.list().collect()
    assert (event.post.text, [rule.id for rule in event.matching_rules]) == ("number 1", [rules[0].id])


async def test_a_filtered_stream_without_rules_is_refused(session: Session) -> None:
    with pytest.raises(Conflict):
        await session.filtered_stream.stream().__aenter__()


async def test_heartbeats_keep_a_quiet_stream_open(sandbox: Sandbox, session: Session, clock: VirtualClock) -> None:
    async with session.activity.stream() as stream:
        for beats in range(1, 100):
            await clock.advance(seconds=20)
            await wait_for_heartbeats(stream, beats)
        assert (stream.stats.connects, stream.stats.stalls) == (1, 0)
        assert len(sandbox.streams["activity"]) == 1


async def test_a_stalled_connection_is_closed_and_its_events_are_backfilled(
    sandbox: Sandbox, session: Session, post: Post, clock: VirtualClock, states: StateLog
) -> None:
    async with session.activity.stream(on_state=states) as stream:
        sandbox.streams["activity"].stall()
        await post(1)
        await clock.advance(seconds=25)
        await wait_for_reopen(states, clock)
        assert await take_texts(stream, 1) == ["number 1"]
        await sandbox.streams["activity"].wait(1)
        assert stream.stats.stalls == 1


async def test_events_missed_without_a_connection_are_backfilled_once(
    sandbox: Sandbox, session: Session, post: Post, clock: VirtualClock, states: StateLog
) -> None:
    gaps: list[Gap] = []
    reported: list[StreamGapEvent] = []
    session.subscribe(lambda event: reported.append(event) if isinstance(event, StreamGapEvent) else None)

    async with session.activity.stream(on_state=states, on_gap=gaps.append) as stream:
        await post(1)
        assert await take_texts(stream, 1) == ["number 1"]
        sandbox.streams["activity"].refuse(503)
        sandbox.streams["activity"].drop()
        await states.wait_for(StreamState.BACKOFF)
        await post(2)
        await clock.advance(seconds=1)
        await wait_for_reopen(states, clock)
        await post(3)
        assert await take_texts(stream, 2) == ["number 2", "number 3"]
        assert stream.stats.duplicates == 1

    assert [gap.recovery for gap in gaps] == [GapRecovery.BACKFILL]
    length = (gaps[0].end - gaps[0].start).total_seconds()
    assert reported == [StreamGapEvent(path="/2/activity/stream", seconds=length, recovery="backfill")]


@pytest.mark.parametrize("product", ["activity", "filtered"])
async def test_events_missed_between_two_streams_are_replayed(
    sandbox: Sandbox, session: Session, post: Post, clock: VirtualClock, product: Literal["activity", "filtered"]
) -> None:
    service = session.activity if product == "activity" else session.filtered_stream
    gaps: list[Gap] = []

    async with service.stream() as stream:
        await post(1)
        await take_texts(stream, 1)

    await clock.advance(hours=1)
    await post(2)
    await clock.advance(hours=1)

    async with service.stream(since=stream.checkpoint, on_gap=gaps.append) as stream:
        assert await take_texts(stream, 1) == ["number 2"]
        await post(3)
        assert await take_texts(stream, 1) == ["number 3"]
        await sandbox.streams[product].wait(1)

    assert GapRecovery.REPLAY in [gap.recovery for gap in gaps]
    assert GapRecovery.NONE not in [gap.recovery for gap in gaps]


@pytest.mark.parametrize("ends_by", ["an error", "a cancellation"])
async def test_an_event_whose_handler_has_not_returned_is_delivered_to_the_next_stream(
    session: Session, post: Post, clock: VirtualClock, ends_by: str
) -> None:
    router, seen, begun = EventRouter(), list[str](), asyncio.Event()

    @router.on("post.create")
    async def handle(event: PostCreated, _: object) -> None:
        seen.append(event.post.text or "")
        if event.post.text == "number 2" and not begun.is_set():
            begun.set()
            if ends_by == "an error":
                raise LookupError
            await asyncio.Event().wait()

    async with session.activity.stream() as stream:
        for number in (1, 2):
            await clock.advance(minutes=1)
            await post(number)
        running = asyncio.create_task(stream.run(router))
        await begun.wait()
        running.cancel()
        await asyncio.wait([running])

    await clock.advance(hours=1)
    async with session.activity.stream(since=stream.checkpoint) as stream:
        await post(3)
        running = asyncio.create_task(stream.run(router))
        await wait_until(lambda: "number 3" in seen and seen.count("number 2") == 2)
        running.cancel()
        await asyncio.wait([running])
    assert set(seen) == {"number 1", "number 2", "number 3"}


class TestWithoutRecovery:
    @pytest.fixture
    def config(self) -> SandboxConfig:
        return SandboxConfig(stream_recovery=False)

    async def test_the_service_is_asked_once_and_the_stream_continues(
        self, sandbox: Sandbox, session: Session, post: Post, clock: VirtualClock, states: StateLog
    ) -> None:
        gaps: list[Gap] = []

        async with session.activity.stream(on_state=states, on_gap=gaps.append) as stream:
            for _ in range(2):
                sandbox.streams["activity"].drop()
                await wait_for_reopen(states, clock)
            await post(1)
            assert await take_texts(stream, 1) == ["number 1"]
            assert (stream.stats.refusals, stream.stats.lost) == (1, 2)

        assert all(gap.recovery is GapRecovery.NONE and gap.error is not None for gap in gaps)


async def test_a_disconnect_of_the_sandbox_causes_a_backoff(
    sandbox: Sandbox, session: Session, post: Post, clock: VirtualClock, states: StateLog
) -> None:
    async with session.activity.stream(on_state=states) as stream:
        sandbox.streams["activity"].disconnect()
        change = await wait_for_reopen(states, clock)
        assert change.wait == pytest.approx(5, rel=0.1)
        await post(1)
        assert await take_texts(stream, 1) == ["number 1"]


@pytest.mark.rule("STR-02", "ERR-07")
async def test_one_connection_too_many_waits_until_another_is_closed(
    sandbox: Sandbox, session: Session, clock: VirtualClock, states: StateLog
) -> None:
    async with session.activity.stream() as first, session.activity.stream():
        entering = asyncio.ensure_future(session.activity.stream(on_state=states).__aenter__())
        change = await states.wait_for(StreamState.BACKOFF)
        assert (type(change.error), change.wait) == (TooManyConnections, 15)
        await first.aclose()
        await sandbox.streams["activity"].wait(1)
        await clock.advance(seconds=15)
        await (await entering).aclose()


@pytest.mark.rule("STR-03", "ERR-07")
async def test_a_503_is_waited_out(sandbox: Sandbox, session: Session, clock: VirtualClock, states: StateLog) -> None:
    sandbox.streams["activity"].refuse(503, times=3)
    entering = asyncio.ensure_future(session.activity.stream(on_state=states).__aenter__())
    for _ in range(3):
        change = await states.wait_for(StreamState.BACKOFF)
        await clock.advance(seconds=(change.wait or 0) + ROUNDING)
    stream = await entering
    assert stream.stats.refusals == 3
    await stream.aclose()


async def test_garbage_duplicates_and_single_bytes_change_nothing(
    sandbox: Sandbox, session: Session, post: Post
) -> None:
    hub = sandbox.streams["activity"]
    async with session.activity.stream(on_malformed=lambda _: None) as stream:
        hub.split_bytes(1)
        await post(1)
        hub.repeat_last()
        hub.garbage()
        await post(2)
        assert await take_texts(stream, 2) == ["number 1", "number 2"]
        assert (stream.stats.duplicates, stream.stats.malformed) == (1, 1)


@pytest.mark.rule("ERR-01")
async def test_an_invalidated_token_is_renewed_when_the_stream_reconnects(
    sandbox: Sandbox, session: Session, post: Post, clock: VirtualClock, states: StateLog
) -> None:
    async with session.activity.stream(on_state=states) as stream:
        await invalidate_token(sandbox, (await session.oauth2.token()).access_token)
        sandbox.streams["activity"].drop()
        await wait_for_reopen(states, clock)
        await post(1)
        assert await take_texts(stream, 1) == ["number 1"]


async def test_leaving_frees_the_connection_immediately(sandbox: Sandbox, session: Session, post: Post) -> None:
    del post
    for _ in range(5):
        async with session.filtered_stream.stream() as stream:
            assert stream.state is StreamState.OPEN
            assert len(sandbox.streams["filtered"]) == 1
        await sandbox.streams["filtered"].wait(0)
