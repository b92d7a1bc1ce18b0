"""What a shared state holds, and how it is kept small."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import attrs

from svc_async.clock import Clock, SystemClock
from svc_async.errors import Hint, InvalidArgument, UnusableState
from svc_async.state.jobs import prune_jobs
from svc_async.state.journals import list_journals, prune_journals
from svc_async.state.migrations import LATEST, read_version
from svc_async.store.postgres import Database
from svc_async.store.records import DamagedRecord, decode
from svc_async.sync.pages.records import ABOUT
from svc_async.value_rules import DURATION

__all__ = ["PruneReport", "StateReport", "SyncSummary", "TableSize", "check_state", "list_syncs", "prune_state"]

_MOST_TABLES = 100
_MOST_JOURNALS = 10_000
_MOST_PROCESSES = 1_000
_BATCH = 10_000
_LONGEST_PERIOD = timedelta(hours=2)
"""Twice the longest period of a rate limit: a bucket that is idle for so long counts nothing."""


@attrs.frozen(kw_only=True)
class TableSize:
    """A table of a shared state.

    Attributes:
        name: its name.
        rows: how many rows it has.
        size: bytes, with indexes and what is stored beside it.
    """

    name: str
    rows: int
    size: int


@attrs.frozen
class SyncSummary:
    """A state of a list.

    Attributes:
        target: the list and its host.
        rows: how many rows the list was to have after the last sync.
        size: bytes of its rows.
        used_at: when it was last taken up or written.
        epoch: how often it was taken up.
    """

    target: str
    rows: int
    size: int
    used_at: datetime
    epoch: int


@attrs.frozen(kw_only=True)
class StateReport:
    """What a shared state holds.

    Attributes:
        name: host and database.
        schema: the schema of its tables.
        version: the version of the tables.
        latest: the version that this SDK makes.
        server: the version of PostgreSQL.
        seconds: how long a statement takes, with its way there and back.
        clock_difference: seconds by which the clock of the database is ahead of that of this machine; it is known to
            half of `seconds`.
        tables: the tables by name.
        jobs: how many journals there are of jobs that are running, stopped and finished; shards count each.
        running: the host and process of each running job, by its name.
        receivers: the processes that receive events and hold a lease, by the name of their receiver.
        syncs: the states of lists.
        callers: how many processes asked for leases of rate limits within the last minute.
    """

    name: str
    schema: str
    version: int
    latest: int
    server: str
    seconds: float
    clock_difference: float
    tables: Sequence[TableSize]
    jobs: Mapping[str, int]
    running: Mapping[str, str]
    receivers: Mapping[str, Sequence[str]]
    syncs: Sequence[SyncSummary]
    callers: int

    def to_dict(self) -> dict[str, Any]:
        """Return the report as values that JSON can write."""
        return attrs.asdict(
            self, value_serializer=lambda _, __, value: value.isoformat() if isinstance(value, datetime) else value
        )


@attrs.frozen(kw_only=True)
class PruneReport:
    """What was deleted.

    Attributes:
        jobs: finished jobs on a cluster.
        journals: journals of finished jobs.
        events: handled events that need not be remembered any more.
        buckets: counts of rate limits that nobody uses.
    """

    jobs: int
    journals: int
    events: int
    buckets: int

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as values that JSON can write."""
        return attrs.asdict(self)


async def check_state(database: Database, *, clock: Clock | None = None) -> StateReport:
    """Describe a shared state; nothing is changed.

    Raises:
        StateUnavailable: the database cannot be reached.
        UnusableState: a journal is damaged.
    """
    clock = clock or SystemClock()
    version = await read_version(database)
    journals = await list_journals(database, most=_MOST_JOURNALS)
    began, began_at = clock.monotonic(), clock.now()
    row = await database.fetch_row("SELECT clock_timestamp() AS now, current_setting('server_version') AS version")
    seconds = clock.monotonic() - began
    now, server = (row["now"], row["version"]) if row is not None else (began_at, "")
    running = sum(each.running for each in journals)
    finished = sum(each.finished for each in journals)
    return StateReport(
        name=database.name,
        schema=database.schema,
        version=version,
        latest=LATEST,
        server=str(server).split(" ")[0],
        seconds=seconds,
        clock_difference=(now - began_at).total_seconds() - seconds / 2,
        tables=await _measure_tables(database),
        jobs={"running": running, "stopped": len(journals) - running - finished, "finished": finished},
        running={each.name: each.owner for each in journals if each.running},
        receivers=await _list_receivers(database),
        syncs=await list_syncs(database),
        callers=await _count_callers(database),
    )


