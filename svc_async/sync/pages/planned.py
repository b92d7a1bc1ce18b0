"""The rows of a page that are sent: which ones, in which stage, and how they were before; no I/O."""

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain, compress, repeat
from types import MappingProxyType

import attrs

from svc_async.batch.plan import STAGES, Stage
from svc_async.sync.entries import has_name
from svc_async.sync.pages.compare import Added, Delta, count_removals
from svc_async.sync.pages.marks import (
    DOUBT,
    LATE,
    NEVER,
    Action,
    Before,
    RowOutcome,
    expect_mark,
    settle_added,
    settle_moved,
)
from svc_async.sync.pages.page import ID_SIZE, KEY_SIZE, REST_SIZE, DamagedState, StatePage

__all__ = ["PlanOutcomes", "PlannedPage", "Selection", "apply_delta", "settle_page"]

_BLOCK = 64
"""Rows whose numbers are counted together; a row is looked up among so many."""
_CODES: Mapping[Stage, int] = {stage: code for code, stage in enumerate(STAGES, 1)}
_MASKS = {stage: bytes(code == number for number in range(256)) for stage, code in _CODES.items()}


@attrs.define(slots=False)
class Selection:
    """A byte for each row of a snapshot: 0 for rows that are not sent, else the number of the stage."""

    codes: bytearray = attrs.field(factory=bytearray)

    def extend_to(self, rows: int) -> None:
        """Add rows that are not sent."""
        self.codes += bytes(max(0, rows - len(self.codes)))

    def add(self, positions: Iterable[int], stage: Stage) -> None:
        """Select rows."""
        deque(map(self.codes.__setitem__, positions, repeat(_CODES[stage])), 0)

    def defer(self) -> None:
        """Move all rows to the second stage."""
        self.codes = self.codes.translate(bytes([0, *[_CODES["later"]] * 255]))

    def count(self, stage: Stage) -> int:
        """Return how many rows are sent in a stage."""
        return self.codes.count(_CODES[stage])

    def find(self, rows: range, stage: Stage) -> Sequence[int]:
        """Return which of some consecutive rows are sent in a stage, counted from the first of them."""
        codes = self.codes[rows.start : rows.stop]
        found = codes.count(_CODES[stage])
        if found in (0, len(rows)):
            return range(found)
        return list(compress(range(len(rows)), codes.translate(_MASKS[stage])))

    def spread(self, outcomes: bytes | bytearray) -> bytearray:
        """Return the outcomes of all rows by position, given those by number."""
        spread, first = bytearray(len(self.codes)), 0
        for stage in STAGES:
            count = self.count(stage)
            positions = compress(range(len(self.codes)), self.codes.translate(_MASKS[stage]))
            deque(map(spread.__setitem__, positions, memoryview(outcomes)[first : first + count]), 0)
            first += count
        return spread

    def find_position(self, number: int) -> int:
        """Return the position of a row by its number."""
        index = bisect_right(self._before, number) - 1
        stage, block = divmod(index, -(-len(self.codes) // _BLOCK))
        rows = range(block * _BLOCK, (block + 1) * _BLOCK)
        return rows[self.find(rows, STAGES[stage])[number - self._before[index]]]

    @cached_property
    def _before(self) -> "array[int]":
        """How many rows have lower numbers than those of each block of the snapshot: for each block, by stage.

        They are counted when a row is first looked up; no row may be selected after that.
        """
        starts = range(0, len(self.codes), _BLOCK)
        counts = (self.codes.count(code, start, start + _BLOCK) for code in _CODES.values() for start in starts)
        return array("I", accumulate(counts, initial=0))


_CONTENT_SIZE = ID_SIZE - KEY_SIZE
_REMOVALS: Mapping[Stage, Action] = MappingProxyType({"now": Action.REMOVE, "later": Action.REMOVE_LATER})
_WITHOUT_LATE = bytes(flags & ~LATE for flags in range(256))
_IN_DOUBT = bytes(flags | DOUBT for flags in range(256))
_ACTIONS = [Action(number) for number in range(64)]
_OUTCOMES = list(RowOutcome)
_SETTLED_ADDED = [
    bytes(settle_added(flags & ~DOUBT & 0xFF, outcome) if flags & DOUBT else flags for flags in range(256))
    for outcome in RowOutcome
]
"""For each outcome, the mark of an added row by the mark that it has while it is sent."""


@attrs.define
class PlannedPage:
    """What is planned for a page.

    Attributes:
        places: the places of the rows that the page had before.
        actions: what is done with each.
        positions: their positions in the snapshot.
        flags: their flags before.
        days: their days before.
        contents: the digests of their contents before.
        added_places: the places of the other rows.
        added_positions: their positions in the snapshot.
    """

    places: "array[int]" = attrs.field(factory=lambda: array("I"))
    actions: bytes = b""
    positions: "array[int]" = attrs.field(factory=lambda: array("I"))
    flags: bytes = b""
    days: "array[int]" = attrs.field(factory=lambda: array("H"))
    contents: bytes = b""
    added_places: "array[int]" = attrs.field(factory=lambda: array("I"))
    added_positions: "array[int]" = attrs.field(factory=lambda: array("I"))

    def __attrs_post_init__(self) -> None:
        columns = (self.actions, self.positions, self.flags, self.days, self.contents[::_CONTENT_SIZE])
        sizes = {len(self.places), *map(len, columns)}
        if len(sizes) != 1 or len(self.contents) % _CONTENT_SIZE or len(self.added_places) != len(self.added_positions):
            raise DamagedState

    def __bool__(self) -> bool:
        return bool(self.places or self.added_places)

    def find_removals(self, stage: Stage) -> Sequence[int]:
        """Return the places of the rows that are removed in a stage."""
        way = int(_REMOVALS[stage])
        return list(compress(self.places, map(way.__and__, self.actions)))

    def count_removals(self) -> Mapping[Stage, int]:
        """Return how many rows are removed in each stage."""
        return count_removals(self.actions)


@attrs.frozen
class PlanOutcomes:
    """The outcomes of a plan.

    Attributes:
        upserts: of the rows that are sent, by position.
        removals: of the rows that are removed, by number.
    """

    upserts: bytes | bytearray
    removals: bytes | bytearray


def apply_delta(
    page: StatePage, delta: Delta, *, expires: int, late: bool, read_name: Callable[[bytes], bytes]
) -> PlannedPage:
    """Change a page as a snapshot demands, with all that is planned in doubt, and return what is planned.

    Args:
        page: the page.
        delta: what changes.
        expires: the day on which rows that are sent expire.
        late: whether requests of earlier runs may still take effect.
        read_name: returns the name of an added row, given what its record has in place of the rest of a hash.
    """
    if not late:
        page.flags = page.flags.translate(_WITHOUT_LATE)
    planned = _move(page, delta, expires)
    if len(delta.added):
        planned.added_places = _add(page, delta.added, expires, read_name)
        planned.added_positions = array("I", delta.added.positions)
    return planned


def _move(page: StatePage, delta: Delta, expires: int) -> PlannedPage:
    flags, days, contents = bytearray(), array("H"), bytearray()
    kept: list[bool] = []
    for index, (place, number) in enumerate(zip(delta.places, delta.actions, strict=True)):
        action, before = _ACTIONS[number], Before(page.flags[place], page.days[place])
        kept.append(action is not Action.FORGET)
        if action is Action.FORGET:
            page.flags[place], page.days[place] = 0, NEVER
            continue
        flags.append(before.flags)
        days.append(before.day)
        contents += page.content(place)
        mark = expect_mark(before, action, expires)
        page.flags[place], page.days[place] = mark.flags, mark.day
        if action & Action.UPSERT:
            page.set_content(place, bytes(delta.contents[_CONTENT_SIZE * index : _CONTENT_SIZE * (index + 1)]))
    return PlannedPage(
        places=array("I", compress(delta.places, kept)),
        actions=bytes(compress(delta.actions, kept)),
        positions=array("I", compress(delta.positions, kept)),
        flags=bytes(flags),
        days=days,
        contents=bytes(contents),
    )


def _add(page: StatePage, added: Added, expires: int, read_name: Callable[[bytes], bytes]) -> "array[int]":
    """Add rows at free places, and return these."""
    count, first, kinds = len(added), len(page), added.kinds
    free = [place for place, flags in enumerate(page.flags) if not flags][:count] if 0 in page.flags else []
    new = count - len(free)
    places = array("I", chain(free, range(first, first + new)))
    page.extend(new)
    _write_rows(page.ids, ID_SIZE, added.ids, free, first)
    _write_rows(page.rests, REST_SIZE, added.rests, free, first)
    flags = kinds.translate(_IN_DOUBT)
    _write_rows(page.flags, 1, flags, free, first)
    for place in free:
        page.days[place] = expires
    page.days[first:] = array("H", [expires]) * new
    if has_name(max(kinds)):
        for place, kind in zip(places, kinds, strict=True):
            if has_name(kind):
                page.set_name(place, read_name(page.rest(place)))
                page.rests[REST_SIZE * place : REST_SIZE * (place + 1)] = bytes(REST_SIZE)
    return places


def _write_rows(column: bytearray, size: int, rows: bytes | bytearray, free: Sequence[int], first: int) -> None:
    """Write rows of a column: the first at free places, the others from a place on."""
    for index, place in enumerate(free):
        column[size * place : size * (place + 1)] = rows[size * index : size * (index + 1)]
    column[size * first :] = rows[size * len(free) :]


def settle_page(
    page: StatePage, planned: PlannedPage, outcomes: PlanOutcomes, *, numbers: dict[Action, int], expires: int
) -> bool:
    """Mark the rows of a plan as their outcomes reveal; return whether other columns than the marks have changed.

    Args:
        page: the page, with all that is planned in doubt.
        planned: what is planned for it.
        outcomes: the outcomes of the whole plan.
        numbers: the numbers of its first removals; they are raised by its removals.
        expires: the day on which rows that are sent expire.
    """
    _settle_added(page, planned, outcomes)
    restored = False
    for index, (place, number) in enumerate(zip(planned.places, planned.actions, strict=True)):
        action, removal = _ACTIONS[number], 0
        way = action & (Action.REMOVE | Action.REMOVE_LATER)
        if way:
            removal = outcomes.removals[numbers[way]]
            numbers[way] += 1
        mark, is_former = settle_moved(
            Before(planned.flags[index], planned.days[index]),
            action,
            removal=_OUTCOMES[removal],
            upsert=_OUTCOMES[outcomes.upserts[planned.positions[index]]] if action & Action.UPSERT else _OUTCOMES[0],
            expires=expires,
        )
        page.flags[place], page.days[place] = mark.flags, mark.day
        content = planned.contents[_CONTENT_SIZE * index : _CONTENT_SIZE * (index + 1)]
        if is_former and action & Action.UPSERT and content != page.content(place):
            page.set_content(place, content)
            restored = True
        if not mark.flags and page.service_keys:
            page.set_service_key(place, b"")
            restored = True
    return restored


def _settle_added(page: StatePage, planned: PlannedPage, outcomes: PlanOutcomes) -> None:
    places = planned.added_places
    if not places:
        return
    results = bytes(map(outcomes.upserts.__getitem__, planned.added_positions))
    first, count = places[0], len(places)
    if results.count(RowOutcome.ACCEPTED) == count and places[-1] - first == count - 1:
        page.flags[first : first + count] = page.flags[first : first + count].translate(
            _SETTLED_ADDED[RowOutcome.ACCEPTED]
        )
        return
    for place, result in zip(places, results, strict=True):
        page.flags[place] = _SETTLED_ADDED[result][page.flags[place]]
        if not page.flags[place]:
            page.days[place] = NEVER
