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
from contextlib import AbstractContextManager, nullcontext, suppress
from email.utils import format_datetime
from typing import Any

import attrs
import msgspec
from aiohttp import web

from svc_async.sandbox.auth import Token, Verifier
from svc_async.sandbox.calls import Call, Operation, Routes, Surface, no_access
from svc_async.sandbox.clock import Clock, VirtualClock
from svc_async.sandbox.config import SandboxConfig
from svc_async.sandbox.dialects import Basis, Problem, Refusal, Reply, encode, error_body, operation_errors
from svc_async.sandbox.faults import Fault, Faults, Stage
from svc_async.sandbox.journal import Entry, Journal
from svc_async.sandbox.limits import Limits
from svc_async.sandbox.paging import Pages
from svc_async.sandbox.params import read_body, read_query
from svc_async.sandbox.store import Store

__all__ = ["Server", "Service"]

_PREFIXES: tuple[tuple[str, Surface], ...] = (("/ads-sandbox", "ads_sandbox"), ("/ads", "ads"), ("", "base"))
_READ_AT_MOST = 32 * 1024 * 1024
_PATIENCE_AT_CLOSE = 0.005
_SIGNATURE = re.compile(r'(?<=oauth_signature=")[^"]*')
_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"
_PIECES = 4
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
            return await _written(reply, request, exchange.entry)

    def _holding(self) -> AbstractContextManager[None]:
        clock = self._service.clock
        return clock.holding() if isinstance(clock, VirtualClock) else nullcontext()

    async def _arrived(self, request: web.BaseRequest) -> "_Exchange":
        path, _, query = _origin_form(request.raw_path).partition("?")
        body = await _received(request)
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
    """What a fault already sent, in its own way."""
    _headers: dict[str, str] = attrs.field(factory=dict[str, str])
    _operation: Operation | None = None
    _echo: dict[str, Any] = attrs.field(factory=dict[str, Any])
    _call: Call | None = None

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
        return attrs.evolve(reply, headers={**self._headers, **reply.headers})

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
            self._call = call = self._prepare()
            reply, over = await self._strike(faults, "effect", None)
            if reply is None and not over:
                reply = self._success(call)
        except Refusal as refusal:
            return self._refused(refusal), False
        return reply, over

    def _prepare(self) -> Call:
        service = self.service
        surface, path = _surface(self.path)
        self._operation, ids = service.routes.find(surface, self.request.method, path)
        operation, self._echo = self._operation, dict(ids)
        self._note(operation=operation.id)
        token = self._caller()
        account = self._account(token, ids)
        _check_gate(operation, service.config)
        limits = _limits(operation, self.query)
        self._headers |= service.limits.take(limits, user=token.token, account=account)
        _check_content(operation, self.request.headers.get("Content-Type", ""), self.body)
        params, sent = _read(operation, self.query, self.body)
        self._echo |= sent
        return Call(
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

    def _caller(self) -> Token:
        headers = self.request.headers
        is_form = headers.get("Content-Type", "").startswith(_FORM)
        form = self.body.decode("utf-8", "replace") if is_form else ""
        url = f"{self.request.scheme}://{headers.get('Host', '')}{self.path}"
        authorization = headers.get("Authorization")
        return self.service.verifier.user(self.request.method, url, self.query, authorization, form)

    def _account(self, token: Token, ids: Mapping[str, str]) -> str | None:
        """Give the account in the path, which must be the caller's (GEN-02b)."""
        account_id = ids.get("account_id")
        if account_id is None:
            return None
        account = self.service.store["accounts"].get(account_id, with_deleted=True)
        if account is None or account.owner != token.user_id:
            problem = Problem("ACCOUNT_NOT_FOUND", "the account is not associated with the user", "account_id")
            raise Refusal(403, problem, rule="GEN-02b", basis=Basis.SPEC)
        if account.deleted and not self.path.endswith(f"/{account_id}"):
            # Unspecified: what becomes of that which belongs to a deleted account (ASM-100).
            problem = Problem("ACCOUNT_NOT_FOUND", "the account is deleted", "account_id")
            raise Refusal(404, problem, rule="ASM-100", basis=Basis.PUBLIC)
        return account_id

    def _success(self, call: Call) -> Reply:
        answer = call.run()
        self._rests_on(call.operation.rule, call.operation.basis)
        return Reply(200, encode(answer.envelope({"params": self._echo})))

    def _refused(self, refusal: Refusal) -> Reply:
        self._rests_on(refusal.rule, refusal.basis)
        request: Any = {"params": self._echo}
        if self._operation is not None and self._operation.batch:
            request = [request]  # Unspecified: a list where a batch fails (ASM-111), and what it holds.
        body = {**error_body(refusal.problems, request), **refusal.more}
        return Reply(refusal.status, encode(body), headers=refusal.headers)

    def _rests_on(self, rule: str, basis: Basis) -> None:
        self._headers |= {"x-sandbox-rule": rule, "x-sandbox-basis": basis.value}
        self._note(rule=rule, basis=basis.value)

    def _note(self, **changes: Any) -> None:
        self.entry = attrs.evolve(self.entry, **changes)
        self.service.journal.became(self.entry)

    @property
    def time(self) -> float:
        return self.service.clock.now().timestamp()

    async def pause(self, seconds: float) -> None:
        """Let time pass on the sandbox's clock."""
        with _released(self.service.clock):
            await self.service.clock.sleep(seconds)

    def take_effect_in(self, seconds: float) -> None:
        """Do later what the request asks for, and keep the answer to oneself."""
        self.service.clock.call_later(seconds, self._take_effect)

    def _take_effect(self) -> None:
        if self._call is not None:
            with suppress(Refusal):  # the answer was withheld, so a refusal has nobody to go to
                self._call.run()

    def refuse_operations(self, by_operation: Mapping[int, Problem]) -> Reply:
        """Give the answer that refuses a group because of some of its operations."""
        problems = {index: [problem] for index, problem in by_operation.items()}
        total = len(msgspec.json.decode(self.body, type=list[msgspec.Raw]))
        entries = operation_errors(problems, total, self.service.config.batch_errors)
        return Reply(400, encode({"errors": [], "operation_errors": entries, "request": []}))

    async def send(self, reply: Reply, *, cut: int | None = None, pause: float = 0.0) -> None:
        """Send an answer in an unusual way."""
        self.response = response = web.StreamResponse(
            status=reply.status, headers={**self._headers, **reply.headers, "Content-Type": reply.content_type}
        )
        response.content_length = len(reply.body)
        await response.prepare(self.request)
        self._note(status=reply.status)
        if cut is not None:
            await response.write(reply.body[:cut])
            self._close()
            return
        step = max(len(reply.body) // _PIECES, 1)
        for start in range(0, len(reply.body), step):
            await response.write(reply.body[start : start + step])
            await self.pause(pause)

    def drop(self, *, reset: bool) -> None:
        """Close the connection without an answer."""
        transport = self.request.transport
        if transport is None:
            return
        if reset:
            kept = transport.get_extra_info("socket")
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        transport.abort()

    async def hang(self) -> None:
        """Stay silent until the sandbox closes."""
        with _released(self.service.clock):
            await self.closing.wait()
        self.drop(reset=False)

    def _close(self) -> None:
        if self.request.transport is not None:
            self.request.transport.close()


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


def _check_gate(operation: Operation, config: SandboxConfig) -> None:
    if operation.gate in config.closed_gates:
        raise no_access(str(operation.gate))


def _read(operation: Operation, query: str, body: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    params, sent = read_query(operation.params, query)
    if operation.body == "object":
        fields, given = read_body(operation.params, body)
        return params | fields, sent | given
    return params, sent


async def _received(request: web.BaseRequest) -> bytes:
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


async def _written(reply: Reply, request: web.BaseRequest, entry: Entry) -> web.Response:
    """Write the whole answer now, while time is held."""
    response = web.Response(
        status=reply.status,
        body=reply.body,
        headers={
            **reply.headers,
            "Content-Type": reply.content_type,
            "Date": format_datetime(entry.time, usegmt=True),
            "Server": "svc-sandbox",
            "x-transaction-id": f"{entry.number:016x}",
        },
    )
    try:
        await response.prepare(request)
        await response.write_eof()
    except ConnectionError:
        return response  # the caller has gone
    return response
