"""Journals in a shared state: the records of a file, fenced by epochs instead of a lock; see `store/postgres.py`.

What a run that was replaced has sent by then is in doubt for the run that replaced it.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeVar

import attrs

from svc_async.batch.journal.record import JournalRecord
from svc_async.batch.journal.records import KINDS, JobState
from svc_async.errors import Hint
from svc_async.store.postgres import PostgresLocation
from svc_async.store.records import Records
from svc_async.value_rules import NAME

if TYPE_CHECKING:
    import asyncpg

    from svc_async.store.postgres import Connection, Database

__all__ = ["JournalSummary", "StateJournal", "list_journals", "prune_journals"]

T = TypeVar("T")

_LONGEST_SILENCE = timedelta(seconds=60)
"""A run that has not committed for so long is shown as stopped; it is fenced in any case."""


@attrs.frozen
class StateJournal(PostgresLocation):
    """The journal of one job in a shared state: a value of `journal=`.

    Attributes:
        name: the name of the job.
        database: the shared state.
        most_spooled: see `JournalLocation`.
    """

    most_spooled = 1_073_741_824
    what: Literal["journal"] = attrs.field(default="journal", init=False, repr=False)
    restore: Hint = attrs.field(default=Hint.SEND_AGAIN, init=False, repr=False)

    @classmethod
    def of_job(cls, name: str, database: "Database") -> "StateJournal":
        """Return the journal of a job.

        Raises:
            InvalidArgument: it is not a name of 1 to 200 printable characters.
        """
        NAME.check("job", name)
        return cls(name, database)

    def shard(self, number: int) -> "StateJournal":
        """Return the journal of one part of the job."""
        return attrs.evolve(self, name=f"{self.name}/{number:04}")

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
        found = await self.find_records(kinds=KINDS)
        if found is None:
            return None
        state = found.records.load("job", 0, JobState) if found.records.has("job") else None
        is_running = _is_running(state, found.silence)
        return attrs.evolve(JournalRecord.parse(self.name, found.records, is_running=is_running), owner=found.owner)


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
        state = Records({("job", 0): row["body"]}, make_damage_error).load("job", 0, JobState)
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


_LIST = """
    SELECT name, owner, finished, active_at, clock_timestamp() - active_at AS silence, body
    FROM stores LEFT JOIN records ON store = id AND kind = 'job' AND number = 0
    WHERE what = 'journal' ORDER BY active_at DESC LIMIT $1
"""
_PRUNE = """
    WITH pruned AS (
        DELETE FROM stores AS old WHERE what = 'journal' AND finished AND active_at < $1 AND NOT EXISTS (
            SELECT FROM stores AS whole WHERE whole.what = 'job' AND whole.name = old.job
        ) AND NOT EXISTS (
            SELECT FROM stores AS part
            WHERE part.what = 'journal' AND part.job = old.job AND (NOT part.finished OR part.active_at >= $1)
        ) RETURNING 1
    ) SELECT count(*) FROM pruned
"""
