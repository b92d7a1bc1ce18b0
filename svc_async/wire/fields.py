"""The fields of models and mappings, alike."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import lru_cache
from typing import Any

import attrs

__all__ = ["describe_mapping", "fields_of", "list_field_names", "name_key"]

_MAPPINGS: Sequence[tuple[Callable[[object], bool], str]] = (
    (is_dataclass, "dataclasses.asdict(row)"),
    (lambda row: hasattr(row, "model_dump"), "row.model_dump()"),  # of pydantic
    (lambda row: hasattr(row, "_asdict"), "row._asdict()"),  # a named tuple, or of SQLAlchemy
    (lambda row: hasattr(row, "keys"), "dict(row)"),  # a row of asyncpg or sqlite3
)
"""What makes a mapping of a row that has names for its values and is none."""


def fields_of(value: object) -> Mapping[str, Any] | None:
    """Return the fields of a mapping, or those of a model that can be sent; None for any other value."""
    if isinstance(value, Mapping):
        return value
    model = type(value)
    if not attrs.has(model):
        return None
    return {name: getattr(value, name) for name in list_field_names(model)}


def name_key(key: object, position: int) -> str:
    """Return how a message names a key of an object: one that may be a value, such as an e-mail, by its position."""
    text = str(key)
    is_name = len(text) <= _LONGEST_NAME and text.isascii() and text.isidentifier()
    return text if is_name else f"[key {position}]"


_LONGEST_NAME = 60


def describe_mapping(row: object, *, tuples: str) -> str:
    """Return what to pass for a row that is no mapping, as the end of a rule; empty if its type does not say.

    Args:
        row: the row, of which no value is repeated.
        tuples: what to pass for rows without names.
    """
    if isinstance(row, type):
        return ""
    if code := next((code for is_such, code in _MAPPINGS if is_such(row)), ""):
        return f"; pass {code} for each row"
    return f"; for tuples pass {tuples}" if isinstance(row, Sequence) and not isinstance(row, str | bytes) else ""


@lru_cache(maxsize=1024)  # a caller's own models come and go
def list_field_names(model: type[attrs.AttrsInstance]) -> tuple[str, ...]:
    """Return the names of the fields of a model that can be sent."""
    return tuple(
        field.name
        for field in attrs.fields(model)
        if field.init and not field.name.startswith("_") and not field.metadata.get("read_only")
    )
