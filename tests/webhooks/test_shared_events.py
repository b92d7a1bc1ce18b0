"""Several receivers over one database: each event is handled once at a time, and survives whoever had it."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from svc_async.clock import Clock, SystemClock
from svc_async.errors import StateUnavailable, WrongState
from svc_async.sandbox import VirtualClock
from svc_async.state import SharedState
from svc_async.state.events import SharedEvents
from svc_async.store.postgres import Database
from svc_async.webhooks import Ack, Claim, WebhookReceiver
from svc_async.webhooks.stores.inbox import StoredEvent
from tests.support.deliveries import KEY, delivery
from tests.support.event_stores import open_shared_events
from tests.support.tasks import wait_until

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 6, 10, 12, tzinfo=UTC)
LEASE, LONG = timedelta(seconds=60), timedelta(hours=1)

Open = Callable[..., Any]


@pytest.fixture
def clock() -> VirtualClock:
    """The time of the database."""
    return VirtualClock()


@pytest.fixture
def open_events(postgres_url: str, schema: str, clock: VirtualClock) -> Open:
    def open_events(machine: Clock | None = None, **settings: Any) -> Any:
        return open_shared_events(postgres_url, schema, clock=clock, machine=machine or VirtualClock(), **settings)

    return open_events


def make_stored(key: str, body: bytes = b"{}") -> StoredEvent:
    return StoredEvent(key=key, body=body, key_id="now", received_at=NOW)


# --- claims


async def test_a_claim_of_another_receiver_is_respected_until_its_lease_ends(
    open_events: Open, clock: VirtualClock
) -> None:
    async with open_events(lease=LEASE) as one, open_events(lease=LEASE) as two:
        assert await one.claim("a") is Claim.TAKEN
        assert await two.claim("a") is Claim.ELSEWHERE
        await clock.advance(seconds=59)
        assert await two.claim("a") is Claim.ELSEWHERE
        await clock.advance(seconds=1)
        assert await two.claim("a") is Claim.TAKEN
        assert await two.confirm("a")


async def test_a_receiver_that_ends_releases_its_claims_at_once(open_events: Open) -> None:
    async with open_events() as two:
        async with open_events() as one:
            await one.claim("a")
            await one.claim("b")
            await one.commit("b")
        assert await count(two, "event_claims") == 1
        assert [await two.claim(key) for key in "ab"] == [Claim.TAKEN, Claim.HANDLED]


async def test_receivers_of_other_names_have_their_own_events(open_events: Open) -> None:
    async with open_events(receiver="shop") as one, open_events(receiver="billing") as two:
        await one.store([make_stored("a")])
        assert [await one.claim("a"), await two.claim("a")] == [Claim.TAKEN, Claim.TAKEN]
        assert [*await two.load()] == []


class Machine(VirtualClock):
    """The time of a machine, which can be suspended: then time passes and nothing runs."""

    asleep = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.asleep


async def test_a_receiver_that_was_suspended_does_not_confirm_what_was_taken_over(
    open_events: Open, clock: VirtualClock
) -> None:
    machine = Machine()
    async with open_events(machine=machine, lease=LEASE) as one, open_events(lease=LEASE) as two:
        for key in ("taken over", "handled", "free"):
            await one.claim(key)
        machine.asleep = 60.0
        await clock.advance(seconds=60)
        await two.claim("taken over")
        await two.claim("handled")
        await two.commit("handled")
        assert [await one.confirm(key) for key in ("taken over", "handled", "free")] == [False, False, True]
        assert [await two.claim("free"), await one.claim("free")] == [Claim.ELSEWHERE, Claim.HELD]


@pytest.mark.parametrize("begins", ["renew", "claim"])
async def test_a_receiver_that_was_suspended_before_it_read_an_answer_does_not_confirm_what_was_taken_over(
    open_events: Open, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, begins: str
) -> None:
    machine = Machine()
    async with open_events(machine=machine, lease=LEASE) as one, open_events(lease=LONG) as two:
        fetch_row, suspensions = Database.fetch_row, iter([True])

        async def suspend_before_the_answer(database: Database, *arguments: Any) -> Any:
            answer = await fetch_row(database, *arguments)
            if next(suspensions, False):
                machine.asleep += 100
                await clock.advance(seconds=100)
                assert await two.claim("a") is Claim.TAKEN
                if begins == "claim":
                    await one._lease.renew()  # its task reads its answer first
            return answer

        if begins == "renew":
            await one.claim("a")
            machine.asleep = 50
        monkeypatch.setattr(Database, "fetch_row", suspend_before_the_answer)
        if begins == "claim":
            await one.claim("a")

        assert not await one.confirm("a")
        assert await two.confirm("a")


async def test_a_receiver_whose_answers_always_come_after_its_lease_confirms_nothing(
    open_events: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, fetch_row = Machine(), Database.fetch_row

    async def fetch_slowly(database: Database, *arguments: Any) -> Any:
        answer = await fetch_row(database, *arguments)
        machine.asleep += 100
        return answer

    async with open_events(machine=machine, lease=LEASE) as one:
        monkeypatch.setattr(Database, "fetch_row", fetch_slowly)
        await one.claim("a")
        with pytest.raises(StateUnavailable):
            await one.confirm("a")


async def test_a_lease_that_expired_unnoticed_is_renewed_and_nothing_is_lost(
    open_events: Open, clock: VirtualClock
) -> None:
    machine = Machine()
    async with open_events(machine=machine, lease=LEASE) as one:
        await one.claim("a")
        machine.asleep = 60.0
        await clock.advance(seconds=60)
        assert await one.confirm("a")
        async with open_events(lease=LEASE) as two:
            assert await two.claim("a") is Claim.ELSEWHERE


async def test_a_running_receiver_renews_its_lease(open_events: Open, clock: VirtualClock) -> None:
    machine = Machine()
    async with open_events(machine=machine, lease=LEASE) as one, open_events(lease=LEASE) as two:
        await one.claim("a")
        for _ in range(8):
            await clock.advance(seconds=15)
            await one._lease.renew()  # what its task does every 15 seconds
        assert await two.claim("a") is Claim.ELSEWHERE
        await machine.advance(seconds=15)
        await wait_until(lambda: machine.monotonic() < one._lease._trusted_until - 47)


class Lossy:
    """Executes a statement, and loses the connection before its answer arrives."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.losing = 0
        for name in ("execute", "fetch_row"):
            monkeypatch.setattr(Database, name, self._lose(getattr(Database, name)))

    def _lose(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def lose(database: Database, *arguments: object) -> Any:
            answer = await call(database, *arguments)
            if self.losing:
                self.losing -= 1
                raise StateUnavailable(database.name, "lost")
            return answer

        return lose


async def test_a_claim_whose_answer_was_lost_can_be_taken_by_its_receiver(
    open_events: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_events() as one, open_events() as two:
        lossy = Lossy(monkeypatch)
        lossy.losing = 1
        with pytest.raises(StateUnavailable):
            await one.claim("a")
        assert await two.claim("a") is Claim.ELSEWHERE
        assert [await one.claim("a") for _ in "12"] == [Claim.TAKEN, Claim.HELD]


async def test_a_commit_and_a_removal_are_repeated(open_events: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svc_async.state.events._DELAYS", (0, 0, 0))
    async with open_events(machine=SystemClock()) as one, open_events() as two:
        await one.store([make_stored("a")])
        await one.claim("a")
        lossy = Lossy(monkeypatch)
        lossy.losing = 3
        await one.commit("a")
        lossy.losing = 3
        await one.remove("a")
        assert await two.claim("a") is Claim.HANDLED
        lossy.losing = 4
        with pytest.raises(StateUnavailable):
            await one.commit("b")


# --- the inbox


async def test_events_belong_to_a_receiver_until_it_ends(open_events: Open) -> None:
    async with open_events() as two:
        async with open_events() as one:
            await one.store([make_stored("a"), make_stored("b")])
            assert [*await two.load()] == []
            assert [*await one.load()] == []
        assert [each.key for each in await two.load()] == ["a", "b"]
        assert [*await two.load()] == []


async def test_the_events_of_a_dead_receiver_are_given_to_one_other(open_events: Open, clock: VirtualClock) -> None:
    async with open_events(lease=LEASE) as dead, open_events(lease=LONG) as two, open_events(lease=LONG) as three:
        await dead.store([make_stored(str(number)) for number in range(50)])
        await clock.advance(seconds=60)
        loaded = await asyncio.gather(two.load(), three.load(), two.load())
        keys = [each.key for events in loaded for each in events]
        assert sorted(keys, key=int) == [str(number) for number in range(50)]


async def test_events_are_given_once_to_who_loads_twice_at_a_time(
    open_events: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute, second = asyncpg.Connection.execute, list[asyncio.Task[Any]]()

    async def execute_slowly(connection: Any, statement: str, *arguments: Any, **options: Any) -> Any:
        status = await execute(connection, statement, *arguments, **options)
        if statement == "COMMIT" and not second:  # of the first load, which does not know it yet
            second.append(asyncio.create_task(two.load()))
            for _ in range(50):
                if not second[0].done():
                    await two._database.fetch("SELECT 1")
        return status

    async with open_events() as one:
        await one.store([make_stored("a"), make_stored("b")])
    async with open_events() as two:
        monkeypatch.setattr(asyncpg.Connection, "execute", execute_slowly)
        first = await two.load()
        assert [each.key for each in [*first, *await second[0]]] == ["a", "b"]


async def test_events_that_are_being_taken_over_are_left_to_who_does_it(open_events: Open, clock: VirtualClock) -> None:
    async with open_events() as one:
        await one.store([make_stored("a")])
    async with open_events() as two, open_events() as three:
        async with two._database.transaction() as connection:
            take = "SELECT * FROM take_events($1, $2, 10, 1000, $3)"
            assert len(await connection.fetch(take, "webhooks", two._lease.owner, clock.now())) == 1
            assert [*await three.load()] == []
        assert [*await three.load()] == []


async def test_what_a_load_returns_is_bounded_by_number_and_size(
    open_events: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("svc_async.state.events._MOST_EVENTS", 5)
    monkeypatch.setattr("svc_async.state.events._MOST_BYTES", 100)
    async with open_events() as one:
        for number in range(12):
            await one.store([make_stored(f"{number} {part}", b"x" * 10) for part in "ab"])
        await one.store([make_stored("large", b"y" * 1_000)])
        await one.store([make_stored("last", b"z" * 99), make_stored("after", b"z" * 99)])
    async with open_events() as two:
        sizes = []
        while events := await two.load():
            sizes.append(len(events))
        assert sizes == [5, 5, 5, 5, 5, 2]


async def test_events_that_a_load_took_over_without_an_answer_are_loaded_again(
    open_events: Open, clock: VirtualClock
) -> None:
    async with open_events() as one:
        await one.store([make_stored(key) for key in "abc"])
    async with open_events() as two:
        await two.claim("a")
        await two.store([make_stored("a")])  # a repeated delivery: it is being handled here

        rows = await two._database.fetch(
            "SELECT * FROM take_events($1, $2, 10, 1000, $3)", "webhooks", two._lease.owner, clock.now()
        )
        assert len(rows) == 2
        two._loads_again = True  # its answer was lost
        assert [each.key for each in await two.load()] == ["b", "c"]


async def test_no_body_is_left_behind(open_events: Open) -> None:
    async with open_events() as one:
        await one.store([make_stored(str(number), b"1") for number in range(20)])
        await one.store([make_stored("0", b"2")])
        assert await count(one, "event_bodies") == 1
        await asyncio.gather(*(one.remove(str(number)) for number in range(20)))
        assert [await count(one, table) for table in ("event_inbox", "event_bodies")] == [0, 0]


async def test_events_are_not_stored_once_the_lease_has_ended(open_events: Open, clock: VirtualClock) -> None:
    async with open_events(lease=LEASE) as one, open_events(lease=LEASE) as two:
        await clock.advance(seconds=60)
        await two.claim("a")
        with pytest.raises(StateUnavailable):
            await one.store([make_stored("b")])


async def test_what_need_not_be_remembered_is_deleted_while_a_receiver_runs(
    open_events: Open, clock: VirtualClock
) -> None:
    machine = Machine()
    async with open_events(machine=machine, ttl=timedelta(seconds=1)) as one:
        await one.commit("a")
        await one.claim("b")
        await clock.advance(seconds=1)
        await one._lease._sweep()
        assert await count(one, "event_claims") == 1


async def count(events: SharedEvents, table: str) -> int:
    row = await events._database.fetch_row(f"SELECT count(*) AS count FROM {table}")  # noqa: S608 - our own table
    assert row is not None
    return int(row["count"])


# --- settings


def test_a_receiver_looks_for_events_to_take_over_four_times_a_lease() -> None:
    store = SharedEvents(SharedState("postgresql://host/a"), lease=timedelta(seconds=60))
    assert store.load_interval == 15


async def test_a_store_that_is_not_open_says_so() -> None:
    store = SharedState("postgresql://host/a").events()
    with pytest.raises(WrongState):
        await store.claim("a")


# --- receivers


def make_receiver(store: SharedEvents, clock: VirtualClock, seen: list[str]) -> WebhookReceiver:
    receiver = WebhookReceiver(keys=[KEY], ack=Ack.durable(store), dedupe=store, clock=clock, drain_deadline=0)

    @receiver.on("*")
    async def handle(event: Any, _: object) -> None:
        seen.append(event.key)

    return receiver


@pytest.fixture
def open_state(postgres_url: str, schema: str) -> Callable[[], SharedState]:
    return lambda: SharedState.open(postgres_url, schema=schema)


async def test_receivers_with_a_state_handle_an_event_once(open_state: Callable[[], SharedState]) -> None:
    seen: list[str] = []
    async with open_state() as state:
        receivers = [WebhookReceiver(keys=[KEY], state=state) for _ in range(2)]
        for receiver in receivers:
            receiver.on("*")(lambda event, _: seen.append(event.key))
        async with receivers[0], receivers[1]:
            answers = await asyncio.gather(*(each.handle(*delivery()) for each in receivers * 5))
            assert 200 in {each.status for each in answers}
            assert {each.status for each in answers} <= {200, 503}
        assert seen == ["1"]
        async with receivers[1]:
            assert (await receivers[1].handle(*delivery())).status == 200
    assert seen == ["1"]


async def test_a_receiver_opens_and_closes_its_state(open_state: Callable[[], SharedState]) -> None:
    state = open_state()
    async with WebhookReceiver(keys=[KEY], state=state) as receiver:
        assert state.is_open
        assert (await receiver.handle(*delivery())).status == 200
    assert not state.is_open


IS_LEFT_OPEN = """
import asyncio, gc, sys
from svc_async.state import SharedState
from svc_async.webhooks import WebhookReceiver
from tests.support.deliveries import KEY, delivery

gc.disable()
receiver = WebhookReceiver(keys=[KEY], state=SharedState.open(sys.argv[1], schema=sys.argv[2]))
loop = asyncio.new_event_loop()
loop.run_until_complete(receiver.start())
loop.close()

async def receive():
    async with receiver:
        gc.collect()  # now the tasks of the closed event loop end
        print((await receiver.handle(*delivery())).status)

asyncio.run(receive())
"""


@pytest.mark.long("starts an interpreter")
def test_a_receiver_that_was_left_open_in_a_closed_event_loop_can_be_entered_again(
    postgres_url: str, schema: str
) -> None:
    arguments = [sys.executable, "-c", IS_LEFT_OPEN, postgres_url, schema]
    ended = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "200\n"), ended.stderr


async def test_a_delivery_that_another_receiver_has_not_handled_yet_is_not_acknowledged(
    open_events: Open, clock: VirtualClock
) -> None:
    seen: list[str] = []
    async with open_events(lease=LEASE) as dead, open_events() as two:
        await dead.claim("1")  # and it dies before it has stored the event
        async with make_receiver(two, clock, seen) as receiver:
            answer = await receiver.handle(*delivery())
            assert (answer.status, answer.body) == (503, b"claimed_elsewhere")
            await clock.advance(seconds=60)
            assert (await receiver.handle(*delivery())).status == 200
            await wait_until(lambda: seen == ["1"])


async def test_an_event_of_an_ended_receiver_that_another_one_has_claimed_is_left_to_it(
    open_events: Open, clock: VirtualClock
) -> None:
    seen: list[str] = []
    async with open_events() as two, open_events() as three:
        async with open_events() as ended:
            await ended.store([make_stored("1", delivery().body)])
        await two.claim("1")  # a repeated delivery
        async with make_receiver(three, clock, seen):
            pass
        assert (seen, await count(two, "event_inbox")) == ([], 1)


DIES = """
import asyncio, os, sys
from svc_async.state import SharedState
from svc_async.webhooks import WebhookReceiver
from tests.support.deliveries import KEY, delivery

async def main():
    receiver = WebhookReceiver(keys=[KEY], state=SharedState.open(sys.argv[1], schema=sys.argv[2]))

    @receiver.on("*")
    async def handler(event, _):
        await asyncio.Event().wait()

    async with receiver:
        print([(await receiver.handle(*delivery(uuid))).status for uuid in "12"], flush=True)
        os.kill(os.getpid(), 9)

asyncio.run(main())
"""


@pytest.mark.long("kills a process")
async def test_a_running_receiver_takes_over_what_a_killed_one_had_accepted(postgres_url: str, schema: str) -> None:
    clock = VirtualClock(datetime.now(UTC))
    arguments = [sys.executable, "-c", DIES, postgres_url, schema]
    seen: list[str] = []
    opening = open_shared_events(postgres_url, schema, clock=clock, machine=clock, lease=LONG)
    async with opening as store, make_receiver(store, clock, seen):
        killed = await asyncio.to_thread(
            subprocess.run, arguments, cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert (killed.returncode, killed.stdout) == (-9, "[200, 200]\n"), killed.stderr
        await clock.advance(minutes=15)
        await wait_until(lambda: sorted(seen) == ["1", "2"])
