"""User files in Parquet, read column by column, a few thousand rows at a time. Needs the extra `feeds`."""

import asyncio
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from svc_async.sources.blocks.arrow import Arrow
from svc_async.sources.blocks.files import Input, compute_digest, open_input, unusable
from svc_async.sources.blocks.parquet_bounds import (
    MAX_VALUE,
    BatchPlanner,
    ExcessiveFile,
    check_footer,
    check_rows,
    find_range,
)
from svc_async.sources.columns import IGNORED, ColumnMatcher, EmptyValues
from svc_async.sources.source import ReplayableRows
from svc_async.users.names import USERS, Vocabulary
from svc_async.users.tables import ColumnarRows, Rows

__all__ = ["ParquetSource", "RowGroupPart"]

_DAMAGED = "is damaged or truncated: it cannot be read as Parquet"
_MAX_PARTS = 100_000
"""Row groups or columns in the metadata."""
_BUFFER = 65_536
"""Bytes of a column that are read at once; without this limit a whole row group of a column is read."""


@attrs.frozen(kw_only=True)
class RowGroupPart:
    """Consecutive rows of one row group.

    Attributes:
        group: the row group, counted from 0.
        first: the first of its rows, counted from 0.
        rows: how many rows.
    """

    group: int
    first: int
    rows: int


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
        part: the only rows that are read; all by default.

    Attributes:
        name: its path.
        names: the names of all columns.
        columns: the service's keys that the file has a column for.
        ignored: the names of the columns that are left out.
        row_groups: the number of rows of each row group.
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
        part: RowGroupPart | None = None,
    ) -> None:
        self._part = part
        self._empty = EmptyValues.parse(empty)
        self._input = open_input(file)
        self._arrow = Arrow.load("format", "parquet needs")
        self.name = self._input.name
        self.bytes_read = 0
        self.exhausted = False
        names, types = self._read_schema()
        self.names: Sequence[str] = names
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

    def list_ranges(self, group: int) -> Sequence[tuple[int, int]]:
        """Return where the columns of a row group that are read begin in the file, and their numbers of bytes."""
        with self._open() as (table, _), self._guard(_DAMAGED):
            return [find_range(metadata) for metadata, _ in self._find_leaves(table, group)]

    def find_line(self, position: int) -> None:
        """Return None: a Parquet file has no lines."""

    async def fingerprint(self) -> str:
        """Return a digest of the file and of what its columns mean."""
        return await compute_digest(self._input, "parquet", self.columns, self._wanted, self._empty.texts)

    def close(self) -> None:
        """Close the file, if `rows()` was not read to its end."""
        self._stop()
        self._input.close()

    def _begin(self) -> Iterable[Iterable[Sequence[Any]]]:
        self._stop()
        self.exhausted = False
        self._batches = self._read_all()
        return self._batches

    def _stop(self) -> None:
        if self._batches is not None:
            self._batches.close()

    def _read_all(self) -> Generator[Iterable[Sequence[Any]], None, None]:
        yield from self._read_slices()
        self.exhausted = True

    def _read_schema(self) -> tuple[Sequence[str], Sequence[Any]]:
        with self._open() as (table, _), self._guard(_DAMAGED):
            self.size = max(1, table.metadata.num_rows)
            check_rows(self.size, self._input.size)
            groups = map(table.metadata.row_group, range(table.num_row_groups))
            self.row_groups: Sequence[int] = tuple(group.num_rows for group in groups)
            return table.schema_arrow.names, table.schema_arrow.types

    def _read_slices(self) -> Generator[Iterable[Sequence[Any]], None, None]:
        groups = range(len(self.row_groups))
        if self._part is not None:
            groups = groups[self._part.group : self._part.group + 1]
        self.bytes_read = sum(self.row_groups[: groups.start])
        with self._open() as (table, planner):
            for group in (index for index in groups if self.row_groups[index]):
                for batch in self._select_rows(self._read_batches(table, planner, group)):
                    columns = [self._list_values(batch.column(name), name) for name in self._wanted]
                    self.bytes_read += batch.num_rows
                    yield ColumnarRows([self._empty.clear_all(column) for column in columns])
        self._input.check_unchanged()

    def _select_rows(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of a row group, or the rows of the part in them."""
        if self._part is None:
            yield from batches
            return
        first, missing = self._part.first, self._part.rows
        for batch in batches:
            skipped = min(first, batch.num_rows)
            self.bytes_read += skipped
            selected = batch.slice(skipped, missing)
            first, missing = first - skipped, missing - selected.num_rows
            if selected.num_rows:
                yield selected
            if not missing:
                return

    def _read_batches(self, table: Any, planner: BatchPlanner, group: int) -> Iterator[Any]:
        with self._guard(self._describe_damage()):
            size = planner.find_batch_size(self._find_leaves(table, group))
            batches = table.iter_batches(size, row_groups=[group], columns=self._wanted, use_threads=False)
        while (batch := self._read_batch(batches)) is not None:
            with self._guard(self._describe_damage()):
                planner.count(batch.nbytes)
                self._check_lengths(batch)
            yield batch

    def _find_leaves(self, table: Any, group: int) -> Iterator[tuple[Any, bool]]:
        """Yield the metadata of what the columns are stored in, and whether it is of lists."""
        schema, metadata = table.schema, table.metadata.row_group(group)
        for index in range(metadata.num_columns):
            path = schema.column(index).path
            if any(path == name or path.startswith(f"{name}.") for name in self._wanted):
                yield metadata.column(index), schema.column(index).max_repetition_level > 0

    def _read_batch(self, batches: Any) -> Any:
        with self._guard(self._describe_damage()):
            return next(batches, None)

    def _check_lengths(self, batch: Any) -> None:
        """Check the values of a batch that is large enough to hold a value that is too long."""
        if batch.nbytes > MAX_VALUE:
            for name, column in zip(self._wanted, (batch.column(name) for name in self._wanted), strict=True):
                if self._arrow.measure_longest(column) > MAX_VALUE:
                    raise ExcessiveFile(f"has a value longer than {MAX_VALUE >> 20} MiB in column {name!r}")

    def _describe_damage(self) -> str:
        return f"is damaged after row {self.bytes_read}: it cannot be read as Parquet"

    def _list_values(self, column: Any, name: str) -> Sequence[Any]:
        try:
            return self._arrow.list_values(column)
        except self._arrow.errors:
            row = self.bytes_read + 1 + self._arrow.find_undecodable(column)
        raise unusable(self.name, f"has text that is not UTF-8 in row {row} of column {name!r}")

    @contextmanager
    def _guard(self, damage: str) -> Generator[None]:
        try:
            yield
        except ExcessiveFile as error:
            raise unusable(self.name, str(error)) from None
        except self._arrow.errors as error:
            is_text = "UTF8" in str(error)
            problem = f"has text that is not UTF-8 after row {self.bytes_read}" if is_text else damage
            raise unusable(self.name, problem) from None

    def _check_columns(self, names: Sequence[str], types: Sequence[Any]) -> None:
        for name, column_type in zip(names, types, strict=True):
            if name in self._wanted and names.count(name) > 1:
                raise unusable(self.name, f"has more than one column {name!r}")
            if name in self._wanted and not self._arrow.is_supported(column_type):
                raise unusable(self.name, f"must have strings or integers in column {name!r}, not {column_type}")

    @contextmanager
    def _open(self) -> Generator[tuple[Any, BatchPlanner]]:
        with self._input.open() as raw, self._input.open() as pages:
            with self._guard(_DAMAGED):
                check_footer(pages, self._input.size)
                table = self._arrow.parquet.ParquetFile(
                    self._arrow.arrow.PythonFile(raw, mode="r"),
                    pre_buffer=False,
                    buffer_size=_BUFFER,
                    thrift_container_size_limit=_MAX_PARTS,
                )
            with table:
                yield table, BatchPlanner(pages, self._input.size, self._arrow.decompress)
