"""Open streams, and other answers that the pipeline and the transport receive from a scripted peer."""

import asyncio
import gc
import logging
import random
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import attrs
import pytest

from svc_async import (
    ApiError,
    Endpoints,
    InvalidArgument,
    RateLimited,
    Retries,
    TooManyConnections,
    Unauthorized,
    UnexpectedAnswer,
)
from svc_async.auth.authorization import Authorization, bearer
from svc_async.engine.pipeline import Pipeline
from svc_async.engine.transport import OpenStream, Timeouts, Transport, WireRequest
from svc_async.errors import Sent, StreamDropped, TimedOut, TransportError, WrongState
from svc_async.governor.governor import BucketState, Governor
from svc_async.monitoring import CallEvent, LimitExceededEvent, Subscribers
from svc_async.sandbox import VirtualClock
from svc_async.wire.outcome import RetryBudget
from svc_async.wire.reading import Reader
from svc_async.wire.route import Request, Surface
from tests.support.errors import has
from tests.support.rate_limits import find_bucket
from tests.support.raw_peer import Peer, SendCounter

STREAM: Request[Any] = Request(
    method="GET",
    surface=Surface.BASE,
    template="/2/activity/stream",
    path="/2/activity/stream",
    query=(("backfill", "1"),),
)
CROWDED = b'{"title":"ConnectionException","connection_issue":"TooManyConnections","detail":"x"}'


