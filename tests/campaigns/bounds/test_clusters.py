"""A source is planned and encoded in bounded memory and in time in proportion to its size, whatever its files hold."""

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa
import pyarrow.parquet as pq

from svc_async.cluster.encode import encode_fragment
from svc_async.cluster.parts import RefusedRows, read_parts
from svc_async.cluster.planning import plan_source
from svc_async.errors import UnusableFile
from tests.support.bounded_process import MIB, check_linear, measure_peaks
from tests.support.plans import describe


def encode(path: str, fragment_size: int = 16 * MIB) -> list[object]:
    """Plan a file and encode its fragments one by one; return how many rows it has, and what is wrong with it."""
    try:
        plan = plan_source(describe(path, mapping={"*": "-", "email": "email"}), fragment_size=fragment_size)
    except UnusableFile as error:
        return [0, error.problem]
    rows, problem = 0, ""
    for fragment in plan.fragments:
        pieces = encode_fragment(fragment, job=plan.job, shards=16)
        for part in (part for piece in pieces if piece for part in read_parts(piece, {})[1]):
            rows += len(part.rows)
            if isinstance(part, RefusedRows):
                problem = max(problem, *(rule.partition(": the file ")[2] for rule, _ in part.reasons), "")
    return [rows, problem]


def write(path: Path, parts: Iterator[bytes]) -> str:
    with gzip.open(path, "wb", 1) as file:
        file.writelines(parts)
    return str(path)


def repeat(head: bytes, part: bytes, count: int) -> Iterator[bytes]:
    yield head
    yield from (part for _ in range(count))


BOMBS: dict[str, tuple[Callable[[], Iterator[bytes]], list[object]]] = {
    "a row without an end": (
        lambda: repeat(b"email\n", (b'"' + b"a" * 100 + b'\n",') * 10_000, 20),
        [0, "has a row longer than 4 MiB on line 2; is a quote not closed?"],
    ),
    "a line without an end": (
        lambda: repeat(b"email\n", b"x" * MIB, 40),
        [0, "has a line longer than 4 MiB; is this really CSV or JSON lines?"],
    ),
    "short rows": (lambda: repeat(b"email\n", b"1\n" * 1_000_000, 1), [1_000_000, ""]),
    "blank lines": (lambda: repeat(b"email\n", b"\n" * 1_000_000, 1), [0, ""]),
    "long lists": (lambda: repeat(b"", b'{"email": [' + b"[]," * MIB + b"[]]}\n", 2), [2, ""]),
    "many identifiers": (
        lambda: repeat(b"", b'{"email": [' + b",".join([b'"a@b.de"'] * 5_000) + b"]}\n", 100),
        [100, ""],
    ),
}


def test_text_is_planned_and_encoded_in_bounded_memory(tmp_path: Path) -> None:
    paths = {name: [write(tmp_path / name, create())] for name, (create, _) in BOMBS.items()}
    peaks = measure_peaks(encode, paths)
    assert {name: peak.value for name, peak in peaks.items()} == {name: value for name, (_, value) in BOMBS.items()}
    assert {name: peak.bytes for name, peak in peaks.items() if peak.bytes > 256 * MIB} == {}


def test_compressed_file_has_few_fragments(tmp_path: Path) -> None:
    path = write(tmp_path / "users.gz", repeat(b"email\n", b"x" * (MIB - 1) + b"\n", 260))
    (peak,) = measure_peaks(encode, {"": [path, 1]}).values()
    rule = "is compressed and has more than 256 fragments"
    assert peak.value == [0, f"{rule}; write several files, Parquet, or text that is not compressed"]
    assert peak.bytes < 64 * MIB


def test_row_group_that_becomes_too_large_fails_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "customers.parquet"
    emails = pa.array([[f"user{number}@example.com" for number in range(1_000)]] * 5_000)
    pq.write_table(pa.table({"email": emails}), path)
    (peak,) = measure_peaks(encode, {"": [str(path)]}).values()
    assert peak.value == [1, "has more than 256 MiB of users in one fragment; write smaller row groups"]
    assert peak.bytes < 640 * MIB


def plan_quotes(size: int) -> Callable[[], object]:
    path = Path(mkdtemp()) / "users.csv"
    path.write_bytes(b"email,name\n" + b'"a@example.org",5" 6\n"b@example.org","x\n""y"""\n' * size)
    return lambda: encode(str(path))


def plan_long_rows(size: int) -> Callable[[], object]:
    path = Path(mkdtemp()) / "users.csv"
    path.write_bytes(b"email,name\n" + (b'a@example.org,"' + b'""\n' * 1_000 + b'"\n') * (size // 256))
    return lambda: encode(str(path))


def test_text_is_planned_in_time_in_proportion_to_its_size() -> None:
    check_linear(plan_quotes, plan_long_rows, size=1_000)
