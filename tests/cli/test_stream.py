"""`svc-async stream tail`, against a service whose answers are scripted."""

import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from svc_async import Session
from svc_async.sandbox import Sandbox
from tests.support.command import Call, Command
from tests.support.stream_server import (
    StreamServer,
    event_line,
    hold,
    refuse_with,
    run_stream_server,
    send_and_close,
    send_and_hold,
)

MATCH = b'{"data":{"id":"1","lang":null,"author_id":"9","text":"t"},"matching_rules":[{"id":"2"}]}\r\n'


@pytest.fixture
async def server() -> AsyncIterator[StreamServer]:
    async with run_stream_server() as server:
        yield server


@pytest.fixture
def tail(server: StreamServer, tmp_path: Path) -> Command:
    hosts = {"SVC_BASE_URL": server.url, "SVC_ADS_URL": server.url, "SVC_BEARER_TOKEN": "t"}
    return Command(tmp_path, hosts)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
async def test_events_are_printed_as_they_come_until_it_is_stopped(
    server: StreamServer, tail: Command, number: signal.Signals
) -> None:
    server.scripts = [send_and_hold(event_line(1), b"\r\n", event_line(2))]
    running = await tail.start("stream", "tail", "activity")
    assert (await running.line()).split() == ["post.delete", "7", "-1"]
    assert (await running.line()).split() == ["post.delete", "7", "-2"]
    running.send(number)
    ended = await running.wait()
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.splitlines() == ["The stream is open. Ctrl-C ends it.", "The stream is closed."]
    await server.connections[0].closed.wait()


async def test_each_event_is_one_object_in_one_line(server: StreamServer, tail: Command) -> None:
    server.scripts = [send_and_hold(MATCH)]
    running = await tail.start("stream", "tail", "filtered", "--json")
    assert (await running.item()) == json.loads(MATCH)
    running.send(signal.SIGINT)
    assert (await running.wait()).code == 0
    assert server.connections[0].path == "/2/tweets/search/stream"


async def test_nothing_that_comes_is_obeyed_by_a_terminal(server: StreamServer, tail: Command) -> None:
    server.scripts = [send_and_hold(event_line(1, event_uuid="\x1b[31m\n\x9b1"))]
    running = await tail.start("stream", "tail", "activity")
    assert (await running.line()).split() == ["post.delete", "7", "\\x1b[31m\\n\\x9b1"]
    running.send(signal.SIGINT)
    await running.wait()


@pytest.mark.long("the stream reconnects in real time")
async def test_disconnects_are_reported_and_the_stream_reconnects(server: StreamServer, tail: Command) -> None:
    server.scripts = [send_and_close(b"x\r\n"), refuse_with(400), hold]
    running = await tail.start("stream", "tail", "activity")
    await server.wait_for_connection(3)
    running.send(signal.SIGINT)
    ended = await running.wait()
    assert ended.code == 0
    problems = [text.split(":")[1].strip() for text in ended.err.splitlines() if text.startswith("svc-async:")]
    assert problems[:2] == ["a line of 1 bytes is no event", "not connected"]


async def test_what_no_repeat_changes_is_one_line_and_exit_1(server: StreamServer, tail: Command) -> None:
    server.scripts = [refuse_with(409, {"title": "RuleConfigurationIssue", "detail": "no rules", "status": 409})]
    ended = await tail("stream", "tail", "filtered")
    assert (ended.code, ended.out) == (1, "")
    advice = "the stream needs a rule first: in Python, await session.filtered_stream.rules.add([...])"
    assert ended.err.splitlines() == [f"svc-async: HTTP 409: RuleConfigurationIssue no rules; {advice}"]


async def test_a_stream_of_an_app_without_a_subscription_says_why_it_is_silent(command: Command) -> None:
    running = await command.start("stream", "tail", "activity", "--json")
    assert await running.note() == "The stream is open. Ctrl-C ends it.\n"
    assert (await running.note()).startswith("The app has no subscription, without which no event comes. Create one: ")
    running.send(signal.SIGINT)
    ended = await running.wait()
    assert (ended.end["exit_code"], ended.out.count("\n"), ended.err) == (0, 1, "The stream is closed.\n")


async def test_a_stream_of_an_app_with_a_subscription_says_nothing_more(command: Command, sandbox: Sandbox) -> None:
    async with Session.sandbox(sandbox) as session:
        await session.activity.subscriptions.create(event_type="post.create", user_id=sandbox.user_id)
    running = await command.start("stream", "tail", "activity")
    notes = [await running.note()]
    await sandbox.trigger("post.create")
    assert (await running.line()).split()[:2] == ["post.create", sandbox.user_id]
    running.send(signal.SIGINT)
    ended = await running.wait()
    assert [*notes, ended.err] == ["The stream is open. Ctrl-C ends it.\n", "The stream is closed.\n"]


async def test_a_stream_goes_on_where_the_subscriptions_may_not_be_listed(server: StreamServer, tail: Command) -> None:
    server.subscriptions = None
    server.scripts = [send_and_hold(event_line(1))]
    running = await tail.start("stream", "tail", "activity")
    assert (await running.line()).split() == ["post.delete", "7", "-1"]
    running.send(signal.SIGINT)
    ended = await running.wait()
    assert (ended.code, len(ended.err.splitlines())) == (0, 2)


@pytest.mark.parametrize("arguments", [("stream", "tail"), ("stream", "tail", "everything"), ("stream", "tial")])
def test_what_is_mistyped_is_one_line_and_exit_2(call: Call, arguments: tuple[str, ...]) -> None:
    ended = call(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert len(ended.err.splitlines()) == 1
