"""Divides packed users among shards by their keys, with numpy: what each row costs is paid by every job."""

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from svc_async.batch.packing.positions import PositionRun, Positions
from svc_async.users.packed import HashedUsers, PackedUsers

__all__ = ["MAX_SHARDS", "divide_keys", "divide_users"]

MAX_SHARDS = 10_000
_LANE_BITS = 32
"""Bits of a key that do not decide its shard, since the first of them decide its lane."""
_SHORT = 1 << 16
"""Rows within which two bytes are enough for a distance; four are enough within a fragment."""


def divide_keys(keys: Sequence[int], shards: int) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield each shard that keys belong to, and the indexes of these."""
    order, ends = _sort(np.array(keys, dtype=np.uint64), shards)
    for shard, start, end in _list_ranges(ends):
        yield shard, order[start:end].tolist()


def divide_users(users: PackedUsers, rows: Positions, shards: int) -> Iterator[tuple[int, PackedUsers, Positions]]:
    """Yield each shard that users belong to, these users and their rows, in the order in which they were."""
    if not len(users):
        return
    if shards == 1:
        yield 0, users, rows
        return
    size = users.record_size if isinstance(users, HashedUsers) else 0
    if isinstance(users, HashedUsers) and size:
        order, ends = _sort(np.frombuffer(users.digests, dtype=np.uint64)[:: size // 8], shards)
        digests = np.frombuffer(users.digests, dtype=np.uint8).reshape(-1, size)[order]
        present = np.frombuffer(users.present, dtype=np.uint8)[order] if users.present else order[:0]
        parts: Iterator[PackedUsers] = (
            HashedUsers(digests[start:end].tobytes(), present[start:end].tobytes())
            for _, start, end in _list_ranges(ends)
        )
    else:
        order, ends = _sort(np.array(users.list_keys(), dtype=np.uint64), shards)
        parts = users.distribute([order[start:end].tolist() for _, start, end in _list_ranges(ends)])
    places = _list_rows(rows)[order]
    for (shard, start, end), part in zip(_list_ranges(ends), parts, strict=True):
        yield shard, part, _pack_rows(places[start:end])


def _sort(keys: Any, shards: int) -> tuple[Any, Sequence[int]]:
    """Return the indexes of keys by shard, those of one in their order, and where those of each shard end."""
    numbers = ((keys >> np.uint64(_LANE_BITS)) % np.uint64(shards)).astype(np.uint16)
    ends: list[int] = np.cumsum(np.bincount(numbers, minlength=shards)).tolist()
    return np.argsort(numbers, kind="stable"), ends


def _list_ranges(ends: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield the shards that have rows, with where these begin and end."""
    start = 0
    for shard, end in enumerate(ends):
        if end > start:
            yield shard, start, end
        start = end


def _list_rows(rows: Positions) -> Any:
    return np.concatenate(
        [
            np.arange(run.lowest, run.highest + 1)
            if isinstance(run.offsets, range)
            else np.asarray(run.offsets, dtype=np.int64) + run.start
            for run in rows.expand_runs()
        ]
    )


def _pack_rows(places: Any) -> Positions:
    """Pack rows in ascending order."""
    lowest, highest = int(places[0]), int(places[-1])
    typecode, kind = ("H", np.uint16) if highest - lowest < _SHORT else ("I", np.uint32)
    offsets = array(typecode, (places - lowest).astype(kind).tobytes())
    return Positions([PositionRun(lowest, offsets, lowest, highest)])
