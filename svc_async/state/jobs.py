"""Jobs on a cluster in PostgreSQL: what was planned under a name, and what became of each shard.

A job is taken up by each run of it, which raises its run number. Workers of an earlier run find that out and stop; what
they must not send any more is fenced by the journals of the shards.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import attrs

from svc_async.batch.journal.record import JournalRecord, merge_records
from svc_async.printable import clean
from svc_async.state.database import Database
from svc_async.state.errors import TakenUpElsewhere, UnusableState
from svc_async.state.journals import StateJournal

if TYPE_CHECKING:
    from svc_async.state.database import Connection

__all__ = ["JobRun", "JobStore", "make_damage_error", "prune_jobs"]

_MOST_SHARDS = 100_000
"""Shards of which the journals are read."""
_REPORTS_TOGETHER = 16
"""Reports that are read at once."""


@attrs.frozen(kw_only=True)
class JobRun:
    """One run of a job.

    Attributes:
        number: counts the runs from 1.
        plan: what the first run has planned.
        shards: how many shards each part of the job has.
    """

    number: int
    plan: Mapping[str, Any]
    shards: Sequence[int]


@attrs.frozen
class JobStore:
    """The jobs of a database.

    Attributes:
        database: the connections.
    """

    database: Database

    async def find_plan(self, name: str) -> Mapping[str, Any] | None:
        """Return what was planned for a job; None if there is no such job.

        Raises:
            StateUnavailable: the database cannot be reached.
            UnusableState: it is damaged.
        """
        row = await self.database.fetch_row("SELECT plan FROM cluster_jobs WHERE name = $1", name)
        return None if row is None else _load_object(name, row["plan"])

    async def find_record(self, name: str) -> JournalRecord | None:
        """Return what the journals of the shards of a job say together; None if there is no such job.

        Raises:
            StateUnavailable: the database cannot be reached.
            UnusableState: a journal is damaged.
        """
        row = await self.database.fetch_row("SELECT shards FROM cluster_jobs WHERE name = $1", name)
        if row is None:
            return None
        journal, planned = StateJournal.of_job(name, self.database), sum(row["shards"])
        shards = [await journal.shard(number).find() for number in range(min(planned, _MOST_SHARDS))]
        return merge_records(name, [each for each in shards if each is not None], planned=planned)

    async def take_up(
        self, name: str, *, about: Mapping[str, Any], plan: Mapping[str, Any], shards: Sequence[int]
    ) -> JobRun:
        """Begin a job, or another run of it.

        Args:
            name: the job.
            about: what identifies it, as values for JSON.
            plan: its files and fragments, likewise.
            shards: how many shards each part of a new job has.

        Raises:
            StateUnavailable: the database cannot be reached.
            UnusableState: the name belongs to another job, or what is stored under it is damaged.
        """
        async with self.database.transaction() as connection:
            row = await connection.fetchrow(
                "INSERT INTO cluster_jobs (name, about, plan, shards) VALUES ($1, $2, $3, $4) "
                "ON CONFLICT (name) DO UPDATE SET run = cluster_jobs.run + 1, stopped = false, "
                "active_at = clock_timestamp() RETURNING about, plan, run, shards",
                name,
                json.dumps(about),
                json.dumps(plan),
                list(shards),
            )
            if row is None:
                raise _make_error(name, "was deleted meanwhile; run the job again")
            _check_same(name, _load_object(name, row["about"]), json.loads(json.dumps(about)))
        return JobRun(number=row["run"], plan=_load_object(name, row["plan"]), shards=row["shards"])

    async def list_reports(self, name: str) -> AsyncIterator[tuple[int, Mapping[str, Any]]]:
        """Yield the number and the report of each shard that is finished; each report may list thousands of failures.

        Raises:
            StateUnavailable: the database cannot be reached.
            UnusableState: one of them is damaged.
        """
        statement = "SELECT shard, report FROM cluster_results WHERE job = $1 AND shard > $2 ORDER BY shard LIMIT $3"
        last = -1
        while found := await self.database.fetch(statement, name, last, _REPORTS_TOGETHER):
            for each in found:
                last = each["shard"]
                yield last, _load_object(name, each["report"])

    async def check_run(self, name: str, run: int) -> None:
        """Check that a run of a job is the last one and was not stopped.

        Raises:
            TakenUpElsewhere: another run has begun, or this one was stopped.
            UnusableState: there is no such job here.
            StateUnavailable: the database cannot be reached.
        """
        row = await self.database.fetch_row("SELECT run, stopped FROM cluster_jobs WHERE name = $1", name)
        if row is None:
            raise _make_error(name, "is not in the shared state of the worker, which must be that of whoever began it")
        if row["run"] != run or row["stopped"]:
            raise TakenUpElsewhere(f"the job {clean(name)}")

    async def stop(self, name: str, run: int) -> None:
        """Have the workers of a run stop.

        Raises:
            StateUnavailable: the database cannot be reached.
        """
        await self.database.execute("UPDATE cluster_jobs SET stopped = true WHERE name = $1 AND run = $2", name, run)

    async def finish_shard(self, name: str, shard: int, report: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Store the report of a shard of which nothing is left to do; one that is there already stays, and is returned.

        Raises:
            StateUnavailable: the database cannot be reached.
            UnusableState: what is there is damaged.
        """
        found = None
        async with self.database.transaction() as connection:
            status = await connection.execute(
                "INSERT INTO cluster_results (job, shard, report) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
                name,
                shard,
                json.dumps(report),
            )
            await connection.execute("UPDATE cluster_jobs SET active_at = clock_timestamp() WHERE name = $1", name)
            if status.endswith(" 0"):
                statement = "SELECT report FROM cluster_results WHERE job = $1 AND shard = $2"
                found = await connection.fetchrow(statement, name, shard)
        return None if found is None else _load_object(name, found["report"])


async def prune_jobs(connection: "Connection", before: datetime) -> int:
    """Delete the jobs of which all shards are finished, and that were last active before a moment; return how many."""
    status = await connection.execute(
        "DELETE FROM cluster_jobs WHERE active_at < $1 AND ("
        "SELECT count(*) FROM cluster_results WHERE job = name"
        ") >= (SELECT sum(number) FROM unnest(shards) AS number)",
        before,
    )
    return int(status.split()[-1])


def make_damage_error(name: str) -> UnusableState:
    """Return the error that says that what is stored under the name of a job is damaged."""
    return _make_error(name, "is damaged; begin a job of another name, after the quarantine")


def _load_object(name: str, text: str) -> Mapping[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise make_damage_error(name)
    return found


def _check_same(name: str, stored: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    names = sorted(each for each in {*stored, *given} if stored.get(each) != given.get(each))
    if names:
        differing = ", ".join(map(clean, names))
        problem = f"belongs to another job, or its source has changed (other: {differing}); a new job needs a new name"
        raise _make_error(name, problem)


def _make_error(name: str, problem: str) -> UnusableState:
    return UnusableState(clean(name), problem, parameter="job")
