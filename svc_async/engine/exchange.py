"""One request on one connection of aiohttp: whether the connection may carry it, and whether it was sent.

Between two requests the service has nothing to say. A connection of the pool that was closed meanwhile, or on which
bytes arrived (a load balancer's 408, or a second answer), is not used again: those bytes would be taken for the answer
to the next request. It is checked immediately before a request is written, so that another connection can carry it.
What is still on its way at that moment is indistinguishable from an answer, except that an answer of success never
begins before the request was written.
"""

import select
from collections.abc import Callable
from functools import partial
from weakref import WeakKeyDictionary

import aiohttp
import attrs
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.payload import Payload

from svc_async.wire.route import Blocks

__all__ = ["ConnectionBroken", "ConnectionUnusable", "Exchange", "ObservedRequest", "UsedConnections"]

UsedConnections = WeakKeyDictionary[ResponseHandler, Callable[[], object]]
"""The connections on which a request was sent before; each with a function that returns whether it is readable."""


class ConnectionBroken(Exception):
    """A connection broke. aiohttp would resend a GET, PUT or DELETE if it saw its own exception."""


class ConnectionUnusable(Exception):
    """Nothing was written: the connection was closed, or has bytes that no request asked for.

    Attributes:
        is_used: it comes from the pool, so that another connection may do.
    """

    def __init__(self, *, is_used: bool) -> None:
        super().__init__()
        self.is_used = is_used


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
