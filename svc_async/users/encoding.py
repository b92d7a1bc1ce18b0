"""Rows as users that can be sent, encoded once, a slice at a time.

A `RowEncoder` is compiled for a set of columns. It processes a slice of rows column by column: a column of values
becomes a column of digests, or of text where it is not hashed, and the columns become users.

A row that cannot be sent does not delay the others: it is returned as invalid, by its index in the slice.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, get_args

import attrs

from svc_async.errors import InvalidArgument
from svc_async.users.identifiers import IDENTIFIERS, Identifier, select_identifiers
from svc_async.users.names import USERS, quote_name
from svc_async.users.packed import PackedUsers, RowTemplate
from svc_async.users.tables import ColumnarRows, join_values
from svc_async.users.user_columns import InvalidValue, UserColumns, combine_present, encode_column
from svc_async.wire.records import describe_mapping
from svc_async.wire.writing import to_plain

__all__ = [
    "SLICE_ROWS",
    "BadIdentifiers",
    "EncodedSlices",
    "EncodedUsers",
    "MemberEncoder",
    "RowEncoder",
]

SLICE_ROWS = 512
"""Rows that are read and encoded between two turns of the event loop."""

_FOR_A_MAPPING = "must be a tuple of values, one for each column; mappings are passed without Rows"
_EXAMPLE = '{"email": "a@b.example"}'

BadIdentifiers = Literal["fail", "drop"]
"""What an identifier that breaks its rule does: its row fails, or is sent with its other identifiers."""


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

    @property
    def rows(self) -> int:
        """How many rows the slice has."""
        return len(self.indexes) + len(self.invalid)

    @classmethod
    def pack(cls, columns: UserColumns) -> "EncodedUsers":
        """Return users as they wait to be sent."""
        return cls(
            columns.template,
            columns.pack(),
            columns.indexes,
            columns.invalid,
            columns.attributes,
            len(columns.partly_valid),
        )


@attrs.frozen
class EncodedSlices:
    """Users that are encoded already.

    Attributes:
        slices: the users of consecutive rows.
    """

    slices: Iterable[EncodedUsers]


class RowEncoder:
    """Encodes rows of one set of columns.

    Args:
        columns: the names of identifiers. Several columns of one contain several of its values, in their order.
        identifiers: those that there are.
        bad_identifiers: whether a row with an invalid identifier fails, or is sent without it.

    Raises:
        InvalidArgument: a column is not an identifier, or there is none.
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
        self._rule = f"must have {self._width} value{'s' * (self._width != 1)}, one for each column"
        self._identifiers = [identifier for name, identifier in identifiers.items() if name in columns]
        self._columns = [
            [index for index, name in enumerate(columns) if name == identifier.name] for identifier in self._identifiers
        ]

    def encode(self, rows: Sequence[Sequence[object]], invalid: dict[int, str] | None = None) -> EncodedUsers:
        """Encode a slice of rows; arguments as in `hash`."""
        return EncodedUsers.pack(self.hash(rows, invalid))

    def hash(self, rows: Sequence[Sequence[object]], invalid: dict[int, str] | None = None) -> UserColumns:
        """Return the identifiers of a slice of rows, column by column.

        Args:
            rows: values for each column.
            invalid: rows that are known to be invalid, by their index; the others that are found are added to it.
        """
        invalid = {} if invalid is None else invalid
        by_column = self._transpose(rows, invalid)
        problems: dict[int, InvalidValue] = {}
        columns = {
            identifier.name: encode_column(identifier, _join_columns([by_column[index] for index in places]), problems)
            for identifier, places in zip(self._identifiers, self._columns, strict=True)
        }
        present = combine_present(columns)
        partly_valid = [index for index in sorted(problems) if present[index] and index not in invalid]
        if self._drops:
            problems = {index: problem for index, problem in problems.items() if not present[index]}
        for index, problem in problems.items():
            invalid.setdefault(index, f"{problem.attribute} {problem.rule}")
        if 0 in present:
            for index, each in enumerate(present):
                if not each:
                    invalid.setdefault(index, "must have at least one identifier")
        found = UserColumns(columns, present, range(len(present)), invalid, partly_valid=partly_valid)
        if not invalid:
            return found
        return found.leave_out({index: problem.attribute for index, problem in problems.items()})

    def _transpose(self, rows: Sequence[Sequence[object]], invalid: dict[int, str]) -> Sequence[Sequence[object]]:
        if isinstance(rows, ColumnarRows):
            if len(rows.columns) == self._width:
                return rows.columns
            rows = list(rows)
        if not rows:
            return [()] * self._width
        try:
            columns = [[value for (value,) in rows]] if self._width == 1 else list(zip(*rows, strict=True))
        except (TypeError, ValueError):
            columns = []
        if len(columns) == self._width and not isinstance(rows[0], Mapping):  # whose keys were read as values
            return columns
        return list(zip(*self._fill_invalid(rows, invalid), strict=True))

    def _fill_invalid(self, rows: Sequence[object], invalid: dict[int, str]) -> Iterable[Sequence[object]]:
        for index, row in enumerate(rows):
            if isinstance(row, Sequence) and not isinstance(row, str) and len(row) == self._width:
                yield row
            else:
                invalid[index] = _FOR_A_MAPPING if isinstance(row, Mapping) else self._rule
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

    def check_first(self, member: object, where: str, *, tuples: str = "Rows(columns, rows)") -> None:
        """Check the first member: what is no mapping, or a key that is not known, is most likely wrong in all of them.

        Args:
            member: the member.
            where: its place in messages.
            tuples: what to pass there for rows without names.

        Raises:
            InvalidArgument: it is no mapping, or has a key that is not known.
        """
        invalid: dict[int, str] = {}
        mapping = _parse_member(member, 0, invalid)
        if invalid:
            proposal = describe_mapping(member, tuples=tuples) or f", such as {_EXAMPLE}"
            raise InvalidArgument(where, f"{invalid[0]}{proposal}")
        unknown = [key for key in mapping if key not in self._identifiers]
        if unknown:
            raise InvalidArgument(where, _describe_unknown_keys(unknown, self._identifiers))

    def encode(self, members: Sequence[object]) -> EncodedUsers:
        """Encode a slice of members."""
        return EncodedUsers.pack(self.hash(members))

    def hash(self, members: Sequence[object]) -> UserColumns:
        """Return the identifiers of a slice of members, column by column."""
        encoder, rows, invalid = self._tabulate(members)
        return encoder.hash(rows, invalid)

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
    if isinstance(columns, str):
        raise InvalidArgument("columns", "must be a sequence of names, such as ['email']")
    if not columns or not set(columns) <= set(known):
        unknown = [column for column in columns if column not in known]
        raise InvalidArgument("columns", f"must be among {', '.join(known)}{_propose_key(unknown, known)}")


def _join_columns(columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """Return the columns of one identifier as one."""
    return columns[0] if len(columns) == 1 else list(map(join_values, zip(*columns, strict=True)))


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
    return f"must have no key but {', '.join(known)}{_propose_key(unknown, known)}"


def _propose_key(unknown: Sequence[object], known: Collection[str]) -> str:
    """Return what to write for the first key that resembles a known one; others may be the data of a person."""
    vocabulary = USERS.restrict_to(known)
    meant = ((key, vocabulary.find_key(key) or vocabulary.propose_key(key)) for key in unknown if isinstance(key, str))
    return next((f"; write {found!r} for {quote_name(key)}" for key, found in meant if found), "")
