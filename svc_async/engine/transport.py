"""Exchanges with the service, and open streams; the only importer of aiohttp's client.

Nothing is sent twice: aiohttp's own retry on a dropped connection is disabled, redirects are not followed, and every
failure says whether the request may have reached the service. Failures, and the cancellation of a caller, are built
while aiohttp's exceptions are handled and raised afterwards, from a frame without secrets: aiohttp's frames hold the
URL, the headers and the body, and its messages hold some of them.
"""

import asyncio
import select
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Final, NoReturn
from weakref import WeakKeyDictionary

import aiohttp
import attrs
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.payload import Payload
from yarl import URL

from svc_async.clock import Clock
from svc_async.engine.failures import (
    ConnectionBroken,
    ConnectionUnusable,
    describe_failure,
    describe_unreadable_body,
)
from svc_async.errors import (
    Hint,
    Sent,
    StreamDropped,
    SvcError,
    TimedOut,
    TransportError,
    UnexpectedAnswer,
    WrongState,
)
from svc_async.value_rules import POSITIVE_SECONDS, or_none
from svc_async.wire.envelope import Answer
from svc_async.wire.route import Blocks

__all__ = [
    "MAX_ANSWER_BYTES",
    "NOT_COPIED",
    "OTHER_LOOP",
    "Connector",
    "Exchange",
    "OpenStream",
    "Timeouts",
    "Transport",
    "WireRequest",
]

UsedConnections = WeakKeyDictionary[ResponseHandler, Callable[[], object]]
"""The connections on which a request was sent before; each with a function that returns whether it is readable."""


@attrs.define
class Exchange:
    """The state of one exchange in progress; it is a middleware of the request in aiohttp.

    Attributes:
        on_sent: called after connecting, directly before the request is written; if it raises, nothing is written.
        used: the connections on which a request was sent before.
        sent: whether a part of the request may have been written.
        is_written: whether nearly all of it has left this process.
    """

    on_sent: Callable[[], None]
    used: UsedConnections
    sent: bool = False
    is_written: bool = False

    def __deepcopy__(self, memo: object) -> "Exchange":
        # aioresponses copies the arguments of each request, and `on_sent` leads to all of a session.
        return self

    def payload(self, body: bytes | Blocks | None) -> "Payload | None":
        """Return a body as aiohttp sends it; without one, the request is written at once."""
        self.is_written = not body
        return _BlocksPayload(body if isinstance(body, Blocks) else Blocks((body,), len(body)), self) if body else None

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a request on the first connection that can carry it."""
        if isinstance(request, ObservedRequest):
            request.exchange = self
        while True:
            try:
                response = await handler(request)
            except ConnectionUnusable as error:
                if not error.is_used:
                    raise
            except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
                raise ConnectionBroken from error
            else:
                break
        if response.ok and not self.is_written:
            response.close()
            raise ConnectionBroken
        return response

    def begin(self, protocol: ResponseHandler) -> None:
        """Note that a request is about to be written to a connection.

        Raises:
            ConnectionUnusable: the connection cannot carry it.
            SvcError: `on_sent` refused.
        """
        is_readable = self.used.get(protocol)
        if protocol.should_close or (is_readable is not None and protocol.transport is not None and is_readable()):
            raise ConnectionUnusable(is_used=is_readable is not None)
        if is_readable is None:
            self.used[protocol] = _watch(protocol)
        self.on_sent()
        self.sent = True


def _watch(protocol: ResponseHandler) -> Callable[[], object]:
    """Return a function that says whether bytes, or the end, have arrived that the event loop has not read yet."""
    sock = protocol.transport and protocol.transport.get_extra_info("socket")
    if not sock:
        return lambda: False
    if not hasattr(select, "poll"):  # Windows
        return lambda: select.select([sock], [], [], 0)[0]
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    return partial(poll.poll, 0)


class ObservedRequest(aiohttp.ClientRequest):
    """Notifies its exchange when it is sent; aiohttp's tracing would do so at ten times the cost."""

    exchange: Exchange

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        """Begin the exchange, and write the request.

        Raises:
            ConnectionUnusable: the connection cannot carry it.
        """
        if conn.protocol is not None:
            self.exchange.begin(conn.protocol)
        return await super().send(conn)


class _BlocksPayload(Payload):
    """A body in blocks of known total size: sent without joining them and without chunked coding, at every attempt."""

    def __init__(self, body: Blocks, exchange: Exchange) -> None:
        super().__init__(body)
        self._size = body.size
        self._exchange = exchange

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self._value.blocks).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        for block in self._value.blocks:
            await writer.write(block)
        self._exchange.is_written = True


Connector = aiohttp.BaseConnector | ssl.SSLContext
"""The caller's own connection pool, which the caller closes, or only a TLS context."""

