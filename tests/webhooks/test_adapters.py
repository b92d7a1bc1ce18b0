"""What servers demand of their applications."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from aiohttp import web

from svc_async.errors import UnusableFile
from svc_async.webhooks import Ack, MemoryDedupe, SqliteInbox, WebhookReceiver
from svc_async.webhooks.receiver import AsgiApp, serve
from svc_async.webhooks.testing import build_crc
from tests.support.deliveries import KEY, delivery
from tests.support.receivers import PATH, SERVERS, create_sender, exchange_raw
from tests.support.tasks import wait_until


async def run_app(app: AsgiApp, scope: dict[str, Any], *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the application sends to a server that sends these messages."""
    waiting, said = list(messages), list[dict[str, Any]]()

    async def receive() -> Any:
        await asyncio.sleep(0)
        return waiting.pop(0)

    async def send(message: Any) -> None:
        said.append(message)

    await app(scope, receive, send)
    return said


def http_scope(
    path: str = "/", *, root_path: str = "", query: bytes = b"crc_token=a", method: str = "GET"
) -> dict[str, Any]:
    return {
        "type": "http",
        "method": method,
        "path": path,
        "root_path": root_path,
        "query_string": query,
        "headers": [(b"host", b"x")],
    }


def find_statuses(said: Sequence[dict[str, Any]]) -> list[int]:
    return [message["status"] for message in said if message["type"] == "http.response.start"]


@pytest.mark.parametrize(
    ("path", "scope", "status"),
    [
        (None, http_scope("/anything"), 200),
        ("/hook", http_scope("/hook"), 200),
        ("/hook", http_scope("/other"), 404),
        ("/hook", http_scope("/mounted/hook", root_path="/mounted"), 200),
        ("/hook", http_scope("/mounted", root_path="/mounted"), 404),
        ("/hook", http_scope("/mounted/hook", root_path="/mounted/"), 200),
        ("/hook", http_scope("/box/hook", root_path="/box"), 200),
        ("/hooks/svc", http_scope("/hooks/svc", root_path="/hook"), 200),
        ("/", http_scope("/mounted/", root_path="/mounted"), 200),
        (None, http_scope("/", query=b""), 400),
    ],
)
async def test_an_asgi_application_serves_its_path(path: str | None, scope: dict[str, Any], status: int) -> None:
    said = await run_app(WebhookReceiver(keys=[KEY]).asgi(path), scope)
    assert find_statuses(said) == [status]
    length = dict(said[0]["headers"])[b"content-length"]
    assert int(length) == len(said[1]["body"])


async def test_a_mounted_application_is_run_by_its_host() -> None:
    receiver = WebhookReceiver(keys=[KEY])
    app, request = receiver.asgi(), delivery()
    scope = http_scope(method="POST")
    scope["headers"] = [(name.encode(), value.encode()) for name, value in request.headers.items()]
    body = {"type": "http.request", "body": request.body}
    assert find_statuses(await run_app(app, scope, body)) == [503]
    async with receiver:
        assert find_statuses(await run_app(app, scope, body)) == [200]
        half = {"type": "http.request", "body": request.body[:9], "more_body": True}
        assert find_statuses(await run_app(app, scope, half, {"type": "http.disconnect"})) == [400]
    assert receiver.stats.rejected == {"not_running": 1, "body_broken": 1}


async def test_a_web_socket_is_refused() -> None:
    said = await run_app(WebhookReceiver(keys=[KEY]).asgi(), {"type": "websocket"}, {"type": "websocket.connect"})
    assert said == [{"type": "websocket.close"}]


async def test_what_is_neither_http_nor_a_web_socket_is_no_request() -> None:
    receiver = WebhookReceiver(keys=[KEY])
    with pytest.raises(NotImplementedError):
        await run_app(receiver.asgi(), {"type": "quic", "path": "/"})
    assert receiver.stats.rejected == {}


