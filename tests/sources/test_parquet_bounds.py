"""What the headers of hostile pages demand is refused, or read in few rows at a time, before any page is decoded.

The pages are written here, byte by byte: what writes files of users writes no such pages.
"""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_async.sources.blocks import parquet_bounds
from svc_async.sources.blocks.parquet_bounds import (
    BatchPlanner,
    ColumnChunk,
    DamagedPage,
    ParquetPage,
    RefusedFile,
    RowGroup,
    read_footer,
    read_pages,
)

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
DATA, INDEX, DICTIONARY, DATA_V2 = range(4)
PLAIN, OLD_ENCODED, DELTA, ENCODED = 0, 2, 7, 8
INT64, BYTE_ARRAY = 2, 6
UNCOMPRESSED, SNAPPY, GZIP, LZO, BROTLI, OLD_LZ4, ZSTD, LZ4 = range(8)
MIB = 1 << 20
Fields = Mapping[int, tuple[int, bytes]]


def varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def signed(number: int) -> bytes:
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


def struct(fields: Fields) -> bytes:
    """Write a struct in the compact protocol, with the number of each field in full."""
    return b"".join(bytes([kind]) + signed(number) + content for number, (kind, content) in fields.items()) + b"\0"


def integer(number: int) -> tuple[int, bytes]:
    return I32, signed(number)


def page(
    kind: int = DATA,
    *,
    size: int = 0,
    values: int = 0,
    encoding: int = PLAIN,
    content: bytes = b"",
    stored: int | None = None,
    levels: int = 0,
    others: Fields | None = None,
) -> bytes:
    """Write a page whose header may demand anything."""
    details: Fields = {1: integer(values), 2: integer(encoding)}
    if kind == DATA_V2:
        details = {1: integer(values), 2: integer(0), 4: integer(encoding), 6: integer(levels)}
    place = {DATA: 5, DICTIONARY: 7, DATA_V2: 8}.get(kind, 5)
    header = {1: integer(kind), 2: integer(size), 3: integer(len(content) if stored is None else stored)}
    return struct({**header, place: (STRUCT, struct(details)), **(others or {})}) + content


def list_pages(content: bytes) -> Sequence[ParquetPage]:
    return list(read_pages(io.BytesIO(content), 0, len(content)))


Decompress = Callable[[bytes, int, str], bytes]


def refuse(_content: bytes, _size: int, _codec: str) -> bytes:
    raise ValueError


def plan(*columns: Sequence[bytes], **settings: Any) -> int:
    """Return how many rows of a row group are decoded at once; by default, of a file that may become a gibibyte."""
    return plan_groups([columns], **{"size": MIB, **settings})[0]


def plan_groups(
    groups: Sequence[Sequence[Sequence[bytes]]],
    *,
    has_texts: bool = True,
    codec: int = UNCOMPRESSED,
    lists: bool = False,
    decompress: Decompress = refuse,
    size: int = 0,
) -> Sequence[int]:
    """Return the same for each row group of a file, of which each column is its pages."""
    content, found = b"", []
    for group in groups:
        columns = []
        for pages in group:
            chunk = ColumnChunk(start=len(content), length=sum(map(len, pages)), has_texts=has_texts, codec=codec)
            columns.append((chunk, lists))
            content += b"".join(pages)
        found.append(columns)
    planner = BatchPlanner(io.BytesIO(content), size or len(content), decompress)
    return [planner.find_batch_size(columns) for columns in found]


def read_file(
    metadata: bytes, *, length: int | None = None, mark: bytes = b"PAR1", size: int = 0
) -> Sequence[RowGroup]:
    """Read a file that ends in this metadata, and has at least a size."""
    room = b"PAR1".ljust(max(4, size - len(metadata) - 8), b"\0")
    content = room + metadata + (len(metadata) if length is None else length).to_bytes(4, "little") + mark
    return read_footer(io.BytesIO(content), len(content))


def structs(*entries: bytes) -> tuple[int, bytes]:
    """Write a list of structs."""
    return LIST, b"\xfc" + varint(len(entries)) + b"".join(entries)


