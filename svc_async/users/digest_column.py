"""Columns of values, hashed or as text: many values at once, and a closer look at those only that need it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import accumulate, compress
from math import isnan
from operator import not_
from struct import unpack
from types import NoneType
from typing import Any, TypeVar

import attrs

from svc_async.users.identifiers import (
    DIGEST_SIZE,
    HashedIdentifier,
    HashedTexts,
    Identifier,
    InvalidIdentifier,
    PartnerId,
)

__all__ = [
    "MAX_VALUES",
    "SEPARATOR",
    "DigestColumn",
    "InvalidValue",
    "TextColumn",
    "delete_rows",
    "escape_column",
    "hash_column",
    "is_missing",
    "tokenize_value",
]

MAX_VALUES = 5_000
"""Values that one identifier of a row may have."""

SEPARATOR = '","'
"""Between two tokens of one identifier; no token contains it, since quotes inside are escaped."""

_MAX_BITS = 256
"""Of an integer; Python writes those of more than 4,300 digits only on request."""


@attrs.frozen
class InvalidValue:
    """An identifier of a row that breaks its rule."""

    attribute: str
    rule: str


def is_missing(value: object) -> bool:
    """Return whether a value is None or empty text, so that it needs no closer look."""
    return value is None or (isinstance(value, str) and not value)


def tokenize_value(
    identifier: Identifier, value: object, index: int, problems: dict[int, InvalidValue]
) -> Sequence[str]:
    """Turn the values of one row into distinct tokens, and note the first problem; the valid ones are kept."""
    tokens: dict[str, None] = {}
    try:
        for text in _list_texts(value):
            try:
                tokens[identifier.tokenize(text)] = None
            except InvalidIdentifier as error:
                problems.setdefault(index, InvalidValue(identifier.name, str(error)))
    except InvalidIdentifier as error:
        problems.setdefault(index, InvalidValue(identifier.name, str(error)))
        return ()
    return list(filter(None, tokens))


def _list_texts(value: object) -> Iterable[str]:
    if isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping):
        if len(value) > MAX_VALUES:
            raise InvalidIdentifier(f"must have at most {MAX_VALUES:,} values")
        return [text for element in value if (text := _to_text(element))]
    return (_to_text(value),)


def _to_text(value: object) -> str:
    if value is None or (isinstance(value, float) and isnan(value)):  # NaN is how pandas writes a missing value
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= _MAX_BITS:
        return str(value)
    raise InvalidIdentifier("must be text, or several texts")


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


T = TypeVar("T")

_REFUSED_SHARE = 16
"""One in so many values may need a closer look; if more do, blanks around them are the likely reason."""

_TEXT_OR_NONE = {str, NoneType}


@attrs.frozen
class DigestColumn:
    """The hashes of a column of values.

    Attributes:
        digests: 32 bytes for each value, row after row.
        counts: how many values each row has; None if each has one, bytes if none has several.
    """

    digests: bytes
    counts: list[int] | bytes | None = None

    def __len__(self) -> int:
        return len(self.digests) // DIGEST_SIZE if self.counts is None else len(self.counts)

    @property
    def present(self) -> bytes:
        """Return a byte for each row: whether it has a value."""
        if self.counts is None:
            return b"\1" * len(self)
        return self.counts if isinstance(self.counts, bytes) else bytes(map(bool, self.counts))

    @property
    def has_several(self) -> bool:
        """Whether a row has several values."""
        return isinstance(self.counts, list)

    def leave_out(self, rows: Collection[int]) -> "DigestColumn":
        """Return the column without some rows."""
        ends = range(len(self) + 1) if self.counts is None else list(accumulate(self.counts, initial=0))
        parts: list[bytes] = []
        start = 0
        for row in sorted(rows):
            parts.append(self.digests[DIGEST_SIZE * start : DIGEST_SIZE * ends[row]])
            start = ends[row + 1]
        digests = b"".join((*parts, self.digests[DIGEST_SIZE * start :]))
        return DigestColumn(digests) if self.counts is None else _make_column(digests, delete_rows(self.counts, rows))

    def split(self) -> Sequence[bytes]:
        """Return the digests of each row, joined."""
        digests = unpack(f"{DIGEST_SIZE}s" * (len(self.digests) // DIGEST_SIZE), self.digests)
        return digests if self.counts is None else _group(digests, self.counts, b"".join)

    def list_first_hashes(self) -> Sequence[bytes]:
        """Return the hash of the first value of each row; nothing where there is none."""
        return [each[:DIGEST_SIZE] for each in self.split()]

    def write_tokens(self) -> Sequence[str]:
        """Return the hashes of each row as they are written between the quotes of JSON."""
        hexes = self.digests.hex("\n", DIGEST_SIZE).split("\n")
        return hexes if self.counts is None and self.digests else _group(hexes, self.counts or (), SEPARATOR.join)


def delete_rows(values: Sequence[int], rows: Iterable[int]) -> Sequence[int]:
    """Return the values of all other rows."""
    kept = bytearray(values) if isinstance(values, bytes | bytearray) else list(values)
    for row in sorted(rows, reverse=True):
        del kept[row]
    return kept


def _make_column(digests: bytes, counts: Sequence[int]) -> DigestColumn:
    """Return a column with its counts in their smallest form."""
    if counts.count(1) == len(counts):
        return DigestColumn(digests)
    return DigestColumn(digests, list(counts) if max(counts) > 1 else bytes(counts))


def _group(values: Sequence[T], counts: Sequence[int], join: Callable[[Iterable[T]], T]) -> list[T]:
    """Return the values of each row, joined; each has as many as its count."""
    nothing = join(())
    take = iter(values).__next__
    return [take() if count == 1 else join([take() for _ in range(count)]) if count else nothing for count in counts]


def hash_column(identifier: HashedIdentifier, values: Sequence[Any], problems: dict[int, InvalidValue]) -> DigestColumn:
    """Hash a column of values; None and blank text are none.

    Args:
        identifier: their kind.
        values: one of each row; it may be several in a collection.
        problems: the values that break their rule are added to it, by the index of their row.
    """
    found = _hash_texts(identifier, values, len(values) // _REFUSED_SHARE)
    if found is not None and not found.refused:
        return DigestColumn(found.digests)
    taken, all_seen = bytearray(b"\1") * len(values), True
    if found is None:
        all_seen = set(map(type, values)) <= _TEXT_OR_NONE
        taken = bytearray(map(bool, values) if all_seen else [isinstance(each, str) and each != "" for each in values])
        found = _hash_some(identifier, list(compress(values, taken)))
    if all_seen and not found.refused:
        return _make_column(found.digests, taken)
    if found.refused:
        rows = list(compress(range(len(values)), taken))
        for index in found.refused:
            taken[rows[index]] = False
    others: dict[int, Sequence[str]] = {}
    for row in compress(range(len(values)), map(not_, taken)):
        if not is_missing(values[row]) and (tokens := tokenize_value(identifier, values[row], row, problems)):
            others[row] = tokens
    return _insert(found.digests, taken, others)


def _hash_some(identifier: HashedIdentifier, texts: Sequence[str]) -> HashedTexts:
    """Hash texts, with or without the blanks around them."""
    found = _hash_texts(identifier, texts, len(texts) // _REFUSED_SHARE)
    if found is None:
        found = _hash_texts(identifier, list(map(str.strip, texts)), len(texts) // 2, trimmed=True)
    return found or HashedTexts(b"", range(len(texts)))


def _hash_texts(
    identifier: HashedIdentifier, texts: Sequence[Any], most_refused: int, *, trimmed: bool = False
) -> HashedTexts | None:
    try:
        return identifier.hash_all(texts, most_refused=most_refused, trimmed=trimmed)
    except (TypeError, UnicodeEncodeError):  # not text, or not valid Unicode
        return None


def _insert(digests: bytes, taken: bytearray, others: Mapping[int, Sequence[str]]) -> DigestColumn:
    """Return a column of the rows whose digests were taken, and of others, which have any number of tokens."""
    if not others:
        return _make_column(digests, taken)
    counts, taken_before = list(taken), list(accumulate(taken, initial=0))
    parts: list[bytes] = []
    start = 0
    for row, tokens in others.items():
        end = DIGEST_SIZE * taken_before[row]
        parts += digests[start:end], bytes.fromhex("".join(tokens))
        start, counts[row] = end, len(tokens)
    return _make_column(b"".join((*parts, digests[start:])), counts)
