"""Requests on their way: rows, the operations that they make, and what one request may hold.

Rows of one group and template are packed (`PackedRows`). Sealed, they are the blocks of operations of a `Batch`, which
is one request: its body is written from them whenever it is sent, with the same bytes each time.
"""

import itertools
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Protocol

import attrs

from svc_async.batch.packing.positions import Positions
from svc_async.users.packed import Joints, PackedUsers, RowTemplate, TextUsers, merge_users
from svc_async.wire.dialect import Dialect
from svc_async.wire.route import Blocks

__all__ = [
    "ARRAY",
    "CHUNK_SIZE",
    "Batch",
    "BlockLayout",
    "Layout",
    "Limits",
    "OperationBlock",
    "OperationFrame",
    "OperationGroup",
    "PackedRows",
    "rebuild",
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

    def write_in(self, dialect: Dialect) -> "OperationFrame":
        """Return the same frame in the words of a dialect."""
        return OperationFrame(*(dialect.write_json(part.encode()).decode() for part in (self.head, self.tail)))


ARRAY = OperationFrame("[", "]")
"""The frame of a body that is an array of operations."""


class OperationGroup(Hashable, Protocol):
    """The part that operations share; rows of equal groups share operations."""

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
        """True if the users are stored as text."""
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
