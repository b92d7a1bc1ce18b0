"""The two streams: lines, heartbeats, limits, recovery, and what may go wrong on purpose."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import aiohttp
import pytest

from svc_async.sandbox import Fault, Sandbox, SandboxConfig
from tests.support.raw_client import open_raw_client
from tests.support.v2_client import V2Client

ACTIVITY = "/2/activity/stream"
FILTERED = "/2/tweets/search/stream"
RULES = "/2/tweets/search/stream/rules"

PublishPost = Callable[[int], Awaitable[None]]


async def read_line(answer: aiohttp.ClientResponse) -> bytes:
    async with asyncio.timeout(10):
        return await answer.content.readline()


async def read_text(answer: aiohttp.ClientResponse) -> str:
    content = json.loads(await read_line(answer))
    data = content["data"]
    return str(data["payload"]["text"] if "payload" in data else data["text"])


@pytest.fixture
async def publish_post(v2: V2Client) -> PublishPost:
    """A function that makes a post happen, with a subscription and a rule that let it through."""
    await v2.subscribe("post.create")
    await v2("POST", RULES, json={"add": [{"value": "number"}]})

    async def post(number: int) -> None:
        await v2.sandbox.trigger("post.create", payload={"text": f"number {number}"})

    return post


@pytest.mark.parametrize(("path", "product"), [(ACTIVITY, "activity"), (FILTERED, "filtered")])
@pytest.mark.rule("STR-01", "FS-01")
async def test_events_come_one_a_line_as_they_happen(
    v2: V2Client, publish_post: PublishPost, path: str, product: str
) -> None:
    async with v2.stream(path) as answer:
        assert answer.status == 200
        assert answer.headers["x-sandbox-rule"] in {"STR-01", "FS-01"}
        assert answer.headers["x-rate-limit-limit"] in {"450", "50"}
        for number in range(3):
            await publish_post(number)
            written = await read_line(answer)
            assert written.endswith(b"\r\n")
            content = json.loads(written)
            assert ("matching_rules" in content) == (product == "filtered")
            assert ("event_uuid" in content["data"]) == (product == "activity")


@pytest.mark.rule("STR-01")
async def test_silence_is_broken_by_a_blank_line_every_twenty_seconds(v2: V2Client, publish_post: PublishPost) -> None:
    clock = v2.clock
    async with v2.stream(ACTIVITY) as answer:
        for _ in range(3):
            await clock.advance(seconds=20)
            assert await read_line(answer) == b"\r\n"
        await clock.advance(seconds=15)
        await publish_post(1)
        assert await read_text(answer) == "number 1"
        await clock.advance(seconds=19)
        await publish_post(2)
        assert await read_text(answer) == "number 2"
        await clock.advance(seconds=20)
        assert await read_line(answer) == b"\r\n"


@pytest.mark.parametrize(("path", "limit"), [(ACTIVITY, 2), (FILTERED, 1)])
@pytest.mark.rule("STR-02", "ERR-07")
async def test_one_connection_too_many_is_refused_by_its_name(
    v2: V2Client, publish_post: PublishPost, path: str, limit: int
) -> None:
    del publish_post
    async with AsyncExitStack() as streams:
        for _ in range(limit):
            await streams.enter_async_context(v2.stream(path))
        got = await v2("GET", path)
    assert (got.status, got.rule) == (429, "STR-02")
    assert got.headers["Content-Type"] == "application/problem+json"
    problem = got.json
    assert (problem["title"], problem["connection_issue"], problem["status"]) == (
        "ConnectionException",
        "TooManyConnections",
        429,
    )


@pytest.mark.parametrize("path", [ACTIVITY, FILTERED])
async def test_a_client_that_hangs_up_frees_its_place_at_once(
    v2: V2Client, publish_post: PublishPost, path: str
) -> None:
    del publish_post
    hub = v2.sandbox.streams["activity" if path == ACTIVITY else "filtered"]
    for _ in range(5):
        async with v2.stream(path) as answer:
            assert (answer.status, len(hub)) == (200, 1)
        await hub.wait(0)


async def test_connecting_too_often_is_another_refusal(v2: V2Client, publish_post: PublishPost) -> None:
    del publish_post
    for _ in range(50):
        async with v2.stream(FILTERED) as answer:
            assert answer.status == 200
        await v2.sandbox.streams["filtered"].wait(0)
    got = await v2("GET", FILTERED)
    assert (got.status, got.headers["x-rate-limit-remaining"]) == (429, "0")
    assert b"TooManyConnections" not in got.body


async def test_a_filtered_stream_needs_a_rule(v2: V2Client) -> None:
    got = await v2("GET", FILTERED)
    assert (got.status, got.rule, got.json["status"]) == (409, "ASM-60", 409)


async def test_a_stream_takes_the_app_s_bearer_token_only(v2: V2Client) -> None:
    assert (await v2("GET", ACTIVITY, authorization="Bearer nothing")).status == 401
    assert (await v2.raw("GET", ACTIVITY, base=v2.sandbox.base_url)).status in {401, 403}


@pytest.mark.rule("STR-03", "ERR-07")
async def test_search_may_be_out_of_service(v2: V2Client, publish_post: PublishPost) -> None:
    del publish_post
    v2.sandbox.streams["filtered"].refuse(503)
    got = await v2("GET", FILTERED)
    assert (got.status, got.rule, got.json["title"]) == (503, "STR-03", "Service Unavailable")
    v2.sandbox.faults.on("GET", FILTERED).once().do(Fault.http(503))
    assert (await v2("GET", FILTERED)).status == 503
    async with v2.stream(FILTERED) as answer:
        assert answer.status == 200


async def test_backfill_goes_back_up_to_five_minutes_the_older_first(v2: V2Client, publish_post: PublishPost) -> None:
    for number in range(7):
        await publish_post(number)
        await v2.clock.advance(minutes=1)
    async with v2.stream(ACTIVITY, "?backfill_minutes=3") as answer:
        assert [await read_text(answer) for _ in range(3)] == ["number 4", "number 5", "number 6"]
        await publish_post(7)
        assert await read_text(answer) == "number 7"
    async with v2.stream(ACTIVITY, "?backfill_minutes=0") as answer:
        assert await read_text(answer) == "number 7"


async def test_a_window_of_the_past_day_is_sent_and_then_ends(v2: V2Client, publish_post: PublishPost) -> None:
    for number in range(30):
        await publish_post(number)
        await v2.clock.advance(hours=1)
    # It is 18:00 of the next day; number n came at 12:00 and n hours.
    async with v2.stream(FILTERED, "?start_time=2026-06-11T09:00:00Z&end_time=2026-06-11T11:00:00Z") as answer:
        assert [await read_text(answer) for _ in range(3)] == ["number 21", "number 22", "number 23"]
        assert await read_line(answer) == b""
    await v2.sandbox.streams["filtered"].wait(0)
    async with v2.stream(FILTERED, "?start_time=2026-06-11T17:00:00Z") as answer:
        assert await read_text(answer) == "number 29"
        await publish_post(30)
        assert await read_text(answer) == "number 30"


async def test_a_past_that_cannot_be_recovered_is_refused(v2: V2Client, subtests: pytest.Subtests) -> None:
    for query in [
        "?backfill_minutes=6",
        "?backfill_minutes=-1",
        "?backfill_minutes=x",
        "?backfill_minutes=",
        "?start_time=2026-06-09T11:59:59Z",
        "?start_time=2026-06-10T12:00:01Z",
        "?start_time=yesterday",
        "?end_time=2026-06-10T11:00:00Z",
        "?start_time=2026-06-10T10:00:00Z&end_time=2026-06-10T09:00:00Z",
        "?start_time=2026-06-10T10:00:00Z&end_time=2026-06-10T12:00:01Z",
        "?start_time=2026-06-10T10:00:00Z&backfill_minutes=1",
        "?colour=red",
    ]:
        with subtests.test(query=query):
            async with v2.stream(ACTIVITY, query) as answer:
                assert answer.status == 400
            assert len(v2.sandbox.streams["activity"]) == 0


@pytest.mark.parametrize("config", [SandboxConfig(stream_recovery=False)])
async def test_recovery_may_be_kept_from_the_app(v2: V2Client) -> None:
    for query in ("?backfill_minutes=1", "?start_time=2026-06-10T10:00:00Z"):
        async with v2.stream(ACTIVITY, query) as answer:
            assert answer.status == 403


async def test_a_disconnected_stream_sends_the_reason_and_ends(v2: V2Client) -> None:
    async with v2.stream(ACTIVITY) as answer:
        v2.sandbox.streams["activity"].disconnect()
        (error,) = json.loads(await read_line(answer))["errors"]
        assert (error["title"], error["disconnect_type"]) == ("operational-disconnect", "UpstreamOperationalDisconnect")
        assert await read_line(answer) == b""
    await v2.sandbox.streams["activity"].wait(0)


async def test_a_stream_that_is_dropped_ends_without_a_word(v2: V2Client) -> None:
    async with v2.stream(ACTIVITY) as answer:
        v2.sandbox.streams["activity"].drop()
        assert len(v2.sandbox.streams["activity"]) == 0
        with pytest.raises(aiohttp.ClientPayloadError):
            await read_line(answer)


async def test_a_stalled_stream_has_no_heartbeat_and_resumes_where_it_stopped(
    v2: V2Client, publish_post: PublishPost
) -> None:
    hub = v2.sandbox.streams["activity"]
    async with v2.stream(ACTIVITY) as answer:
        hub.stall()
        await publish_post(1)
        await v2.clock.advance(minutes=5)
        await publish_post(2)
        reading = asyncio.create_task(read_line(answer))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not reading.done()
        hub.resume()
        assert json.loads(await reading)["data"]["payload"]["text"] == "number 1"
        assert await read_text(answer) == "number 2"
        await v2.clock.advance(seconds=20)
        assert await read_line(answer) == b"\r\n"


async def test_connections_are_refused_when_a_test_wants_it(v2: V2Client) -> None:
    hub = v2.sandbox.streams["activity"]
    hub.refuse(times=2)
    hub.refuse(500)
    seen = [(await v2("GET", ACTIVITY)).json for _ in range(3)]
    assert [(problem["status"], problem.get("connection_issue")) for problem in seen] == [
        (429, "TooManyConnections"),
        (429, "TooManyConnections"),
        (500, None),
    ]
    async with v2.stream(ACTIVITY) as answer:
        assert answer.status == 200


async def test_lines_may_come_byte_by_byte_be_garbage_or_be_said_twice(v2: V2Client, publish_post: PublishPost) -> None:
    hub = v2.sandbox.streams["activity"]
    async with v2.stream(ACTIVITY) as answer:
        hub.repeat_last()
        hub.split_bytes(1)
        await publish_post(1)
        first = await read_line(answer)
        assert json.loads(first)["data"]["payload"]["text"] == "number 1"
        hub.split_bytes(None)
        hub.repeat_last()
        assert await read_line(answer) == first
        hub.garbage()
        with pytest.raises(json.JSONDecodeError):
            json.loads(await read_line(answer))
        await publish_post(2)
        assert await read_text(answer) == "number 2"


async def test_a_slow_reader_is_dropped(v2: V2Client) -> None:
    hub = v2.sandbox.streams["activity"]
    async with v2.stream(ACTIVITY) as answer:
        hub.stall()
        for number in range(1_000):
            hub.publish({"number": number})
        assert len(hub) == 1
        hub.publish({"number": 1_000})
        assert len(hub) == 0
        with pytest.raises(aiohttp.ClientPayloadError):
            await read_line(answer)


async def test_the_sandbox_closes_in_spite_of_an_open_stream() -> None:
    sandbox = Sandbox()
    await sandbox.start()
    async with open_raw_client(sandbox) as raw, V2Client(raw).stream(ACTIVITY) as answer:
        async with asyncio.timeout(10):
            await sandbox.aclose()
        with pytest.raises(aiohttp.ClientPayloadError):
            await read_line(answer)


async def test_events_of_other_users_are_not_sent(v2: V2Client, publish_post: PublishPost) -> None:
    async with v2.stream(ACTIVITY) as answer:
        await v2.sandbox.trigger("post.create", user_id="1")
        await publish_post(1)
        assert await read_text(answer) == "number 1"
