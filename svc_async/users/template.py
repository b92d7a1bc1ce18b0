"""The JSON that the encoded rows of a slice have in common, stored once."""

from collections.abc import Sequence

import attrs

__all__ = ["PLAIN", "RowTemplate"]


@attrs.frozen(eq=False)
class RowTemplate:
    """The JSON before, between and after users, which need not be stored for each of them; ASCII.

    Attributes:
        openings: what is written before the hash of each kind of identifier, where users are stored as digests.
        closing: what is written after each hash.
    """

    before: str
    between: str
    after: str
    openings: Sequence[str] = ("",)
    closing: str = ""


PLAIN = RowTemplate("", ",", "")
"""The template of users that are written out."""
