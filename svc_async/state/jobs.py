"""Jobs on a cluster in PostgreSQL: what was planned under a name, and what became of each shard.

Each run takes up the records of the job, and its number is their epoch. Workers of an earlier run find out that the
epoch was raised, and stop; what they must not send any more is fenced by the journals of the shards.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import attrs

from svc_async.batch.journal.record import JournalRecord, merge_records
from svc_async.errors import Hint, UnusableState
from svc_async.printable import clean
from svc_async.state.journals import StateJournal
from svc_async.store.postgres import Database, PostgresLocation
from svc_async.store.records import Changes, DamagedRecord, Records, check_record, compute_checksum, decode, encode

if TYPE_CHECKING:
    from svc_async.store.postgres import Connection

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
        found = await _locate(name, self.database).find_records(kinds=("plan",))
        return None if found is None else _load_object(name, found.records.load("plan", 0, str))

    async def find_record(self, name: str) -> JournalRecord | None:
        """Return what the journals of the shards of a job say together; None if there is no such job.

        Raises:
            StateUnavailable: the database cannot be reached.
            UnusableState: a journal is damaged.
        """
        found = await _locate(name, self.database).find_records(kinds=("shards",))
        if found is None:
            return None
        journal, planned = StateJournal.of_job(name, self.database), sum(found.records.load("shards", 0, list[int]))
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
        location = _locate(name, self.database)
        given = {"about": json.dumps(about), "plan": json.dumps(plan), "shards": [*shards]}

        def begin(records: Records) -> tuple[Records, Changes]:
            if records.bodies:
                _check_same(location, _load_object(name, records.load("about", 0, str)), json.loads(json.dumps(about)))
                return records, {}
            bodies = {(kind, 0): encode(value) for kind, value in given.items()}
            return attrs.evolve(records, bodies=bodies), bodies

        records, store = await location.open(begin, kinds=given)
        await store.close()
        return JobRun(
            number=store.epoch,
            plan=_load_object(name, records.load("plan", 0, str)),
            shards=records.load("shards", 0, list[int]),
        )

    async def list_reports(self, name: str) -> AsyncIterator[tuple[int, Mapping[str, Any]]]:
        """Yield the number and the report of each shard that is finished; each report may list thousands of failures.

        Raises:
            StateUnavailable: the database cannot be reached.
            UnusableState: one of them is damaged.
        """
        last = -1
        while found := await self.database.fetch(_LIST_REPORTS, name, last, _REPORTS_TOGETHER):
            for each in found:
                last = each["number"]
                yield last, _load_report(name, *each)

    async def check_run(self, name: str, run: int) -> None:
        """Check that a run of a job is the last one and was not stopped.

        Raises:
            TakenUpElsewhere: another run has begun, or this one was stopped.
            UnusableState: there is no such job here.
            StateUnavailable: the database cannot be reached.
        """
        location = _locate(name, self.database)
        row = await self.database.fetch_row("SELECT epoch FROM stores WHERE what = 'job' AND name = $1", name)
        if row is None:
            problem = "is not in the shared state of the worker, which must be that of whoever began it"
            raise location.make_error(problem)
        if row["epoch"] != run:
            raise location.make_replaced_error()

    async def stop(self, name: str, run: int) -> None:
        """Have the workers of a run stop.

        Raises:
            StateUnavailable: the database cannot be reached.
        """
        await self.database.execute(_STOP, name, run)

    async def finish_shard(self, name: str, shard: int, report: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Store the report of a shard of which nothing is left to do; one that is there already stays, and is returned.

        Raises:
            StateUnavailable: the database cannot be reached.
            UnusableState: what is there is damaged.
        """
        body, found = encode(json.dumps(report)), None
        async with self.database.transaction() as connection:
            status = await connection.execute(_ADD, name, shard, body, compute_checksum("report", shard, body))
            await connection.execute(_TOUCH, name)
            if status.endswith(" 0"):
                found = await connection.fetchrow(_LIST_REPORTS, name, shard - 1, 1)
        return None if found is None else _load_report(name, *found)


_LIST_REPORTS = """
    SELECT number, body, checksum FROM records JOIN stores ON store = id
    WHERE what = 'job' AND name = $1 AND kind = 'report' AND number > $2 ORDER BY number LIMIT $3
"""
_ADD = """
    INSERT INTO records (store, kind, number, body, checksum)
    SELECT id, 'report', $2, $3, $4 FROM stores WHERE what = 'job' AND name = $1 ON CONFLICT DO NOTHING
"""
_TOUCH = "UPDATE stores SET active_at = clock_timestamp() WHERE what = 'job' AND name = $1"
_STOP = "UPDATE stores SET epoch = epoch + 1 WHERE what = 'job' AND name = $1 AND epoch = $2"
_LIST_OLD = """
    SELECT id, shards.body AS shards, (SELECT count(*) FROM records WHERE store = id AND kind = 'report') AS reports
    FROM stores JOIN records AS shards ON store = id AND kind = 'shards' WHERE what = 'job' AND active_at < $1
"""


async def prune_jobs(connection: "Connection", before: datetime) -> int:
    """Delete the jobs of which all shards are finished, and that were last active before a moment; return how many."""
    finished = []
    for each in await connection.fetch(_LIST_OLD, before):
        with suppress(DamagedRecord):  # which ends the next run of the job
            if each["reports"] >= sum(decode(each["shards"], list[int])):
                finished.append(each["id"])
    await connection.execute("DELETE FROM stores WHERE id = ANY ($1)", finished)
    return len(finished)


def make_damage_error(name: str) -> UnusableState:
    """Return the error that says that what is stored under the name of a job is damaged."""
    return UnusableState(clean(name), "is damaged", parameter="job", hint=Hint.RENAME_THE_JOB)


def _locate(name: str, database: Database) -> PostgresLocation:
    return PostgresLocation(name, database, "job", Hint.RENAME_THE_JOB)


def _load_report(name: str, shard: int, body: bytes, checksum: int) -> Mapping[str, Any]:
    try:
        text = decode(check_record("report", shard, body, checksum), str)
    except DamagedRecord:
        raise make_damage_error(name) from None
    return _load_object(name, text)


def _load_object(name: str, text: str) -> Mapping[str, Any]:
    """Return an object; it is stored as JSON in ASCII, since names of files may hold bytes that are not UTF-8."""
    try:
        found = json.loads(text)
    except ValueError:
        raise make_damage_error(name) from None
    if not isinstance(found, dict):
        raise make_damage_error(name)
    return found


def _check_same(location: PostgresLocation, stored: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    names = sorted(each for each in {*stored, *given} if stored.get(each) != given.get(each))
    if names:
        differing = ", ".join(map(clean, names))
        problem = f"belongs to another job, or its source has changed (other: {differing}); a new job needs a new name"
        raise location.make_error(problem)
