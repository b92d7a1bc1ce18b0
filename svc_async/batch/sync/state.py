"""The state of a list between two syncs, in one SQLite file, so that only the differences need to be sent.

    whole snapshot → spill → compare page by page → Plan → begin → requests, outcomes → settle

The rows are packed in pages, which are compared and written as a whole, so memory stays flat whatever their number. A
comparison writes nothing to the file. `begin` marks all that is planned as in doubt, in one transaction: from then on
the file is true whatever happens, and outcomes only make it more certain.
"""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import attrs

from svc_async.batch.sync.pages.compare import Delta, compare_page
from svc_async.batch.sync.pages.file import FORMAT, About, RecordedOutcome, StateFile
from svc_async.batch.sync.pages.marks import NEVER, ComparisonRules, Reason, RowOutcome
from svc_async.batch.sync.pages.page import StatePage, count_pages
from svc_async.batch.sync.pages.planned import apply_delta
from svc_async.batch.sync.pages.selection import Selection
from svc_async.batch.sync.pages.settlement import settle
from svc_async.batch.sync.pages.spill import Blobs, Spill
from svc_async.batch.sync.plan import STAGES, Entries, Part, Plan, Removal, Stage, has_name
from svc_async.batch.sync.sending import ClockReading, find_rest
from svc_async.errors import UnusableFile

__all__ = ["SyncState"]

T = TypeVar("T")

_DAY = 86_400


@attrs.define
class _Comparison:
    """What a comparison found, until the plan is stored.

    Attributes:
        spill: the rows of the snapshot.
        blobs: the deltas of the pages.
        rules: what it went by.
        pages: how many pages there are to be.
        selection: the rows to send.
        listed: how many rows the snapshot has.
        deltas: where the delta of each page is.
        size: bytes of all rows of the snapshot.
        is_linked: whether removing a row of the snapshot might remove another one.
    """

    spill: Spill
    blobs: Blobs
    rules: ComparisonRules
    pages: int = 1
    selection: Selection = attrs.field(factory=Selection)
    listed: int = 0
    deltas: dict[int, tuple[int, int]] = attrs.field(factory=dict[int, tuple[int, int]])
    size: int = 0
    is_linked: bool = False

    def close(self) -> None:
        self.spill.close()
        self.blobs.close()

    def add(self, entries: Entries) -> None:
        """Add rows of the snapshot."""
        self.spill.add(entries)
        last = max([*entries.positions[-1:], *entries.invalid_rows[-1:]], default=-1)
        self.selection.extend_to(last + 1)
        self.selection.add(entries.invalid_rows, "now")
        self.size += entries.size
        self.is_linked |= entries.is_linked

    def keep(self, index: int, delta: Delta) -> None:
        """Keep what changes in a page, and select the rows to send."""
        written = delta.write()
        self.deltas[index] = self.blobs.add(written), len(written)
        self.selection.add(delta.upserts, "now")
        self.selection.add(delta.waiting, "later")

    def read_delta(self, index: int) -> Delta | None:
        """Return what changes in a page; None for nothing."""
        found = self.deltas.get(index)
        return None if found is None else Delta.read(self.blobs.read(*found))


