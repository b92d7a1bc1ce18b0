"""The state of a list between two syncs, so that only the differences need to be sent.

    whole snapshot → spill → compare page by page → Plan → begin → requests, outcomes → settle

The rows are packed in pages, which are compared and written as a whole, so memory stays flat whatever their number. A
comparison stores nothing of the snapshot; it only marks rows that were named beside the syncs. `begin` marks all that
is planned as in doubt, in one transaction: from then on the state is true whatever happens, and outcomes only make it
more certain.
"""

import asyncio
import tempfile
from array import array
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import attrs

from svc_async.batch.job import StateLocation
from svc_async.batch.ledger import GRACE, check_sendable
from svc_async.batch.plan import PARTS, STAGES, Part, Plan, Stage
from svc_async.errors import Hint, InvalidArgument, SvcError
from svc_async.store.file import FileFormat, FileLocation
from svc_async.store.records import Changes, Key, RecordLocation, RecordStore, SharedSyncs, encode
from svc_async.sync.entries import Entries, FindLinked, Removal, WrittenIdentifiers
from svc_async.sync.pages.compare import Delta, compare_page
from svc_async.sync.pages.comparison import Comparison, describe_removal, doubt_written_rows, select_linked
from svc_async.sync.pages.marks import NEVER, ComparisonRules, Reason, RowOutcome
from svc_async.sync.pages.page import StatePage, count_pages, pack_numbers, pack_texts
from svc_async.sync.pages.planned import Selection, apply_delta
from svc_async.sync.pages.records import About, PageWriter, StateRecords, describe_about, describe_written
from svc_async.sync.pages.sendings import Sendings
from svc_async.sync.pages.settlement import settle
from svc_async.sync.pages.spill import Blobs, Spill, report_unwritable
from svc_async.sync.sending import ClockReading, SendingNote, find_rest
from svc_async.value_rules import instance_of

__all__ = [
    "FORMAT",
    "OnPage",
    "Removals",
    "SyncState",
    "check_location",
    "check_shared",
    "open_sync_state",
]


class OutcomeQueue:
    """Outcomes and keys that wait to be stored.

    A row whose outcome is lost with the process is in doubt, which is never wrong.
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, int], bytes] = {}
        self._last = {"outcome": 0, "service_key": 0}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, part: Part, outcome: RowOutcome, numbers: Sequence[int]) -> None:
        """Add the outcome of some rows of a part, by their numbers."""
        if numbers:
            first, last = min(numbers), max(numbers)
            is_range = last - first == len(numbers) - 1
            packed = b"" if is_range else pack_numbers(array("I", numbers))
            self._append("outcome", PARTS.index(part), int(outcome), first, len(numbers), packed)

    def add_service_keys(self, service_keys: Mapping[bytes, str]) -> None:
        """Add the service's own keys of rows, by their key."""
        known = {key: text.encode() for key, text in service_keys.items() if text}
        if known:
            self._append("service_key", b"".join(known), pack_texts([*known.values()]))

    def clear(self) -> None:
        """Begin again, since nothing is stored any more."""
        self._waiting = {}
        self._last = dict.fromkeys(self._last, 0)

    def collect(self) -> Changes:
        """Return what waits; `drop` it when it is committed."""
        return {**self._waiting}

    def drop(self, stored: Changes) -> None:
        """Drop what is stored."""
        for key in stored:
            self._waiting.pop(key, None)

    def _append(self, kind: str, *columns: object) -> None:
        self._last[kind] += 1
        self._waiting[kind, self._last[kind]] = encode(columns)


OnPage = Callable[[int, int], object]
"""Called as the pages of a state are worked on: how many are done, and of how many."""

_DAY = 86_400


def _ignore_page(_done: int, _total: int) -> None:
    """Tell nobody."""


