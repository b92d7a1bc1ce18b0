"""Requests to customers' servers: where they may go, their signature, verdict and latency.

The code that signs is shared with no receiver.
"""

import asyncio
import base64
import errno
import hashlib
import hmac
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from datetime import datetime
from enum import StrEnum
from inspect import signature
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from types import MappingProxyType
from typing import Any, Protocol, cast
from urllib.parse import unquote, urlsplit

import aiohttp
import attrs
from yarl import URL

from svc_async.sandbox.clock import Clock
from svc_async.sandbox.kinds import WrongArgument
from svc_async.wire.dialect import Dialect

__all__ = [
    "AsgiApp",
    "Attempt",
    "DeliveryTargets",
    "Outbound",
    "Receiver",
    "Signer",
    "Target",
    "TargetAnswer",
    "TargetRequest",
    "UnmappedUrl",
    "Verdict",
    "is_public",
    "sign",
]

_NAT64 = IPv6Network("64:ff9b::/96")
_LOCAL = (IPv6Network("64:ff9b:1::/48"), IPv6Network("::/96"))
"""Translated within a network (RFC 8215), and IPv4-compatible; not all versions of `ipaddress` know these."""
_LAST_32_BITS = 2**32 - 1


def is_public(address: str) -> bool:
    """Return whether an address, and the IPv4 address that it may contain, is reachable from everywhere."""
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv4Address):
        return _is_global(ip)
    if ip.ipv4_mapped is not None:
        return _is_global(ip.ipv4_mapped)
    return _is_global(ip) and not any(ip in each for each in _LOCAL) and all(map(_is_global, _list_contained(ip)))


def make_socket_factory(may_reach: Callable[[str], bool]) -> Callable[[tuple[Any, ...]], socket.socket]:
    """Return a function that opens a socket for an entry of `getaddrinfo()`.

    It sees the very address that is connected to, so no name that resolves to another one next time gets past it.
    """

    def open_socket(entry: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, address = entry
        if not may_reach(address[0]):
            raise PermissionError(errno.EACCES, "the address is not public")
        return socket.socket(family, kind, protocol)

    return open_socket


def _is_global(ip: IPv4Address | IPv6Address) -> bool:
    return ip.is_global and not ip.is_multicast


def _list_contained(ip: IPv6Address) -> list[IPv4Address]:
    """Return the IPv4 addresses to which a gateway may forward."""
    translated = IPv4Address(int(ip) & _LAST_32_BITS) if ip in _NAT64 else None
    server, client = ip.teredo or (None, None)
    return [found for found in (ip.sixtofour, server, client, translated) if found is not None]


_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_REFUSED = frozenset({errno.ECONNREFUSED, None})  # None: all addresses of a name have refused
_READ_AT_MOST = 1024 * 1024
_NO_TARGET = (
    "must be an object with handle(), an ASGI application or an http address on loopback; pass "
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
            WrongArgument: the target is not of one of the three kinds, or its address is not http on loopback.
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
        raise WrongArgument("target", _NO_TARGET)


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
        raise WrongArgument("target", "must be http on loopback, such as http://127.0.0.1:9000/hook")


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


def sign(secret: str, message: bytes) -> str:
    """Return `sha256=` and the base64 of the HMAC-SHA256 (ASM-37); the answer to a check signs its token."""
    return "sha256=" + base64.b64encode(hmac.digest(secret.encode(), message, hashlib.sha256)).decode()


@attrs.frozen(kw_only=True)
class Signer:
    """Writes the signature header (WH-40b).

    Attributes:
        dialect: the words of the service, if they are not those of the contract.
    """

    consumer_secret: str = attrs.field(repr=False)
    dialect: Dialect | None = None

    def sign_headers(self, message: bytes, *, secret: str | None = None) -> dict[str, str]:
        """Return the header for a message; `secret` replaces the right one."""
        # Unspecified: that the consumer secret signs, and no second secret in a header of its own (ASM-25, ASM-38).
        headers = {"x-svc-webhooks-signature": sign(secret or self.consumer_secret, message)}
        return headers if self.dialect is None else self.dialect.write_headers(headers)


_log = logging.getLogger(__name__)


class Verdict(StrEnum):
    """The classification of an answer, or of its absence."""

    OK = "ok"
    WRONG_TOKEN = "wrong token"  # noqa: S105 the name of a verdict
    NOT_200 = "2XX other than 200"
    REDIRECT = "3XX"
    TLS = "TLS error"
    CLIENT_ERROR = "4XX"
    SERVER_ERROR = "5XX"
    TIMEOUT = "timeout"
    CLOSED = "closed"
    UNMAPPED = "no delivery mapping"


@attrs.frozen(kw_only=True)
class Attempt:
    """A check or a delivery as it was sent, and its outcome.

    Attributes:
        time: when it was sent.
        occasion: `creation`, `put` or `every_30_minutes` for a check; the number of the attempt for a delivery.
        status: None without an answer.
        latency: seconds on the sandbox's clock.
        rule: the rule that the verdict rests on.
        reason: a description, if there is no answer; the beginning of the body, if the answer is a refusal.
    """

    time: datetime
    occasion: str
    method: str
    url: str
    query: str = ""
    headers: Mapping[str, str] = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)
    status: int | None = None
    answer_headers: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)
    answer_body: bytes = attrs.field(default=b"", repr=False)
    latency: float
    verdict: Verdict
    rule: str
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.verdict is Verdict.OK


