"""The server: one request from the wire through the sandbox and back.

journal → fault before → surface and version → https → who is calling, and may they → rate limit → content type →
parameters → handler in a transaction, or one that answers in its own time → dialect → fault after → rate and sandbox
headers → journal.

What begins with `/_sandbox/` is for the one who runs the sandbox and goes another, shorter way: see `admin`.
"""

import asyncio
import re
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from email.utils import format_datetime
from typing import Any

import attrs
import msgspec
from aiohttp import web

from svc_async.sandbox.config import SandboxConfig
from svc_async.sandbox.context import Service
from svc_async.sandbox.server import control_api
from svc_async.sandbox.server.auth import Caller, Scheme, Sent
from svc_async.sandbox.server.faults import Fault, Stage
from svc_async.sandbox.server.open_response import Line, held, released
from svc_async.sandbox.server.operations import Call, Operation, Surface, no_access
from svc_async.sandbox.server.params import Param, read_body, read_form, read_header, read_query
from svc_async.sandbox.server.rendering import (
    Basis,
    Dialect,
    Problem,
    Refusal,
    Reply,
    answered,
    encode,
    operation_errors,
    refused,
)
from svc_async.sandbox.server.request_log import Entry

__all__ = ["Server"]

_PREFIXES: tuple[tuple[str, Surface], ...] = (("/ads-sandbox", "ads_sandbox"), ("/ads", "ads"), ("", "base"))
_READ_AT_MOST = 32 * 1024 * 1024
_PATIENCE_AT_CLOSE = 0.005
_SECRETS = r"oauth_signature|oauth_token|oauth_verifier"
_IN_HEADER = re.compile(rf'\b((?:{_SECRETS})=")[^"]*')
_IN_QUERY = re.compile(rf"(?<![^&])((?:{_SECRETS}|access_token|code|refresh_token|token)=)[^&]*")
_UNSHOWN = ("cookie", "proxy-authorization")
_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"
_PIECES = 4
_LINGER_NOT = struct.pack("ii", 1, 0)


_Over = dict[asyncio.BaseProtocol, asyncio.Event]


class _Connections(web.Server):
    """The open connections; whoever serves one at length is told when it is over."""

    def __init__(self, handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], over: _Over) -> None:
        super().__init__(handle, access_log=None, read_bufsize=2**18)
        self._over = over

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        if (over := self._over.get(handler)) is not None:
            over.set()


