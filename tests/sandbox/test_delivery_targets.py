"""Delivery targets: receivers behind a socket, ASGI applications, and what may leave the machine."""

import asyncio
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme
from aiohttp import web

from svc_async.sandbox import Sandbox, WrongArgument
from svc_async.sandbox.push.outbound import DeliveryTargets, TargetRequest, UnmappedUrl, is_public
from tests.support.errors import has
from tests.support.v2_client import RecordingReceiver, V2Client

URL = "https://hooks.example.test/svc"


async def serve(handler: Any, context: ssl.SSLContext | None = None) -> tuple[web.ServerRunner, str]:
    """Serve on a free port of this machine."""
    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/hook"


async def test_a_receiver_behind_a_socket_is_checked_too(v2: V2Client, hook: RecordingReceiver) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        status, headers, body = await hook.handle(
            request.method, request.query_string, dict(request.headers), await request.read()
        )
        return web.Response(status=status, headers=headers, body=body)

    runner, address = await serve(handler)
    v2.sandbox.deliver_to(URL, address)
    assert (await v2("POST", "/2/webhooks", json={"url": URL})).status == 200
    await v2.clock.advance(days=3)
    assert len(hook.queries) == 4
    hook.crc = lambda _: (302, {"Location": address}, b"")
    await v2.clock.advance(days=1)
    assert not (await v2("GET", "/2/webhooks")).data[0]["valid"]
    await runner.cleanup()


@pytest.mark.rule("WH-27")
async def test_a_receiver_that_hangs_up_or_is_not_there_is_closed(v2: V2Client) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    runner, address = await serve(handler)
    v2.sandbox.deliver_to(URL, address)
    got = await v2("POST", "/2/webhooks", json={"url": URL})
    failed = "CrcValidationFailed: the challenge was not answered as it should be: "
    assert f"{failed}the connection was closed before an answer" in got.json["detail"]
    await runner.cleanup()
    for host in ("127.0.0.1", "localhost"):
        v2.sandbox.deliver_to(URL, address.replace("127.0.0.1", host))
        again = await v2("POST", "/2/webhooks", json={"url": URL})
        assert (
            f"{failed}nothing listens at {host}:{address.rpartition(':')[2].partition('/')[0]}" in again.json["detail"]
        )
    v2.sandbox.deliver_to(URL, RecordingReceiver("another secret"))
    again = await v2("POST", "/2/webhooks", json={"url": URL})
    assert f"{failed}wrong token (is it signed with the consumer secret of this app?)" in again.json["detail"]


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [(404, b"no such page", "HTTP 404 (no such page)"), (503, b"", "HTTP 503"), (302, b"", "HTTP 302")],
)
async def test_a_refusal_of_the_check_is_named_by_its_status(
    v2: V2Client, hook: RecordingReceiver, status: int, body: bytes, reason: str
) -> None:
    hook.crc = lambda _: (status, {}, body)
    v2.sandbox.deliver_to(URL, hook)
    got = await v2("POST", "/2/webhooks", json={"url": URL})
    assert got.json["detail"].endswith(f": the challenge was not answered as it should be: {reason}")


async def test_a_url_that_is_forwarded_nowhere_is_named_as_such(v2: V2Client) -> None:
    got = await v2("POST", "/2/webhooks", json={"url": "https://elsewhere.example.test/svc"})
    assert got.json["detail"].endswith("should be: the sandbox forwards this URL to no receiver")


@pytest.mark.rule("WH-26")
async def test_a_receiver_that_is_silent_behind_a_socket_times_out_on_the_sandbox_s_clock(v2: V2Client) -> None:
    silent = asyncio.Event()

    async def handler(_request: web.BaseRequest) -> web.StreamResponse:
        await silent.wait()
        return web.Response()

    runner, address = await serve(handler)
    v2.sandbox.deliver_to(URL, address)
    task = asyncio.create_task(v2("POST", "/2/webhooks", json={"url": URL}))
    await v2.sandbox.requests.wait()
    await v2.clock.advance(seconds=10)
    assert "should be: no answer within 10 s" in (await task).json["detail"]
    silent.set()
    await runner.cleanup()


