"""`job watch`: the page of a job that another process runs."""

import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import attrs
import pytest

from svc_async.batch.journal.record import JournalRecord
from svc_async.cli.watch import _MOST_READERS, follow
from svc_async.sandbox import Fault, Sandbox, VirtualClock
from tests.support.command import Call, Command, Running, limit_requests, read_shape

USERS = "*/custom_audiences/*/users"


@pytest.fixture
async def command(command: Command) -> Command:
    """Return the command with requests of 100 operations, not 2,500."""
    return attrs.evolve(command, program=limit_requests(100))


@pytest.fixture
async def upload(command: Command, sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[Running]:
    """A job that hangs in its second request, and whose journal is job.journal."""
    rows = [f"user{number}@example.org" for number in range(240)]
    (tmp_path / "people.csv").write_text("\n".join(["email", *rows]) + "\n")
    sandbox.faults.on("POST", USERS).nth(2).do(Fault.hang())
    target = ("--account", sandbox.account_id, "--audience", sandbox.audience_id)
    running = await command.start(
        *("audience", "upload", "people.csv", *target, "--journal", "job.journal", "--users-per-operation", "1"),
        *("--concurrency", "1"),
    )
    await sandbox.requests.wait(count=2, route=USERS)
    yield running
    if running.process.returncode is None:
        running.send(signal.SIGKILL)
        await running.wait()


@pytest.fixture
async def watched(command: Command, upload: Running) -> AsyncIterator[tuple[Running, str]]:
    del upload
    running = await command.start("job", "watch", "job.journal", "--json")
    yield running, (await running.item())["url"]
    if running.process.returncode is None:
        running.send(signal.SIGINT)
        await running.wait()


async def read_events(response: aiohttp.ClientResponse) -> list[tuple[str, str]]:
    text = (await response.read()).decode()
    events = [event.split("\n", 1) for event in text.split("\n\n") if event]
    return [(name.removeprefix("event: "), data.removeprefix("data:").strip()) for name, data in events]


@pytest.mark.long("a page is followed in real time")
async def test_the_page_follows_the_job_to_its_end(upload: Running, watched: tuple[Running, str]) -> None:
    watch, url = watched
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        page = await answer.text()
        assert "<strong>Running:</strong> 100 of 240 rows" in page
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    async with aiohttp.ClientSession() as http, http.get(f"{url}events") as answer:
        upload.send(signal.SIGINT)
        events = await read_events(answer)
    assert [name for name, _ in events][-1] == "end"
    contents = [json.loads(data) for name, data in events if name == "content"]
    assert "<strong>Running:</strong>" in contents[0]
    assert "<strong>Not finished:</strong> the job is stopped" in contents[-1]
    end = read_shape((await watch.wait()).out)
    assert (end["command"], end["result"]["state"], end["exit_code"]) == ("job watch", "stopped", 0)
    await upload.wait()


@pytest.mark.long("a page is followed in real time")
async def test_a_reader_that_closes_the_page_is_no_error(upload: Running, watched: tuple[Running, str]) -> None:
    watch, url = watched
    async with aiohttp.ClientSession() as http, http.get(f"{url}events") as answer:
        await answer.content.readuntil(b"\n\n")
    upload.send(signal.SIGINT)  # the next change has nobody to go to
    await upload.wait()
    ended = await watch.wait()
    assert (ended.code, ended.err) == (0, "")


REFUSED = [
    ({"Host": "attacker.example"}, ""),
    ({"Origin": "https://attacker.example"}, "events"),
    ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, "events"),
    ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, ""),
]


async def test_no_other_site_is_answered(watched: tuple[Running, str]) -> None:
    url = watched[1]
    async with aiohttp.ClientSession() as http:
        for headers, path in REFUSED:
            async with http.get(f"{url}{path}", headers=headers) as answer:
                assert (answer.status, "people" in await answer.text()) == (403, False), headers
        async with http.get(url.rsplit("/", 2)[0] + "/") as answer:  # without the secret
            assert answer.status == 404
        opened = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}  # by a link
        async with http.get(url, headers=opened) as answer:
            assert answer.status == 200


async def test_it_ends_when_it_is_told(command: Command, upload: Running) -> None:
    del upload
    running = await command.start("job", "watch", "job.journal")
    stderr = running.process.stderr
    assert stderr is not None
    assert "http://127.0.0.1:" in (await stderr.readline()).decode()
    running.send(signal.SIGINT)
    ended = await running.wait()
    assert (ended.code, ended.out, ended.err) == (0, "", "")


@pytest.mark.long("runs two commands in processes of their own")
async def test_a_finished_job_is_shown_by_its_report(command: Command, sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("email\na@example.org\n")
    target = ("--account", sandbox.account_id, "--audience", sandbox.audience_id)
    assert (await command("audience", "upload", "one.csv", *target, "--journal", "one.journal")).code == 0
    ended = await command("job", "watch", "one.journal")
    assert (ended.code, "finished" in ended.out) == (0, True)


@pytest.mark.parametrize("arguments", [(), ("none.journal",)])
def test_a_journal_that_is_not_there_is_not_watched(call: Call, arguments: tuple[str, ...]) -> None:
    assert call("job", "watch", *arguments).code == 2


async def test_the_pages_that_are_kept_up_to_date_are_bounded() -> None:
    async def read() -> JournalRecord:
        return JournalRecord(name="nightly", note={}, running=not tried)

    tried: list[str] = []

    async def open_pages(url: str) -> None:
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(aiohttp.ClientSession())
            for _ in range(_MOST_READERS):
                opened = await stack.enter_async_context(http.get(f"{url}events"))
                assert await opened.content.readuntil(b"\n\n")
            async with http.get(f"{url}events") as refused:
                assert refused.status == 503
            async with http.get(url) as page:
                assert page.status == 200
            tried.append(url)

    ended = await follow(read, port=0, on_open=open_pages, clock=VirtualClock(mode="jump"))
    assert not ended.running
