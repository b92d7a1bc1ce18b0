"""What a Parquet file takes to decode, found out before any value is.

A few bytes of a page may stand for millions of values, or for one that is repeated in each row. The headers of the
pages, the repetition levels of lists and the lengths in dictionaries bound what a number of rows becomes; the number
of rows in a batch follows from that. All that is decoded of a file counts towards one bound, which follows from its
size.

The metadata is read here, too: the library ends the process at metadata that it does not expect, such as that of a
column that is encrypted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from struct import Struct
from types import MappingProxyType
from typing import Any, BinaryIO

import attrs

from svc_async.sources.blocks.files import MAX_RATIO, ROW_WORK, bound_work

__all__ = [
    "MAX_BATCH",
    "MAX_FOOTER",
    "MAX_VALUE",
    "BatchPlanner",
    "ColumnChunk",
    "DamagedPage",
    "ParquetPage",
    "RefusedFile",
    "RowGroup",
    "read_footer",
    "read_pages",
]

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_MAX_VARINT = 10
_MAX_DEPTH = 16
_MAX_STRUCTS = 100_000
_HEADER = 1_024
_MAX_HEADER = 1_048_576
"""Bytes of a page header, which may hold the least and the greatest value."""
_DATA, _INDEX, _DICTIONARY, _DATA_V2 = range(4)
_DETAILS: Mapping[int, int] = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}
"""The field of a page header that is about a page of each type."""

_Shape = Mapping[int, "_Shape"]
"""The fields of a struct that are kept, and those of the structs in them."""
_VALUE: _Shape = {}
_PAGE: _Shape = {
    **dict.fromkeys((1, 2, 3), _VALUE),
    **dict.fromkeys(_DETAILS.values(), dict.fromkeys((1, 2, 4, 6), _VALUE)),
}
_COLUMN: _Shape = {3: dict.fromkeys((1, 4, 7, 9, 11), _VALUE), 8: _VALUE}
_FOOTER: _Shape = {4: {1: _COLUMN, 3: _VALUE}}


class RefusedFile(Exception):
    """A file is encrypted, or demands more than any file of users does; the message says what."""


class DamagedPage(Exception):
    """The metadata of a file or the headers of pages cannot be read."""


class _Truncated(Exception):
    """The struct does not end in these bytes."""


@attrs.frozen(kw_only=True)
class ColumnChunk:
    """A column in one row group.

    Attributes:
        start: where its first page begins in the file.
        length: bytes of its pages with their headers.
        has_texts: whether its values are of any length.
        codec: how its pages are compressed, by the number of the format.
    """

    start: int
    length: int
    has_texts: bool
    codec: int


@attrs.frozen
class RowGroup:
    """A row group.

    Attributes:
        rows: its number of rows.
        columns: its columns; None for one that is encrypted.
    """

    rows: int
    columns: Sequence[ColumnChunk | None]


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
    """Reads structs in the compact protocol.

    Raises:
        DamagedPage: the bytes are not such structs.
        RefusedFile: there are too many structs in one.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._structs = 0
        self.at = 0

    def read_struct(self, shape: _Shape, depth: int = 0) -> dict[int, Any]:
        """Return some fields of a struct by their numbers: those of a shape."""
        self._structs += 1
        if self._structs > _MAX_STRUCTS:
            raise RefusedFile(f"has metadata of more than {_MAX_STRUCTS:,} parts; use larger row groups")
        fields: dict[int, Any] = {}
        number = 0
        while kind := self._read_byte():
            number = number + (kind >> 4) if kind >> 4 else self._read_signed()
            value = self._read_value(kind & 0x0F, shape.get(number, _VALUE), depth)
            if number in shape:
                fields[number] = value
        return fields

    def _read_value(self, kind: int, shape: _Shape, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise DamagedPage
        if kind in {_TRUE, _FALSE}:
            return kind == _TRUE
        if kind in {_I16, _I32, _I64}:
            return self._read_signed()
        if kind == _BINARY:
            return self._skip(self._read_unsigned())
        if kind == _STRUCT:
            return self.read_struct(shape, depth + 1)
        if kind in {_LIST, _SET}:
            return self._read_list(shape, depth)
        if kind in {_BYTE, _DOUBLE}:
            return self._skip(1 if kind == _BYTE else 8)
        raise DamagedPage

    def _read_list(self, shape: _Shape, depth: int) -> list[Any]:
        """Return the structs of a list if some of their fields are kept."""
        head = self._read_byte()
        count = head >> 4 if head >> 4 != 0x0F else self._read_unsigned()  # noqa: PLR2004 - the longest short form
        kind = head & 0x0F
        kept = []
        for _ in range(count):
            # A Boolean in a list takes a byte, unlike a field.
            value = self._read_value(_BYTE if kind in {_TRUE, _FALSE} else kind, shape, depth + 1)
            if shape and kind == _STRUCT:
                kept.append(value)
        return kept

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


def read_footer(file: BinaryIO, size: int) -> Sequence[RowGroup]:
    """Return the row groups of a file, as the metadata at its end describes them.

    Raises:
        RefusedFile: the metadata is encrypted, or would take too much memory, or there are more rows than so few bytes
            hold of users.
        DamagedPage: there is none, or it cannot be read.
    """
    file.seek(max(0, size - 8))
    tail = file.read(8)
    length = int.from_bytes(tail[:_LENGTH], "little")
    if tail[_LENGTH:] == b"PARE":
        raise RefusedFile("is encrypted: write it without encryption")
    if tail[_LENGTH:] != b"PAR1" or length > size - 12:
        raise DamagedPage
    if length > MAX_FOOTER:
        raise RefusedFile(f"has more than {MAX_FOOTER >> 20} MiB of metadata")
    file.seek(size - 8 - length)
    try:
        metadata = _CompactReader(file.read(length)).read_struct(_FOOTER)
    except _Truncated:
        raise DamagedPage from None
    groups = [
        RowGroup(_get_size(group, 3), [_parse_column(column) for column in _get_list(group, 1)])
        for group in _get_list(metadata, 4)
    ]
    # Columns of which several are in the same place would be read again and again.
    if sum(column.length for group in groups for column in group.columns if column is not None) > size:
        raise DamagedPage
    if sum(group.rows for group in groups) * ROW_WORK > bound_work(size):
        raise RefusedFile(f"has more than {MAX_RATIO // ROW_WORK} rows for each of its bytes")
    return groups


def _get_list(fields: Mapping[int, Any], number: int) -> Sequence[Mapping[int, Any]]:
    entries = fields.get(number)
    if not isinstance(entries, list):
        raise DamagedPage
    return entries


def _parse_column(column: Mapping[int, Any]) -> ColumnChunk | None:
    if 8 in column:  # noqa: PLR2004 - how it is encrypted
        return None
    metadata = column.get(3)
    if not isinstance(metadata, dict):
        raise DamagedPage
    start = _get_size(metadata, 9)
    dictionary = metadata.get(11, 0)
    return ColumnChunk(
        start=dictionary if 0 < dictionary < start else start,
        length=_get_size(metadata, 7),
        has_texts=_get_size(metadata, 1) == _BYTE_ARRAY,
        codec=_get_size(metadata, 4),
    )


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
            return reader.read_struct(_PAGE), reader.at
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


MAX_BATCH = 134_217_728
"""Bytes that the pages and the decoded rows of a batch may take."""
MAX_VALUE = 4_194_304
"""Bytes of one value."""
_MAX_LIST = 5_000
"""Entries of one list."""
_MAX_PAGES = 100_000
"""Pages of a column in one row group."""
MAX_FOOTER = 16_777_216
"""Bytes of the metadata of a file."""
_BATCHES = (8_192, 1_024, 128, 16, 1)
_INTEGER_SIZE = 20
_ENTRY = 16
"""Bytes of an entry of a dictionary, besides its content."""
_SCANNED_ENTRIES = 1_000_000
_DELTA_BYTE_ARRAY = 7
_PREFIXED_COPIES = 4
"""Times that the library holds a value of this encoding while it decodes it, in buffers that grow by doubling."""
_DICTIONARY_ENCODINGS = frozenset({2, 8})
_BYTE_ARRAY = 6
_UNCOMPRESSED = 0
_CODECS: Mapping[int, str] = MappingProxyType(
    {1: "snappy", 2: "gzip", 4: "brotli", 5: "lz4_raw", 6: "zstd", 7: "lz4_raw"}
)
_LENGTH = 4
_read_length = Struct("<I").unpack_from
_MAX_SHIFT = 35
"""Bits of the head of a run."""
_PACKED = 65_536
"""Bytes of packed levels that are unpacked at a time, each to eight characters."""

Decompress = Callable[[bytes, int, str], bytes]
"""Decompresses bytes to a size, with the codec of this name."""


@attrs.frozen(kw_only=True)
class _Chunk:
    """A column in one row group.

    Attributes:
        pages: its pages with values.
        buffers: bytes that its largest page and dictionary take while they are decoded.
        value_size: the most bytes of a value whose size does not count towards its page.
        list_size: the most values of a row.
    """

    pages: Sequence[ParquetPage]
    buffers: int
    value_size: int
    list_size: int

    def bound_rows(self, rows: int) -> int:
        """Return the most bytes that this number of consecutive rows become."""
        values = rows * self.list_size
        return self.buffers + values * (self.value_size + ROW_WORK) + _find_largest_window(self.pages, values)


@attrs.define
class BatchPlanner:
    """Decides how many rows of each row group are decoded at once.

    Attributes:
        file: the file.
        size: its bytes.
        decompress: decompresses a page.
    """

    file: BinaryIO
    size: int
    decompress: Decompress
    _work: int = 0

    def count(self, size: int) -> None:
        """Count bytes that are decompressed or decoded; a value counts as an object, too.

        Raises:
            RefusedFile: there are more than so small a file holds of users.
        """
        self._work += size
        if self._work > bound_work(self.size):
            raise RefusedFile(f"expands more than {MAX_RATIO:,} times when it is decoded")

    def find_batch_size(self, columns: Iterable[tuple[ColumnChunk, bool]]) -> int:
        """Return how many rows of a row group are decoded at once.

        Args:
            columns: those that are read, and whether each is one of lists.

        Raises:
            RefusedFile: a value, a list or a page is too large.
            DamagedPage: the pages cannot be read.
        """
        chunks = [self._read_chunk(column, is_list) for column, is_list in columns]
        for rows in _BATCHES:
            if sum(chunk.bound_rows(rows) for chunk in chunks) <= MAX_BATCH:
                return rows
        raise RefusedFile(f"needs more than {MAX_BATCH >> 20} MiB to read one row; write it with smaller pages")

    def _read_chunk(self, column: ColumnChunk, is_list: bool) -> _Chunk:  # noqa: FBT001 - from a table of columns
        pages = list(islice(read_pages(self.file, column.start, column.length), _MAX_PAGES + 1))
        if len(pages) > _MAX_PAGES:
            raise RefusedFile(f"has more than {_MAX_PAGES:,} pages in a row group; write larger pages")
        largest = max((max(page.size, page.stored) for page in pages), default=0)
        if largest > MAX_BATCH // 2:
            raise RefusedFile(f"has a page of more than {MAX_BATCH >> 21} MiB; write smaller pages")
        self.count(sum(page.size + page.values * ROW_WORK for page in pages))
        data = [page for page in pages if not page.is_dictionary]
        return _Chunk(
            pages=data,
            buffers=largest + sum(page.size + page.values * _ENTRY for page in pages if page.is_dictionary),
            value_size=self._bound_value(column, pages),
            list_size=self._bound_list(column, data) if is_list else 1,
        )

    def _bound_value(self, column: ColumnChunk, pages: Sequence[ParquetPage]) -> int:
        """Return the most bytes of a value that is not stored in full wherever it occurs."""
        if not column.has_texts:
            return _INTEGER_SIZE
        repeated = (self._find_longest(column, page) for page in pages if page.is_dictionary)
        # A value may repeat the beginning of the one before it, which is longer than all that is stored of it.
        prefixed = (page.size * _PREFIXED_COPIES for page in pages if page.encoding == _DELTA_BYTE_ARRAY)
        longest = max(repeated, default=0)
        if longest > MAX_VALUE:
            raise RefusedFile(f"has a value longer than {MAX_VALUE >> 20} MiB")
        return max(longest, max(prefixed, default=0))

    def _find_longest(self, column: ColumnChunk, page: ParquetPage) -> int:
        """Return the length of the longest value of a dictionary."""
        content = None if page.values > _SCANNED_ENTRIES else self._read_page(column, page)
        if content is None:
            return min(page.size, MAX_VALUE)
        at = longest = 0
        end = len(content) - _LENGTH
        for _ in range(page.values):  # there may be a million entries, so each costs as little as it can
            if at > end:
                break
            (length,) = _read_length(content, at)
            if length > longest:  # noqa: PLR1730 - a call of max() takes longer
                longest = length
            at += _LENGTH + length
        return min(longest, page.size)

    def _bound_list(self, column: ColumnChunk, pages: Sequence[ParquetPage]) -> int:
        """Return the most entries of a list."""
        lists = _ListLengths()
        for page in pages:
            levels = self._read_levels(column, page)
            if levels is None:
                lists.add_run(1, page.values)
            else:
                lists.add_levels(levels, page.values)
            if lists.longest > _MAX_LIST:
                raise RefusedFile(f"has a list of more than {_MAX_LIST:,} entries")
        return lists.longest

    def _read_levels(self, column: ColumnChunk, page: ParquetPage) -> bytes | None:
        """Return the repetition levels of a page: 1 for an entry of the list of the entry before it, else 0."""
        if page.repetition_size is not None:
            self.file.seek(page.start)
            return self.file.read(page.repetition_size)
        content = self._read_page(column, page)
        if content is None:
            return None
        return content[_LENGTH : _LENGTH + int.from_bytes(content[:_LENGTH], "little")]

    def _read_page(self, column: ColumnChunk, page: ParquetPage) -> bytes | None:
        """Return the content of a page, None if its compression is not known."""
        self.file.seek(page.start)
        stored = self.file.read(page.stored)
        if column.codec == _UNCOMPRESSED:
            return stored
        if column.codec not in _CODECS:
            return None
        try:
            return self.decompress(stored, page.size, _CODECS[column.codec])
        except (OSError, ValueError):  # the older of the two kinds of LZ4, or damage, which is found when it is read
            return None


class _ListLengths:
    """The longest list of a column, of which the entries come in order.

    Attributes:
        longest: its number of entries; a list without any counts as one.
    """

    def __init__(self) -> None:
        self.longest = 1
        self._current = 0

    def add_levels(self, levels: bytes, count: int) -> None:
        """Add the levels of entries, in the hybrid of runs and packed bits of the format."""
        at = 0
        while count and at < len(levels):
            head, at = _read_head(levels, at)
            if head & 1:
                end = at + (head >> 1)
                packed = levels[at : min(end, at + -(-count // 8))]
                for start in range(0, len(packed), _PACKED):
                    self._add_bits(packed[start : start + _PACKED], count - 8 * start)
                added, at = min(8 * len(packed), count), end
            else:
                added = min(head >> 1, count)
                self.add_run(levels[at] & 1 if at < len(levels) else 0, added)
                at += 1
            if not added:  # no file has that, and bytes without entries would take any time
                break
            count -= added
        self.add_run(1, count)  # the page is shorter than it says; whatever is read, the list is no longer than this

    def add_run(self, level: int, count: int) -> None:
        """Add entries of one level."""
        if count:
            self._current = self._current + count if level else 1
            self.longest = max(self.longest, self._current)

    def _add_bits(self, packed: bytes, most: int) -> None:
        bits = f"{int.from_bytes(packed, 'little'):0{8 * len(packed)}b}"[::-1][:most]
        first, *others = bits.split("0")
        self.add_run(1, len(first))
        if others:
            self.longest = max(self.longest, 1 + max(map(len, others)))
            self._current = 1 + len(others[-1])


def _read_head(levels: bytes, at: int) -> tuple[int, int]:
    """Return the head of a run, and where what follows begins."""
    head = shift = 0
    while at < len(levels) and shift < _MAX_SHIFT:
        byte = levels[at]
        head |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            break
    return head, at


def _find_largest_window(pages: Sequence[ParquetPage], values: int) -> int:
    """Return the most bytes of pages that this number of consecutive values lie in."""
    largest = total = held = first = 0
    for page in pages:
        total, held = total + _size_of_values(page), held + page.values
        # It may begin with the last value of its first page, and end with the first of its last.
        while pages[first] is not page and held - pages[first].values - page.values + 2 > values:
            total, held, first = total - _size_of_values(pages[first]), held - pages[first].values, first + 1
        largest = max(largest, total)
    return largest


def _size_of_values(page: ParquetPage) -> int:
    """Return the bytes of values that are stored in full; others are counted for each value."""
    return 0 if page.encoding in _DICTIONARY_ENCODINGS else page.size
