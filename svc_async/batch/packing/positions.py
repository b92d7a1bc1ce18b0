"""Positions of rows, packed: those of a lane are near each other, so two bytes are enough for most."""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain
from struct import Struct
from typing import overload

import attrs

from svc_async.users.packed import make_picker, partition

__all__ = ["PartitionRun", "PlainRun", "PositionRun", "Positions"]

PlainRun = tuple[int, int, str, bytes]
"""A start; then how many consecutive positions follow, or how offsets are packed, and the offsets."""

_TYPECODES = ((1 << 16, "H"), (1 << 32, "I"), (1 << 64, "Q"))
_ROWS_A_RANGE = 64
"""Positions of which fewer than one in these is missing are kept as ranges; ranges take more than two bytes."""
_PACKED = frozenset(typecode for _, typecode in _TYPECODES)


@attrs.frozen
class PositionRun:
    """Positions as offsets from a start.

    Attributes:
        start: what the offsets are added to.
        offsets: the offsets; a range for consecutive rows.
        lowest: the lowest position.
        highest: the highest position.
    """

    start: int
    offsets: "range | array[int]"
    lowest: int
    highest: int

    @classmethod
    def pack(cls, offsets: Sequence[int], start: int = 0) -> "PositionRun":
        """Pack offsets, of which there is at least one."""
        if isinstance(offsets, range) and offsets.step == 1:
            return cls(start, offsets, start + offsets[0], start + offsets[-1])
        ordered = sorted(offsets)  # they nearly always are, which takes no time
        lowest, highest = ordered[0], ordered[-1]
        typecode = next(typecode for limit, typecode in _TYPECODES if highest < limit)
        if not (isinstance(offsets, array) and offsets.typecode == typecode):
            # This is twice as fast as an array converts integers.
            offsets = array(typecode, Struct(f"{len(offsets)}{typecode}").pack(*offsets))
        return cls(start, offsets, start + lowest, start + highest)

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def held(self) -> int:
        """The bytes of memory that they take."""
        return len(self.offsets) * self.offsets.itemsize if isinstance(self.offsets, array) else 0

    def expand(self) -> "PositionRun":
        """Return itself."""
        return self

    def cut(self, first: int, end: int) -> "PositionRun":
        """Return the positions from one index to before another, of which there is at least one."""
        return PositionRun.pack(self.offsets[first:end], self.start)

    def select_up_to(self, position: int) -> "PositionRun":
        """Return those that are not higher than a position, of which there is at least one."""
        if self.highest <= position:
            return self
        return PositionRun.pack([offset for offset in self.offsets if self.start + offset <= position], self.start)

    def shift(self, start: int) -> Iterable[int]:
        """Return the positions as offsets from another start."""
        difference = self.start - start
        if not difference:
            return self.offsets
        if isinstance(self.offsets, range):
            return range(self.offsets.start + difference, self.offsets.stop + difference)
        return [offset + difference for offset in self.offsets]


@attrs.frozen(slots=False, eq=False)
class _Partitions:
    """Positions and the partition of each."""

    positions: "Positions"
    partitions: Sequence[int]
    count: int

    @cached_property
    def listed(self) -> "Sequence[Positions]":
        """The positions of each partition."""
        return list(self.positions.distribute(partition(range(len(self.positions)), self.partitions, self.count)))

    @property
    def is_listed(self) -> bool:
        """Whether the positions of each partition are in memory."""
        return "listed" in self.__dict__


@attrs.frozen
class PartitionRun:
    """Positions of one partition among many; they are listed when they are first read, which few jobs do.

    Attributes:
        first: the index of the first of them in the partition.
        end: the index after the last of them.
    """

    _partitions: _Partitions
    _partition: int
    first: int
    end: int

    def __len__(self) -> int:
        return self.end - self.first

    @property
    def held(self) -> int:
        """The bytes of memory that they take: the partition of each, and its offset."""
        return 3 * len(self) if self._partitions.is_listed else len(self)

    def expand(self) -> PositionRun:
        """Return the positions."""
        (run,) = self._partitions.listed[self._partition].expand_runs()
        return run if len(self) == len(run) else run.cut(self.first, self.end)

    def cut(self, first: int, end: int) -> "PartitionRun":
        """Return the positions from one index to before another, of which there is at least one."""
        return PartitionRun(self._partitions, self._partition, self.first + first, min(self.first + end, self.end))


