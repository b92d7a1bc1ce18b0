"""A column of values that are sent as text."""

from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import Any

import attrs

from svc_async.users.identifiers import PartnerId
from svc_async.users.tokens import SEPARATOR, InvalidValue, is_missing, tokenize_value

__all__ = ["TextColumn", "escape_column"]

_RETRY_ROWS = 8
"""Rows that are encoded one by one when a value among them is not plain."""


@attrs.frozen
class TextColumn:
    """Values as they are written between the quotes of JSON.

    Attributes:
        tokens: those of each row: empty for none, several joined by the separator.
    """

    tokens: Sequence[str]

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def present(self) -> bytes:
        """Return a byte for each row: whether it has a value."""
        return bytes(map(bool, self.tokens))

    @property
    def has_several(self) -> bool:
        """Whether a row has several values."""
        return any(SEPARATOR in token for token in self.tokens)

    def leave_out(self, rows: Collection[int]) -> "TextColumn":
        """Return the column without some rows."""
        return TextColumn([token for row, token in enumerate(self.tokens) if row not in rows])

    def list_first_tokens(self) -> Sequence[str]:
        """Return the first token of each row."""
        return [token.split(SEPARATOR, 1)[0] for token in self.tokens]

    def list_first_hashes(self) -> Sequence[bytes]:
        """Return a hash of the first token of each row; nothing where there is none."""
        return [sha256(token.encode()).digest() if token else b"" for token in self.list_first_tokens()]

    def write_tokens(self) -> Sequence[str]:
        """Return the tokens of each row."""
        return self.tokens


def escape_column(identifier: PartnerId, values: Sequence[object], problems: dict[int, InvalidValue]) -> TextColumn:
    """Escape a column of values; None and blank text are none.

    Args:
        identifier: their kind.
        values: one of each row; it may be several in a collection.
        problems: the values that break their rule are added to it, by the index of their row.
    """
    texts = [value for value in values if not is_missing(value)]
    tokens = _escape_plain(identifier, texts)
    if tokens is None:
        return TextColumn(_escape_each(identifier, values, problems))
    if len(tokens) == len(values):
        return TextColumn(tokens)
    remaining = iter(tokens)
    return TextColumn([next(remaining) if value else "" for value in values])


def _escape_plain(identifier: PartnerId, texts: Sequence[Any]) -> list[str] | None:
    try:
        return identifier.tokenize_all(texts)
    except TypeError:  # not text
        return None


def _escape_each(identifier: PartnerId, values: Sequence[object], problems: dict[int, InvalidValue]) -> list[str]:
    tokens: list[str] = []
    for start in range(0, len(values), _RETRY_ROWS):
        part = values[start : start + _RETRY_ROWS]
        tokens += _escape_plain(identifier, part) or [
            SEPARATOR.join(tokenize_value(identifier, value, index, problems))
            for index, value in enumerate(part, start)
        ]
    return tokens