def group(*columns: bytes, rows: int = 1) -> bytes:
    return struct({1: structs(*columns), 3: (I64, signed(rows))})


def column(kind: int = BYTE_ARRAY, *, length: int = 0, start: int = 4, others: Fields | None = None) -> bytes:
    fields = {1: integer(kind), 4: integer(ZSTD), 7: (I64, signed(length)), 9: (I64, signed(start)), **(others or {})}
    return struct({3: (STRUCT, struct(fields))})


def metadata(*groups: bytes, others: Fields | None = None) -> bytes:
    return struct({**(others or {}), 4: structs(*groups)})


def padding(size: int) -> Fields:
    """Write a text that is not needed."""
    return {6: (BINARY, varint(size) + bytes(size))}


def test_metadata_fills_at_most_what_is_before_its_length() -> None:
    assert read_file(metadata()) == []
    whole = metadata()
    wrong: Sequence[dict[str, Any]] = ({"length": len(whole) + 1}, {"length": len(whole) - 1}, {"mark": b"PAR2"})
    for arguments in wrong:
        with pytest.raises(DamagedPage):
            read_file(whole, **arguments)
    for size in range(12):
        with pytest.raises(DamagedPage):
            read_footer(io.BytesIO(b"\0\0\0\0PAR1"[-size:]), size)


def test_metadata_of_sixteen_mebibytes_is_read() -> None:
    room = 16 * MIB - len(metadata(others=padding(16 * MIB))) + 16 * MIB
    assert read_file(metadata(others=padding(room))) == []
    with pytest.raises(RefusedFile):
        read_file(metadata(others=padding(room + 1)))


def test_columns_are_read_from_the_metadata() -> None:
    columns = [column(length=3, start=9), column(INT64, length=5, start=12, others={20: (BINARY, varint(0))})]
    found = read_file(metadata(group(*columns, rows=7), group(rows=0)), size=1_000)
    assert found == [
        RowGroup(
            7,
            [
                ColumnChunk(start=9, length=3, has_texts=True, codec=ZSTD),
                ColumnChunk(start=12, length=5, has_texts=False, codec=ZSTD),
            ],
        ),
        RowGroup(0, []),
    ]


def test_a_column_that_is_encrypted_is_known_as_such() -> None:
    """It has no other metadata, or what is left of it."""
    hidden = (STRUCT, struct({2: (STRUCT, struct({}))}))
    with_metadata = struct({3: (STRUCT, struct({1: integer(BYTE_ARRAY)})), 8: hidden})
    (found,) = read_file(metadata(group(struct({8: hidden}), column(), with_metadata)), size=1_000)
    assert [each is None for each in found.columns] == [True, False, True]
    with pytest.raises(RefusedFile):
        read_file(metadata(), mark=b"PARE")


INCOMPLETE: Mapping[str, bytes] = {
    "no row groups": struct({}),
    "a number of row groups": struct({4: integer(1)}),
    "numbers as row groups": struct({4: (LIST, bytes([1 << 4 | I32]) + signed(1))})[:-1],
    "no columns": metadata(struct({3: (I64, signed(1))})),
    "no rows": metadata(struct({1: structs()})),
    "rows below nothing": metadata(group(rows=-1)),
    "no metadata of a column": metadata(group(struct({}))),
    "a number as metadata of a column": metadata(group(struct({3: integer(1)}))),
    "no place of a column": metadata(group(struct({3: (STRUCT, struct({1: integer(6), 4: integer(0)}))}))),
    "a length below nothing": metadata(group(column(length=-1))),
    "metadata that is cut off": metadata(group())[:-1],
}


@pytest.mark.parametrize("name", INCOMPLETE)
def test_metadata_that_lacks_something_is_damage(name: str) -> None:
    with pytest.raises(DamagedPage):
        read_file(INCOMPLETE[name], size=1_000)


