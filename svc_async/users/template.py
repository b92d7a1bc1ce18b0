"""The JSON that encoded rows share, kept once beside them."""

import attrs

__all__ = ["PLAIN", "RowTemplate"]


@attrs.frozen(eq=False)
class RowTemplate:
    """What users have in common in their JSON, so that it need not be written for each of them; ASCII."""

    before: str
    between: str
    after: str


PLAIN = RowTemplate("", ",", "")
"""Users that are written out."""
