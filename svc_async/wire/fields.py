"""The fields of models and mappings, alike."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import attrs

__all__ = ["fields_of", "list_field_names"]


def fields_of(value: object) -> Mapping[str, Any] | None:
    """Return the fields of a mapping, or those of a model that can be sent; None for any other value."""
    if isinstance(value, Mapping):
        return value
    model = type(value)
    if not attrs.has(model):
        return None
    return {name: getattr(value, name) for name in list_field_names(model)}


@lru_cache(maxsize=1024)  # a caller's own models come and go
def list_field_names(model: type[attrs.AttrsInstance]) -> tuple[str, ...]:
    """Return the names of the fields of a model that can be sent."""
    return tuple(
        field.name
        for field in attrs.fields(model)
        if field.init and not field.name.startswith("_") and not field.metadata.get("read_only")
    )
