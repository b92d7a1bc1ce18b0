"""Encodes models and plain values as JSON; None means not given and is left out."""

from datetime import datetime
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
        return msgspec.json.encode(plain)
    except (TypeError, ValueError):
        raise InvalidArgument("json", "must contain only values that JSON can represent") from None


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
