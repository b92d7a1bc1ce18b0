"""Encoded rows on their way to a request: as the encoder returns them, and packed while they wait."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import attrs

from svc_async.batch.packing.operations import OperationGroup
from svc_async.users.template import RowTemplate

__all__ = ["EncodedRows", "PackedRow", "PackedRows", "concatenate", "join_users", "split_users"]

_SEPARATOR = "\n"
"""Between users; JSON escapes it, so no user contains it."""


@attrs.frozen
class EncodedRows:
    """Encoded rows of one group and template, in parallel sequences.

    Attributes:
        keys: what tells rows apart; rows of one key keep their order.
        users: the users in JSON, without what their template has.
        positions: the rows.
    """

    group: OperationGroup
    template: RowTemplate
    keys: Sequence[int]
    users: Sequence[str]
    positions: Sequence[int]

    def select(self, indexes: Sequence[int]) -> "EncodedRows":
        """Return the rows at these indexes."""
        return EncodedRows(
            self.group,
            self.template,
            [self.keys[index] for index in indexes],
            [self.users[index] for index in indexes],
            [self.positions[index] for index in indexes],
        )


@attrs.frozen
class PackedRows:
    """Rows that wait in an open batch, packed so that no row is an object.

    With an object for each, the rows of a lane would be scattered over memory, and reading them again would cost more
    than their hash did. Each string of `users` holds many, separated.
    """

    group: OperationGroup
    template: RowTemplate
    keys: "array[int]" = attrs.field(factory=lambda: array("Q"))
    users: list[str] = attrs.field(factory=list)
    positions: "array[int]" = attrs.field(factory=lambda: array("q"))

    @property
    def payload_size(self) -> int:
        """The bytes of all users, without what frames them."""
        separators = len(self.keys) - len(self.users)
        return sum(map(len, self.users)) - separators

    def split(self, row: int) -> "tuple[PackedRows, PackedRows]":
        """Split it before a row."""
        users = split_users(self.users)
        parts = (
            (self.keys[part], [join_users(users[part])], self.positions[part])
            for part in (slice(row), slice(row, None))
        )
        first, second = (PackedRows(self.group, self.template, *part) for part in parts)
        return first, second

    def unpack(self) -> "Iterator[PackedRow]":
        """Yield each row by itself."""
        for key, user, position in zip(self.keys, split_users(self.users), self.positions, strict=True):
            yield PackedRow(self.group, self.template, key, user, position)

    @classmethod
    def merge(cls, parts: "Sequence[PackedRows]") -> "PackedRows":
        """Merge packed rows of one group and template."""
        if len(parts) == 1:
            return parts[0]
        merged = cls(parts[0].group, parts[0].template)
        for part in parts:
            merged.keys.extend(part.keys)
            merged.users.extend(part.users)
            merged.positions.extend(part.positions)
        return merged


@attrs.frozen
class PackedRow:
    """One row, taken out of packed rows to be compared with others of its key."""

    group: OperationGroup
    template: RowTemplate
    key: int
    user: str
    position: int

    def pack(self) -> PackedRows:
        """Return packed rows that hold only this one."""
        return PackedRows(self.group, self.template, array("Q", [self.key]), [self.user], array("q", [self.position]))

    def is_same_user(self, other: "PackedRow") -> bool:
        """Return whether both rows send the same identifiers."""
        return self.template is other.template and self.user == other.user


def join_users(users: Iterable[str]) -> str:
    """Join users into one string."""
    return _SEPARATOR.join(users)


def split_users(joined: Iterable[str]) -> list[str]:
    """Return each user of joined strings by itself."""
    return _SEPARATOR.join(joined).split(_SEPARATOR)


def concatenate(typecode: Literal["q", "Q"], parts: "Iterable[array[int]]") -> "array[int]":
    """Concatenate arrays of one type."""
    whole = array(typecode)
    for part in parts:
        whole.extend(part)
    return whole
