"""Helpers for tests that read files."""

import bz2
import gzip
import lzma
import tracemalloc
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from svc_async.sources.file_source import TableSource
from svc_async.users.tables import Rows

Write = Callable[..., Path]
COMPRESSIONS: Mapping[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda content: pa.compress(content, "zstd", asbytes=True),
}
"""How content is compressed, by the usual suffix of a name."""


def iter_rows(source: TableSource | Rows) -> Iterator[Sequence[Any]]:
    rows = source.rows if isinstance(source, Rows) else source.rows().rows
    assert isinstance(rows, Iterable)
    return iter(rows)


def read_rows(source: TableSource | Rows) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in iter_rows(source)]


def count_rows(rows: object) -> int:
    assert isinstance(rows, Iterable)
    return sum(map(bool, rows))


@contextmanager
def limit_memory(megabytes: float) -> Generator[None]:
    """Check that the block uses at most this much memory at its peak."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < megabytes * 2**20
