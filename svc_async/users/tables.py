"""Tables of users: rows, or columns, which spare the tuple for each row."""

from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import attrs

from svc_async.cells import holds_several
from svc_async.errors import InvalidArgument

__all__ = ["ColumnSlicer", "ColumnarRows", "Columns", "Rows", "join_values", "slice_columns"]

_CONVERTERS = ("to_pylist", "tolist", "to_list")
"""How arrays become lists: those of Arrow, of numpy and pandas, and of polars."""


@attrs.frozen
class Rows:
    """Rows of a table: the names of the columns once, then one tuple for each row.

    Attributes:
        columns: identifiers, such as `("email", "phone_number")`. Several columns of one identifier contain several of
            its values, such as two addresses of a person.
        rows: an iterable or async iterable of tuples with a value for each column; None or blank for none.
    """

    columns: Sequence[str]
    rows: Iterable[Sequence[object]] | AsyncIterable[Sequence[object]]


@attrs.frozen
class Columns:
    """A table, column by column; the fastest input.

    Rows have the positions that they would have as tuples. A row beyond the end of the shortest column fails.

    Attributes:
        names: identifiers, such as `("email", "phone_number")`; see `Rows`.
        batches: an iterable or async iterable of batches. A batch has a column for each name, and a column is a
            sequence of values, such as a list or an Arrow array; None or blank for none.
    """

    names: Sequence[str]
    batches: Iterable[Iterable[Sequence[object]]] | AsyncIterable[Iterable[Sequence[object]]]


@attrs.frozen
class ColumnarRows(Sequence[Any]):
    """A slice of rows that is held as columns.

    Attributes:
        columns: lists or tuples of the same length.
    """

    columns: Sequence[Sequence[Any]]

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return ColumnarRows([column[index] for column in self.columns])
        return tuple(column[index] for column in self.columns)

    def __iter__(self) -> Iterator[Sequence[Any]]:
        return zip(*self.columns, strict=True)


def join_values(values: Iterable[object]) -> object:
    """Return the values of one identifier of a row as one value: a list if there are several, None if there is none."""
    present = [value for value in values if not (value is None or (isinstance(value, str) and not value.strip()))]
    if len(present) < 2:  # noqa: PLR2004 - a single value needs no list
        return present[0] if present else None
    return [each for value in present for each in (value if holds_several(value) else (value,))]


class ColumnSlicer:
    """Cuts batches into slices of the same number of rows, whatever the sizes of the batches.

    So a job is the same whether its rows came one by one or in columns.

    Args:
        size: rows of a slice.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._batches = 0
        self._waiting: list[Sequence[Any]] = []
        self._missing = size

    def cut(self, batch: object) -> Iterator[Sequence[Any]]:
        """Yield the slices that a batch completes.

        Raises:
            InvalidArgument: it does not consist of columns.
        """
        columns = _list_columns(batch, self._batches)
        self._batches += 1
        start, end = 0, max(map(len, columns), default=0)
        while start < end:
            rows = _take_rows(columns, start, start + self._missing)
            start += len(rows)
            self._missing -= len(rows)
            self._waiting.append(rows)
            if not self._missing:
                yield from self.finish()

    def finish(self) -> Iterator[Sequence[Any]]:
        """Yield the rows that are left."""
        if self._waiting:
            yield _join_rows(self._waiting)
        self._waiting = []
        self._missing = self._size


def slice_columns(columns: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Yield the rows of columns in slices of this number at most; a row without a value in each column is empty.

    Args:
        columns: sequences, or arrays that can be sliced and made lists.
        size: rows of a slice.
    """
    for start in range(0, max(map(len, columns), default=0), size):
        yield _take_rows(columns, start, start + size)


def _list_columns(batch: Any, number: int) -> Sequence[Any]:
    columns = batch.itercolumns() if hasattr(batch, "itercolumns") else batch  # a batch of Arrow
    if isinstance(columns, str | bytes | Mapping) or not isinstance(columns, Iterable):
        raise InvalidArgument(f"batches[{number}]", "must be a sequence with a column for each name")
    columns = list(columns)
    for index, column in enumerate(columns):
        is_sequence = hasattr(column, "__len__") and hasattr(column, "__getitem__")
        if isinstance(column, str | bytes | Mapping) or not is_sequence:
            rule = "must be a sequence of values; for tuples with a value for each column, pass Rows"
            raise InvalidArgument(f"batches[{number}][{index}]", rule)
    return columns


def _take_rows(columns: Sequence[Any], start: int, end: int) -> Sequence[Any]:
    parts = [_to_list(column[start:end]) for column in columns]
    lengths = set(map(len, parts))
    if len(lengths) == 1:
        return ColumnarRows(parts)
    return [*zip(*parts, strict=False), *[()] * (max(lengths) - min(lengths))]


def _join_rows(parts: Sequence[Sequence[Any]]) -> Sequence[Any]:
    if len(parts) == 1:
        return parts[0]
    by_column = [part.columns for part in parts if isinstance(part, ColumnarRows)]
    if len(by_column) == len(parts) and len(set(map(len, by_column))) == 1:
        return ColumnarRows([list(chain.from_iterable(columns)) for columns in zip(*by_column, strict=True)])
    return list(chain.from_iterable(parts))


def _to_list(values: Any) -> Sequence[object]:
    if isinstance(values, list | tuple):
        return values
    converter = next((name for name in _CONVERTERS if hasattr(values, name)), None)
    converted: Sequence[object] = getattr(values, converter)() if converter else list(values)
    return converted
