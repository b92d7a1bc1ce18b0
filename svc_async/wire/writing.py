"""Encodes models and plain values as JSON; None means not given and is left out."""

import dataclasses
from collections.abc import Iterator, Mapping
from datetime import datetime
from math import isfinite
from typing import Any

import msgspec

from svc_async.errors import InvalidArgument
from svc_async.wire.fields import fields_of
from svc_async.wire.params import timestamp

__all__ = ["to_json", "to_plain"]


def to_json(value: object) -> bytes:
    """Encode a model, or plain values that may contain models, as JSON in UTF-8.

    Raises:
        InvalidArgument: a value has no JSON form, such as bytes or a datetime without a time zone.
    """
    plain = to_plain(value)
    try:
        encoded = msgspec.json.encode(plain)
    except (TypeError, ValueError):
        is_pydantic = any(hasattr(type(leaf), "model_dump") for leaf in _list_leaves(plain))
        raise InvalidArgument("json", _PYDANTIC if is_pydantic else _NO_FORM) from None
    # msgspec encodes a number that is not finite as null.
    if b"null" in encoded and not all(isfinite(leaf) for leaf in _list_leaves(plain) if isinstance(leaf, float)):
        raise InvalidArgument("json", "must contain only finite numbers: neither NaN nor infinity")
    return encoded


_NO_FORM = "must contain only values that JSON can represent"
_PYDANTIC = "must contain no pydantic model: pass what its model_dump(mode='json') returns"


def to_plain(value: object) -> Any:
    """Convert models to mappings without the keys whose value is None."""
    fields = fields_of(value)
    if fields is not None:
        return {str(name): to_plain(field) for name, field in fields.items() if field is not None}
    if isinstance(value, list | tuple):
        return [to_plain(element) for element in value]
    if isinstance(value, datetime):
        return timestamp(value)
    if isinstance(value, bytes | bytearray | memoryview):  # msgspec would encode base64
        raise InvalidArgument("json", "must contain strings, not bytes")
    return value


def _list_leaves(value: object) -> Iterator[object]:
    """Yield the values in objects and arrays, at any depth."""
    if isinstance(value, Mapping):
        value = [*value.values()]
    elif isinstance(value, msgspec.Struct):
        value = [getattr(value, name) for name in value.__struct_fields__]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    if isinstance(value, list | tuple | set | frozenset):
        for element in value:
            yield from _list_leaves(element)
    else:
        yield value
