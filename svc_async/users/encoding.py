"""Rows as users in JSON, encoded once, a slice at a time.

A `RowEncoder` is compiled for a set of columns. It processes a slice of rows column by column: a column of values
becomes a column of tokens (hashes, written as between the quotes of JSON), and the columns of tokens become users and
their keys. All of it is ASCII, so the length of a string is its number of bytes.

A row that cannot be sent does not delay the others: it is returned as invalid, by its index in the slice.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Literal, get_args

import attrs

from svc_async.errors import InvalidArgument
from svc_async.users.digest_column import hash_column
from svc_async.users.identifiers import (
    HASH_LENGTH,
    IDENTIFIERS,
    HashedIdentifier,
    Identifier,
    PartnerId,
    select_identifiers,
)
from svc_async.users.names import USERS, quote_name
from svc_async.users.packed import HashedUsers, PackedUsers, TextUsers
from svc_async.users.tables import ColumnarRows
from svc_async.users.template import RowTemplate
from svc_async.users.tokens import SEPARATOR, InvalidValue, tokenize_texts
from svc_async.wire.writing import to_plain

__all__ = [
    "SLICE_ROWS",
    "BadIdentifiers",
    "EncodedUsers",
    "MemberEncoder",
    "RowEncoder",
    "TokenColumns",
]

SLICE_ROWS = 512
"""Rows that are read and encoded between two turns of the event loop."""

BadIdentifiers = Literal["fail", "drop"]
"""What an identifier that breaks its rule does: its row fails, or is sent with its other identifiers."""

_ORDER = tuple(IDENTIFIERS)
_FIELDS_TEMPLATE = RowTemplate("{", "},{", "}", openings=tuple(f'"{name}":["' for name in _ORDER), closing='"]')


@attrs.frozen
class EncodedUsers:
    """A slice of rows that can be sent, and those that cannot.

    Attributes:
        template: the JSON that the users have in common.
        users: the users. Their keys are 64 bits of the hash of the first identifier of each row. If different persons
            had the same key, which is not to be expected, their rows would only keep their order as well.
        indexes: the index of each in the slice.
        invalid: the rule that a row breaks which cannot be sent, by its index in the slice.
        attributes: the identifier that such a rule is about, where it is about one.
        partly_valid: how many rows have a valid identifier beside an invalid one.
    """

    template: RowTemplate
    users: PackedUsers
    indexes: Sequence[int]
    invalid: Mapping[int, str]
    attributes: Mapping[int, str] = MappingProxyType({})
    partly_valid: int = 0


@attrs.frozen
class TokenColumns:
    """The identifiers of a slice of rows that can be sent, column by column, and the rows that cannot.

    Attributes:
        columns: for each kind of identifier, in the order that decides the key, the token of each row: empty for none;
            several are joined by `SEPARATOR`.
        indexes: the index of each row in the slice.
        invalid: the rule that a row breaks which cannot be sent, by its index in the slice.
    """

    columns: Mapping[str, Sequence[str]]
    indexes: Sequence[int]
    invalid: Mapping[int, str]


class RowEncoder:
    """Encodes rows of one set of columns.

    Args:
        columns: the names of identifiers.
        identifiers: those that there are.
        bad_identifiers: whether a row with an invalid identifier fails, or is sent without it.

    Raises:
        InvalidArgument: a column is not an identifier or is repeated, or there is none.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        identifiers: Mapping[str, Identifier] = IDENTIFIERS,
        bad_identifiers: BadIdentifiers = "fail",
    ) -> None:
        _check_columns(columns, identifiers)
        self._drops = bad_identifiers == "drop"
        self._width = len(columns)
        self._identifiers = [identifier for name, identifier in identifiers.items() if name in columns]
        self._names = [identifier.name for identifier in self._identifiers]
        self._bits = [1 << _ORDER.index(name) for name in self._names]
        self._columns = [columns.index(identifier.name) for identifier in self._identifiers]
        self._openings = [f'{"," if index else ""}"{each.name}":["' for index, each in enumerate(self._identifiers)]
        self._template = _FIELDS_TEMPLATE if len(columns) > 1 else _build_template(columns[0])

    def encode(self, rows: Sequence[Sequence[object]], invalid: dict[int, str] | None = None) -> EncodedUsers:
        """Encode a slice of rows.

        Args:
            rows: values for each column.
            invalid: rows that are known to be invalid, by their index; the others that are found are added to it.
        """
        invalid = {} if invalid is None else invalid
        tokens, problems = self._tokenize(rows, invalid)
        partly_valid = self._refuse(tokens, problems, invalid)
        indexes, tokens = _leave_out(invalid, tokens)
        users = self._pack_hashes(tokens) or self._pack_text(tokens)
        encoded = EncodedUsers(self._template, users, indexes, invalid)
        if not problems and not partly_valid:
            return encoded
        attributes = {index: problem.attribute for index, problem in problems.items()}
        return attrs.evolve(encoded, attributes=attributes, partly_valid=partly_valid)

    def tokenize(self, rows: Sequence[Sequence[object]], invalid: dict[int, str] | None = None) -> TokenColumns:
        """Turn a slice of rows into columns of tokens; arguments as in `encode`."""
        invalid = {} if invalid is None else invalid
        tokens, problems = self._tokenize(rows, invalid)
        self._refuse(tokens, problems, invalid)
        indexes, tokens = _leave_out(invalid, tokens)
        return TokenColumns(dict(zip(self._names, tokens, strict=True)), indexes, invalid)

    def _tokenize(
        self, rows: Sequence[Sequence[object]], invalid: dict[int, str]
    ) -> tuple[Sequence[Sequence[str]], dict[int, InvalidValue]]:
        by_column = self._transpose(rows, invalid)
        problems: dict[int, InvalidValue] = {}
        tokens = [
            _tokenize_column(identifier, by_column[index], problems)
            for identifier, index in zip(self._identifiers, self._columns, strict=True)
        ]
        return tokens, problems

    def _refuse(
        self, tokens: Sequence[Sequence[str]], problems: dict[int, InvalidValue], invalid: dict[int, str]
    ) -> int:
        """Note which rows cannot be sent; return how many could be sent without their invalid identifiers."""
        valid = {index for index in problems if any(column[index] for column in tokens)}
        partly_valid = len(valid - invalid.keys())
        for index in valid if self._drops else ():
            del problems[index]
        for index, problem in problems.items():
            invalid.setdefault(index, f"{problem.attribute} {problem.rule}")
        if all("" in column for column in tokens):
            for index, row in enumerate(zip(*tokens, strict=True)):
                if not any(row):
                    invalid.setdefault(index, "must have at least one identifier")
        return partly_valid

    def _pack_hashes(self, columns: Sequence[Sequence[str]]) -> HashedUsers | None:
        """Pack rows of which each identifier is one hash; return None if any has others."""
        tokens = "".join(map("".join, zip(*columns, strict=True)))
        count = sum(len(column) - column.count("") for column in columns)
        longest = max((len(token) for column in columns for token in column), default=0)
        identified = zip(self._identifiers, columns, strict=True)
        has_text = any(isinstance(identifier, PartnerId) and any(column) for identifier, column in identified)
        if has_text or longest > HASH_LENGTH or len(tokens) != HASH_LENGTH * count:
            return None
        rows = zip(*columns, strict=True)
        present = bytes([sum(bit for bit, token in zip(self._bits, row, strict=True) if token) for row in rows])
        return HashedUsers(bytes.fromhex(tokens), present if len(columns) > 1 else b"")

    def _pack_text(self, tokens: Sequence[Sequence[str]]) -> TextUsers:
        keys = _find_keys(self._identifiers, tokens)
        return TextUsers.pack(_parse_keys(keys), tokens[0] if len(tokens) == 1 else self._join_fields(tokens))

    def _join_fields(self, columns: Sequence[Sequence[str]]) -> list[str]:
        """Write the fields of each user, with a comma before all but the first column."""
        fields = [
            [f'{opening}{token}"]' if token else "" for token in tokens]
            for opening, tokens in zip(self._openings, columns, strict=True)
        ]
        users = list(map("".join, zip(*fields, strict=True)))
        return [user.lstrip(",") for user in users] if "" in columns[0] else users

    def _transpose(self, rows: Sequence[Sequence[object]], invalid: dict[int, str]) -> Sequence[Sequence[object]]:
        if isinstance(rows, ColumnarRows):
            if len(rows.columns) == self._width:
                return rows.columns
            rows = list(rows)
        try:
            columns = [[value for (value,) in rows]] if self._width == 1 else list(zip(*rows, strict=True))
        except (TypeError, ValueError):
            columns = []
        if len(columns) == self._width:
            return columns
        if not rows:
            return [()] * self._width
        return list(zip(*self._fill_invalid(rows, invalid), strict=True))

    def _fill_invalid(self, rows: Sequence[object], invalid: dict[int, str]) -> Iterable[Sequence[object]]:
        for index, row in enumerate(rows):
            if isinstance(row, Sequence) and not isinstance(row, str) and len(row) == self._width:
                yield row
            else:
                invalid[index] = f"must have {self._width} values, one for each column"
                yield (None,) * self._width