class Server:
    """Serves the sandbox on one port."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._closing = asyncio.Event()
        self._connections: _Connections | None = None
        self._over: _Over = {}
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Start to serve and give the port."""
        self._connections = _Connections(self._handle, self._over)
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._connections, host, port, ssl=tls, backlog=1024)
        return int(self._listener.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop at once: whoever is still waiting loses the connection."""
        self._closing.set()
        for over in self._over.values():
            over.set()
        if self._listener is not None:
            self._listener.close()
        if self._connections is not None:
            self._connections.pre_shutdown()
            await self._connections.shutdown(_PATIENCE_AT_CLOSE)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        with held(self._service.clock), self._watched(request) as over:
            if request.path.startswith(control_api.PREFIX):
                return await _written(await control_api.answer(self._service, request), request, {})
            exchange = await self._arrived(request, over)
            reply = await exchange.run()
            if reply is None:
                return exchange.response or web.Response()
            return await _written(reply, request, exchange.common)

    @contextmanager
    def _watched(self, request: web.BaseRequest) -> Generator[asyncio.Event]:
        """Tell of the end of the connection, or of the sandbox."""
        over = self._over[request.protocol] = asyncio.Event()
        try:
            yield over
        finally:
            del self._over[request.protocol]

    async def _arrived(self, request: web.BaseRequest, over: asyncio.Event) -> "_Exchange":
        path, _, query = _origin_form(request.raw_path).partition("?")
        body = await _received(request)
        service = self._service
        entry = Entry(
            number=len(service.journal),
            time=service.clock.now(),
            method=request.method,
            path=path,
            query=_IN_QUERY.sub(r"\1***", query),
            headers=_shown(request.headers),
            size=len(body),
            body=body if service.config.keep_bodies else None,
        )
        service.journal.arrived(entry)
        return _Exchange(service, request, path, query, body, entry, self._closing, over)


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
    over: asyncio.Event
    response: web.StreamResponse | None = None
    """What was already sent, by a fault or by an operation that writes its own answer."""
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
                reply = await self._success(call)
                over = reply is None
        except Refusal as refusal:
            return self._refused(refusal), False
        return reply, over

    def _prepare(self) -> Call:
        service = self.service
        surface, path = _surface(self.path)
        self._operation, ids = service.routes.find(surface, self.request.method, path)
        operation, self._echo = self._operation, dict(ids)
        self._note(operation=operation.id)
        _check_https(operation, self.request.scheme, service.config)
        caller = service.verifier.caller(self._sent(), _schemes(operation, service.config))
        _check_permission(operation, caller)
        account = self._account(caller, ids)
        _check_gate(operation, service.config)
        limits = _limits(operation, self.query)
        self._headers |= service.limits.take(limits, user=caller.counted, account=account)
        _check_content(operation, self.request.headers.get("Content-Type", ""), self.body)
        params, sent = _read(operation, caller, self.query, self.body)
        self._echo |= sent
        return Call(
            operation=operation,
            caller=caller,
            path=ids,
            params=params,
            sent=sent,
            headers=self.request.headers,
            secure=self.request.scheme == "https",
            body=self.body,
            now=service.clock.now(),
            store=service.store,
            registry=service.registry,
            outlets=service.outlets,
            pages=service.pages,
            config=service.config,
        )

    def _sent(self) -> Sent:
        headers = self.request.headers
        is_form = headers.get("Content-Type", "").startswith(_FORM)
        return Sent(
            method=self.request.method,
            url=f"{self.request.scheme}://{headers.get('Host', '')}{self.path}",
            query=self.query,
            form=self.body.decode("utf-8", "replace") if is_form else "",
            authorization=headers.get("Authorization"),
        )

    def _account(self, caller: Caller, ids: Mapping[str, str]) -> str | None:
        """Give the account in the path, which must be the caller's (GEN-02b)."""
        account_id = ids.get("account_id")
        if account_id is None:
            return None
        account = self.service.store["accounts"].get(account_id, with_deleted=True)
        if account is None or account.owner != caller.user:
            problem = Problem("ACCOUNT_NOT_FOUND", "the account is not associated with the user", "account_id")
            raise Refusal(403, problem, rule="GEN-02b", basis=Basis.SPEC)
        if account.deleted and not self.path.endswith(f"/{account_id}"):
            # Unspecified: what becomes of that which belongs to a deleted account (ASM-100).
            problem = Problem("ACCOUNT_NOT_FOUND", "the account is deleted", "account_id")
            raise Refusal(404, problem, rule="ASM-100", basis=Basis.PUBLIC)
        return account_id

    async def _success(self, call: Call) -> Reply | None:
        line = Line(self.request, self.over, self.service.clock, self._opened)
        answer = await call.serve(line)
        self.response = line.response
        if answer is None:
            return None
        self._rests_on(call.operation.rule, call.operation.basis)
        dialect = call.operation.dialect
        content = answer.envelope({"params": self._echo}) if dialect is Dialect.ADS else answer.data
        return Reply(answer.status, *answered(dialect, content), answer.headers)

    def _opened(self, status: int) -> Mapping[str, str]:
        """Give the headers of an answer that an operation writes itself."""
        if self._call is not None:
            self._rests_on(self._call.operation.rule, self._call.operation.basis)
        self._note(status=status)
        return {**self.common, **self._headers}

    def _refused(self, refusal: Refusal) -> Reply:
        self._rests_on(refusal.rule, refusal.basis)
        request: Any = {"params": self._echo}
        if self._operation is not None and self._operation.batch:
            request = [request]  # Unspecified: a list where a batch fails (ASM-111), and what it holds.
        return refused(self.dialect, refusal, request)

    @property
    def dialect(self) -> Dialect:
        """How the operation speaks, or where there is none, the part of the service."""
        return _spoken(self.path) if self._operation is None else self._operation.dialect

    @property
    def _addressed(self) -> Dialect:
        """How the call that the request is for speaks when something else is wrong than its credentials."""
        surface, path = _surface(self.path)
        try:
            spoken = self.service.routes.find(surface, self.request.method, path)[0].dialect
        except Refusal:
            return _spoken(self.path)
        return Dialect.V1 if spoken is Dialect.CREDENTIALS else spoken

    @property
    def common(self) -> Mapping[str, str]:
        """The headers of every answer."""
        return {"Date": format_datetime(self.entry.time, usegmt=True), "x-transaction-id": f"{self.entry.number:016x}"}

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
        with released(self.service.clock):
            await self.service.clock.sleep(seconds)

    def take_effect_in(self, seconds: float) -> None:
        """Do later what the request asks for, and keep the answer to oneself."""
        jobs = self.service.jobs
        jobs.later(seconds, lambda: jobs.start(self._take_effect()))

    async def _take_effect(self) -> None:
        if self._call is not None:
            # The answer was withheld, so a refusal has nobody to go to, and a stream nobody to open for.
            with held(self.service.clock), suppress(Refusal, ConnectionError):
                await self._call.serve(Line(self.request, self.over, self.service.clock, _gone))

    def refuse(self, status: int, problem: Problem, headers: Mapping[str, str]) -> Reply:
        """Give a refusal that looks as this part of the service has it."""
        return refused(self._addressed, Refusal(status, problem, headers=headers), {"params": {}})

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
        with released(self.service.clock):
            await self.closing.wait()
        self.drop(reset=False)

    def _close(self) -> None:
        if self.request.transport is not None:
            self.request.transport.close()


def _gone(_status: int) -> Mapping[str, str]:
    raise ConnectionError("the answer was withheld")


def _surface(path: str) -> tuple[Surface, str]:
    for prefix, surface in _PREFIXES:
        if path.startswith(f"{prefix}/"):
            return surface, path.removeprefix(prefix)
    return "base", path


def _spoken(path: str) -> Dialect:
    if _surface(path)[0] != "base":
        return Dialect.ADS
    return Dialect.V2 if path.startswith("/2/") else Dialect.V1


def _limits(operation: Operation, query: str) -> tuple[str, ...]:
    if operation.limit is None:
        return ()
    # Unspecified: a counted list counts in its own window too, not in the lower one only.
    counted = "with_total_count=true" in query.split("&")
    return (operation.limit, "total_count") if counted else (operation.limit,)


def _check_https(operation: Operation, scheme: str, config: SandboxConfig) -> None:
    # Unspecified: that plain http will do here, and what it is answered with elsewhere (ASM-84).
    if config.require_https and scheme != "https" and operation.surface == "base":
        raise Refusal(403, Problem("HTTPS_REQUIRED", "HTTPS is required"), rule="AUTH-10", basis=Basis.SPEC)


def _schemes(operation: Operation, config: SandboxConfig) -> tuple[Scheme, ...]:
    scoped: tuple[Scheme, ...] = ("oauth2_user",) if operation.may_be_scoped and config.scoped_activity else ()
    return (*operation.schemes, *scoped)


def _check_permission(operation: Operation, caller: Caller) -> None:
    """Ask what the user allows: with OAuth 1.0a, which goes before scopes (AUTH-26b), or with scopes."""
    if caller.access == "read" and not operation.reads:
        # Unspecified: what a write with a read-only token is answered with (ASM-78).
        code = 220 if operation.surface == "base" else "READONLY_CLIENT_APPLICATION"
        raise Refusal(403, Problem(code, "The access token is read-only"), rule="ASM-78", basis=Basis.PUBLIC)
    if caller.access is None and caller.scheme == "oauth2_user" and not {*operation.scopes} <= {*caller.scopes}:
        problem = Problem("INSUFFICIENT_SCOPE", f"this call needs {' '.join(operation.scopes)}")
        raise Refusal(403, problem, rule="AUTH-26", basis=Basis.SPEC)


_TYPES: Mapping[str, str] = {"array": _JSON, "object": _JSON, "form": _FORM}


def _check_content(operation: Operation, content_type: str, body: bytes) -> None:
    if operation.body == "none":
        if body:
            problem = Problem("INVALID_PARAMETER", "the parameters of this call go in the query string")
            raise Refusal(400, problem, rule="GEN-15", basis=Basis.SPEC)
    elif (body or operation.body != "form") and content_type.partition(";")[0].strip().lower() != _TYPES[
        operation.body
    ]:
        # Unspecified: status and code (ASM-96).
        problem = Problem("INVALID_PARAMETER", f"the body needs Content-Type: {_TYPES[operation.body]}", "Content-Type")
        raise Refusal(400, problem, rule="GEN-16", basis=Basis.SPEC)


def _check_gate(operation: Operation, config: SandboxConfig) -> None:
    if operation.gate in config.closed_gates:
        raise no_access(str(operation.gate))


def _read(operation: Operation, caller: Caller, query: str, body: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read all parameters; gives their values with the defaults, and those that were sent."""
    params, sent = read_query(operation.params, query)
    signed, in_header = read_header(operation.params, caller.protocol)
    fields, in_body = _BODIES.get(operation.body, _no_fields)(operation.params, body)
    return signed | params | fields | in_header | sent | in_body, sent | in_body


def _no_fields(_params: Iterable[Param], _body: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    return {}, {}


_BODIES: Mapping[str, Callable[[Iterable[Param], bytes], tuple[dict[str, Any], dict[str, Any]]]] = {
    "object": read_body,
    "form": read_form,
}


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
    shown |= {name: "***" for name in _UNSHOWN if name in shown}
    if (authorization := shown.get("authorization")) is not None:
        scheme = authorization.partition(" ")[0]
        hidden = _IN_HEADER.sub(r"\1***", authorization)
        shown["authorization"] = hidden if scheme.lower() == "oauth" else f"{scheme} ***"
    return shown


async def _written(reply: Reply, request: web.BaseRequest, common: Mapping[str, str]) -> web.Response:
    """Write the whole answer now, while time is held."""
    response = web.Response(
        status=reply.status,
        body=reply.body,
        headers={**common, **reply.headers, "Content-Type": reply.content_type, "Server": "svc-sandbox"},
    )
    try:
        await response.prepare(request)
        await response.write_eof()
    except ConnectionError:
        return response  # the caller has gone
    return response
