"""Distributes rows over lanes by key, collects those of each lane and seals them into batches.

A batch holds one row of a key. Another row of the same key with equal identifiers replaces it (coalesced); one with
other identifiers moves to the next batch, because rows of one key must be applied in their order. Repeated keys are
looked for when a batch is sealed: in one set then, instead of a lookup for every row. Only rows of these keys are
compared.

Rows come many at a time. Packed rows are taken whole if they fit, which is nearly always the case; otherwise each half
is tried by itself, down to a single row. When a source has ended, open batches of several lanes share requests.
"""

import itertools
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from math import ceil

import attrs

from svc_async.batch.packing.batch import Batch, Limits, OperationBlock, OperationGroup, PackedRows, select_rows
from svc_async.users.packed import PackedUsers, RowTemplate, partition

__all__ = ["Packer", "Partitioner", "count_lanes", "find_partitions", "group_tails"]

_BYTE_VALUES = 256
_ROUNDING = 1e-9
_LATENCY = 0.4
"""Seconds that a full request takes; the service's answers to large requests take about this long."""
_SPARE_LANES = 2
"""The rows of some lanes are behind, since keys are not spread evenly."""
_FEWEST = 4
"""Lanes with which a quarantine holds back a part of the rows only."""
_USER_SIZE = 34
"""Bytes that a user with one hash takes while it waits: the hash and its place in the source."""
_USERS_OF_BODY = 0.42
"""Bytes that the users of a body take while they wait, by the byte of the body."""


def count_lanes(limits: Limits, concurrency: int, *, memory: int, pace: float | None) -> int:
    """Return how many lanes a job has.

    Each has an open batch and up to one request in flight. With too many lanes the memory is full before the batches
    are, and requests go out half full: what a service admits a minute is counted in requests. With too few, the next
    request has to wait for the answer to the last one.

    So there are as many as the pace needs, so that none is late, or more if full requests of more fit into half of the
    memory; the other half is for what is in flight. Where not even the open batches of those that the pace needs would
    fit, more lanes would only make smaller requests: then the memory decides alone.

    Args:
        limits: what one request may hold.
        concurrency: the most requests in flight.
        memory: bytes of row data that the job may hold.
        pace: requests a second that the rate limit admits; None if it is not known.
    """
    # About the bytes that the users of a full request take while they wait.
    request_size = min(limits.operations * limits.per_operation * _USER_SIZE, limits.size * _USERS_OF_BODY)
    fitting = int(memory / 2 / request_size)
    needed = 0 if pace is None else ceil(pace * _LATENCY) + _SPARE_LANES
    if needed * request_size > memory:
        needed = _FEWEST
    return min(concurrency, max(needed, fitting, _FEWEST))


@attrs.define
class _OpenBlock:
    """The rows of one group and template in an open batch, with their operations and bytes."""

    group: OperationGroup
    template: RowTemplate
    packed: list[PackedRows] = attrs.field(factory=list[PackedRows])
    rows: int = 0
    payload_size: int = 0
    operations: int = 0
    size: int = 0

    def seal(self, per_operation: int, now: datetime) -> OperationBlock:
        rows = PackedRows.merge(self.packed)
        return OperationBlock(self.group.build_frame(now), self.template, per_operation, rows.users, rows.positions)


@attrs.define
class _OpenBatch:
    """Packed rows, in their order, that make one request."""

    limits: Limits
    packed: list[PackedRows] = attrs.field(factory=list)
    superseded: "array[int]" = attrs.field(factory=lambda: array("q"))
    rows: int = 0
    held: int = 0
    operations: int = 0
    size: int = attrs.field(default=attrs.Factory(lambda batch: batch.limits.empty_size, takes_self=True))
    _blocks: dict[tuple[OperationGroup, RowTemplate], _OpenBlock] = attrs.field(factory=dict)

    @classmethod
    def of(cls, limits: Limits, parts: Iterable[PackedRows], superseded: "array[int]") -> "_OpenBatch":
        batch = cls(limits, superseded=superseded)
        batch.add_all(parts)
        return batch

    def add_all(self, parts: Iterable[PackedRows]) -> None:
        """Add rows that are known to fit."""
        for _, alike in itertools.groupby(parts, key=lambda packed: (packed.group, packed.template)):
            self.add(PackedRows.merge(list(alike)))

    def add(self, packed: PackedRows) -> bool:
        """Add rows if they fit."""
        key, payload_size = (packed.group, packed.template), packed.payload_size
        block = self._blocks.get(key) or _OpenBlock(*key)
        rows_with, payload_size_with = block.rows + len(packed), block.payload_size + payload_size
        operations, size = self.limits.measure(*key, rows_with, payload_size_with)
        more_operations, more_size = operations - block.operations, size - block.size
        if not self.limits.allow(self.operations + more_operations, self.size + more_size):
            return False
        block.packed.append(packed)
        block.rows, block.payload_size, block.operations, block.size = rows_with, payload_size_with, operations, size
        self._blocks[key] = block
        self.packed.append(packed)
        self.rows += len(packed)
        self.held += packed.held
        self.operations += more_operations
        self.size += more_size
        return True

    def find_room(self, packed: PackedRows) -> int:
        """Return how many of its rows the limit of operations admits."""
        block = self._blocks.get((packed.group, packed.template)) or _OpenBlock(packed.group, packed.template)
        operations = self.limits.operations - self.operations + block.operations
        return operations * self.limits.per_operation - block.rows

    def has_repeats(self) -> bool:
        """Return whether a key occurs more than once."""
        keys = set[int]()
        for packed in self.packed:
            keys.update(packed.users.list_keys())
        return len(keys) < self.rows

    def divide(self) -> tuple[list[PackedRows], list[PackedRows]]:
        """Return the rows whose key occurs once, and those whose key occurs more often."""
        counts = Counter(itertools.chain.from_iterable(packed.users.list_keys() for packed in self.packed))
        once, repeated = list[PackedRows](), list[PackedRows]()
        for packed in self.packed:
            are_repeated = [counts[key] > 1 for key in packed.users.list_keys()]
            parts = packed.distribute(partition(range(len(packed)), are_repeated, 2))
            for rows, found in zip(parts, (once, repeated), strict=True):
                if len(rows):
                    found.append(rows)
        return once, repeated

    def seal(self, now: datetime) -> Batch:
        blocks = [block.seal(self.limits.per_operation, now) for block in self._blocks.values()]
        return Batch(blocks, self.limits.wrapper, now, self.superseded)