class SyncState:
    """The state of one list; use it as a context manager.

    A plan is stored before anything is sent, and only what the service accepted changes the state. Rows of a plan
    without a recorded outcome are in doubt: they are sent again if they are in the next snapshot, and removed if not.
    Every method raises SvcError if the state cannot be read or written, or if another process has taken it up. Outcomes
    are stored with the next `admit` or `finish`.

    Attributes:
        target: the list and its host.
        folder: where temporary files may be created.

    Args:
        store: the records of the state.
        location: where they are.
        target: the list and its host; a state always belongs to the same list.
        folder: where temporary files may be created.

    Raises:
        SvcError: on entering: the state belongs to another list, or cannot be used.
    """

    def __init__(self, store: RecordStore, location: RecordLocation, *, target: str, folder: Path) -> None:
        self.folder = folder
        self._store = store
        self._location = location
        # Who held the lock of a file sends nothing any more; who has used a shared state before may send what it noted.
        self._delay = 0.0 if store.is_locked else GRACE
        self.target = target
        self._records = StateRecords(store, location, folder)
        self._sendings = Sendings(store, location)
        self._outcomes = OutcomeQueue()
        self._writing = asyncio.Lock()
        self._comparison: Comparison | None = None
        self._selection = Selection()
        self._opened: ClockReading | None = None
        self._about = About(target)
        self._writes = 0
        self._late_before: SendingNote | None = None
        self._noted_at = -inf

    async def __aenter__(self) -> Self:
        found = await self._records.read_about()
        if found is None:
            async with self._records.transaction() as writer:
                await writer.write_page(0, self._about.pages, StatePage())
                await writer.write_about(self._about)
        elif found.target != self.target:
            problem = "belongs to another list, or to one of another host; each needs its own file"
            raise self._location.make_error(problem)
        else:
            self._about = found
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Store the outcomes that wait, as far as possible; a plan that was not begun is discarded."""
        if self._comparison is not None:
            self._comparison.close()
        with suppress(SvcError):  # rows whose outcome is not stored are in doubt
            await self._store_outcomes()

    async def compare(
        self,
        snapshot: AsyncIterable[Entries],
        *,
        now: ClockReading,
        soon: datetime,
        quarantine: float = 0.0,
        replace: bool = False,
        find_linked: FindLinked,
        keep_unread: bool = False,
        on_settled: OnPage = _ignore_page,
        on_compared: OnPage = _ignore_page,
    ) -> Plan:
        """Return what a whole snapshot changes; it is stored by `begin` only. Other tasks run between entries.

        What an earlier run left is settled first. If several rows have the same key, the last one counts.

        Args:
            snapshot: all that the list is to contain.
            now: rows that expired before are not on the list.
            soon: rows that expire before are sent again.
            quarantine: for how many seconds requests of an earlier run may still take effect.
            replace: whether a row that the list may have with another content is removed before it is sent, because
                sending only adds.
            find_linked: finds rows that the removal of others removes as well.
            keep_unread: whether nothing is removed if the snapshot has a row whose key cannot be read: it may be what
                would be removed.
            on_settled: called with each page to which outcomes of an earlier run are applied.
            on_compared: called with each page that is compared.
        """
        self._opened = self._opened or now.after(self._delay)
        await self.settle(on_page=on_settled)
        if self._comparison is not None:
            self._comparison.close()
        rules = ComparisonRules(
            today=int(now.now.timestamp() // _DAY),
            soon=int(-(-soon.timestamp() // _DAY)),
            replace=replace,
            late=self.find_rest(now, quarantine) > 0,
        )
        has_writes = bool(await self._records.count_writes())
        if has_writes:
            await doubt_written_rows(self._records, self._about.pages, rules)
        with report_unwritable(self.folder):
            comparison = Comparison(Spill(self.folder, rows=self._about.rows), Blobs(self.folder), rules)
            comparison.has_writes, self._comparison = has_writes, comparison
        async for entries in snapshot:  # which may raise an OSError of its own
            with report_unwritable(self.folder):
                comparison.add(entries)
            await asyncio.sleep(0)
        with report_unwritable(self.folder):
            comparison.spill.flush()
            if keep_unread and any(comparison.selection.codes):  # so far only rows without a key are selected
                comparison.rules = attrs.evolve(rules, keep_absent=True)
            plan = await self._compare_pages(comparison, find_linked, on_compared)
        self._selection = comparison.selection
        return plan

    async def begin(self, *, expires: datetime | None = None, on_page: OnPage = _ignore_page) -> None:
        """Store the plan: from now on its rows are in doubt until their outcome is recorded.

        Args:
            expires: when the rows that are sent will expire.
            on_page: called with each page that is written.
        """
        comparison = self._comparison
        if comparison is None:
            raise RuntimeError("nothing was compared")
        about = attrs.evolve(
            self._about,
            pages=comparison.pages,
            rows=comparison.listed,
            # the last day of which a row that expires then is on the list for some time; days count from 1970
            expires=NEVER if expires is None else min((int(expires.timestamp()) - 1) // _DAY, NEVER - 1),
            late=self._about.late if comparison.rules.late else None,
        )
        async with self._records.transaction() as writer:
            with report_unwritable(self.folder):
                await self._write_pages(writer, comparison, about, on_page)
                await writer.write_selection(comparison.selection.codes)
                await writer.write_about(about)
            if not comparison.rules.late:  # else they are needed until nothing of them can take effect any more
                await writer.clear_writes()
        self._about, self._comparison = about, None
        comparison.close()

    async def removals(self, stage: Stage) -> AsyncIterator[Sequence[Removal]]:
        """Iterate over the rows to remove in a stage, some at a time; their numbers are consecutive."""
        pages, number = self._about.pages, 0
        planned_pages = await self._records.list_planned(pages)
        if stage == "later":
            for index in planned_pages:
                number += (await self._records.read_plan(index, pages)).count_removals()["now"]
        for index in planned_pages:
            places = (await self._records.read_plan(index, pages)).find_removals(stage)
            if places:
                page = await self._records.read_page(index, pages)
                with self._records.report():
                    removals = [describe_removal(page, place, each) for each, place in enumerate(places, number)]
                yield removals
                number += len(places)

    def find_upserts(self, rows: range, stage: Stage) -> Sequence[int]:
        """Return which of some rows of the snapshot are sent in a stage, counted from the first of them."""
        return self._selection.find(rows, stage)

    def find_position(self, number: int) -> int:
        """Return the position in the snapshot of an upsert."""
        return self._selection.find_position(number)

    def is_change(self, position: int) -> bool:
        """Return whether the list has a row to send with another content; it may be asked until `begin`."""
        return self._comparison is not None and self._comparison.changes.codes[position] > 0

    def find_clashing(self) -> Iterator[tuple[int, int]]:
        """Yield the positions and the kinds of rows that have one key with three contents or more, until `begin`."""
        kinds = b"" if self._comparison is None else self._comparison.clashing
        return ((position, kind) for position, kind in enumerate(kinds) if kind)

    def find_rest(self, now: ClockReading, quarantine: float) -> float:
        """Return for how many seconds requests of earlier runs may still take effect."""
        opened = self._opened or now.after(self._delay)
        return find_rest(now, quarantine, sent=self._about.late, grace=GRACE, opened=opened)

    def forget_late(self, now: ClockReading, quarantine: float) -> None:
        """Note that requests of earlier runs can take effect no more, if that is so."""
        if not self.find_rest(now, quarantine):
            self._about = attrs.evolve(self._about, late=None)

    def start(self, part: Part, stage: Stage) -> None:
        """Turn to a part of the plan; it counts as begun with the first `admit`."""
        self._sendings.start(part, stage)

    async def admit(self, read_clocks: Callable[[], ClockReading]) -> None:
        """Note that a request of the part is about to be sent; when it returns, that is stored.

        Args:
            read_clocks: returns the present moment.
        """
        await self._store_outcomes()
        async with self._writing:
            await self._sendings.admit(read_clocks())

    def check_sendable(self, now: ClockReading) -> None:
        """Make sure that a request may be sent at this moment; call it directly before the bytes go out.

        Raises:
            NoLongerSendable: it was admitted too long ago, and another process may have taken up the state.
        """
        self._sendings.check_sendable(now)

    async def finish(self, *, in_doubt: bool, complete: bool) -> None:
        """Note that the part is over.

        Args:
            in_doubt: whether rows without a recorded outcome may have been sent.
            complete: whether all rows have a result.
        """
        await self._store_outcomes()
        await self._sendings.finish(in_doubt=in_doubt, complete=complete)

    async def begin_writes(self) -> None:
        """Settle what an earlier sync left, before requests beside the syncs are noted."""
        await self.settle()
        self._writes, self._late_before = await self._records.count_writes(), self._about.late

    async def note_writes(self, written: WrittenIdentifiers, now: ClockReading, *, adds: bool) -> None:
        """Note that a request beside the syncs is about to be sent; when it returns, that is stored.

        Args:
            written: the identifiers that it names and that are not noted.
            now: the present moment.
            adds: whether it may add users.
        """
        async with self._writing:
            self._about = attrs.evolve(self._about, late=now.note)
            changes: dict[Key, bytes | None] = {("about", 1): encode(describe_about(self._about))}
            if written:
                changes["write", self._writes + 1] = encode(describe_written(written, adds=adds))
            await self._store.commit(changes)  # the next number only if this one is stored
            self._writes += bool(written)
            self._noted_at = now.boottime

    def check_writable(self, now: ClockReading) -> None:
        """Make sure that a request beside the syncs may be sent at this moment.

        Raises:
            NoLongerSendable: it was noted too long ago, and another process may have taken up the state.
        """
        check_sendable(self._noted_at, now.boottime)

    async def end_writes(self) -> None:
        """Note that no request that was noted can take effect any more."""
        self._about = attrs.evolve(self._about, late=self._late_before)
        await self._store.commit({("about", 1): encode(describe_about(self._about))})

    async def find_sent(self, governor: str) -> Mapping[Part, Sequence[datetime]]:
        """Return when the last requests of each part were sent that a governor has not counted.

        They are never fewer than were sent, and no time is earlier than it was. What is admitted from now on is counted
        by this governor; if it also counted the last request, it has counted all.

        Args:
            governor: identifies it among those of all processes.
        """
        return await self._sendings.find_sent(governor)

    def record_accepted(self, part: Part, numbers: Sequence[int]) -> None:
        """Record rows that the service accepted."""
        self._outcomes.add(part, RowOutcome.ACCEPTED, numbers)

    def record_failed(self, part: Part, numbers: Sequence[int]) -> None:
        """Record rows that certainly had no effect; on the list they are as before."""
        self._outcomes.add(part, RowOutcome.NO_EFFECT, numbers)

    def record_unknown(self, part: Part, numbers: Sequence[int]) -> None:
        """Record rows that failed after they were sent, so that they may be on the list; they are in doubt."""
        self._outcomes.add(part, RowOutcome.UNKNOWN, numbers)

    def record_service_keys(self, service_keys: Mapping[bytes, str]) -> None:
        """Record the service's own keys of upserts, by their key."""
        self._outcomes.add_service_keys(service_keys)

    async def settle(self, *, on_page: OnPage = _ignore_page) -> None:
        """Apply the recorded outcomes to the state; rows of the plan without one are in doubt from now on.

        It is done completely or not at all; the next `compare` repeats it if it was not.

        Args:
            on_page: called with each page that is written.
        """
        await self._store_outcomes()
        if await self._records.has_plan():
            with report_unwritable(self.folder):
                self._about = await settle(self._records, self._about, await self._sendings.read(), on_page)
            self._outcomes.clear()
            await self._records.shrink()

    async def _compare_pages(self, comparison: Comparison, find_linked: FindLinked, on_page: OnPage) -> Plan:
        pages, found = self._about.pages, Counter[Reason]()
        rows = max(self._about.rows, len(comparison.selection.codes))
        comparison.pages = min(max(pages, count_pages(rows)), comparison.spill.buckets)
        present, late_removals, removals, done = 0, False, Counter[Stage](), 0
        async for part, page in self._records.read_parts(pages, comparison.pages):
            on_page(done, comparison.pages)
            done += 1
            delta = compare_page(page, comparison.spill.read(part, comparison.pages), comparison.rules)
            if delta.changes_page or comparison.pages > pages:
                comparison.keep(part, delta)
            found += delta.reasons
            comparison.listed += delta.listed
            present += delta.present
            late_removals |= delta.late_removals
            comparison.keep_clashing(delta)
            removals.update(delta.count_removals())
        if comparison.is_linked and (removals.total() or comparison.has_writes):
            found["linked"] = await select_linked(comparison, self._records, pages, find_linked)
        has_late_writes = comparison.has_writes and comparison.rules.late  # of rows that the state may not know
        if has_late_writes or (comparison.is_linked and (late_removals or removals["later"])):
            comparison.selection.defer()
        return _build_plan(comparison, found, present, removals)

    async def _write_pages(self, writer: PageWriter, comparison: Comparison, about: About, on_page: OnPage) -> None:
        """Write the pages that change, with all that is planned in doubt, and what is planned."""
        pages, done = self._about.pages, 0
        for index in range(pages):
            if index not in comparison.deltas:  # all are in it if their number grows
                continue
            whole = await self._records.read_page(index, pages)
            for part, page in whole.divide(index, pages, about.pages):
                on_page(done, about.pages)
                done += 1
                delta = comparison.read_delta(part) or Delta()
                planned = apply_delta(
                    page,
                    delta,
                    expires=about.expires,
                    late=comparison.rules.late,
                    read_name=comparison.spill.read_name,
                )
                await writer.write_page(part, about.pages, page)
                if planned:
                    await writer.write_plan(part, about.pages, planned)
                await asyncio.sleep(0)
            if about.pages > pages:
                await writer.delete_page(index, pages)

    async def _store_outcomes(self) -> None:
        """Store the outcomes that wait, in one transaction."""
        async with self._writing:
            if self._outcomes:
                changes = self._outcomes.collect()
                await self._store.commit(changes)
                self._outcomes.drop(changes)


