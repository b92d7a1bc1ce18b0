"""The fields of models and mappings, alike."""

from collections.abc import Mapping
from typing import Any

import attrs

__all__ = ["fields_of"]


def fields_of(value: object) -> Mapping[str, Any] | None:
    """Return the fields of a mapping, or those of a model that its constructor takes; None for any other value."""
    if isinstance(value, Mapping):
        return value
    model = type(value)
    if not attrs.has(model):
        return None
    return {field.name: getattr(value, field.name) for field in attrs.fields(model) if field.init}
