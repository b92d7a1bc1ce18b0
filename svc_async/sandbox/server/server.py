"""The server: listens on one port, reads requests, logs them and writes answers.

Paths that begin with `/_sandbox/` are not part of the service; the server passes them to the control API.
"""

import asyncio
import logging
import re
import ssl
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, LineTooLong

from svc_async.sandbox.context import Context
from svc_async.sandbox.refusal import Problem, Refusal, report_failure
from svc_async.sandbox.server.exchange import Exchange
from svc_async.sandbox.server.faults import Faults
from svc_async.sandbox.server.gatekeeping import Gatekeeper, default_format, split_surface
from svc_async.sandbox.server.rendering import OpenResponse, Reply, render_refusal
from svc_async.sandbox.server.request_log import KeptBodies, LoggedRequest, RequestLog, mask_headers, mask_query

__all__ = ["CONTROL_PREFIX", "Server"]

CONTROL_PREFIX = "/_sandbox/"

_MAX_BODY = 32 * 1024 * 1024
_SHUTDOWN_TIMEOUT = 0.005
_TARGET = re.compile(rb"[!-~]+ ([!-~]+) HTTP/")
_TARGET_SEARCHED = 2048
_log = logging.getLogger(__name__)

_ClosedEvents = dict[asyncio.BaseProtocol, asyncio.Event]


class _Connection(web.RequestHandler):
    """One connection; refuses what is not HTTP as the service does, with one line in the log."""

    __slots__ = ("_target",)

    def data_received(self, data: bytes) -> None:
        # The parser keeps nothing of a request that it cannot read.
        if (found := _TARGET.match(data[:_TARGET_SEARCHED])) is not None:
            self._target = found[1]
        super().data_received(data)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 aiohttp's own words
    ) -> web.StreamResponse:
        """Return the answer to a request that cannot be read, or that failed beyond its exchange.

        Raises:
            ConnectionError: nobody waits for the answer, or it has begun; aiohttp closes the connection.
        """
        if isinstance(exc, ConnectionError):
            raise exc
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun")
        target: bytes | None = getattr(self, "_target", None)
        path = "/" if target is None else _strip_host(target.decode()).partition("?")[0]
        if isinstance(exc, LineTooLong):
            path, refusal = _refuse_line(exc, path)
        elif status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            refusal = report_failure()
        else:
            _log.info("refused a request that is not HTTP/1.1: %s", type(exc).__name__)
            refusal = Refusal(status, Problem("INVALID_PARAMETER", "the request is not HTTP/1.1"))
            if isinstance(exc, BadHttpMethod) and target is not None:
                refusal = Refusal(404, Problem("ROUTE_NOT_FOUND", "there is no such call here"))
        response = _make_response(render_refusal(default_format(path), refusal, {"params": {}}), {})
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kwargs: Any) -> None:
        """Log a failure of aiohttp's; a broken body was answered already."""
        if isinstance(kwargs.get("exc_info"), web.RequestPayloadError):
            _log.info("the body of a request was broken")
        else:
            super().log_exception(*args, **kwargs)


class _Connections(web.Server):
    """The open connections; sets the event of a request whose connection is lost."""

    def __init__(
        self, handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], closed: _ClosedEvents
    ) -> None:
        super().__init__(handle)
        self._closed = closed

    def __call__(self) -> web.RequestHandler:
        return _Connection(
            self,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # which aiohttp takes for none
            read_bufsize=2**18,
        )

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        if (closed := self._closed.get(handler)) is not None:
            closed.set()