_BY_CLASS: Mapping[int, Verdict] = MappingProxyType({3: Verdict.REDIRECT, 4: Verdict.CLIENT_ERROR})
_SUCCESS = 2
_SHOWN = 200  # characters of the body of a refusal
_LONGEST_LETTER = 4  # bytes in UTF-8


@attrs.frozen
class Outbound:
    """Sends requests to customers' servers."""

    clock: Clock
    targets: DeliveryTargets

    async def send(
        self,
        sent: TargetRequest,
        *,
        occasion: str,
        max_wait: float,
        accept: Callable[[TargetAnswer], Verdict],
        rules: Mapping[Verdict, str],
    ) -> Attempt:
        """Send a request, wait for the answer and classify it.

        Args:
            sent: the request.
            occasion: why it is sent, for the record.
            max_wait: seconds on the clock.
            accept: classifies a 2XX answer.
            rules: the rule that each verdict rests on.
        """
        time, began = self.clock.now(), self.clock.monotonic()
        answer, verdict, reason = await self._exchange(sent, max_wait)
        if answer is not None:
            hundreds = answer.status // 100
            verdict = accept(answer) if hundreds == _SUCCESS else _BY_CLASS.get(hundreds, Verdict.SERVER_ERROR)
            reason = "" if hundreds == _SUCCESS else _read_reason(answer.body)
        return Attempt(
            time=time,
            occasion=occasion,
            method=sent.method,
            url=sent.url,
            query=sent.query,
            headers=sent.headers,
            body=sent.body,
            status=None if answer is None else answer.status,
            answer_headers={} if answer is None else answer.headers,
            answer_body=b"" if answer is None else answer.body,
            latency=self.clock.monotonic() - began,
            verdict=verdict,
            rule=rules[verdict],
            reason=reason,
        )

    async def _exchange(self, sent: TargetRequest, max_wait: float) -> tuple[TargetAnswer | None, Verdict, str]:
        try:
            async with self.clock.timeout(max_wait):
                return await self.targets.send(sent), Verdict.OK, ""
        except TimeoutError:
            return None, Verdict.TIMEOUT, f"no answer within {max_wait:g} s"
        except ssl.SSLError as error:
            return None, Verdict.TLS, str(error)
        except ConnectionError as error:
            return None, Verdict.CLOSED, str(error)
        except UnmappedUrl as error:
            return None, Verdict.UNMAPPED, str(error)
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001 a receiver that breaks is a server that answers 500
            _log.exception("a target in this process failed")
            return TargetAnswer(500), Verdict.SERVER_ERROR, ""


def _read_reason(body: bytes) -> str:
    """Return the beginning of a body on one line, without what a terminal obeys."""
    text = body[: _SHOWN * _LONGEST_LETTER].decode("utf-8", "replace")
    line = " ".join(text.split())
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in line)[:_SHOWN]
