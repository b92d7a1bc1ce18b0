"""`svc-async webhook`: listens, checks a URL, signs and verifies."""

import asyncio
import base64
import hashlib
import hmac
import os
import signal
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer

from svc_async.webhooks import SigningKey, WebhookReceiver
from svc_async.webhooks.receiver import serve
from svc_async.webhooks.testing import build_crc, build_delivery
from tests.support.command import Call, Command, Ended
from tests.support.event_samples import activity
from tests.support.receivers import create_sender
from tests.support.tiers import keep_short

KEY = SigningKey("consumer-secret")
BODY = b'{"test_number":1,"test_string":"two"}'
SIGNATURE = "sha256=YWHphPn/JFq43jkF0y4/w8R/SelmLjvpunhVFY8JhlI="


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path, {"SVC_CONSUMER_SECRET": KEY.secret})


# --- listen


@pytest.mark.rule("WH-34", "WH-35", "WH-36", "WH-41")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_listens_until_it_is_stopped(command: Command, tmp_path: Path, number: signal.Signals) -> None:
    running = await command.start(
        "webhook", "listen", "--port", "0", "--json", "--save-dir", tmp_path / "saved" / "here"
    )
    port = int((await running.item())["listening"].rstrip("/").rpartition(":")[2])
    send = create_sender(port, "/any/path")
    assert (await send(*build_crc())).status == 200
    request = build_delivery({"data": activity("post.create", uuid="-3")}, KEY)
    assert (await send(*request)).status == 200
    assert (await send("POST", "", {}, request.body)).status == 401
    line = await running.item()
    assert (line["event_type"], line["key"], line["replayed"]) == ("post.create", "-3", False)
    assert line["event"] == activity("post.create", uuid="-3")
    running.send(number)
    ended = await running.wait()
    assert (ended.code, ended.result) == (0, None)
    assert ended.err.startswith("warning: rejected a request: signature_missing: ")
    assert ended.err.count("\n") == 1
    (saved,) = (tmp_path / "saved" / "here").iterdir()
    assert saved.read_bytes() == request.body
    assert saved.parent.stat().st_mode & 0o777 == 0o700


async def test_events_are_printed_one_a_line(command: Command) -> None:
    running = await command.start("webhook", "listen", "--port", "0")
    assert running.process.stderr is not None
    printed = (await running.process.stderr.readline()).decode()
    send = create_sender(int(printed.split("/ ")[0].rpartition(":")[2]))
    await send(*build_delivery({"data": activity("dm.read", uuid="a\x1b[31mb")}, KEY))
    await send("POST", "", {}, b"")
    assert (await running.line()).split()[1:] == ["dm.read", "a\\x1b[31mb"]
    running.send(signal.SIGINT)
    ended = await running.wait()
    warning, summary = ended.err.splitlines()
    assert warning.startswith(
        "warning: rejected a request: signature_missing: there is no signature header, by default "
        "x-svc-webhooks-signature; "
    )
    assert summary == "Events: 1. CRC checks: 0. Refused: 1 signature_missing."


async def test_it_ends_quietly_when_nobody_reads_what_it_prints(command: Command, unused_tcp_port: int) -> None:
    reader, writer = os.pipe()
    running = await command.start("webhook", "listen", "--port", unused_tcp_port, stdout=writer)
    os.close(writer)
    assert running.process.stderr is not None
    await running.process.stderr.readline()
    send = create_sender(unused_tcp_port)
    await send(*build_delivery({"data": activity("dm.read", uuid="1")}, KEY))
    assert os.read(reader, 100).split()[1:] == [b"dm.read", b"1"]
    os.close(reader)
    await send(*build_delivery({"data": activity("dm.read", uuid="2")}, KEY))
    assert await running.wait() == Ended(1, "", "")