def answer(status: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


BEGUN = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\nx-rate-limit-limit: 50\r\nx-request-id: r\r\n\r\nfirst "


class OneToken:
    """Makes each call with a token, and records how it was asked for."""

    def __init__(self) -> None:
        self.asked: list[bool] = []

    async def call_with_token(
        self, call: Callable[[Authorization], Awaitable[Any]], *, any_refusal: bool = False
    ) -> Any:
        self.asked.append(any_refusal)
        return await call(bearer("t0ken"))


@pytest.fixture
def events() -> list[CallEvent]:
    return []


@pytest.fixture
def pipeline(peer: Peer, transport: Transport, clock: VirtualClock, events: list[CallEvent]) -> Pipeline:
    return Pipeline(
        transport=transport,
        endpoints=Endpoints(base_url=peer.url, ads_url=peer.url),
        authorization=bearer("own"),
        user="ann",
        governor=Governor(clock=clock, rng=random.Random(5)),
        retries=Retries.none(),
        budget=RetryBudget(),
        reader=Reader(),
        clock=clock,
        subscribers=Subscribers(events.append),
    )


def find_stream_bucket(pipeline: Pipeline) -> BucketState:
    return find_bucket(pipeline.governor, "activity.stream")


def tell(events: Sequence[CallEvent]) -> list[tuple[str, str, int | None, str]]:
    return [(event.method, event.path, event.status, type(event.error).__name__) for event in events]


async def test_a_pipeline_names_its_governor_so_that_a_job_reports_nothing_to_it_twice(pipeline: Pipeline) -> None:
    assert pipeline.but(max_wait=1.0).governor_id == pipeline.governor.id
    assert pipeline.but(governor=Governor()).governor_id != pipeline.governor_id


async def test_a_stream_stays_open_within_the_block(peer: Peer, pipeline: Pipeline, events: list[CallEvent]) -> None:
    peer.script = peer.answer(BEGUN)

    async with pipeline.stream(STREAM, timeout=5.0) as stream:
        assert (stream.answer.status, stream.answer.body, stream.answer.headers["x-request-id"]) == (200, b"", "r")
        assert await stream.read_chunk() == b"first "
        peer.connections[0].write(b"second")
        assert await stream.read_chunk() == b"second"
        assert find_stream_bucket(pipeline).limit == 50, "learned from the headers, before the end"
        assert not peer.connections[0].is_closing()

    assert peer.heads[0].startswith(b"GET /2/activity/stream?backfill=1 HTTP/1.1\r\n")
    assert b"Authorization: Bearer own\r\n" in peer.heads[0]
    assert tell(events) == [("GET", "/2/activity/stream", 200, "NoneType")]
    with pytest.raises(StreamDropped):
        await stream.read_chunk()


async def test_a_stream_takes_the_token(peer: Peer, pipeline: Pipeline) -> None:
    peer.script = peer.answer(BEGUN)
    tokens = OneToken()

    async with pipeline.but(tokens=tokens).stream(STREAM, timeout=5.0) as stream:
        assert await stream.read_chunk() == b"first "

    assert tokens.asked == [True], "a 401 without a reason is about the token as well"
    assert b"Authorization: Bearer t0ken\r\n" in peer.heads[0]


async def test_a_request_that_breaks_a_rule_opens_no_stream(peer: Peer, pipeline: Pipeline) -> None:
    broken = STREAM.with_problem(InvalidArgument("backfill", "must be less"))

    with pytest.raises(InvalidArgument, check=has(parameter="backfill")):
        async with pipeline.stream(broken, timeout=5.0):
            raise AssertionError

    assert peer.heads == []


@pytest.mark.parametrize(
    ("refusal", "error", "is_closed"),
    [
        ((401, b"{}"), Unauthorized, False),
        ((429, b"{}"), RateLimited, True),
        ((429, CROWDED), TooManyConnections, False),
    ],
    ids=["unauthorized", "too many requests", "too many streams"],
)
async def test_a_refusal_is_raised_and_only_too_many_requests_close_the_gate(
    pipeline: Pipeline, peer: Peer, refusal: tuple[int, bytes], error: type[ApiError], is_closed: bool
) -> None:
    peer.script = peer.answer(answer(*refusal))
    events: list[object] = []

    with pytest.raises(error):
        async with pipeline.but(subscribers=Subscribers(events.append)).stream(STREAM, timeout=5.0):
            raise AssertionError

    calls = [event for event in events if isinstance(event, CallEvent)]
    assert tell(calls) == [("GET", "/2/activity/stream", refusal[0], error.__name__)]
    assert any(isinstance(event, LimitExceededEvent) for event in events) is is_closed
    assert (find_stream_bucket(pipeline).closed_until is not None) is is_closed
    assert find_stream_bucket(pipeline).used == 1


async def test_a_stream_and_a_refusal_are_one_line_each_in_the_log(
    pipeline: Pipeline, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "svc_async.http")
    peer.script = peer.answer(BEGUN)
    async with pipeline.stream(STREAM, timeout=5.0):
        pass
    peer.script = peer.answer(answer(401, b"{}"))
    with pytest.raises(Unauthorized):
        async with pipeline.stream(STREAM, timeout=5.0):
            raise AssertionError

    opened, refused = [record.getMessage() for record in caplog.records]
    assert opened.startswith("GET /2/activity/stream: HTTP 200 in ")
    assert refused.startswith("GET /2/activity/stream: Unauthorized (HTTP 401) in ")


async def test_a_stream_without_an_answer_counts_as_lost(
    peer: Peer, pipeline: Pipeline, events: list[CallEvent]
) -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    peer.script = peer.answer(BEGUN)
    async with pipeline.stream(STREAM, timeout=5.0):
        assert find_stream_bucket(pipeline).concurrency == 100
    events.clear()
    peer.script = hang_up
    with pytest.raises(TransportError) as caught:
        async with pipeline.stream(STREAM, timeout=5.0):
            raise AssertionError

    assert caught.value.sent is Sent.MAYBE
    assert tell(events) == [("GET", "/2/activity/stream", None, "TransportError")]
    assert (find_stream_bucket(pipeline).used, find_stream_bucket(pipeline).concurrency) == (2, 1)


async def test_a_stream_that_was_certainly_not_sent_counts_as_nothing(pipeline: Pipeline) -> None:
    nowhere = pipeline.but(endpoints=Endpoints(base_url="http://127.0.0.1:1", ads_url="http://127.0.0.1:1"))

    with pytest.raises(TransportError) as caught:
        async with nowhere.stream(STREAM, timeout=5.0):
            raise AssertionError

    assert caught.value.sent is Sent.NO
    assert find_stream_bucket(pipeline).used == 0


async def test_errors_without_data_are_a_refusal_of_the_main_api_only(peer: Peer, pipeline: Pipeline) -> None:
    peer.script = peer.answer(answer(200, b'{"errors":[{"title":"Not Found Error","detail":"d"}]}'))

    with pytest.raises(ApiError, check=has(status=200)):
        await pipeline.send(STREAM)
    with pytest.raises(UnexpectedAnswer):
        await pipeline.send(attrs.evolve(STREAM, surface=Surface.ADS))


async def test_a_job_reports_what_an_earlier_process_sent(pipeline: Pipeline, clock: VirtualClock) -> None:
    pipeline.restore(STREAM, [clock.now() - timedelta(seconds=1)] * 3)

    (bucket,) = pipeline.governor.snapshot()
    assert (bucket.name, bucket.scope, bucket.used) == ("activity.stream", "app", 3)


def open_stream(transport: Transport, peer: Peer, **more: Any) -> Any:
    return transport.stream(WireRequest(method="GET", url=peer.url), on_sent=more.pop("on_sent", SendCounter()), **more)


async def test_the_connection_of_a_stream_is_closed_with_it_and_never_used_again(
    peer: Peer, transport: Transport
) -> None:
    peer.script = peer.answer(BEGUN)
    sent = SendCounter()
    for number in range(2):
        async with open_stream(transport, peer, on_sent=sent) as stream:
            assert isinstance(stream, OpenStream)
            assert await stream.read_chunk() == b"first "
            peer.connections[number].write(b"and the rest..")
            assert await stream.read_chunk() == b"and the rest.."
            assert await stream.read_chunk() == b"", "the end"

    assert (sent.count, len(peer.connections)) == (2, 2)


async def test_closing_the_transport_drops_its_streams(peer: Peer, transport: Transport) -> None:
    peer.script = peer.answer(BEGUN)
    async with open_stream(transport, peer) as stream:
        assert await stream.read_chunk() == b"first "
        waiting = asyncio.ensure_future(stream.read_chunk())
        await asyncio.sleep(0)

        await transport.close()

        with pytest.raises(StreamDropped):
            await waiting
    with pytest.raises(WrongState):
        async with open_stream(transport, peer):
            raise AssertionError


async def test_a_stream_that_was_left_is_closed_and_forgotten(peer: Peer, transport: Transport) -> None:
    left = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(BEGUN)
        await reader.read()
        left.set()

    peer.script = hold
    async with open_stream(transport, peer) as stream:
        await stream.read_chunk()
        assert (left.is_set(), len(transport._streams)) == (False, 1)

    await left.wait()
    assert not transport._streams
    stream = weakref.ref(stream)
    gc.collect()
    assert stream() is None


async def test_a_connection_that_is_lost_raises_stream_dropped(peer: Peer, transport: Transport) -> None:
    peer.script = peer.answer(BEGUN)
    async with open_stream(transport, peer) as stream:
        await stream.read_chunk()
        peer.connections[0].transport.abort()
        with pytest.raises(StreamDropped, check=has(sent=Sent.YES, repeatable=True)):
            await stream.read_chunk()


async def test_redirects_are_not_followed(peer: Peer, transport: Transport) -> None:
    peer.script = peer.answer(answer(302, b"", f"Location: {peer.url}/else"))
    async with open_stream(transport, peer) as stream:
        assert stream.answer.status == 302

    assert len(peer.heads) == 1


async def test_a_refusal_of_a_stream_is_read_at_once_and_a_large_one_not(peer: Peer, transport: Transport) -> None:
    for body, kept in ((b"no", b"no"), (b"n" * 2**20, b"n" * 2**20), (b"n" * (2**20 + 1), b"")):
        peer.script = peer.answer(answer(403, body))

        async with open_stream(transport, peer) as stream:
            assert (stream.answer.status, stream.answer.body) == (403, kept)


@pytest.mark.parametrize("begin", [b"", answer(503, b"half of")[:-3]], ids=["nothing", "half a refusal"])
@pytest.mark.parametrize(("settings", "seconds"), [({"timeout": 3.0}, 3.0), ({}, 7.0)])
async def test_a_stream_begins_within_its_timeout(
    peer: Peer, settings: Mapping[str, float], seconds: float, begin: bytes
) -> None:
    clock = VirtualClock()
    transport = Transport.open(user_agent="t", clock=clock, timeouts=Timeouts(total=7.0))
    arrived = asyncio.Event()

    async def say_no_more(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(begin)
        arrived.set()
        await reader.read()

    async def wait_for_the_stream() -> None:
        async with open_stream(transport, peer, **settings):
            raise AssertionError

    peer.script = say_no_more
    waiting = asyncio.ensure_future(wait_for_the_stream())
    await arrived.wait()
    for _ in range(20):  # until half a refusal has arrived, too
        await asyncio.sleep(0)
    await clock.advance(seconds=seconds - 0.1)
    assert not waiting.done()
    await clock.advance(seconds=0.2)
    with pytest.raises(TimedOut) as caught:
        await waiting
    await transport.close()

    assert caught.value.sent is Sent.MAYBE


async def test_a_stream_has_no_timeout_once_it_has_begun(peer: Peer) -> None:
    clock = VirtualClock()
    transport = Transport.open(user_agent="t", clock=clock, timeouts=Timeouts(total=7.0))
    peer.script = peer.answer(BEGUN)
    async with open_stream(transport, peer, timeout=3.0) as stream:
        await clock.advance(seconds=1_000)
        assert await stream.read_chunk() == b"first "
    await transport.close()


def test_no_repr_shows_what_a_stream_holds() -> None:
    assert "content" not in repr(OpenStream(answer=None, content=None))  # type: ignore[arg-type]  # only shown
