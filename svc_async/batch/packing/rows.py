"""Rows on their way to a request."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

import attrs

from svc_async.batch.packing.operations import OperationGroup
from svc_async.batch.packing.positions import Positions
from svc_async.users.packed import PackedUsers, merge_users
from svc_async.users.template import RowTemplate

__all__ = ["PackedRows", "select_rows"]


@attrs.frozen
class PackedRows:
    """Rows of one group and template, packed so that no row is an object.

    Attributes:
        users: the users, with their keys: rows of one key keep their order.
        positions: the rows.
    """

    group: OperationGroup
    template: RowTemplate
    users: PackedUsers
    positions: Positions

    def __len__(self) -> int:
        return len(self.users)

    @property
    def held(self) -> int:
        """The bytes of memory that they take."""
        return self.users.held + self.positions.held

    @property
    def payload_size(self) -> int:
        """The bytes of all users, without what frames them."""
        return self.users.measure(self.template)

    def split(self, row: int) -> "tuple[PackedRows, PackedRows]":
        """Split them before a row."""
        first, second = self.users.split(row)
        return (
            PackedRows(self.group, self.template, first, self.positions[:row]),
            PackedRows(self.group, self.template, second, self.positions[row:]),
        )

    def select(self, indexes: Sequence[int]) -> "PackedRows":
        """Return the rows at these indexes."""
        (selected,) = self.distribute([indexes])
        return selected

    def distribute(self, groups: Sequence[Sequence[int]]) -> "Iterator[PackedRows]":
        """Yield the rows at the indexes of each group."""
        users: Iterator[PackedUsers] = self.users.distribute(groups)
        for each, positions in zip(users, self.positions.distribute(groups), strict=True):
            yield PackedRows(self.group, self.template, each, positions)

    def partition(self, partitions: Sequence[int], count: int) -> "Iterator[tuple[int, PackedRows]]":
        """Yield each partition that has rows, with its rows; arguments as those of the users."""
        users: Sequence[PackedUsers] = self.users.partition(partitions, count)
        positions = self.positions.partition(partitions, list(map(len, users)))
        for number, (some, their_positions) in enumerate(zip(users, positions, strict=True)):
            if len(some):
                yield number, PackedRows(self.group, self.template, some, their_positions)

    def write_each(self) -> Sequence[str]:
        """Write each user by itself, without what its template has."""
        return self.users.to_text(self.template).list_users()

    @classmethod
    def merge(cls, parts: "Sequence[PackedRows]") -> "PackedRows":
        """Merge rows of one group and template."""
        if len(parts) == 1:
            return parts[0]
        first = parts[0]
        users = merge_users([part.users for part in parts], first.template)
        return cls(first.group, first.template, users, Positions.merge(part.positions for part in parts))


def select_rows(places: Iterable[tuple[PackedRows, int]]) -> Iterator[PackedRows]:
    """Return the rows at these places, each among many and with its index there."""
    for _, alike in itertools.groupby(places, key=lambda place: id(place[0])):
        (rows, first), *others = alike
        yield rows.select([first, *(index for _, index in others)])
