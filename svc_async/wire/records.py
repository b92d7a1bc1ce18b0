"""What the records of all families share."""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any

import msgspec

__all__ = ["Record", "Timestamp"]

Timestamp = Annotated[datetime, msgspec.Meta(tz=True)]
"""A moment of the service, always aware of its zone (contract GEN-12)."""


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Record:
    """What the attrs classes of records inherit: a record of the service, as it was when it was read."""

    # Not a field: a field that nearly every record leaves empty would slow the reading of all of them by a fifth.
    __slots__ = ("_extra",)
    _extra: Mapping[str, Any]

    @property
    def extra(self) -> Mapping[str, Any]:
        """Fields that this SDK does not know, kept by sessions with `keep_unknown=True`.

        They take no part in comparisons, and copies and pickles go without.
        """
        return getattr(self, "_extra", _NOTHING)

    def keep(self, extra: Mapping[str, Any]) -> None:
        """Take in fields that this SDK does not know; for the reading only."""
        object.__setattr__(self, "_extra", MappingProxyType(dict(extra)))
