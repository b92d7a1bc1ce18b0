"""User files in Parquet, read column by column, a few thousand rows at a time. Needs the extra `feeds`."""

import asyncio
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import attrs

from svc_async.errors import InvalidArgument
from svc_async.sources.blocks.files import Input, compute_digest, open_input, unusable
from svc_async.sources.columns import IGNORED, ColumnMatcher
from svc_async.sources.empty_values import EmptyValues
from svc_async.sources.source import ReplayableRows
from svc_async.users.encoding import Rows
from svc_async.users.names import USERS, Vocabulary

__all__ = ["ParquetSource"]

_SLICE = 8_192
_BUFFER = 65_536
"""Bytes of a column that are read at once; without this limit a whole row group of a column is read."""


class ParquetSource:
    """A Parquet file.

    Columns are recognised and mapped as those of a CSV file. They contain strings, integers, or lists of these; null is
    no value.

    Args:
        file: its path, or an input.
        mapping: from names of columns to the service's keys; `-` ignores a column, and `*` stands for all columns
            that are not recognised.
        vocabulary: what columns may contain.
        empty: texts that stand for no value, such as `n/a`, in any case.

    Attributes:
        name: its path.
        columns: the service's keys that the file has a column for.
        ignored: the names of the columns that are left out.
        size: its number of rows, or 1 if there are none.
        bytes_read: how many rows `rows()` has read.
        exhausted: whether the last row of `rows()` has been read.

    Raises:
        UnusableFile: the file cannot be used; the message says why.
        InvalidArgument: the mapping cannot be used.
    """

    def __init__(
        self,
        file: str | Path | Input,
        *,
        mapping: Mapping[str, str] | None = None,
        vocabulary: Vocabulary = USERS,
        empty: Collection[str] = (),
    ) -> None:
        self._empty = EmptyValues.parse(empty)
        self._input = open_input(file)
        self._arrow = _Arrow.load()
        self.name = self._input.name
        self.bytes_read = 0
        self.exhausted = False
        with self._open() as table:
            names, types, row_count = table.schema_arrow.names, table.schema_arrow.types, table.metadata.num_rows
        self.size = max(1, row_count)
        refuse = partial(unusable, self.name)
        matcher = ColumnMatcher(self.name, names, mapping or {}, refuse, vocabulary, place="the schema")
        keys = matcher.match_columns()
        self.columns: Sequence[str] = tuple(key for key in keys if key != IGNORED)
        self.ignored: Sequence[str] = tuple(name for name, key in zip(names, keys, strict=True) if key == IGNORED)
        self._wanted = [name for name, key in zip(names, keys, strict=True) if key != IGNORED]
        self._check_columns(names, types)
        self._batches: Generator[Iterable[Sequence[Any]], None, None] | None = None

    async def check(self) -> None:
        """Read the whole file to find what would stop a job midway, before anything is sent.

        Raises:
            UnusableFile: names the row after which the file is damaged.
        """
        with closing(self._read_slices()) as slices:
            for _ in slices:
                await asyncio.sleep(0)
        self.bytes_read = 0

    def rows(self) -> Rows:
        """Return the rows from the start, for an uploader; positions count them from 0."""
        return Rows(self.columns, ReplayableRows(self._begin))

    def find_line(self, position: int) -> None:
        """Return None: a Parquet file has no lines."""

    async def fingerprint(self) -> str:
        """Return a digest of the file and of what its columns mean."""
        return await compute_digest(self._input, "parquet", self.columns, self._wanted, self._empty.texts)

    def close(self) -> None:
        """Close the file, if `rows()` was not read to its end."""
        self._stop()
        self._input.close()

    def _begin(self) -> Iterator[Sequence[Any]]:
        self._stop()
        self.exhausted = False
        self._batches = self._read_all()
        return chain.from_iterable(self._batches)

    def _stop(self) -> None:
        if self._batches is not None:
            self._batches.close()

    def _read_all(self) -> Generator[Iterable[Sequence[Any]], None, None]:
        yield from self._read_slices()
        self.exhausted = True

    def _read_slices(self) -> Generator[Iterable[Sequence[Any]], None, None]:
        self.bytes_read = 0
        with self._open() as table:
            batches = table.iter_batches(batch_size=_SLICE, columns=self._wanted, use_threads=False)
            while (batch := self._read_batch(batches)) is not None:
                self.bytes_read += batch.num_rows
                yield zip(
                    *(self._empty.clear_all(self._list_values(batch.column(name))) for name in self._wanted),
                    strict=True,
                )
        self._input.check_unchanged()

    def _read_batch(self, batches: Any) -> Any:
        try:
            return next(batches, None)
        except self._arrow.errors:
            raise unusable(self.name, f"is damaged after row {self.bytes_read}: it cannot be read as Parquet") from None

    def _list_values(self, column: Any) -> Sequence[Any]:
        types = self._arrow.arrow.types
        if types.is_integer(column.type) or types.is_dictionary(column.type):
            column = column.cast(self._arrow.arrow.string())
        return column.to_pylist()  # type: ignore[no-any-return]  # the library has no types

    def _check_columns(self, names: Sequence[str], types: Sequence[Any]) -> None:
        for name, column_type in zip(names, types, strict=True):
            if name in self._wanted and names.count(name) > 1:
                raise unusable(self.name, f"has more than one column {name!r}")
            if name in self._wanted and not self._arrow.is_supported(column_type):
                raise unusable(self.name, f"must have strings or integers in column {name!r}, not {column_type}")

    @contextmanager
    def _open(self) -> Generator[Any]:
        with self._input.open() as raw:
            try:
                table = self._arrow.parquet.ParquetFile(
                    self._arrow.arrow.PythonFile(raw, mode="r"), pre_buffer=False, buffer_size=_BUFFER
                )
            except self._arrow.errors:
                raise unusable(self.name, "is damaged or truncated: it cannot be read as Parquet") from None
            with table:
                yield table


@attrs.frozen
class _Arrow:
    """The library, which is imported only when it is needed."""

    arrow: Any
    parquet: Any

    @classmethod
    def load(cls) -> "_Arrow":
        try:
            return cls(import_module("pyarrow"), import_module("pyarrow.parquet"))
        except ImportError:
            raise InvalidArgument("format", 'parquet needs the extra "feeds": pip install "svc-async[feeds]"') from None

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        return self.arrow.ArrowException, OSError, ValueError

    def is_supported(self, column_type: Any) -> bool:
        types = self.arrow.types
        if types.is_list(column_type) or types.is_large_list(column_type) or types.is_dictionary(column_type):
            return self.is_supported(column_type.value_type)
        return any(
            matches(column_type)
            for matches in (
                types.is_string,
                types.is_large_string,
                types.is_string_view,
                types.is_integer,
                types.is_null,
            )
        )
