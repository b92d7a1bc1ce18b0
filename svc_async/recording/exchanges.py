"""A request and its answer as one line of JSON, without secrets and personal values."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Self

import attrs
import msgspec

from svc_async.recording.hiding import NotJson, Replace, hide_headers, hide_json, hide_pairs, hide_path, is_field
from svc_async.wire.route import FORM, Blocks

__all__ = ["LARGE", "BegunRequest", "Content", "LargeBody", "RecordedAnswer", "RecordedExchange", "RecordedRequest"]

LARGE: Final = 2**16
"""The bytes of the longest body of a request that is kept whole."""
_LARGE_ANSWER: Final = 2**22
"""Those of an answer: what a program does next depends on it."""
_NOTHING: Final = msgspec.Raw()


@attrs.frozen(kw_only=True)
class BegunRequest:
    """A request as it goes over the wire, before it is answered.

    Attributes:
        position: in the order in which requests are begun, from 0.
        at: when.
        path: the path after that of the base URL, with its query.
        scope: the ids in the path by their names.
        hidden_segments: how many segments at the end of the path may be others.
    """

    position: int
    at: datetime
    method: str
    surface: str
    path: str = attrs.field(repr=False)
    scope: Mapping[str, str] = attrs.field(repr=False)
    hidden_segments: int
    headers: Mapping[str, str] = attrs.field(repr=False)
    body: bytes | Blocks | None = attrs.field(repr=False)


class LargeBody(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """What is kept of a large body.

    Attributes:
        size: its bytes.
        counts: how many elements its arrays have, by where they are; all of one place together.
        first: the body with the first element of each array only, such as the first operation with its first user.
    """

    size: int
    counts: dict[str, int] = {}
    first: msgspec.Raw = _NOTHING


class Content(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """Headers and a body, which is in one of three forms.

    Attributes:
        json: a body of JSON.
        text: a form, or what stands in place of a body that is something else.
        large: what is kept of a large body.
    """

    headers: dict[str, str]
    json: msgspec.Raw = _NOTHING
    text: str = ""
    large: LargeBody | None = None

    @classmethod
    def hide(cls, headers: Mapping[str, str], body: bytes | Blocks | None, replace: Replace, *, most: int) -> Self:
        """Return headers and a body in which values are replaced; it is a large one from `most` bytes on."""
        hidden = hide_headers(headers, replace)
        size = body.size if isinstance(body, Blocks) else len(body or b"")
        whole = b"".join(body.blocks) if isinstance(body, Blocks) else body or b""
        if size > most:
            return cls(headers=hidden, large=_shorten(whole, replace))
        if hidden.get("content-type", "").startswith(FORM):
            return cls(headers=hidden, text=hide_pairs(whole.decode("latin-1"), replace))
        try:
            return cls(headers=hidden, json=_hide_body(whole, replace) if whole else _NOTHING)
        except NotJson:
            return cls(headers=hidden, text=replace("body", whole.decode("latin-1")))


def _hide_body(body: bytes, replace: Replace) -> msgspec.Raw:
    hidden = hide_json(body.decode("utf-8", "surrogateescape"), replace).encode("ascii", "replace")
    try:
        return msgspec.json.decode(hidden, type=msgspec.Raw)  # which is what the file can hold
    except (msgspec.DecodeError, RecursionError):
        raise NotJson from None


def _shorten(body: bytes, replace: Replace) -> LargeBody:
    counts: Counter[str] = Counter()
    try:
        first = _hide_body(msgspec.json.encode(_take_first(msgspec.json.decode(body), "", counts)), replace)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, NotJson):
        return LargeBody(size=len(body))
    return LargeBody(size=len(body), counts=dict(counts), first=first)


def _take_first(value: Any, place: str, counts: Counter[str]) -> Any:
    """Return a value with the first element of each array, and count the elements of all."""
    if isinstance(value, dict):
        return {
            name: _take_first(each, f"{place}.{name if is_field(name) else '*'}".lstrip("."), counts)
            for name, each in value.items()
        }
    if not isinstance(value, list):
        return value
    counts[f"{place}[]"] += len(value)
    return [_take_first(each, f"{place}[]", counts) for each in value][:1]


class RecordedRequest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """What was begun.

    Attributes:
        surface: the host.
    """

    method: str
    surface: str
    path: str
    query: str = ""
    content: Content

    @classmethod
    def of(cls, begun: BegunRequest, replace: Replace) -> Self:
        """Return a request in which values are replaced."""
        path, _, query = begun.path.partition("?")
        path = hide_path(path, begun.scope, replace, hidden=begun.hidden_segments)
        query = hide_pairs(query, replace)
        content = Content.hide(begun.headers, begun.body, replace, most=LARGE)
        return cls(method=begun.method, surface=begun.surface, path=path, query=query, content=content)


class RecordedAnswer(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """What was answered.

    Attributes:
        is_stream: whether it is that of a stream, of which nothing else is recorded.
        is_cut: whether its body was cut off, or too large; nothing of it is recorded.
    """

    status: Annotated[int, msgspec.Meta(ge=200, le=999)]
    is_stream: bool = False
    is_cut: bool = False
    content: Content

    @classmethod
    def of(
        cls, status: int, headers: Mapping[str, str], body: bytes, replace: Replace, *, is_stream: bool, is_cut: bool
    ) -> Self:
        """Return an answer in which values are replaced."""
        content = Content.hide(headers, b"" if is_cut else body, replace, most=_LARGE_ANSWER)
        if content.text and body.lstrip().startswith(b"<"):  # a page stays one, as errors read its title
            content = msgspec.structs.replace(content, text=f"<title>{content.text}</title>")
        return cls(status=status, is_stream=is_stream, is_cut=is_cut, content=content)


class RecordedExchange(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """One request, and its answer or how it failed.

    Attributes:
        position: in the order in which requests were begun, from 0.
        at: when.
        answer: None if none arrived.
        failure: the class of the error then.
        was_sent: whether the request may have arrived.
        digits: how long the numbers are that are replaced here for the first time.
    """

    position: int
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    request: RecordedRequest
    answer: RecordedAnswer | None = None
    failure: str = ""
    was_sent: bool = True
    digits: dict[str, int] = {}
