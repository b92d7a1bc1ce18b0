"""Split a stream of bytes into lines, however it was divided into chunks; no I/O.

Every byte is copied a fixed number of times, so a line of many megabytes that arrives byte by byte costs time linear
in its length. Lines stay bytes, because a chunk may end inside a multi-byte character and a line cannot.
"""

import attrs

__all__ = ["LineSplitter", "OverlongLine"]


@attrs.frozen
class OverlongLine:
    """A line that was discarded because it is too long.

    Attributes:
        size: its length in bytes, without the line feed.
    """

    size: int


@attrs.define
class LineSplitter:
    r"""Splits chunks into lines, without their `\n` or `\r\n`.

    Args:
        max_line_bytes: the longest line that is kept, without its line feed; of a longer one only the size is known.
    """

    max_line_bytes: int
    _rest: bytearray = attrs.field(factory=bytearray, init=False)
    _size: int = attrs.field(default=0, init=False)

    def feed(self, chunk: bytes) -> list[bytes | OverlongLine]:
        """Add a chunk and return the lines that end in it."""
        first, *others = chunk.split(b"\n")
        self._append(first)
        lines: list[bytes | OverlongLine] = []
        for piece in others:
            lines.append(self._complete_line())
            self._append(piece)
        return lines

    def finish(self) -> int:
        """Discard an incomplete last line and return its size in bytes."""
        size, self._size = self._size, 0
        self._rest.clear()
        return size

    def _append(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self.max_line_bytes:
            self._rest += piece

    def _complete_line(self) -> bytes | OverlongLine:
        line = bytes(self._rest)
        size = self.finish()
        return OverlongLine(size) if size > self.max_line_bytes else line.removesuffix(b"\r")
