"""Sources of rows in tests."""

import tracemalloc
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from svc_async.sources.source import Source
from svc_async.users.encoding import Rows

Write = Callable[..., Path]


def rows_of(source: Source | Rows) -> list[tuple[Any, ...]]:
    rows = source.rows if isinstance(source, Rows) else source.rows().rows
    assert isinstance(rows, Iterable)
    return [tuple(row) for row in rows]


def count_of(rows: object) -> int:
    assert isinstance(rows, Iterable)
    return sum(map(bool, rows))


@contextmanager
def at_most(megabytes: float) -> Generator[None]:
    """Hold what is done to so much memory at its peak."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < megabytes * 2**20
