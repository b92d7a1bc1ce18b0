"""What reads material from outside, by name: each reads an input or refuses it with an error of the library."""

import asyncio
import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, BinaryIO

from svc_async.ads.accounts import Account
from svc_async.auth.oauth2 import parse_token
from svc_async.engine.transport import MAX_ANSWER_BYTES
from svc_async.errors import SvcError
from svc_async.events.parser import EventParser
from svc_async.platform.oauth1_flow import RequestToken
from svc_async.sources.blocks.files import Input
from svc_async.sources.detect import open_feed, open_source
from svc_async.store.database_url import DatabaseUrl
from svc_async.wire.dialect_file import find_mistakes
from svc_async.wire.envelope import Answer, parse_object, parse_refusal
from svc_async.wire.reading import Reader
from svc_async.wire.route import Listing, Reply, Request, Route
from tests.support.dialects import ACME

__all__ = ["TARGETS"]

_NOW = datetime(2026, 1, 2, tzinfo=UTC)
_REQUESTS: Sequence[Request[Any]] = (
    Route("GET", "/12/accounts/{account_id}", Account)(account_id="a"),
    Listing("/12/accounts", Account)(),
    Route("GET", "/12/accounts/{account_id}", None, reply=Reply.BODY)(account_id="a"),
)
_TOKEN = Route("POST", "/oauth/request_token", RequestToken, reply=Reply.FORM)()


class _Content(Input):
    """Bytes in memory, as an input."""

    def __init__(self, content: bytes) -> None:
        self.name = "input"
        self.size = len(content)
        self._content = content

    def open(self) -> BinaryIO:
        return io.BytesIO(self._content)


def _read_users(format_: str, content: bytes) -> None:
    with closing(open_source(_Content(content), format=format_, mapping={"*": "-"})) as source:
        asyncio.run(source.check())
        rows = source.rows().rows
        assert isinstance(rows, Iterable)
        for _ in rows:
            pass


def _read_products(content: bytes) -> None:
    with closing(open_feed(_Content(content), format="xml")) as feed:
        asyncio.run(feed.check())
        for _ in feed.products():
            pass


def _decompress(content: bytes) -> bytes:
    """Return the body of an answer as the transport does: up to its limit."""
    if not content.startswith(b"\x1f\x8b"):
        return content
    with suppress(zlib.error, EOFError, OSError), gzip.open(io.BytesIO(content)) as file:
        return file.read(MAX_ANSWER_BYTES)
    return b""


def _answer(status: int, body: bytes) -> Answer:
    return Answer(status=status, headers={"content-type": "application/json"}, body=body)


def _read_answers(content: bytes) -> None:
    body = _decompress(content)
    for request in _REQUESTS:
        for reader in (Reader(), Reader(keep_unknown=True)):
            with suppress(SvcError):
                reader.read(request, _answer(200, body))
    parse_refusal(_answer(429, body), now=_NOW)


def _read_grants(content: bytes) -> None:
    body = _decompress(content)
    parse_token(parse_object(body), now=_NOW, client_id="client")
    parse_refusal(_answer(400, body), now=_NOW)
    Reader().read(_TOKEN, _answer(200, body))


def _read_events(content: bytes) -> None:
    EventParser().parse(_decompress(content))


def _read_words(content: bytes) -> None:
    body = _decompress(content)
    ACME.read_json(body)
    ACME.serve_json(body)
    find_mistakes(content.decode("utf-8", "replace"))


def _read_url(content: bytes) -> None:
    DatabaseUrl.parse(content.decode("utf-8", "surrogateescape"))


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    "answers": _read_answers,
    "csv": partial(_read_users, "csv"),
    "database_url": _read_url,
    "dialect": _read_words,
    "events": _read_events,
    "json_lines": partial(_read_users, "jsonl"),
    "oauth": _read_grants,
    "parquet": partial(_read_users, "parquet"),
    "xml": _read_products,
}
