"""One exchange with the service, or one open stream; the only importer of aiohttp's client.

Nothing is sent twice from here: aiohttp's own second try on a dropped connection is stopped, redirects are not
followed, and every failure says whether the request may have reached the service.
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
"""The caller's own pool of connections, which stays the caller's to close, or just a TLS context."""

_READ_BUFFER: Final = 2**18


@attrs.frozen(kw_only=True)
class Timeouts:
    """How long a call may take, in seconds.

    Attributes:
        total: from the moment it leaves the governor until its answer has been read; None means for ever.
        connect: until a new connection stands, TLS included.
    """

    total: float | None = 60.0
    connect: float = 10.0

    def __attrs_post_init__(self) -> None:
        if (self.total is not None and self.total <= 0) or self.connect <= 0:
            raise InvalidArgument("timeouts", "must be greater than 0 seconds")


class _Broken(Exception):
    """A connection broke; aiohttp would send a GET, PUT or DELETE again if it saw its own exception."""


_FAILURES: Final = (_Broken, aiohttp.ClientError, OSError)


class _BlocksPayload(Payload):
    """A body in blocks with a known length: no join, no chunked coding, sent anew at every attempt."""

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
    """What is known of one exchange while it goes on; aiohttp takes it as the middleware of its request."""

    on_sent: Callable[[], None]
    sent: bool = False

    def mark_sent(self) -> None:
        self.sent = True
        self.on_sent()

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        if isinstance(request, _Request):
            request.exchange = self
        try:
            return await handler(request)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            raise _Broken from error


class _Request(aiohttp.ClientRequest):
    """Tells its exchange that it is being sent; aiohttp's tracing would, too, at ten times the cost."""

    exchange: _Exchange

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        self.exchange.mark_sent()
        return await super().send(conn)


@attrs.frozen
class OpenStream:
    """An answer that is being sent, for as long as it lasts.

    Attributes:
        answer: its status and headers; of a refusal, its body too.
    """

    answer: Answer
    _content: aiohttp.StreamReader = attrs.field(repr=False)

    async def chunk(self) -> bytes:
        """Wait for bytes and give all that have come; no bytes mean the end.

        Raises:
            StreamDropped: the connection broke.
        """
        try:
            return await self._content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise StreamDropped("the stream broke off") from error


@attrs.define
class Transport:
    """Connections to the service. Open it inside the running loop, close it when done."""

    _client: aiohttp.ClientSession
    _clock: Clock
    _timeouts: Timeouts
    _streams: set[aiohttp.ClientResponse] = attrs.field(factory=set[aiohttp.ClientResponse], init=False)

    @classmethod
    def open(
        cls, *, user_agent: str, clock: Clock, timeouts: Timeouts, connector: Connector | None = None
    ) -> "Transport":
        """Make the pool of connections; none is opened before the first call."""
        given = connector if isinstance(connector, aiohttp.BaseConnector) else None
        client = aiohttp.ClientSession(
            connector=given or aiohttp.TCPConnector(ssl=connector if isinstance(connector, ssl.SSLContext) else True),
            connector_owner=given is None,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": user_agent, "Accept": "application/json"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=timeouts.connect),
            read_bufsize=_READ_BUFFER,
            request_class=_Request,
        )
        return cls(client, clock, timeouts)

    async def close(self) -> None:
        """Close what this transport opened; who reads a stream is told that it broke off."""
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
        """Send one request and read its whole answer.

        Args:
            method: the HTTP method.
            url: the whole URL, quoted; it goes to the wire as it is.
            headers: the headers of this request.
            body: a JSON body.
            proxy: the proxy's URL.
            timeout: seconds for this exchange, when other than the transport's.
            on_sent: called once, when the connection stands and the request begins to be written.

        Raises:
            TransportError: no answer arrived; `sent` says whether the request may have.
            UnexpectedAnswer: an answer of success broke off.
            WrongState: the transport was closed.
        """
        self._check_open()
        exchange = _Exchange(on_sent)
        try:
            async with self._clock.timeout(timeout or self._timeouts.total):
                return await self._exchange(exchange, method, url, headers=headers, body=body, proxy=proxy)
        except _FAILURES as error:
            raise _failure(error, exchange) from _shown(error)

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
        """Send one request and give its answer as it comes, for as long as the block lasts; then hang up.

        Args:
            method: the HTTP method.
            url: the whole URL, quoted; it goes to the wire as it is.
            headers: the headers of this request.
            proxy: the proxy's URL.
            timeout: seconds until the answer has begun, or a refusal has been read; nothing limits what follows.
            on_sent: called once, when the connection stands and the request begins to be written.

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
                    stack.push_async_callback(self._hang_up, response)
                    self._keep(response)
                    body = b"" if response.ok else await _read(response)
            except _FAILURES as error:
                raise _failure(error, exchange) from _shown(error)
            yield OpenStream(Answer(status=response.status, headers=response.headers, body=body), response.content)

    def _keep(self, response: aiohttp.ClientResponse) -> None:
        self._streams.add(response)
        protocol = _protocol(response)
        if protocol is not None:
            protocol.force_close()  # it ends with its stream, also where the service ends that

    async def _hang_up(self, response: aiohttp.ClientResponse) -> None:
        """Close a connection and see it closed, so that the service can give its place to another."""
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
            raise UnexpectedAnswer("the answer broke off", status=response.status, headers=response.headers) from error
        return b""  # a refusal is known by its status


def _failure(error: BaseException, exchange: _Exchange) -> TransportError:
    sent = Sent.MAYBE if exchange.sent else Sent.NO
    what = error.__cause__ if isinstance(error, _Broken) else error
    if isinstance(what, TimeoutError):
        return TimedOut("no answer in time", sent=sent)
    return TransportError(_WHAT_FAILED.get(type(what), "the connection failed"), sent=sent)


def _shown(error: BaseException) -> BaseException | None:
    """Give the cause that a traceback may show: this one's words hold the URL, with the query or a password."""
    return None if isinstance(error, aiohttp.ClientResponseError) else error


_WHAT_FAILED: Mapping[type, str] = {
    aiohttp.ClientConnectorDNSError: "the host's name cannot be resolved",
    aiohttp.ClientConnectorCertificateError: "the host's certificate cannot be trusted",
    aiohttp.ClientConnectorSSLError: "TLS could not be agreed",
    aiohttp.ClientConnectorError: "the connection was refused",
    aiohttp.ClientProxyConnectionError: "the proxy cannot be reached",
    aiohttp.ClientHttpProxyError: "the proxy refused",
    aiohttp.ServerDisconnectedError: "the connection closed before an answer",
    aiohttp.ClientOSError: "the connection was reset",
}
