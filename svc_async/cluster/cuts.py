"""Where a text can be cut between two records, found while its bytes are read once.

A line of JSON lines is a record. A record of CSV may have line ends in quoted cells; as for the parser, a quote begins
such a cell only where the cell begins. A block without quotes ends at its last line end, at the speed of memory;
others are matched with one expression, at about 400 MB a second.
"""

import re
from codecs import BOM_UTF8, lookup
from collections.abc import Callable, Iterable, Iterator
from encodings import normalize_encoding
from importlib import import_module
from typing import Protocol

import attrs

from svc_async.errors import UnusableFile
from svc_async.sources.blocks.decoding import MAX_LINE

__all__ = ["CsvRecords", "Cut", "JsonRecords", "TextRecords", "find_cuts", "find_head", "is_splittable"]

_LONGEST = 4 * MAX_LINE + 1_048_576
"""Bytes without the end of a record; a character has up to four, and the parser allows a mebibyte more."""

Refuse = Callable[[str], UnusableFile]
"""Makes the error that says what is wrong with a file."""


@attrs.frozen
class Cut:
    """A place between two records.

    Attributes:
        offset: the bytes before it.
        lines: the lines before it.
    """

    offset: int
    lines: int


class TextRecords(Protocol):
    """Finds the records of a text."""

    def find_end(self, text: bytes, line: int) -> int:
        """Return where the last complete record of a text ends.

        Args:
            text: begins where a record begins.
            line: the line on which it begins.

        Raises:
            UnusableFile: a record cannot be parsed, or has no end.
        """
        ...

    def check_last(self, text: bytes, line: int) -> None:
        """Check what follows the last complete record, up to the end of the file.

        Raises:
            UnusableFile: it is no record.
        """
        ...

    def count_lines(self, text: bytes, end: int) -> int:
        """Count the line ends before a place."""
        ...


@attrs.frozen
class JsonRecords:
    """The lines of JSON lines."""

    refuse: Refuse

    def find_end(self, text: bytes, line: int) -> int:
        """Return where the last complete line of a text ends."""
        end = text.rfind(b"\n") + 1
        if len(text) - end > _LONGEST:
            line += text.count(b"\n")
            raise self.refuse(f"has a line longer than 4 MiB on line {line}; is this really JSON lines?")
        return end

    def check_last(self, text: bytes, line: int) -> None:
        """Accept anything: the parser refuses what is no object."""

    def count_lines(self, text: bytes, end: int) -> int:
        """Count the line ends before a place."""
        return text.count(b"\n", 0, end)


class CsvRecords:
    """The records of CSV.

    Args:
        delimiter: the character between cells, one byte.
        refuse: makes the error that says what is wrong with the file.

    Attributes:
        refuse: as given.
    """

    def __init__(self, delimiter: bytes, refuse: Refuse) -> None:
        self.refuse = refuse
        between = re.escape(delimiter)
        quoted = rb'"[^"]*+(?:""[^"]*+)*+"'
        cell = rb'(?:%b|[^"%b\r\n][^%b\r\n]*+)?+' % (quoted, between, between)
        cells = rb"%b(?:%b%b)*+" % (cell, between, cell)
        self._match_records = re.compile(rb"(?:%b(?:\r\n|\n|\r(?=[^\n])))*+" % cells).match
        self._match_record = re.compile(rb"%b(?:\r\n|\n|\r(?=[^\n]))" % cells).match
        self._match_last = re.compile(rb"%b\r?" % cells).fullmatch
        self._match_mistake = re.compile(rb"(?:%b%b)*+%b[^%b\r\n]" % (cell, between, quoted, between)).match

    def find_end(self, text: bytes, line: int) -> int:
        """Return where the last complete record of a text ends."""
        if b'"' not in text:
            # A carriage return at the very end may be the first half of a line end.
            end = max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1
            if len(text) - end > _LONGEST:
                raise self.refuse("has a line longer than 4 MiB; is this really CSV or JSON lines?")
            return end
        found = self._match_records(text)
        end = found.end() if found else 0
        if self._match_mistake(text, end):
            line += self.count_lines(text, end)
            raise self.refuse(f"has unmatched quotes on line {line}; double a quote inside a quoted cell")
        if len(text) - end > _LONGEST:
            line += self.count_lines(text, end)
            raise self.refuse(f"has a row longer than 4 MiB on line {line}; is a quote not closed?")
        return end

    def find_record_end(self, text: bytes, start: int) -> int:
        """Return where the record that begins at a place ends, or -1 if that is not certain yet."""
        found = self._match_record(text, start)
        return found.end() if found else -1

    def check_last(self, text: bytes, line: int) -> None:
        """Check what follows the last complete record, up to the end of the file."""
        if b'"' in text and not self._match_last(text):
            raise self.refuse(f"has a quote on line {line} that is not closed; is the file truncated?")

    def count_lines(self, text: bytes, end: int) -> int:
        """Count the line ends before a place."""
        lines = text.count(b"\n", 0, end)
        if b"\r" in text:
            lines += text.count(b"\r", 0, end) - text.count(b"\r\n", 0, end)
        return lines


def find_head(blocks: Iterable[bytes], records: CsvRecords, count: int) -> Cut:
    """Return where the first records of a text end: its header, and a line that names the delimiter.

    Args:
        blocks: the text from its start; no more of it is read than needed.
        records: finds its records.
        count: how many records come before the rows.
    """
    text, end = b"", -1
    for block in blocks:
        text += block
        end = _find_head_end(text, records, count) if len(text) >= len(BOM_UTF8) else -1
        if end >= 0:
            break
        if len(text) > _LONGEST:
            raise records.refuse("has no header: line 1 has no end")
    else:
        end = len(text) if count else 0  # the last record need not have a line end
    return Cut(end, records.count_lines(text, end))


def _find_head_end(text: bytes, records: CsvRecords, count: int) -> int:
    """Return where the first records end, or -1 if that is not certain yet."""
    end = len(BOM_UTF8) if text.startswith(BOM_UTF8) else 0
    for _ in range(count):
        end = records.find_record_end(text, end) if end >= 0 else end
    return end


def find_cuts(blocks: Iterable[bytes], records: TextRecords, *, start: Cut, size: int, lines: int) -> Iterator[Cut]:
    """Yield where the parts of a text end, the last of them at its end.

    Args:
        blocks: the text, which begins where a record begins.
        records: finds its records.
        start: where it begins.
        size: bytes after which a part ends, with the block in which it reaches them.
        lines: lines after which it ends as well.

    Raises:
        UnusableFile: a record cannot be parsed, or has no end.
    """
    last = at = start
    rest = b""
    for block in blocks:
        text = rest + block
        end = records.find_end(text, at.lines + 1)
        rest = text[end:]
        at = Cut(at.offset + end, at.lines + records.count_lines(text, end))
        if at.offset - last.offset >= size or at.lines - last.lines >= lines:
            yield at
            last = at
    records.check_last(rest, at.lines + 1)
    at = Cut(at.offset + len(rest), at.lines + records.count_lines(rest, len(rest)))
    if at.offset > last.offset:
        yield at


_UNICODE = frozenset({"ascii", "iso8859-1", "utf-8", "utf-8-sig"})
_ASCII = "".join(map(chr, range(128)))


def is_splittable(encoding: str) -> bool:
    """Return whether the bytes of delimiters, quotes and line ends stand for nothing else in an encoding."""
    name = lookup(encoding).name
    if name in _UNICODE:
        return True
    try:
        module = import_module(f"encodings.{normalize_encoding(name)}")
    except ImportError:
        return False
    return str(getattr(module, "decoding_table", ""))[:128] == _ASCII
