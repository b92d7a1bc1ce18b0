"""The identifiers of a slice of users, column by column: many values are hashed at once, others get a closer look."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from itertools import accumulate, chain, compress
from operator import not_, or_
from struct import unpack
from types import MappingProxyType, NoneType
from typing import Any, TypeVar

import attrs

from svc_async.cells import holds_several, is_missing, to_text
from svc_async.users.identifiers import (
    DIGEST_SIZE,
    IDENTIFIERS,
    HashedIdentifier,
    HashedTexts,
    Identifier,
    InvalidIdentifier,
    PartnerId,
    hash_lines,
    join_lines,
)
from svc_async.users.packed import HashedUsers, PackedUsers, RowTemplate, TextUsers

__all__ = [
    "MAX_VALUES",
    "SEPARATOR",
    "Column",
    "InvalidValue",
    "UserColumns",
    "combine_present",
    "encode_column",
    "find_template",
    "tokenize_value",
]

MAX_VALUES = 5_000
"""Values that one identifier of a row may have."""

SEPARATOR = '","'
"""Between two tokens of one identifier; no token contains it, since quotes inside are escaped."""

_RETRY_ROWS = 8
"""Rows that are encoded one by one when a value among them is not plain."""
_REFUSED_SHARE = 16
"""One in so many values may need a closer look; if more do, blanks around them are the likely reason."""
_NOT_TEXT = "must be text or a whole number, or several of them"
_TEXT_OR_NONE = {str, NoneType}
T = TypeVar("T")


@attrs.frozen
class InvalidValue:
    """An identifier of a row that breaks its rule."""

    attribute: str
    rule: str


@attrs.frozen
class Column:
    """The values of one kind of identifier.

    Attributes:
        digests: the hash of each value, 32 bytes, row after row.
        counts: how many values each row has; None if each has one, bytes if none has several.
        texts: the values as they are written between the quotes of JSON, if they are not sent as hashes.
    """

    digests: bytes
    counts: list[int] | bytes | None = None
    texts: Sequence[str] | None = None

    @classmethod
    def make(cls, digests: bytes, counts: Sequence[int], texts: Sequence[str] | None = None) -> "Column":
        """Return a column with its counts in their smallest form."""
        if counts.count(1) == len(counts):
            return cls(digests, None, texts)
        return cls(digests, list(counts) if max(counts) > 1 else bytes(counts), texts)

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
        """True if a row has several values."""
        return isinstance(self.counts, list)

    def leave_out(self, rows: Collection[int]) -> "Column":
        """Return the column without some rows."""
        counts = [1] * len(self) if self.counts is None else self.counts
        ends = list(accumulate(counts, initial=0))
        starts = [0, *(ends[row + 1] for row in sorted(rows))]
        spans = list(zip(starts, [*(ends[row] for row in sorted(rows)), ends[-1]], strict=True))
        digests = b"".join([self.digests[DIGEST_SIZE * start : DIGEST_SIZE * end] for start, end in spans])
        texts = None if self.texts is None else [text for start, end in spans for text in self.texts[start:end]]
        return Column.make(digests, _delete_rows(counts, rows), texts)

    def split(self) -> Sequence[bytes]:
        """Return the digests of each row, joined."""
        digests = unpack(f"{DIGEST_SIZE}s" * (len(self.digests) // DIGEST_SIZE), self.digests)
        return digests if self.counts is None else _group(digests, self.counts, b"".join)

    def list_first_hashes(self) -> Sequence[bytes]:
        """Return the hash of the first value of each row; nothing where there is none."""
        return [each[:DIGEST_SIZE] for each in self.split()]

    def write_tokens(self) -> Sequence[str]:
        """Return the values of each row as they are written between the quotes of JSON; empty where there is none."""
        tokens = self.digests.hex("\n", DIGEST_SIZE).split("\n") if self.texts is None else self.texts
        return tokens if self.counts is None and self.digests else _group(tokens, self.counts or (), SEPARATOR.join)


def _delete_rows(values: Sequence[int], rows: Iterable[int]) -> Sequence[int]:
    """Return the values of all other rows."""
    kept = bytearray(values) if isinstance(values, bytes | bytearray) else list(values)
    for row in sorted(rows, reverse=True):
        del kept[row]
    return kept


def _group(values: Sequence[T], counts: Sequence[int], join: Callable[[Iterable[T]], T]) -> list[T]:
    """Return the values of each row, joined; each has as many as its count."""
    nothing = join(())
    take = iter(values).__next__
    return [take() if count == 1 else join([take() for _ in range(count)]) if count else nothing for count in counts]


def _is_empty(value: object) -> bool:
    """Return whether a value is None or empty text, so that it needs no closer look."""
    return value is None or (isinstance(value, str) and not value)


def tokenize_value(
    identifier: Identifier, value: object, index: int, problems: dict[int, InvalidValue]
) -> Sequence[str]:
    """Turn the values of one row into distinct tokens in an order of their own, and note the first problem.

    The valid ones are kept.
    """
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
    return sorted(filter(None, tokens))


def _list_texts(value: object) -> Iterable[str]:
    if not holds_several(value):
        return (_parse_text(value),)
    try:
        count = len(value)
    except TypeError:  # an array of numpy without dimensions
        raise InvalidIdentifier(_NOT_TEXT) from None
    if count > MAX_VALUES:
        raise InvalidIdentifier(f"must have at most {MAX_VALUES:,} values")
    return [text for element in value if (text := _parse_text(element))]


def _parse_text(value: object) -> str:
    text = "" if is_missing(value) else to_text(value)
    if text is None:
        raise InvalidIdentifier(_NOT_TEXT)
    return text


def encode_column(identifier: Identifier, values: Sequence[Any], problems: dict[int, InvalidValue]) -> Column:
    """Encode a column of values; None and blank text are none.

    Args:
        identifier: their kind.
        values: one of each row; it may be several in a collection.
        problems: the values that break their rule are added to it, by the index of their row.
    """
    if isinstance(identifier, PartnerId):
        return _escape_column(identifier, values, problems)
    return _hash_column(identifier, values, problems)


def _escape_column(identifier: PartnerId, values: Sequence[Any], problems: dict[int, InvalidValue]) -> Column:
    tokens = _escape_plain(identifier, [value for value in values if not _is_empty(value)])
    if tokens is not None:
        counts: Sequence[int] = bytes(map(bool, values))
    else:
        rows: list[Sequence[str]] = []
        for start in range(0, len(values), _RETRY_ROWS):
            part = values[start : start + _RETRY_ROWS]
            plain = _escape_plain(identifier, part)
            rows += (
                [[token] for token in plain]
                if plain
                else [tokenize_value(identifier, value, index, problems) for index, value in enumerate(part, start)]
            )
        tokens, counts = list(chain.from_iterable(rows)), list(map(len, rows))
    return Column.make(hash_lines(join_lines(tokens)), counts, tokens)


def _escape_plain(identifier: PartnerId, texts: Sequence[Any]) -> Sequence[str] | None:
    try:
        return identifier.tokenize_all(texts)
    except TypeError:  # not text
        return None


def _hash_column(identifier: HashedIdentifier, values: Sequence[Any], problems: dict[int, InvalidValue]) -> Column:
    found = _hash_texts(identifier, values, len(values) // _REFUSED_SHARE)
    if found is not None and not found.refused:
        return Column(found.digests)
    taken, all_seen = bytearray(b"\1") * len(values), True
    if found is None:
        all_seen = set(map(type, values)) <= _TEXT_OR_NONE
        taken = bytearray(map(bool, values) if all_seen else [isinstance(each, str) and each != "" for each in values])
        texts = list(compress(values, taken))
        found = _hash_texts(identifier, texts, len(texts) // _REFUSED_SHARE)
        if found is None:  # blanks around them are the likely reason
            found = _hash_texts(identifier, list(map(str.strip, texts)), len(texts) // 2)
        found = found or HashedTexts(b"", range(len(texts)))
    if all_seen and not found.refused:
        return Column.make(found.digests, taken)
    if found.refused:
        rows = list(compress(range(len(values)), taken))
        for index in found.refused:
            taken[rows[index]] = False
    others: dict[int, Sequence[str]] = {}
    for row in compress(range(len(values)), map(not_, taken)):
        if not _is_empty(values[row]) and (tokens := tokenize_value(identifier, values[row], row, problems)):
            others[row] = tokens
    return _insert(found.digests, taken, others)


def _hash_texts(identifier: HashedIdentifier, texts: Sequence[Any], most_refused: int) -> HashedTexts | None:
    try:
        return identifier.hash_all(texts, most_refused=most_refused)
    except (TypeError, UnicodeEncodeError):  # not text, or not valid Unicode
        return None


def _insert(digests: bytes, taken: bytearray, others: Mapping[int, Sequence[str]]) -> Column:
    """Return a column of the rows whose digests were taken, and of others, which have any number of tokens."""
    if not others:
        return Column.make(digests, taken)
    counts, taken_before = list(taken), list(accumulate(taken, initial=0))
    parts: list[bytes] = []
    start = 0
    for row, tokens in others.items():
        end = DIGEST_SIZE * taken_before[row]
        parts += digests[start:end], bytes.fromhex("".join(tokens))
        start, counts[row] = end, len(tokens)
    return Column.make(b"".join((*parts, digests[start:])), counts)


_ORDER = tuple(IDENTIFIERS)
_FIELDS_TEMPLATE = RowTemplate("{", "},{", "}", openings=tuple(f'"{name}":["' for name in _ORDER), closing='"]')


@attrs.frozen
class UserColumns:
    """The users of a slice that can be sent, and the rows that cannot.

    Attributes:
        columns: for each kind of identifier, in the order that decides the key, those of all users.
        present: a byte for each user; bit i says whether it has the i-th identifier.
        indexes: the index of each user in the slice.
        invalid: the rule that a row breaks which cannot be sent, by its index in the slice.
        attributes: the identifier that such a rule is about, where it is about one.
        partly_valid: the indexes of rows that have a valid identifier beside an invalid one.
    """

    columns: Mapping[str, Column]
    present: bytes
    indexes: Sequence[int]
    invalid: Mapping[int, str]
    attributes: Mapping[int, str] = MappingProxyType({})
    partly_valid: Sequence[int] = ()

    @property
    def template(self) -> RowTemplate:
        """The JSON that the users have in common."""
        return find_template(tuple(self.columns))

    def leave_out(self, attributes: Mapping[int, str]) -> "UserColumns":
        """Return the users without the invalid rows, and the identifiers that these are invalid for."""
        return attrs.evolve(
            self,
            columns={name: column.leave_out(self.invalid) for name, column in self.columns.items()},
            present=bytes(_delete_rows(self.present, self.invalid)),
            indexes=_delete_rows(self.indexes, self.invalid),
            attributes=attributes,
        )

    def pack(self) -> PackedUsers:
        """Return the users as they wait to be sent: as digests if each identifier of them is one hash."""
        columns = self.columns.values()
        if any(each.has_several or each.texts for each in columns) or all(each.texts is not None for each in columns):
            return self._pack_text()
        if len(columns) == 1:
            return HashedUsers(next(iter(columns)).digests)
        by_row = zip(*[each.split() for each in columns if each.texts is None], strict=True)
        return HashedUsers(b"".join(chain.from_iterable(by_row)), self.present)

    def _pack_text(self) -> TextUsers:
        tokens = {name: column.write_tokens() for name, column in self.columns.items()}
        (_, users), *others = tokens.items()
        keys = memoryview(self.join_first_hashes()).cast("Q")[:: DIGEST_SIZE // 8].tolist()
        if others:
            fields = [[f',"{name}":["{token}"]' if token else "" for token in each] for name, each in tokens.items()]
            users = [user[1:] for user in map("".join, zip(*fields, strict=True))]
        return TextUsers.pack(keys, users)

    def join_first_hashes(self) -> bytes:
        """Return 32 bytes for each user: the hash of its first identifier, of which the key is the head."""
        first, *others = self.columns.values()
        if first.counts is None:
            return first.digests
        hashes = first.list_first_hashes()
        for column in others:
            hashes = [each or other for each, other in zip(hashes, column.list_first_hashes(), strict=True)]
        return b"".join(hashes)


def combine_present(columns: Mapping[str, Column]) -> bytes:
    """Return a byte for each row; bit i says whether it has the i-th identifier."""
    if all(column.counts is None for column in columns.values()):
        return _mark_all(tuple(columns)) * len(next(iter(columns.values())))
    present = [int.from_bytes(column.present) << _ORDER.index(name) for name, column in columns.items()]
    return reduce(or_, present).to_bytes(len(next(iter(columns.values()))))


@lru_cache
def _mark_all(names: tuple[str, ...]) -> bytes:
    """Return the byte of a row that has all of these identifiers."""
    return bytes([sum(1 << _ORDER.index(name) for name in names)])


@lru_cache
def find_template(names: tuple[str, ...]) -> RowTemplate:
    """Return the template of users with these identifiers; those with a single one differ in the token only.

    It is the same object each time, since users share operations only if they share their template.
    """
    if len(names) == 1:
        (name,) = names
        return RowTemplate(f'{{"{name}":["', f'"]}},{{"{name}":["', '"]}')
    return _FIELDS_TEMPLATE