async def list_syncs(database: Database) -> Sequence[SyncSummary]:
    """Return the states of all lists, at most 10,000, by their names.

    None is deleted because it is old: the next sync would send all rows of its list, and remove none.

    Raises:
        StateUnavailable: the database cannot be reached.
        UnusableState: one of them is damaged.
    """
    rows = await database.fetch(
        "SELECT name, epoch, active_at, about.body AS about, coalesce(pages.size, 0)::bigint AS size "
        "FROM stores LEFT JOIN records AS about ON about.store = id AND kind = 'about' LEFT JOIN ("
        "SELECT store, sum(octet_length(body)) AS size FROM records WHERE kind IN ('page', 'mark') GROUP BY store"
        ") AS pages ON pages.store = id WHERE what = 'sync' ORDER BY name LIMIT $1",
        _MOST_JOURNALS,
    )
    found: list[SyncSummary] = []
    for each in rows:
        try:
            count = 0 if each["about"] is None else decode(each["about"], ABOUT)[2]
        except DamagedRecord:
            raise UnusableState(each["name"], "is damaged", parameter="state", hint=Hint.RESTORE_THE_DATABASE) from None
        found.append(SyncSummary(each["name"], count, each["size"], each["active_at"], each["epoch"]))
    return found


async def _measure_tables(database: Database) -> Sequence[TableSize]:
    tables = await database.fetch(
        "SELECT relname AS name, pg_total_relation_size(oid) AS size FROM pg_class "
        "WHERE relnamespace = to_regnamespace($1) AND relkind = 'r' ORDER BY relname LIMIT $2",
        database.schema,
        _MOST_TABLES,
    )
    sizes: list[TableSize] = []
    for table in tables:
        row = await database.fetch_row(f'SELECT count(*) AS rows FROM "{table["name"]}"')  # noqa: S608 - of the catalog
        sizes.append(TableSize(name=table["name"], rows=row["rows"] if row is not None else 0, size=table["size"]))
    return sizes


async def _list_receivers(database: Database) -> Mapping[str, Sequence[str]]:
    rows = await database.fetch(
        "SELECT receiver, process FROM event_receivers WHERE expires_at > clock_timestamp() "
        "ORDER BY receiver, process LIMIT $1",
        _MOST_PROCESSES,
    )
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row["receiver"], []).append(row["process"])
    return found


async def _count_callers(database: Database) -> int:
    row = await database.fetch_row(
        "SELECT count(DISTINCT process) AS count FROM limit_holders JOIN limit_buckets USING (bucket) "
        "WHERE seen > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + shift - 60000000"
    )
    return 0 if row is None else int(row["count"])


async def prune_state(database: Database, older_than: timedelta) -> PruneReport:
    """Delete what is not needed any more; the states of lists stay, and so do events that are not handled.

    Raises:
        InvalidArgument: the time is negative, or is not a timedelta.
        StateUnavailable: the database cannot be reached.
    """
    DURATION.check("older_than", older_than)
    if older_than < timedelta():
        raise InvalidArgument("older_than", "must not be negative")
    events = await _prune_events(database)
    async with database.transaction(is_long=True) as connection:
        before: datetime = await connection.fetchval("SELECT clock_timestamp() - $1::interval", older_than)
        jobs, journals = await prune_jobs(connection, before), await prune_journals(connection, before)
        status = await connection.execute(
            "DELETE FROM limit_buckets WHERE updated_at < clock_timestamp() - $1::interval",
            max(older_than, _LONGEST_PERIOD),
        )
        return PruneReport(jobs=jobs, journals=journals, events=events, buckets=int(status.split()[-1]))


async def _prune_events(database: Database) -> int:
    await database.execute("SELECT end_event_receivers(NULL, clock_timestamp())")
    count = 0
    while True:
        status = await database.execute(
            "DELETE FROM event_claims WHERE ctid = ANY (ARRAY("
            "SELECT ctid FROM event_claims WHERE handled_until <= clock_timestamp() LIMIT $1))",
            _BATCH,
        )
        deleted = int(status.split()[-1])
        count += deleted
        if deleted < _BATCH:
            return count