def _build_plan(comparison: Comparison, found: Counter[Reason], present: int, removals: Counter[Stage]) -> Plan:
    sent = found["addition"] + found["change"] + found["refresh"] + found["linked"]
    listed, selection = comparison.listed, comparison.selection
    return Plan(
        present=present,
        listed=listed,
        additions=found["addition"],
        changes=found["change"],
        refreshes=found["refresh"],
        removals=found["removal"],
        doubtful=found["doubtful"],
        unchanged=listed - sent,
        kept=found["kept"],
        invalid_rows=sum(map(selection.count, STAGES)) - sent,
        all_removals=removals.total(),
        size=round(comparison.size * sent / listed) if listed else 0,
        waiting_removals=removals["later"],
        waiting_upserts=selection.count("later"),
        linked=found["linked"],
        clashing=len(comparison.clashing) - comparison.clashing.count(0),
    )


@attrs.frozen
class Removals:
    """The rows to remove in a stage, some at a time; they can be iterated again.

    Attributes:
        state: the state that lists them.
        stage: the stage.
        first: how many removals there are before.
    """

    state: SyncState
    stage: Stage
    first: int

    def __aiter__(self) -> AsyncIterator[Sequence[Removal]]:
        return self.state.removals(self.stage)

    async def each(self) -> AsyncIterator[tuple[int, Removal]]:
        """Yield each of them with its position, which counts those of the stage."""
        async for removals in self:
            for removal in removals:
                yield removal.number - self.first, removal

    def record_missing(self, positions: Iterable[int]) -> None:
        """Record rows that need not be removed, because the list does not have them."""
        self.state.record_accepted("removals", [self.first + position for position in positions])


