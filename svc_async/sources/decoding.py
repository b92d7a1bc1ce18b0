"""Text of an input in blocks that end where a line ends, whatever Unicode encoding it is in.

A file is read in blocks, never as a whole. The encoding is told from a byte order mark, or from where the NUL bytes of
the first characters stand; else it is UTF-8. No other encoding is ever guessed: a wrong guess would hash the names of
people into those of others, and nobody would see it.
"""

import codecs
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from io import IncrementalNewlineDecoder, StringIO
from types import MappingProxyType

from svc_async.errors import InvalidArgument
from svc_async.sources.files import Bytes, Input, refused

__all__ = ["Texts", "lines_of"]

_BLOCK = 65_536
_LONGEST_LINE = 4_194_304
_MARKS: Mapping[bytes, str] = MappingProxyType(
    {
        codecs.BOM_UTF8: "utf-8-sig",
        codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, with whose mark it begins
        codecs.BOM_UTF32_BE: "utf-32",
        codecs.BOM_UTF16_LE: "utf-16",
        codecs.BOM_UTF16_BE: "utf-16",
    }
)
_NULS: Mapping[tuple[bool, ...], str] = MappingProxyType(
    {
        (True, True, True, False): "utf-32-be",
        (False, True, True, True): "utf-32-le",
        (True, False, True, False): "utf-16-be",
        (False, True, False, True): "utf-16-le",
    }
)
"""Where the NUL bytes stand when the first two characters are ASCII."""


class Texts:
    """The text of an input.

    Args:
        source: where it comes from.
        encoding: any of Python's; told from the first bytes, if not given.

    Attributes:
        name: what people call the input.
        encoding: the encoding.
        bytes_read: how many of the stored bytes `blocks` has taken.

    Raises:
        InvalidArgument: the encoding is unknown, or the input cannot be read.
    """

    def __init__(self, source: Input, *, encoding: str | None = None) -> None:
        self._input = source
        self.name = source.name
        self.bytes_read = 0
        self.encoding = self._detected() if encoding is None else _known(encoding)

    def refused(self, what: str) -> InvalidArgument:
        """Say what is wrong with the input."""
        return refused(self.name, what)

    def start(self) -> str:
        """Give the first characters, for a look at what the input is."""
        with closing(self.blocks()) as blocks:
            return next(blocks, "")

    def blocks(self) -> Generator[str, None, None]:
        """Give the text in blocks that end where a line ends.

        Raises:
            InvalidArgument: the text breaks off, is not in its encoding, holds a NUL or has an endless line.
        """
        rest = ""
        with closing(self._decoded()) as texts:
            for text in texts:
                # A carriage return at the very end may be the first half of a line end.
                whole = rest + text
                cut = max(whole.rfind("\n"), whole.rfind("\r", 0, -1)) + 1
                rest = whole[cut:]
                if len(rest) > _LONGEST_LINE:
                    raise self.refused("has a line of several megabytes: is it the kind of file you think?")
                yield whole[:cut]
        yield rest

    def _decoded(self) -> Generator[str, None, None]:
        decoder = codecs.getincrementaldecoder(self.encoding)()
        offset = 0
        with Bytes(self._input) as file:
            self.bytes_read = 0
            while True:
                block = file.read(_BLOCK)
                yield self._sound(self._text(decoder, block, offset), offset)
                offset += len(block)
                self.bytes_read = file.stored
                if not block:
                    return

    def _text(self, decoder: codecs.IncrementalDecoder, block: bytes, offset: int) -> str:
        try:
            return decoder.decode(block, final=not block)
        except UnicodeError as error:
            # The decoder may hold the first bytes of a letter back from the block before.
            rest = len(error.object) - error.start if isinstance(error, UnicodeDecodeError) else len(block)
            line = self._lines_before(offset + len(block) - rest) + 1
            name = self.encoding.removesuffix("-sig").upper()
            raise self.refused(f"is not {name} on line {line}: save it as UTF-8, or name its encoding") from None

    def _sound(self, text: str, offset: int) -> str:
        nul = text.find("\0")
        if nul < 0:
            return text
        line = self._lines_before(offset) + _line_ends(text[:nul]) + 1
        raise self.refused(f"holds a NUL byte on line {line}: save it as UTF-8, or name its encoding")

    def _lines_before(self, offset: int) -> int:
        """Count the lines up to a byte, by reading again."""
        decoder = IncrementalNewlineDecoder(codecs.getincrementaldecoder(self.encoding)("replace"), translate=True)
        with Bytes(self._input) as file:
            return sum(
                decoder.decode(file.read(min(_BLOCK, offset - at))).count("\n") for at in range(0, offset, _BLOCK)
            )

    def _detected(self) -> str:
        with Bytes(self._input) as file:
            first = file.read(4)
        marked = next((name for mark, name in _MARKS.items() if first.startswith(mark)), None)
        return marked or _NULS.get(tuple(not byte for byte in first), "utf-8")


def _line_ends(text: str) -> int:
    return text.count("\n") + text.count("\r") - text.count("\r\n")


def _known(encoding: str) -> str:
    try:
        name = codecs.lookup(encoding).name
        "".encode(name)  # refuses codecs that are not of text
    except (LookupError, ValueError):
        raise InvalidArgument("encoding", "must be one that Python knows, such as utf-8 or cp1252") from None
    return "utf-8-sig" if name == "utf-8" else name


def lines_of(text: str) -> Iterator[str]:
    """Cut a block into lines, each with its end."""
    return StringIO(text, newline="")
