"""One request on its way through the service, and the faults that strike it.

fault before → gatekeeping → parameters → fault instead of the effect → handler in a transaction, or an operation that
writes its own answer → rendering → fault after → rate-limit and sandbox headers. The request log notes each step.
"""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from email.utils import format_datetime
from typing import Any, Literal

import attrs
import msgspec
from aiohttp import web

from svc_async.sandbox.context import Context
from svc_async.sandbox.refusal import Basis, Problem, Refusal, report_failure
from svc_async.sandbox.replay import ReceivedRequest, Replay
from svc_async.sandbox.server.auth import AuthRequest
from svc_async.sandbox.server.decoding import check_utf8, parse_form
from svc_async.sandbox.server.gatekeeping import Gatekeeper, check_content, default_format, split_surface
from svc_async.sandbox.server.operations import Call, Operation
from svc_async.sandbox.server.reading import Pairs, read_parameters
from svc_async.sandbox.server.rendering import (
    Format,
    OpenResponse,
    Reply,
    list_operation_errors,
    render_answer,
    render_json,
    render_refusal,
)
from svc_async.sandbox.server.request_log import KeptBodies, LoggedRequest, RequestLog

__all__ = ["Act", "Exchange", "Stage"]

Stage = Literal["before", "effect", "after"]

Act = Callable[["Exchange", Reply | None], Awaitable[Reply | None]]
"""Acts on an exchange and the reply so far; returns the reply to continue with, or None if there is none (yet)."""

_FORM = "application/x-www-form-urlencoded"
_PIECES = 4
_LONGEST_REASON = 1000
_CUT = b"  "
"""A body whose second byte does not arrive."""
_NO_LINGER = struct.pack("ii", 1, 0)


