"""The server: one request from the wire through the sandbox and back.

journal → fault before → surface and version → who is calling → rate limit → content type → parameters → handler in a
transaction → envelope → fault after → rate and sandbox headers → journal.
"""

import asyncio
import re
import socket
import ssl
import struct
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import attrs
from aiohttp import web

from svc_async.sandbox.auth import Token, Verifier
from svc_async.sandbox.calls import Answer, Call, Operation, Routes, Surface
from svc_async.sandbox.clock import Clock, VirtualClock
from svc_async.sandbox.config import SandboxConfig
from svc_async.sandbox.dialects import Basis, Problem, Refusal, Reply, encode, error_body
from svc_async.sandbox.faults import Fault, Faults, Stage
from svc_async.sandbox.journal import Entry, Journal
from svc_async.sandbox.limits import Limits
from svc_async.sandbox.paging import Pages
from svc_async.sandbox.params import read_query
from svc_async.sandbox.store import Store

__all__ = ["Server", "Service"]

_PREFIXES: tuple[tuple[str, Surface], ...] = (("/ads-sandbox", "ads_sandbox"), ("/ads", "ads"), ("", "base"))
_READ_AT_MOST = 32 * 1024 * 1024
_PATIENCE_AT_CLOSE = 0.005
_SIGNATURE = re.compile(r'(?<=oauth_signature=")[^"]*')
_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"
_LINGER_NOT = struct.pack("ii", 1, 0)


@attrs.frozen(kw_only=True)
class Service:
    """All that a request meets, from the journal to the state."""

    config: SandboxConfig
    clock: Clock
    store: Store
    routes: Routes
    verifier: Verifier
    limits: Limits
    pages: Pages
    faults: Faults
    journal: Journal


