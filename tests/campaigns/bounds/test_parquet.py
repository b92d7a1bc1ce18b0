"""A Parquet file takes no more memory and time than its bytes are worth, whatever its pages stand for."""

import random
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from svc_async.errors import UnusableFile
from svc_async.sources.parquet import ParquetSource
from tests.support.bounded_process import MIB, check_linear, measure_peak, measure_peaks
from tests.support.files import count_rows


async def read(path: str) -> list[object]:
    """Read a file to its end; return the number of its rows, or what is wrong with it."""
    rows = 0
    try:
        source = ParquetSource(path)
        await source.check()
        rows = count_rows(source.rows().rows)
    except UnusableFile as error:
        return [rows, error.problem]
    return [rows, ""]


def repeat(value: str, count: int) -> Any:
    """Return an array of equal values that takes a byte for each."""
    return pa.DictionaryArray.from_arrays(pa.array(bytes(count), pa.int8()), [value])


def list_once(values: Any, *, count: int = 1) -> Any:
    """Return an array of lists, of which the first holds all values."""
    return pa.ListArray.from_arrays(pa.array([0, *([len(values)] * count)], pa.int32()), values)


def write(path: Path, emails: Any, **settings: Any) -> str:
    parquet.write_table(pa.table({"email": emails}), path, **{"compression": "zstd", **settings})
    return str(path)


LONG = "x" * 8 * MIB
EXPANDS = "expands more than 1,100 times when it is decoded"
BOMBS: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "one list of millions": (lambda: list_once(repeat("a", 1_000_000)), {}, "has a list of more than 5,000 entries"),
    "the same in pages of version 2": (
        lambda: list_once(pa.nulls(1_000_000, pa.string())),
        {"data_page_version": "2.0"},
        "has a list of more than 5,000 entries",
    ),
    "a list over several pages": (
        lambda: list_once(repeat("a@example.org", 6_000), count=3),
        {"data_page_size": 64, "write_batch_size": 16, "use_dictionary": False},
        "has a list of more than 5,000 entries",
    ),
    "one long value, repeated": (lambda: repeat(LONG, 8_192), {}, "has a value longer than 4 MiB"),
    "one long value": (
        lambda: pa.array([LONG]),
        {"use_dictionary": False},
        "has a value longer than 4 MiB in column 'email'",
    ),
    "a page of long values": (
        lambda: pa.array([LONG] * 10),
        {"use_dictionary": False, "data_page_size": 1024 * MIB},
        "has a page of more than 64 MiB; write smaller pages",
    ),
    "a long value in each of a million rows": (lambda: repeat("x" * 3 * MIB, 1_000_000), {}, EXPANDS),
    "the same in lists": (
        lambda: pa.ListArray.from_arrays(pa.array(range(100_001), pa.int32()), repeat("x" * 3 * MIB, 100_000)),
        {},
        EXPANDS,
    ),
    "values that begin alike": (
        lambda: pa.array([f"{'x' * 60_000}{number}" for number in range(10_000)]),
        {"use_dictionary": False, "column_encoding": {"email": "DELTA_BYTE_ARRAY"}},
        EXPANDS,
    ),
    "millions of nulls": (lambda: pa.nulls(5_000_000, pa.string()), {}, "has more than 17 rows for each of its bytes"),
}


def test_hostile_files_are_refused_before_they_take_memory(tmp_path: Path) -> None:
    paths = {name: [write(tmp_path / name, create(), **settings)] for name, (create, settings, _) in BOMBS.items()}
    assert max(file.stat().st_size for file in tmp_path.iterdir()) < 100_000
    peaks = measure_peaks(read, paths)
    assert {name: peak.value[1] for name, peak in peaks.items()} == {name: BOMBS[name][2] for name in BOMBS}
    assert {name: peak.bytes for name, peak in peaks.items() if peak.bytes > 192 * MIB} == {}
    assert {name: peak.seconds for name, peak in peaks.items() if peak.seconds > 5} == {}


