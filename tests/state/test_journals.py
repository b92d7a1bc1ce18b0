"""A journal in PostgreSQL: whoever takes it up last has it, and what was told to be committed is there."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from svc_async.batch.report import Report
from svc_async.errors import BatchError, Hint, InvalidArgument, StateUnavailable, TakenUpElsewhere, UnusableState
from svc_async.sandbox import VirtualClock
from svc_async.state import SharedState
from svc_async.state.journals import StateJournal, list_journals, prune_journals
from svc_async.store.postgres import PostgresStore
from svc_async.store.records import Changes
from tests.support.errors import has
from tests.support.fake_service import FakeService, adds_up, make_error, make_members
from tests.support.journaled_uploads import find_expected, make_repeated_rows, read_values, upload
from tests.support.journals import create_empty_job, write_note
from tests.support.tasks import wait_until

if TYPE_CHECKING:
    from svc_async.store.postgres import Connection


@pytest.fixture
async def state(postgres_url: str, schema: str) -> AsyncIterator[SharedState]:
    async with SharedState.open(postgres_url, schema=schema) as opened:
        yield opened


async def test_a_job_has_a_name_that_can_be_printed(state: SharedState, subtests: pytest.Subtests) -> None:
    names: list[Any] = ["", "x" * 201, "a\nb", "\x1b[0m", None, 5, b"x"]
    for name in names:
        with (
            subtests.test(name=repr(name)),
            pytest.raises(InvalidArgument, check=has(parameter="job")),
        ):
            state.journal(name)


async def test_whoever_takes_up_a_journal_last_has_it(state: SharedState) -> None:
    async with create_empty_job(state.journal("job")) as first, create_empty_job(state.journal("job")) as second:
        with pytest.raises(TakenUpElsewhere):
            await first.store.commit({})
        await second.store.commit({})
        with pytest.raises(TakenUpElsewhere):  # and from then on
            await first.finish(Report())
        await first.store.close()
        await second.store.commit({})
    assert (await state.journal("job").read()).runs == 2


async def test_a_job_of_another_kind_takes_nothing_away(state: SharedState) -> None:
    async with create_empty_job(state.journal("job")) as ledger:
        other = create_empty_job(state.journal("job"), host="other")
        with pytest.raises(UnusableState, check=has(parameter="journal", name="job")):
            await other.__aenter__()
        await ledger.store.commit({})


async def test_a_job_that_was_taken_up_elsewhere_ends_and_reports_what_it_has_sent(state: SharedState) -> None:
    service, other = FakeService(clock=VirtualClock(mode="manual"), latency=5), FakeService()
    rows = make_repeated_rows(30)
    task = asyncio.create_task(upload(service, rows, state.journal("job"), concurrency=1))
    await wait_until(lambda: service.in_flight == 1)

    taking_up = asyncio.create_task(upload(other, rows, state.journal("job"), concurrency=1))
    await wait_until(lambda: bool(other.bodies))
    await service.clock.advance(seconds=5)
    with pytest.raises(BatchError) as caught:
        await task

    assert isinstance(caught.value.__cause__, TakenUpElsewhere)
    assert adds_up(caught.value.report)
    assert len(service.bodies) == 1
    assert other.bodies[0] == service.bodies[0]
    assert (await taking_up).accepted == 30
    assert read_values(other) == find_expected(rows)


async def test_commits_that_wait_for_each_other_share_a_transaction(
    state: SharedState, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    write = PostgresStore.write

    async def count(run: PostgresStore, connection: Any, changes: Changes, **keywords: Any) -> None:
        written.append(len(changes))
        await write(run, connection, changes, **keywords)

    monkeypatch.setattr(PostgresStore, "write", count)
    async with create_empty_job(state.journal("job")) as ledger:
        await asyncio.gather(*[ledger.store.commit({}) for _ in range(50)])
        assert len(written) <= 4


@asynccontextmanager
async def cut_connection(state: SharedState) -> AsyncIterator["Connection"]:
    """Let a commit of the block wait for a lock, then end its connection, and release the lock; yield who holds it."""
    statement = """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE query LIKE '%commit_records%' AND $1 = ANY(pg_blocking_pids(pid))
    """
    async with state.database.transaction() as lock:
        await lock.execute("SELECT FROM stores FOR UPDATE")
        holder = await lock.fetchval("SELECT pg_backend_pid()")
        yield lock
        while not await state.database.fetch(statement, holder):  # noqa: ASYNC110 - the event is in the database
            await asyncio.sleep(0)


async def test_a_commit_whose_connection_was_lost_is_done_again(state: SharedState) -> None:
    async with create_empty_job(attrs.evolve(state.journal("job"), retry_pauses=[0] * 9)) as ledger:
        async with cut_connection(state):
            finishing = asyncio.create_task(ledger.finish(Report()))
        await finishing
    assert (await state.journal("job").read()).finished


async def test_a_commit_whose_connection_was_lost_is_not_done_for_who_was_replaced(state: SharedState) -> None:
    async with create_empty_job(attrs.evolve(state.journal("job"), retry_pauses=[0] * 9)) as ledger:
        async with cut_connection(state) as lock:
            finishing = asyncio.create_task(ledger.finish(Report()))
            await lock.execute("UPDATE stores SET epoch = epoch + 1")
        with pytest.raises(TakenUpElsewhere):
            await finishing
    assert not (await state.journal("job").read()).finished


async def test_without_its_database_a_job_ends_and_says_so(state: SharedState) -> None:
    async with create_empty_job(attrs.evolve(state.journal("job"), retry_pauses=())) as ledger:
        async with cut_connection(state):
            confirming = asyncio.create_task(ledger.store.commit({}, confirms=True))
        with pytest.raises(StateUnavailable):
            await confirming
        with pytest.raises(StateUnavailable):  # the job has ended, although the database is there again
            await ledger.store.commit({}, confirms=True)


async def test_a_commit_is_on_disk_even_if_the_database_is_set_otherwise(state: SharedState) -> None:
    async with create_empty_job(state.journal("job")), state.database.transaction() as connection:
        await connection.execute("SET LOCAL synchronous_commit = off")
        await connection.execute("SELECT hold_store(id, epoch) FROM stores")
        assert await connection.fetchval("SHOW synchronous_commit") == "on"


async def test_more_rows_than_a_database_should_keep_are_refused(
    state: SharedState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StateJournal, "most_spooled", 1_000)
    service = FakeService()

    with pytest.raises(UnusableState) as caught:
        await upload(service, iter(make_repeated_rows()), state.journal("job"))
    assert (caught.value.parameter, caught.value.name, caught.value.hint) == ("journal", "job", Hint.USE_A_FILE)
    assert service.bodies == []


async def test_no_identifier_is_in_the_tables(state: SharedState) -> None:
    service = FakeService()
    service.script[2] = make_error(403)
    rows = [{"email": f"someone{n}@example.org", "partner_user_id": f"partner-{n}"} for n in range(100)]
    with pytest.raises(BatchError):
        await upload(service, rows, state.journal("job"), concurrency=1)
    stored = b"".join(row["body"] for row in await state.database.fetch("SELECT body FROM records"))
    for word in (b"example.org", b"partner-", sha256(b"someone1@example.org").hexdigest().encode()):
        assert word not in stored


async def test_journals_are_listed_and_those_of_finished_jobs_deleted(state: SharedState) -> None:
    for name in ("done", "parts/0001", "parts/0002"):
        await upload(FakeService(), make_members(3), state.journal(name))
    stopped = FakeService(script={1: make_error(403)})
    for name in ("stopped", "other/0001"):
        with pytest.raises(BatchError):
            await upload(stopped, make_members(3), state.journal(name))
        stopped.script = {len(stopped.bodies) + 1: make_error(403)}
    await upload(FakeService(), make_members(3), state.journal("other").shard(2))
    async with create_empty_job(state.journal("running")):
        listed = {each.name: each for each in await list_journals(state.database)}
    assert {name for name, each in listed.items() if each.finished} == {
        "done",
        "parts/0001",
        "parts/0002",
        "other/0002",
    }
    assert {name for name, each in listed.items() if each.running} == {"running"}
    assert (listed["done"].accepted, listed["stopped"].accepted) == (3, 0)
    assert str(os.getpid()) in listed["running"].owner

    now = datetime.now(UTC)
    async with state.database.connect() as connection:
        assert await prune_journals(connection, now - timedelta(hours=1)) == 0
        assert await prune_journals(connection, now + timedelta(hours=1)) == 3

    left = {each.name for each in await list_journals(state.database)}
    assert left == {"stopped", "other/0001", "other/0002", "running"}
    assert await state.database.fetch("SELECT FROM records WHERE store NOT IN (SELECT id FROM stores)") == []


async def test_a_note_is_kept_and_shown(state: SharedState) -> None:
    await write_note(state.journal("job"), {"what": "it"})
    record = await state.journal("job").read()
    assert (record.name, record.note, record.begun_at) == ("job", {"what": "it"}, None)


async def test_a_journal_that_does_not_exist_cannot_be_read(state: SharedState) -> None:
    with pytest.raises(UnusableState, check=has(parameter="journal", name="job")):
        await state.journal("job").read()


@attrs.define
class PatientService(FakeService):
    """Lets requests wait at a rate limit, in which something happens."""

    meanwhile: Any = None

    async def send_with_answer(self, request: Any) -> Any:
        await self.meanwhile()
        return await super().send_with_answer(request)


async def test_what_waited_long_at_the_rate_limit_is_committed_anew_before_it_goes(state: SharedState) -> None:
    clock = VirtualClock(mode="jump")
    service = PatientService(clock=clock, meanwhile=lambda: clock.sleep(300))

    assert (await upload(service, make_members(3), state.journal("job"))).accepted == 3


async def test_what_waits_at_the_rate_limit_while_the_job_is_taken_up_is_not_sent(state: SharedState) -> None:
    clock = VirtualClock(mode="jump")
    service = PatientService(clock=clock)

    async def wait() -> None:
        await clock.sleep(300)
        await upload(FakeService(), make_members(3), state.journal("job"))

    service.meanwhile = wait
    with pytest.raises(BatchError) as caught:
        await upload(service, make_members(3), state.journal("job"))

    assert isinstance(caught.value.__cause__, TakenUpElsewhere)
    assert service.bodies == []