MAX_ANSWER_BYTES: Final = 2**26
"""The default bound of an answer of success, decompressed."""
_MAX_REFUSAL_BYTES: Final = 2**20
_READ_BUFFER: Final = 2**18
_CLOSED: Final = "the session was closed"
_CONNECTOR_CLOSED: Final = "the connector that the session was given was closed; close it after the session"
NOT_COPIED: Final = "an open session, and what belongs to it, can be neither copied nor pickled"
OTHER_LOOP: Final = (
    "the session was opened in another event loop; open one session in each "
    "(Starlette's TestClient runs an application in a loop of its own)"
)
_LOOP_BUFFER: Final = 2**18
"""What asyncio allocates for each read of a socket."""


@attrs.frozen(kw_only=True)
class Timeouts:
    """How long a call may take, in seconds.

    Attributes:
        total: from leaving the governor to the end of the answer; None has no limit.
        connect: to open a new connection, including TLS.

    Raises:
        InvalidArgument: names the one that breaks its rule.
    """

    total: float | None = attrs.field(default=60.0, validator=or_none(POSITIVE_SECONDS, "no limit"))
    connect: float = attrs.field(default=10.0, validator=POSITIVE_SECONDS)


_Failure = SvcError | asyncio.CancelledError
_FAILURES: Final = (ConnectionBroken, ConnectionUnusable, aiohttp.ClientError, OSError)


@attrs.frozen(kw_only=True)
class WireRequest:
    """A request as it is written to the wire; its secrets are not in its repr, and so in no local of a traceback.

    Attributes:
        method: the HTTP method.
        url: the full, quoted URL; it is sent unchanged.
        headers: the headers of this request.
        body: the body.
        proxy: the proxy's URL.
    """

    method: str
    url: str = attrs.field(repr=False)
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    body: bytes | Blocks | None = attrs.field(default=None, repr=False)
    proxy: str | None = attrs.field(default=None, repr=False)


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


