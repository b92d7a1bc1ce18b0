"""Cuts a stream of bytes into lines, however it was chopped on its way; no I/O.

Every byte is copied a fixed number of times, so a line of many megabytes that comes a byte at a time costs no more
than its length. Lines stay bytes: a character of several bytes may be cut by a chunk, never by a line's end.
"""

import attrs

__all__ = ["LineSplitter", "Overlong"]


@attrs.frozen
class Overlong:
    """A line that was let go because it is too long.

    Attributes:
        size: its bytes, without the line feed.
    """

    size: int


@attrs.define
class LineSplitter:
    r"""Takes chunks and gives the lines that they complete, without their `\n` or `\r\n`.

    Args:
        max_line_bytes: the longest line that is kept, without its line feed; of a longer one only the size is known.
    """

    max_line_bytes: int
    _rest: bytearray = attrs.field(factory=bytearray, init=False)
    _size: int = attrs.field(default=0, init=False)

    def feed(self, chunk: bytes) -> list[bytes | Overlong]:
        """Take a chunk and give the lines that end in it."""
        first, *others = chunk.split(b"\n")
        self._grow(first)
        lines: list[bytes | Overlong] = []
        for piece in others:
            lines.append(self._cut())
            self._grow(piece)
        return lines

    def finish(self) -> int:
        """Drop what the end of the stream left without a line's end, and give its bytes."""
        size, self._size = self._size, 0
        self._rest.clear()
        return size

    def _grow(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self.max_line_bytes:
            self._rest.clear()
        else:
            self._rest += piece

    def _cut(self) -> bytes | Overlong:
        line = bytes(self._rest)
        size = self.finish()
        return Overlong(size) if size > self.max_line_bytes else line.removesuffix(b"\r")