async def test_a_file_has_no_more_rows_and_values_than_its_size_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "repeated", repeat("a@example.org", 100_000))
    assert await read(path) == [100_000, ""]
    monkeypatch.setattr("svc_async.sources.blocks.files._ALWAYS_ALLOWED", 7_000_000)
    for module in ("files", "parquet_bounds"):
        monkeypatch.setattr(f"svc_async.sources.blocks.{module}.MAX_RATIO", 100)
    _, problem = await read(path)
    assert problem == "expands more than 100 times when it is decoded"
    monkeypatch.setattr("svc_async.sources.blocks.files._ALWAYS_ALLOWED", 1)
    assert await read(path) == [0, "has more than 1 rows for each of its bytes"]


def patch_counts(content: bytes) -> bytes:
    """Return a file whose metadata is wrong about its only row and column: both have one value."""
    return content.replace(b"\x16\x80\x89\x7a", b"\x16\x82\x80\x00")


async def test_metadata_that_is_wrong_changes_nothing(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "bomb", list_once(repeat("a", 1_000_000)), write_statistics=False))
    content = path.read_bytes()
    path.write_bytes(patch_counts(content))
    assert path.read_bytes() != content
    assert parquet.read_metadata(path).row_group(0).column(0).num_values == 1
    assert await read(str(path)) == [0, "has a list of more than 5,000 entries"]


@pytest.mark.parametrize(
    ("size", "problem"),
    [
        (20_000, "is damaged or truncated: it cannot be read as Parquet"),
        (200_000, "has metadata of more than 100,000 parts; use larger row groups"),
    ],
)
def test_metadata_has_a_limit_before_it_is_parsed(tmp_path: Path, size: int, problem: str) -> None:
    path = tmp_path / "metadata"
    metadata = b"\x15\x02\x19\xfc" + b"\xff\xff\x7f" + b"\x48\x00\x00" * size
    path.write_bytes(b"PAR1" + metadata + len(metadata).to_bytes(4, "little") + b"PAR1")
    peak = measure_peak(read, str(path))
    assert peak.value == [0, problem]
    assert peak.bytes < 64 * MIB


READABLE: dict[str, tuple[Callable[[], Any], dict[str, Any], int]] = {
    "long values": (lambda: repeat(random.Random(7).randbytes(MIB // 2).hex(), 400), {}, 400),
    "long values that begin alike": (
        lambda: pa.array([f"{random.Random(7).randbytes(MIB // 8).hex()}{number}" for number in range(200)]),
        {"use_dictionary": False, "column_encoding": {"email": "DELTA_BYTE_ARRAY"}},
        200,
    ),
    "long lists": (lambda: pa.array([["a@example.org"] * 5_000] * 100), {}, 100),
}


@pytest.mark.parametrize("name", READABLE)
def test_large_values_are_read_a_few_rows_at_a_time(name: str, tmp_path: Path) -> None:
    create, settings, rows = READABLE[name]
    peak = measure_peak(read, write(tmp_path / "users", create(), **settings))
    assert peak.value == [rows, ""]
    assert peak.bytes < 192 * MIB


def read_rows(size: int) -> Callable[[], object]:
    path = write(Path(mkdtemp()) / "users", pa.array([f"u{number}@example.org" for number in range(size)]))
    return lambda: read(path)


def read_row_groups(size: int) -> Callable[[], object]:
    path = write(Path(mkdtemp()) / "users", pa.array(["a@example.org"] * size), row_group_size=1)
    return lambda: read(path)


def read_pages(size: int) -> Callable[[], object]:
    emails = pa.array([[f"u{number}@example.org"] for number in range(size)])
    settings = {"data_page_size": 1, "write_batch_size": 1, "use_dictionary": False}
    return lambda: read(write(Path(mkdtemp()) / "users", emails, **settings))


def test_a_file_is_read_in_time_in_proportion_to_its_size() -> None:
    check_linear(read_rows, read_row_groups, read_pages)
