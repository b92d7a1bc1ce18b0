"""Builds models from plain values, leaving out of a record what does not fit.

A record takes ids that are sent as numbers, numbers that are sent as strings, and datetimes without a time zone or in
the form of posts. An optional field whose value fits in no way has its default; a required one makes the record
unreadable. What is in no field as it came is in `Record.extra`.
"""

import json
import math
import re
from collections import abc
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, cast, get_args, get_origin

import attrs

from svc_async.printable import replace_surrogates
from svc_async.wire.models import Misfit, find_code_of_caller, is_pydantic, list_model_fields, read_pydantic
from svc_async.wire.records import Record, name_key

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = ["MOST_VALUES", "Builder", "Misfit", "decode", "fits_scalar", "has_too_many_values", "list_models_by_type"]

MOST_VALUES = 1_000_000
"""Values that one JSON text may have: reading as many stops the event loop for some tenths of a second at most."""


def has_too_many_values(body: bytes) -> bool:
    """Return whether JSON may have more values than are read, without reading it.

    Each value but the outermost follows a comma, a colon or an opening bracket. Those in strings count as well.
    """
    return len(body) > MOST_VALUES and sum(map(body.count, (b",", b"[", b"{"))) > MOST_VALUES


def decode(body: bytes) -> Any:
    """Decode JSON as tolerantly as it can be: with lone surrogates, numbers of any size, and bytes that are not UTF-8.

    Such bytes become lone surrogates, as `surrogateescape` has it. A number that Python does not convert becomes a
    string, and so does what JSON does not have, such as NaN.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    try:
        return _load(body)
    except UnicodeDecodeError:
        return _load(body.decode("utf-8-sig", "surrogateescape"))


def _load(text: str | bytes) -> Any:
    return json.loads(text, parse_int=_parse_int, parse_float=_parse_float, parse_constant=str)


def _parse_int(digits: str) -> int | str:
    return int(digits) if len(digits) <= _MAX_DIGITS else digits


def _parse_float(number: str) -> float | str:
    return value if math.isfinite(value := float(number)) else number


_MAX_DIGITS = 4_300  # what Python converts


@attrs.frozen
class Builder:
    """Builds models from plain values.

    Attributes:
        keep_unknown: keep fields that a record's model does not have in `Record.extra`.
        strict: refuse what would be left out.
    """

    keep_unknown: bool = False
    strict: bool = False

    def build(self, kind: Any, value: Any) -> tuple[Any, tuple[str, ...]]:
        """Return the model, and what was left out of it.

        Raises:
            Misfit: a required field is missing or does not fit.
        """
        left_out: list[str] = []
        token = _LEFT_OUT.set(left_out)
        try:
            return _converter(self).structure(value, kind), tuple(left_out)
        except Exception as error:  # noqa: BLE001 - code of a caller's model may run, such as its converters
            raise _describe(error, kind) from None
        finally:
            _LEFT_OUT.reset(token)


_LEFT_OUT: ContextVar[list[str]] = ContextVar("_LEFT_OUT")
"""Of the value that is being built; the hooks of a converter are shared by all values."""


_ARRAYS: Sequence[Any] = (list, tuple, abc.Sequence)
_OBJECTS: Sequence[Any] = (dict, abc.Mapping)


@lru_cache
def _converter(builder: Builder) -> "Converter":
    from cattrs import Converter  # noqa: PLC0415 - most programs receive only answers that fit

    converter = Converter(detailed_validation=False)
    # By default cattrs calls the type, so that null becomes "None", "false" becomes True, and "ab" a list of two.
    for kind, hook in _SCALARS.items():
        converter.register_structure_hook(kind, hook)
    converter.register_structure_hook_factory(
        lambda kind: get_origin(kind) in _ARRAYS, lambda kind: _list_hook(kind, converter)
    )
    converter.register_structure_hook_factory(
        lambda kind: get_origin(kind) in _OBJECTS, lambda kind: _object_hook(kind, converter)
    )
    converter.register_structure_hook_factory(
        lambda kind: len(list_models_by_type(kind)) > 1, lambda kind: _union_hook(kind, builder, converter)
    )
    converter.register_structure_hook_factory(
        lambda kind: isinstance(kind, type) and attrs.has(kind), lambda kind: _ModelHook(kind, builder, converter)
    )
    converter.register_structure_hook_factory(
        lambda kind: isinstance(kind, type) and not attrs.has(kind) and list_model_fields(kind) is not None,
        lambda kind: _plain_model_hook(kind, converter),
    )
    converter.register_structure_hook_factory(is_pydantic, lambda _: _read_pydantic)
    return converter


@attrs.frozen
class _Parts:
    """What has been read of one model."""

    fields: dict[str, Any] = attrs.field(factory=dict[str, Any])
    extra: dict[str, Any] = attrs.field(factory=dict[str, Any])
    problems: list[str] = attrs.field(factory=list[str])


class _ModelHook:
    """Builds one model, field by field."""

    def __init__(self, kind: type[attrs.AttrsInstance], builder: Builder, converter: "Converter") -> None:
        self._kind = kind
        fields = attrs.fields(attrs.resolve_types(kind))
        self._fields = [field for field in fields if field.init and field.name != "_extra"]
        self._is_record = issubclass(kind, Record)
        self._is_tolerant = self._is_record and not builder.strict
        keeps_unknown = issubclass(kind, Record) and (builder.keep_unknown or kind.keeps_unknown)
        self._known = {field.name for field in self._fields} if keeps_unknown else None
        self._converter = converter

    def __call__(self, value: Any, _: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Misfit(f"{_name_model(self._kind)} must be an object")
        parts = _Parts()
        for field in self._fields:
            if field.name in value:
                self._read_field(field, value[field.name], parts)
            elif field.default is attrs.NOTHING:
                parts.problems.append(f"{self._name(field)} is missing")
        if parts.problems:
            raise Misfit("; ".join(parts.problems[:3]))
        if self._known is not None:
            parts.extra.update((name, value[name]) for name in value.keys() - self._known)
        return self._kind(**parts.fields, **({"extra": parts.extra} if parts.extra else {}))

    def _read_field(self, field: "attrs.Attribute[Any]", raw: Any, parts: "_Parts") -> None:
        told = len(_LEFT_OUT.get())
        try:
            read = parts.fields[field.alias or field.name] = self._convert(field, raw)
        except Exception as error:  # noqa: BLE001 - see `build`
            del _LEFT_OUT.get()[told:]
            is_optional = field.default is not attrs.NOTHING
            is_null = raw is None and is_optional  # a way to say that there is no value
            problem = str(_describe(error, field.type, self._name(field)))
            if not (is_null or (self._is_tolerant and is_optional and not field.metadata.get("exact"))):
                parts.problems.append(problem)
                return
            if self._is_record:
                parts.extra[field.name] = raw
            if not is_null:
                _LEFT_OUT.get().append(problem)
            if _may_be_none(field.type):  # its default may say something else, such as True
                parts.fields[field.alias or field.name] = None
        else:
            if self._is_record and _has_other_form(raw, read):
                parts.extra[field.name] = raw

    def _convert(self, field: "attrs.Attribute[Any]", raw: Any) -> Any:
        read = self._converter.structure(raw, cast(Any, field.type))
        if field.metadata.get("exact") and _has_other_form(raw, read):
            raise TypeError
        return read

    def _name(self, field: "attrs.Attribute[Any]") -> str:
        return f"{_name_model(self._kind)}.{field.name}"


def _plain_model_hook(kind: Any, converter: "Converter") -> Callable[[Any, Any], Any]:
    """Return what builds a dataclass, a msgspec.Struct or a TypedDict; nothing is left out of these."""
    fields = list_model_fields(kind) or ()

    def structure(value: Any, _: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Misfit(f"{_name_model(kind)} must be an object")
        problems, read = list[str](), dict[str, Any]()
        for field in fields:
            if field.key in value:
                try:
                    read[field.name] = converter.structure(value[field.key], field.kind)
                except Exception as error:  # noqa: BLE001 - see `build`
                    problems.append(str(_describe(error, field.kind, f"{_name_model(kind)}.{field.key}")))
            elif field.is_required:
                problems.append(f"{_name_model(kind)}.{field.key} is missing")
        if problems:
            raise Misfit("; ".join(problems[:3]))
        return kind(**read)

    return structure


def _read_pydantic(value: Any, kind: Any) -> Any:
    return read_pydantic(kind, replace_surrogates(json.dumps(value, ensure_ascii=False)))


def _name_model(kind: type[Any]) -> str:
    return kind.__name__.lstrip("_")


def _has_other_form(raw: Any, read: Any) -> bool:
    """Return whether a number was read from a string or another kind of number, a string from one, or was mended."""
    if isinstance(raw, list) and isinstance(read, list | tuple):
        return any(map(_has_other_form, raw, read))
    if isinstance(raw, str):
        return isinstance(read, int | float) or (isinstance(read, str) and read != raw)
    return isinstance(raw, int | float) and not isinstance(read, float | type(raw) | list | tuple)


def _may_be_none(kind: Any) -> bool:
    return get_origin(kind) in {Union, UnionType} and type(None) in get_args(kind)


def _list_hook(kind: Any, converter: "Converter") -> Callable[[Any, Any], Any]:
    element = get_args(kind)[0]
    make: Callable[[Any], Sequence[Any]] = tuple if get_origin(kind) is tuple else list

    def structure(value: Any, _: Any) -> Any:
        if not isinstance(value, list):
            raise Misfit("must be an array")
        return make(converter.structure(each, element) for each in value)

    return structure


def _object_hook(kind: Any, converter: "Converter") -> Callable[[Any, Any], Any]:
    _, element = get_args(kind)

    def structure(value: Any, _: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Misfit("must be an object")
        read = dict[str, Any]()
        for position, (name, each) in enumerate(value.items()):
            try:
                read[name] = converter.structure(each, element)
            except Exception as error:  # noqa: BLE001 - see `build`
                raise _describe(error, element, name_key(name, position)) from None
        return read

    return structure


def list_models_by_type(kind: Any) -> Mapping[str, type[Any]]:
    """Return the models of a union by the default of their field `type`."""
    if get_origin(kind) not in {Union, UnionType}:
        return {}
    members = [member for member in get_args(kind) if attrs.has(member)]
    return {str(fields["type"].default): each for each in members if "type" in (fields := attrs.fields_dict(each))}


def _union_hook(kind: Any, builder: Builder, converter: "Converter") -> Callable[[Any, Any], Any]:
    models = list_models_by_type(kind)

    def structure(value: Any, _: Any) -> Any:
        if value is None and _may_be_none(kind):
            return None
        if not isinstance(value, Mapping):
            raise Misfit("must be an object")
        model = models.get(str(value.get("type")))
        if model is None:
            return value  # an unknown type is left unchanged
        try:
            return converter.structure(value, model)
        except Misfit as error:
            if builder.strict:
                raise
            _LEFT_OUT.get().append(f"left as it came: {error}")
            return value

    return structure


_NUMBER = re.compile(r"-?\d{1,300}(\.\d{1,300})?([eE][+-]?\d{1,3})?", re.ASCII)
_INTEGER = re.compile(r"-?\d{1,300}", re.ASCII)
_DATE_OF_POSTS = re.compile(r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) (\d\d) (\d\d:\d\d:\d\d) ([+-]\d{4}) (\d{4})", re.ASCII)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def _to_str(value: Any, kind: type[str]) -> str:
    """Return a string, or the member of an enum of strings."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise TypeError
    return kind(replace_surrogates(value))


