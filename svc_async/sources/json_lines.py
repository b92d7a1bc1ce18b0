"""User files in JSON lines: one object on each line."""

import asyncio
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec

from svc_async.sources.blocks.decoding import BLOCK_SIZE, MAX_LINE, TextReader
from svc_async.sources.blocks.files import Input, compute_digest, open_input
from svc_async.sources.columns import IGNORED, OTHERS, ColumnMatcher, EmptyValues, find_missing, select_unmapped
from svc_async.sources.csv_table import LineIndex
from svc_async.sources.source import ReplayableRows
from svc_async.users.names import USERS, Vocabulary, looks_like_data
from svc_async.users.tables import ColumnarRows, Rows

__all__ = ["JsonLinesSource"]

_ROW = ("",)
_MAX_SPELLINGS = 100
"""Names of one identifier; values are looked up by each of them."""
_decoder = msgspec.json.Decoder(dict[str, Any])


class JsonLinesSource:
    """A file with a JSON object on each line; blank lines are skipped.

    The names in the objects are columns, recognised and mapped as those of a CSV file. An object need not have all of
    them, and a value may be a string, an integer, null or an array of these.

    Args:
        file: its path, or an input.
        mapping: from names to the service's keys; `-` ignores a name, and `*` stands for all that are
            not recognised.
        encoding: any of Python's, if it is not Unicode.
        vocabulary: what columns may contain.
        empty: texts that stand for no value, such as `n/a`, in any case.
        block_size: bytes that are decoded at a time.

    Attributes:
        name: its path.
        columns: all of the service's keys, because any object may have any of them.
        size: bytes of the file.
        exhausted: whether the last row of `rows()` has been read.

    Raises:
        UnusableFile: the file cannot be used; the message says why.
        InvalidArgument: the mapping or encoding cannot be used.
    """

    def __init__(
        self,
        file: str | Path | Input,
        *,
        mapping: Mapping[str, str] | None = None,
        encoding: str | None = None,
        vocabulary: Vocabulary = USERS,
        empty: Collection[str] = (),
        block_size: int = BLOCK_SIZE,
    ) -> None:
        self._input = open_input(file)
        self.name = self._input.name
        self.size = self._input.size
        self.columns: Sequence[str] = tuple(vocabulary.keys)
        self.exhausted = False
        self._text = TextReader(self._input, encoding=encoding, block_size=block_size)
        self._empty = EmptyValues.parse(empty)
        self._mapping = mapping or {}
        self._vocabulary = vocabulary
        self._keys: dict[str, str] = {}
        self._names: dict[str, list[str]] = {key: [] for key in self.columns}
        self._size_of_names = 0
        self._lines = LineIndex()
        self._slices: Generator[Iterable[Sequence[Any]], None, None] | None = None
        with closing(self._read_slices(LineIndex())) as slices:
            next(slices, None)

    @property
    def bytes_read(self) -> int:
        """How many bytes `rows()` has read."""
        return self._text.bytes_read if self._slices is not None else 0

    @property
    def encoding(self) -> str:
        """The encoding of the file."""
        return self._text.encoding

    @property
    def names(self) -> Sequence[str]:
        """The names that were read so far."""
        return tuple(self._keys)

    @property
    def ignored(self) -> Sequence[str]:
        """The names that are left out, of those read so far."""
        return tuple(name for name, key in self._keys.items() if key == IGNORED)

    async def check(self) -> None:
        """Read the whole file to find what would stop a job midway, before anything is sent.

        Raises:
            UnusableFile: names the line that is not a JSON object, or that has a name that is not recognised.
        """
        with closing(self._read_slices(LineIndex())) as slices:
            for _ in slices:
                await asyncio.sleep(0)
        unknown = select_unmapped(self.ignored, self._mapping)
        if self._keys and (missing := find_missing(self._vocabulary, self._keys.values(), unknown)):
            raise self._text.refuse(*missing)

    def rows(self) -> Rows:
        """Return the rows from the start, for an uploader; positions count them from 0."""
        return Rows(self.columns, ReplayableRows(self._begin))

    def find_line(self, position: int) -> int | None:
        """Return the line of the file, counted from 1, of a row that was read."""
        return self._lines.find(position)

    async def fingerprint(self) -> str:
        """Return a digest of the file and of what its names mean."""
        settings = self._text.encoding, self.columns, sorted(self._mapping.items()), self._empty.texts
        return await compute_digest(self._input, "jsonl", *settings)

    def close(self) -> None:
        """Close the file, if `rows()` was not read to its end."""
        self._stop()
        self._input.close()

    def _begin(self) -> Iterable[Iterable[Sequence[Any]]]:
        self._stop()
        self._lines = LineIndex()
        self.exhausted = False
        self._slices = self._read_all()
        return self._slices

    def _stop(self) -> None:
        if self._slices is not None:
            self._slices.close()

    def _read_all(self) -> Generator[Iterable[Sequence[Any]], None, None]:
        yield from self._read_slices(self._lines)
        self.exhausted = True

    def _read_slices(self, lines: LineIndex) -> Generator[Iterable[Sequence[Any]], None, None]:
        line = self._text.lines_before + 1
        lines.start_after(self._text.lines_before)
        with closing(self._text.read_blocks()) as blocks:
            for text in filter(None, blocks):
                height = text.count("\n") + (not text.endswith("\n"))
                objects = self._parse(text, line)
                if len(objects) == height == text.count("\n{") + text.startswith("{"):
                    lines.add([_ROW] * height, line + height - 1, blank=False)
                else:
                    each = text.split("\n")[:height]
                    objects = self._parse_each(each, line)
                    lines.add([_ROW if text.strip() else () for text in each], line + height - 1, blank=True)
                self._add_names(objects, line)
                line += height
                yield self._build_rows(objects, line - height)

    def _build_rows(self, objects: Sequence[Mapping[str, Any]], first: int) -> ColumnarRows:
        columns = (self._find_values(key, objects, first) for key in self.columns)
        return ColumnarRows([self._empty.clear_all(column) for column in columns])

    def _find_values(self, key: str, objects: Sequence[Mapping[str, Any]], first: int) -> Sequence[Any]:
        names = self._names[key]
        if not names:
            return [None] * len(objects)
        if len(names) == 1:
            return [each.get(names[0]) for each in objects]
        return [self._find_value(key, each, names, line) for line, each in enumerate(objects, first)]

    def _find_value(self, key: str, each: Mapping[str, Any], names: Sequence[str], line: int) -> Any:
        """Return the value of an identifier that different objects name differently."""
        found = [name for name in names if name in each]
        if len(found) > 1:
            raise self._text.refuse(
                f"has several names of {key!r} in one object near line {line}; map one to {IGNORED}"
            )
        return each[found[0]] if found else None

    def _parse(self, text: str, line: int) -> Sequence[dict[str, Any]]:
        with suppress(msgspec.DecodeError, RecursionError, UnicodeError):
            return _decoder.decode_lines(text)
        return self._parse_each(text.split("\n"), line)

    def _parse_each(self, lines: Sequence[str], first: int) -> Sequence[dict[str, Any]]:
        """Parse each line as one object; parsed as a whole, two lines may hold one object, or one line two."""
        return [self._parse_line(text, line) for line, text in enumerate(lines, first) if text.strip()]

    def _parse_line(self, text: str, line: int) -> dict[str, Any]:
        try:
            return _decoder.decode(text)
        except msgspec.ValidationError:
            problem = "has something other than an object"
        except RecursionError:
            problem = "is nested too deeply"
        except (msgspec.DecodeError, UnicodeError):
            problem = "is not JSON"
        is_array = line == 1 and text.lstrip().startswith("[")
        advice = ", as jq -c '.[]' does with an array" if is_array else ""
        raise self._text.refuse(f"{problem} on line {line}; write one object on each line{advice}")

    def _add_names(self, objects: Sequence[Mapping[str, Any]], first: int) -> None:
        """Match the names that were not read before."""
        for line, each in enumerate(objects, first):
            if not each.keys() <= self._keys.keys():
                self._match_names([name for name in each if name not in self._keys], line)

    def _match_names(self, names: Sequence[str], line: int) -> None:
        self._check_names(names, line)
        header = dict.fromkeys([*names, *(name for name in self._mapping if name != OTHERS)])
        matcher = ColumnMatcher(
            self.name,
            list(header),
            self._mapping,
            self._text.refuse,
            self._vocabulary,
            place="an object",
            where=f" near line {line}",
            continued=bool(self._keys),
        )
        for name, key in zip(names, matcher.match_names(), strict=False):
            self._keys[name] = key
            if key != IGNORED:
                self._names[key].append(name)
                if len(self._names[key]) > _MAX_SPELLINGS:
                    raise self._text.refuse(f"has more than {_MAX_SPELLINGS} names of {key!r} near line {line}")

    def _check_names(self, names: Sequence[str], line: int) -> None:
        if looks_like_data(names):
            raise self._text.refuse(
                f"has a name that looks like data near line {line}; names must say what values mean"
            )
        self._size_of_names += sum(map(len, names))
        if self._size_of_names > MAX_LINE:
            raise self._text.refuse(f"has too many names near line {line}: they are longer than 4 MiB in total")
