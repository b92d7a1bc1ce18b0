"""One request, sealed: the operations it holds and the position of every row."""

import itertools
from array import array
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

import attrs

from svc_async.batch.packing.limits import Limits
from svc_async.batch.packing.operations import ARRAY, OperationBlock, OperationFrame, OperationGroup, join_operations
from svc_async.batch.packing.rows import concatenate
from svc_async.users.template import PLAIN
from svc_async.wire.route import Blocks

__all__ = ["Batch", "rebuild"]


def _count_once(count: "Callable[[Batch], int]") -> int:
    """Declare a field that is counted once, when a batch is made."""
    factory: int = attrs.Factory(count, takes_self=True)
    field: int = attrs.field(init=False, default=factory)
    return field


@attrs.frozen
class Batch:
    """One request: sealed, so that the same bytes can be sent again."""

    operation_blocks: Sequence[OperationBlock]
    wrapper: OperationFrame = ARRAY
    built: datetime = datetime(1, 1, 1, tzinfo=UTC)
    """When it was built; its times are pinned to this."""
    superseded: "array[int]" = attrs.field(factory=lambda: array("q"))
    """The positions of rows that equal rows of this batch replaced; batches that are split off have none."""
    size: int = _count_once(lambda batch: batch.wrapper.size - 1 + sum(block.size for block in batch.operation_blocks))
    """The bytes of its body, as the sum of the parts."""
    rows: int = _count_once(lambda batch: sum(len(block.positions) for block in batch.operation_blocks))
    """The number of rows, and so of users, it holds."""
    operations: int = _count_once(lambda batch: sum(len(block.users) for block in batch.operation_blocks))
    """The number of operations it holds."""

    @property
    def positions(self) -> "array[int]":
        """The positions of all rows."""
        return concatenate("q", (block.positions for block in self.operation_blocks))

    def find_positions(self, operation: int) -> Sequence[int]:
        """Return the positions of the rows in an operation, by its index in the request."""
        block, index = self._locate(operation)
        return block.find_positions(index)

    def write_users(self, operation: int) -> str:
        """Write the users of an operation as a JSON array."""
        block, index = self._locate(operation)
        return block.write_users(index)

    def write_body(self) -> Blocks:
        """Write the body, and verify that it has the size it was counted with."""
        chunks = [chunk.encode() for block in self.operation_blocks for chunk in block.write_chunks()]
        chunks[0] = self.wrapper.head.encode() + chunks[0]
        chunks[-1] = chunks[-1][:-1] + self.wrapper.tail.encode()
        written = sum(map(len, chunks))
        if written != self.size:
            raise RuntimeError(f"a body was counted with {self.size} bytes but has {written}")
        return Blocks(chunks, self.size)

    def fits(self, limits: Limits) -> bool:
        """Return whether it may be one request."""
        return limits.allow(self.operations, self.size)

    def split(self, operations: Iterable[int]) -> "tuple[Batch, Batch]":
        """Split these operations, by their index in the request, from the others."""
        selected = frozenset(operations)
        chosen: list[OperationBlock] = []
        others: list[OperationBlock] = []
        first = 0
        for block in self.operation_blocks:
            indexes = range(len(block.users))
            chosen.append(block.select([index for index in indexes if first + index in selected]))
            others.append(block.select([index for index in indexes if first + index not in selected]))
            first += len(indexes)
        return self._with(block for block in chosen if block.users), self._with(
            block for block in others if block.users
        )

    def split_in_half(self) -> "tuple[Batch, Batch]":
        """Split the batch in two; a single operation becomes two with half of the users each."""
        if self.operations == 1:
            (block,) = self.operation_blocks
            return self._with([block.repack((self.rows + 1) // 2)]).split_in_half()
        return self.split(range((self.operations + 1) // 2))

    def one_user_each(self, limits: Limits) -> "Sequence[Batch]":
        """Return the same users, one in each operation, in as many batches as that takes."""
        return _split_to_fit(self._with(block.repack(1) for block in self.operation_blocks), limits)

    def _locate(self, operation: int) -> tuple[OperationBlock, int]:
        for block in self.operation_blocks:
            if operation < len(block.users):
                return block, operation
            operation -= len(block.users)
        raise IndexError(operation)

    def _with(self, operation_blocks: Iterable[OperationBlock]) -> "Batch":
        return Batch(list(operation_blocks), self.wrapper, self.built)


def _split_to_fit(batch: Batch, limits: Limits) -> Sequence[Batch]:
    if batch.fits(limits) or batch.operations == 1:
        return [batch]
    first, second = batch.split_in_half()
    return [*_split_to_fit(first, limits), *_split_to_fit(second, limits)]


def rebuild(
    layout: Iterable[tuple[int, int]],
    rows: Iterable[tuple[int, OperationGroup, str]],
    *,
    wrapper: OperationFrame,
    built: datetime,
) -> Batch:
    """Build a batch again with the bytes it had.

    Args:
        layout: users per operation and number of rows, for each block.
        rows: the position, the group and the user, written out, of each row in the order of the body.
        wrapper: the JSON around the operations.
        built: when it was first built.
    """
    remaining = iter(rows)
    blocks: list[OperationBlock] = []
    for per_operation, count in layout:
        taken = list(itertools.islice(remaining, count))
        users = join_operations([user for _, _, user in taken], per_operation, PLAIN)
        positions = array("q", [position for position, _, _ in taken])
        _, group, _ = taken[0]
        blocks.append(OperationBlock(group.build_frame(built), PLAIN, users, per_operation, positions))
    return Batch(blocks, wrapper, built)
