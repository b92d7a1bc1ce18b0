"""The JSON that encoded rows share, kept once beside them."""

import attrs

__all__ = ["PLAIN", "Form"]


@attrs.frozen(eq=False)
class Form:
    """What users have in common in their JSON, so that it need not be written for each of them; ASCII."""

    before: str
    between: str
    after: str


PLAIN = Form("", ",", "")
"""Users that are written out."""
