"""An event whose handler kills the process: it is counted, put behind the others, and given up in the end."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from svc_async.events.models import Event
from svc_async.sandbox import VirtualClock
from svc_async.webhooks import (
    Ack,
    DeliveryContext,
    MemoryDedupe,
    SqliteDedupe,
    SqliteInbox,
    TooManyAttempts,
    WebhookReceiver,
)
from svc_async.webhooks.stores.inbox import StoredEvent
from svc_async.webhooks.testing import build_delivery
from tests.support.deliveries import KEY, delivery
from tests.support.event_samples import activity
from tests.support.event_stores import MemoryInbox, open_shared_events
from tests.support.tasks import run_ready_tasks

ROOT = Path(__file__).parents[2]
USERS = {"poison": "7", "behind": "7", "one": "8", "two": "9"}
BODY = {"data": [activity("post.create", uuid=uuid, user_id=user) for uuid, user in USERS.items()]}
Open = Callable[..., AbstractAsyncContextManager[Any]]

DIES = """
import asyncio, json, os, sys
from contextlib import AsyncExitStack
from svc_async.sandbox import VirtualClock
from svc_async.webhooks import Ack, SqliteInbox, WebhookReceiver
from svc_async.webhooks.testing import build_delivery
from tests.support.deliveries import KEY
from tests.support.event_stores import open_shared_events

def die(death):
    if death == "kill":
        os.kill(os.getpid(), 9)
    raise {"exit": SystemExit, "interrupt": KeyboardInterrupt}[death](3)

async def main(death, run, limit, data, place, schema=""):
    clock = VirtualClock()
    await clock.advance(hours=int(run))  # the lease of the run before has ended
    def say(*words):
        print(*words, flush=True)
    async with AsyncExitStack() as stack:
        inbox = SqliteInbox(place)
        if schema:
            inbox = await stack.enter_async_context(open_shared_events(place, schema, clock=clock, machine=clock))
        receiver = WebhookReceiver(
            keys=[KEY], ack=Ack.durable(inbox, max_attempts=int(limit)), dedupe=inbox if schema else None, clock=clock,
            dead_letter=lambda event, error: say("dead", event.key, type(error).__name__),
        )
        @receiver.on("*")
        def handle(event, context):
            say(event.key, context.attempts)
            if event.key == "poison":
                die(death)
        async with receiver:
            say("started")
            if run == "1":
                await receiver.handle(*build_delivery(json.loads(data), KEY))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    if request.param == "sqlite":
        return [str(tmp_path / "inbox.db")]
    return [request.getfixturevalue("postgres_url"), request.getfixturevalue("schema")]


@pytest.fixture
def open_inbox(place: list[str]) -> Open:
    """Return what opens the same inbox again and again."""
    return partial(open_shared_events, *place) if len(place) > 1 else partial(SqliteInbox, *place)


STATUSES = {"kill": -9, "exit": 3, "interrupt": -2}
"""How a process ends, and its exit status."""


def run_process(number: int, limit: int, place: list[str], death: str = "kill") -> tuple[int, list[str]]:
    """Return how a process with a receiver ended, and what it said."""
    arguments = [sys.executable, "-c", DIES, death, str(number), str(limit), json.dumps(BODY), *place]
    ended = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode in {0, STATUSES[death]}, ended.stderr
    assert (death != "kill") == ("ends the process" in ended.stderr) or not ended.returncode
    return ended.returncode, ended.stdout.splitlines()


@pytest.mark.long("each attempt is a process that ends")
def test_an_event_that_kills_the_process_is_given_up_and_the_others_are_handled(place: list[str]) -> None:
    said: list[str] = []
    for number in range(1, 6):
        status, lines = run_process(number, 5, place)
        assert (status, lines[0]) == (-9, "started")
        said += lines[1:]
    status, lines = run_process(6, 5, place)
    assert (status, lines) == (0, ["started", "dead poison TooManyAttempts", "behind 2"])
    assert [each for each in said if "poison" in each] == [f"poison {attempt}" for attempt in range(1, 6)]
    assert sorted(each.split()[0] for each in said if "poison" not in each) == ["one", "two"]
    assert run_process(7, 5, place) == (0, ["started"])


