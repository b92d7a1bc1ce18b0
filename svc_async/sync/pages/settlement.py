"""Settles a plan: what the outcomes that are known make of the rows that are in doubt."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat
from types import MappingProxyType

import attrs

from svc_async.batch.plan import PARTS, STAGES, Part, Stage
from svc_async.sync.pages.marks import Action, RowOutcome
from svc_async.sync.pages.page import DamagedState, StatePage
from svc_async.sync.pages.planned import PlannedPage, PlanOutcomes, Selection, settle_page
from svc_async.sync.pages.records import About, StateRecords
from svc_async.sync.pages.sendings import PartEnd, Sending

__all__ = ["settle"]


def _map_outcomes(**changes: RowOutcome) -> bytes:
    return bytes(changes.get(outcome.name, outcome) for outcome in RowOutcome) + bytes(256 - len(RowOutcome))


_NOT_BEGUN = _map_outcomes(UNDER_WAY=RowOutcome.NO_EFFECT)
_MEANING: Mapping[int, bytes] = MappingProxyType(
    {
        PartEnd.NONE: _map_outcomes(UNKNOWN=RowOutcome.UNDER_WAY),
        PartEnd.DONE: _map_outcomes(UNDER_WAY=RowOutcome.UNKNOWN),
        # What was given up while the job was ending was not waited for.
        PartEnd.STOPPED: _map_outcomes(UNDER_WAY=RowOutcome.NO_EFFECT, UNKNOWN=RowOutcome.UNDER_WAY),
    }
)
"""For each end of a part, what the recorded outcomes of its rows mean; the first is that of rows without any."""


async def settle(
    records: StateRecords, about: About, begun: Sequence[Sending], on_page: Callable[[int, int], object]
) -> About:
    """Apply the recorded outcomes, in one transaction, and return what belongs to the state as a whole then.

    Args:
        records: the state.
        about: what belongs to it as a whole.
        begun: the parts of the plan that were begun.
        on_page: called with each page: how many are done, and of how many.
    """
    indexes = await records.list_planned(about.pages)
    removals = Counter[Stage]()
    for index in indexes:
        removals.update((await records.read_plan(index, about.pages)).count_removals())
        await asyncio.sleep(0)
    selection = Selection(await records.read_selection())
    counts: Mapping[Part, Mapping[Stage, int]] = {
        "removals": removals,
        "upserts": {stage: selection.count(stage) for stage in STAGES},
    }
    collected = await _collect_outcomes(records, counts, begun)
    if any(RowOutcome.UNDER_WAY in outcomes for outcomes in collected.values()):
        about = attrs.evolve(about, late=begun[-1].last)
    outcomes = PlanOutcomes(upserts=selection.spread(collected["upserts"]), removals=collected["removals"])
    async with records.read_service_keys(about.pages) as service_keys, records.transaction() as writer:
        numbers = {Action.REMOVE: 0, Action.REMOVE_LATER: removals["now"]}
        for done, index in enumerate(indexes):
            on_page(done, len(indexes))
            planned, pages = await records.read_plan(index, about.pages), about.pages
            found = service_keys.read(index)
            is_whole = bool(planned.places or found)
            page = await (records.read_page(index, pages) if is_whole else records.read_marks(index, pages))
            with records.report():
                changed = settle_page(page, planned, outcomes, numbers=numbers, expires=about.expires)
                changed |= _set_service_keys(page, planned, found)
            if changed:
                await writer.write_page(index, pages, page)
            else:
                await writer.write_marks(index, pages, page)
            await asyncio.sleep(0)
        await writer.clear_plan()
        if about.late is None:  # the plan went by what was noted beside it
            await writer.clear_writes()
        await writer.write_about(about)
    return about


async def _collect_outcomes(
    records: StateRecords, counts: Mapping[Part, Mapping[Stage, int]], begun: Sequence[Sending]
) -> Mapping[Part, bytearray]:
    """Return the outcomes of the rows of each part, by number."""
    outcomes: dict[Part, bytearray] = {part: bytearray(sum(counts[part].values())) for part in PARTS}
    async for recorded in records.read_outcomes():
        known, numbers = outcomes[recorded.part], recorded.numbers
        with records.report():
            if isinstance(numbers, range) and not 0 <= numbers.start <= numbers.stop <= len(known):
                raise DamagedState
            if recorded.outcome == RowOutcome.UNKNOWN:  # says nothing about a row of which more is known
                numbers = [number for number in numbers if not known[number]]
            if isinstance(numbers, range):
                known[numbers.start : numbers.stop] = bytes([recorded.outcome]) * len(numbers)
            else:
                deque(map(known.__setitem__, numbers, repeat(recorded.outcome)), 0)
    meanings = {(each.part, each.stage): _MEANING[each.ended] for each in begun}
    for part in PARTS:
        first = 0
        for stage in STAGES:
            rows = slice(first, first + counts[part][stage])
            outcomes[part][rows] = outcomes[part][rows].translate(meanings.get((part, stage), _NOT_BEGUN))
            first = rows.stop
    return outcomes


def _set_service_keys(page: StatePage, planned: PlannedPage, service_keys: Mapping[bytes, bytes]) -> bool:
    if not service_keys:
        return False
    for place in chain(planned.places, planned.added_places):
        service_key = service_keys.get(page.key(place))
        if service_key is not None and page.flags[place]:
            page.set_service_key(place, service_key)
    return True
