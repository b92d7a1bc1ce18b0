"""One exchange with the service, or one open stream; the only importer of aiohttp's client.

Nothing is sent twice: aiohttp's own retry on a dropped connection is disabled, redirects are not followed, and every
failure says whether the request may have reached the service.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import aiohttp
import attrs
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.payload import Payload
from yarl import URL

from svc_async.clock import Clock
from svc_async.errors import (
    InvalidArgument,
    Sent,
    StreamDropped,
    TimedOut,
    TransportError,
    UnexpectedAnswer,
    WrongState,
)
from svc_async.wire.envelope import Answer
from svc_async.wire.route import Blocks

__all__ = ["Connector", "OpenStream", "Timeouts", "Transport"]

Connector = aiohttp.BaseConnector | ssl.SSLContext
"""The caller's own connection pool, which the caller closes, or only a TLS context."""

_READ_BUFFER: Final = 2**18


@attrs.frozen(kw_only=True)
class Timeouts:
    """How long a call may take, in seconds.

    Attributes:
        total: from leaving the governor to the end of the answer; None has no limit.
        connect: to open a new connection, including TLS.
    """

    total: float | None = 60.0
    connect: float = 10.0

    def __attrs_post_init__(self) -> None:
        if (self.total is not None and self.total <= 0) or self.connect <= 0:
            raise InvalidArgument("timeouts", "must be greater than 0 seconds")


class _ConnectionBroken(Exception):
    """A connection broke. aiohttp would resend a GET, PUT or DELETE if it saw its own exception."""


_FAILURES: Final = (_ConnectionBroken, aiohttp.ClientError, OSError)


class _BlocksPayload(Payload):
    """A body in blocks of known total size: sent without joining them and without chunked coding, at every attempt."""

    def __init__(self, body: Blocks) -> None:
        super().__init__(body)
        self._size = body.size

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self._value.blocks).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        for block in self._value.blocks:
            await writer.write(block)


@attrs.define
class _Exchange:
    """The state of one exchange in progress; it is a middleware of the request in aiohttp."""

    on_sent: Callable[[], None]
    sent: bool = False

    def mark_sent(self) -> None:
        self.sent = True
        self.on_sent()

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        if isinstance(request, _ObservedRequest):
            request.exchange = self
        try:
            return await handler(request)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            raise _ConnectionBroken from error


class _ObservedRequest(aiohttp.ClientRequest):
    """Notifies its exchange when it is sent; aiohttp's tracing would do so at ten times the cost."""

    exchange: _Exchange

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        self.exchange.mark_sent()
        return await super().send(conn)


@attrs.frozen
class OpenStream:
    """An answer whose body is still being received.

    Attributes:
        answer: its status and headers; for a refusal, also its body.
    """

    answer: Answer
    _content: aiohttp.StreamReader = attrs.field(repr=False)

    async def read_chunk(self) -> bytes:
        """Return all bytes received so far, waiting for the first; empty at the end.

        Raises:
            StreamDropped: the connection broke.
        """
        try:
            return await self._content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise StreamDropped("the stream was cut off") from error


