"""Compares a page of a state with the rows of a snapshot that belong to it; no I/O.

The rows of a snapshot are records of equal size, in the order in which they were read:

    key 16, digest of the content 8, rest of the hash 16, position 4, kind 1, nothing 3

Where the kind has a name in place of a hash, the rest says where the name is: an offset and a length of 8 bytes each.
"""

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress, pairwise, repeat
from operator import and_, ne
from struct import Struct

import attrs

from svc_async.batch.plan import Stage
from svc_async.sync.entries import Entries
from svc_async.sync.pages.marks import (
    DOUBT,
    KIND,
    LATE,
    LATE_REMOVAL,
    LISTED,
    Action,
    ComparisonRules,
    Decision,
    Reason,
    decide,
    link,
)
from svc_async.sync.pages.page import ID_SIZE, KEY_SIZE, StatePage, pack_numbers, split_columns, unpack_numbers

__all__ = ["RECORD_SIZE", "Added", "Delta", "compare_page", "count_removals", "encode_records", "find_marked_keys"]

RECORD_SIZE = 48
_WORDS = RECORD_SIZE // 4
_POSITION = 10
"""Where the position is, in words of 4 bytes."""
_KIND = 44
"""Where the kind is, in bytes."""
_CLASHING = 3
"""Different contents of one key that are not corrections of one row."""
_CONTENT_SIZE = ID_SIZE - KEY_SIZE
_UPSERTS = bytes(action & Action.UPSERT for action in range(256))
_REMOVALS = bytes(bool(action & (Action.REMOVE | Action.REMOVE_LATER)) for action in range(256))


