"""A service of a test's own, on a socket: it answers as the test says, and notes what it was asked."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, unquote

import attrs
import pytest
from aiohttp import web

from svc_async import Endpoints, Retries, Session, UserCredentials
from svc_async.auth.credentials import Credentials
from svc_async.sandbox import VirtualClock

__all__ = ["APP", "USER", "Answer", "Seen", "Service", "clock", "service", "unsigned"]

APP = {"consumer_key": "key", "consumer_secret": "hush-1"}
USER = UserCredentials(**APP, token="hush-2", token_secret="hush-3")


@attrs.frozen(kw_only=True)
class Seen:
    """A request as it came."""

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
        return unsigned(self.authorization)


def unsigned(header: str) -> dict[str, str]:
    """Give the parameters of an `OAuth` header."""
    scheme, _, rest = header.partition(" ")
    assert scheme == "OAuth"
    pairs = (pair.split("=", 1) for pair in rest.split(", "))
    return {name: unquote(value.strip('"')) for name, value in pairs}


@attrs.frozen
class Answer:
    """What a request is answered with: JSON, or text as it is."""

    payload: Any = None
    status: int = 200
    headers: Mapping[str, str] = attrs.field(factory=dict)

    def response(self) -> web.Response:
        text = self.payload if isinstance(self.payload, str) else json.dumps(self.payload)
        return web.Response(status=self.status, text=text, headers=self.headers)


Script = Answer | Callable[[Seen], Answer]


@attrs.define
class Service:
    """Answers by method and path; of several answers each is given once, the last one for ever."""

    clock: VirtualClock
    base_url: str = ""
    seen: list[Seen] = attrs.field(factory=list)
    arrived: asyncio.Event = attrs.field(factory=asyncio.Event)
    gate: asyncio.Event | None = None
    _scripts: dict[tuple[str, str], list[Script]] = attrs.field(factory=dict)

    def on(self, method: str, path: str, *answers: Script) -> None:
        self._scripts[method, path] = [*answers]

    def asked(self, path: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.path == path]

    def session(self, credentials: Credentials | None = USER, **settings: Any) -> Session:
        settings.setdefault("retries", Retries.none())
        hosts = Endpoints(base_url=self.base_url, ads_url=f"{self.base_url}/ads")
        return Session(credentials, endpoints=hosts, clock=self.clock, **settings)

    async def answer(self, request: web.Request) -> web.Response:
        self.seen.append(
            seen := Seen(
                method=request.method,
                path=request.path,
                query=dict(request.query),
                headers=request.headers.copy(),
                body=await request.read(),
            )
        )
        self.arrived.set()
        if self.gate is not None:
            await self.gate.wait()
        script = self._scripts.get((request.method, request.path), [Answer("unknown", 404)])
        chosen = script.pop(0) if len(script) > 1 else script[0]
        return (chosen if isinstance(chosen, Answer) else chosen(seen)).response()


@asynccontextmanager
async def _serving(service: Service) -> AsyncIterator[None]:
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
async def service(clock: VirtualClock) -> AsyncIterator[Service]:
    service = Service(clock)
    async with _serving(service):
        yield service
