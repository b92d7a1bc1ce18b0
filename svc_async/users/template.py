"""The JSON that the encoded rows of a slice have in common, stored once."""

import attrs

__all__ = ["PLAIN", "RowTemplate"]


@attrs.frozen(eq=False)
class RowTemplate:
    """The JSON before, between and after users, which need not be stored for each of them; ASCII."""

    before: str
    between: str
    after: str


PLAIN = RowTemplate("", ",", "")
"""The template of users that are written out."""