STARTUP, SHUTDOWN = {"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}


async def test_the_life_of_a_server_is_that_of_the_receiver() -> None:
    said = await run_app(WebhookReceiver(keys=[KEY]).asgi(), {"type": "lifespan"}, STARTUP, SHUTDOWN)
    assert [message["type"] for message in said] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


@pytest.fixture
def unreadable(tmp_path: Path) -> WebhookReceiver:
    return WebhookReceiver(keys=[KEY], ack=Ack.durable(SqliteInbox(tmp_path / "no" / "inbox.db")))


async def test_a_server_does_not_start_without_its_inbox(unreadable: WebhookReceiver) -> None:
    said: list[Any] = []

    async def receive() -> Any:
        return STARTUP

    async def send(message: Any) -> None:
        said.append(message)

    with pytest.raises(UnusableFile) as caught:
        await unreadable.asgi()({"type": "lifespan"}, receive, send)
    assert [message["type"] for message in said] == ["lifespan.startup.failed"]
    assert said[0]["message"] == str(caught.value)


async def test_an_aiohttp_application_does_not_start_without_its_inbox(unreadable: WebhookReceiver) -> None:
    app = web.Application()
    unreadable.attach(app, PATH)
    runner = web.AppRunner(app)
    with pytest.raises(UnusableFile):
        await runner.setup()
    await runner.cleanup()


async def test_a_receiver_that_runs_is_left_running_by_an_application() -> None:
    async with WebhookReceiver(keys=[KEY]) as receiver:
        app = web.Application()
        receiver.attach(app, PATH)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        assert (await create_sender(runner.addresses[0][1])(*build_crc())).status == 200
        await runner.cleanup()
        assert receiver.is_running


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
async def test_alone_it_does_not_decompress_what_it_refuses(encoding: str, caplog: pytest.LogCaptureFixture) -> None:
    async with serve(WebhookReceiver(keys=[KEY]), host="127.0.0.1", port=0) as port:
        answer = await create_sender(port, "/")("POST", "", {"Content-Encoding": encoding}, b"nothing of the kind")
    assert (answer.status, answer.body) == (415, b"body_encoded")
    assert [record.levelname for record in caplog.records] == ["WARNING"]


HEAD = f"POST {PATH} HTTP/1.1\r\nHost: x\r\n{KEY.header}: {delivery().headers[KEY.header]}\r\n"


@pytest.mark.parametrize("server", SERVERS)
async def test_a_body_that_breaks_off_is_counted_as_broken(server: str) -> None:
    receiver = WebhookReceiver(keys=[KEY])
    async with SERVERS[server](receiver) as port:
        await exchange_raw(port, f"{HEAD}Content-Length: 100\r\n\r\nabc".encode(), then_end=True)
        await wait_until(lambda: receiver.stats.received)
    assert receiver.stats.rejected == {"body_broken": 1}


async def serve_alone(receiver: WebhookReceiver) -> AsyncIterator[int]:
    async with serve(receiver, host="127.0.0.1", port=0, path=PATH) as port:
        yield port


ON_AIOHTTP = {"attached": SERVERS["aiohttp"], "alone": asynccontextmanager(serve_alone)}
POST = f"POST {PATH} HTTP/1.1\r\nHost: x\r\n"
FIELD = "x: a\r\n"
MALFORMED = {
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no field": f"{POST}no colon\r\n\r\n".encode(),
    "long field": f"{POST}x: {'a' * 20_000}\r\n\r\n".encode(),
    "many fields": f"{POST}{FIELD * 300}\r\n".encode(),
    "two lengths": f"{POST}Content-Length: 1\r\nContent-Length: 2\r\n\r\n".encode(),
    "wrong chunk": f"{POST}Transfer-Encoding: chunked\r\n\r\nzz\r\n".encode(),
    "after another": f"{POST}Content-Length: 0\r\n\r\nnothing of the kind\r\n\r\n".encode(),
}


@pytest.mark.parametrize("server", ON_AIOHTTP)
async def test_a_malformed_request_of_a_stranger_prints_no_traceback(
    server: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with ON_AIOHTTP[server](WebhookReceiver(keys=[KEY])) as port:
        for name, request in MALFORMED.items():
            answers = await exchange_raw(port, request)
            assert answers.split(b"\r\n")[0].endswith((b" 400 Bad Request", b" 403 Forbidden")), name
    assert not [record for record in caplog.records if record.exc_info]
    assert {record.levelname for record in caplog.records if record.name == "aiohttp.server"} <= {"DEBUG"}


@pytest.mark.long("the server waits ten seconds for the rest of the body")
async def test_a_body_that_becomes_malformed_after_its_answer_prints_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serve(WebhookReceiver(keys=[KEY]), host="127.0.0.1", port=0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /elsewhere HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        assert await reader.readuntil(b"\r\n") == b"HTTP/1.1 404 Not Found\r\n"
        writer.write(b"zz\r\n")
        await reader.read()
        writer.close()
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("sent", [b"", f"{POST}Content-Le".encode()])
async def test_alone_it_waits_for_the_head_of_a_request_for_a_limited_time(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("svc_async.webhooks.server._HEAD_DEADLINE", 0.01)
    async with serve(WebhookReceiver(keys=[KEY]), host="127.0.0.1", port=0) as port:
        assert await exchange_raw(port, sent) == b""


async def test_a_receiver_is_served_at_a_path_of_its_own_and_no_other() -> None:
    async with serve(WebhookReceiver(keys=[KEY]), host="127.0.0.1", port=0, path="/hook") as port:
        assert (await create_sender(port, "/hook")(*build_crc())).status == 200
        assert (await create_sender(port, "/hook")("DELETE", "", {}, b"")).status == 405
        assert (await create_sender(port, "/")(*build_crc())).status == 404
    async with serve(WebhookReceiver(keys=[KEY]), host="127.0.0.1", port=0) as port:
        assert (await create_sender(port, "/")(*build_crc())).status == 200


async def test_an_answer_has_the_fields_that_a_server_needs() -> None:
    said = await run_app(WebhookReceiver(keys=[KEY]).asgi(), http_scope(method="PUT"))
    start, body = said
    assert (start["type"], start["status"], body["type"]) == ("http.response.start", 405, "http.response.body")
    assert dict(start["headers"]) == {
        b"content-type": b"text/plain; charset=utf-8",
        b"allow": b"GET, POST",
        b"content-length": str(len(body["body"])).encode(),
    }
    said = await run_app(WebhookReceiver(keys=[KEY]).asgi("/hook"), http_scope("/other"))
    assert (said[0]["status"], dict(said[0]["headers"])[b"content-type"]) == (404, b"text/plain; charset=utf-8")
    assert said[1]["body"] == b"not_found"


async def test_a_server_that_cannot_close_the_receiver_is_told() -> None:
    class Unclosable(MemoryDedupe):
        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *_: object) -> None:
            raise LookupError

    said: list[Any] = []
    waiting = [STARTUP, SHUTDOWN]

    async def receive() -> Any:
        return waiting.pop(0)

    async def send(message: Any) -> None:
        said.append(message)

    with pytest.raises(LookupError):
        await WebhookReceiver(keys=[KEY], dedupe=Unclosable()).asgi()({"type": "lifespan"}, receive, send)
    assert said == [
        {"type": "lifespan.startup.complete"},
        {"type": "lifespan.shutdown.failed", "message": "LookupError"},
    ]