@pytest.mark.long("each attempt is a process that ends")
@pytest.mark.parametrize("death", ["exit", "interrupt"])
def test_an_exception_of_a_handler_that_ends_the_process_counts_as_an_attempt(place: list[str], death: str) -> None:
    assert run_process(1, 1, place, death)[0] == STATUSES[death]
    status, lines = run_process(2, 1, place)
    assert (status, lines[:2]) == (0, ["started", "dead poison TooManyAttempts"])
    assert "behind 1" in lines


@pytest.mark.long("each attempt is a process that ends")
def test_an_event_is_handled_as_often_as_max_attempts_says(place: list[str]) -> None:
    assert run_process(1, 1, place)[1] == ["started", "poison 1"]
    status, lines = run_process(2, 1, place)
    assert status == 0
    assert sorted(lines) == sorted(["started", *(f"dead {key} TooManyAttempts" for key in USERS)])


# --- within one process


def make_receiver(
    inbox: Any, seen: list[tuple[str, int]], *, clock: VirtualClock | None = None, **settings: Any
) -> WebhookReceiver:
    attempts = {"max_attempts": settings.pop("max_attempts", 5)}
    receiver = WebhookReceiver(keys=[KEY], ack=Ack.durable(inbox, **attempts), clock=clock, **settings)
    receiver.on("*")(lambda event, context: seen.append((event.key, context.attempts)))
    return receiver


async def store(open_inbox: Open, attempts: dict[str, int], users: dict[str, str] = USERS) -> None:
    """Leave events in an inbox of which handling has begun so often and not ended."""
    async with open_inbox() as inbox:
        for key, count in attempts.items():
            event = activity("post.create", uuid=key, user_id=users[key])
            body = build_delivery({"data": event}, KEY).body
            await inbox.store([StoredEvent(key=key, body=body, key_id="now", received_at=VirtualClock().now())])
            for _ in range(count - 1):
                await inbox.begin(key)
            if not count:
                await inbox.end([key])


def fail(*_: object) -> None:
    raise LookupError


async def fail_later(*_: object) -> None:
    raise LookupError


async def list_attempts(open_inbox: Open) -> dict[str, int]:
    async with open_inbox() as inbox:
        return {each.key: each.attempts for each in await inbox.list_events()}


async def test_events_that_may_kill_come_last_and_their_users_wait_for_them(open_inbox: Open) -> None:
    seen: list[tuple[str, int]] = []
    await store(open_inbox, {"poison": 3, "behind": 1, "one": 2, "two": 1})
    async with open_inbox() as inbox, make_receiver(inbox, seen):
        pass
    assert seen == [("two", 2), ("one", 3), ("poison", 4), ("behind", 2)]


async def test_an_attempt_is_counted_before_its_handler_is_called(
    open_inbox: Open, place: list[str], tmp_path: Path
) -> None:
    def open_as_left() -> AbstractAsyncContextManager[Any]:
        """Open the inbox as a process leaves it that is killed now."""
        if len(place) > 1:
            return open_inbox()
        copy = tmp_path / "copy"
        copy.mkdir()
        for file in tmp_path.glob("inbox.db*"):
            shutil.copy(file, copy)
        return SqliteInbox(copy / "inbox.db")

    found: list[dict[str, int]] = []
    await store(open_inbox, {"one": 1})
    async with open_inbox() as inbox:
        receiver = WebhookReceiver(keys=[KEY], ack=Ack.durable(inbox))

        @receiver.on("*")
        async def look(*_: object) -> None:
            found.append(await list_attempts(open_as_left))

        async with receiver:
            pass
    assert found == [{"one": 2}]


async def test_with_one_attempt_what_was_begun_is_not_handled_again(open_inbox: Open) -> None:
    seen, dead = list[tuple[str, int]](), list[str]()
    await store(open_inbox, dict.fromkeys(USERS, 1))
    async with (
        open_inbox() as inbox,
        make_receiver(inbox, seen, max_attempts=1, dead_letter=lambda event, _: dead.append(event.key)),
    ):
        pass
    assert (seen, sorted(dead)) == ([], sorted(USERS))


async def test_the_first_handling_of_an_event_has_attempt_1(open_inbox: Open) -> None:
    seen: list[tuple[str, int]] = []
    async with open_inbox() as inbox, make_receiver(inbox, seen) as receiver:
        assert (await receiver.handle(*delivery())).status == 200
    assert seen == [("1", 1)]
    assert await list_attempts(open_inbox) == {}


