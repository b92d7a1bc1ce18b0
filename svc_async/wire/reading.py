"""Decodes answers into models: at once where an answer is to the letter, else with a closer look.

The fast reading decodes bytes directly into attrs models; it is strict in types and drops unknown fields. What it
refuses is decoded to plain values, from which `wire/tolerant.py` builds the models: what does not fit is left out of a
record, and records that do not fit are left out of a page. Only an answer that has no value at all is an error.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Generic, NoReturn, TypeVar, cast
from urllib.parse import parse_qsl

import attrs
import msgspec

from svc_async.errors import UnexpectedAnswer
from svc_async.wire.envelope import NOT_JSON, Answer, Page, Unreadable
from svc_async.wire.models import is_pydantic
from svc_async.wire.route import Reply, Request, Surface
from svc_async.wire.tolerant import MOST_VALUES, Builder, Misfit, decode, has_too_many_values

__all__ = ["OnMisfit", "Reader", "read_as"]

T = TypeVar("T")

OnMisfit = Callable[[str], object]
"""Called with what is left out of a value: the place and the rule, never what came."""


@attrs.frozen(kw_only=True)
class Reader:
    """Decodes answers of success.

    Attributes:
        keep_unknown: keep fields that the models do not have in `Record.extra`, at the cost of the slower reading.
        strict: refuse an answer from which something would be left out.
        request_id_header: the header with the server-assigned request id, if there is one.
    """

    keep_unknown: bool = False
    strict: bool = False
    request_id_header: str | None = None

    def read(self, request: Request[T], answer: Answer, *, on_misfit: OnMisfit | None = None) -> T:
        """Return the value of an answer.

        Raises:
            UnexpectedAnswer: the body is not JSON, or has no value of the type of the operation.
        """
        try:
            return self._read(request, answer, on_misfit)
        except UnexpectedAnswer as error:
            problem = error.with_traceback(None)  # its frames hold what came, perhaps tokens
        problem.__context__ = None
        raise problem

    def _read(self, request: Request[T], answer: Answer, on_misfit: OnMisfit | None) -> T:
        if request.reply is Reply.FORM:
            return self._read_form(request, answer, on_misfit)
        self._check_size(request, answer)
        decoder = None if self.keep_unknown else _decoder(request.reply, request.into)
        try:
            value = _read_fast(request, decoder, answer.body)
        except Exception:  # noqa: BLE001 - code of a caller's model may run; the closer look says what it raised
            value = _CloserLook(self, request, answer, on_misfit or (lambda _: None)).read()
        if request.decides:
            self._refuse_repeated_names(answer)
        return cast(T, value)

    def _check_size(self, request: Request[Any], answer: Answer) -> None:
        """Raise for an answer that is too much work, before anything of it is built.

        A few kilobytes on the wire may be millions of values, and the event loop stands still while they are read.
        """
        if has_too_many_values(answer.body):
            raise self.unexpected(answer, f"the answer has more than {MOST_VALUES:,} values")
        if request.reply in _PAGES and answer.body.count(b"{") > _MOST_RECORDS:
            self.check_count(request, answer, _count_records(answer.body))

    def check_count(self, request: Request[Any], answer: Answer, records: int) -> None:
        """Raise for a page with more records than were asked for, and than any page has."""
        asked = [int(value) for name, value in request.query if name in _SIZES and _SIZE.fullmatch(value)]
        most = max([_MOST_RECORDS, *asked])
        if records > most:
            raise self.unexpected(answer, f"the answer has more than {most:,} records")

    def _refuse_repeated_names(self, answer: Answer) -> None:
        """Raise for an answer in which an object has a name twice: either value may be the right one."""
        try:
            json.loads(answer.body, object_pairs_hook=_check_names)
        except ValueError as error:
            raise self.unexpected(answer, f"the answer does not fit: {error}") from None

    def _read_form(self, request: Request[T], answer: Answer, on_misfit: OnMisfit | None) -> T:
        # The reference lists these answers as JSON, although its samples are form-encoded (contract AUTH-08).
        as_body = attrs.evolve(request, reply=Reply.BODY)
        if answer.body.lstrip().startswith(b"{"):
            return self.read(as_body, answer, on_misfit=on_misfit)
        try:
            text = answer.body.decode("ascii")
            fields = dict(parse_qsl(text, strict_parsing=True, max_num_fields=_MOST_FIELDS))
        except ValueError:
            raise self.unexpected(answer, _not_encoded_as("form-encoded", answer), repeatable=True) from None
        return self.read(as_body, attrs.evolve(answer, body=msgspec.json.encode(fields)), on_misfit=on_misfit)

    def unexpected(self, answer: Answer, message: str, *, repeatable: bool = False) -> UnexpectedAnswer:
        """Return the exception of an answer that cannot be read."""
        return UnexpectedAnswer(
            message,
            status=answer.status,
            headers=answer.headers,
            request_id=answer.request_id(self.request_id_header),
            body=answer.received,
            repeatable=repeatable,
        )


def read_as(into: type[T], value: object) -> T:
    """Convert a plain value inside a record, such as a snapshot of another record, to a model.

    Raises:
        UnexpectedAnswer: the value does not fit.
    """
    try:
        return cast(T, Builder().build(into, value)[0])
    except Misfit as error:
        raise UnexpectedAnswer(f"the value does not fit: {error}", status=200) from None


@attrs.frozen
class _RecordBody(Generic[T]):
    data: T


@attrs.frozen
class _PageBody(Generic[T]):
    data: list[T]
    next_cursor: str | None = None
    total_count: int | None = None


@attrs.frozen
class _Meta:
    next_token: str | None = None


@attrs.frozen
class _MetaPageBody(Generic[T]):
    data: list[T] = attrs.field(factory=list)
    meta: _Meta = _Meta()


_UNWRAP: Mapping[Reply, Callable[[Any], Any]] = {
    Reply.RECORD: lambda body: body.data,
    Reply.UNSTATED: lambda body: body.data,
    Reply.PAGE: lambda body: Page(items=body.data, next_cursor=body.next_cursor or None, total_count=body.total_count),
    Reply.META_PAGE: lambda body: Page(items=body.data, next_cursor=body.meta.next_token or None),
    Reply.BODY: lambda body: body,
}
_BODIES: Mapping[Reply, Any] = {
    Reply.RECORD: _RecordBody,
    Reply.UNSTATED: _RecordBody,
    Reply.PAGE: _PageBody,
    Reply.META_PAGE: _MetaPageBody,
}


@lru_cache(maxsize=1024)  # a caller's own models come and go
def _decoder(reply: Reply, into: Any) -> msgspec.json.Decoder[Any] | None:
    value = Any if into is None else into
    if is_pydantic(into) or getattr(into, "keeps_unknown", False):
        return None
    try:
        return msgspec.json.Decoder(value if reply is Reply.BODY else _BODIES[reply][value])
    except TypeError:
        return None  # msgspec has no unions of attrs models


def _read_fast(request: Request[Any], decoder: msgspec.json.Decoder[Any] | None, body: bytes) -> Any:
    if request.into is None and request.reply is Reply.BODY:
        return msgspec.json.decode(body) if body.strip() else None
    if decoder is None:
        raise msgspec.ValidationError
    return _UNWRAP[request.reply](decoder.decode(body))


@attrs.frozen
class _CloserLook:
    """The second reading of one answer, from plain values."""

    reader: Reader
    request: Request[Any]
    answer: Answer
    on_misfit: OnMisfit

    def read(self) -> Any:
        if self.request.reply is Reply.UNSTATED:
            try:
                return self._build(self._find_record(self._decode()))
            except UnexpectedAnswer as error:
                if self.answer.body.strip():
                    self.on_misfit(str(error))
                return None  # the type of such an operation includes None
        body = self._decode()
        if self.request.reply in _PAGES:
            return self._read_page(body)
        return self._build(body if self.request.reply is Reply.BODY else self._find_record(body))

    def _decode(self) -> Any:
        # A main-API call that is answered with no content is done (contract UNS-webhook-payloads).
        is_command = self.request.surface is Surface.BASE and self.request.method != "GET"
        if is_command and not self.answer.body.strip():
            return {}
        if self.answer.status in _WITHOUT_CONTENT:
            raise self.reader.unexpected(self.answer, "the answer has no content")
        try:
            return decode(self.answer.body)
        except RecursionError:
            raise self.reader.unexpected(self.answer, "the answer is nested too deeply") from None
        except ValueError:
            message = _not_encoded_as("JSON", self.answer)
            raise self.reader.unexpected(self.answer, message, repeatable=True) from None

    def _find_record(self, body: Any) -> Any:
        data = body
        if isinstance(body, Mapping) and "data" in body:
            data = body["data"]
        elif self.request.surface is not Surface.BASE or not isinstance(body, Mapping):
            self._refuse("it has no `data`")
        if isinstance(data, list):
            if len(data) != 1:
                self._refuse(f"it contains {len(data)} records instead of one")
            data = data[0]
        wrapper = self.request.wrapper
        return data[wrapper] if wrapper and isinstance(data, Mapping) and wrapper in data else data

    def _read_page(self, body: Any) -> Page[Any]:
        if isinstance(body, list) and self.request.surface is Surface.BASE:
            body = {"data": body}
        if not isinstance(body, Mapping) or ("data" not in body and self.request.reply is Reply.PAGE):
            self._refuse("it has no `data`")
        records = body.get("data")
        if records is None and self.request.reply is Reply.META_PAGE:
            records = []
        if not isinstance(records, list):
            self._refuse("`data` must be an array")
        self.reader.check_count(self.request, self.answer, len(records))
        items: list[Any] = []
        unreadable: list[Unreadable] = []
        needs_look = self.reader.keep_unknown or _needs_mending(self.answer.body)
        may_be_fast = not needs_look and _decoder(self.request.reply, self.request.into) is not None
        read = self._read_item_fast if may_be_fast else self._read_item
        for position, raw in enumerate(records):
            try:
                items.append(read(raw, f"data[{position}]: "))
            except Misfit as error:
                if self.request.decides:
                    self._refuse(f"data[{position}]: {error}")
                self._leave_out(f"data[{position}] is unreadable: {error}")
                unreadable.append(Unreadable(raw=raw, problem=str(error)))
                if len(unreadable) == _MOST_UNREADABLE:
                    read = self._refuse_item
        return self._make_page(body, items, tuple(unreadable))

    def _make_page(self, body: Mapping[str, Any], items: list[Any], unreadable: tuple[Unreadable, ...]) -> Page[Any]:
        is_meta = self.request.reply is Reply.META_PAGE
        name, source = ("next_token", body.get("meta")) if is_meta else ("next_cursor", body)
        cursor, total = self._read_field(source, name, str), self._read_field(body, "total_count", int)
        has_none = source is None or (isinstance(source, Mapping) and source.get(name) in (None, ""))
        broken = None if cursor or has_none else self.reader.unexpected(self.answer, f"`{name}` must be a string")
        return Page(
            items=items, next_cursor=cursor or None, total_count=total, unreadable=unreadable, broken_cursor=broken
        )

    def _read_field(self, source: Any, name: str, kind: type[T]) -> T | None:
        if not isinstance(source, Mapping | None):
            self._leave_out(f"`{name}` must be in an object")
            return None
        try:
            value = None if source is None else source.get(name)
            return cast(T | None, Builder().build(kind | None, value)[0])
        except Misfit as error:
            self._leave_out(f"`{name}` does not fit: {error}")
            return None

    def _refuse_item(self, raw: Any, place: str) -> Any:  # noqa: ARG002 - in place of `_read_item`
        raise Misfit(_NOT_TRIED)

    def _read_item_fast(self, raw: Any, place: str) -> Any:
        try:
            return msgspec.convert(raw, Any if self.request.into is None else self.request.into)
        except Exception:  # noqa: BLE001 - see `_read`
            return self._read_item(raw, place)

    def _read_item(self, raw: Any, place: str) -> Any:
        if self.request.into is None:
            return raw
        builder = Builder(keep_unknown=self.reader.keep_unknown, strict=self.reader.strict)
        model, left_out = builder.build(self.request.into, raw)
        for each in left_out:
            self.on_misfit(place + each)
        return model

    def _build(self, raw: Any) -> Any:
        try:
            return self._read_item(raw, "")
        except Misfit as error:
            self._refuse(str(error))

    def _leave_out(self, problem: str) -> None:
        if self.reader.strict:
            self._refuse(problem)
        self.on_misfit(problem)

    def _refuse(self, problem: str) -> NoReturn:
        raise self.reader.unexpected(self.answer, f"the answer does not fit: {problem}") from None


_PAGES = frozenset({Reply.PAGE, Reply.META_PAGE})
_MOST_RECORDS = 10_000
"""Records of a page, unless more were asked for; the service's largest page has 1,000."""
_MOST_UNREADABLE = 1_000
_NOT_TRIED = f"{_MOST_UNREADABLE:,} records before it are unreadable"
_MOST_FIELDS = 100
"""Fields of a form-encoded answer."""
_SIZES = frozenset({"count", "max_results"})
"""The parameters that say how many records a page may have."""


@attrs.frozen
class _CountedBody:
    data: Sequence[msgspec.Raw]


_counted_body = msgspec.json.Decoder(_CountedBody)


def _count_records(body: bytes) -> int:
    """Return how many records a page has, without building them; 0 if it is not as it should be."""
    try:
        return len(_counted_body.decode(body).data)
    except NOT_JSON:
        return 0


_WITHOUT_CONTENT = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.RESET_CONTENT})
_SIZE = re.compile(r"\d{1,9}", re.ASCII)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def _needs_mending(body: bytes) -> bool:
    """Return whether a string of the body may have a lone surrogate, or bytes that are not UTF-8."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return True
    return _SURROGATE.search(body) is not None


def _check_names(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a name occurs twice in an object")


def _not_encoded_as(wanted: str, answer: Answer) -> str:
    kind = answer.headers.get("content-type", "no content type")
    return f"the answer is not {wanted} ({kind}, {len(answer.body)} bytes)"