@attrs.define(eq=False, repr=False)
class Transport:
    """A pool of connections to the service; to be opened in the running event loop.

    Attributes:
        loop: that event loop.
    """

    _client: aiohttp.ClientSession
    _clock: Clock
    _timeouts: Timeouts
    _max_answer_bytes: int
    loop: asyncio.AbstractEventLoop
    _was_closed: bool = attrs.field(default=False, init=False)
    _used: UsedConnections = attrs.field(factory=UsedConnections, init=False)
    _streams: set[aiohttp.ClientResponse] = attrs.field(factory=set[aiohttp.ClientResponse], init=False)

    def __reduce__(self) -> NoReturn:
        raise WrongState(NOT_COPIED, hint=Hint.MAKE_ANOTHER_SESSION)

    @classmethod
    def open(
        cls,
        *,
        user_agent: str,
        clock: Clock,
        timeouts: Timeouts,
        connector: Connector | None = None,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> "Transport":
        """Open an empty pool; connections are made by calls."""
        # Freed once, so that glibc keeps the memory of the blocks of the event loop, which are smaller: until then it
        # maps and unmaps one for every read, unless its heap happens to have room.
        bytes(2 * _LOOP_BUFFER)
        own_pool = connector if isinstance(connector, aiohttp.BaseConnector) else None
        client = aiohttp.ClientSession(
            connector=own_pool
            or aiohttp.TCPConnector(ssl=connector if isinstance(connector, ssl.SSLContext) else True),
            connector_owner=own_pool is None,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": user_agent, "Accept": "application/json"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=timeouts.connect),
            read_bufsize=_READ_BUFFER,
            request_class=ObservedRequest,
        )
        return cls(client, clock, timeouts, max_answer_bytes, asyncio.get_running_loop())

    async def close(self) -> None:
        """Close the connections of this transport; consumers of open streams get `StreamDropped`.

        After its event loop was closed, nothing consumes them any more: they are freed.
        """
        self._was_closed = True
        if self.loop.is_closed():
            with suppress(RuntimeError):  # what waits for a connection cannot be cancelled, and will never go on
                await self._client.close()
            return
        for response in self._streams:
            response.close()
        await self._client.close()

    async def exchange(
        self,
        request: WireRequest,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - on the injected clock
        on_sent: Callable[[], None],
    ) -> Answer:
        """Send one request and return its whole answer.

        Args:
            request: the request.
            timeout: seconds for this exchange, if other than the transport's.
            on_sent: called once, after connecting, before the request is written.

        Raises:
            TransportError: no answer arrived; `sent` says whether the request may have arrived.
            UnexpectedAnswer: an answer of success was cut off, or is too large.
            WrongState: the transport was closed.
        """
        self._check_not_closed()
        result = await self._try_exchange(request, Exchange(on_sent, self._used), timeout or self._timeouts.total)
        if isinstance(result, BaseException):
            raise result
        return result

    async def _try_exchange(self, request: WireRequest, exchange: Exchange, seconds: float | None) -> Answer | _Failure:
        try:
            async with self._clock.timeout(seconds):
                response = await self._send(request, exchange)
                try:
                    body = await _read(response, self._max_answer_bytes)
                finally:
                    response.release()  # a connection whose answer was not read to its end is closed
        except asyncio.CancelledError as error:
            return asyncio.CancelledError(*error.args)
        except _FAILURES as error:
            return self._describe_failure(error, request, exchange, seconds)
        if isinstance(body, SvcError):
            return body
        headers = response.headers.copy()  # the view that aiohttp gives can be neither pickled nor copied
        return Answer(status=response.status, headers=headers, body=body)

    @asynccontextmanager
    async def stream(
        self,
        request: WireRequest,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - on the injected clock
        on_sent: Callable[[], None],
    ) -> AsyncGenerator[OpenStream]:
        """Send one request and receive its answer as a stream within the block; then close the connection.

        Args:
            request: the request.
            timeout: seconds until the answer begins, or until a refusal is read; the rest has no limit.
            on_sent: called once, after connecting, before the request is written.

        Raises:
            TransportError: no answer began; `sent` says whether the request may have arrived.
            WrongState: the transport was closed.
        """
        self._check_not_closed()
        async with AsyncExitStack() as stack:
            exchange = Exchange(on_sent, self._used)
            opened = await self._try_open(request, exchange, timeout or self._timeouts.total, stack)
            if isinstance(opened, BaseException):
                raise opened
            yield opened

    async def _try_open(
        self, request: WireRequest, exchange: Exchange, seconds: float | None, stack: AsyncExitStack
    ) -> OpenStream | _Failure:
        try:
            async with self._clock.timeout(seconds):
                response = await self._send(request, exchange)
                stack.push_async_callback(self._close_connection, response)
                self._streams.add(response)
                if (protocol := _protocol(response)) is not None:
                    protocol.force_close()  # never reused, even if the service ends the stream
                body = b"" if response.ok else await _read(response, _MAX_REFUSAL_BYTES)
        except asyncio.CancelledError as error:
            return asyncio.CancelledError(*error.args)
        except _FAILURES as error:
            return self._describe_failure(error, request, exchange, seconds)
        if isinstance(body, SvcError):
            return body
        return OpenStream(Answer(status=response.status, headers=response.headers, body=body), response.content)

    def _describe_failure(
        self, error: BaseException, request: WireRequest, exchange: Exchange, seconds: float | None
    ) -> TransportError:
        """Build the failure of an exchange, without a reference to aiohttp's exception."""
        sent = Sent.MAYBE if exchange.sent else Sent.NO
        if isinstance(error, TimeoutError):
            limit = self._timeouts.connect if isinstance(error, aiohttp.ConnectionTimeoutError) else seconds
            return TimedOut(f"request timed out{'' if limit is None else f' after {limit:g} s'}", sent=sent)
        return describe_failure(error, sent=sent, is_proxied=request.proxy is not None)

    def _send(self, request: WireRequest, exchange: Exchange) -> Awaitable[aiohttp.ClientResponse]:
        return self._client.request(
            request.method,
            URL(request.url, encoded=True),
            headers=request.headers,
            data=exchange.payload(request.body),
            allow_redirects=False,
            proxy=request.proxy,
            middlewares=(exchange,),
        )

    async def _close_connection(self, response: aiohttp.ClientResponse) -> None:
        """Close a connection and wait until it is closed, so that the service can accept another."""
        self._streams.discard(response)
        protocol = _protocol(response)
        closed = None if protocol is None else protocol.closed
        response.close()
        if closed is not None:
            await asyncio.wait([closed])

    def check_open(self) -> None:
        """Check that requests can be sent, before one waits for its turn.

        Raises:
            WrongState: the transport or the connector of the caller was closed, or it was opened in another event loop.
        """
        self._check_not_closed()
        if asyncio.get_running_loop() is not self.loop:
            raise WrongState(OTHER_LOOP)

    def is_closed(self) -> bool:
        """Return whether the transport was closed, or the connector of the caller, so that nothing can be sent."""
        return self._was_closed or self._client.closed

    def _check_not_closed(self) -> None:
        if self.is_closed():  # meanwhile
            raise WrongState(_CLOSED if self._was_closed else _CONNECTOR_CLOSED)


def _protocol(response: aiohttp.ClientResponse) -> ResponseHandler | None:
    return None if response.connection is None else response.connection.protocol


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes | UnexpectedAnswer:
    """Read a body block by block, since a small compressed one may become very large; return it, or what is wrong."""
    most = most if response.ok else min(most, _MAX_REFUSAL_BYTES)
    blocks: list[bytes] = []
    size = 0
    try:
        while block := await response.content.readany():
            blocks.append(block)
            size += len(block)
            if size > most:
                return _unusable_body(response, blocks, f"the answer has more than max_answer_bytes={most:,} bytes")
    except (aiohttp.ClientError, OSError) as error:
        return _unusable_body(response, blocks, describe_unreadable_body(error), may_help=True)
    return b"".join(blocks)


def _unusable_body(
    response: aiohttp.ClientResponse, blocks: Sequence[bytes], problem: str, *, may_help: bool = False
) -> bytes | UnexpectedAnswer:
    if not response.ok:
        return b""  # the status is enough for a refusal
    body = bytearray()
    for block in blocks:
        body += block[: _MAX_REFUSAL_BYTES - len(body)]
    return UnexpectedAnswer(
        problem, status=response.status, headers=response.headers, body=bytes(body), repeatable=may_help
    )
