"""What a shared state holds, and what is deleted from it."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest

from svc_async.errors import InvalidArgument, UnusableState
from svc_async.sandbox import VirtualClock
from svc_async.state import SharedState
from svc_async.state.events import SharedEvents
from svc_async.state.jobs import JobStore
from svc_async.state.maintenance import check_state
from svc_async.webhooks import Claim
from svc_async.webhooks.stores.inbox import StoredEvent
from tests.support.errors import has

NOW = datetime(2026, 6, 10, 12, tzinfo=UTC)


@pytest.fixture
async def state(postgres_url: str, schema: str) -> AsyncIterator[SharedState]:
    async with SharedState.open(postgres_url, schema=schema) as state:
        yield state


async def test_a_check_names_version_clock_tables_and_receivers(state: SharedState, schema: str) -> None:
    async with state.events("shop") as events:
        await events.commit("1")
        report = await state.check()
    assert (report.version, report.latest, report.schema) == (1, 1, schema)
    assert report.server.split(".")[0].isdecimal()
    assert report.seconds > 0
    assert abs(report.clock_difference) < 60  # the database of the tests is on this machine
    tables = {each.name: each for each in report.tables}
    assert tables["event_claims"].rows == 1
    assert tables["event_claims"].size > 0
    assert {"event_inbox", "limit_buckets", "schema_version", "stores"} <= tables.keys()
    assert [*report.receivers] == ["shop"]
    assert report.to_dict()["receivers"]["shop"] == report.receivers["shop"]
    assert (await state.check()).receivers == {}


async def test_the_difference_of_the_clocks_is_that_to_the_database(state: SharedState) -> None:
    clock = VirtualClock(datetime.now(UTC) - timedelta(hours=1))
    report = await check_state(state.database, clock=clock)
    assert 3_599 < report.clock_difference < 3_660


async def test_pruning_deletes_what_is_over_and_nothing_else(state: SharedState) -> None:
    clock = VirtualClock(datetime.now(UTC) - timedelta(hours=26))
    await state.database.execute(
        "INSERT INTO limit_buckets (bucket, name, period, headroom, documented, is_guess, tick, updated_at) "
        "SELECT gen_random_uuid(), 'a', 1, 1, true, false, 0, clock_timestamp() - age * interval '1 hour' "
        "FROM generate_series(0, 5) AS age"
    )
    async with SharedEvents(state, read_time=clock.now, lease=timedelta(days=1)) as old, state.events("new") as new:
        for key in "abc":
            await old.commit(key)
        await old.claim("dead")
        await new.commit("d")
        await new.claim("waits")
        await new.store([StoredEvent(key="waits", body=b"{}", key_id="now", received_at=NOW)])
        report = await state.prune(older_than=timedelta())
        # What was used less than two hours ago may still count.
        assert report.to_dict() == {"jobs": 0, "journals": 0, "events": 3, "buckets": 4}
        nothing = {"jobs": 0, "journals": 0, "events": 0, "buckets": 0}
        assert (await state.prune(older_than=timedelta(days=30))).to_dict() == nothing
        assert [await new.claim(key) for key in ("d", "waits")] == [Claim.HANDLED, Claim.HELD]
        tables = {each.name: each.rows for each in (await state.check()).tables}
        assert (tables["event_claims"], tables["event_inbox"]) == (2, 1)


async def test_a_job_on_a_cluster_is_deleted_when_all_of_its_shards_are_finished(state: SharedState) -> None:
    for name, finished in (("done", 3), ("begun", 2), ("not begun", 0)):
        jobs = JobStore(state.database)
        await jobs.take_up(name, about={}, plan={}, shards=[2, 1])
        for number in range(finished):
            assert await jobs.finish_shard(name, number, {}) is None
        await state.database.execute(
            "INSERT INTO stores (what, name, epoch, owner, finished) "
            "SELECT 'journal', $1 || '/000' || number, 1, 'host', true FROM generate_series(1, $2) AS number",
            name,
            finished,
        )
    assert (await state.prune(older_than=timedelta(days=1))).jobs == 0
    report = await state.prune(older_than=timedelta())
    assert (report.jobs, report.journals) == (1, 3), "those of a job that has not ended are kept"
    rows = await state.database.fetch("SELECT name FROM stores WHERE what = 'job' ORDER BY name")
    assert [row["name"] for row in rows] == ["begun", "not begun"]


async def test_many_events_are_deleted_in_parts(state: SharedState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svc_async.state.maintenance._BATCH", 4)
    await state.database.execute(
        "INSERT INTO event_claims SELECT 'a', int4send(number), gen_random_uuid(), now() - interval '1 second' "
        "FROM generate_series(1, 8) AS number"
    )
    assert (await state.prune(older_than=timedelta())).events == 8


async def test_pruning_the_future_is_refused(state: SharedState) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="older_than")):
        await state.prune(older_than=timedelta(seconds=-1))


GRANTS = """
    GRANT USAGE ON SCHEMA {schema} TO {role};
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role};
"""


@pytest.fixture
async def role(postgres_url: str) -> AsyncIterator[str]:
    """A role that owns nothing."""
    name = f"svc_test_{uuid4().hex}"
    owner = await asyncpg.connect(postgres_url)
    try:
        await owner.execute(f"CREATE ROLE {name} LOGIN")
        yield name
        await owner.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")
    finally:
        await owner.close()


async def test_a_role_needs_the_grants_that_are_documented_and_no_more(
    postgres_url: str, schema: str, role: str, state: SharedState
) -> None:
    parts = urlsplit(postgres_url)
    url = parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}").geturl()
    with pytest.raises(UnusableState):
        async with SharedState.open(url, schema=schema, migrate=False):
            pass
    await state.database.execute(GRANTS.format(schema=schema, role=role))
    async with SharedState.open(url, schema=schema, migrate=False) as limited, limited.events() as events:
        assert await events.claim("1") is Claim.TAKEN
        await events.store([StoredEvent(key="1", body=b"{}", key_id="now", received_at=NOW)])
        await events.commit("1")
        await events.remove("1")
        assert (await limited.check()).version == 1
        await limited.prune(older_than=timedelta())
    with pytest.raises(UnusableState):
        async with SharedState.open(url, schema=f"{schema[:50]}_2"):
            pass
