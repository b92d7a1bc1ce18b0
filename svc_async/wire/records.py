"""What the records of all families share."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import attrs
import msgspec

__all__ = ["Record", "Timestamp"]

Timestamp = Annotated[datetime, msgspec.Meta(tz=True)]
"""A moment of the service, always aware of its zone (contract GEN-12)."""


@attrs.frozen(kw_only=True)
class Record:
    """A record of the service, as it was when it was read.

    Attributes:
        extra: fields that this SDK does not know, filled by sessions with `keep_unknown=True`.
    """

    extra: Mapping[str, Any] = attrs.field(factory=dict, init=False, eq=False, repr=False)
