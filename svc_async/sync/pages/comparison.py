"""What a comparison of a state with a snapshot has found, until the plan is stored.

A removal removes everybody with its identifier: also a row that has it as a later identifier, and does not change. Such
rows are linked: when all pages are compared, they are looked for and selected as well.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from itertools import compress, repeat

import attrs

from svc_async.sync.entries import Entries, FindLinked, Removal, has_name
from svc_async.sync.pages.compare import Delta, compare_page, find_marked_keys
from svc_async.sync.pages.marks import KIND, Before, ComparisonRules, doubt_written
from svc_async.sync.pages.page import StatePage
from svc_async.sync.pages.planned import Selection
from svc_async.sync.pages.records import StateRecords
from svc_async.sync.pages.spill import Blobs, Spill

__all__ = ["Comparison", "describe_removal", "doubt_written_rows", "select_linked"]

_REMOVALS_AT_ONCE = 131_072
"""Removals whose identifiers are looked for together; a hundred bytes or two of memory each."""


@attrs.define
class Comparison:
    """What a comparison found, until the plan is stored.

    Attributes:
        spill: the rows of the snapshot.
        blobs: the deltas of the pages.
        rules: what it went by.
        pages: how many pages there are to be.
        selection: the rows to send.
        listed: how many rows the snapshot has.
        changes: the rows to send that the list has with another content.
        deltas: where the delta of each page is.
        size: bytes of all rows of the snapshot.
        is_linked: whether removing a row of the snapshot might remove another one.
        clashing: the kind of each row of the snapshot that clashes, see `Delta`; 0 for the others.
        has_writes: whether requests beside the syncs were noted.
    """

    spill: Spill
    blobs: Blobs
    rules: ComparisonRules
    pages: int = 1
    selection: Selection = attrs.field(factory=Selection)
    changes: Selection = attrs.field(factory=Selection)
    listed: int = 0
    deltas: dict[int, tuple[int, int]] = attrs.field(factory=dict[int, tuple[int, int]])
    size: int = 0
    is_linked: bool = False
    clashing: bytearray = attrs.field(factory=bytearray)
    has_writes: bool = False

    def close(self) -> None:
        """Close the files, which deletes them."""
        self.spill.close()
        self.blobs.close()

    def add(self, entries: Entries) -> None:
        """Add rows of the snapshot."""
        self.spill.add(entries)
        last = max([*entries.positions[-1:], *entries.invalid_rows[-1:]], default=-1)
        self.selection.extend_to(last + 1)
        self.changes.extend_to(last + 1)
        self.selection.add(entries.invalid_rows, "now")
        self.size += entries.size
        self.is_linked |= entries.is_linked

    def keep(self, index: int, delta: Delta) -> None:
        """Keep what changes in a page, and select the rows to send."""
        written = delta.write()
        self.deltas[index] = self.blobs.add(written), len(written)
        self.selection.add(delta.upserts, "now")
        self.changes.add(delta.changed, "now")
        self.selection.add(delta.waiting, "later")

    def keep_clashing(self, delta: Delta) -> None:
        """Keep which rows of a page clash; they are selected, so that they count as invalid."""
        if delta.clashing:
            self.clashing = self.clashing or bytearray(len(self.selection.codes))
            deque(map(self.clashing.__setitem__, delta.clashing, delta.clashing_kinds), 0)
            self.selection.add(delta.clashing, "now")

    def read_delta(self, index: int) -> Delta | None:
        """Return what changes in a page; None for nothing."""
        found = self.deltas.get(index)
        return None if found is None else Delta.read(self.blobs.read(*found))


async def doubt_written_rows(records: StateRecords, pages: int, rules: ComparisonRules) -> None:
    """Mark rows of a state as in doubt whose key was sent beside the syncs; to do so again changes nothing.

    Args:
        records: the state.
        pages: how many pages it has.
        rules: what the comparison goes by.
    """
    async for keys in _join_keys(records):
        async with records.transaction() as writer:
            for index in range(pages):
                page = await records.read_page(index, pages)
                found = [place for place in page.used if page.key(place) in keys]
                for place in found:
                    before, adds = Before(page.flags[place], page.days[place]), keys[page.key(place)]
                    page.flags[place] = doubt_written(before, adds=adds, late=rules.late, today=rules.today)
                if found:
                    await writer.write_marks(index, pages, page)
                await asyncio.sleep(0)


async def _join_keys(records: StateRecords) -> AsyncIterator[Mapping[bytes, bool]]:
    """Yield the keys that were sent, and whether they may have been added, some at a time."""
    keys: dict[bytes, bool] = {}
    async for adds, written in records.read_writes():
        for key in written.keys:
            keys[key] = adds or keys.get(key, False)
        if len(keys) >= _REMOVALS_AT_ONCE:
            yield keys
            keys = {}
    if keys:
        yield keys


async def select_linked(comparison: Comparison, records: StateRecords, pages: int, find: FindLinked) -> int:
    """Select the rows that the removals of others may remove, or what was sent beside the syncs may have changed.

    Return how many would not be sent otherwise.

    Args:
        comparison: the comparison of all pages.
        records: the state.
        pages: how many pages it has.
        find: finds the rows that have certain identifiers.
    """
    linked = _LinkedRows(comparison, find)
    async for part, page in records.read_parts(pages, comparison.pages):
        delta = comparison.read_delta(part)
        if delta is not None:
            linked.add(describe_removal(page, place, 0) for place in delta.removed_places)
    async for _, written in records.read_writes():
        linked.add(written.list_removals())
    linked.search()
    count = 0
    if any(linked.marks):
        async for part, page in records.read_parts(pages, comparison.pages):
            rows = comparison.spill.read(part, comparison.pages)
            keys = find_marked_keys(rows, linked.marks)
            if keys:
                delta = compare_page(page, rows, comparison.rules, linked=keys)
                comparison.keep(part, delta)
                count += delta.reasons["linked"]
    return count


class _LinkedRows:
    """Looks for the rows of a snapshot that have what identifies a row that is removed.

    Args:
        comparison: the comparison of all pages.
        find: finds the rows.
    """

    def __init__(self, comparison: Comparison, find: FindLinked) -> None:
        self.marks = bytearray(len(comparison.selection.codes))
        """A byte for each row of the snapshot: whether it is one of them."""
        self._find = find
        self._removals: list[Removal] = []
        self._candidates = bytearray(b"\1" * len(self.marks))
        for index in comparison.deltas:
            delta = comparison.read_delta(index)
            if delta is not None:
                _mark(self._candidates, delta.renewed, 0)

    def add(self, removals: Iterable[Removal]) -> None:
        """Look for the rows that have what identifies something that is removed."""
        self._removals += removals
        if len(self._removals) >= _REMOVALS_AT_ONCE:
            self.search()

    def search(self) -> None:
        """Look for the removals that were added and not looked for."""
        if self._removals:
            candidates = self._candidates
            found = self._find(
                self._removals, lambda rows: [*compress(range(len(rows)), candidates[rows.start : rows.stop])]
            )
            _mark(self.marks, found, 1)
            self._removals = []


def describe_removal(page: StatePage, place: int, number: int) -> Removal:
    """Return the removal of a row of a page."""
    kind = page.flags[place] & KIND
    name = page.names[place] if has_name(kind) else page.key(place) + page.rest(place)
    service_key = page.service_keys[place].decode() if page.service_keys else ""
    return Removal(number, kind, name, service_key or None)


def _mark(marks: bytearray, positions: Iterable[int], mark: int) -> None:
    deque(map(marks.__setitem__, positions, repeat(mark)), 0)
