"""Distributes rows over packers by key, so that rows of one key keep their order."""

import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from operator import itemgetter
from typing import TypeVar

import attrs

from svc_async.batch.packing.batch import Batch
from svc_async.batch.packing.packer import Packer
from svc_async.batch.packing.rows import EncodedRows, PackedRows, join_users

__all__ = ["Partitioner"]

T = TypeVar("T")


@attrs.define
class Partitioner:
    """Collects rows, and feeds each to the packer that its key selects.

    Attributes:
        packers: one for each partition.
        flush_at: rows to collect before a flush, since each packer costs a fixed effort.
        rows: the number of rows collected and not yet fed to a packer.
    """

    packers: Sequence[Packer]
    flush_at: int = 4_096
    rows: int = attrs.field(default=0, init=False)
    _collected: list[EncodedRows] = attrs.field(factory=list, init=False)

    def add(self, rows: EncodedRows) -> bool:
        """Collect rows; return whether it is time to flush."""
        self._collected.append(rows)
        self.rows += len(rows.keys)
        return self.rows >= self.flush_at

    def flush(self, now: datetime) -> Iterator[tuple[int, list[Batch]]]:
        """Feed the rows to the packers; yield the index of each packer and the batches that its rows complete."""
        collected, self._collected = self._collected, []
        for _, alike in itertools.groupby(collected, key=lambda rows: (rows.group, rows.template)):
            for index, packed in self._partition(list(alike)):
                self.rows -= len(packed.keys)
                yield index, self.packers[index].feed(packed, now)

    def _partition(self, parts: Sequence[EncodedRows]) -> Iterator[tuple[int, PackedRows]]:
        group, template = parts[0].group, parts[0].template
        keys = _chain(part.keys for part in parts)
        users = _chain(part.users for part in parts)
        positions = _chain(part.positions for part in parts)
        for packer, indexes in enumerate(self._select_indexes(keys)):
            if indexes:
                pick = _make_picker(indexes)
                columns = array("Q", pick(keys)), [join_users(pick(users))], array("q", pick(positions))
                yield packer, PackedRows(group, template, *columns)

    def _select_indexes(self, keys: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return the indexes of the rows of each packer."""
        count = len(self.packers)
        if count == 1:
            return [range(len(keys))]
        indexes: list[list[int]] = [[] for _ in self.packers]
        for index, chosen in enumerate(map(indexes.__getitem__, [key % count for key in keys])):
            chosen.append(index)
        return indexes


def _make_picker(indexes: Sequence[int]) -> Callable[[Sequence[T]], Sequence[T]]:
    if len(indexes) == 1:  # itemgetter would return the value itself
        return lambda values: [values[indexes[0]]]
    return itemgetter(*indexes)


def _chain(parts: Iterable[Sequence[T]]) -> list[T]:
    return list(itertools.chain.from_iterable(parts))
