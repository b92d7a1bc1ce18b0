"""Files of people as rows: which column holds what, row after row, and on which line each of them stands.

A file is read in blocks, never as a whole and never row by row in Python: blocks become lines, lines become rows and
rows are cut down to the columns that are wanted, all of it by iterators of the standard library. Only a slice that
holds something unusual (a blank line, a row that is too short or too long, a cell of several lines) is looked at row
by row.

No message quotes a cell. Names of columns are quoted only when the first line is certain to be a header.
"""

import asyncio
import codecs
import csv
import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

import attrs

from svc_async.batch.encoding import Rows
from svc_async.batch.identifiers import IDENTIFIERS, is_hash
from svc_async.errors import InvalidArgument

__all__ = ["IGNORED", "OTHERS", "CsvSource"]

IGNORED = "-"
"""What a column is mapped to that is left out."""
OTHERS = "*"
"""Stands in a mapping for all columns that are not known."""

_DELIMITERS = ",;\t|"
_BLOCK = 65_536
_SLICE = 512
_LONGEST_LINE = 4_194_304
_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        **{name: name for name in IDENTIFIERS},
        "e_mail": "email",
        "email_address": "email",
        "e_mail_address": "email",
        "phone": "phone_number",
    }
)
_holds_data = re.compile(r"[^@\s]+@[^@\s]+|\+?[\d\s().-]{7,}").fullmatch


