"""Files in Parquet, read column by column, a few thousand rows at a time. Needs the extra `feeds`."""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from svc_async.sources.blocks.arrow import Arrow
from svc_async.sources.blocks.files import Input
from svc_async.sources.blocks.parquet_bounds import (
    MAX_VALUE,
    BatchPlanner,
    ColumnChunk,
    DamagedPage,
    RefusedFile,
    read_footer,
)
from svc_async.sources.columns import IGNORED
from svc_async.sources.file_source import TableSource
from svc_async.users.names import USERS, Vocabulary
from svc_async.users.tables import ColumnarRows

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


class ParquetSource(TableSource):
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
        row_groups: the number of rows of each row group.

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
        super().__init__(file, empty)
        self._part = part
        self._arrow = Arrow.load("format", "parquet needs")
        with self._input.open() as pages, self._guard(_DAMAGED):
            self._groups = read_footer(pages, self._input.size)
        self.row_groups: Sequence[int] = tuple(group.rows for group in self._groups)
        self.size = max(1, sum(self.row_groups))
        with self._open() as (table, _), self._guard(_DAMAGED):
            leaves = [table.schema.column(index) for index in range(len(table.schema))]
            paths = [leaf.path for leaf in leaves]
            is_list = [leaf.max_repetition_level > 0 for leaf in leaves]
            names, types = table.schema_arrow.names, table.schema_arrow.types
            if any(len(group.columns) != len(leaves) for group in self._groups):
                raise DamagedPage
        self._match_columns(names, mapping, vocabulary, place="the schema")
        self._wanted = [name for name, key in self._keys if key != IGNORED]
        for name, column_type in zip(names, types, strict=True):
            if name in self._wanted and not self._arrow.is_supported(column_type, numbers=vocabulary.numbers):
                raise self.refuse(f"must have strings or integers in column {name!r}, not {column_type}")
        self._leaves = [
            (index, name, is_list[index])
            for index, path in enumerate(paths)
            for name in dict.fromkeys(self._wanted)
            if path == name or path.startswith(f"{name}.")
        ]
        for index, name, _ in self._leaves:
            if any(group.columns[index] is None for group in self._groups):
                raise self.refuse(f"has the encrypted column {name!r}: write it without encryption")

    @property
    def meaning(self) -> Sequence[object]:
        """The format and the settings that decide what the bytes of the file mean."""
        return "parquet", self.columns, self._wanted, self._empty.texts

    def find_line(self, position: int) -> None:
        """Return None: a Parquet file has no lines."""

    def list_ranges(self, group: int) -> Sequence[tuple[int, int]]:
        """Return where the columns of a row group that are read begin in the file, and their numbers of bytes."""
        return [(column.start, column.length) for column, _ in self._find_leaves(group)]

    def parse(self) -> Generator[Iterable[Sequence[Any]], None, None]:
        """Yield the rows of each batch, reduced to the columns that are wanted."""
        groups = range(len(self.row_groups))
        if self._part is not None:
            groups = groups[self._part.group : self._part.group + 1]
        self.bytes_read = sum(self.row_groups[: groups.start])
        with self._open() as (table, planner):
            for group in (index for index in groups if self.row_groups[index]):
                for batch in self._select_rows(self._read_batches(table, planner, group)):
                    columns = [self._list_values(column, name) for name, column in self._name_columns(batch)]
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
            size = planner.find_batch_size(self._find_leaves(group))
            columns = [*dict.fromkeys(self._wanted)]  # several may have one name
            batches = table.iter_batches(size, row_groups=[group], columns=columns, use_threads=False)
        while True:
            with self._guard(self._describe_damage()):
                if (batch := next(batches, None)) is None:
                    return
                shared = sum(self._arrow.measure_shared(column) for _, column in self._name_columns(batch))
                planner.count(batch.nbytes + shared)
                self._check_lengths(batch)
            yield batch

    def _name_columns(self, batch: Any) -> Iterator[tuple[str, Any]]:
        """Yield the columns of a batch, with their names, in the order of the schema of the file."""
        places = {name: iter(batch.schema.get_all_field_indices(name)) for name in self._wanted}
        return ((name, batch.column(next(places[name]))) for name in self._wanted)

    def _find_leaves(self, group: int) -> Iterator[tuple[ColumnChunk, bool]]:
        """Yield what the columns are stored in, and whether it is of lists."""
        for index, _, is_list in self._leaves:
            if column := self._groups[group].columns[index]:
                yield column, is_list

    def _check_lengths(self, batch: Any) -> None:
        """Check the values of a batch that is large enough to hold a value that is too long."""
        if batch.nbytes > MAX_VALUE:
            for name, column in self._name_columns(batch):
                if self._arrow.measure_longest(column) > MAX_VALUE:
                    raise RefusedFile(f"has a value longer than {MAX_VALUE >> 20} MiB in column {name!r}")

    def _describe_damage(self) -> str:
        return f"is damaged after row {self.bytes_read}: it cannot be read as Parquet"

    def _list_values(self, column: Any, name: str) -> Sequence[Any]:
        try:
            return self._arrow.list_values(column)
        except self._arrow.errors:
            row = self.bytes_read + 1 + self._arrow.find_undecodable(column)
        raise self.refuse(f"has text that is not UTF-8 in row {row} of column {name!r}")

    @contextmanager
    def _guard(self, damage: str) -> Generator[None]:
        try:
            yield
        except RefusedFile as error:
            raise self.refuse(str(error)) from None
        except self._arrow.errors as error:
            is_text = "UTF8" in str(error)
            problem = f"has text that is not UTF-8 after row {self.bytes_read}" if is_text else damage
            raise self.refuse(problem) from None

    @contextmanager
    def _open(self) -> Generator[tuple[Any, BatchPlanner]]:
        with self._input.open() as raw, self._input.open() as pages:
            with self._guard(_DAMAGED):
                table = self._arrow.parquet.ParquetFile(
                    self._arrow.arrow.PythonFile(raw, mode="r"),
                    pre_buffer=False,
                    buffer_size=_BUFFER,
                    thrift_container_size_limit=_MAX_PARTS,
                )
            with table:
                yield table, BatchPlanner(pages, self._input.size, self._arrow.decompress)
