"""The server: listens on one port, reads requests, logs them and writes answers.

Paths that begin with `/_sandbox/` are not part of the service; the server passes them to the control API.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager

from aiohttp import web

from svc_async.sandbox.context import Context
from svc_async.sandbox.server.exchange import Exchange
from svc_async.sandbox.server.faults import Faults
from svc_async.sandbox.server.gatekeeping import Gatekeeper
from svc_async.sandbox.server.masking import mask_headers, mask_query
from svc_async.sandbox.server.open_response import hold_clock
from svc_async.sandbox.server.rendering import Reply
from svc_async.sandbox.server.request_log import LoggedRequest, RequestLog

__all__ = ["CONTROL_PREFIX", "Server"]

CONTROL_PREFIX = "/_sandbox/"

_MAX_BODY = 32 * 1024 * 1024
_SHUTDOWN_TIMEOUT = 0.005

_ClosedEvents = dict[asyncio.BaseProtocol, asyncio.Event]


class _Connections(web.Server):
    """The open connections; sets the event of a request whose connection is lost."""

    def __init__(
        self, handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], closed: _ClosedEvents
    ) -> None:
        super().__init__(handle, access_log=None, read_bufsize=2**18)
        self._closed = closed

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
        control: Callable[[web.BaseRequest], Awaitable[Reply]],
    ) -> None:
        self._sandbox = sandbox
        self._gatekeeper, self._faults, self._log, self._control = gatekeeper, faults, log, control
        self._closing = asyncio.Event()
        self._connections: _Connections | None = None
        self._closed: _ClosedEvents = {}
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Start to serve and return the port."""
        self._connections = _Connections(self._handle, self._closed)
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._connections, host, port, ssl=tls, backlog=1024)
        return int(self._listener.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop at once: requests in progress lose their connection."""
        self._closing.set()
        for closed in self._closed.values():
            closed.set()
        if self._listener is not None:
            self._listener.close()
        if self._connections is not None:
            self._connections.pre_shutdown()
            await self._connections.shutdown(_SHUTDOWN_TIMEOUT)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        with hold_clock(self._sandbox.clock), self._watch(request) as closed:
            if request.path.startswith(CONTROL_PREFIX):
                return await _write(await self._control(request), request, {})
            exchange = await self._receive(request, closed)
            reply = await exchange.run(self._faults)
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
        path, _, query = _strip_host(request.raw_path).partition("?")
        body = await _read_body(request)
        logged = LoggedRequest(
            number=len(self._log),
            time=self._sandbox.clock.now(),
            method=request.method,
            path=path,
            query=mask_query(query),
            headers=mask_headers(request.headers),
            size=len(body),
            body=body if self._sandbox.config.keep_bodies else None,
        )
        self._log.add(logged)
        return Exchange(
            sandbox=self._sandbox,
            gatekeeper=self._gatekeeper,
            log=self._log,
            request=request,
            path=path,
            query=query,
            body=body,
            logged=logged,
            closing=self._closing,
            closed=closed,
        )


async def _read_body(request: web.BaseRequest) -> bytes:
    blocks: list[bytes] = []
    size = 0
    async for block in request.content.iter_any():
        size += len(block)
        if size <= _MAX_BODY:
            blocks.append(block)
    return b"".join(blocks)


def _strip_host(target: str) -> str:
    """Return the target of a request without the scheme and host that a proxied one carries."""
    if target.startswith("/"):
        return target
    return "/" + target.partition("://")[2].partition("/")[2]


async def _write(reply: Reply, request: web.BaseRequest, common: Mapping[str, str]) -> web.Response:
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
        return response  # the client has disconnected
    return response
