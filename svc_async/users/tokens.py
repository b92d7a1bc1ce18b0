"""Values as tokens: hashes, or escaped text, as they are written between the quotes of JSON."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import isnan

import attrs

from svc_async.users.identifiers import Identifier, InvalidIdentifier

__all__ = ["MAX_VALUES", "SEPARATOR", "InvalidValue", "is_missing", "tokenize_value"]

MAX_VALUES = 5_000
"""Values that one identifier of a row may have."""

SEPARATOR = '","'
"""Between two tokens of one identifier; no token contains it, since quotes inside are escaped."""

_MAX_BITS = 256
"""Of an integer; Python writes those of more than 4,300 digits only on request."""


@attrs.frozen
class InvalidValue:
    """An identifier of a row that breaks its rule."""

    attribute: str
    rule: str


def is_missing(value: object) -> bool:
    """Return whether a value is None or empty text, so that it needs no closer look."""
    return value is None or (isinstance(value, str) and not value)


def tokenize_value(
    identifier: Identifier, value: object, index: int, problems: dict[int, InvalidValue]
) -> Sequence[str]:
    """Turn the values of one row into distinct tokens, and note the first problem; the valid ones are kept."""
    tokens: dict[str, None] = {}
    try:
        for text in _list_texts(value):
            try:
                tokens[identifier.tokenize(text)] = None
            except InvalidIdentifier as error:
                problems.setdefault(index, InvalidValue(identifier.name, str(error)))
    except InvalidIdentifier as error:
        problems.setdefault(index, InvalidValue(identifier.name, str(error)))
        return ()
    return list(filter(None, tokens))


def _list_texts(value: object) -> Iterable[str]:
    if isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping):
        if len(value) > MAX_VALUES:
            raise InvalidIdentifier(f"must have at most {MAX_VALUES:,} values")
        return [text for element in value if (text := _to_text(element))]
    return (_to_text(value),)


def _to_text(value: object) -> str:
    if value is None or (isinstance(value, float) and isnan(value)):  # NaN is how pandas writes a missing value
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= _MAX_BITS:
        return str(value)
    raise InvalidIdentifier("must be text, or several texts")