@pytest.mark.rule("WH-23")
async def test_egress_verifies_the_certificate() -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=request.path_qs)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    runner, address = await serve(handler, context)
    targets = DeliveryTargets(allow_egress=True, may_reach=lambda address: address == "127.0.0.1")
    with pytest.raises(ssl.SSLError):
        await targets.send(TargetRequest(method="GET", url=address.replace("http:", "https:"), query="crc_token=x"))
    await targets.close()
    await runner.cleanup()
    runner, address = await serve(handler)
    answer = await targets.send(TargetRequest(method="GET", url=f"{address}?who=me", query="crc_token=x"))
    assert answer.body == b"/hook?who=me&crc_token=x"
    await targets.close()
    await runner.cleanup()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "hooks.example.test"])
async def test_egress_does_not_reach_this_network(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    reached: list[str] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        reached.append(request.path_qs)
        return web.Response()

    def resolve(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port))]

    runner, address = await serve(handler)
    port = urlsplit(address).port
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    targets = DeliveryTargets(allow_egress=True)
    with pytest.raises(ConnectionError):
        await targets.send(TargetRequest(method="GET", url=address.replace("127.0.0.1", host)))
    assert reached == []
    await targets.close()
    await runner.cleanup()


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.215.14", True),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", True),
        ("::ffff:93.184.215.14", True),
        ("64:ff9b::5db8:d70e", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),  # noqa: S104 it is refused
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("ff0e::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("2002:7f00:1::", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b:1::1", False),
        ("::7f00:1", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("2001:0:0a00:1::1", False),
    ],
)
def test_public_addresses_are_told_from_others(address: str, *, public: bool) -> None:
    assert is_public(address) is public


async def test_an_answer_without_end_is_cut() -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(20):
            await response.write(b"x" * 100_000)
        return response

    runner, address = await serve(handler)
    targets = DeliveryTargets(allow_egress=False)
    targets.add(URL, address)
    with pytest.raises(ConnectionError):
        await targets.send(TargetRequest(method="GET", url=URL))
    targets.remove(URL)
    with pytest.raises(UnmappedUrl):
        await targets.send(TargetRequest(method="GET", url=URL))
    await targets.close()
    await runner.cleanup()


@pytest.mark.parametrize(
    "address",
    [
        "http://example.com/hook",
        "https://127.0.0.1/hook",
        "http://10.0.0.1/",
        "hook",
        "http://127.0.0.1.example/",
        "http://127.0.0.1@example.com/",
        "http://127.0.0.1:99999/",
        "http://127.0.0.1:port/",
        "http://[127.0.0.1/",
    ],
)
def test_a_target_s_address_is_http_on_loopback(address: str) -> None:
    with pytest.raises(WrongArgument, check=has(parameter="target")):
        Sandbox().deliver_to(URL, address)


def test_a_url_that_cannot_be_registered_has_no_target() -> None:
    with pytest.raises(WrongArgument, check=has(parameter="url")):
        Sandbox().deliver_to("https://192.0.2.7/svc", "http://127.0.0.1:9000/svc")


async def test_an_asgi_application_is_a_target(v2: V2Client, hook: RecordingReceiver) -> None:
    scopes: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)
        body = (await receive())["body"]
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        status, answered, content = await hook.handle(scope["method"], scope["query_string"].decode(), headers, body)
        pairs = [(name.encode(), value.encode()) for name, value in answered.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": content[:5], "more_body": True})
        await send({"type": "http.response.body", "body": content[5:]})
        assert (await receive())["type"] == "http.disconnect"

    v2.sandbox.deliver_to(URL, app)
    assert (await v2("POST", "/2/webhooks", json={"url": URL})).status == 200
    await v2.sandbox.deliver({"hello": "there"})
    assert hook.events == [{"hello": "there"}]
    assert hook.verified == [True]
    assert (scopes[1]["method"], scopes[1]["scheme"], scopes[1]["path"]) == ("POST", "https", "/svc")

    async def stay_silent(scope: Any, receive: Any, send: Any) -> None:
        del scope, receive, send

    v2.sandbox.deliver_to(URL, stay_silent)
    await v2.sandbox.deliver({"hello": "there"})
    assert v2.sandbox.deliveries[-1].attempts[0].verdict == "closed"
