"""A server on a socket that answers as a test scripts it, and records the requests it receives."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Unpack
from urllib.parse import parse_qs, unquote

import attrs
import pytest
from aiohttp import web

from svc_async import Endpoints, Retries, Session, UserCredentials
from svc_async.auth.credentials import Credentials
from svc_async.sandbox import VirtualClock
from tests.support.session_options import SessionOptions

__all__ = [
    "APP",
    "USER",
    "Answer",
    "ReceivedRequest",
    "ScriptedServer",
    "clock",
    "parse_oauth_header",
    "run_service",
    "service",
]

APP = {"consumer_key": "key", "consumer_secret": "hush-1"}
USER = UserCredentials(**APP, token="hush-2", token_secret="hush-3")


@attrs.frozen(kw_only=True)
class ReceivedRequest:
    """One recorded request."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def authorization(self) -> str:
        return self.headers.get("Authorization", "")

    @property
    def content_type(self) -> str:
        return self.headers.get("Content-Type", "")

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def form(self) -> dict[str, list[str]]:
        return parse_qs(self.body.decode(), strict_parsing=True)

    @property
    def oauth(self) -> dict[str, str]:
        return parse_oauth_header(self.authorization)


def parse_oauth_header(header: str) -> dict[str, str]:
    """Return the parameters of an `OAuth` header."""
    scheme, _, rest = header.partition(" ")
    assert scheme == "OAuth"
    pairs = (pair.split("=", 1) for pair in rest.split(", "))
    return {name: unquote(value.strip('"')) for name, value in pairs}


@attrs.frozen
class Answer:
    """A scripted answer: text and bytes are sent unchanged, anything else as JSON."""

    payload: Any = None
    status: int = 200
    headers: Mapping[str, str] = attrs.field(factory=dict)

    def response(self) -> web.Response:
        if isinstance(self.payload, bytes):
            return web.Response(status=self.status, body=self.payload, headers=self.headers)
        text = self.payload if isinstance(self.payload, str) else json.dumps(self.payload)
        return web.Response(status=self.status, text=text, headers=self.headers)


Script = Answer | Callable[[ReceivedRequest], Answer]


@attrs.define
class ScriptedServer:
    """Answers by method and path; of several answers each is sent once, and the last one from then on."""

    clock: VirtualClock
    base_url: str = ""
    requests: list[ReceivedRequest] = attrs.field(factory=list)
    arrived: asyncio.Event = attrs.field(factory=asyncio.Event)
    gate: asyncio.Event | None = None
    _scripts: dict[tuple[str, str], list[Script]] = attrs.field(factory=dict)
    _other: Script = Answer("unknown", 404)

    def on(self, method: str, path: str, *answers: Script) -> None:
        self._scripts[method, path] = [*answers]

    def answer_all(self, answer: Script) -> None:
        """Answer every request with this, whatever its method and path."""
        self._other = answer

    def requests_to(self, path: str) -> list[ReceivedRequest]:
        return [request for request in self.requests if request.path == path]

    def session(self, credentials: Credentials | None = USER, **options: Unpack[SessionOptions]) -> Session:
        """Return a session with this server that, by default, repeats no call."""
        options.setdefault("retries", Retries.none())
        ads_url = f"{self.base_url}/ads"
        endpoints = Endpoints(base_url=self.base_url, ads_url=ads_url, ads_sandbox_url=ads_url)
        return Session(credentials, endpoints=endpoints, clock=self.clock, **options)

    async def answer(self, request: web.Request) -> web.Response:
        received = ReceivedRequest(
            method=request.method,
            path=request.path,
            query=dict(request.query),
            headers=request.headers.copy(),
            body=await request.read(),
        )
        self.requests.append(received)
        self.arrived.set()
        if self.gate is not None:
            await self.gate.wait()
        script = self._scripts.get((request.method, request.path), [self._other])
        chosen = script.pop(0) if len(script) > 1 else script[0]
        return (chosen if isinstance(chosen, Answer) else chosen(received)).response()


@asynccontextmanager
async def run_service(service: ScriptedServer) -> AsyncIterator[None]:
    """Let a service answer within the block."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", service.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    service.base_url = f"http://{host}:{port}"
    yield
    if service.gate is not None:
        service.gate.set()
    await runner.cleanup()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def service(clock: VirtualClock) -> AsyncIterator[ScriptedServer]:
    service = ScriptedServer(clock)
    async with run_service(service):
        yield service
