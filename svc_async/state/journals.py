"""Journals in PostgreSQL: the records of a file, fenced by epochs instead of a lock.

Taking up a journal raises its epoch, in the transaction that also records that a run has begun. Every later write of
the run holds the row of the journal and checks the epoch, so a run that was replaced while it was stopped can commit
nothing more, and ends with `TakenUpElsewhere`. What it has sent by then is in doubt for the run that replaced it.

If the connection of a transaction is lost, nobody knows whether it was committed. It is done again on another one then,
since records are replaced as a whole and the epoch is checked again; after some seconds the run ends.
"""

import os
import socket
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeVar

import attrs

from svc_async.batch.journal.record import JournalRecord
from svc_async.batch.journal.records import JobState, JournalRecords
from svc_async.batch.journal.store import Begin, JournalStore
from svc_async.errors import UnusableState
from svc_async.state.journal_store import JournalRun, StateStore
from svc_async.store.records import MAX_SIZE, DamagedRecord, check_all
from svc_async.value_rules import NAME

if TYPE_CHECKING:
    import asyncpg

    from svc_async.store.postgres import Connection, Database

__all__ = ["JournalSummary", "StateJournal", "list_journals", "prune_journals"]

T = TypeVar("T")

_RETRY_PAUSES = (0.1, 0.5, 1.0, 2.0, 4.0)
_LONGEST_SILENCE = timedelta(seconds=60)
"""A run that has not committed for so long is shown as stopped; it is fenced in any case."""
_ADVICE = "delete it after the quarantine and run the job again: what the service has already is sent once more"


@attrs.frozen
class StateJournal:
    """The journal of one job in a shared state: a value of `journal=`.

    Attributes:
        name: the name of the job.
        database: the shared state.
        retry_pauses: seconds before each repeat of a commit whose connection was lost.
    """

    name: str
    database: "Database" = attrs.field(repr=False)
    retry_pauses: Sequence[float] = attrs.field(default=_RETRY_PAUSES, repr=False, kw_only=True)

    @classmethod
    def of_job(cls, name: str, database: "Database") -> "StateJournal":
        """Return the journal of a job.

        Raises:
            InvalidArgument: it is no name of 1 to 200 printable characters.
        """
        NAME.check("job", name)
        return cls(name, database)

    def shard(self, number: int) -> "StateJournal":
        """Return the journal of one part of the job."""
        return attrs.evolve(self, name=f"{self.name}/{number:04}")

    async def open(self, begin: Begin[T]) -> tuple[T, JournalStore]:
        """Take up the journal for one run, or create it; whoever had it before can commit nothing more.

        Raises:
            StateUnavailable: the database cannot be reached.
            UnusableState: the journal belongs to another job, or is damaged.
        """
        async with self.database.transaction() as connection:
            (row,) = await connection.fetch(_TAKE_UP, self.name, f"{socket.gethostname()} process {os.getpid()}")
            run = JournalRun(name=self.name, database=self.database, pauses=self.retry_pauses, **row)
            result, changes = begin(await self._load(connection, run.id))
            await run.write(connection, changes)
        return result, StateStore(run)

    def make_error(self, problem: str) -> UnusableState:
        """Return the error that says why the journal cannot be used."""
        return UnusableState(self.name, problem, parameter="journal")

    async def read(self) -> JournalRecord:
        """Return what the journal says; nothing in it is changed, and a run that has it is not disturbed.

        Raises:
            StateUnavailable: the database cannot be reached.
            UnusableState: there is no such journal, or it is damaged.
        """
        record = await self.find()
        if record is None:
            raise self.make_error("does not exist")
        return record

    async def find(self) -> JournalRecord | None:
        """Return what the journal says, as `read` does; None if there is no such journal.

        Raises:
            StateUnavailable: the database cannot be reached.
            UnusableState: it is damaged.
        """
        async with self.database.transaction(is_snapshot=True) as connection:
            row = await connection.fetchrow(_FIND, self.name)
            if row is None:
                return None
            records = await self._load(connection, row["id"])
        state = records.load("job", 0, JobState) if records.has("job") else None
        is_running = _is_running(state, row["silence"])
        return attrs.evolve(JournalRecord.parse(self.name, records, is_running=is_running), owner=row["owner"])

    async def _load(self, connection: "Connection", journal: int) -> JournalRecords:
        if await connection.fetchval(_MEASURE, journal) > MAX_SIZE:
            raise self.make_damage_error()
        try:
            return JournalRecords(
                check_all(map(tuple, await connection.fetch(_SELECT, journal))), self.make_damage_error
            )
        except DamagedRecord:
            raise self.make_damage_error() from None

    def make_damage_error(self) -> UnusableState:
        """Return the error that says that the journal is damaged, and what to do with it."""
        return self.make_error(f"is damaged; {_ADVICE}")