class SyncState:
    """A `SyncStore` in a file; use it as a context manager.

    Args:
        path: the file; it is created if it does not exist.
        target: the list and its host; a file always belongs to the same list.
        factory: the class of the connection.

    Raises:
        UnusableFile: the file belongs to another list, is locked, or cannot be used.
    """

    def __init__(self, path: Path, *, target: str, factory: type[sqlite3.Connection] = sqlite3.Connection) -> None:
        self._file = StateFile(path, factory=factory)
        self._comparison: _Comparison | None = None
        self._selection = Selection()
        self._opened: ClockReading | None = None
        try:
            self._about = _read_about(self._file, target)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a plan that was not begun is discarded."""
        self._discard_comparison()
        self._file.close()

    async def compare(
        self,
        snapshot: AsyncIterable[Entries],
        *,
        now: ClockReading,
        soon: datetime,
        quarantine: float = 0.0,
        replace: bool = False,
    ) -> Plan:
        """Return what a whole snapshot changes; see `SyncStore`."""
        self._opened = self._opened or now
        await self.settle()
        self._discard_comparison()
        rules = ComparisonRules(
            today=int(now.now.timestamp() // _DAY),
            soon=int(-(-soon.timestamp() // _DAY)),
            replace=replace,
            late=self.find_rest(now, quarantine) > 0,
        )
        with _report_unusable(self._file.path):
            folder = self._file.path.parent
            comparison = _Comparison(Spill(folder, rows=self._about.rows), Blobs(folder), rules)
            self._comparison = comparison
            async for entries in snapshot:
                comparison.add(entries)
                await asyncio.sleep(0)
            comparison.spill.flush()
            return await self._compare_pages(comparison)

    async def begin(self, *, expires: datetime | None = None) -> None:
        """Store the plan; see `SyncStore`."""
        comparison = self._comparison
        if comparison is None:
            raise RuntimeError("nothing was compared")
        about = attrs.evolve(
            self._about,
            pages=comparison.pages,
            rows=comparison.listed,
            expires=NEVER if expires is None else _find_last_day(expires),
            late=self._about.late if comparison.rules.late else None,
        )
        with _report_unusable(self._file.path):
            async with self._file.transaction():
                await self._write_pages(comparison, about)
                self._file.write_selection(comparison.selection.codes)
                self._file.write_about(about)
        self._about, self._selection = about, comparison.selection
        self._discard_comparison()

    def removals(self, stage: Stage) -> Iterator[Removal]:
        """Iterate over the rows to remove; see `SyncStore`."""
        pages, number = self._about.pages, 0
        planned_pages = self._file.list_planned(pages)
        if stage == "later":
            number = sum(len(self._file.read_plan(index, pages).find_removals("now")) for index in planned_pages)
        for index in planned_pages:
            places = self._file.read_plan(index, pages).find_removals(stage)
            if places:
                page = self._file.read_page(index, pages)
                yield from (_describe_removal(page, place, each) for each, place in enumerate(places, number))
                number += len(places)

    def upserts(self, rows: Iterable[T], stage: Stage) -> Iterator[T]:
        """Select the rows to send from the rows of the snapshot; see `SyncStore`."""
        return self._selection.choose(rows, stage)

    def find_upserts(self, rows: range, stage: Stage) -> Sequence[int]:
        """Return which of some rows are sent in a stage; see `SyncStore`."""
        return self._selection.find(rows, stage)

    def find_position(self, number: int) -> int:
        """Return the position in the snapshot of an upsert."""
        return self._selection.find_position(number)

    def find_rest(self, now: ClockReading, quarantine: float) -> float:
        """Return for how many seconds requests of earlier runs may still take effect."""
        return find_rest(now, quarantine, sent=self._about.late, opened=self._opened or now)

    def forget_late(self, now: ClockReading, quarantine: float) -> None:
        """Note that requests of earlier runs can take effect no more, if that is so."""
        if not self.find_rest(now, quarantine):
            self._about = attrs.evolve(self._about, late=None)

    def start(self, part: Part, stage: Stage) -> None:
        """Turn to a part of the plan."""
        self._file.sendings.start(part, stage)

    async def admit(self, now: ClockReading) -> None:
        """Note that a request is about to be sent; see `SyncStore`."""
        self._file.sendings.admit(now)

    def finish(self, *, in_doubt: bool, complete: bool) -> None:
        """Note that the part is over, and no request of it is under way; see `SyncStore`."""
        self._file.sendings.finish(in_doubt=in_doubt, complete=complete)

    def find_sent(self, governor: str) -> Mapping[Part, Sequence[datetime]]:
        """Return when the last requests were sent that a governor has not counted; see `SyncStore`."""
        return self._file.sendings.find_sent(governor)

    def record_accepted(self, part: Part, numbers: Sequence[int]) -> None:
        """Record rows that the service accepted."""
        self._record(part, RowOutcome.ACCEPTED, numbers)

    def record_failed(self, part: Part, numbers: Sequence[int]) -> None:
        """Record rows that certainly had no effect."""
        self._record(part, RowOutcome.NO_EFFECT, numbers)

    def record_unknown(self, part: Part, numbers: Sequence[int]) -> None:
        """Record rows that failed after they were sent."""
        self._record(part, RowOutcome.UNKNOWN, numbers)

    def record_service_keys(self, service_keys: Mapping[bytes, str]) -> None:
        """Record the service's own keys of upserts, by their key."""
        self._file.write_service_keys((key, text.encode()) for key, text in service_keys.items())

    async def settle(self) -> None:
        """Apply the recorded outcomes, in one transaction; see `SyncStore`."""
        if self._file.has_plan:
            self._about = await settle(self._file, self._about)
            self._file.shrink()

    async def _compare_pages(self, comparison: _Comparison) -> Plan:
        pages, found = self._about.pages, Counter[Reason]()
        rows = max(self._about.rows, len(comparison.selection.codes))
        comparison.pages = min(max(pages, count_pages(rows)), comparison.spill.buckets)
        present, late_removals, removals = 0, False, Counter[Stage]()
        for index in range(pages):
            for part, page in self._file.read_page(index, pages).divide(index, pages, comparison.pages):
                delta = compare_page(page, comparison.spill.read(part, comparison.pages), comparison.rules)
                if delta.changes_page or comparison.pages > pages:
                    comparison.keep(part, delta)
                found += delta.reasons
                comparison.listed += delta.listed
                present += delta.present
                late_removals |= delta.late_removals
                removals.update(delta.count_removals())
                await asyncio.sleep(0)
        if comparison.is_linked and (late_removals or removals["later"]):
            comparison.selection.defer()
        return _build_plan(comparison, found, present, removals)

    async def _write_pages(self, comparison: _Comparison, about: About) -> None:
        """Write the pages that change, with all that is planned in doubt, and what is planned."""
        pages = self._about.pages
        for index in range(pages):
            if index not in comparison.deltas:  # all are in it if their number grows
                continue
            for part, page in self._file.read_page(index, pages).divide(index, pages, about.pages):
                delta = comparison.read_delta(part) or Delta()
                planned = apply_delta(
                    page,
                    delta,
                    expires=about.expires,
                    late=comparison.rules.late,
                    read_name=comparison.spill.read_name,
                )
                self._file.write_page(part, about.pages, page)
                if planned:
                    self._file.write_plan(part, about.pages, planned)
                await asyncio.sleep(0)
            if about.pages > pages:
                self._file.delete_page(index, pages)

    def _record(self, part: Part, outcome: RowOutcome, numbers: Sequence[int]) -> None:
        if numbers:
            self._file.write_outcome(RecordedOutcome(part, outcome, numbers))

    def _discard_comparison(self) -> None:
        if self._comparison is not None:
            self._comparison.close()
            self._comparison = None


