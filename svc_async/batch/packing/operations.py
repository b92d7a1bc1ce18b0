"""Operations on their way to a request: rows, the frame that they share in JSON, and what one request may hold."""

import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol

import attrs

from svc_async.batch.packing.positions import Positions
from svc_async.users.packed import Joints, PackedUsers, RowTemplate, TextUsers, merge_users

__all__ = [
    "ARRAY",
    "CHUNK_SIZE",
    "Limits",
    "OperationBlock",
    "OperationFrame",
    "OperationGroup",
    "PackedRows",
    "select_rows",
]

CHUNK_SIZE = 65_536
"""Bytes of a body that are written at a time."""


@attrs.frozen
class OperationFrame:
    """The JSON before and after the users of an operation, or the operations of a body; ASCII."""

    head: str
    tail: str

    @property
    def size(self) -> int:
        """Its number of bytes."""
        return len(self.head) + len(self.tail)


ARRAY = OperationFrame("[", "]")
"""The frame of a body that is an array of operations."""


class OperationGroup(Hashable, Protocol):
    """What operations have in common; rows of equal groups share operations."""

    @property
    def overhead(self) -> int:
        """The size of the frame, which does not depend on the time."""
        ...

    def build_frame(self, now: datetime) -> OperationFrame:
        """Return the frame for a batch that is built now."""
        ...

    def to_plain(self) -> Any:
        """Return plain values from which an equal group can be parsed."""
        ...


@attrs.frozen
class OperationBlock:
    """Operations of one batch with the same frame; they are written when they are sent.

    Attributes:
        per_operation: users in each of them; the last one may hold fewer.
        positions: the rows, in the order of the users.
    """

    frame: OperationFrame
    template: RowTemplate
    per_operation: int
    users: PackedUsers
    positions: Positions

    @property
    def operations(self) -> int:
        """The number of operations."""
        return count_operations(len(self.users), self.per_operation)

    @property
    def size(self) -> int:
        """The bytes of the operations, each with the comma or bracket that follows it."""
        payload_size = self.users.measure(self.template)
        return measure_operations(self.template, self.frame.size, self.operations, len(self.users), payload_size)

    @property
    def held(self) -> int:
        """The bytes of memory that its rows take."""
        return self.users.held + self.positions.held

    def write_chunks(self, size: int = CHUNK_SIZE) -> Iterator[bytes]:
        """Write the operations in chunks of about this size; a comma ends each."""
        step = max(1, size * self.operations // self.size) * self.per_operation
        head, tail = f"{self.frame.head}{self.template.before}", f"{self.template.after}{self.frame.tail},"
        before, after = head.encode(), tail.encode()
        joints = Joints(self.template.between, self.per_operation, f"{tail}{head}")
        for joined in self.users.write(self.template, joints, step):
            yield b"".join((before, joined, after))

    def count_users(self, operation: int) -> int:
        """Count the users of an operation."""
        return len(self._list_indexes(operation))

    def select(self, operations: Iterable[int]) -> "OperationBlock":
        """Return a block of these operations, in their order."""
        indexes = list(itertools.chain.from_iterable(map(self._list_indexes, operations)))
        (users,), (positions,) = self.users.distribute([indexes]), self.positions.distribute([indexes])
        return attrs.evolve(self, users=users, positions=positions)

    def repack(self, per_operation: int) -> "OperationBlock":
        """Return a block of the same users with another number of them in each operation."""
        return attrs.evolve(self, per_operation=per_operation)

    @property
    def is_text(self) -> bool:
        """Whether the users are stored as text."""
        return isinstance(self.users, TextUsers)

    def describe(self) -> str:
        """Return what its bytes depend on besides the contents of the users, and the first operation as a sample."""
        counts, sample = (self.per_operation, len(self.users)), next(self.write_users())
        return repr((attrs.astuple(self.frame), attrs.astuple(self.template), counts, sample))

    def write_users(self) -> Iterator[str]:
        """Write the users of each operation as a JSON array."""
        joints = Joints(self.template.between, self.per_operation, "")
        for joined in self.users.write(self.template, joints, self.per_operation):
            yield f"[{self.template.before}{joined.decode()}{self.template.after}]"

    def _list_indexes(self, operation: int) -> Sequence[int]:
        start = operation * self.per_operation
        return range(start, min(start + self.per_operation, len(self.users)))


def count_operations(rows: int, per_operation: int) -> int:
    """Count the operations of rows."""
    return -(-rows // per_operation)


def measure_operations(template: RowTemplate, overhead: int, operations: int, rows: int, payload_size: int) -> int:
    """Count the bytes of operations, each with the comma or bracket that follows it.

    Args:
        template: the JSON that the users have in common.
        overhead: the size of the frame.
        operations: how many operations.
        rows: how many users in all of them.
        payload_size: the bytes of the users, without what frames them.
    """
    around = len(template.before) + len(template.after) + overhead + 1
    return payload_size + len(template.between) * (rows - operations) + around * operations


@attrs.frozen(kw_only=True)
class Limits:
    """The limits of one request.

    Attributes:
        operations: operations in a request.
        size: bytes of a body, by default those of audience users (contract CAU-02).
        per_operation: users in an operation.
        wrapper: the JSON around the operations of a body; it counts.
        distinct: whether a key must not occur twice in a request, even where no order is required.
    """

    operations: int
    size: int = 5_000_000
    per_operation: int = 1
    wrapper: OperationFrame = ARRAY
    distinct: bool = False

    @property
    def empty_size(self) -> int:
        """The bytes of a body without operations, less the comma that the last operation goes without."""
        return self.wrapper.size - 1

    def measure(self, group: OperationGroup, template: RowTemplate, rows: int, payload_size: int) -> tuple[int, int]:
        """Count the operations of rows, and their bytes with the comma or bracket that follows each operation."""
        operations = count_operations(rows, self.per_operation)
        return operations, measure_operations(template, group.overhead, operations, rows, payload_size)

    def allow_row(self, group: OperationGroup, template: RowTemplate, payload_size: int) -> bool:
        """Return whether a request can hold a row of which the user has this many bytes."""
        _, size = self.measure(group, template, 1, payload_size)
        return self.empty_size + size <= self.size

    def measure_fullness(self, operations: int, size: int) -> float:
        """Return the share of a request that this many operations and bytes fill."""
        return max(operations / self.operations, (size - self.empty_size) / (self.size - self.empty_size))

    def allow(self, operations: int, size: int) -> bool:
        """Return whether a request can have this many operations and bytes."""
        return operations <= self.operations and size <= self.size


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