@attrs.define
class Packer:
    """Collects rows, in their order, and seals them into batches.

    Attributes:
        limits: what one request may hold.
        repeats: whether a key may occur more than once; if not, repeats are not looked for.
        reopen_below: the share of its rows below which a batch stays open when its repeats are removed; a fuller one
            is sealed, or it would be searched again at once.
        coalesced: the number of rows that an equal row of the same batch replaced.
        too_large: the positions of rows that no request can hold.
    """

    limits: Limits
    repeats: bool = True
    reopen_below: float = 7 / 8
    coalesced: int = 0
    too_large: list[int] = attrs.field(factory=list)
    _open: _OpenBatch = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._open = _OpenBatch(self.limits)

    @property
    def rows(self) -> int:
        """The number of rows that wait to be sealed."""
        return self._open.rows

    @property
    def held(self) -> int:
        """The bytes of memory that the rows take that wait."""
        return self._open.held

    @property
    def fullness(self) -> float:
        """The share of a request that the rows fill."""
        return self.limits.measure_fullness(self._open.operations, self._open.size)

    @property
    def outstanding(self) -> Iterator[Collection[int]]:
        """The positions of the rows that wait, and of those that they replaced."""
        yield from (packed.positions for packed in self._open.packed)
        yield self._open.superseded

    def feed(self, packed: PackedRows, now: datetime) -> list[Batch]:
        """Take rows and return the batches that they complete, built now."""
        batches: list[Batch] = []
        waiting = [packed]  # the first rows last
        while waiting:
            rows = waiting.pop()
            if self._open.add(rows):
                continue
            room = self._open.find_room(rows)
            if room <= 0:
                batches += self._seal(now, may_stay_open=True)
                waiting.append(rows)
            elif len(rows) > 1:
                first, second = rows.split(room if room < len(rows) else len(rows) // 2)
                waiting += [second, first]
            else:
                batches += self._feed_one(rows, now)
        return batches

    def _feed_one(self, packed: PackedRows, now: datetime) -> list[Batch]:
        """Take a row for which there seemed to be room."""
        batches = self._seal(now, may_stay_open=True)
        if self._open.add(packed):
            return batches
        batches += self._seal(now)
        if not self._open.add(packed):
            self.too_large.extend(packed.positions)
        return batches

    def flush(self, now: datetime) -> list[Batch]:
        """Return all rows as batches that are built now; more than one only if rows share a key."""
        return self._seal(now)

    def take_over(self, other: "Packer", now: datetime) -> list[Batch]:
        """Take the rows of another packer, which shares no key with this one; return the batches that they complete."""
        taken, other._open = other._open, _OpenBatch(other.limits)  # noqa: SLF001 - of the same class
        self._open.superseded.extend(taken.superseded)  # settled with the rows that replaced them, or before: not after
        return [batch for packed in taken.packed for batch in self.feed(packed, now)]

    def _seal(self, now: datetime, *, may_stay_open: bool = False) -> list[Batch]:
        """Seal the open batch; the last one after repeats were removed may stay open."""
        open_batch, self._open = self._open, _OpenBatch(self.limits)
        if not self.repeats or not open_batch.has_repeats():
            return [open_batch.seal(now)] if open_batch.rows else []
        once, repeated = open_batch.divide()
        superseded = open_batch.superseded
        # Batches that hold each key once, to be sent in their order.
        first, *others = self._coalesce(repeated, superseded) or self._layer(repeated, superseded)
        first.add_all(once)
        *full, last = first, *others
        if may_stay_open and last.rows < open_batch.rows * self.reopen_below:
            self._open = last
        else:
            full.append(last)
        return [batch.seal(now) for batch in full]

    def _coalesce(self, repeated: Sequence[PackedRows], superseded: "array[int]") -> Sequence[_OpenBatch]:
        """Keep the last of equal rows, if all rows of one key are equal; else return nothing."""
        first = repeated[0]
        if not all(packed.group == first.group and packed.template is first.template for packed in repeated):
            return []
        rows = PackedRows.merge(repeated)
        keys, users = rows.users.list_keys(), rows.write_each()
        last = {key: index for index, key in enumerate(keys)}
        replaced = [index for index, key in enumerate(keys) if last[key] != index]
        if any(users[index] != users[last[keys[index]]] for index in replaced):
            return []
        superseded.extend(rows.select(replaced).positions)
        self.coalesced += len(replaced)
        return [_OpenBatch.of(self.limits, [rows.select(sorted(last.values()))], superseded)]

    def _layer(self, repeated: Sequence[PackedRows], superseded: "array[int]") -> Sequence[_OpenBatch]:
        """Keep the last of equal rows, and move a row that differs from the last of its key to the next batch."""
        layers: list[dict[int, _Place]] = []
        superseded_of = [superseded]
        layer_of: dict[int, int] = {}
        for key, place in itertools.chain.from_iterable(map(_list_places, repeated)):
            layer = layer_of.get(key, -1)
            if layer >= 0 and layers[layer][key].is_same_user(place):
                self.coalesced += 1
                # Taken out, or its successor would come among rows of other slices, each of which is read anew then.
                superseded_of[layer].append(layers[layer].pop(key).position)
            else:
                layer += 1
                layer_of[key] = layer
                layers += [{}] if layer == len(layers) else []
                superseded_of += [array("q")] if layer == len(superseded_of) else []
            layers[layer][key] = place
        return [
            _OpenBatch.of(self.limits, select_rows((place.packed, place.index) for place in places.values()), replaced)
            for places, replaced in zip(layers, superseded_of, strict=True)
        ]


@attrs.frozen
class _Place:
    """One of many rows, to be compared with others of its key."""

    packed: PackedRows
    index: int
    user: str
    position: int

    def is_same_user(self, other: "_Place") -> bool:
        """Return whether both rows send the same identifiers."""
        return self.packed.template is other.packed.template and self.user == other.user


def _list_places(packed: PackedRows) -> Iterator[tuple[int, _Place]]:
    users = zip(packed.users.list_keys(), packed.write_each(), packed.positions, strict=True)
    return ((key, _Place(packed, index, user, position)) for index, (key, user, position) in enumerate(users))


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
            rows, count = PackedRows.merge(list(alike)), len(self.packers)
            if count > 1:
                parts = rows.partition(find_partitions(rows.users, count), count)
            else:
                parts = iter([(0, rows)] if len(rows) else [])
            for index, packed in parts:
                self.rows -= len(packed)
                yield index, self.packers[index].feed(packed, now)


def find_partitions(users: PackedUsers, count: int) -> Sequence[int]:
    """Return the partition of each user, which its key decides."""
    if count <= _BYTE_VALUES:
        return users.list_first_bytes().translate(_list_partitions(count))
    return [key % count for key in users.list_keys()]


@lru_cache
def _list_partitions(count: int) -> bytes:
    """Return the partition of each value of a byte."""
    return bytes(value % count for value in range(_BYTE_VALUES))


def group_tails(tails: Mapping[int, float]) -> list[list[int]]:
    """Group open batches: the rows of a group fill one request after another.

    All groups together take at most one request more than the rows would in one group. Among such ways it takes the
    one whose groups are smallest, since groups are sent at the same time and the requests of one after each other.

    Args:
        tails: the share of a request that each open batch fills, by its number.
    """
    largest_first = sorted(tails, key=lambda number: tails[number], reverse=True)
    fewest = _count_requests(tails, [largest_first])
    ways = (_fill_groups(tails, largest_first, requests) for requests in itertools.count(1))
    return next(groups for groups in ways if _count_requests(tails, groups) <= fewest + 1)


def _fill_groups(tails: Mapping[int, float], order: Sequence[int], requests: int) -> list[list[int]]:
    """Put each batch into the first group that it fits into with this many requests."""
    groups: list[list[int]] = []
    room: list[float] = []
    for number in order:
        size = tails[number]
        index = next((index for index, left in enumerate(room) if size <= left + _ROUNDING), len(groups))
        if index == len(groups):
            groups.append([])
            room.append(requests)
        groups[index].append(number)
        room[index] -= size
    return groups


def _count_requests(tails: Mapping[int, float], groups: Sequence[Sequence[int]]) -> int:
    return sum(ceil(sum(tails[number] for number in group) - _ROUNDING) for group in groups)
