"""The base class of all records."""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any

import msgspec

__all__ = ["Record", "Timestamp"]

Timestamp = Annotated[datetime, msgspec.Meta(tz=True)]
"""A datetime of the service, always with a time zone (contract GEN-12)."""


_NO_FIELDS: Mapping[str, Any] = MappingProxyType({})


class Record:
    """Base class of the attrs classes of records: a record of the service as of the time of the answer."""

    # Not a field: one that nearly every record leaves empty would slow the decoding of all of them by a fifth.
    __slots__ = ("_extra",)
    _extra: Mapping[str, Any]

    @property
    def extra(self) -> Mapping[str, Any]:
        """Fields that this SDK does not know, kept by sessions with `keep_unknown=True`.

        Comparisons ignore them; copies and pickles leave them out.
        """
        return getattr(self, "_extra", _NO_FIELDS)

    def keep(self, extra: Mapping[str, Any]) -> None:
        """Store fields that this SDK does not know; only the decoder calls this."""
        object.__setattr__(self, "_extra", MappingProxyType(dict(extra)))