@attrs.frozen
class Positions(Sequence[int]):
    """The positions of rows, in the order of the rows.

    Attributes:
        runs: the positions, in parts.
    """

    runs: Sequence[PositionRun | PartitionRun] = ()
    _count: int = attrs.field(init=False, eq=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_count", sum(map(len, self.runs)))

    @classmethod
    def pack(cls, positions: Sequence[int]) -> "Positions":
        """Pack positions."""
        if not positions:
            return cls()
        if isinstance(positions, range) and positions.step == 1:
            return cls([PositionRun.pack(positions)])
        missing = positions[-1] - positions[0] + 1 - len(positions)
        if 0 <= missing <= len(positions) // _ROWS_A_RANGE and sorted(positions) == list(positions):
            return cls([PositionRun.pack(each) for each in _find_ranges(positions)])
        start = min(positions)
        return cls([PositionRun.pack([position - start for position in positions], start)])

    @classmethod
    def merge(cls, parts: "Iterable[Positions]") -> "Positions":
        """Concatenate positions."""
        runs: list[PositionRun | PartitionRun] = []
        for run in chain.from_iterable(part.runs for part in parts):
            joined = _join(runs[-1], run) if runs else None
            if joined is None:
                runs.append(run)
            else:
                runs[-1] = joined
        return cls(runs)

    def to_plain(self) -> Sequence[PlainRun]:
        """Return plain values from which `from_plain` makes equal positions."""
        return [
            (run.lowest, len(run.offsets), "", b"")
            if isinstance(run.offsets, range)
            else (run.start, 0, run.offsets.typecode, run.offsets.tobytes())
            for run in self.expand_runs()
        ]

    @classmethod
    def from_plain(cls, plain: Iterable[PlainRun], *, most: int) -> "Positions":
        """Return the positions that `to_plain` was called on.

        Raises:
            ValueError: they are malformed, or more than `most`.
        """
        runs: list[PositionRun] = []
        for start, count, typecode, packed in plain:
            offsets = array(typecode, packed) if typecode in _PACKED else range(count)
            most -= len(offsets)
            if most < 0 or not offsets:
                raise ValueError("more positions than there can be, or none")
            runs.append(PositionRun.pack(offsets, start))
        return cls(runs)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(run.shift(0) for run in self.expand_runs())

    @property
    def lowest(self) -> int:
        """The lowest of at least one position."""
        return min(run.lowest for run in self.expand_runs())

    @property
    def highest(self) -> int:
        """The highest of at least one position."""
        return max(run.highest for run in self.expand_runs())

    @property
    def held(self) -> int:
        """The bytes of memory that they take."""
        return sum([run.held for run in self.runs])

    def select_up_to(self, position: int) -> "Positions":
        """Return those that are not higher than a position."""
        runs = [run.select_up_to(position) for run in self.expand_runs() if run.lowest <= position]
        return Positions(runs)

    def distribute(self, groups: Iterable[Sequence[int]]) -> "Iterator[Positions]":
        """Yield the positions at the indexes of each group."""
        start = self.lowest if self else 0
        are_consecutive = len(self.runs) == 1 and isinstance(self.expand_runs()[0].offsets, range)
        offsets: Sequence[int] = range(len(self))
        if not are_consecutive:
            offsets = [*chain.from_iterable(run.shift(start) for run in self.expand_runs())]
        for indexes in groups:
            picked = indexes if are_consecutive else make_picker(indexes)(offsets)
            yield Positions([PositionRun.pack(picked, start)] if picked else ())

    def partition(self, partitions: Sequence[int], sizes: Sequence[int]) -> "Sequence[Positions]":
        """Return the positions of each partition.

        Args:
            partitions: the partition of each position.
            sizes: how many positions each partition has.
        """
        listing = _Partitions(self, partitions, len(sizes))
        return [Positions([PartitionRun(listing, each, 0, size)] if size else ()) for each, size in enumerate(sizes)]

    def expand_runs(self) -> Sequence[PositionRun]:
        """Return the positions, with each offset in memory."""
        return [run.expand() for run in self.runs]

    @cached_property
    def _ends(self) -> Sequence[int]:
        """How many positions there are up to the end of each run; counted when one is first looked up."""
        return list(accumulate(map(len, self.runs)))

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> "Positions": ...

    def __getitem__(self, index: int | slice) -> "int | Positions":
        """Return one position, or those of a slice without a step."""
        if isinstance(index, int):
            place = range(len(self))[index]
            number = bisect_right(self._ends, place)
            run = self.runs[number]
            place -= self._ends[number] - len(run)
            return run.cut(place, place + 1).expand().lowest
        first, end, _ = index.indices(len(self))
        runs: list[PositionRun | PartitionRun] = []
        for run in self.runs:
            if first < len(run) and end > 0 and first < end:
                runs.append(run.cut(max(0, first), end))
            first, end = first - len(run), end - len(run)
        return Positions(runs)


def _find_ranges(positions: Sequence[int]) -> Iterator[range]:
    """Yield the consecutive positions of an ascending sequence, together."""
    first, indexes = 0, range(len(positions))
    while first < len(positions):
        start = positions[first] - first
        end = bisect_right(indexes, start, lo=first, key=lambda index: positions[index] - index)
        yield range(start + first, start + end)
        first = end


def _join(run: PositionRun | PartitionRun, following: PositionRun | PartitionRun) -> PositionRun | None:
    """Return both runs as one if they are consecutive."""
    if isinstance(run, PartitionRun) or isinstance(following, PartitionRun):
        return None
    are_ranges = isinstance(run.offsets, range) and isinstance(following.offsets, range)
    if not are_ranges or following.lowest != run.highest + 1:
        return None
    return PositionRun.pack(range(run.lowest, following.highest + 1))