def _to_int(value: Any, _: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    return value


def _to_float(value: Any, _: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        raise ValueError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _to_bool(value: Any, _: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _to_datetime(value: Any, _: Any) -> datetime:
    if not isinstance(value, str):
        raise TypeError
    # Unspecified: posts of the advertising API have this form (UNS-post-type-field), all else ISO 8601.
    if match := _DATE_OF_POSTS.fullmatch(value):
        month, day, clock, offset, year = match.groups()
        value = f"{year}-{_MONTHS.index(month) + 1:02}-{day}T{clock}{offset}"
    time = datetime.fromisoformat(value)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


_SCALARS: Mapping[Any, Callable[[Any, Any], Any]] = {
    str: _to_str,
    int: _to_int,
    float: _to_float,
    bool: _to_bool,
    datetime: _to_datetime,
}
_NOUNS: Mapping[Any, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "a boolean",
    datetime: "a datetime",
}


def fits_scalar(value: Any, kind: type[Any]) -> bool:
    """Return whether a value can be read as a string, a number, a boolean or a datetime."""
    try:
        _SCALARS[kind](value, kind)
    except (TypeError, ValueError):
        return False
    return True


def _describe(error: Exception, kind: Any, name: str = "the value") -> Misfit:
    """Return what is wrong with a value, without the value."""
    if isinstance(error, Misfit):
        return error if name == "the value" else Misfit(f"{name} does not fit: {error}")
    if where := find_code_of_caller(error):
        return _describe(Misfit(f"{type(error).__name__} was raised in {where}"), kind, name)
    nouns = [noun for each, noun in _NOUNS.items() if _mentions(kind, each)]
    return Misfit(f"{name} must be {' or '.join(nouns) or 'of its documented type'}")


def _mentions(kind: Any, scalar: type[Any]) -> bool:
    if isinstance(kind, type):
        return kind is scalar or (issubclass(kind, scalar) and kind is not bool)
    return get_origin(kind) in {Union, UnionType, Annotated} and any(_mentions(each, scalar) for each in get_args(kind))
