"""Encodes models and plain values as JSON; None means not given and is left out."""

import dataclasses
from collections.abc import Iterator
from datetime import datetime
from math import isfinite
from typing import Any

import msgspec

from svc_async.errors import InvalidArgument
from svc_async.wire.params import timestamp, to_utc
from svc_async.wire.records import fields_of, name_key

__all__ = ["to_json", "to_plain"]


def to_json(value: object, *, name: str = "json") -> bytes:
    """Encode a model, or plain values that may contain models, as JSON in UTF-8.

    Args:
        value: what is encoded.
        name: what messages call it; empty for the parameters of an operation, which have names of their own.

    Raises:
        InvalidArgument: a value has no JSON form, such as bytes or a datetime without a time zone; it is named by its
            path, such as `json.users[0].expires_at`.
    """
    try:
        encoded = msgspec.json.encode(_to_plain(value))
    except (TypeError, ValueError, RecursionError):
        raise _find_breach(name, value) from None
    # msgspec encodes a number that is not finite as null.
    if b"null" in encoded and not all(isfinite(leaf) for _, leaf in _list_leaves("", value) if isinstance(leaf, float)):
        raise _find_breach(name, value)
    return encoded


def _find_breach(name: str, value: object) -> InvalidArgument:
    """Return what is wrong with the first value that has no JSON form."""
    try:
        breaches = (breach for path, leaf in _list_leaves(name, value) if (breach := _check_leaf(path, leaf)))
        return next(breaches, InvalidArgument(name or "json", "must contain only values that JSON can represent"))
    except RecursionError:
        return InvalidArgument(
            name or "json", "must not be nested too deeply, and contain no value that contains itself"
        )


def _check_leaf(path: str, leaf: object) -> InvalidArgument | None:
    if isinstance(leaf, float) and not isfinite(leaf):
        return InvalidArgument(path, "must be a finite number: neither NaN nor infinity")
    if hasattr(type(leaf), "model_dump"):
        return InvalidArgument(path, "must be no pydantic model: pass what its model_dump(mode='json') returns")
    if isinstance(leaf, bytes | bytearray | memoryview):
        return InvalidArgument(path, "must be a string, not bytes")
    try:
        if isinstance(leaf, datetime):
            to_utc(path, leaf)
        msgspec.json.encode(leaf)
    except InvalidArgument as error:
        return error
    except (TypeError, ValueError):
        return InvalidArgument(path, "must be a value that JSON can represent")
    return None


def to_plain(value: object, *, name: str = "json") -> Any:
    """Convert models to mappings without the keys whose value is None; `name` as in `to_json`.

    Raises:
        InvalidArgument: a value is bytes, or a datetime without a time zone.
    """
    try:
        return _to_plain(value)
    except (ValueError, RecursionError):
        raise _find_breach(name, value) from None


def _to_plain(value: object) -> Any:
    fields = fields_of(value)
    if fields is not None:
        return {str(name): _to_plain(field) for name, field in fields.items() if field is not None}
    if isinstance(value, list | tuple):
        return [_to_plain(element) for element in value]
    if isinstance(value, datetime):
        return timestamp(value)
    if isinstance(value, bytes | bytearray | memoryview):  # msgspec would encode base64
        raise InvalidArgument("json", "must contain strings, not bytes")
    return value


def _list_leaves(path: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield the values in objects and arrays, at any depth, with their paths."""
    fields = fields_of(value)
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if fields is not None:
        for position, (key, element) in enumerate(fields.items()):
            named = name_key(key, position)
            joint = "." if path and not named.startswith("[") else ""
            yield from _list_leaves(f"{path}{joint}{named}", element)
    elif isinstance(value, list | tuple | set | frozenset):
        for position, element in enumerate(value):
            yield from _list_leaves(f"{path}[{position}]", element)
    else:
        yield path, value
