"""Models and plain values as JSON: what is None is not given and is left out."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import attrs
import msgspec

from svc_async.errors import InvalidArgument
from svc_async.wire.params import timestamp

__all__ = ["to_json", "to_plain"]


def to_json(value: object) -> bytes:
    """Write a model, or plain values that may hold models, as JSON in UTF-8.

    Raises:
        InvalidArgument: a value has no form in JSON, such as bytes or a moment without a time zone.
    """
    plain = to_plain(value)
    try:
        return msgspec.json.encode(plain)
    except (TypeError, ValueError):
        raise InvalidArgument("json", "must hold only values that JSON can write") from None


def to_plain(value: object) -> Any:
    """Turn models into mappings without the keys whose value is None."""
    if attrs.has(type(value)):
        return _given(attrs.asdict(value, recurse=False, filter=_is_sent))  # type: ignore[arg-type]
    if isinstance(value, Mapping):
        return _given(value)
    if isinstance(value, list | tuple):
        return [to_plain(element) for element in value]
    if isinstance(value, datetime):
        return timestamp(value)
    if isinstance(value, bytes | bytearray | memoryview):  # msgspec would write base64
        raise InvalidArgument("json", "must hold text, not bytes")
    return value


def _is_sent(field: "attrs.Attribute[Any]", _: object) -> bool:
    return field.init  # `Record.extra` is what was read, never what is sent


def _given(fields: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): to_plain(value) for name, value in fields.items() if value is not None}
