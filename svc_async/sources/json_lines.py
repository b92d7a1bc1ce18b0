"""Files of people in JSON lines: one object on each line."""

import asyncio
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import msgspec

from svc_async.sources.columns import IGNORED, OTHERS, PEOPLE, Matching, Vocabulary, looks_like_data
from svc_async.sources.decoding import Texts
from svc_async.sources.files import Input, as_input, digest_of
from svc_async.sources.line_index import Lines
from svc_async.sources.source import Replay
from svc_async.users.encoding import Rows

__all__ = ["JsonLinesSource"]

_ROW = ("",)
_decoder = msgspec.json.Decoder(dict[str, Any])


class JsonLinesSource:
    """A file with a JSON object on each line; blank lines are skipped.

    The names in the objects are columns, known and mapped as those of a CSV file. An object need not have all of them,
    and a value may be a text, a whole number, null or an array of these.

    Args:
        file: its path, or an input.
        mapping: from names to the service's keys; `-` ignores a name, and `*` stands for all that are not known.
        encoding: any of Python's, if it is not Unicode.
        vocabulary: what columns may hold.

    Attributes:
        name: its path.
        columns: all of the service's keys, since any object may have any of them.
        size: bytes of the file.
        exhausted: whether `rows()` has given its last row.

    Raises:
        InvalidArgument: says why the file cannot be used.
    """

    def __init__(
        self,
        file: str | Path | Input,
        *,
        mapping: Mapping[str, str] | None = None,
        encoding: str | None = None,
        vocabulary: Vocabulary = PEOPLE,
    ) -> None:
        self._input = as_input(file)
        self.name = self._input.name
        self.size = self._input.size
        self.columns: Sequence[str] = tuple(vocabulary.keys)
        self.exhausted = False
        self._texts = Texts(self._input, encoding=encoding)
        self._mapping = mapping or {}
        self._vocabulary = vocabulary
        self._keys: dict[str, str] = {}
        self._lines = Lines()
        self._reading: Generator[Iterable[Sequence[Any]], None, None] | None = None
        with closing(self._slices(Lines())) as slices:
            next(slices, None)

    @property
    def bytes_read(self) -> int:
        """How far `rows()` has come."""
        return self._texts.bytes_read if self._reading is not None else 0

    @property
    def ignored(self) -> Sequence[str]:
        """The names that are left out, of those that have been met."""
        return tuple(name for name, key in self._keys.items() if key == IGNORED)

    async def check(self) -> None:
        """Look through the whole file for what would stop a job half-way, before anything is sent.

        Raises:
            InvalidArgument: names the line that is no JSON object, or that has a name that is not known.
        """
        with closing(self._slices(Lines())) as slices:
            for _ in slices:
                await asyncio.sleep(0)

    def rows(self) -> Rows:
        """Give the rows from the start, for an uploader; positions count them from 0."""
        return Rows(self.columns, Replay(self._begin))

    def line(self, position: int) -> int:
        """Give the line of the file, counted from 1, of a row that `rows()` has given."""
        return self._lines.of(position)

    async def fingerprint(self) -> str:
        """Give a digest of the file and of what its names mean."""
        return await digest_of(self._input, "jsonl", self._texts.encoding, self.columns, sorted(self._mapping.items()))

    def close(self) -> None:
        """Let go of the file, if `rows()` was not read to its end."""
        self._stop()
        self._input.close()

    def _begin(self) -> Iterator[Sequence[Any]]:
        self._stop()
        self._lines = Lines()
        self.exhausted = False
        self._reading = self._given()
        return chain.from_iterable(self._reading)

    def _stop(self) -> None:
        if self._reading is not None:
            self._reading.close()

    def _given(self) -> Generator[Iterable[Sequence[Any]], None, None]:
        yield from self._slices(self._lines)
        self.exhausted = True

    def _slices(self, lines: Lines) -> Generator[Iterable[Sequence[Any]], None, None]:
        line = 1
        with closing(self._texts.blocks()) as blocks:
            for text in filter(None, blocks):
                height = text.count("\n") + (not text.endswith("\n"))
                objects = self._objects(text, line)
                if len(objects) == height == text.count("\n{") + text.startswith("{"):
                    lines.follow([_ROW] * height, line + height - 1, blank=False)
                else:
                    each = text.split("\n")[:height]
                    objects = self._one_by_one(each, line)
                    lines.follow([_ROW if text.strip() else () for text in each], line + height - 1, blank=True)
                self._learn(objects, line)
                line += height
                yield self._rows(objects, line - height)

    def _rows(self, objects: Sequence[Mapping[str, Any]], first: int) -> Iterable[Sequence[Any]]:
        return zip(*(self._column(key, objects, first) for key in self.columns), strict=True)

    def _column(self, key: str, objects: Sequence[Mapping[str, Any]], first: int) -> Iterable[Any]:
        names = [name for name, meant in self._keys.items() if meant == key]
        if not names:
            return repeat(None, len(objects))
        if len(names) == 1:
            return [each.get(names[0]) for each in objects]
        return [self._only(key, each, names, line) for line, each in enumerate(objects, first)]

    def _only(self, key: str, each: Mapping[str, Any], names: Sequence[str], line: int) -> Any:
        """Give the value of an identifier that different objects name differently."""
        found = [name for name in names if name in each]
        if len(found) > 1:
            raise self._texts.refused(
                f"has several names of {key!r} in one object near line {line}; map one to {IGNORED}"
            )
        return each[found[0]] if found else None

    def _objects(self, text: str, line: int) -> Sequence[dict[str, Any]]:
        try:
            return _decoder.decode_lines(text)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            return self._one_by_one(text.split("\n"), line)

    def _one_by_one(self, lines: Sequence[str], first: int) -> Sequence[dict[str, Any]]:
        """Hold each line to one object; what is read as a whole may have an object on two lines, or two on one."""
        return [self._object(text, line) for line, text in enumerate(lines, first) if text.strip()]

    def _object(self, text: str, line: int) -> dict[str, Any]:
        try:
            return _decoder.decode(text)
        except msgspec.ValidationError:
            problem = "has something else than an object"
        except RecursionError:
            problem = "is nested too deeply"
        except (msgspec.DecodeError, UnicodeError):
            problem = "is not JSON"
        raise self._texts.refused(f"{problem} on line {line}: write one object on each line")

    def _learn(self, objects: Sequence[Mapping[str, Any]], first: int) -> None:
        """Find out what names mean that have not been met before."""
        for line, each in enumerate(objects, first):
            if not each.keys() <= self._keys.keys():
                self._keys = self._matched([*self._keys, *(name for name in each if name not in self._keys)], line)

    def _matched(self, names: Sequence[str], line: int) -> dict[str, str]:
        if looks_like_data(names):
            raise self._texts.refused(f"has a name that looks like data near line {line}: names say what values mean")
        header = dict.fromkeys([*names, *(name for name in self._mapping if name != OTHERS)])
        chosen = Matching(
            self.name, list(header), self._mapping, self._vocabulary, of="each object", at=f" near line {line}"
        ).meant()
        return dict(zip(names, chosen, strict=False))