@pytest.mark.parametrize("ends_by", ["an error", "the end of the receiver"])
async def test_an_attempt_that_ended_in_order_does_not_count(open_inbox: Open, ends_by: str) -> None:
    seen: list[tuple[str, int]] = []
    for _ in range(3):
        begun = asyncio.Event()

        async def handle(event: Event, context: DeliveryContext, begun: asyncio.Event = begun) -> None:
            seen.append((event.key, context.attempts))
            begun.set()
            if ends_by == "an error":
                raise LookupError
            await asyncio.Event().wait()

        async with open_inbox() as inbox:
            receiver = WebhookReceiver(keys=[KEY], ack=Ack.durable(inbox, max_attempts=1), drain_deadline=0)
            receiver.on("*")(handle)
            async with receiver:
                if not seen:
                    await receiver.handle(*delivery())
                await receiver.handle(*delivery("2", event_type="user.profile_update"))
                await begun.wait()
                await run_ready_tasks()
        assert (await list_attempts(open_inbox))["1"] == 0
    assert [attempt for _, attempt in seen] == [1] * len(seen)
    assert len([key for key, _ in seen if key == "1"]) == 3


async def test_an_attempt_is_taken_back_once_though_its_receiver_closes_before_it_is_released(open_inbox: Open) -> None:
    reached = asyncio.Event()

    class Slow(MemoryDedupe):
        async def release(self, key: str) -> None:
            if key == "one" and not reached.is_set():
                reached.set()
                await asyncio.Event().wait()
            await super().release(key)

    await store(open_inbox, {"one": 1})
    async with open_inbox() as inbox:
        receiver = WebhookReceiver(keys=[KEY], ack=Ack.durable(inbox), dedupe=Slow(), drain_deadline=0)
        receiver.on("*")(fail)
        async with receiver:
            await receiver.handle(*delivery())
            await reached.wait()
    assert (await list_attempts(open_inbox))["one"] == 1