class CsvSource:
    """A CSV file with a header, in UTF-8.

    The delimiter (comma, semicolon, tab or bar) is told from the header. A column is known by the service's key or
    another common name, in any case, with spaces or dashes for underscores; else by `mapping`. Blank lines are
    skipped. A row with fewer cells than the header lacks the last ones; a row with more fails.

    Args:
        path: the file.
        mapping: from names of columns to the service's keys; `-` ignores a column, and `*` stands for all columns
            that are not known.

    Attributes:
        path: the file.
        columns: the service's keys that the file has a column for.
        ignored: the names of the columns that are left out.
        size: bytes of the file.
        bytes_read: how far `rows()` has come.
        exhausted: whether `rows()` has given its last row.

    Raises:
        InvalidArgument: says why the file cannot be used.
    """

    def __init__(self, path: str | Path, *, mapping: Mapping[str, str] | None = None) -> None:
        self.path = Path(path)
        self.size = _size(self.path)
        self.bytes_read = 0
        self.exhausted = False
        header, self._delimiter = self._read_header()
        chosen = _Matching(self.path, header, mapping or {}).chosen()
        self.columns: Sequence[str] = tuple(key for key in chosen if key != IGNORED)
        self.ignored: Sequence[str] = tuple(name for name, key in zip(header, chosen, strict=True) if key == IGNORED)
        self._wanted = [index for index, key in enumerate(chosen) if key != IGNORED]
        self._width = len(header)
        self._lines = _Lines()

    async def check(self) -> None:
        """Look through the whole file for what would stop a job half-way, before anything is sent.

        Raises:
            InvalidArgument: names the line that is not UTF-8, holds a NUL byte or opens a quote that is not closed.
        """
        quotes = 0
        for text in self._texts():
            quotes += text.count('"')
            await asyncio.sleep(0)
        if quotes % 2:
            for _ in self._slices(_Lines()):
                await asyncio.sleep(0)

    def rows(self) -> Rows:
        """Give the rows from the start, for an uploader; positions count them from 0."""
        self._lines = _Lines()
        self.exhausted = False
        return Rows(self.columns, chain.from_iterable(self._given()))

    def line(self, position: int) -> int:
        """Give the line of the file, counted from 1, on which a row begins that `rows()` has given."""
        return self._lines.of(position)

    def _read_header(self) -> tuple[Sequence[str], str]:
        lines = chain.from_iterable(map(_lines_of, self._texts()))
        first = next(lines, "")
        if not first.strip(f"{_DELIMITERS} \r\n"):
            raise self._refused("has no header: line 1 is blank")
        delimiter = max(_DELIMITERS, key=lambda mark: len(next(csv.reader([first], delimiter=mark))))
        try:
            header = next(csv.reader(chain([first], lines), delimiter=delimiter, strict=True))
        except csv.Error:
            raise self._refused("has no header: the quotes of line 1 do not match") from None
        names = [name.strip() for name in header]
        if any(_holds_data(name) or is_hash(name) for name in names):
            raise self._refused("has no header: line 1 looks like data; put the names of the columns there")
        return names, delimiter

    def _given(self) -> Iterator[Iterable[Sequence[str]]]:
        yield from self._slices(self._lines)
        self.exhausted = True

    def _slices(self, lines: "_Lines") -> Iterator[Iterable[Sequence[str]]]:
        """Cut the file into slices of rows, each cut down to the columns that are wanted."""
        reader = csv.reader(chain.from_iterable(map(_lines_of, self._texts())), delimiter=self._delimiter, strict=True)
        next(reader)
        lines.start(reader.line_num)
        while rows := self._next_slice(reader, lines):
            widths = set(map(len, rows))
            lines.follow(rows, reader.line_num, blank=0 in widths)
            if widths == {self._width}:
                yield zip(*(map(itemgetter(index), rows) for index in self._wanted), strict=True)
            else:
                yield [self._made_even(row) for row in rows if row]

    def _next_slice(self, reader: Iterator[list[str]], lines: "_Lines") -> list[list[str]]:
        rows: list[list[str]] = []
        try:
            rows.extend(islice(reader, _SLICE))
        except csv.Error as error:
            line = lines.after(rows)
            if "field limit" in str(error):
                raise self._refused(f"has a cell that never ends on line {line}: is a quote not closed?") from None
            if "end of data" in str(error):
                raise self._refused(
                    f"opens a quote on line {line} that is not closed; is the file cut short?"
                ) from None
            raise self._refused(
                f"has quotes on line {line} that do not match; write a quote inside of quotes twice"
            ) from None
        return rows

    def _made_even(self, row: Sequence[str]) -> Sequence[str]:
        """Fill up a row that is too short; one that is too long loses all its cells, so that it fails."""
        if len(row) > self._width:
            return ()
        return [row[index] if index < len(row) else "" for index in self._wanted]

    def _texts(self) -> Iterator[str]:
        """Read the file in blocks that end where a line ends."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        rest = ""
        self.bytes_read = 0
        with _opened(self.path) as file:
            while block := file.read(_BLOCK):
                text = rest + self._decoded(decoder, block)
                self.bytes_read += len(block)
                # A carriage return at the very end may be the first half of a line end.
                cut = max(text.rfind("\n"), text.rfind("\r", 0, -1)) + 1
                rest = text[cut:]
                if len(rest) > _LONGEST_LINE:
                    raise self._refused("has a line of several megabytes: is it a CSV file?")
                yield text[:cut]
            yield rest + self._decoded(decoder, b"")

    def _decoded(self, decoder: codecs.IncrementalDecoder, block: bytes) -> str:
        if b"\0" in block:
            line = _line_at(self.path, self.bytes_read + block.index(b"\0"))
            raise self._refused(f"holds a NUL byte on line {line}: save it as CSV in UTF-8")
        mark = b"" if self.bytes_read else codecs.BOM_UTF8
        try:
            return decoder.decode(block.removeprefix(mark), final=not block)
        except UnicodeDecodeError as error:
            from_end = len(error.object) - error.start
            line = _line_at(self.path, self.bytes_read + len(block) - from_end)
            raise self._refused(f"is not UTF-8 on line {line}: save it as CSV in UTF-8") from None

    def _refused(self, what: str) -> InvalidArgument:
        return InvalidArgument("file", f"{self.path} {what}")


@attrs.frozen
class _Matching:
    """Finds out what each column of a header holds."""

    path: Path
    header: Sequence[str]
    mapping: Mapping[str, str]

    def chosen(self) -> Sequence[str]:
        """Give a key for each column, `-` for one that is ignored.

        Raises:
            InvalidArgument: the header or the mapping is not usable.
        """
        self._check_mapping()
        keys = [self._key(name) for name in self.header]
        if not self.mapping and not any(keys):
            # The names are not listed: without a header they are somebody's data.
            raise self._refused(
                f"has no column that is known: line 1 must name some of {', '.join(IDENTIFIERS)}, "
                "or give --map COLUMN=KEY"
            )
        self._check_unknown([index for index, key in enumerate(keys) if key is None])
        chosen = [key or IGNORED for key in keys]
        self._check_usable(chosen)
        return chosen

    def _key(self, name: str) -> str | None:
        for known, key in self.mapping.items():
            if known != OTHERS and _plain(known) == _plain(name):
                return key
        return _ALIASES.get(_plain(name)) or self.mapping.get(OTHERS)

    def _check_mapping(self) -> None:
        wrong = sorted(set(self.mapping.values()) - set(IDENTIFIERS) - {IGNORED})
        if wrong or self.mapping.get(OTHERS, IGNORED) != IGNORED:
            raise InvalidArgument(
                "map", f"must give COLUMN=KEY, where the key is one of {', '.join(IDENTIFIERS)}, or - to ignore it"
            )
        names = set(map(_plain, self.header))
        absent = [name for name in self.mapping if name != OTHERS and _plain(name) not in names]
        if absent:
            raise InvalidArgument("map", f"names columns that {self.path} does not have: {_listed(absent)}")

    def _check_unknown(self, unknown: Sequence[int]) -> None:
        if unknown:
            names = [self.header[index] or f"(column {index + 1}, without a name)" for index in unknown]
            raise self._refused(
                f"has unknown columns: {_listed(names)}; say what each holds with --map COLUMN=KEY, "
                f"ignore it with --map COLUMN={IGNORED}, or ignore all of them with --map '{OTHERS}={IGNORED}'"
            )

    def _check_usable(self, chosen: Sequence[str]) -> None:
        used = [key for key in chosen if key != IGNORED]
        if not used:
            raise self._refused(f"has no column left to send; map one to {', '.join(IDENTIFIERS)}")
        twice = sorted({key for key in used if used.count(key) > 1})
        if twice:
            raise self._refused(
                f"has more than one column of {_listed(twice)}; ignore the others with --map COLUMN={IGNORED}"
            )

    def _refused(self, what: str) -> InvalidArgument:
        return InvalidArgument("file", f"{self.path} {what}")


class _Lines:
    """On which line each row begins.

    A row stands a fixed number of lines after its position until something unusual comes; only those places are kept.
    """

    def __init__(self) -> None:
        self._positions = array("q", [0])
        self._ahead = array("q", [2])
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


def _lines_of(text: str) -> Iterator[str]:
    return StringIO(text, newline="")


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "_", name.strip()).casefold()


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def _size(path: Path) -> int:
    if path.is_dir():
        raise InvalidArgument("file", f"{path} is a folder")
    if not path.exists():
        raise InvalidArgument("file", f"{path} does not exist")
    if not path.is_file():
        raise InvalidArgument("file", f"{path} must be a regular file, which can be read twice")
    size = path.stat().st_size
    if not size:
        raise InvalidArgument("file", f"{path} is empty")
    return size


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise InvalidArgument("file", f"{path} cannot be read: {error.strerror}") from None


def _line_at(path: Path, offset: int) -> int:
    """Count the lines up to a byte."""
    with path.open("rb") as file:
        return 1 + sum(file.read(min(_BLOCK, offset - start)).count(b"\n") for start in range(0, offset, _BLOCK))