async def test_a_port_that_is_taken_is_an_error_of_one_line(command: Command) -> None:
    async with serve(WebhookReceiver(keys=[KEY]), host="127.0.0.1", port=0) as port:
        ended = await command("webhook", "listen", "--port", str(port))
    assert ended.code == 2
    assert str(port) in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_port_out_of_range(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SVC_CONSUMER_SECRET", KEY.secret)
    ended = call("webhook", "listen", "--port", "70000", "--json")
    assert (ended.code, ended.error["parameter"]) == (2, "--port")


def test_a_folder_that_cannot_be_made(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SVC_CONSUMER_SECRET", KEY.secret)
    (here / "file").write_text("")
    ended = call("webhook", "listen", "--save-dir", here / "file", "--json")
    assert (ended.code, ended.error["parameter"]) == (2, "--save-dir")


# --- check

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def sign_raw(message: bytes, secret: str = KEY.secret) -> bytes:
    return hmac.new(secret.encode(), message, hashlib.sha256).digest()


def answer_crc(make: Callable[[bytes], str], **settings: Any) -> Answer:
    async def respond(request: web.Request) -> web.Response:
        token = request.query["crc_token"].encode()
        return web.json_response({"response_token": make(token)}, **settings)

    return respond


def to_token(raw: bytes) -> str:
    return "sha256=" + base64.b64encode(raw).decode()


def answer(**settings: Any) -> Answer:
    async def respond(_: web.Request) -> web.Response:
        return web.Response(**settings)

    return respond


async def sign_encoded(request: web.Request) -> web.Response:
    raw = request.rel_url.raw_query_string.partition("=")[2].encode()
    return web.json_response({"response_token": to_token(sign_raw(raw))})


async def hang_up(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


@pytest.fixture
async def site(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/hook", request.param)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    await runner.cleanup()


MISTAKES: dict[str, tuple[Answer, int | None]] = {
    "another secret": (answer_crc(lambda token: to_token(sign_raw(token, "wrong"))), 200),
    "refusal": (answer(status=404), 404),
    "undecoded": (sign_encoded, 200),
    "redirect": (answer(status=302, headers={"location": "/other"}), 302),
    "failure": (answer(status=503), 503),
    "created": (answer_crc(lambda token: to_token(sign_raw(token)), status=201), 201),
    "html": (answer(text="<html>"), 200),
    "oracle": (answer_crc(lambda token: to_token(sign_raw(token))), 200),
    "closed": (hang_up, None),
}
"""Answers that are wrong, and their status; tests/webhooks has what is said of each."""


@pytest.mark.parametrize(("site", "status"), keep_short(2, MISTAKES.values()), ids=[*MISTAKES], indirect=["site"])
async def test_what_is_wrong_with_an_answer_is_named(command: Command, site: str, status: int | None) -> None:
    ended = await command("webhook", "check", site, "--json")
    found = ended.result
    assert (ended.code, found["ok"], found["status"]) == (1, False, status)
    assert found["notes"] == ([] if status is None else ["the secret is SVC_CONSUMER_SECRET"])
    assert KEY.secret not in ended.out + ended.err


MISSING_SLASH = "add a slash to the end of the URL"
EXTRA_SLASH = "remove the slash at the end of the URL"
OTHER_URL = "let the URL itself answer"


@pytest.mark.parametrize(
    ("path", "location", "advice"),
    keep_short(
        2,
        [
            ("/hooks/svc", "http://{host}/hooks/svc/?crc_token=a", MISSING_SLASH),
            ("/hooks/svc/", "http://{host}/hooks/svc?crc_token=a", EXTRA_SLASH),
            ("/hooks/svc/", "https://{host}/hooks/svc", EXTRA_SLASH),
            ("/hooks/svc", "svc/", MISSING_SLASH),
            ("/hooks/svc", "/hooks/other/", OTHER_URL),
            ("/hooks/svc", "https://other.example.test/hooks/svc/", OTHER_URL),
            ("/hooks/svc", "http://[x", OTHER_URL),
        ],
    ),
)
async def test_a_redirect_tells_which_slash_is_wrong(command: Command, path: str, location: str, advice: str) -> None:
    async def redirect(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"location": location.replace("{host}", request.host)})

    app = web.Application()
    app.router.add_get(path, redirect)
    async with TestServer(app) as site:
        ended = await command("webhook", "check", str(site.make_url(path)), "--json")
    assert (ended.code, ended.result["status"]) == (1, 307)
    assert ended.result["problem"].endswith(f": {advice}")


SECOND_REQUEST = (
    "a second request had a forged event as its token, which must be refused: crc_token_refused in a receiver's log"
)


@pytest.mark.rule("WH-01", "WH-02", "WH-34", "WH-35")
async def test_a_receiver_passes(command: Command) -> None:
    receiver = WebhookReceiver(keys=[KEY])
    async with serve(receiver, host="127.0.0.1", port=0) as port:
        people = await command("webhook", "check", f"http://127.0.0.1:{port}/")
        as_json = (await command("webhook", "check", f"http://127.0.0.1:{port}/?x=1", "--json")).result
    assert (people.code, people.out.count("\n")) == (0, 1)
    assert people.err.splitlines() == [f"Note: {SECOND_REQUEST}."]
    assert as_json["notes"] == [SECOND_REQUEST]
    assert receiver.stats.rejected == {"crc_token_refused": 2}
    assert as_json["seconds"] >= 0
    assert (as_json["ok"], as_json["problem"], as_json["status"]) == (True, None, 200)


@pytest.mark.parametrize("host", keep_short(1, [("127.0.0.2",), ("[::1]",), ("localhost",)]))
async def test_a_url_of_this_machine_need_not_be_one_to_register(command: Command, host: str) -> None:
    ended = await command("webhook", "check", f"http://{host}:1/", "--json")
    assert ended.result["notes"] == []


async def test_a_url_that_cannot_be_registered_is_noted(command: Command) -> None:
    ended = await command("webhook", "check", "http://0.0.0.0:1/", "--json")
    assert ended.result["notes"] == ["the service accepts https:// only", "the service accepts no port"]


async def test_a_server_that_is_not_there(command: Command, unused_tcp_port: int) -> None:
    ended = await command("webhook", "check", f"http://127.0.0.1:{unused_tcp_port}/", "--json")
    found = ended.result
    assert (ended.code, found["ok"], found["status"]) == (1, False, None)
    assert "connection refused" in found["problem"]


async def test_a_certificate_that_cannot_be_trusted(command: Command) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        ended = await command("webhook", "check", f"https://localhost:{port}/")
    assert ended.code == 1
    assert "certificate verification failed" in ended.out


@pytest.mark.parametrize(
    "url",
    [
        "hook",
        "127.0.0.1:1/x",
        "ftp://x/",
        "https://",
        "https://u:p@x/",
        "https://x/#a",
        "https://x:99999/",
        "https://x/ y",
    ],
)
def test_what_is_no_url(call: Call, url: str) -> None:
    ended = call("webhook", "check", url, "--json")
    assert (ended.code, ended.error["parameter"]) == (2, "URL")


# --- sign, verify


@pytest.fixture
def body(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SVC_CONSUMER_SECRET", "test")
    (here / "body.json").write_bytes(BODY)
    return here / "body.json"


def test_a_file_is_signed(call: Call, body: Path) -> None:
    assert call("webhook", "sign", body) == Ended(0, SIGNATURE + "\n", "")
    assert call("webhook", "sign", body, "--json").result == {
        "header": "x-svc-webhooks-signature",
        "signature": SIGNATURE,
    }


def test_the_help_names_the_header_whose_value_is_printed(call: Call) -> None:
    text = " ".join(call("webhook", "sign", "--help").out.split())
    assert "Print the value of the header x-svc-webhooks-signature " in text


@pytest.mark.rule("WH-40c")
@pytest.mark.parametrize(
    ("signature", "code"),
    [(SIGNATURE, 0), (SIGNATURE.removeprefix("sha256="), 1), ("sha256=" + "A" * 43 + "=", 1)],
)
def test_a_signature_is_verified(call: Call, body: Path, signature: str, code: int) -> None:
    ended = call("webhook", "verify", body, "--signature", signature)
    assert (ended.code, ended.out.count("\n"), "SVC_CONSUMER_SECRET" in ended.out) == (code, 1, code == 1)
    found = call("webhook", "verify", body, "--signature", signature, "--json").result
    assert (found["ok"], found["problem"] is None) == (code == 0, code == 0)


def test_a_file_that_is_not_there(call: Call, body: Path) -> None:
    ended = call("webhook", "sign", body.parent / "other", "--json")
    assert (ended.code, ended.error["parameter"]) == (2, "FILE")


# --- where the secret comes from


def test_a_missing_secret_is_explained(call: Call) -> None:
    ended = call("webhook", "sign", "x", "--json")
    assert (ended.code, ended.error["parameter"]) == (2, "credentials")
    assert "SVC_CONSUMER_SECRET" in ended.err


PROFILES = """
[default]
consumer_key = "k"
consumer_secret = "test"
access_token = "t"
access_token_secret = "s"
base_url = "https://api.example.test"
ads_url = "https://ads.example.test"

[app]
bearer_token = "b"
base_url = "https://api.example.test"
ads_url = "https://ads.example.test"
"""


def test_a_profile_has_the_secret(call: Call, here: Path, body: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "svc_async").mkdir()
    (here / "svc_async" / "profiles.toml").write_text(PROFILES)
    monkeypatch.setenv("SVC_CONSUMER_SECRET", "another")
    assert call("webhook", "sign", body).out != SIGNATURE + "\n"
    assert call("webhook", "sign", body, "--profile", "default").out == SIGNATURE + "\n"
    monkeypatch.setenv("SVC_PROFILE", "default")
    assert call("webhook", "sign", body).out == SIGNATURE + "\n"
    monkeypatch.delenv("SVC_PROFILE")
    monkeypatch.delenv("SVC_CONSUMER_SECRET")
    assert call("webhook", "sign", body).out == SIGNATURE + "\n"
    ended = call("webhook", "verify", body, "--signature", "sha256=" + "A" * 43 + "=")
    assert "consumer_secret of the profile 'default'" in ended.out
    ended = call("webhook", "sign", body, "--profile", "app", "--json")
    assert (ended.code, ended.error["parameter"]) == (2, "credentials")


def test_a_secret_is_no_option(call: Call, body: Path) -> None:
    ended = call("webhook", "sign", body, "--secret", "test")
    assert (ended.code, ended.out) == (2, "")
