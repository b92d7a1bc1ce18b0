"""On which line of a file each row begins."""

from array import array
from bisect import bisect_right
from collections.abc import Sequence

__all__ = ["Lines"]


class Lines:
    """On which line each row begins, counted from 1.

    A row stands a fixed number of lines after its position until something unusual comes; only those places are kept.
    """

    def __init__(self) -> None:
        self._positions = array("q", [0])
        self._ahead = array("q", [1])
        self._read = 0
        self._line = 1

    def start(self, line: int) -> None:
        """Take note of the line on which the header ends."""
        self._line = line + 1
        self._ahead[0] = self._line

    def of(self, position: int) -> int:
        """Give the line of a row."""
        return position + self._ahead[bisect_right(self._positions, position) - 1]

    def after(self, rows: Sequence[Sequence[str]]) -> int:
        """Give the line that follows these rows, which begin where the last slice ended."""
        return self._line + sum(map(_height, rows))

    def follow(self, rows: Sequence[Sequence[str]], last_line: int, *, blank: bool) -> None:
        """Take note of a slice that ends on a line."""
        if blank or last_line - self._line + 1 != len(rows):
            self._follow_each(rows)
        else:
            self._begin()
            self._read += len(rows)
            self._line += len(rows)

    def _follow_each(self, rows: Sequence[Sequence[str]]) -> None:
        for row in rows:
            if row:
                self._begin()
                self._read += 1
            self._line += _height(row)

    def _begin(self) -> None:
        """Take note of where the next row begins, unless it is where one expects it."""
        ahead = self._line - self._read
        if ahead != self._ahead[-1]:
            self._positions.append(self._read)
            self._ahead.append(ahead)


def _height(row: Sequence[str]) -> int:
    return 1 + sum(cell.count("\n") + cell.count("\r") - cell.count("\r\n") for cell in row)
