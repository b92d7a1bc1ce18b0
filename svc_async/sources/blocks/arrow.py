"""Arrow, which is imported when it is needed, and the values of its columns."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import attrs

from svc_async.errors import InvalidArgument
from svc_async.sources.blocks.parquet_bounds import DamagedPage

__all__ = ["Arrow"]


@attrs.frozen
class Arrow:
    """The library, which is imported only when it is needed."""

    arrow: Any
    parquet: Any
    compute: Any

    @classmethod
    def load(cls, parameter: str, needs: str) -> "Arrow":
        """Return the library.

        Args:
            parameter: the argument for which it is needed.
            needs: the beginning of the message, such as `parquet needs`.

        Raises:
            InvalidArgument: it is not installed.
        """
        try:
            return cls(*map(import_module, ("pyarrow", "pyarrow.parquet", "pyarrow.compute")))
        except ImportError:
            rule = f'{needs} the extra "feeds": pip install "svc-async[feeds]"'
            raise InvalidArgument(parameter, rule) from None

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What reading may raise."""
        return self.arrow.ArrowException, OSError, ValueError, DamagedPage

    def list_values(self, column: Any) -> Sequence[Any]:
        """Return the values of a column; integers as texts.

        Raises:
            Exception: one of `errors`: a text is not UTF-8.
        """
        types, kind = self.arrow.types, column.type
        is_viewed = types.is_dictionary(kind) and types.is_string_view(kind.value_type)  # no cast of these exists
        if types.is_integer(kind) or (types.is_dictionary(kind) and not is_viewed):
            column = column.cast(self.arrow.string())
        return column.to_pylist()  # type: ignore[no-any-return]  # the library has no types

    def decompress(self, content: bytes, size: int, codec: str) -> bytes:
        """Return what a page of a Parquet file contains."""
        return self.arrow.decompress(content, size, codec, asbytes=True)  # type: ignore[no-any-return]  # no types

    def shares_values(self, column_type: Any) -> bool:
        """Return whether many rows of a column may have the same value, which is stored once."""
        kind = column_type.value_type if self._is_list(column_type) else column_type
        return self.arrow.types.is_dictionary(kind)  # type: ignore[no-any-return]  # no types

    def measure_longest(self, column: Any) -> int:
        """Return the bytes of the longest text of a column."""
        values = column.flatten() if self._is_list(column.type) else column
        lengths = self._measure_texts(values.dictionary if self.arrow.types.is_dictionary(values.type) else values)
        return 0 if lengths is None else self.compute.max(lengths).as_py() or 0

    def measure_shared(self, column: Any) -> int:
        """Return the bytes that the texts of a column take beyond those that are stored, if each stands for itself."""
        if not self.shares_values(column.type):
            return 0
        values = column.flatten() if self._is_list(column.type) else column
        lengths = self._measure_texts(values.dictionary)
        return 0 if lengths is None else self.compute.sum(lengths.take(values.indices)).as_py() or 0

    def _is_list(self, column_type: Any) -> bool:
        types = self.arrow.types
        return types.is_list(column_type) or types.is_large_list(column_type)  # type: ignore[no-any-return]  # no types

    def _measure_texts(self, values: Any) -> Any:
        """Return the bytes of each text; None if the values are not texts."""
        types = self.arrow.types
        if types.is_string_view(values.type):
            values = values.cast(self.arrow.large_string())
        is_other = types.is_primitive(values.type) or types.is_decimal(values.type) or types.is_null(values.type)
        return None if is_other else self.compute.binary_length(values)

    def find_undecodable(self, column: Any) -> int:
        """Return the index of the first value that is not valid text."""
        for index in range(len(column)):
            try:
                column.slice(index, 1).to_pylist()
            except self.errors:
                return index
        return 0

    def is_supported(self, column_type: Any, *, numbers: bool = False, is_entry: bool = False) -> bool:
        """Return whether a column contains strings, integers, or lists of these; with `numbers` floats and decimals."""
        types = self.arrow.types
        if not is_entry and self._is_list(column_type):
            return self.is_supported(column_type.value_type, numbers=numbers, is_entry=True)
        if types.is_dictionary(column_type):
            return self.is_supported(column_type.value_type, is_entry=True)
        if numbers and (types.is_floating(column_type) or types.is_decimal(column_type)):
            return True
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
