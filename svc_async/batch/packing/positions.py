"""Positions of rows, packed: those of a lane are near each other, so two bytes are enough for most."""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import overload

import attrs

from svc_async.users.packed import make_picker

__all__ = ["PlainRun", "PositionRun", "Positions"]

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
        return cls(start, array(typecode, offsets), start + lowest, start + highest)

    def shift(self, start: int) -> Iterable[int]:
        """Return the positions as offsets from another start."""
        difference = self.start - start
        if not difference:
            return self.offsets
        if isinstance(self.offsets, range):
            return range(self.offsets.start + difference, self.offsets.stop + difference)
        return [offset + difference for offset in self.offsets]


@attrs.frozen
class Positions(Sequence[int]):
    """The positions of rows, in the order of the rows.

    Attributes:
        runs: the positions, in parts.
    """

    runs: Sequence[PositionRun] = ()
    _count: int = attrs.field(init=False, eq=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_count", sum(len(run.offsets) for run in self.runs))

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
        runs: list[PositionRun] = []
        for part in parts:
            for run in part.runs:
                if runs and _continues(runs[-1], run):
                    runs[-1] = PositionRun.pack(range(runs[-1].lowest, run.highest + 1))
                else:
                    runs.append(run)
        return cls(runs)

    def to_plain(self) -> Sequence[PlainRun]:
        """Return plain values from which `from_plain` makes equal positions."""
        return [
            (run.lowest, len(run.offsets), "", b"")
            if isinstance(run.offsets, range)
            else (run.start, 0, run.offsets.typecode, run.offsets.tobytes())
            for run in self.runs
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
        return chain.from_iterable(run.shift(0) for run in self.runs)

    @property
    def lowest(self) -> int:
        """The lowest of at least one position."""
        return min(run.lowest for run in self.runs)

    @property
    def highest(self) -> int:
        """The highest of at least one position."""
        return max(run.highest for run in self.runs)

    @property
    def held(self) -> int:
        """The bytes of memory that they take."""
        return sum(len(run.offsets) * run.offsets.itemsize for run in self.runs if isinstance(run.offsets, array))

    def distribute(self, groups: Iterable[Sequence[int]]) -> "Iterator[Positions]":
        """Yield the positions at the indexes of each group."""
        start = self.lowest if self else 0
        are_consecutive = len(self.runs) == 1 and isinstance(self.runs[0].offsets, range)
        offsets = range(len(self)) if are_consecutive else self._list_offsets(start)
        for indexes in groups:
            picked = indexes if are_consecutive else make_picker(indexes)(offsets)
            yield Positions([PositionRun.pack(picked, start)] if picked else ())

    def _list_offsets(self, start: int) -> Sequence[int]:
        return list(chain.from_iterable(run.shift(start) for run in self.runs))

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> "Positions": ...

    def __getitem__(self, index: int | slice) -> "int | Positions":
        """Return one position, or those of a slice without a step."""
        if isinstance(index, int):
            place = range(len(self))[index]
            return next(iter(self[place : place + 1]))
        first, end, _ = index.indices(len(self))
        runs: list[PositionRun] = []
        for run in self.runs:
            offsets = run.offsets[max(0, first) : max(0, end)]
            if offsets:
                runs.append(PositionRun.pack(offsets, run.start))
            first, end = first - len(run.offsets), end - len(run.offsets)
        return Positions(runs)


def _find_ranges(positions: Sequence[int]) -> Iterator[range]:
    """Yield the consecutive positions of an ascending sequence, together."""
    first, indexes = 0, range(len(positions))
    while first < len(positions):
        start = positions[first] - first
        end = bisect_right(indexes, start, lo=first, key=lambda index: positions[index] - index)
        yield range(start + first, start + end)
        first = end


def _continues(run: PositionRun, following: PositionRun) -> bool:
    are_ranges = isinstance(run.offsets, range) and isinstance(following.offsets, range)
    return are_ranges and following.lowest == run.highest + 1
