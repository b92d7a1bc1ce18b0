"""Operations: what frames them in JSON, and blocks of those with the same frame."""

import itertools
from array import array
from collections.abc import Hashable, Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol

import attrs
import msgspec

from svc_async.users.template import PLAIN, RowTemplate

__all__ = ["ARRAY", "CHUNK_SIZE", "OperationBlock", "OperationFrame", "OperationGroup", "join_operations"]

CHUNK_SIZE = 65_536
"""Bytes of a body that are joined at a time."""


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
    """Operations of one batch with the same frame.

    Attributes:
        users: the users of each operation, joined as their template requires.
        per_operation: users in each of them; the last one may hold fewer.
        positions: the rows, in the order of the users.
    """

    frame: OperationFrame
    template: RowTemplate
    users: Sequence[str]
    per_operation: int
    positions: "array[int]"

    @property
    def size(self) -> int:
        """The bytes of the operations, each with the comma or bracket that follows it."""
        return sum(map(len, self.users)) + (len(self._head) + len(self._tail) + 1) * len(self.users)

    def write_chunks(self, size: int = CHUNK_SIZE) -> Iterator[str]:
        """Write the operations in chunks of about this size; a comma ends each."""
        between = f"{self._tail},{self._head}"
        step = max(1, size * len(self.users) // self.size)
        for start in range(0, len(self.users), step):
            yield f"{self._head}{between.join(self.users[start : start + step])}{self._tail},"

    def find_positions(self, operation: int) -> Sequence[int]:
        """Return the positions of the rows in an operation."""
        start = operation * self.per_operation
        return self.positions[start : start + self.per_operation]

    def select(self, operations: Sequence[int]) -> "OperationBlock":
        """Return a block of these operations, in their order."""
        positions = array("q", itertools.chain.from_iterable(map(self.find_positions, operations)))
        users = [self.users[operation] for operation in operations]
        return attrs.evolve(self, users=users, positions=positions)

    def repack(self, per_operation: int) -> "OperationBlock":
        """Return a block of the same users with another number of them in each operation."""
        users = [user for operation in range(len(self.users)) for user in self._write_out(operation)]
        return OperationBlock(
            self.frame, PLAIN, join_operations(users, per_operation, PLAIN), per_operation, self.positions
        )

    def write_users(self, operation: int) -> str:
        """Write the users of an operation as a JSON array."""
        return f"[{self.template.before}{self.users[operation]}{self.template.after}]"

    def _write_out(self, operation: int) -> Iterator[str]:
        users = msgspec.json.decode(self.write_users(operation), type=list[msgspec.Raw])
        return (bytes(user).decode() for user in users)

    @property
    def _head(self) -> str:
        return self.frame.head + self.template.before

    @property
    def _tail(self) -> str:
        return self.template.after + self.frame.tail


def join_operations(users: Sequence[str], per_operation: int, template: RowTemplate) -> Sequence[str]:
    """Join users into operations of this many."""
    if per_operation == 1:
        return users
    starts = range(0, len(users), per_operation)
    return [template.between.join(users[start : start + per_operation]) for start in starts]