def test_columns_are_in_places_of_their_own() -> None:
    """Otherwise a small file could have its pages read any number of times."""
    assert read_file(metadata(*[group(column(length=50), column(length=50))] * 10), size=1_000)
    with pytest.raises(DamagedPage):
        read_file(metadata(*[group(column(length=50), column(length=50))] * 9, group(column(length=101))), size=1_000)


@pytest.mark.parametrize("more", [1, 50])
@pytest.mark.parametrize("most", [100, pytest.param(100_000, marks=pytest.mark.long)])
def test_metadata_has_at_most_a_hundred_thousand_parts(monkeypatch: pytest.MonkeyPatch, most: int, more: int) -> None:
    monkeypatch.setattr(parquet_bounds, "_MAX_STRUCTS", most)
    assert read_file(metadata(others={2: structs(*[b"\0"] * (most - 1))})) == []
    with pytest.raises(RefusedFile):
        read_file(metadata(others={2: structs(*[b"\0"] * (most - 1 + more))}))


@pytest.mark.parametrize(("size", "rows"), [(1_000, 1 << 20), (61_000, 1 << 20), (1_000_000, 1_100 * 1_000_000 // 64)])
def test_a_byte_holds_so_many_rows(size: int, rows: int) -> None:
    assert read_file(metadata(group(rows=rows - 7), group(rows=7)), size=size)
    with pytest.raises(RefusedFile):
        read_file(metadata(group(rows=rows - 7), group(rows=8)), size=size)


@pytest.mark.parametrize(("size", "most"), [(1, 1 << 26), (1 << 25, 1_100 << 25)])
def test_what_is_decoded_of_a_file_has_a_limit(size: int, most: int) -> None:
    planner = BatchPlanner(io.BytesIO(), size, lambda _content, _size, _codec: b"")
    planner.count(most - 7)
    planner.count(7)
    with pytest.raises(RefusedFile):
        planner.count(1)


def test_pages_of_all_row_groups_together_expand_to_so_much() -> None:
    group = [[page(size=16 * MIB, encoding=ENCODED)]]

    assert plan_groups([group] * 4)
    for more in (page(size=1), page(values=1)):
        with pytest.raises(RefusedFile):
            plan_groups([*[group] * 4, [[more]]])


def test_values_that_take_no_bytes_are_work() -> None:
    """Millions of nulls are a run of a few bytes."""
    assert plan([page(values=1 << 19), page(values=1 << 19, encoding=ENCODED)], size=1)
    with pytest.raises(RefusedFile):
        plan([page(values=1 << 19), page(values=(1 << 19) + 1, encoding=ENCODED)], size=1)


def test_the_pages_of_a_large_file_may_expand_in_proportion_to_its_size() -> None:
    def write(size: int) -> Sequence[bytes]:
        return [*[page(size=64 * MIB, encoding=ENCODED)] * 4, page(size=size, content=bytes(250_000))]

    most = 1_100 * sum(map(len, write(6 * MIB))) - 256 * MIB

    assert plan(write(most), size=0)
    with pytest.raises(RefusedFile):
        plan(write(most + 1), size=0)


@pytest.mark.parametrize("name", ["size", "stored"])
def test_a_page_takes_at_most_sixty_four_mebibytes(name: str) -> None:
    sizes: dict[str, Any] = {name: 64 * MIB, "encoding": ENCODED}
    assert plan([page(**sizes)])
    sizes[name] += 1
    with pytest.raises(RefusedFile):
        plan([page(**sizes)])


def test_a_column_has_at_most_a_hundred_thousand_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_bounds, "_MAX_PAGES", 3)
    assert plan([page()] * 3)
    with pytest.raises(RefusedFile):
        plan([page()] * 4)


ROOM = 128 * MIB - 8_192 * 64
"""What 8,192 values leave, each of which takes 64 bytes besides its content."""


BATCHES = (8_192, 1_024, 128, 16, 1)


@pytest.mark.parametrize("rows", BATCHES[:-1])
def test_a_value_that_begins_like_the_one_before_is_as_long_as_its_page(rows: int) -> None:
    """It may repeat all that the page has stored of the values before it."""
    most = (128 * MIB - rows * 64) // (4 * rows + 2)

    assert plan([page(size=most, values=9_000, encoding=DELTA)]) == rows
    assert plan([page(size=most + 1, values=9_000, encoding=DELTA)]) == BATCHES[BATCHES.index(rows) + 1]


@pytest.mark.parametrize(
    ("write", "most", "has_texts"),
    [
        pytest.param(lambda size: [page(size=size, values=9_000)], ROOM // 2, "BYTE_ARRAY", id="in full"),
        pytest.param(
            lambda size: [page(DICTIONARY, size=size, values=1_000_001), page(size=9, values=9_000, encoding=ENCODED)],
            (ROOM - 16 * 1_000_001) // (8_192 + 2),
            True,
            id="in a dictionary that is not looked at",
        ),
        pytest.param(
            lambda size: [page(DICTIONARY, size=size, values=10), page(size=9, values=9_000, encoding=OLD_ENCODED)],
            (ROOM - 8_192 * 20 - 16 * 10) // 2,
            False,
            id="as numbers of a dictionary",
        ),
    ],
)
def test_how_values_are_stored_bounds_how_many_rows_are_decoded(
    write: Callable[[int], Sequence[bytes]], most: int, has_texts: bool
) -> None:
    assert plan(write(most), has_texts=has_texts) == 8_192
    assert plan(write(most + 1), has_texts=has_texts) == 1_024


def test_columns_share_the_room() -> None:
    half = 64 * MIB - 8_192 * 64
    columns = [[page(size=half, values=9_000, encoding=ENCODED)]] * 2

    assert plan(*columns) == 8_192
    assert plan(columns[0], [page(size=half + 1, values=9_000, encoding=ENCODED)]) == 1_024
    assert plan(*columns, [page()]) == 1_024


def test_one_row_that_needs_more_than_there_is_room_for_is_refused() -> None:
    most = (128 * MIB - 64) // 2
    with pytest.raises(RefusedFile):
        plan([page(size=64 * MIB)], [page(size=MIB)])
    assert most < 64 * MIB
    assert plan([page(size=most, values=1)]) == 1
    with pytest.raises(RefusedFile):
        plan([page(size=most + 1, values=1)])


def entries(*lengths: int) -> bytes:
    """Write a dictionary whose last value may be longer than what there is of it."""
    *whole, last = lengths
    return b"".join(length.to_bytes(4, "little") + bytes(length) for length in whole) + last.to_bytes(4, "little")


def dictionary(content: bytes, size: int) -> Sequence[bytes]:
    return [page(DICTIONARY, size=size, values=3, content=content), page(values=9_000, encoding=ENCODED)]


@pytest.mark.parametrize("lengths", [(0, 5, 16_000), (16_000, 5, 0), (5, 16_000, 7)])
def test_the_longest_value_of_a_dictionary_counts_for_each_row(lengths: tuple[int, ...]) -> None:
    length = max(lengths)
    size = (ROOM - 8_192 * length - 16 * 3) // 2
    assert plan(dictionary(entries(*lengths), size)) == 8_192
    assert plan(dictionary(entries(*lengths), size + 1)) == 1_024


def test_a_dictionary_of_a_million_values_is_looked_at() -> None:
    def write(values: int) -> Sequence[bytes]:
        return [page(DICTIONARY, size=4 * MIB, values=values, content=entries(0, 5, 7)), page(values=9_000)]

    assert plan(write(1_000_000)) == 8_192
    assert plan(write(1_000_001)) == 16


def test_a_value_of_a_dictionary_is_no_longer_than_its_page() -> None:
    assert plan(dictionary(entries(0, 5, 4_000_000), 100)) == 8_192
    assert plan(dictionary(entries(0, 5, 4 * MIB), 4 * MIB)) == 16
    assert plan(dictionary(entries(0, 5, 4 * MIB + 1), 4 * MIB)) == 16
    with pytest.raises(RefusedFile):
        plan(dictionary(entries(0, 5, 4 * MIB + 1), 4 * MIB + 1))


@pytest.mark.parametrize("codec", [ZSTD, LZO])
def test_a_dictionary_that_cannot_be_decompressed_counts_as_one_value(codec: int) -> None:
    assert plan(dictionary(entries(0, 5, 7), 4 * MIB), codec=codec) == 16
    assert plan(dictionary(entries(0, 5, 7), 3), codec=codec) == 8_192


@pytest.mark.parametrize(
    ("codec", "name"),
    [
        (BROTLI, "brotli"),
        (GZIP, "gzip"),
        (OLD_LZ4, "lz4_raw"),
        (LZ4, "lz4_raw"),
        (SNAPPY, "snappy"),
        (ZSTD, "zstd"),
    ],
)
def test_a_dictionary_is_decompressed_before_it_is_looked_at(codec: int, name: str) -> None:
    def decompress(content: bytes, size: int, used: str) -> bytes:
        assert (content, size, used) == (b"packed", 4 * MIB, name)
        return entries(0, 5, 7)

    assert plan(dictionary(b"packed", 4 * MIB), codec=codec, decompress=decompress) == 8_192


def run(level: int, count: int) -> bytes:
    return varint(count << 1) + bytes([level])


def bits(*levels: int) -> bytes:
    """Write eight levels for each byte."""
    packed = sum(level << place for place, level in enumerate(levels))
    return varint(len(levels) // 8 << 1 | 1) + packed.to_bytes(len(levels) // 8, "little")


def first(levels: bytes, values: int, *, size: int = 0) -> bytes:
    return page(values=values, size=size, content=len(levels).to_bytes(4, "little") + levels)


def second(levels: bytes, values: int) -> bytes:
    return page(DATA_V2, values=values, content=levels, levels=len(levels))


LISTS: Mapping[str, tuple[Sequence[tuple[bytes, int]], int]] = {
    "entries of their own": ([(run(0, 9), 9)], 1),
    "a run": ([(run(0, 1) + run(1, 9) + run(0, 3), 13)], 10),
    "a run that is cut off": ([(run(0, 1) + run(1, 4_000_000_000), 9)], 9),
    "a run without a level": ([(run(0, 1) + run(1, 7)[:-1], 8)], 1),
    "runs of which the head takes more than a byte": ([(run(0, 1) + run(1, 300) + run(1, 300), 601)], 601),
    "bits": ([(bits(0, 1, 1, 0, 1, 1, 1, 0), 8)], 4),
    "bits at the beginning": ([(run(0, 1) + bits(1, 1, 1, 1, 1, 0, 1, 1), 9)], 6),
    "bits alone": ([(run(0, 1) + bits(*[1] * 16), 17)], 17),
    "bits that go on in a run": ([(bits(0, 0, 0, 0, 0, 0, 1, 1) + run(1, 5), 13)], 8),
    "bits beyond the values": ([(bits(0, 1, 1, 1, 1, 1, 1, 1), 3)], 3),
    "no bits": ([(run(0, 1) + varint(1) + run(1, 2), 3)], 3),
    "fewer levels than values": ([(run(0, 1), 9)], 9),
    "bits that are cut off": ([(varint(2 << 1 | 1) + b"\xfe", 16)], 16),
    "a list over two pages": ([(run(0, 1) + run(1, 4), 5), (run(1, 6) + run(0, 1), 7)], 11),
    "an empty run": ([(run(0, 1) + run(1, 0) + run(0, 2), 3)], 3),
    "more bits than are unpacked at a time": (
        [(run(0, 1) + varint(65_537 << 1 | 1) + b"\0" * 65_535 + b"\x80" + b"\x7f", 8 * 65_537 + 1)],
        9,
    ),
    "a page without values": ([(run(0, 1) + run(1, 4), 5), (b"", 0), (run(0, 1), 1)], 5),
}


@pytest.mark.parametrize("write", [first, second])
@pytest.mark.parametrize("name", LISTS)
def test_the_longest_list_bounds_how_many_rows_are_decoded(name: str, write: Any) -> None:
    pages, longest = LISTS[name]
    rows = 1_024 if longest > 1 else 8_192
    size = (128 * MIB - rows * longest * 64) // 2
    written = [write(levels, values) for levels, values in pages]
    assert plan([*written, page(size=size, values=0)], lists=True) == rows
    assert plan([*written, page(size=size + 1, values=0)], lists=True) < rows


@pytest.mark.parametrize("write", [first, second])
def test_a_list_has_at_most_five_thousand_entries(write: Any) -> None:
    assert plan([write(run(0, 1) + run(1, 4_999), 5_000)], lists=True)
    with pytest.raises(RefusedFile):
        plan([write(run(0, 1) + run(1, 5_000), 5_001)], lists=True)
    with pytest.raises(RefusedFile):
        plan([write(run(0, 1) + run(1, 2_500), 2_501), write(run(1, 2_500), 2_500)], lists=True)


def test_the_levels_of_a_page_that_cannot_be_decompressed_count_as_one_list() -> None:
    assert plan([first(run(0, 5_000), 5_000)], lists=True, codec=ZSTD)
    with pytest.raises(RefusedFile):
        plan([first(run(0, 5_001), 5_001)], lists=True, codec=ZSTD)


@pytest.mark.parametrize(("at", "start"), [(4, 4), (0, 40), (40, 40), (50, 40), (-4, 40), (None, 40)])
def test_a_column_begins_with_its_dictionary(at: int | None, start: int) -> None:
    others = {} if at is None else {11: (I64, signed(at))}
    (found,) = read_file(metadata(group(column(start=40, others=others))))
    assert [each and each.start for each in found.columns] == [start]


def find_windows(pages: Sequence[tuple[int, int]], count: int) -> Iterator[int]:
    """Yield the bytes of all consecutive pages of which each may hold one of so many consecutive values."""
    for begin, end in combinations(range(len(pages) + 1), 2):
        between = sum(values for values, _ in pages[begin + 1 : end - 1])
        if end == begin + 1 or between + 2 <= count:
            yield sum(size for _, size in pages[begin:end])


@settings(max_examples=10)
@given(st.lists(st.tuples(st.integers(1, 2_000), st.integers(0, 9 * MIB)), min_size=1, max_size=20))
def test_rows_that_are_decoded_at_once_lie_in_pages_of_so_many_bytes(pages: list[tuple[int, int]]) -> None:
    largest = max(size for _, size in pages)

    rows = plan([page(values=values, size=size) for values, size in pages])

    for more in BATCHES:
        fits = largest + more * 64 + max(find_windows(pages, more)) <= 128 * MIB
        assert fits is (more <= rows)


def test_pages_are_read_one_after_another() -> None:
    pages = [
        page(DICTIONARY, size=9, values=3, content=b"abc"),
        page(INDEX, content=b"to be skipped"),
        page(DATA, size=8, values=2, encoding=ENCODED, content=b"x"),
        page(DATA_V2, size=7, values=4, encoding=PLAIN, content=b"yz", levels=1),
    ]
    content = b"PAR1" + b"".join(pages) + b"more"

    found = list(read_pages(io.BytesIO(content), 4, len(content) - 8))

    assert [content[each.start : each.start + each.stored] for each in found] == [b"abc", b"x", b"yz"]
    assert [(each.size, each.values, each.encoding) for each in found] == [(9, 3, 0), (8, 2, 8), (7, 4, 0)]
    assert [each.is_dictionary for each in found] == [True, False, False]
    assert [each.repetition_size for each in found] == [None, None, 1]


ODD_FIELDS: Mapping[str, Fields] = {
    "booleans": {20: (TRUE, b""), 21: (FALSE, b"")},
    "a byte": {20: (BYTE, b"\0")},
    "a number": {20: (I16, signed(-7)), 21: (I64, signed(-(1 << 60)))},
    "a fraction": {20: (DOUBLE, b"\0" * 8)},
    "text": {20: (BINARY, varint(4) + b"\0\0\0\0")},
    "a struct": {20: (STRUCT, struct({1: (STRUCT, struct({}))}))},
    "a list of booleans": {
        20: (LIST, bytes([3 << 4 | TRUE]) + b"\1\2\1"),
        21: (LIST, bytes([2 << 4 | FALSE]) + b"\0\0"),
    },
    "a set of texts": {20: (SET, bytes([2 << 4 | BINARY]) + (varint(1) + b"\0") * 2)},
    "a list of numbers": {20: (LIST, bytes([15 << 4 | I32]) + varint(20) + signed(300) * 20)},
    "a list of lists": {20: (LIST, bytes([1 << 4 | LIST]) + bytes([14 << 4 | BYTE]) + b"\0" * 14)},
    "a long text": {20: (BINARY, varint(1_000_000) + bytes(1_000_000))},
}


@pytest.mark.parametrize("name", ODD_FIELDS)
def test_fields_of_a_header_that_are_not_needed_are_skipped(name: str) -> None:
    content = page(size=7, others=ODD_FIELDS[name]) + page(size=8)

    assert [each.size for each in list_pages(content)] == [7, 8]


def test_short_numbers_of_fields_count_from_the_one_before() -> None:
    fields = bytes([1 << 4 | I32]) + signed(0) + bytes([1 << 4 | I32]) + signed(7) + bytes([1 << 4 | I32]) + signed(0)
    details = bytes([1 << 4 | I32]) + signed(5) + bytes([1 << 4 | I32]) + signed(8) + b"\0"

    (found,) = list_pages(fields + bytes([2 << 4 | STRUCT]) + details + b"\0")

    assert (found.size, found.values, found.encoding) == (7, 5, 8)


def nest(depth: int, kind: int = STRUCT) -> bytes:
    """Return a value that contains another one of its kind, and so on."""
    if kind == LIST:
        return (bytes([1 << 4 | LIST]) * (depth - 1)) + bytes([BYTE])
    return struct({1: (STRUCT, nest(depth - 1))} if depth > 1 else {})


@pytest.mark.parametrize("kind", [STRUCT, LIST])
def test_a_header_is_at_most_so_deep(kind: int) -> None:
    assert list_pages(page(others={20: (kind, nest(17, kind))}))
    with pytest.raises(DamagedPage):
        list_pages(page(others={20: (kind, nest(18, kind))}))


DAMAGED: Mapping[str, bytes] = {
    "nothing that is known": page(others={20: (13, b"")}),
    "a map": page(others={20: (MAP, b"\0")}),
    "an unknown kind of page": page(4),
    "no kind": struct({2: integer(0), 3: integer(0), 5: (STRUCT, struct({1: integer(0), 2: integer(0)}))}),
    "details of another kind": struct({1: integer(DICTIONARY), 2: integer(0), 3: integer(0), 5: (STRUCT, struct({}))}),
    "a number instead of details": struct({1: integer(DATA), 2: integer(0), 3: integer(0), 5: integer(0)}),
    "a size below nothing": page(size=-1),
    "a stored size below nothing": page(stored=-1),
    "an index that goes back": page(INDEX, stored=-1),
    "fewer values than none": page(values=-1),
    "no size": struct({1: integer(DATA), 3: integer(0), 5: (STRUCT, struct({1: integer(0), 2: integer(0)}))}),
    "a Boolean as a size": page(others={2: (TRUE, b"")}),
    "a number that does not end": page(others={20: (I64, b"\xff" * 10 + b"\0")}),
    "a header that does not end": page()[:-1],
    "text longer than its header": page(others={20: (BINARY, varint(1 << 40))}),
    "a header of more than a mebibyte": page(others={20: (BINARY, varint(MIB) + bytes(MIB))}),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_header_that_cannot_be_read_is_damage(name: str) -> None:
    with pytest.raises(DamagedPage):
        list_pages(DAMAGED[name])


def test_a_header_ends_before_the_next_column() -> None:
    content = page()
    with pytest.raises(DamagedPage):
        list(read_pages(io.BytesIO(content), 0, len(content) - 1))
    assert list(read_pages(io.BytesIO(content), 0, 0)) == []