class MemberEncoder:
    """Encodes mappings with the service's keys, whatever keys each of them has.

    Args:
        phone_region: the region of national phone numbers.
        names: the keys that the service accepts.
        bad_identifiers: whether a row with an invalid identifier fails, or is sent without it.

    Raises:
        InvalidArgument: there is no such region or choice.
    """

    def __init__(
        self,
        *,
        phone_region: str | None = None,
        names: Collection[str] = tuple(IDENTIFIERS),
        bad_identifiers: BadIdentifiers = "fail",
    ) -> None:
        if bad_identifiers not in get_args(BadIdentifiers):
            raise InvalidArgument("bad_identifiers", f"must be one of {', '.join(get_args(BadIdentifiers))}")
        known = select_identifiers(phone_region)
        self._bad_identifiers: BadIdentifiers = bad_identifiers
        self._identifiers = {name: known[name] for name in names}
        self._encoders: dict[frozenset[str], tuple[list[str], RowEncoder]] = {}

    def for_rows(self, columns: Sequence[str]) -> RowEncoder:
        """Compile an encoder for a set of columns."""
        return RowEncoder(columns, identifiers=self._identifiers, bad_identifiers=self._bad_identifiers)

    def check_first(self, member: object, where: str) -> None:
        """Check the keys of the first member: one that is not known is most likely wrong in all of them.

        Args:
            member: the member.
            where: its place in messages.

        Raises:
            InvalidArgument: it has a key that is not known.
        """
        mapping = _parse_member(member, 0, {})
        unknown = [key for key in mapping if key not in self._identifiers]
        if unknown:
            raise InvalidArgument(where, _describe_unknown_keys(unknown, self._identifiers))

    def encode(self, members: Sequence[object]) -> EncodedUsers:
        """Encode a slice of members."""
        encoder, rows, invalid = self._tabulate(members)
        return encoder.encode(rows, invalid)

    def tokenize(self, members: Sequence[object]) -> TokenColumns:
        """Turn a slice of members into columns of tokens."""
        encoder, rows, invalid = self._tabulate(members)
        return encoder.tokenize(rows, invalid)

    def _tabulate(self, members: Sequence[object]) -> tuple[RowEncoder, list[list[object]], dict[int, str]]:
        """Return members as rows, their encoder, and those that are known to be invalid."""
        invalid: dict[int, str] = {}
        mappings = _parse_members(members, invalid)
        names = frozenset[Any]().union(*mappings)
        if not names <= self._identifiers.keys():
            _refuse_unknown_keys(mappings, self._identifiers, invalid)
            names &= frozenset(self._identifiers)
        columns, encoder = self._compile(names or frozenset({"email"}))
        return encoder, [[member.get(name) for name in columns] for member in mappings], invalid

    def _compile(self, names: frozenset[str]) -> tuple[list[str], RowEncoder]:
        if names not in self._encoders:
            columns = sorted(names)
            self._encoders[names] = columns, self.for_rows(columns)
        return self._encoders[names]


