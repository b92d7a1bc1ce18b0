"""Decode an input into blocks of text that end where a line ends, in any Unicode encoding.

A file is read in blocks, never as a whole. The encoding is detected from a byte order mark, or from the positions of
the NUL bytes in the first characters; otherwise it is UTF-8. No other encoding is ever guessed: a wrong guess would
silently hash the names of people into those of others.
"""

import codecs
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from io import IncrementalNewlineDecoder, StringIO
from types import MappingProxyType

from svc_async.errors import InvalidArgument, UnusableFile
from svc_async.sources.blocks.encoding_advice import propose_encoding
from svc_async.sources.blocks.files import ByteReader, Input, advise_in_python, unusable
from svc_async.sources.blocks.other_formats import is_binary

__all__ = ["BLOCK_SIZE", "MAX_LINE", "TextReader", "split_lines"]

BLOCK_SIZE = 65_536
"""Bytes that are read and decoded at a time."""
MAX_LINE = 4_194_304
"""Characters of a line."""
_SAMPLE_SIZE = 4_096
_NO_TEXT = "is no text file; CSV, TSV, JSON lines and Parquet are read, and XML as a feed of products"
_MARKS: Mapping[bytes, str] = MappingProxyType(
    {
        codecs.BOM_UTF8: "utf-8-sig",
        codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark is its beginning
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
"""The positions of NUL bytes if the first two characters are ASCII."""


class TextReader:
    """Reads the text of an input.

    Args:
        source: the input.
        encoding: any of Python's; detected from the first bytes if None.
        block_size: bytes that are decoded at a time.

    Attributes:
        name: the name of the input to show to users.
        encoding: the encoding.
        lines_before: how many lines come before the input, if it is a part of a file.
        bytes_read: how many stored bytes `read_blocks` has read.

    Raises:
        InvalidArgument: the encoding is unknown.
        UnusableFile: the input cannot be read.
    """

    def __init__(self, source: Input, *, encoding: str | None = None, block_size: int = BLOCK_SIZE) -> None:
        self._input = source
        self._block_size = block_size
        self.name = source.name
        self.lines_before = source.lines_before
        self.bytes_read = 0
        self.encoding = self._detect_encoding() if encoding is None else _find_encoding(encoding)

    def refuse(self, problem: str) -> UnusableFile:
        """Return the error that says what is wrong with the input."""
        return unusable(self.name, problem)

    def read_blocks(self) -> Generator[str, None, None]:
        """Yield the text in blocks that end where a line ends.

        Raises:
            UnusableFile: the text is truncated, is not in its encoding, contains a NUL or has too long a line.
        """
        rest = ""
        with closing(self._decode_blocks()) as blocks:
            for block in blocks:
                # A carriage return at the very end may be the first half of a line end.
                text = rest + block
                end = max(text.rfind("\n"), text.rfind("\r", 0, -1)) + 1
                rest = text[end:]
                if len(rest) > MAX_LINE:
                    raise self.refuse("has a line longer than 4 MiB; is this really CSV or JSON lines?")
                yield text[:end]
        yield rest

    def _decode_blocks(self) -> Generator[str, None, None]:
        decoder = codecs.getincrementaldecoder(self.encoding)()
        offset = 0
        with ByteReader(self._input) as file:
            self.bytes_read = 0
            while True:
                block = file.read(self._block_size)
                yield self._check_nul(self._decode(decoder, block, offset), offset)
                offset += len(block)
                self.bytes_read = file.stored
                if not block:
                    return

    def _decode(self, decoder: codecs.IncrementalDecoder, block: bytes, offset: int) -> str:
        try:
            return decoder.decode(block, final=not block)
        except UnicodeError as error:
            # The decoder may have held back the first bytes of a character from the block before.
            rest = len(error.object) - error.start if isinstance(error, UnicodeDecodeError) else len(block)
            line = self._count_lines_before(offset + len(block) - rest) + 1
            name = self.encoding.removesuffix("-sig").upper()
            proposed = propose_encoding(error) if isinstance(error, UnicodeDecodeError) and name == "UTF-8" else None
            problem = f"is not {name} on line {line}"
        raise self._refuse_text(problem, proposed)  # only now: the other error holds the text

    def _check_nul(self, text: str, offset: int) -> str:
        nul = text.find("\0")
        if nul < 0:
            return text
        line = self._count_lines_before(offset) + _count_line_ends(text[:nul]) + 1
        raise self._refuse_text(f"contains a NUL byte on line {line}")

    def _refuse_text(self, problem: str, proposed: str | None = None) -> UnusableFile:
        """Return the error that says what is wrong with the text, and what to do; or that it is none."""
        with ByteReader(self._input) as file:
            if is_binary(file.read(_SAMPLE_SIZE)):
                return self.refuse(_NO_TEXT)
        advice = f", probably {proposed} (--encoding {proposed})" if proposed else " with --encoding"
        return self.refuse(f"{problem}; save it as UTF-8, or name its encoding{advice}{advise_in_python('encoding=')}")

    def _count_lines_before(self, offset: int) -> int:
        """Count the lines of the file before a byte, by reading again."""
        decoder = IncrementalNewlineDecoder(codecs.getincrementaldecoder(self.encoding)("replace"), translate=True)
        with ByteReader(self._input) as file:
            count = self.lines_before
            for start in range(0, offset, self._block_size):
                try:
                    count += decoder.decode(file.read(min(self._block_size, offset - start))).count("\n")
                except UnicodeError:  # no byte order mark where the encoding needs one: nothing can be decoded
                    break
            return count

    def _detect_encoding(self) -> str:
        with ByteReader(self._input) as file:
            first = file.read(4)
        marked = next((name for mark, name in _MARKS.items() if first.startswith(mark)), None)
        return marked or _NULS.get(tuple(not byte for byte in first), "utf-8")


def _count_line_ends(text: str) -> int:
    return text.count("\n") + text.count("\r") - text.count("\r\n")


def _find_encoding(encoding: str) -> str:
    try:
        name = codecs.lookup(encoding).name
        "".encode(name)  # refuses codecs that are not of text
    except (LookupError, ValueError):
        raise InvalidArgument("encoding", "must be one that Python knows, such as utf-8 or cp1252") from None
    return "utf-8-sig" if name == "utf-8" else name


def split_lines(text: str) -> Iterator[str]:
    """Split a block into lines, each with its end."""
    return StringIO(text, newline="")