def encode_records(entries: Entries, rests: bytes | bytearray) -> bytearray:
    """Return the records of some rows.

    Args:
        entries: the rows.
        rests: 16 bytes of each.
    """
    records = bytearray(RECORD_SIZE * len(entries.positions))
    words = memoryview(records).cast("Q")
    for column, (source, width) in enumerate(((entries.ids, 3), (rests, 2))):
        view = memoryview(source).cast("Q")
        for index in range(width):
            words[3 * column + index :: _WORDS // 2] = view[index::width]
    positions = Struct(f"{len(entries.positions)}I").pack(*entries.positions)  # in half the time of an array
    memoryview(records).cast("I")[_POSITION::_WORDS] = memoryview(positions).cast("I")
    memoryview(records)[_KIND::RECORD_SIZE] = entries.kinds
    return records


@attrs.frozen
class Added:
    """Rows that the state does not know.

    Attributes:
        records: their records.
    """

    records: bytes | bytearray

    def __len__(self) -> int:
        return len(self.records) // RECORD_SIZE

    @property
    def positions(self) -> Sequence[int]:
        """Their positions in the snapshot."""
        return _view_positions(self.records).tolist()

    @property
    def kinds(self) -> bytes:
        """Their kinds."""
        return bytes(self.records[_KIND::RECORD_SIZE])

    @property
    def ids(self) -> bytearray:
        """Their keys and contents."""
        return self._copy(0, 3)

    @property
    def rests(self) -> bytearray:
        """The rests of their hashes."""
        return self._copy(3, 2)

    def _copy(self, first: int, width: int) -> bytearray:
        column = bytearray(8 * width * len(self))
        target, words = memoryview(column).cast("Q"), memoryview(self.records).cast("Q")
        for index in range(width):
            target[index::width] = words[first + index :: _WORDS // 2]
        return column


@attrs.define
class Delta:
    """What a snapshot changes in a page.

    Attributes:
        places: the places of known rows with which something is done.
        actions: what is done with each.
        positions: their positions in the snapshot; 0 if it does not have them.
        contents: the digests of their contents in the snapshot.
        added: the rows that the state does not know.
        waiting: the positions of rows that may be sent only when no earlier request can take effect any more.
        changed: the positions of rows that the list has with another content.
        reasons: how many rows there are for each reason.
        present: how many known rows the list had before.
        listed: how many rows the snapshot has.
        late_removals: whether earlier requests to remove rows may still take effect.
        has_stale_marks: whether rows are marked as late that no longer are.
        clashing: the positions of rows that have one key with three contents or more.
        clashing_kinds: their kinds.
    """

    places: "array[int]" = attrs.field(factory=lambda: array("I"))
    actions: bytearray = attrs.field(factory=bytearray)
    positions: "array[int]" = attrs.field(factory=lambda: array("I"))
    contents: bytearray = attrs.field(factory=bytearray)
    added: Added = attrs.field(default=Added(b""))
    waiting: "array[int]" = attrs.field(factory=lambda: array("I"))
    changed: "array[int]" = attrs.field(factory=lambda: array("I"))
    reasons: Counter[Reason] = attrs.field(factory=Counter)
    present: int = 0
    listed: int = 0
    late_removals: bool = False
    has_stale_marks: bool = False
    clashing: "array[int]" = attrs.field(factory=lambda: array("I"))
    clashing_kinds: bytes = b""

    @property
    def changes_page(self) -> bool:
        """Whether anything in the page changes."""
        return bool(self.places or len(self.added) or self.has_stale_marks)

    def count_removals(self) -> Mapping[Stage, int]:
        """Return how many rows are removed in each stage."""
        return count_removals(self.actions)

    def append(self, place: int, decision: Decision, position: int, content: bytes) -> None:
        """Add a known row, unless nothing is done with it."""
        self.reasons[decision.reason] += 1
        if decision.action is Action.NOTHING:
            return
        self.places.append(place)
        self.actions.append(decision.action)
        self.positions.append(position)
        self.contents += content or bytes(_CONTENT_SIZE)
        if decision.reason == "change":
            self.changed.append(position)
        if decision.waits:
            self.waiting.append(position)

    @property
    def upserts(self) -> Iterator[int]:
        """The positions of all rows that are sent."""
        return chain(self.added.positions, compress(self.positions, self.actions.translate(_UPSERTS)))

    @property
    def removed_places(self) -> Iterator[int]:
        """The places of all rows that are removed, or removed before they are sent."""
        return compress(self.places, self.actions.translate(_REMOVALS))

    @property
    def renewed(self) -> Iterator[int]:
        """The positions of the rows of which nothing is left on the list when they are sent."""
        replaced = bytes(map(and_, self.actions.translate(_REMOVALS), self.actions.translate(_UPSERTS)))
        return chain(self.added.positions, compress(self.positions, replaced))

    def write(self) -> bytes:
        """Return what is needed to apply the delta."""
        places, positions = pack_numbers(self.places), pack_numbers(self.positions)
        count = len(self.places).to_bytes(8, "little")
        return b"".join((count, places, positions, self.actions, self.contents, self.added.records))

    @classmethod
    def read(cls, written: bytes) -> "Delta":
        """Return the delta that was written."""
        count = int.from_bytes(written[:8], "little")
        ends = [8 + size * count for size in (0, 4, 8, 9, 9 + _CONTENT_SIZE)]
        places, positions, actions, contents = (written[start:end] for start, end in pairwise(ends))
        return cls(
            places=unpack_numbers("I", places),
            positions=unpack_numbers("I", positions),
            actions=bytearray(actions),
            contents=bytearray(contents),
            added=Added(written[ends[-1] :]),
        )


def find_marked_keys(records: bytes | bytearray, marks: bytes | bytearray) -> frozenset[bytes]:
    """Return the keys of the rows that are marked by a byte at their position in the snapshot."""
    positions = memoryview(records).cast("I")[_POSITION::_WORDS]
    return frozenset(compress(split_columns(records, "16s32x"), map(marks.__getitem__, positions)))


def compare_page(
    page: StatePage, records: bytes | bytearray, rules: ComparisonRules, *, linked: Collection[bytes] = ()
) -> Delta:
    """Return what a snapshot changes in a page; of rows with the same key the last one counts.

    Two rows of one key are one row and its correction. Three that all differ are as many rows that have something in
    common which identifies none of them, so none counts.

    Args:
        page: what the state has.
        records: the rows of the snapshot that belong to the page.
        rules: what the comparison goes by.
        linked: the keys of rows of the snapshot that the removals of others may remove: they are sent.
    """
    count = len(records) // RECORD_SIZE
    new = dict(zip(split_columns(records, "16s32x"), range(count), strict=True))
    clashing = _find_clashing_keys(records) if len(new) < count - 1 else frozenset[bytes]()
    for key in clashing:
        del new[key]
    delta = Delta(listed=len(new))
    if clashing:
        chosen = bytes(map(clashing.__contains__, split_columns(records, "16s32x")))
        delta.clashing = array("I", compress(_view_positions(records), chosen))
        delta.clashing_kinds = bytes(compress(records[_KIND::RECORD_SIZE], chosen))
    if len(page):
        _compare_known(page, records, new, rules, delta, linked=linked)
    if len(new) == count:
        delta.added = Added(records)
    else:
        delta.added = Added(b"".join([records[RECORD_SIZE * i : RECORD_SIZE * (i + 1)] for i in new.values()]))
    delta.reasons["addition"] += len(new)
    return delta


def _find_clashing_keys(records: bytes | bytearray) -> frozenset[bytes]:
    contents: dict[bytes, set[bytes]] = {}
    for key, content in zip(split_columns(records, "16s32x"), split_columns(records, "16x8s24x"), strict=True):
        different = contents.setdefault(key, set())
        if len(different) < _CLASHING:
            different.add(content)
    return frozenset(key for key, different in contents.items() if len(different) >= _CLASHING)


def _view_positions(records: bytes | bytearray) -> "memoryview[int]":
    return memoryview(records).cast("I")[_POSITION::_WORDS]


def count_removals(actions: bytes | bytearray) -> Mapping[Stage, int]:
    """Return how many rows are removed in each stage, given what is done with each row."""
    return {
        "now": sum(map(int(Action.REMOVE).__and__, actions)) // Action.REMOVE,
        "later": sum(map(int(Action.REMOVE_LATER).__and__, actions)) // Action.REMOVE_LATER,
    }


def _compare_known(
    page: StatePage,
    records: bytes | bytearray,
    new: dict[bytes, int],
    rules: ComparisonRules,
    delta: Delta,
    *,
    linked: Collection[bytes],
) -> None:
    """Compare the rows of a page, and leave in `new` those that it does not have."""
    count, places = len(records) // RECORD_SIZE, page.used
    keys: Iterable[bytes]
    keys, contents = split_columns(page.ids, "16s8x"), split_columns(page.ids, "16x8s")
    if len(places) < len(page):
        keys, contents = compress(keys, page.flags), compress(contents, page.flags)
    resent: set[int] = set()
    if linked:
        keys = [*keys]
        resent = {index for index, key in enumerate(keys) if key in linked}
    found = list(map(new.pop, keys, repeat(count)))
    listed_contents = [*split_columns(records, "16x8s24x"), b""]  # the last is of rows that are not found
    differs = bytes(map(ne, map(listed_contents.__getitem__, found), contents))
    irregular = sorted(resent.union(_find_irregular(page, places, differs, rules)))
    positions = memoryview(records).cast("I")[_POSITION::_WORDS]
    delta.present = len(places) - len(irregular)
    for index in irregular:
        place, record = places[index], found[index]
        flags, day = page.flags[place], page.days[place]
        same = None if record == count else not differs[index]
        decision = decide(flags, day, rules, same=same)
        if index in resent:
            decision = link(decision)
        position = 0 if record == count else positions[record]
        delta.append(place, decision, position, listed_contents[record])
        delta.present += bool(flags & LISTED if flags & DOUBT else day >= rules.today)
        delta.late_removals |= bool(rules.late and flags & LATE_REMOVAL)
        delta.has_stale_marks |= bool(not rules.late and flags & LATE)


def _find_irregular(page: StatePage, places: Sequence[int], differs: bytes, rules: ComparisonRules) -> set[int]:
    """Return the indexes of rows of which more than that they are listed must be considered."""
    found: set[int] = set(compress(range(len(differs)), differs)) if any(differs) else set()
    if max(page.flags) > KIND:
        found.update(index for index, place in enumerate(places) if page.flags[place] > KIND)
    if places and min(page.days) < rules.soon:
        found.update(index for index, place in enumerate(places) if page.days[place] < rules.soon)
    return found