@attrs.frozen(kw_only=True)
class JournalSummary:
    """One journal of a shared state.

    Attributes:
        name: the name of the job.
        owner: the host and the process that have taken it up last.
        running: whether they use it now.
        finished: whether nothing is left to do.
        accepted: rows that the service confirmed.
        active_at: when it was last written.
    """

    name: str
    owner: str
    running: bool
    finished: bool
    accepted: int
    active_at: datetime

    @property
    def state(self) -> Literal["running", "finished", "stopped"]:
        """What the job does now."""
        if self.running:
            return "running"
        return "finished" if self.finished else "stopped"


async def list_journals(database: "Database", *, most: int = 1_000) -> Sequence[JournalSummary]:
    """Return the journals of a shared state, beginning with the one that was written last.

    Raises:
        StateUnavailable: the database cannot be reached.
        UnusableState: one of them is damaged.
    """
    rows = await database.fetch(_LIST, most)
    return [_summarize(row, database) for row in rows]


def _summarize(row: "asyncpg.Record", database: "Database") -> JournalSummary:
    state = None
    if row["body"] is not None:
        make_damage_error = StateJournal(row["name"], database).make_damage_error
        state = JournalRecords({("job", 0): row["body"]}, make_damage_error).load("job", 0, JobState)
    return JournalSummary(
        name=row["name"],
        owner=row["owner"],
        running=_is_running(state, row["silence"]),
        finished=row["finished"],
        accepted=0 if state is None else state.counts.accepted,
        active_at=row["active_at"],
    )


def _is_running(state: JobState | None, silence: timedelta) -> bool:
    """Return whether the last run has not ended, and has committed lately."""
    return state is not None and not state.finished and state.end is None and silence < _LONGEST_SILENCE


async def prune_journals(connection: "Connection", before: datetime) -> int:
    """Delete the journals of finished jobs that were last written before a moment; return how many.

    Those of the parts of a job are deleted together, when all of them are finished; of a job on a cluster, once the job
    itself was deleted: it may have parts that have not begun.
    """
    return int(await connection.fetchval(_PRUNE, before))


_TAKE_UP = """
    INSERT INTO journals (name, epoch, owner) VALUES ($1, 1, $2)
    ON CONFLICT (name) DO UPDATE
        SET epoch = journals.epoch + 1, owner = excluded.owner, active_at = clock_timestamp()
    RETURNING id, epoch, clock_timestamp() - confirmed_at AS silence
"""
_FIND = "SELECT id, owner, clock_timestamp() - active_at AS silence FROM journals WHERE name = $1"
_MEASURE = """
    SELECT coalesce(sum(octet_length(body) + octet_length(kind) + 100), 0) FROM journal_records WHERE journal = $1
"""
"""About the memory that the records take: without the 100 bytes, any number of empty ones would be read."""
_SELECT = "SELECT kind, number, body, checksum FROM journal_records WHERE journal = $1"
_LIST = """
    SELECT name, owner, finished, active_at, clock_timestamp() - active_at AS silence, body
    FROM journals LEFT JOIN journal_records ON journal = id AND kind = 'job' AND number = 0
    ORDER BY active_at DESC LIMIT $1
"""
_PRUNE = """
    WITH pruned AS (
        DELETE FROM journals AS old WHERE finished AND active_at < $1 AND NOT EXISTS (
            SELECT FROM stores WHERE what = 'job' AND stores.name = old.job
        ) AND NOT EXISTS (
            SELECT FROM journals AS part
            WHERE part.job = old.job AND (NOT part.finished OR part.active_at >= $1)
        ) RETURNING 1
    ) SELECT count(*) FROM pruned
"""