def _check_columns(columns: Sequence[str], known: Collection[str]) -> None:
    if not columns or not set(columns) <= set(known):
        raise InvalidArgument("columns", f"must be among {', '.join(known)}")
    if len(set(columns)) != len(columns):
        raise InvalidArgument("columns", "must not repeat; several values of one kind are a list in one column")


def _tokenize_column(
    identifier: Identifier, values: Sequence[object], problems: dict[int, InvalidValue]
) -> Sequence[str]:
    if isinstance(identifier, HashedIdentifier):
        return hash_column(identifier, values, problems).write_tokens()
    return tokenize_texts(identifier, values, problems)


def _find_keys(identifiers: Sequence[Identifier], columns: Sequence[Sequence[str]]) -> Sequence[str]:
    """Return the hash of the first identifier that each row has."""
    keys = _hash_first(identifiers[0], columns[0])
    for identifier, tokens in zip(identifiers[1:], columns[1:], strict=True):
        if "" not in keys:
            break
        keys = [key or later for key, later in zip(keys, _hash_first(identifier, tokens), strict=True)]
    return keys


def _hash_first(identifier: Identifier, tokens: Sequence[str]) -> Sequence[str]:
    if not isinstance(identifier, HashedIdentifier):
        return [token and sha256(token.split(SEPARATOR, 1)[0].encode()).hexdigest() for token in tokens]
    return tokens


