"""One request, sealed: the operations it holds and the position of every row."""

import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256

import attrs

from svc_async.batch.packing.operations import ARRAY, Limits, OperationBlock, OperationFrame, PackedRows
from svc_async.batch.packing.positions import Positions
from svc_async.wire.route import Blocks

__all__ = ["Batch", "BlockLayout", "Layout", "rebuild"]


def _count_once(count: "Callable[[Batch], int]") -> int:
    """Declare a field that is counted once, when a batch is made."""
    factory: int = attrs.Factory(count, takes_self=True)
    field: int = attrs.field(init=False, default=factory)
    return field


@attrs.frozen
class BlockLayout:
    """What is needed to build a block again from its rows.

    Attributes:
        per_operation: users in each operation.
        rows: how many rows it has.
        is_text: whether the users are stored as text.
    """

    per_operation: int
    rows: int
    is_text: bool


Layout = Sequence[BlockLayout]


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
    operations: int = _count_once(lambda batch: sum(block.operations for block in batch.operation_blocks))
    """The number of operations it holds."""
    held: int = _count_once(lambda batch: sum(block.held for block in batch.operation_blocks))
    """The bytes of memory that its rows take."""

    @property
    def positions(self) -> Positions:
        """The positions of all rows."""
        return Positions.merge(block.positions for block in self.operation_blocks)

    def count_users(self, operation: int) -> int:
        """Count the users of an operation, by its index in the request."""
        for block in self.operation_blocks:
            if operation < block.operations:
                return block.count_users(operation)
            operation -= block.operations
        raise IndexError(operation)

    @property
    def layout(self) -> Layout:
        """What its blocks are like."""
        return [BlockLayout(block.per_operation, len(block.users), block.is_text) for block in self.operation_blocks]

    def digest(self) -> str:
        """Return a SHA-256 of what its body is made of; the same is the same body, byte for byte.

        It includes one operation as it is written, so that bodies that are written differently have another.
        """
        digest = sha256(f"{self.size} {self.wrapper.head} {self.wrapper.tail}".encode())
        for block in self.operation_blocks:
            digest.update(block.describe().encode())
            for content in block.users.contents:
                digest.update(content)
        return digest.hexdigest()

    def write_users(self) -> Iterator[str]:
        """Write the users of each operation as a JSON array."""
        return itertools.chain.from_iterable(block.write_users() for block in self.operation_blocks)

    def write_body(self) -> Blocks:
        """Return the body, which is written whenever it is iterated over."""
        return Blocks(_Chunks(self), self.size)

    def write_chunks(self) -> Iterator[bytes]:
        """Write the body in chunks.

        Raises:
            RuntimeError: it has not the size that it was counted with; the last chunk is withheld.
        """
        chunks = itertools.chain.from_iterable(block.write_chunks() for block in self.operation_blocks)
        chunk = self.wrapper.head.encode() + next(chunks)
        written = len(chunk)
        for following in chunks:
            yield chunk
            chunk = following
            written += len(chunk)
        tail = self.wrapper.tail.encode()
        if written - 1 + len(tail) != self.size:
            raise RuntimeError(f"a body was counted with {self.size} bytes but has {written - 1 + len(tail)}")
        yield chunk[:-1] + tail

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
            indexes = range(block.operations)
            chosen.append(block.select([index for index in indexes if first + index in selected]))
            others.append(block.select([index for index in indexes if first + index not in selected]))
            first += len(indexes)
        return self._with(block for block in chosen if block.operations), self._with(
            block for block in others if block.operations
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

    def _with(self, operation_blocks: Iterable[OperationBlock]) -> "Batch":
        return Batch(list(operation_blocks), self.wrapper, self.built)


def _split_to_fit(batch: Batch, limits: Limits) -> Sequence[Batch]:
    if batch.fits(limits) or batch.operations == 1:
        return [batch]
    first, second = batch.split_in_half()
    return [*_split_to_fit(first, limits), *_split_to_fit(second, limits)]


@attrs.frozen
class _Chunks:
    """The body of a batch: written again whenever it is iterated over, so that it is never in memory as a whole."""

    batch: Batch

    def __iter__(self) -> Iterator[bytes]:
        return self.batch.write_chunks()


def rebuild(blocks: Iterable[tuple[BlockLayout, PackedRows]], *, wrapper: OperationFrame, built: datetime) -> Batch:
    """Build a batch again with the bytes it had.

    Args:
        blocks: the rows of each block.
        wrapper: the JSON around the operations.
        built: when it was first built.
    """
    return Batch(
        [
            OperationBlock(
                rows.group.build_frame(built),
                rows.template,
                layout.per_operation,
                rows.users.to_text(rows.template) if layout.is_text else rows.users,
                rows.positions,
            )
            for layout, rows in blocks
        ],
        wrapper,
        built,
    )
