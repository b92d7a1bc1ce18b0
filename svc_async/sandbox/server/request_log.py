"""The latest requests that the sandbox received, in order, with their secrets masked."""

import asyncio
import re
from collections.abc import Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote_plus

import attrs

from svc_async.sandbox.state.ring import Ring

__all__ = ["KeptBodies", "LoggedRequest", "RequestLog", "mask_fields", "mask_headers", "mask_query", "mask_url"]

_SECRETS = ("oauth_signature", "oauth_token", "oauth_verifier")
_QUERY_SECRETS = frozenset(
    (
        *_SECRETS,
        "access_token",
        "client_secret",
        "code",
        "code_verifier",
        "oauth_token_secret",
        "password",
        "refresh_token",
        "token",
    )
)
_JSON_SECRETS = _QUERY_SECRETS - {"code"}  # there it is the code of an error
_IN_HEADER = re.compile(rf'\b((?:{"|".join(_SECRETS)})=")[^"]*')
_MASKED_HEADERS = ("cookie", "proxy-authorization", "set-cookie")


def mask_query(query: str) -> str:
    """Return a query string, or a form, without the values of its secrets."""
    return "&".join(map(_mask_pair, query.split("&")))


def _mask_pair(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    return f"{name}=***" if equals and unquote_plus(name) in _QUERY_SECRETS else pair


def mask_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers without secrets; their names are in lower case."""
    masked = {name.lower(): value for name, value in headers.items()}
    masked |= {name: "***" for name in _MASKED_HEADERS if name in masked}
    if (authorization := masked.get("authorization")) is not None:
        masked["authorization"] = _mask_authorization(authorization)
    if (location := masked.get("location")) is not None:
        masked["location"] = mask_url(location)
    return masked


def mask_url(url: str) -> str:
    """Return a URL without the secrets in its query."""
    path, mark, query = url.partition("?")
    return f"{path}{mark}{mask_query(query)}"


def mask_fields(value: Any) -> Any:
    """Return a JSON value without the secrets in its objects."""
    if isinstance(value, dict):
        return {name: "***" if name in _JSON_SECRETS else mask_fields(inner) for name, inner in value.items()}
    return [mask_fields(inner) for inner in value] if isinstance(value, list) else value


def _mask_authorization(header: str) -> str:
    scheme = header.partition(" ")[0]
    return _IN_HEADER.sub(r"\1***", header) if scheme.lower() == "oauth" else f"{scheme} ***"


_LONGEST = 1024 * 1024
"""Bytes of one body that are kept."""

_OVERHEAD = 500
"""Bytes that the objects of one entry take, about."""


@attrs.frozen(kw_only=True)
class LoggedRequest:
    """One request and its outcome.

    Attributes:
        headers: names in lower case; signatures and tokens are masked.
        size: of the body, in bytes.
        body: the body, if the sandbox keeps bodies.
        status: None until it is answered, and for good if the answer was withheld.
        operation: the contract's id of the operation; empty if there is none.
        reason: why it was refused; empty if it was not.
        faults: the names of the injected faults that took part.
        seconds: how long it took on the sandbox's clock; None until it is over.
    """

    number: int
    time: datetime
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    size: int = 0
    body: bytes | None = attrs.field(default=None, repr=False)
    status: int | None = None
    operation: str = ""
    basis: str = ""
    rule: str = ""
    reason: str = ""
    faults: tuple[str, ...] = ()
    seconds: float | None = None

    @property
    def fault(self) -> bool:
        """Whether an injected fault took part."""
        return bool(self.faults)


def _cut(body: bytes) -> bytes:
    return body[:_LONGEST]


@attrs.frozen(kw_only=True)
class KeptBodies:
    """The bodies of one request and of its answer.

    Attributes:
        answer: what was sent; None until then, and for good if nothing was.
        answer_headers: without those that every answer has.
    """

    request: bytes = attrs.field(repr=False, converter=_cut)
    answer: bytes | None = attrs.field(default=None, repr=False, converter=attrs.converters.optional(_cut))
    answer_type: str = ""
    answer_headers: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)

    @property
    def size(self) -> int:
        """The bytes that they take, about."""
        return _OVERHEAD + len(self.request) + len(self.answer or b"")


class RequestLog(Ring[LoggedRequest]):
    """The latest requests; each is logged as soon as it has arrived.

    Args:
        size: how many are kept.
        bodies: for the latest of them, the bytes of bodies that are kept; they are references, no copies.
    """

    def __init__(self, size: int, *, bodies: int = 0) -> None:
        super().__init__(size)
        self._waiting: list[asyncio.Future[None]] = []
        self._bodies: dict[int, KeptBodies] = {}
        self._room = bodies

    def matching(self, route: str = "*", *, method: str | None = None, answered: bool = False) -> list[LoggedRequest]:
        """Return the requests whose path matches a pattern such as `*/custom_audiences/*/users`."""
        return [
            entry
            for entry in self
            if fnmatchcase(entry.path, route)
            and method in (None, entry.method)
            and (entry.status is not None or not answered)
        ]

    def count(self, route: str = "*", *, method: str | None = None, answered: bool = False) -> int:
        """Count the requests whose path matches a pattern."""
        return len(self.matching(route, method=method, answered=answered))

    async def wait(
        self, *, count: int = 1, route: str = "*", method: str | None = None, answered: bool = False
    ) -> list[LoggedRequest]:
        """Wait until `count` requests have arrived, or were answered, and return them."""
        while len(found := self.matching(route, method=method, answered=answered)) < count:
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(changed)
            await changed
        return found

    def add(self, entry: LoggedRequest) -> None:
        """Log a request."""
        self.append(entry)
        self._wake()

    def update(self, entry: LoggedRequest) -> None:
        """Replace a logged request by its present outcome."""
        self.replace(entry.number, entry)
        self._wake()

    def find_bodies(self, number: int) -> KeptBodies | None:
        """Return the bodies of a request and its answer, unless they were dropped."""
        return self._bodies.get(number)

    def keep_bodies(self, number: int, bodies: KeptBodies) -> None:
        """Keep the bodies of a request, and drop the oldest ones for which there is no room."""
        if number < self.begin:
            return  # the log was cleared meanwhile
        known = self._bodies.get(number)
        if known is not None:
            self._room += known.size
        self._bodies[number] = bodies
        self._room -= bodies.size
        while self._room < 0 and self._bodies:
            self._room += self._bodies.pop(next(iter(self._bodies))).size

    def clear(self) -> None:
        """Drop all requests; the numbers continue."""
        super().clear()
        self._room += sum(bodies.size for bodies in self._bodies.values())
        self._bodies.clear()
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
