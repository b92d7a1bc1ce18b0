"""Files of people in Parquet: column by column, a few thousand rows at a time. Needs the extra `feeds`."""

import asyncio
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import attrs

from svc_async.errors import InvalidArgument
from svc_async.sources.columns import IGNORED, PEOPLE, Matching, Vocabulary
from svc_async.sources.files import Input, as_input, digest_of, refused
from svc_async.sources.source import Replay
from svc_async.users.encoding import Rows

__all__ = ["ParquetSource"]

_SLICE = 8_192
_BUFFER = 65_536
"""Bytes of a column that are read at once; without it a column is read as wide as its row group."""


class ParquetSource:
    """A Parquet file.

    Columns are known and mapped as those of a CSV file. They hold text, whole numbers, or lists of these; null is none.

    Args:
        file: its path, or an input.
        mapping: from names of columns to the service's keys; `-` ignores a column, and `*` stands for all columns
            that are not known.
        vocabulary: what columns may hold.

    Attributes:
        name: its path.
        columns: the service's keys that the file has a column for.
        ignored: the names of the columns that are left out.
        size: its rows, or 1 if there are none.
        bytes_read: how many rows `rows()` has given.
        exhausted: whether `rows()` has given its last row.

    Raises:
        InvalidArgument: says why the file cannot be used.
    """

    def __init__(
        self, file: str | Path | Input, *, mapping: Mapping[str, str] | None = None, vocabulary: Vocabulary = PEOPLE
    ) -> None:
        self._input = as_input(file)
        self._arrow = _Arrow.loaded()
        self.name = self._input.name
        self.bytes_read = 0
        self.exhausted = False
        with self._opened() as opened:
            names, types, self._rows = opened.schema_arrow.names, opened.schema_arrow.types, opened.metadata.num_rows
        self.size = max(1, self._rows)
        chosen = Matching(self.name, names, mapping or {}, vocabulary, of="its columns").chosen()
        self.columns: Sequence[str] = tuple(key for key in chosen if key != IGNORED)
        self.ignored: Sequence[str] = tuple(name for name, key in zip(names, chosen, strict=True) if key == IGNORED)
        self._wanted = [name for name, key in zip(names, chosen, strict=True) if key != IGNORED]
        self._check_columns(names, types)
        self._reading: Generator[Iterable[Sequence[Any]], None, None] | None = None

    async def check(self) -> None:
        """Look through the whole file for what would stop a job half-way, before anything is sent.

        Raises:
            InvalidArgument: names the row behind which the file is damaged.
        """
        with closing(self._slices()) as slices:
            for _ in slices:
                await asyncio.sleep(0)
        self.bytes_read = 0

    def rows(self) -> Rows:
        """Give the rows from the start, for an uploader; positions count them from 0."""
        return Rows(self.columns, Replay(self._begin))

    def line(self, position: int) -> None:
        """Give none: a Parquet file has no lines."""

    async def fingerprint(self) -> str:
        """Give a digest of the file and of what its columns mean."""
        return await digest_of(self._input, "parquet", self.columns, self._wanted)

    def close(self) -> None:
        """Let go of the file, if `rows()` was not read to its end."""
        self._stop()
        self._input.close()

    def _begin(self) -> Iterator[Sequence[Any]]:
        self._stop()
        self.exhausted = False
        self._reading = self._given()
        return chain.from_iterable(self._reading)

    def _stop(self) -> None:
        if self._reading is not None:
            self._reading.close()

    def _given(self) -> Generator[Iterable[Sequence[Any]], None, None]:
        yield from self._slices()
        self.exhausted = True

    def _slices(self) -> Generator[Iterable[Sequence[Any]], None, None]:
        self.bytes_read = 0
        with self._opened() as opened:
            batches = opened.iter_batches(batch_size=_SLICE, columns=self._wanted, use_threads=False)
            while (batch := self._next(batches)) is not None:
                self.bytes_read += batch.num_rows
                yield zip(*(self._values(batch.column(name)) for name in self._wanted), strict=True)
        self._input.check_unchanged()

    def _next(self, batches: Any) -> Any:
        try:
            return next(batches, None)
        except self._arrow.errors:
            raise refused(self.name, f"is damaged behind row {self.bytes_read}: it cannot be read as Parquet") from None

    def _values(self, column: Any) -> Sequence[Any]:
        types = self._arrow.arrow.types
        if types.is_integer(column.type) or types.is_dictionary(column.type):
            column = column.cast(self._arrow.arrow.string())
        return column.to_pylist()  # type: ignore[no-any-return]  # the library has no types

    def _check_columns(self, names: Sequence[str], types: Sequence[Any]) -> None:
        for name, kind in zip(names, types, strict=True):
            if name in self._wanted and names.count(name) > 1:
                raise refused(self.name, f"has more than one column {name!r}")
            if name in self._wanted and not self._arrow.holds_text(kind):
                raise refused(self.name, f"must have text or whole numbers in column {name!r}, not {kind}")

    @contextmanager
    def _opened(self) -> Generator[Any]:
        with self._input.opened() as raw:
            try:
                opened = self._arrow.parquet.ParquetFile(
                    self._arrow.arrow.PythonFile(raw, mode="r"), pre_buffer=False, buffer_size=_BUFFER
                )
            except self._arrow.errors:
                raise refused(self.name, "is damaged or cut short: it cannot be read as Parquet") from None
            with opened:
                yield opened


@attrs.frozen
class _Arrow:
    """The library, which is loaded for those who need it."""

    arrow: Any
    parquet: Any

    @classmethod
    def loaded(cls) -> "_Arrow":
        try:
            return cls(import_module("pyarrow"), import_module("pyarrow.parquet"))
        except ImportError:
            raise InvalidArgument("format", 'parquet needs the extra "feeds": pip install "svc-async[feeds]"') from None

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        return self.arrow.ArrowException, OSError, ValueError

    def holds_text(self, kind: Any) -> bool:
        types = self.arrow.types
        if types.is_list(kind) or types.is_large_list(kind) or types.is_dictionary(kind):
            return self.holds_text(kind.value_type)
        return any(
            fits(kind)
            for fits in (types.is_string, types.is_large_string, types.is_string_view, types.is_integer, types.is_null)
        )
