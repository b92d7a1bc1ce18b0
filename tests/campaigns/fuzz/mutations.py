"""Make an input out of another one: what random bytes seldom hit, such as what a few bytes stand for in millions."""

import gzip
import io
import re
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
from pyarrow import parquet

__all__ = ["mutate"]

_GZIP = b"\x1f\x8b"
_MAX_EXPANDED = 2**23
_find_places = re.compile(rb"(?<=[,\n<>{}\[\]:;&?=])").finditer
"""Finds where a part of a text may begin or end."""


def mutate(content: bytes, random: Random, most: int, change_bytes: Callable[[bytes], bytes]) -> bytes:
    """Return another input.

    Args:
        content: an input.
        random: decides.
        most: bytes that it may have.
        change_bytes: changes a few of its bytes.
    """
    kind = random.random()
    if content.startswith(b"PAR1") and kind < 0.3:
        made = _write_parquet(random)
    elif content.startswith(_GZIP) and kind < 0.6:
        made = gzip.compress(_repeat(_unpack(content), random, _MAX_EXPANDED), 6, mtime=0)
    elif kind < 0.2:
        made = gzip.compress(_repeat(content, random, _MAX_EXPANDED), 6, mtime=0)
    elif kind < 0.6:
        made = _repeat(content, random, most)
    else:
        made = change_bytes(content)
    return made if len(made) <= most else content[:most]


def _unpack(content: bytes) -> bytes:
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(content, _MAX_EXPANDED)
    except zlib.error:
        return b""


def _repeat(content: bytes, random: Random, most: int) -> bytes:
    """Repeat a part of a text until the whole has some size."""
    places = [0, *(found.end() for found in _find_places(content[:4_096])), len(content)]
    first = random.randrange(len(places))
    start, end = places[first], places[min(first + random.randint(1, 4), len(places) - 1)]
    room = max(0, most - len(content))
    count: int = min(2 ** random.randint(0, 22), room // max(1, end - start))
    return content[:end] + content[start:end] * count + content[end:]


def _write_parquet(random: Random) -> bytes:
    """Write a file that is small, and may stand for much."""
    length, rows = 2 ** random.randint(0, 22), 2 ** random.randint(0, 22)
    encoding = random.choice([None, "PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
    settings: dict[str, Any] = {
        "compression": random.choice(["zstd", "gzip", "snappy", "none"]),
        "data_page_version": random.choice(["1.0", "2.0"]),
        "data_page_size": 2 ** random.randint(6, 24),
        "row_group_size": 2 ** random.randint(0, 24) if rows < 2_000 else None,
        "use_dictionary": encoding is None,
    }
    if encoding is not None:
        settings["column_encoding"] = {"email": encoding}
        rows = min(rows, max(1, 2**26 // length))
        values = pa.array([f"{'x' * length}{number}" for number in range(rows)])
    else:
        repeated = pa.DictionaryArray.from_arrays(pa.array(bytes(rows), pa.int8()), ["x" * length])
        values = random.choice([repeated, pa.nulls(rows, pa.string())])
    if random.random() < 0.3:
        width = min(rows, 2 ** random.randint(0, 22))
        values = pa.ListArray.from_arrays(pa.array(range(0, rows + 1, width), pa.int32()), values)
    buffer = io.BytesIO()
    parquet.write_table(pa.table({"email": values}), buffer, **settings)
    return buffer.getvalue()