FORMAT = FileFormat(
    kind="a sync state",
    parameter="state",
    application_id=0x73766373,
    version=7,
    has_log=False,  # a transaction may be as large as the file
    shrinks=True,
    restore=Hint.SYNC_ANEW,
    give=Hint.GIVE_A_STATE,
)


_STATE = instance_of((str, Path, SharedSyncs), "the path of a file or a shared state, such as SharedState.open(url)")


def check_location(location: Any) -> StateLocation:
    """Check what a sync is given as its state, before it reads its source, and return it.

    Raises:
        InvalidArgument: it is neither the path of a file nor a shared state, or no file can have the path.
    """
    _STATE.check("state", location)
    if isinstance(location, str | Path):
        FORMAT.check_path(location)
    found: StateLocation = location
    return found


def check_shared(location: object) -> None:
    """Check that the state of a sync on a cluster is shared: a later sync may begin on another machine.

    Raises:
        InvalidArgument: it is in a file.
    """
    if isinstance(location, str | Path):
        raise InvalidArgument("state", "must be the shared state where cluster= is given: SharedState.open()")


@asynccontextmanager
async def open_sync_state(location: StateLocation, target: str) -> AsyncGenerator[SyncState]:
    """Open the state of a list, or create it.

    Args:
        location: where it is.
        target: the list and its host.

    Raises:
        UnusableFile: the file belongs to another list, is locked, or cannot be used.
        SvcError: the shared state cannot be used.
    """
    place: RecordLocation
    if isinstance(location, str | Path):
        place, folder = FileLocation(Path(location), FORMAT), Path(location).parent
    else:
        place, folder = location.open_sync_tables(target), Path(tempfile.gettempdir())
    _, store = await place.open(lambda _: (None, {}), kinds=())
    try:
        async with SyncState(store, place, target=target, folder=folder) as state:
            yield state
    finally:
        await store.close()
