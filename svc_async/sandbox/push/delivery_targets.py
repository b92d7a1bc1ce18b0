"""Delivery targets: what receives the requests to a registered URL.

A registered URL is https without a port, which no receiver on this machine can serve. So a URL is mapped to a target:
an object with `handle()`, an ASGI application, or an http address on loopback. Requests to other
URLs do not leave the machine, unless the configuration allows egress: then they reach public addresses.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from inspect import signature
from typing import Any, Protocol, cast
from urllib.parse import unquote, urlsplit

import aiohttp
import attrs
from yarl import URL

from svc_async.sandbox.push.egress import is_public, make_socket_factory

__all__ = ["AsgiApp", "DeliveryTargets", "Receiver", "Target", "TargetAnswer", "TargetRequest", "UnmappedUrl"]

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_REFUSED = frozenset({errno.ECONNREFUSED, None})  # None: all addresses of a name have refused
_READ_AT_MOST = 1024 * 1024
_NO_TARGET = (
    "a target is an object with handle(), an ASGI application or an http address on loopback; pass "
    "receiver or receiver.asgi(), with the parentheses"
)


@attrs.frozen(kw_only=True)
class TargetRequest:
    """A request to a customer's URL, before it is sent."""

    method: str
    url: str
    query: str = ""
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])
    body: bytes = attrs.field(default=b"", repr=False)

    @property
    def raw_query(self) -> str:
        """The query of the URL itself, followed by `query`."""
        return "&".join(filter(None, (urlsplit(self.url).query, self.query)))


@attrs.frozen
class TargetAnswer:
    """The answer of the customer's server."""

    status: int
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])
    body: bytes = attrs.field(default=b"", repr=False)


class Receiver(Protocol):
    """A receiver in this process."""

    async def handle(
        self, method: str, raw_query: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Answer one request."""
        ...


Message = MutableMapping[str, Any]
AsgiApp = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]
Target = Receiver | AsgiApp | str
"""An object with `handle()`, an ASGI application that is already started, or `http://127.0.0.1:port/path`."""

Send = Callable[[TargetRequest], Awaitable[TargetAnswer]]


class UnmappedUrl(Exception):
    """A URL has no delivery target."""


class DeliveryTargets:
    """The delivery targets by the URLs of webhooks.

    Args:
        allow_egress: send requests to URLs without a target over the internet.
        may_reach: whether they may connect to an address.
    """

    def __init__(self, *, allow_egress: bool, may_reach: Callable[[str], bool] = is_public) -> None:
        self._allow_egress = allow_egress
        self._sends: dict[str, Send] = {}
        self._local, self._internet = _Client(None), _Client(make_socket_factory(may_reach))

    def add(self, url: str, target: Target) -> None:
        """Send requests to `url` to `target`.

        Raises:
            ValueError: the address is not http on loopback.
            TypeError: the target is none of the three kinds.
        """
        self._sends[url] = self._send_to(target)

    def remove(self, url: str) -> None:
        """Remove the target of `url`."""
        self._sends.pop(url, None)

    async def send(self, sent: TargetRequest) -> TargetAnswer:
        """Send a request to the target of its URL.

        Raises:
            UnmappedUrl: it has none.
            ConnectionError: the connection was refused, or closed without an answer.
            ssl.SSLError: TLS handshake or certificate verification failed.
        """
        send = self._sends.get(sent.url)
        if send is None and not self._allow_egress:
            raise UnmappedUrl("the sandbox forwards this URL to no receiver")
        return await (send or _send_over_http(self._internet, sent.url.partition("?")[0]))(sent)

    async def close(self) -> None:
        """Close the connections to targets."""
        await self._local.close()
        await self._internet.close()

    def _send_to(self, target: Target) -> Send:
        if isinstance(target, str):
            _check_loopback(target)
            return _send_over_http(self._local, target)
        handle = getattr(target, "handle", None)
        if callable(handle) and not isinstance(target, type):
            return _send_in_process(cast("Callable[..., Any]", handle))
        if callable(target) and _can_serve(target):
            return _send_to_asgi(target)
        raise TypeError(_NO_TARGET)


@attrs.define(eq=False)
class _Client:
    """A client that is opened on first use."""

    _socket_factory: Callable[[tuple[Any, ...]], socket.socket] | None
    _http: aiohttp.ClientSession | None = None

    def open(self) -> aiohttp.ClientSession:
        if self._http is None:
            # aiohttp would send a check twice if a kept-alive connection dropped.
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(force_close=True, socket_factory=self._socket_factory),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._http

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None


def _send_over_http(client: _Client, address: str) -> Send:
    async def send(sent: TargetRequest) -> TargetAnswer:
        joint = "&" if "?" in address else "?"
        url = URL(f"{address}{joint}{sent.raw_query}" if sent.raw_query else address, encoded=True)
        try:
            return await _request(client.open(), sent, url)
        except aiohttp.ClientSSLError as error:
            raise ssl.SSLError(str(error)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionError(_describe_failure(error, url)) from error

    return send


def _describe_failure(error: Exception, url: URL) -> str:
    """Return why there is no answer, in the words of somebody who looks for the mistake at the receiver."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the host name {url.host} cannot be resolved"
    if isinstance(error, aiohttp.ClientConnectorError) and error.errno in _REFUSED:
        return f"nothing listens at {url.host}:{url.port}"
    if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionResetError):
        return "the connection was closed before an answer"
    return str(error) or type(error).__name__


