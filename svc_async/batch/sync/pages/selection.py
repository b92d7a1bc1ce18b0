"""Which rows of a snapshot are sent, and in which stage; no I/O.

Rows to send are numbered from 0: those of the first stage in the order of the snapshot, then those of the second.
"""

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, compress, repeat
from typing import TypeVar

import attrs

from svc_async.batch.sync.plan import STAGES, Stage

__all__ = ["Selection"]

T = TypeVar("T")

_BLOCK = 64
"""Rows whose numbers are counted together; a row is looked up among so many."""
_CODES: Mapping[Stage, int] = {stage: code for code, stage in enumerate(STAGES, 1)}
_MASKS = {stage: bytes(code == number for number in range(256)) for stage, code in _CODES.items()}


@attrs.define(slots=False)
class Selection:
    """A byte for each row of a snapshot: 0 for rows that are not sent, else the number of the stage."""

    codes: bytearray = attrs.field(factory=bytearray)

    def extend_to(self, rows: int) -> None:
        """Add rows that are not sent."""
        self.codes += bytes(max(0, rows - len(self.codes)))

    def add(self, positions: Iterable[int], stage: Stage) -> None:
        """Select rows."""
        deque(map(self.codes.__setitem__, positions, repeat(_CODES[stage])), 0)

    def defer(self) -> None:
        """Move all rows to the second stage."""
        self.codes = self.codes.translate(bytes([0, *[_CODES["later"]] * 255]))

    def count(self, stage: Stage) -> int:
        """Return how many rows are sent in a stage."""
        return self.codes.count(_CODES[stage])

    def choose(self, rows: Iterable[T], stage: Stage) -> Iterator[T]:
        """Select the rows of a stage from all rows."""
        return compress(rows, self.codes.translate(_MASKS[stage]) if self.count("later") else self.codes)

    def find(self, rows: range, stage: Stage) -> Sequence[int]:
        """Return which of some consecutive rows are sent in a stage, counted from the first of them."""
        codes = self.codes[rows.start : rows.stop]
        found = codes.count(_CODES[stage])
        if found in (0, len(rows)):
            return range(found)
        return list(compress(range(len(rows)), codes.translate(_MASKS[stage])))

    def spread(self, outcomes: bytes | bytearray) -> bytearray:
        """Return the outcomes of all rows by position, given those by number."""
        spread, first = bytearray(len(self.codes)), 0
        for stage in STAGES:
            count = self.count(stage)
            positions = self.choose(range(len(self.codes)), stage)
            deque(map(spread.__setitem__, positions, memoryview(outcomes)[first : first + count]), 0)
            first += count
        return spread

    def find_position(self, number: int) -> int:
        """Return the position of a row by its number."""
        index = bisect_right(self._before, number) - 1
        stage, block = divmod(index, -(-len(self.codes) // _BLOCK))
        rows = range(block * _BLOCK, (block + 1) * _BLOCK)
        return rows[self.find(rows, STAGES[stage])[number - self._before[index]]]

    @cached_property
    def _before(self) -> "array[int]":
        """How many rows have lower numbers than those of each block of the snapshot: for each block, by stage.

        They are counted when a row is first looked up; no row may be selected after that.
        """
        starts = range(0, len(self.codes), _BLOCK)
        counts = (self.codes.count(code, start, start + _BLOCK) for code in _CODES.values() for start in starts)
        return array("I", accumulate(counts, initial=0))
