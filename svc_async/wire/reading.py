"""Decodes answers into models in two readings, which agree on everything that both accept.

The fast reading decodes bytes directly into attrs models; it is strict in types and drops unknown fields. An answer
that it rejects goes to the tolerant reading. That one accepts a record in an array of one, ids sent as numbers, numbers
sent as strings and datetimes without a time zone; it selects the model of a union by its `type`, and can keep unknown
fields in `Record.extra`.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache, lru_cache
from types import UnionType
from typing import Any, Generic, TypeVar, Union, cast, get_args, get_origin
from urllib.parse import parse_qsl

import attrs
import cattrs
import msgspec
from cattrs.gen import make_dict_structure_fn

from svc_async.errors import UnexpectedAnswer
from svc_async.wire.envelope import NOT_JSON, Answer, Page
from svc_async.wire.records import Record
from svc_async.wire.route import Reply, Request

__all__ = ["Reader", "read_as"]

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Reader:
    """Decodes answers of success.

    Attributes:
        keep_unknown: fill `Record.extra`, at the cost of the slower reading.
        request_id_header: the header with the server-assigned request id, if there is one.
    """

    keep_unknown: bool = False
    request_id_header: str | None = None

    def read(self, request: Request[T], answer: Answer) -> T:
        """Return the value of an answer.

        Raises:
            UnexpectedAnswer: the body is not JSON or does not fit the type of the operation.
        """
        if request.reply is Reply.UNSTATED:
            return self._read_if_possible(request, answer)
        if request.reply is Reply.FORM:
            return self._read_form(request, answer)
        try:
            return cast(T, self._read_fast(request, answer.body))
        except msgspec.ValidationError:
            pass  # valid JSON of another form
        except NOT_JSON:
            raise self._unexpected(answer, _not_encoded_as("JSON", answer)) from None
        try:
            return cast(T, _tolerant(self.keep_unknown).read(request, answer.body))
        except NOT_JSON:
            raise self._unexpected(answer, _not_encoded_as("JSON", answer)) from None
        except (cattrs.BaseValidationError, _UnexpectedShape) as error:
            raise self._unexpected(answer, f"the answer does not fit: {_describe_misfit(error)}") from None

    def _read_fast(self, request: Request[Any], body: bytes) -> Any:
        if request.into is None and request.reply is Reply.BODY:
            return msgspec.json.decode(body) if body.strip() else None
        decoder = None if self.keep_unknown else _decoder(request.reply, request.into)
        if decoder is None:
            raise msgspec.ValidationError
        return _UNWRAP[request.reply](decoder.decode(body))

    def _read_if_possible(self, request: Request[T], answer: Answer) -> T:
        try:
            return self.read(attrs.evolve(request, reply=Reply.RECORD), answer)
        except UnexpectedAnswer:
            return cast(T, None)  # the type of such an operation includes None

    def _read_form(self, request: Request[T], answer: Answer) -> T:
        # The reference lists these answers as JSON, although its samples are form-encoded (contract AUTH-08).
        if answer.body.lstrip().startswith(b"{"):
            return self.read(attrs.evolve(request, reply=Reply.BODY), answer)
        try:
            fields = dict(parse_qsl(answer.body.decode("ascii"), strict_parsing=True))
        except ValueError:
            raise self._unexpected(answer, _not_encoded_as("form-encoded", answer)) from None
        return self.read(
            attrs.evolve(request, reply=Reply.BODY), attrs.evolve(answer, body=msgspec.json.encode(fields))
        )

    def _unexpected(self, answer: Answer, message: str) -> UnexpectedAnswer:
        return UnexpectedAnswer(
            message,
            status=answer.status,
            headers=answer.headers,
            request_id=answer.request_id(self.request_id_header),
        )


def read_as(into: type[T], value: object) -> T:
    """Convert a plain value inside a record, such as a snapshot of another record, to a model.

    Raises:
        UnexpectedAnswer: the value does not fit.
    """
    try:
        return _tolerant(keep_unknown=False).converter.structure(value, into)
    except cattrs.BaseValidationError as error:
        raise UnexpectedAnswer(f"the value does not fit: {_describe_misfit(error)}", status=200) from None


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
    Reply.PAGE: lambda body: Page(items=body.data, next_cursor=body.next_cursor, total_count=body.total_count),
    Reply.META_PAGE: lambda body: Page(items=body.data, next_cursor=body.meta.next_token),
    Reply.BODY: lambda body: body,
}


def _body_type(reply: Reply, into: Any) -> Any:
    value = Any if into is None else into
    shapes: Mapping[Reply, Any] = {
        Reply.RECORD: _RecordBody,
        Reply.PAGE: _PageBody,
        Reply.META_PAGE: _MetaPageBody,
    }
    return value if reply is Reply.BODY else shapes[reply][value]


@lru_cache(maxsize=1024)  # a caller's own models come and go
def _decoder(reply: Reply, into: Any) -> msgspec.json.Decoder[Any] | None:
    try:
        return msgspec.json.Decoder(_body_type(reply, into))
    except TypeError:
        return None  # msgspec has no unions of attrs models


_WITH_DATA = frozenset({Reply.RECORD, Reply.PAGE})


class _UnexpectedShape(Exception):
    """The envelope of an answer is not the expected one."""


@attrs.frozen
class _Tolerant:
    """The second reading, from plain values."""

    converter: cattrs.Converter

    def read(self, request: Request[Any], raw: bytes) -> Any:
        body = msgspec.json.decode(raw)
        if not isinstance(body, Mapping) or (request.reply in _WITH_DATA and "data" not in body):
            raise _UnexpectedShape("it has no `data`")
        if request.reply is Reply.RECORD:
            body = {"data": _unwrap_single(body["data"])}
        return _UNWRAP[request.reply](self.converter.structure(body, _body_type(request.reply, request.into)))


def _unwrap_single(data: Any) -> Any:
    if not isinstance(data, list):
        return data
    if len(data) != 1:
        raise _UnexpectedShape(f"it contains {len(data)} records instead of one")
    return data[0]


@cache
def _tolerant(keep_unknown: bool) -> _Tolerant:  # noqa: FBT001 - a cache key
    converter = cattrs.Converter()
    # By default cattrs calls the type, so that null becomes "None" and "false" becomes True.
    converter.register_structure_hook(str, _to_str)
    converter.register_structure_hook(int, _to_int)
    converter.register_structure_hook(float, _to_float)
    converter.register_structure_hook(bool, _to_bool)
    converter.register_structure_hook(datetime, _to_datetime)
    converter.register_structure_hook_factory(
        lambda kind: len(_models_by_type(kind)) > 1, lambda kind: _structure_by_type(_models_by_type(kind), converter)
    )
    if keep_unknown:
        converter.register_structure_hook_factory(
            lambda kind: isinstance(kind, type) and issubclass(kind, Record),
            lambda kind: _structure_keeping_unknown(kind, make_dict_structure_fn(kind, converter)),
        )
    return _Tolerant(converter)


def _models_by_type(kind: Any) -> Mapping[str, type[Any]]:
    """Return the models of a union by the default of their field `type`."""
    members = [member for member in get_args(kind) if attrs.has(member)]
    if get_origin(kind) not in {Union, UnionType} or len(members) == 1:
        return {}
    return {str(attrs.fields(member).type.default): member for member in members}


def _structure_by_type(models: Mapping[str, type[Any]], converter: cattrs.Converter) -> Callable[[Any, Any], Any]:
    def structure(value: Any, _: Any) -> Any:
        if not isinstance(value, Mapping):
            raise TypeError
        model = models.get(str(value.get("type")))
        return converter.structure(value, model) if model else value  # an unknown type is left unchanged

    return structure


def _structure_keeping_unknown(
    kind: type[Record], structure: Callable[[Any, Any], Record]
) -> Callable[[Any, Any], Record]:
    known = {field.name for field in attrs.fields(cast(Any, kind))}

    def keep(value: Any, target: Any) -> Record:
        record = structure(value, target)
        record.keep({name: value[name] for name in value.keys() - known})
        return record

    return keep


def _to_str(value: Any, kind: type[str]) -> str:
    return kind(value if isinstance(value, str) else _to_int(value, int))  # this hook is called for StrEnums as well


def _to_int(value: Any, _: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError
    return int(value)


def _to_float(value: Any, _: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    return float(value)


def _to_bool(value: Any, _: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _to_datetime(value: Any, _: Any) -> datetime:
    if not isinstance(value, str):
        raise TypeError
    time = datetime.fromisoformat(value)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _not_encoded_as(wanted: str, answer: Answer) -> str:
    kind = answer.headers.get("content-type", "no content type")
    return f"the answer is not {wanted} ({kind}, {len(answer.body)} bytes)"


def _describe_misfit(error: cattrs.BaseValidationError | _UnexpectedShape) -> str:
    if isinstance(error, _UnexpectedShape):
        return str(error)
    return "; ".join(cattrs.transform_error(error)[:3])
