"""The line of a file on which each row begins."""

from array import array
from bisect import bisect_right
from collections.abc import Sequence

from svc_async.sources.csv_rows import count_lines

__all__ = ["LineIndex"]


_MAX_CHANGES = 1_000_000


class LineIndex:
    """The line on which each row begins, counted from 1.

    The distance between the position of a row and its line is constant until something unusual occurs; only the
    positions at which it changes are stored.
    """

    def __init__(self) -> None:
        self._positions = array("q", [0])
        self._offsets = array("q", [1])
        self._rows = 0
        self._line = 1

    def start_after(self, header_line: int) -> None:
        """Set the line on which the header ends."""
        self._line = header_line + 1
        self._offsets[0] = self._line

    def find(self, position: int) -> int | None:
        """Return the line of a row; None in a file with more than a million irregular rows, after these."""
        if position > self._positions[-1] and len(self._positions) > _MAX_CHANGES:
            return None
        return position + self._offsets[bisect_right(self._positions, position) - 1]

    def line_after(self, rows: Sequence[Sequence[str]]) -> int:
        """Return the line that follows these rows, which begin where the last slice ended."""
        return self._line + sum(map(count_lines, rows))

    def add(self, rows: Sequence[Sequence[str]], last_line: int, *, blank: bool) -> None:
        """Record a slice of rows.

        Args:
            rows: the rows; an empty one stands for a blank line.
            last_line: the line on which the slice ends.
            blank: whether there may be blank lines among them.
        """
        if blank or last_line - self._line + 1 != len(rows):
            self._add_each(rows)
        else:
            self._record_start()
            self._rows += len(rows)
            self._line += len(rows)

    def _add_each(self, rows: Sequence[Sequence[str]]) -> None:
        for row in rows:
            if row:
                self._record_start()
                self._rows += 1
            self._line += count_lines(row)

    def _record_start(self) -> None:
        """Record where the next row begins, unless the last offset already says so."""
        offset = self._line - self._rows
        if offset != self._offsets[-1] and len(self._positions) <= _MAX_CHANGES:
            self._positions.append(self._rows)
            self._offsets.append(offset)