async def test_an_inbox_that_cannot_count_an_attempt_is_called_again(
    open_inbox: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, clock, failed = list[tuple[str, int]](), VirtualClock(), asyncio.Event()
    await store(open_inbox, {"one": 1})
    async with open_inbox() as inbox, make_receiver(inbox, seen, clock=clock) as receiver:
        begin = inbox.begin

        async def fail_once(key: str) -> Any:
            if failed.is_set():
                return await begin(key)
            failed.set()
            raise LookupError

        monkeypatch.setattr(inbox, "begin", fail_once)
        await receiver.handle(*delivery())
        await failed.wait()
        await run_ready_tasks()
        await clock.advance(seconds=1)
        await receiver.wait_until_idle(deadline=30)
    assert sorted(seen) == [("1", 1), ("one", 2)]
    assert await list_attempts(open_inbox) == {}


async def test_an_event_that_was_given_up_is_in_the_inbox_until_somebody_asks_for_it(
    open_inbox: Open, caplog: pytest.LogCaptureFixture
) -> None:
    seen, errors = list[tuple[str, int]](), list[BaseException]()
    await store(open_inbox, {"poison": 5, "behind": 1})
    for _ in range(2):
        seen.clear()
        async with (
            open_inbox() as inbox,
            make_receiver(inbox, seen, on_error=lambda _, error: errors.append(error)) as receiver,
        ):
            assert (await receiver.handle(*delivery("poison"))).status == 200
        assert ("poison", 6) not in seen
    assert {type(error) for error in errors} == {TooManyAttempts}
    assert (
        "post.create poison: the process ended at each of 5 attempts to handle it; it stays in the inbox" in caplog.text
    )
    assert await list_attempts(open_inbox) == {"poison": 5}

    async with open_inbox() as inbox:
        assert [await inbox.retry(key) for key in ("poison", "gone")] == [True, False]
    async with open_inbox() as inbox, make_receiver(inbox, seen):
        pass
    assert seen == [("poison", 1)]
    assert await list_attempts(open_inbox) == {}


async def test_a_dead_letter_of_an_event_that_kills_is_final(tmp_path: Path) -> None:
    seen, dead = list[tuple[str, int]](), list[str]()
    open_inbox = partial(SqliteInbox, tmp_path / "inbox.db")
    await store(open_inbox, {"poison": 5})
    dedupe = SqliteDedupe(tmp_path / "events.db")
    async with make_receiver(
        open_inbox(), seen, dedupe=dedupe, dead_letter=lambda event, error: dead.append(f"{event.key}: {error}")
    ):
        pass
    assert dead == ["poison: the process ended at each of 5 attempts to handle it"]
    async with make_receiver(open_inbox(), seen, dedupe=dedupe) as receiver:
        assert (await receiver.handle(*delivery("poison"))).status == 200  # a replay
    assert (seen, await list_attempts(open_inbox)) == ([], {})


async def test_a_dead_letter_that_fails_leaves_the_event_in_the_inbox(open_inbox: Open) -> None:
    seen: list[tuple[str, int]] = []
    await store(open_inbox, {"poison": 5})
    async with open_inbox() as inbox, make_receiver(inbox, seen, dead_letter=fail):
        pass
    assert (seen, await list_attempts(open_inbox)) == ([], {"poison": 5})


async def test_the_log_names_an_event_directly_before_it_may_kill(
    open_inbox: Open, caplog: pytest.LogCaptureFixture
) -> None:
    await store(open_inbox, {"poison": 2, "one": 1, "two": 0})
    async with open_inbox() as inbox, make_receiver(inbox, []):
        pass
    reason = "the former ones ended with the process, or a store could not record it"
    assert [record.getMessage() for record in caplog.records] == [
        (
            "handling the events (2) of a process that ended without closing, or that a store could not record; "
            "handlers that had begun are called again"
        ),
        f"post.create poison: handled again, attempt 3 of 5: {reason}",
    ]


@pytest.mark.parametrize("claims_anew", [False, True])
async def test_an_event_that_is_discarded_while_it_waits_is_not_handled(
    open_inbox: Open, tmp_path: Path, *, claims_anew: bool
) -> None:
    seen: list[tuple[str, int]] = []
    dedupe = SqliteDedupe(tmp_path / "events.db") if claims_anew else MemoryDedupe()
    await store(open_inbox, {"poison": 2, "one": 1})
    async with open_inbox() as inbox, make_receiver(inbox, seen, clock=VirtualClock(), dedupe=dedupe):
        assert [await inbox.discard(key) for key in ("poison", "poison")] == [True, False]
    assert seen == [("one", 2)]
    assert await list_attempts(open_inbox) == {}


async def test_an_inbox_that_cannot_take_an_attempt_back_is_named_in_the_log(
    open_inbox: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_inbox() as inbox:
        receiver = WebhookReceiver(keys=[KEY], ack=Ack.durable(inbox))
        receiver.on("*")(fail)
        async with receiver:
            monkeypatch.setattr(inbox, "end", fail_later)
            await receiver.handle(*delivery())
            await receiver.wait_until_idle(deadline=30)
    assert "a delivery: inbox.end: LookupError at " in caplog.text
    assert await list_attempts(open_inbox) == {"1": 1}


async def test_events_of_an_inbox_are_listed_with_those_first_that_may_kill(open_inbox: Open) -> None:
    await store(open_inbox, {"one": 1, "two": 0, "poison": 4})
    async with open_inbox() as inbox:
        found = await inbox.list_events()
        assert [(each.key, each.event_type, each.attempts) for each in found] == [
            ("poison", "post.create", 4),
            ("one", "post.create", 1),
            ("two", "post.create", 0),
        ]
        assert {each.received_at for each in found} == {VirtualClock().now()}
        assert [each.key for each in await inbox.list_events(limit=1)] == ["poison"]


async def test_what_was_restored_waits_until_the_application_has_started() -> None:
    body = delivery("poison").body
    left = StoredEvent(key="poison", body=body, key_id="now", received_at=VirtualClock().now())
    for begins in ("a delivery", "a second"):
        clock, seen = VirtualClock(), list[tuple[str, int]]()
        async with make_receiver(MemoryInbox({"poison": left}), seen, clock=clock) as receiver:
            await run_ready_tasks()
            await clock.advance(seconds=0.9)
            assert seen == []
            if begins == "a delivery":
                await receiver.handle(*delivery(user="1"))
            else:
                await clock.advance(seconds=0.1)
            await run_ready_tasks()
            assert ("poison", 2) in seen
