"""Files in JSON lines: one object on each line."""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec

from svc_async.sources.blocks.decoding import BLOCK_SIZE, MAX_LINE, TextReader
from svc_async.sources.blocks.files import Input
from svc_async.sources.columns import IGNORED, OTHERS, ColumnMatcher, choose_between, find_missing, select_unmapped
from svc_async.sources.file_source import LineIndex, TableSource
from svc_async.sources.product_attributes import parse_product
from svc_async.sources.source import SlicedRows
from svc_async.users.encoding import SLICE_ROWS
from svc_async.users.names import USERS, Vocabulary, looks_like_data
from svc_async.users.tables import ColumnarRows, join_values

__all__ = ["JsonLinesSource"]

_ROW = ("",)
_MAX_SPELLINGS = 100
"""Names of one identifier; values are looked up by each of them."""
_decoder = msgspec.json.Decoder(dict[str, Any])


class JsonLinesSource(TableSource):
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
        columns: all of the service's keys, because any object may have any of them.
        encoding: its encoding.

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
        super().__init__(file, empty)
        # A carriage return by itself is a blank between the tokens of JSON.
        self._text = TextReader(self._input, encoding=encoding, block_size=block_size, returns=False)
        self.encoding = self._text.encoding
        self.columns = tuple(vocabulary.keys)
        self._mapping = mapping or {}
        self._vocabulary = vocabulary
        self._found: dict[str, str] = {}
        self._keys = self._found.items()
        self._spellings: dict[str, list[str]] = {key: [] for key in self.columns}
        self._size_of_names = 0
        with closing(self.parse()) as slices:
            next(slices, None)
        self.bytes_read = 0

    @property
    def meaning(self) -> Sequence[object]:
        """The format and the settings that decide what the bytes of the file mean."""
        return "jsonl", self.encoding, self.columns, sorted(self._mapping.items()), self._empty.texts

    async def check(self) -> None:
        """Read the whole file to find what would stop a job midway, before anything is sent.

        Raises:
            UnusableFile: names the line that is not a JSON object, or that has a name that is not recognised.
        """
        await super().check()
        unknown = select_unmapped(self.ignored, self._mapping)
        if self._found and (missing := find_missing(self._vocabulary, self._found.values(), unknown)):
            raise self.refuse(*missing)

    def parse(self) -> Generator[Iterable[Sequence[Any]], None, None]:
        """Yield the rows of each block."""
        for objects, line in self._read_objects():
            columns = (self._find_values(key, objects, line) for key in self.columns)
            yield ColumnarRows([self._empty.clear_all(column) for column in columns])

    def _read_products(self) -> Iterator[Iterable[Mapping[str, Any]]]:
        """Yield products with the attributes that their objects name: null clears one, and a missing name does not."""
        for part in SlicedRows(self._begin(self._parse_attributes)).slices(SLICE_ROWS):
            yield [*map(parse_product, part)]

    def _parse_attributes(self) -> Generator[Iterable[Mapping[str, Any]], None, None]:
        for objects, line in self._read_objects():
            yield [
                {
                    key: self._empty.clear(self._find_value(key, each, self._spellings[key], number))
                    for key in dict.fromkeys(map(self._found.__getitem__, each))
                    if key != IGNORED
                }
                for number, each in enumerate(objects, line)
            ]

    def _read_objects(self) -> Generator[tuple[Sequence[Mapping[str, Any]], int], None, None]:
        """Yield the objects of each block and the line of the first; names that were not read before are matched."""
        self._lines = lines = LineIndex()
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
                for number, found in enumerate(objects, line):
                    if not found.keys() <= self._found.keys():
                        self._match_names([name for name in found if name not in self._found], number)
                self.bytes_read = self._text.bytes_read
                yield objects, line
                line += height

    def _find_values(self, key: str, objects: Sequence[Mapping[str, Any]], first: int) -> Sequence[Any]:
        names = self._spellings[key]
        if not names:
            return [None] * len(objects)
        if len(names) == 1:
            return [each.get(names[0]) for each in objects]
        return [self._find_value(key, each, names, line) for line, each in enumerate(objects, first)]

    def _find_value(self, key: str, each: Mapping[str, Any], names: Sequence[str], line: int) -> Any:
        """Return the value of a key that has several names, in different objects or in one."""
        found = [name for name in names if name in each]
        if len(found) < 2:  # noqa: PLR2004 - the usual case: one name
            return each[found[0]] if found else None
        if not self._vocabulary.multiple:
            raise self.refuse(f"has several names of {key!r} in one object near line {line}", choose_between(found))
        return join_values(value for name, value in each.items() if name in found)

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
        raise self.refuse(f"{problem} on line {line}; write one object on each line{advice}")

    def _match_names(self, names: Sequence[str], line: int) -> None:
        if looks_like_data(names):
            raise self.refuse(f"has a name that looks like data near line {line}; names must say what values mean")
        self._size_of_names += sum(map(len, names))
        if self._size_of_names > MAX_LINE:
            raise self.refuse(f"has too many names near line {line}: they are longer than 4 MiB in total")
        header = dict.fromkeys([*names, *(name for name in self._mapping if name != OTHERS)])
        matcher = ColumnMatcher(
            self.name,
            list(header),
            self._mapping,
            self.refuse,
            self._vocabulary,
            place="an object",
            where=f" near line {line}",
            continued=bool(self._found),
        )
        for name, key in zip(names, matcher.match_names(), strict=False):
            self._found[name] = key
            if key != IGNORED:
                self._spellings[key].append(name)
                if len(self._spellings[key]) > _MAX_SPELLINGS:
                    raise self.refuse(f"has more than {_MAX_SPELLINGS} names of {key!r} near line {line}")