class Server:
    """Serves the sandbox on one port."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._closing = asyncio.Event()
        self._connections: web.Server | None = None
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Start to serve and give the port."""
        self._connections = web.Server(self._handle, access_log=None, read_bufsize=2**18)
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._connections, host, port, ssl=tls, backlog=1024)
        return int(self._listener.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop at once: whoever is still waiting loses the connection."""
        self._closing.set()
        if self._listener is not None:
            self._listener.close()
        if self._connections is not None:
            self._connections.pre_shutdown()
            await self._connections.shutdown(_PATIENCE_AT_CLOSE)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        with self._holding():
            exchange = await self._arrived(request)
            reply = await exchange.run()
            if reply is None:
                return exchange.response or web.Response()
            return _response(reply)

    def _holding(self) -> AbstractContextManager[None]:
        clock = self._service.clock
        return clock.holding() if isinstance(clock, VirtualClock) else nullcontext()

    async def _arrived(self, request: web.BaseRequest) -> "_Exchange":
        path, _, query = _origin_form(request.raw_path).partition("?")
        body = await _read(request)
        service = self._service
        entry = Entry(
            number=len(service.journal),
            time=service.clock.now(),
            method=request.method,
            path=path,
            query=query,
            headers=_shown(request.headers),
            size=len(body),
            body=body if service.config.keep_bodies else None,
        )
        service.journal.arrived(entry)
        return _Exchange(service, request, path, query, body, entry, self._closing)


@attrs.define(eq=False)
class _Exchange:
    """One request on its way through the service."""

    service: Service
    request: web.BaseRequest = attrs.field(repr=False)
    path: str
    query: str
    body: bytes = attrs.field(repr=False)
    entry: Entry
    closing: asyncio.Event
    response: web.StreamResponse | None = None
    """What was already sent, if a fault sent it its own way."""
    _sandbox_headers: dict[str, str] = attrs.field(factory=dict[str, str])
    _echo: Any = attrs.field(factory=lambda: {"params": {}})
    _effect: "_Effect | None" = None

    @property
    def clock(self) -> Clock:
        return _ReleasedClock(self.service.clock)

    @property
    def batch_errors(self) -> str:
        return self.service.config.batch_errors

    async def run(self) -> Reply | None:
        """Go the whole way; None means that there is nothing to send any more."""
        faults = self.service.faults.striking(self.request.method, self.path)
        self._note(fault=bool(faults))
        reply, over = await self._strike(faults, "before", None)
        if reply is None and not over:
            reply, over = await self._answer(faults)
        if not over:
            reply, over = await self._strike(faults, "after", reply)
        if reply is None:
            return None
        self._note(status=reply.status)
        return attrs.evolve(reply, headers={**self._sandbox_headers, **reply.headers})

    async def _strike(
        self, faults: Mapping[Stage, Fault], stage: Stage, reply: Reply | None
    ) -> tuple[Reply | None, bool]:
        fault = faults.get(stage)
        if fault is None:
            return reply, False
        reply = await fault.act(self, reply)
        return reply, fault.ends and reply is None

    async def _answer(self, faults: Mapping[Stage, Fault]) -> tuple[Reply | None, bool]:
        try:
            self._effect = self._prepare()
            reply, over = await self._strike(faults, "effect", None)
            if reply is None and not over:
                reply = self._success(self._effect.run())
        except Refusal as refusal:
            return self._refused(refusal), False
        return reply, over

    def take_effect(self) -> None:
        """Do what the request asks for, and keep the answer to oneself."""
        if self._effect is not None:
            try:
                self._effect.run()
            except Refusal:
                return

    def _prepare(self) -> "_Effect":
        surface, path = _surface(self.path)
        operation, ids = self.service.routes.find(surface, self.request.method, path)
        self._note(operation=operation.id)
        self._echo = {"params": ids}
        if operation.batch:
            self._echo = [self._echo]
        token = self._caller()
        account = self._account(token, ids, operation)
        self._sandbox_headers |= self.service.limits.take(
            _limits(operation, self.query), user=token.token, account=account
        )
        _check_content(operation, self.request.headers.get("Content-Type", ""), self.body)
        params, sent = read_query(operation.params, self.query)
        self._echo = {"params": {**ids, **sent}}
        service = self.service
        call = Call(
            operation=operation,
            user=token.user_id,
            path=ids,
            params=params,
            sent=sent,
            body=self.body,
            now=service.clock.now(),
            store=service.store,
            pages=service.pages,
            config=service.config,
        )
        return _Effect(call)

    def _caller(self) -> Token:
        headers = self.request.headers
        form = self.body.decode("utf-8", "replace") if headers.get("Content-Type", "").startswith(_FORM) else ""
        url = f"{self.request.scheme}://{headers.get('Host', '')}{self.path}"
        return self.service.verifier.user(
            self.request.method, url, self.query, headers.get("Authorization"), form
        )

    def _account(self, token: Token, ids: Mapping[str, str], operation: Operation) -> str | None:
        """Give the account in the path, which must be the caller's (GEN-02b)."""
        account_id = ids.get("account_id")
        if account_id is None:
            return None
        account = self.service.store["accounts"].get(account_id, with_deleted=True)
        if account is None or account.owner != token.user_id:
            problem = Problem("ACCOUNT_NOT_FOUND", "the account is not associated with the user", "account_id")
            raise Refusal(403, problem, rule="GEN-02b", basis=Basis.SPEC)
        if account.deleted and not operation.id.startswith("accounts."):
            # Unspecified: what happens to what belongs to a deleted account (ASM-100).
            raise Refusal(404, Problem("ACCOUNT_NOT_FOUND", "the account is deleted", "account_id"), rule="ASM-100")
        return account_id

    def _success(self, answer: Answer) -> Reply:
        assert self._effect is not None  # noqa: S101 it was prepared
        self._found(self._effect.call.operation.rule, Basis.SPEC)
        return Reply(200, encode(answer.envelope(self._echo)), headers=self._sandbox_headers)

    def _refused(self, refusal: Refusal) -> Reply:
        self._found(refusal.rule, refusal.basis)
        body = refusal.body if refusal.body is not None else error_body(refusal.problems, self._echo)
        return Reply(refusal.status, encode(body), headers={**self._sandbox_headers, **refusal.headers})

    def _found(self, rule: str, basis: Basis) -> None:
        self._sandbox_headers |= {"x-sandbox-rule": rule, "x-sandbox-basis": basis.value}
        self._note(rule=rule, basis=basis.value)

    def _note(self, **changes: Any) -> None:
        self.entry = attrs.evolve(self.entry, **changes)
        self.service.journal.became(self.entry)

    async def send(self, reply: Reply, *, cut: int | None = None, pause: float = 0.0) -> None:
        """Send an answer in an unusual way."""
        headers = {**self._sandbox_headers, **reply.headers}
        self.response = response = web.StreamResponse(status=reply.status, headers=headers)
        response.content_length = len(reply.body)
        response.headers["Content-Type"] = reply.content_type
        await response.prepare(self.request)
        self._note(status=reply.status)
        if cut is not None:
            await response.write(reply.body[:cut])
            self._close()
            return
        step = max(len(reply.body) // 4, 1)
        for start in range(0, len(reply.body), step):
            await response.write(reply.body[start : start + step])
            await self.clock.sleep(pause)

    def drop(self, *, reset: bool) -> None:
        """Close the connection without an answer."""
        transport = self.request.transport
        if transport is None:
            return
        if reset:
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        transport.abort()

    async def hang(self) -> None:
        """Stay silent until the sandbox closes."""
        with _released(self.service.clock):
            await self.closing.wait()
        self.drop(reset=False)

    def _close(self) -> None:
        if self.request.transport is not None:
            self.request.transport.close()


@attrs.frozen
class _Effect:
    """What a prepared request does."""

    call: Call

    def run(self) -> Answer:
        with self.call.store.transaction():
            return self.call.operation.handler(self.call)


@attrs.frozen
class _ReleasedClock:
    """The clock as a fault sees it: while it waits, time may jump."""

    _clock: Clock

    async def sleep(self, seconds: float) -> None:
        with _released(self._clock):
            await self._clock.sleep(seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)


def _released(clock: Clock) -> AbstractContextManager[None]:
    return clock.released() if isinstance(clock, VirtualClock) else nullcontext()


def _surface(path: str) -> tuple[Surface, str]:
    for prefix, surface in _PREFIXES:
        if path.startswith(f"{prefix}/"):
            return surface, path.removeprefix(prefix)
    return "base", path


def _limits(operation: Operation, query: str) -> tuple[str, ...]:
    # Unspecified: a counted list counts in its own window too, not in the lower one only.
    counted = "with_total_count=true" in query.split("&")
    return (operation.limit, "total_count") if counted else (operation.limit,)


def _check_content(operation: Operation, content_type: str, body: bytes) -> None:
    if operation.body == "none":
        if body:
            problem = Problem("INVALID_PARAMETER", "the parameters of this call go in the query string")
            raise Refusal(400, problem, rule="GEN-15", basis=Basis.SPEC)
    elif content_type.partition(";")[0].strip().lower() != _JSON:
        # Unspecified: status and code (ASM-96).
        problem = Problem("INVALID_PARAMETER", f"the body needs Content-Type: {_JSON}", "Content-Type")
        raise Refusal(400, problem, rule="GEN-16", basis=Basis.SPEC)


async def _read(request: web.BaseRequest) -> bytes:
    blocks: list[bytes] = []
    size = 0
    async for block in request.content.iter_any():
        size += len(block)
        if size <= _READ_AT_MOST:
            blocks.append(block)
    return b"".join(blocks)


def _origin_form(target: str) -> str:
    """Take the address of a proxied request off its target."""
    if target.startswith("/"):
        return target
    return "/" + target.partition("://")[2].partition("/")[2]


def _shown(headers: Mapping[str, str]) -> dict[str, str]:
    shown = {name.lower(): value for name, value in headers.items()}
    if (authorization := shown.get("authorization")) is not None:
        scheme = authorization.partition(" ")[0]
        hidden = _SIGNATURE.sub("***", authorization)
        shown["authorization"] = hidden if scheme.lower() == "oauth" else f"{scheme} ***"
    return shown


def _response(reply: Reply) -> web.Response:
    headers = {**reply.headers, "Content-Type": reply.content_type}
    return web.Response(status=reply.status, body=reply.body, headers=headers)