@attrs.define(kw_only=True, eq=False)
class Exchange:
    """One request and its answer.

    Attributes:
        path: the path in the words of the contract.
        wire_path: the path as it came, which the signature covers.
        faults: the actions of the faults that strike it.
        closed: set when the client has disconnected or the sandbox closes.
        unreadable: why the body could not be read; it is empty then.
        response: what was sent already, by a fault or by an operation that writes its own answer.
        refused_items: the items of the request that a fault refuses, by their positions.
    """

    sandbox: Context
    gatekeeper: Gatekeeper
    log: RequestLog
    request: web.BaseRequest = attrs.field(repr=False)
    path: str
    wire_path: str
    query: str
    body: bytes = attrs.field(repr=False)
    logged: LoggedRequest
    closed: asyncio.Event
    faults: Mapping[Stage, Act]
    unreadable: Refusal | None = None
    response: web.StreamResponse | None = None
    refused_items: dict[int, Problem] = attrs.field(factory=dict[int, Problem], init=False)
    _began: float = attrs.field(
        default=attrs.Factory(lambda exchange: exchange.sandbox.clock.monotonic(), takes_self=True), init=False
    )
    _headers: dict[str, str] = attrs.field(factory=dict[str, str], init=False)
    _operation: Operation | None = attrs.field(default=None, init=False)
    _echo: dict[str, Any] = attrs.field(factory=dict[str, Any], init=False)
    _call: Call | None = attrs.field(default=None, init=False)
    _is_over: bool = attrs.field(default=False, init=False)
    """True if the exchange ends without a reply, unless there is one already."""

    async def run(self) -> Reply | None:
        """Process the request; None means that nothing is left to send."""
        try:
            return await self._run_logged()
        finally:
            self._note(seconds=self.sandbox.clock.monotonic() - self._began)

    async def _run_logged(self) -> Reply | None:
        try:
            reply = await self._strike("before", None)
            if reply is None and not self._is_over:
                reply = await self._answer()
            reply = await self._strike("after", reply)
        except ConnectionError:
            raise
        except Exception:  # noqa: BLE001 whatever fails here must not fail the client's parser too
            self._echo.clear()  # which may be what cannot be written
            reply = self._render_refusal(report_failure())
            if self.response is not None:
                self.drop(reset=False)
                return None
        if reply is None:
            return None
        reply = self._translate(attrs.evolve(reply, headers={**self._headers, **reply.headers}))
        self._note_answer(reply, reply.body)
        return reply

    async def _strike(self, stage: Stage, reply: Reply | None) -> Reply | None:
        """Let the fault of a stage act, unless the request is over."""
        act = self.faults.get(stage)
        if act is None or (reply is None and self._is_over):
            return reply
        return await act(self, reply)

    async def _answer(self) -> Reply | None:
        try:
            if self.sandbox.replay is not None:
                return await self._replay(self.sandbox.replay)
            self._call = call = self._prepare()
            reply = await self._strike("effect", None)
            return await self._serve(call) if reply is None and not self._is_over else reply
        except Refusal as refusal:
            return self._render_refusal(refusal)

    async def _replay(self, replay: Replay) -> Reply | None:
        """Answer from a recording; what failed there fails again."""
        self._check_host()
        if self.unreadable is not None:
            raise self.unreadable
        surface, path = split_surface(self.wire_path)
        request = ReceivedRequest(
            method=self.request.method,
            surface=surface,
            path=path,
            query=self.query,
            headers=self.request.headers,
            body=self.body,
        )
        answer = replay.answer(request)
        if answer is None:
            raise Refusal(404, Problem("ROUTE_NOT_FOUND", "no such request is left in the recording"))
        if answer.is_stream and answer.status is not None:
            response = OpenResponse(self.request, self.closed, self.sandbox.clock, self._start_response)
            self.response = await response.start(
                answer.status, headers={**answer.headers, "Content-Type": answer.content_type}
            )
            with self.sandbox.clock.release():
                await self.closed.wait()
        if answer.is_late:
            await self.hang()
        elif answer.is_stream or answer.status is None:
            self.drop(reset=False)
        elif answer.is_cut:
            await self.send(Reply(answer.status, _CUT, answer.content_type, answer.headers), cut=1)
        else:
            return Reply(answer.status, answer.body, answer.content_type, answer.headers)
        return None

    def _check_host(self) -> None:
        self.gatekeeper.check_host(self.request.headers.getall("Host", ()), self._find_own_address())

    def _prepare(self) -> Call:
        self._check_host()
        check_utf8(self.wire_path, "the path")
        self._operation, ids = self.gatekeeper.find(self.request.method, self.path)
        operation, self._echo = self._operation, dict(ids)
        self._note(operation=operation.id)
        if self.unreadable is not None:
            raise self.unreadable
        query, form = self._parse_pairs()
        caller = self.gatekeeper.identify(operation, self._make_auth_request(query, form))
        protocol, body, dialect = caller.protocol, self.body, self.sandbox.config.dialect
        if dialect is not None:
            query, form = dialect.serve_pairs(query), dialect.serve_pairs(form)
            protocol, body = dict(dialect.serve_pairs(protocol.items())), dialect.serve_json(body)
        self._headers |= self.gatekeeper.admit(operation, caller, ids, path=self.path, query=query)
        check_content(operation, self.request.headers.get("Content-Type", ""), self.body)
        params, sent = read_parameters(
            operation.params,
            query=query,
            header=protocol,
            form=form,
            body=body,
            body_type=operation.body,
            config=self.sandbox.config,
        )
        self._echo |= sent
        return Call(
            operation=operation,
            caller=caller,
            path=ids,
            params=params,
            sent=sent,
            headers=self.request.headers,
            secure=self.request.scheme == "https",
            body=body,
            size=len(self.body),
            now=self.sandbox.clock.now(),
            sandbox=self.sandbox,
            refused_items=self.refused_items,
        )

    def _find_own_address(self) -> str:
        """Return the address that the client connected to."""
        transport = self.request.transport
        name = None if transport is None else transport.get_extra_info("sockname")
        return str(name[0]) if name else ""

    def _parse_pairs(self) -> tuple[Pairs, Pairs]:
        """Decode the query and the form, once for all that look at them."""
        check_utf8(self.query, "the query")
        if not self.request.headers.get("Content-Type", "").lower().startswith(_FORM):
            return parse_form(self.query), ()
        body = self.body.decode("utf-8", "surrogateescape")
        check_utf8(body, "the form")
        return parse_form(self.query), parse_form(body)

    def _make_auth_request(self, query: Pairs, form: Pairs) -> AuthRequest:
        headers = self.request.headers
        return AuthRequest(
            method=self.request.method,
            url=f"{self.request.scheme}://{headers.get('Host', '')}{self.wire_path}",
            query=query,
            form=form,
            authorization=headers.get("Authorization"),
        )

    async def _serve(self, call: Call) -> Reply | None:
        response = OpenResponse(self.request, self.closed, self.sandbox.clock, self._start_response)
        try:
            answer = await call.serve(response)
        finally:
            self.response = response.response
        if answer is None:
            self._is_over = True
            return None
        operation = call.operation
        self._note_rule(*(answer.rule or (operation.rule, operation.basis)))
        content = answer.envelope({"params": self._echo}) if operation.format is Format.ADS else answer.data
        return Reply(answer.status, *render_answer(operation.format, content), answer.headers)

    def _start_response(self, status: int) -> Mapping[str, str]:
        """Return the headers of an answer that an operation writes itself."""
        if self._call is not None:
            self._note_rule(self._call.operation.rule, self._call.operation.basis)
        self._note(status=status)
        headers, dialect = {**self.common_headers, **self._headers}, self.sandbox.config.dialect
        return headers if dialect is None else dialect.write_headers(headers)

    def _translate(self, reply: Reply) -> Reply:
        """Return a reply in the words of the service."""
        dialect = self.sandbox.config.dialect
        if dialect is None:
            return reply
        kind = reply.content_type.partition(";")[0]
        write = {_FORM: dialect.write_form, "text/html": dialect.write_page}.get(kind, dialect.write_json)
        return attrs.evolve(reply, body=write(reply.body), headers=dialect.write_headers(reply.headers))

    def _render_refusal(self, refusal: Refusal) -> Reply:
        self._note_rule(refusal.rule, refusal.basis)
        self._note(reason=refusal.reason[:_LONGEST_REASON])
        request: Any = {"params": self._echo}
        if self._operation is None:
            return render_refusal(default_format(self.path), refusal, request)
        if self._operation.batch:
            request = [request]  # Unspecified: a list where a batch fails (ASM-111), and its content.
        return render_refusal(self._operation.format, refusal, request)

    @property
    def common_headers(self) -> Mapping[str, str]:
        """The headers of every answer."""
        return {
            "Date": format_datetime(self.logged.time, usegmt=True),
            "x-transaction-id": f"{self.logged.number:016x}",
        }

    def _note_rule(self, rule: str, basis: Basis) -> None:
        self._headers |= {"x-sandbox-rule": rule, "x-sandbox-basis": basis.value}
        self._note(rule=rule, basis=basis.value)

    def _note_answer(self, reply: Reply, body: bytes) -> None:
        self._note(status=reply.status)
        bodies = KeptBodies(
            request=self.body, answer=body, answer_type=reply.content_type, answer_headers=dict(reply.headers)
        )
        self.log.keep_bodies(self.logged.number, bodies)

    def _note(self, **changes: Any) -> None:
        self.logged = attrs.evolve(self.logged, **changes)
        self.log.update(self.logged)

    @property
    def time(self) -> float:
        """The Unix time of the sandbox."""
        return self.sandbox.clock.now().timestamp()

    async def pause(self, seconds: float) -> None:
        """Let time pass on the sandbox's clock."""
        with self.sandbox.clock.release():
            await self.sandbox.clock.sleep(seconds)

    def take_effect_in(self, seconds: float) -> None:
        """Apply the request later, without answering it."""
        self._is_over = True
        background = self.sandbox.background
        background.call_later(seconds, lambda: background.start(self._take_effect()))

    async def _take_effect(self) -> None:
        if self._call is not None:
            # The answer was withheld, so there is nobody to send a refusal to, or to open a stream for.
            with self.sandbox.clock.hold(), suppress(Refusal, ConnectionError):
                await self._call.serve(OpenResponse(self.request, self.closed, self.sandbox.clock, _reject_response))

    def refuse(self, status: int, problem: Problem, headers: Mapping[str, str]) -> Reply:
        """Return a refusal in the format of this part of the service."""
        format_ = self.gatekeeper.format_of(self.request.method, self.path)
        return render_refusal(format_, Refusal(status, problem, headers=headers), {"params": {}})

    def refuse_operations(self, by_operation: Mapping[int, Problem]) -> Reply | None:
        """Return the answer that refuses a group because of some of its operations; None if it is no group."""
        problems = {index: [problem] for index, problem in by_operation.items()}
        try:
            total = len(msgspec.json.decode(self.body, type=list[msgspec.Raw]))
        except msgspec.DecodeError:
            return None
        errors = list_operation_errors(problems, total)
        return Reply(400, render_json({"errors": [], "operation_errors": errors, "request": []}))

    async def send(self, reply: Reply, *, cut: int | None = None, pause: float = 0.0) -> None:
        """Send an answer cut short after `cut` bytes, or with `pause` seconds between its pieces."""
        self._is_over = True
        reply = self._translate(attrs.evolve(reply, headers={**self._headers, **reply.headers}))
        self.response = response = web.StreamResponse(
            status=reply.status,
            headers={**self.common_headers, **reply.headers, "Content-Type": reply.content_type},
        )
        response.content_length = len(reply.body)
        await response.prepare(self.request)
        self._note_answer(reply, reply.body[:cut])
        if cut is not None:
            await response.write(reply.body[:cut])
            if self.request.transport is not None:
                self.request.transport.close()
            return
        step = max(len(reply.body) // _PIECES, 1)
        for start in range(0, len(reply.body), step):
            await response.write(reply.body[start : start + step])
            await self.pause(pause)

    def drop(self, *, reset: bool) -> None:
        """Close the connection without an answer."""
        self._is_over = True
        transport = self.request.transport
        if transport is None:
            return
        if reset:
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        transport.abort()

    async def hang(self) -> None:
        """Stay silent until the client disconnects or the sandbox closes."""
        with self.sandbox.clock.release(), self.sandbox.clock.expect_timeout():
            await self.closed.wait()
        self.drop(reset=False)


def _reject_response(_status: int) -> Mapping[str, str]:
    raise ConnectionError("the answer was withheld")