def _read_about(file: StateFile, target: str) -> About:
    """Return what belongs to a file as a whole; a new file is begun."""
    about = file.read_about()
    if about is None:
        about = About(target)
        file.write_page(0, about.pages, StatePage())
        file.write_about(about)  # last: a file without it is begun again
    if about.target != target:
        raise UnusableFile(
            FORMAT.parameter,
            file.path,
            "belongs to another list, or to one of another host; each needs its own file",
        )
    return about


@contextmanager
def _report_unusable(path: Path) -> Generator[None]:
    """Report that the files beside a state cannot be written."""
    try:
        yield
    except OSError as error:
        raise UnusableFile(FORMAT.parameter, path, f"cannot be used: {error.strerror}") from None


def _describe_removal(page: StatePage, place: int, number: int) -> Removal:
    kind = page.flags[place] & 7
    name = page.names[place] if has_name(kind) else page.key(place) + page.rest(place)
    service_key = page.service_keys[place].decode() if page.service_keys else ""
    return Removal(number, kind, name, service_key or None)


def _build_plan(comparison: _Comparison, found: Counter[Reason], present: int, removals: Counter[Stage]) -> Plan:
    sent = found["addition"] + found["change"] + found["refresh"]
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
        invalid_rows=sum(map(selection.count, STAGES)) - sent,
        all_removals=removals.total(),
        size=round(comparison.size * sent / listed) if listed else 0,
        waiting_removals=removals["later"],
        waiting_upserts=selection.count("later"),
    )


def _find_last_day(expires: datetime) -> int:
    """Return the last day of which a row that expires then is on the list for some time; days count from 1970."""
    seconds = int(expires.astimezone(UTC).timestamp()) - 1
    return min(seconds // _DAY, NEVER - 1)