async def _request(http: aiohttp.ClientSession, sent: TargetRequest, url: URL) -> TargetAnswer:
    skip = () if "content-type" in sent.headers else ("Content-Type",)
    async with http.request(
        sent.method,
        url,
        headers=sent.headers,
        data=sent.body or None,
        allow_redirects=False,
        skip_auto_headers=skip,
    ) as response:
        body = bytearray()
        async for block in response.content.iter_any():
            body += block
            if len(body) > _READ_AT_MOST:
                raise ConnectionError("the answer is too long")
        return TargetAnswer(response.status, _lower_names(response.headers), bytes(body))


def _can_serve(target: Callable[..., object]) -> bool:
    """Return whether it can be called as an ASGI application, or does not tell; a method without () mostly cannot."""
    try:
        signature(target).bind("scope", "receive", "send")
    except TypeError:
        return False
    except ValueError:  # some functions that are written in C have no signature
        return True
    return not isinstance(target, type)


def _check_loopback(address: str) -> None:
    try:
        parts = urlsplit(address)
        is_good = parts.scheme == "http" and parts.hostname in _LOOPBACK and parts.port != 0 and not parts.fragment
    except ValueError:
        is_good = False
    if not is_good:
        raise ValueError("a target's address is http on loopback, such as http://127.0.0.1:9000/hook")


def _send_in_process(handle: Callable[..., Awaitable[tuple[int, Mapping[str, str], bytes]]]) -> Send:
    async def send(sent: TargetRequest) -> TargetAnswer:
        status, headers, body = await handle(sent.method, sent.raw_query, sent.headers, sent.body)
        return TargetAnswer(int(status), _lower_names(headers), bytes(body))

    return send


def _send_to_asgi(app: AsgiApp) -> Send:
    async def send(sent: TargetRequest) -> TargetAnswer:
        exchange = _AsgiExchange(sent.body)
        await app(_make_scope(sent), exchange.receive, exchange.send)
        if exchange.start is None:
            raise ConnectionError("the application sent no answer")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in exchange.start["headers"]}
        return TargetAnswer(exchange.start["status"], _lower_names(headers), bytes(exchange.body))

    return send


@attrs.define(eq=False)
class _AsgiExchange:
    """The server's side of one exchange with an ASGI application."""

    sent: bytes
    start: Message | None = None
    body: bytearray = attrs.field(factory=bytearray)
    _read: bool = False
    _over: asyncio.Event = attrs.field(factory=asyncio.Event)

    async def receive(self) -> Message:
        if not self._read:
            self._read = True
            return {"type": "http.request", "body": self.sent, "more_body": False}
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.start = {"headers": (), **message}
        else:
            self.body += message.get("body", b"")
            if not message.get("more_body", False):
                self._over.set()


def _make_scope(sent: TargetRequest) -> Message:
    parts = urlsplit(sent.url)
    headers = {"host": parts.netloc, "content-length": str(len(sent.body)), **sent.headers}
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": sent.method,
        "scheme": "https",
        "path": unquote(parts.path) or "/",
        "raw_path": parts.path.encode() or b"/",
        "root_path": "",
        "query_string": sent.raw_query.encode(),
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        "client": None,
        "server": (parts.hostname or "", 443),
        "extensions": {},
    }


def _lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
