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
    assert "cannot listen on 127.0.0.1 port" in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_port_out_of_range(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SVC_CONSUMER_SECRET", KEY.secret)
    ended = call("webhook", "listen", "--port", "70000")
    assert (ended.code, "--port must be from 0 to 65535" in ended.err) == (2, True)


def test_a_folder_that_cannot_be_made(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SVC_CONSUMER_SECRET", KEY.secret)
    (here / "file").write_text("")
    ended = call("webhook", "listen", "--save-dir", here / "file")
    assert (ended.code, "--save-dir cannot be" in ended.err) == (2, True)


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


MISTAKES: dict[str, tuple[Answer, str]] = {
    "hexadecimal": (answer_crc(lambda token: "sha256=" + sign_raw(token).hex()), "is hexadecimal; it must be base64"),
    "bare hexadecimal": (answer_crc(lambda token: sign_raw(token).hex()), "is hexadecimal; it must be base64"),
    "other hexadecimal": (answer_crc(lambda _: "sha256=" + "ab" * 32), "is hexadecimal; it must be base64, and was"),
    "no prefix": (answer_crc(lambda token: base64.b64encode(sign_raw(token)).decode()), "lacks the prefix"),
    "url-safe": (
        answer_crc(lambda token: "sha256=" + base64.urlsafe_b64encode(sign_raw(token)).decode().rstrip("=")),
        "URL-safe or unpadded base64",
    ),
    "another secret": (answer_crc(lambda token: to_token(sign_raw(token, "wrong"))), "another secret"),
    "the token": (answer_crc(lambda token: token.decode()), "is the crc_token itself"),
    "undecoded": (sign_encoded, "the token must be decoded first"),
    "no base64": (answer_crc(lambda _: "sha256=hello"), "is not sha256= followed by the base64 of 32 bytes"),
    "redirect": (answer(status=302, headers={"location": "/other"}), "HTTP 302, a redirect"),
    "refusal": (answer(status=404), "HTTP 404, a refusal"),
    "failure": (answer(status=503), "HTTP 503, a failure"),
    "created": (
        answer_crc(lambda token: to_token(sign_raw(token)), status=201),
        "HTTP 201, a success, but not 200",
    ),
    "html": (answer(text="<html>"), "is not JSON"),
    "array": (answer(text="[]"), "not an object with a text `response_token`"),
    "number": (answer(text='{"response_token": 7}'), "not an object with a text `response_token`"),
    "oracle": (answer_crc(lambda token: to_token(sign_raw(token))), "signs any crc_token, even a forged event"),
    "closed": (hang_up, "the connection was closed before an answer"),
}


@pytest.mark.parametrize(("site", "says"), keep_short(3, MISTAKES.values()), ids=[*MISTAKES], indirect=["site"])
async def test_what_is_wrong_with_an_answer_is_named(command: Command, site: str, says: str) -> None:
    ended = await command("webhook", "check", site)
    assert ended.code == 1
    assert says in ended.out
    assert len(ended.out.splitlines()) == 1
    assert KEY.secret not in ended.out + ended.err


REDIRECT = "the server answered HTTP 307, a redirect, which makes the webhook invalid: "
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
        ended = await command("webhook", "check", str(site.make_url(path)))
    assert ended.code == 1
    assert ended.out.startswith(f"{REDIRECT}{advice} (after ")


SECOND_REQUEST = (
    "a second request had a forged event as its token, which must be refused: crc_token_refused in a receiver's log"
)


@pytest.mark.rule("WH-01", "WH-02", "WH-34", "WH-35")
async def test_a_receiver_passes(command: Command) -> None:
    receiver = WebhookReceiver(keys=[KEY])
    async with serve(receiver, host="127.0.0.1", port=0) as port:
        people = await command("webhook", "check", f"http://127.0.0.1:{port}/")
        as_json = (await command("webhook", "check", f"http://127.0.0.1:{port}/?x=1", "--json")).result
    assert people.code == 0
    assert people.out.startswith("The CRC check was answered correctly (after ")
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
    assert found["problem"].endswith("with a sandbox, its own one, such as http://127.0.0.1:9000/svc")


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
    "url", ["ftp://x/", "https://", "https://u:p@x/", "https://x/#a", "https://x:99999/", "https://x/ y"]
)
def test_what_is_no_url(call: Call, url: str) -> None:
    ended = call("webhook", "check", url)
    assert ended.code == 2
    assert "URL must be an absolute URL" in ended.err


@pytest.mark.parametrize("url", ["hook", "127.0.0.1:1/x"])
def test_a_url_without_a_scheme_is_refused_by_that_rule(call: Call, url: str) -> None:
    ended = call("webhook", "check", url)
    assert (ended.code, ended.err) == (2, "svc-async: URL must start with https:// or http://\n")


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
    ("signature", "code", "says"),
    [
        (SIGNATURE, 0, "is good"),
        (SIGNATURE.removeprefix("sha256="), 1, "lacks the prefix"),
        (SIGNATURE.rstrip("="), 1, "URL-safe or unpadded"),
        ("sha256=" + "A" * 43 + "=", 1, "over other bytes; it was compared with SVC_CONSUMER_SECRET."),
        ("sha256=" + sign_raw(BODY, "test").hex().upper(), 1, "is hexadecimal; it must be base64"),
    ],
)
def test_a_signature_is_verified(call: Call, body: Path, signature: str, code: int, says: str) -> None:
    ended = call("webhook", "verify", body, "--signature", signature)
    assert (ended.code, ended.out.startswith("The signature "), says in ended.out) == (code, True, True)
    found = call("webhook", "verify", body, "--signature", signature, "--json").result
    assert found["ok"] == (code == 0)


def test_a_file_that_is_not_there(call: Call, body: Path) -> None:
    ended = call("webhook", "sign", body.parent / "other")
    assert (ended.code, f"FILE {body.parent / 'other'} cannot be read: No such file" in ended.err) == (2, True)


# --- where the secret comes from


def test_a_missing_secret_is_explained(call: Call) -> None:
    ended = call("webhook", "sign", "x")
    assert ended.code == 2
    assert "credentials need SVC_CONSUMER_SECRET" in ended.err


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
    assert "; it was compared with consumer_secret of the profile 'default'." in ended.out
    ended = call("webhook", "sign", body, "--profile", "app")
    assert (ended.code, "need consumer_secret, which is not in the profile 'app'" in ended.err) == (2, True)


def test_a_secret_is_no_option(call: Call, body: Path) -> None:
    ended = call("webhook", "sign", body, "--secret", "test")
    assert (ended.code, ended.out) == (2, "")
