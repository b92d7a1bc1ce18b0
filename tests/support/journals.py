"""Journals in files and in PostgreSQL; and such that die or run out of space when a test says so."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, closing, nullcontext
from pathlib import Path
from typing import Any, Protocol, TypeVar

import attrs
import pytest

from svc_async.batch.destination import Verdict
from svc_async.batch.journal.file import JournalFile, Journals
from svc_async.batch.journal.journal import (
    JournalLedger,
    JournalLocation,
    JournalPath,
    JournalUnwritable,
)
from svc_async.batch.journal.record import JournalRecord
from svc_async.batch.journal.records import KINDS, JournalChanges
from svc_async.batch.packing.batch import Batch, Limits, OperationGroup
from svc_async.batch.settings import BatchSettings
from svc_async.errors import ErrorDetail, Hint, SvcError, UnusableFile, UnusableState
from svc_async.sandbox import VirtualClock
from svc_async.state import SharedState
from svc_async.state.journals import StateJournal
from svc_async.store.records import Begin, Changes, Records, RecordStore
from svc_async.wire.route import Request, Route

__all__ = [
    "EVERYWHERE",
    "FAST",
    "FEW",
    "FULL_DISK",
    "UNUSABLE",
    "Death",
    "Nowhere",
    "Place",
    "create_empty_job",
    "execute",
    "hold_clock",
    "list_spooled",
    "make_journal",
    "read_record",
    "write_note",
]

T = TypeVar("T")

EVERYWHERE = pytest.mark.parametrize("place", ["file", "state"], indirect=True)
"""Has a test keep its journals in a file and in PostgreSQL, also if it is short."""

FEW = pytest.mark.parametrize("few", [True, pytest.param(False, marks=pytest.mark.long)])
"""Has a test kill a job at few of its commits, or in `nox -s long` at many."""

UNUSABLE = (UnusableFile, UnusableState)
"""What is raised if a journal cannot be used."""
FAST = ("PRAGMA wal_autocheckpoint = 3", "PRAGMA synchronous = OFF")
"""Restarts the write-ahead log every few commits, and does not wait for the disk."""
FULL_DISK = ("PRAGMA max_page_count = 1",)
"""Leaves no page besides those in use."""


@attrs.frozen
class Place:
    """Where the journals of a test are kept.

    Attributes:
        state: a shared state; None for files.
    """

    folder: Path
    state: SharedState | None = None

    def journal(self, name: str) -> JournalLocation:
        """Return the journal of this name."""
        if self.state is None:
            return JournalFile(self.folder / name)
        return self.state.journal(f"{self.folder}/{name}")  # no other test has one of this name

    @property
    def grace(self) -> float:
        """How much longer a new owner waits after a kill than a quarantine."""
        return 0.0 if self.state is None else 11.0

    def choose(self, *commits: int, few: bool) -> Sequence[int]:
        """Return which commits to die at: of many, only some, and of those in a database, which take longer, fewer."""
        chosen = range(*commits)
        if few:
            return [each for each in (3, 13, 999) if each in chosen]
        if self.state is None:
            return [each for each in chosen if each < 20 or each % 5 == 0]
        return [each for each in (1, 2, 3, 5, 8, 13, 21, 34, 55, 999) if each in chosen]


async def read_record(journal: JournalLocation) -> JournalRecord:
    """Return what a journal says."""
    if isinstance(journal, StateJournal):
        return await journal.read()
    assert isinstance(journal, JournalFile)
    return JournalRecord.read(journal.path)


async def list_spooled(journal: JournalLocation) -> Sequence[int]:
    """Return the numbers of the records of spooled rows."""
    if isinstance(journal, JournalFile):
        records = journal.read(kinds=("row",))
    else:
        assert isinstance(journal, StateJournal)
        found = await journal.find_records(kinds=("row",))
        assert found is not None
        records = found.records
    return sorted(number for _, number in records.bodies)


async def execute(journal: JournalLocation, statement: str) -> None:
    """Change records of journals behind their back; in a database, those of all of them."""
    if isinstance(journal, StateJournal):
        await journal.database.execute(statement)
        return
    assert isinstance(journal, JournalFile)
    with closing(sqlite3.connect(journal.path)) as database, database:
        assert database.execute(statement).rowcount == 1


class HoldableClock(Protocol):
    """A clock that jumps while nothing holds it."""

    def hold(self) -> AbstractContextManager[object]: ...


@attrs.frozen
class _Wrapped:
    """Another place, whose commits go through a function."""

    inner: JournalLocation
    wrap: Callable[[RecordStore], Any]
    hold: Callable[[], AbstractContextManager[object]] = nullcontext

    @property
    def name(self) -> str:
        return self.inner.name

    async def open(self, begin: Begin[T], *, kinds: Collection[str] | None = None) -> tuple[T, RecordStore]:
        with self.hold():
            result, store = await self.inner.open(begin, kinds=kinds)
        return result, self.wrap(store)

    @property
    def most_spooled(self) -> float:
        return self.inner.most_spooled

    def make_error(self, problem: str, hint: Hint | None = None) -> SvcError:
        return self.inner.make_error(problem, hint)

    def make_damage_error(self) -> SvcError:
        return self.inner.make_damage_error()


@attrs.frozen
class _HeldStore:
    """Lets no time pass while it commits."""

    inner: RecordStore
    hold: Callable[[], AbstractContextManager[object]]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def commit(self, changes: Changes, *, is_last: bool = False, confirms: bool = False) -> None:
        with self.hold():
            await self.inner.commit(changes, is_last=is_last, confirms=confirms)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        with self.hold():
            async with self.inner.transaction() as writer:
                yield writer

    async def close(self) -> None:
        with self.hold():
            await self.inner.close()


def hold_clock(journal: JournalPath, clock: HoldableClock) -> JournalPath:
    """Let no time of a clock that jumps pass while a database commits: it would take minutes."""
    if not isinstance(journal, StateJournal):
        return journal
    return _Wrapped(journal, lambda store: _HeldStore(store, clock.hold), clock.hold)


@attrs.frozen
class Nowhere:
    """A destination that nothing is sent to."""

    host: str
    limits: Limits = attrs.field(factory=lambda: Limits(operations=4, size=1_000))

    @property
    def about(self) -> Mapping[str, Any]:
        return {"host": self.host, "destination": "nothing"}

    @property
    def empty(self) -> Request[None]:
        return Route("POST", "/nowhere", None)()

    def parse_group(self, plain: Any) -> OperationGroup:
        raise NotImplementedError

    def build_request(self, batch: Batch) -> Request[None]:
        return self.empty.with_body(batch.write_body())

    def evaluate(self, _: None, __: Batch) -> Verdict:
        return Verdict()

    def name_rows(self, _: Batch) -> Sequence[str | None]:
        return ()

    def redact(self, reason: ErrorDetail, _: str) -> ErrorDetail:
        return reason


def create_empty_job(journal: JournalLocation, host: str = "nowhere") -> JournalLedger:
    """Return the ledger of a job without rows, with two lanes."""
    ledger = JournalLedger(
        journal, destination=Nowhere(host), settings=BatchSettings(concurrency=2), clock=VirtualClock()
    )
    ledger.lanes = 2
    return ledger


class Death:
    """Ends the writing of journals at one of their commits, before or after it.

    Attributes:
        commit: the number of the commit, from 1; may be set later.
        happened: whether the journal that was opened last is dead.
    """

    def __init__(self, commit: int, *, after: bool = False) -> None:
        self.commit = commit
        self._after = after
        self._commits = 0
        self.happened = False

    def wrap(self, journal: JournalPath) -> JournalLocation:
        """Return the place of a journal that dies."""
        assert not isinstance(journal, Journals)
        return _Wrapped(JournalFile(journal) if isinstance(journal, str | Path) else journal, self._wrap)

    def _wrap(self, store: RecordStore) -> Any:
        self._commits, self.happened = 0, False
        return _DyingStore(store, self)

    def count(self) -> bool:
        """Count a commit; return whether it is still done."""
        self._commits += 1
        self.happened = self._commits >= self.commit
        return not self.happened or (self._after and self._commits == self.commit)


@attrs.frozen
class _DyingStore:
    inner: RecordStore
    death: Death

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def submit(self, changes: Changes) -> None:
        if self.death.count():
            self.inner.submit(changes)

    async def commit(self, changes: Changes, *, is_last: bool = False, confirms: bool = False) -> None:
        if self.death.count():
            await self.inner.commit(changes, is_last=is_last, confirms=confirms)
        if self.death.happened:
            raise JournalUnwritable("killed")

    async def close(self) -> None:
        await self.inner.close()


async def write_note(journal: JournalLocation, note: Mapping[str, Any]) -> None:
    """Begin a journal with the description of a job, and with nothing else."""

    def begin(records: Records) -> tuple[None, Changes]:
        changes = JournalChanges(records)
        changes.put_note(note)
        return None, changes.take()

    _, store = await journal.open(begin, kinds=KINDS)
    await store.close()


def make_journal(path: str | Path, *statements: str) -> JournalFile:
    """Return the journal in a file on which statements are executed once it is open."""

    class Connection(sqlite3.Connection):
        commits = 0

        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            cursor = super().execute(sql, parameters)
            self.commits += sql == "COMMIT"
            if sql == "COMMIT" and self.commits == _OPENING:
                for statement in statements:
                    super().execute(statement)
            return cursor

    return JournalFile(path, Connection)


_OPENING = 2
"""Commits that open a journal: its tables, and the run."""
