"""Distributes rows over packers by key, so that rows of one key keep their order."""

import itertools
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import lru_cache

import attrs

from svc_async.batch.packing.batch import Batch
from svc_async.batch.packing.packer import Packer
from svc_async.batch.packing.rows import PackedRows
from svc_async.users.packed import PackedUsers

__all__ = ["Partitioner", "find_partitions"]

_BYTE_VALUES = 256


@attrs.define
class Partitioner:
    """Collects rows, and feeds each to the packer that its key selects.

    Attributes:
        packers: one for each partition.
        flush_at: rows to collect before a flush, since each packer costs a fixed effort.
        rows: the number of rows collected and not yet fed to a packer.
    """

    packers: Sequence[Packer]
    flush_at: int
    rows: int = attrs.field(default=0, init=False)
    _collected: list[PackedRows] = attrs.field(factory=list, init=False)

    def add(self, rows: PackedRows) -> bool:
        """Collect rows; return whether it is time to flush."""
        self._collected.append(rows)
        self.rows += len(rows)
        return self.rows >= self.flush_at

    def flush(self, now: datetime) -> Iterator[tuple[int, list[Batch]]]:
        """Feed the rows to the packers; yield the index of each packer and the batches that its rows complete."""
        collected, self._collected = self._collected, []
        for _, alike in itertools.groupby(collected, key=lambda rows: (rows.group, rows.template)):
            for index, packed in self._partition(PackedRows.merge(list(alike))):
                self.rows -= len(packed)
                yield index, self.packers[index].feed(packed, now)

    def _partition(self, rows: PackedRows) -> Iterator[tuple[int, PackedRows]]:
        if len(self.packers) == 1:
            return iter([(0, rows)] if len(rows) else [])
        return rows.partition(find_partitions(rows.users, len(self.packers)), len(self.packers))


def find_partitions(users: PackedUsers, count: int) -> Sequence[int]:
    """Return the partition of each user, which its key decides."""
    if count <= _BYTE_VALUES:
        return users.list_first_bytes().translate(_list_partitions(count))
    return [key % count for key in users.list_keys()]


@lru_cache
def _list_partitions(count: int) -> bytes:
    """Return the partition of each value of a byte."""
    return bytes(value % count for value in range(_BYTE_VALUES))
