"""Operations: what frames them in JSON, and blocks of those with the same frame."""

import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol

import attrs

from svc_async.batch.packing.positions import Positions
from svc_async.users.packed import Joints, PackedUsers, TextUsers
from svc_async.users.template import RowTemplate

__all__ = [
    "ARRAY",
    "CHUNK_SIZE",
    "OperationBlock",
    "OperationFrame",
    "OperationGroup",
    "count_operations",
    "measure_operations",
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