class Server:
    """Serves the sandbox on one port.

    Args:
        sandbox: the state that requests work on.
        gatekeeper: finds operations and checks callers.
        faults: the faults to inject.
        log: records every request.
        control: answers requests of the control API.
    """

    def __init__(
        self,
        sandbox: Context,
        *,
        gatekeeper: Gatekeeper,
        faults: Faults,
        log: RequestLog,
        control: Callable[[OpenResponse], Awaitable[Reply | None]],
    ) -> None:
        self._sandbox = sandbox
        self._gatekeeper, self._faults, self._log, self._control = gatekeeper, faults, log, control
        self._connections: _Connections | None = None
        self._closed: _ClosedEvents = {}
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Start to serve and return the port."""
        self._connections = _Connections(self._handle, self._closed)
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._connections, host, port, ssl=tls, backlog=1024)
        return int(self._listener.sockets[0].getsockname()[1])

    def replace(self, sandbox: Context, gatekeeper: Gatekeeper) -> None:
        """Serve another state from now on; requests in progress end with the former one."""
        self._sandbox, self._gatekeeper = sandbox, gatekeeper

    async def close(self) -> None:
        """Stop at once: requests in progress lose their connection."""
        for closed in self._closed.values():
            closed.set()
        if self._listener is not None:
            self._listener.close()
        if self._connections is not None:
            self._connections.pre_shutdown()
            await self._connections.shutdown(_SHUTDOWN_TIMEOUT)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        with self._sandbox.clock.hold(), self._watch(request) as closed:
            if request.path.startswith(CONTROL_PREFIX):
                control = OpenResponse(request, closed, self._sandbox.clock, lambda _: {})
                reply = await self._control(control)
                return control.response or web.Response() if reply is None else await _write(reply, request, {})
            exchange = await self._receive(request, closed)
            reply = await exchange.run()
            if reply is None:
                return exchange.response or web.Response()
            return await _write(reply, request, exchange.common_headers)

    @contextmanager
    def _watch(self, request: web.BaseRequest) -> Generator[asyncio.Event]:
        """Yield an event that is set when the connection is lost, or the sandbox closes."""
        closed = self._closed[request.protocol] = asyncio.Event()
        try:
            yield closed
        finally:
            del self._closed[request.protocol]

    async def _receive(self, request: web.BaseRequest, closed: asyncio.Event) -> Exchange:
        wire_path, _, query = _strip_host(request.raw_path).partition("?")
        path = self._read_path(wire_path)
        body, unreadable = await _read_body(request)
        faults = self._faults.match(request.method, path)
        logged = LoggedRequest(
            number=self._log.total,
            time=self._sandbox.clock.now(),
            method=request.method,
            path=wire_path,
            query=mask_query(query),
            headers=mask_headers(request.headers),
            size=len(body),
            body=body if self._sandbox.config.keep_bodies else None,
            faults=tuple(fault.name for fault in faults.values()),
        )
        self._log.add(logged)
        self._log.keep_bodies(logged.number, KeptBodies(request=body))
        return Exchange(
            sandbox=self._sandbox,
            gatekeeper=self._gatekeeper,
            log=self._log,
            request=request,
            path=path,
            wire_path=wire_path,
            query=query,
            body=body,
            unreadable=unreadable,
            logged=logged,
            closed=closed,
            faults={stage: fault.act for stage, fault in faults.items()},
        )

    def _read_path(self, path: str) -> str:
        """Return the path in the words of the contract; one without a route if the service has another for it."""
        dialect = self._sandbox.config.dialect
        if dialect is None:
            return path
        _, rest = split_surface(path)
        return path.removesuffix(rest) + (dialect.serve_path(rest) or "/")


async def _read_body(request: web.BaseRequest) -> tuple[bytes, Refusal | None]:
    """Return the body, or nothing and why it cannot be read; the connection is closed then."""
    blocks: list[bytes] = []
    size = 0
    try:
        async for block in request.content.iter_any():
            size += len(block)
            if size > _MAX_BODY:
                return b"", _refuse_body(413, f"the body takes up to {_MAX_BODY} bytes")
            blocks.append(block)
    except web.RequestPayloadError:
        return b"", _refuse_body(400, "the body is not of its Content-Encoding or Transfer-Encoding")
    return b"".join(blocks), None


def _refuse_body(status: int, message: str) -> Refusal:
    # Unspecified: the largest body of a call without a limit of its own, and the answer to it (ASM-95).
    return Refusal(status, Problem("INVALID_PARAMETER", message), rule="ASM-95", headers={"Connection": "close"})


def _refuse_line(error: LineTooLong, path: str) -> tuple[str, Refusal]:
    """Return the path of a request with a line that is too long, as far as it is known, and the refusal."""
    line, limit = error.args[:2]
    start = bytes(line).rpartition(b" ")[2].decode("latin-1")
    is_url = start.startswith(("/", "http://", "https://"))
    _log.info("refused a request with a line of more than %s bytes", limit)
    # Unspecified: the longest URL and header, and the answer to longer ones (ASM-95).
    problem = Problem("INVALID_PARAMETER", f"{'the URL' if is_url else 'a header'} is longer than {limit} bytes")
    refusal = Refusal(414 if is_url else 431, problem, rule="ASM-95")
    return (_strip_host(start).partition("?")[0] if is_url else path), refusal


def _strip_host(target: str) -> str:
    """Return the target of a request without the scheme and host that a proxied one carries."""
    if target.startswith("/"):
        return target
    return "/" + target.partition("://")[2].partition("/")[2]


def _make_response(reply: Reply, common: Mapping[str, str]) -> web.Response:
    return web.Response(
        status=reply.status,
        body=reply.body,
        headers={**common, **reply.headers, "Content-Type": reply.content_type, "Server": "svc-sandbox"},
    )


async def _write(reply: Reply, request: web.BaseRequest, common: Mapping[str, str]) -> web.Response:
    """Write the whole answer now, while time is held."""
    response = _make_response(reply, common)
    if reply.headers.get("Connection") == "close":
        response.force_close()
    try:
        await response.prepare(request)
        await response.write_eof()
    except ConnectionError:
        return response  # the client has disconnected
    return response