@attrs.define
class Transport:
    """A pool of connections to the service; to be opened in the running event loop."""

    _client: aiohttp.ClientSession
    _clock: Clock
    _timeouts: Timeouts
    _streams: set[aiohttp.ClientResponse] = attrs.field(factory=set[aiohttp.ClientResponse], init=False)

    @classmethod
    def open(
        cls, *, user_agent: str, clock: Clock, timeouts: Timeouts, connector: Connector | None = None
    ) -> "Transport":
        """Open an empty pool; connections are made by calls."""
        own_pool = connector if isinstance(connector, aiohttp.BaseConnector) else None
        client = aiohttp.ClientSession(
            connector=own_pool
            or aiohttp.TCPConnector(ssl=connector if isinstance(connector, ssl.SSLContext) else True),
            connector_owner=own_pool is None,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": user_agent, "Accept": "application/json"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=timeouts.connect),
            read_bufsize=_READ_BUFFER,
            request_class=_ObservedRequest,
        )
        return cls(client, clock, timeouts)

    async def close(self) -> None:
        """Close the connections of this transport; consumers of open streams get `StreamDropped`."""
        for response in self._streams:
            response.close()
        await self._client.close()

    async def exchange(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | Blocks | None = None,
        proxy: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - on the injected clock
        on_sent: Callable[[], None],
    ) -> Answer:
        """Send one request and return its whole answer.

        Args:
            method: the HTTP method.
            url: the full, quoted URL; it is sent unchanged.
            headers: the headers of this request.
            body: the body.
            proxy: the proxy's URL.
            timeout: seconds for this exchange, if other than the transport's.
            on_sent: called once, after connecting, before the request is written.

        Raises:
            TransportError: no answer arrived; `sent` says whether the request may have arrived.
            UnexpectedAnswer: an answer of success was cut off.
            WrongState: the transport was closed.
        """
        self._check_open()
        exchange = _Exchange(on_sent)
        try:
            async with self._clock.timeout(timeout or self._timeouts.total):
                return await self._exchange(exchange, method, url, headers=headers, body=body, proxy=proxy)
        except _FAILURES as error:
            raise _transport_error(error, exchange) from _safe_cause(error)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        proxy: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - on the injected clock
        on_sent: Callable[[], None],
    ) -> AsyncGenerator[OpenStream]:
        """Send one request and receive its answer as a stream within the block; then close the connection.

        Args:
            method: the HTTP method.
            url: the full, quoted URL; it is sent unchanged.
            headers: the headers of this request.
            proxy: the proxy's URL.
            timeout: seconds until the answer begins, or until a refusal is read; the rest has no limit.
            on_sent: called once, after connecting, before the request is written.

        Raises:
            TransportError: no answer began; `sent` says whether the request may have arrived.
            WrongState: the transport was closed.
        """
        self._check_open()
        exchange = _Exchange(on_sent)
        async with AsyncExitStack() as stack:
            try:
                async with self._clock.timeout(timeout or self._timeouts.total):
                    response = await self._client.request(
                        method,
                        URL(url, encoded=True),
                        headers=headers,
                        allow_redirects=False,
                        proxy=proxy,
                        middlewares=(exchange,),
                    )
                    stack.push_async_callback(self._close_connection, response)
                    self._track(response)
                    body = b"" if response.ok else await _read(response)
            except _FAILURES as error:
                raise _transport_error(error, exchange) from _safe_cause(error)
            yield OpenStream(Answer(status=response.status, headers=response.headers, body=body), response.content)

    def _track(self, response: aiohttp.ClientResponse) -> None:
        self._streams.add(response)
        protocol = _protocol(response)
        if protocol is not None:
            protocol.force_close()  # never reused, even if the service ends the stream

    async def _close_connection(self, response: aiohttp.ClientResponse) -> None:
        """Close a connection and wait until it is closed, so that the service can accept another."""
        self._streams.discard(response)
        protocol = _protocol(response)
        closed = None if protocol is None else protocol.closed
        response.close()
        if closed is not None:
            await asyncio.wait([closed])

    def _check_open(self) -> None:
        if self._client.closed:
            raise WrongState("the session was closed")

    async def _exchange(
        self,
        exchange: _Exchange,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | Blocks | None,
        proxy: str | None,
    ) -> Answer:
        async with self._client.request(
            method,
            URL(url, encoded=True),
            headers=headers,
            data=_BlocksPayload(body) if isinstance(body, Blocks) else body,
            allow_redirects=False,
            proxy=proxy,
            middlewares=(exchange,),
        ) as response:
            return Answer(status=response.status, headers=response.headers, body=await _read(response))


def _protocol(response: aiohttp.ClientResponse) -> ResponseHandler | None:
    return None if response.connection is None else response.connection.protocol


async def _read(response: aiohttp.ClientResponse) -> bytes:
    try:
        return await response.read()
    except (aiohttp.ClientError, OSError) as error:
        if response.ok:
            raise UnexpectedAnswer(
                "the answer was cut off", status=response.status, headers=response.headers
            ) from error
        return b""  # the status is enough for a refusal


def _transport_error(error: BaseException, exchange: _Exchange) -> TransportError:
    sent = Sent.MAYBE if exchange.sent else Sent.NO
    cause = error.__cause__ if isinstance(error, _ConnectionBroken) else error
    if isinstance(cause, TimeoutError):
        return TimedOut("request timed out", sent=sent)
    return TransportError(_MESSAGES.get(type(cause), "connection failed"), sent=sent)


def _safe_cause(error: BaseException) -> BaseException | None:
    """Return the cause that a traceback may show: some messages contain the URL, with its query or a password."""
    return None if isinstance(error, aiohttp.ClientResponseError) else error


_MESSAGES: Mapping[type, str] = {
    aiohttp.ClientConnectorDNSError: "the host name cannot be resolved",
    aiohttp.ClientConnectorCertificateError: "certificate verification failed",
    aiohttp.ClientConnectorSSLError: "TLS handshake failed",
    aiohttp.ClientConnectorError: "connection refused",
    aiohttp.ClientProxyConnectionError: "the proxy is unreachable",
    aiohttp.ClientHttpProxyError: "the proxy refused the request",
    aiohttp.ServerDisconnectedError: "the connection was closed before an answer",
    aiohttp.ClientOSError: "connection reset",
}
