"""CSV and JSON lines are read in bounded memory, also as an uploader reads them: in slices of rows."""

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp

from svc_async.batch.slicing import slice_rows
from svc_async.errors import UnusableFile
from svc_async.sources.detect import open_feed, open_source
from svc_async.users.encoding import MemberEncoder
from tests.support.bounded_process import MIB, check_linear, measure_peaks


async def encode(path: str) -> list[object]:
    """Read and encode a file as a job does; return the number of its rows, or what is wrong with it."""
    rows = 0
    try:
        source = open_source(path, mapping={"*": "-", "email": "email"})
        await source.check()
        encoder = MemberEncoder().for_rows(source.columns)
        async for part in slice_rows(source.rows().rows):
            rows += len(part)
            encoder.encode(part)
    except UnusableFile as error:
        return [rows, error.problem]
    return [rows, ""]


def write(path: Path, parts: Iterator[bytes]) -> str:
    with gzip.open(path, "wb", 1) as file:
        file.writelines(parts)
    return str(path)


def repeat(head: bytes, part: bytes, count: int) -> Iterator[bytes]:
    yield head
    yield from (part for _ in range(count))


CELLS = b"," * 2 * MIB + b"\n"
EXPANDS = "expands more than 1,100 times when it is decompressed"
BOMBS: dict[str, tuple[Callable[[], Iterator[bytes]], list[object]]] = {
    "rows of many cells": (lambda: repeat(b"email,name\n", CELLS, 3), [3, ""]),
    "more of them": (lambda: repeat(b"email,name\n", CELLS, 8), [0, EXPANDS]),
    "a row without an end": (
        lambda: repeat(b"email\n", b'"aaaaaaaaaaaaaaaa\n",', 330_000),
        [0, "has a row longer than 4 MiB on line 2; is a quote not closed?"],
    ),
    "a header without an end": (
        lambda: repeat(b"", b'"aaaaaaaaaaaaaaaa\n",', 330_000),
        [0, "has a row longer than 4 MiB on line 1; is a quote not closed?"],
    ),
    "a header of many columns": (lambda: repeat(b"email", b",email", 100_000), [0, ""]),
    "a row of many columns": (
        lambda: repeat(b"email" + b",email" * 9_999 + b"\n", b"a@b.de," * 9_999 + b"\n", 20),
        [20, ""],
    ),
    "long cells": (lambda: repeat(b"email,name\n", b",".join([b"x" * 130_000] * 10) + b"\n", 180), [180, ""]),
    "long lines": (lambda: repeat(b"", b'{"email": "' + b"x" * 3 * MIB + b'"}\n', 30), [30, ""]),
    "long lists": (lambda: repeat(b"", b'{"email": [' + b"[]," * MIB + b"[]]}\n", 2), [2, ""]),
    "a line without an end": (
        lambda: repeat(b"", b"x" * MIB, 20),
        [0, "has a line longer than 4 MiB; is this really CSV or JSON lines?"],
    ),
    "blank lines": (lambda: repeat(b"email\n", b"\na@example.org\n" * 10_000, 10), [100_000, ""]),
}


def test_hostile_tables_are_read_in_bounded_memory(tmp_path: Path) -> None:
    paths = {name: [write(tmp_path / name, create())] for name, (create, _) in BOMBS.items()}
    peaks = measure_peaks(encode, paths)
    assert {name: peak.value for name, peak in peaks.items()} == {name: value for name, (_, value) in BOMBS.items()}
    assert {name: peak.bytes for name, peak in peaks.items() if peak.bytes > 192 * MIB} == {}


def test_a_row_of_any_shape_is_read_at_its_line(tmp_path: Path) -> None:
    long_row = ['"a\n\r\n"' + "," * 70_000, "b", "", "c," + "," * 70_000]
    path = tmp_path / "table.csv"
    path.write_text("email,name\n" + "\n".join(long_row * 20) + "\n", newline="")
    source = open_source(path, mapping={"name": "-"})
    rows = [row[0] if row else None for row in source.rows().rows]  # type: ignore[union-attr]  # no asynchronous rows
    assert rows == [None, "b", None] * 20
    lines = [source.find_line(position) for position in range(60)]
    assert lines == [2 + 6 * number + offset for number in range(20) for offset in (0, 3, 5)]


def read_rows(size: int) -> Callable[[], object]:
    path = write(Path(mkdtemp()) / "users", repeat(b"email,name\n", b"a@example.org,x\n", size))
    return lambda: encode(path)


def read_lines_of_cells(size: int) -> Callable[[], object]:
    path = write(Path(mkdtemp()) / "users", repeat(b'email,name\na,"\n', b'"\n",' + b"," * 2_000 + b'"\n', size // 64))
    return lambda: encode(path)


def read_objects(size: int) -> Callable[[], object]:
    path = write(Path(mkdtemp()) / "users", repeat(b"", b'{"email": ["a@example.org"], "x": {"y": [1, 2]}}\n', size))
    return lambda: encode(path)


def read_columns(size: int) -> Callable[[], object]:
    names = b",".join(b"c%d" % number for number in range(size))
    path = write(Path(mkdtemp()) / "users", iter([b"email,", names, b"\n"]))
    return lambda: encode(path)


def read_products(size: int) -> Callable[[], object]:
    path = write(Path(mkdtemp()) / "feed", repeat(b"id,title,price\n", b"1,Boots,9.90 EUR\n", size))
    return lambda: sum(1 for _ in open_feed(path).products())


def test_a_table_is_read_in_time_in_proportion_to_its_size() -> None:
    check_linear(read_rows, read_lines_of_cells, read_objects, read_columns, read_products, size=1_000)
