"""The pages of a Parquet file: their headers, read without any of their values.

A page header says how much a page becomes, before it is decompressed and decoded. The metadata of the file says so too,
but nothing keeps it from being wrong. Headers are structs in the compact protocol of Thrift, of which this module reads
the part that they use; `pyarrow` reads them as well, but does not show them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import attrs

__all__ = ["DamagedPage", "ParquetPage", "count_structs", "read_pages"]

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_MAX_VARINT = 10
_MAX_DEPTH = 16
_HEADER = 1_024
_MAX_HEADER = 1_048_576
"""Bytes of a page header, which may hold the least and the greatest value."""
_DATA, _INDEX, _DICTIONARY, _DATA_V2 = range(4)
_DETAILS: Mapping[int, int] = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}
"""The field of a page header that is about a page of each type."""


class DamagedPage(Exception):
    """The headers of pages cannot be read."""


class _Truncated(Exception):
    """The struct does not end in these bytes."""


@attrs.frozen(kw_only=True)
class ParquetPage:
    """A page of a column.

    Attributes:
        start: where its content begins in the file.
        stored: bytes of its content in the file.
        size: bytes of its content.
        values: its number of values, null or not.
        encoding: how they are encoded, by the number of the format.
        is_dictionary: whether it holds the values that other pages refer to.
        repetition_size: in a page of version 2, bytes of its repetition levels, which are not compressed.
    """

    start: int
    stored: int
    size: int
    values: int
    encoding: int
    is_dictionary: bool
    repetition_size: int | None


class _CompactReader:
    """Reads structs in the compact protocol."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.at = 0
        self.structs = 0

    def read_struct(self, depth: int = 0) -> dict[int, Any]:
        """Return the fields of a struct by their numbers."""
        self.structs += 1
        fields: dict[int, Any] = {}
        number = 0
        while kind := self._read_byte():
            number = number + (kind >> 4) if kind >> 4 else self._read_signed()
            fields[number] = self._read_value(kind & 0x0F, depth)
        return fields

    def _read_value(self, kind: int, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise DamagedPage
        if kind in {_TRUE, _FALSE}:
            return kind == _TRUE
        if kind in {_I16, _I32, _I64}:
            return self._read_signed()
        if kind == _BINARY:
            return self._skip(self._read_unsigned())
        if kind == _STRUCT:
            return self.read_struct(depth + 1)
        if kind in {_LIST, _SET}:
            return self._skip_list(depth)
        if kind in {_BYTE, _DOUBLE}:
            return self._skip(1 if kind == _BYTE else 8)
        raise DamagedPage

    def _skip_list(self, depth: int) -> None:
        head = self._read_byte()
        count = head >> 4 if head >> 4 != 0x0F else self._read_unsigned()  # noqa: PLR2004 - the longest short form
        for _ in range(count):
            # A Boolean in a list takes a byte, unlike a field.
            self._read_value(_BYTE if head & 0x0F in {_TRUE, _FALSE} else head & 0x0F, depth + 1)

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self._content):
            raise _Truncated

    def _read_byte(self) -> int:
        if self.at >= len(self._content):
            raise _Truncated
        self.at += 1
        return self._content[self.at - 1]

    def _read_unsigned(self) -> int:
        value = 0
        for index in range(_MAX_VARINT):
            byte = self._read_byte()
            value |= (byte & 0x7F) << (7 * index)
            if not byte & 0x80:
                return value
        raise DamagedPage

    def _read_signed(self) -> int:
        value = self._read_unsigned()
        return (value >> 1) ^ -(value & 1)


class _Counter(_CompactReader):
    """Counts the structs of a struct, and stops at a limit."""

    def __init__(self, content: bytes, limit: int) -> None:
        super().__init__(content)
        self._limit = limit

    def read_struct(self, depth: int = 0) -> dict[int, Any]:
        if self.structs >= self._limit:
            raise DamagedPage
        super().read_struct(depth)
        return {}


def count_structs(content: bytes, limit: int) -> int:
    """Return how many structs the metadata of a file consists of, or the limit if there are more.

    Raises:
        DamagedPage: they cannot be read.
    """
    counter = _Counter(content, limit)
    try:
        counter.read_struct()
    except (_Truncated, DamagedPage):
        if counter.structs < limit:
            raise DamagedPage from None
    return counter.structs


def read_pages(file: BinaryIO, start: int, length: int) -> Iterator[ParquetPage]:
    """Yield the pages of a column in one row group.

    Args:
        file: the file.
        start: where the first page begins.
        length: bytes of all pages with their headers.

    Raises:
        DamagedPage: their headers cannot be read.
    """
    end = start + length
    while start < end:
        header, size = _read_header(file, start, end)
        page = _parse_page(header, start + size)
        if page is not None:
            yield page
        start += size + _get_size(header, 3)


def _read_header(file: BinaryIO, start: int, end: int) -> tuple[Mapping[int, Any], int]:
    room = min(_HEADER, end - start)
    while True:
        file.seek(start)
        reader = _CompactReader(file.read(room))
        try:
            return reader.read_struct(), reader.at
        except _Truncated:
            if room >= min(_MAX_HEADER, end - start):
                raise DamagedPage from None
            room = min(room * 8, _MAX_HEADER, end - start)


def _parse_page(header: Mapping[int, Any], start: int) -> ParquetPage | None:
    kind = header.get(1)
    if kind == _INDEX:
        return None
    details = header.get(_DETAILS.get(kind, -1)) if isinstance(kind, int) else None
    if not isinstance(details, dict):
        raise DamagedPage
    is_second = kind == _DATA_V2
    return ParquetPage(
        start=start,
        stored=_get_size(header, 3),
        size=_get_size(header, 2),
        values=_get_size(details, 1),
        encoding=_get_size(details, 4 if is_second else 2),
        is_dictionary=kind == _DICTIONARY,
        repetition_size=_get_size(details, 6) if is_second else None,
    )


def _get_size(fields: Mapping[int, Any], number: int) -> int:
    size = fields.get(number)
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise DamagedPage
    return size