def _parse_keys(hashes: Sequence[str]) -> Sequence[int]:
    """Parse 64 bits of each hash, or of the first where there are several."""
    joined = "".join(hashes)
    if len(joined) != HASH_LENGTH * len(hashes):
        joined = "".join([token[:HASH_LENGTH] for token in hashes])
    return memoryview(bytes.fromhex(joined)).cast("Q")[:: HASH_LENGTH // 16].tolist()


def _build_template(name: str) -> RowTemplate:
    """Return the template of users with a single identifier, who differ in the token only."""
    return RowTemplate(f'{{"{name}":["', f'"]}},{{"{name}":["', '"]}')


def _leave_out(
    invalid: Mapping[int, str], columns: Sequence[Sequence[str]]
) -> tuple[Sequence[int], Sequence[Sequence[str]]]:
    """Return the indexes of the rows that can be sent, and their columns."""
    indexes = range(len(columns[0]))
    if not invalid:
        return indexes, columns
    valid = [index for index in indexes if index not in invalid]
    return valid, [[column[index] for index in valid] for column in columns]


def _parse_members(members: Sequence[object], invalid: dict[int, str]) -> Sequence[Mapping[str, object]]:
    if set(map(type, members)) == {dict}:
        return members  # type: ignore[return-value]  # all of them are dicts
    return [_parse_member(member, index, invalid) for index, member in enumerate(members)]


def _parse_member(member: object, index: int, invalid: dict[int, str]) -> Mapping[str, object]:
    plain = to_plain(member) if attrs.has(type(member)) else member
    if isinstance(plain, Mapping):
        return plain
    invalid[index] = "must be a mapping of identifiers"
    return {}


def _refuse_unknown_keys(
    members: Sequence[Mapping[str, object]], known: Collection[str], invalid: dict[int, str]
) -> None:
    for index, member in enumerate(members):
        if not member.keys() <= set(known):
            invalid[index] = _describe_unknown_keys([key for key in member if key not in known], known)


def _describe_unknown_keys(unknown: Sequence[object], known: Collection[str]) -> str:
    """Return the rule, with the first key that resembles a known one; others may be the data of a person."""
    vocabulary = USERS.restrict_to(known)
    meant = ((key, vocabulary.find_key(key) or vocabulary.propose_key(key)) for key in unknown if isinstance(key, str))
    proposal = next((f"; write {found!r} for {quote_name(key)}" for key, found in meant if found), "")
    return f"must have no key but {', '.join(known)}{proposal}"
