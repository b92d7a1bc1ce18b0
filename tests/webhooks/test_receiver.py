"""The life of a receiver, and what it reports."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import attrs
import pytest

from svc_async.errors import InvalidArgument, WrongState
from svc_async.events.models import Event
from svc_async.events.parser import EventParser
from svc_async.events.router import EventRouter
from svc_async.sandbox import VirtualClock
from svc_async.state import SharedState
from svc_async.state.events import SharedEvents
from svc_async.webhooks import (
    Ack,
    DeliveryContext,
    MemoryDedupe,
    NotHandled,
    SigningKey,
    SqliteDedupe,
    SqliteInbox,
    WebhookReceiver,
    unwrap,
)
from svc_async.webhooks.testing import build_crc
from tests.support.deliveries import KEY, OLD, STRANGER, delivery
from tests.support.errors import has
from tests.support.event_stores import BrokenStore, SlowStore
from tests.support.tasks import run_ready_tasks

START = datetime(2026, 6, 10, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("keys", "parameter"),
    [
        *((wrong, "keys") for wrong in ((), "secret", b"secret", KEY, None, 5, {"secret": KEY})),
        *((wrong, "keys[0]") for wrong in (["secret"], [b"secret", KEY], [None], {5})),
        ([KEY, "secret"], "keys[1]"),
    ],
)
def test_a_receiver_without_keys_is_refused(keys: Any, parameter: str) -> None:
    for make in (WebhookReceiver, partial(unwrap, b"{}", {})):
        with pytest.raises(InvalidArgument, check=has(parameter=parameter)) as caught:
            make(keys=keys)
        assert "secret" not in str(caught.value)


def test_room_for_less_than_one_body_is_refused_with_both_settings() -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="max_bytes")):
        WebhookReceiver(keys=[KEY], max_body=100 * 2**20)
    with pytest.raises(InvalidArgument, check=has(parameter="max_bytes")):
        WebhookReceiver(keys=[KEY], max_bytes=1.5e9)  # type: ignore[arg-type]  # which is refused
    WebhookReceiver(keys=[KEY], max_body=100 * 2**20, max_bytes=100 * 2**20)


def test_a_handler_is_registered_for_a_type() -> None:
    handler: Any = print
    with pytest.raises(InvalidArgument, check=has(parameter="event_type")):
        WebhookReceiver(keys=[KEY]).on(handler)


def generate(*_: object) -> Iterator[None]:
    yield


async def generate_later(*_: object) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ack", "durable"),
        ("ack", Ack),
        ("dedupe", "events.db"),
        ("workers", 0),
        ("max_body", 0),
        ("max_bodies", 0),
        ("retry_after", 0),
        ("read_deadline", -1),
        ("drain_deadline", float("nan")),
        ("crc_signature", "never"),
        ("workers", "8"),
        ("workers", True),
        ("max_body", "1M"),
        ("max_body", 1.5),
        ("max_bodies", None),
        ("max_bytes", "64M"),
        ("max_bytes", 2**19),
        ("retry_after", 0.5),
        ("read_deadline", "5"),
        ("read_deadline", None),
        ("drain_deadline", timedelta(seconds=30)),
        ("state", "postgresql://svc@db.example.test/svc"),
        ("dedupe", MemoryDedupe),
        ("router", print),
        ("parser", EventParser),
        ("crc_key", "secret"),
        ("clock", 1.0),
        ("order_by", None),
        ("order_by", "user_id"),
        ("order_by", generate),
        ("on_error", generate),
        ("dead_letter", generate_later),
        ("on_error", "log"),
        ("dead_letter", []),
        ("on_event", {}),
        ("on_event", lambda _, __: None),
        ("order_by", lambda _, __: "1"),
        ("order_by", lambda: "1"),
        ("on_error", lambda _: None),
        ("on_error", lambda _, __, ___: None),
        ("dead_letter", lambda _: None),
    ],
)
def test_a_setting_out_of_bounds_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=name)) as caught:
        WebhookReceiver(keys=[KEY], **{name: value})
    assert not isinstance(value, str) or value not in str(caught.value).split()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxsize", 0),
        ("maxsize", "10"),
        ("max_bytes", 1.5),
        ("deadline", "8"),
        ("inbox", "inbox.db"),
        ("inbox", object),
        ("max_bytes", 0),
        ("deadline", 0),
        ("deadline", float("nan")),
        ("on_deadline", "hope"),
        ("max_attempts", 0),
    ],
)
def test_an_acknowledgement_out_of_bounds_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=name)):
        Ack(**{name: value})


class Incomplete:
    """An inbox that is not a subclass of `Inbox`, and so lacks `begin`, `end` and `load_interval`."""

    store = remove = load = MemoryDedupe.commit


@pytest.mark.parametrize("inbox", ["inbox.db", None, SqliteInbox, MemoryDedupe(), Incomplete()])
def test_a_durable_acknowledgement_needs_an_inbox(inbox: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Ack.durable(inbox)
    assert caught.value.parameter == "inbox"


STATE = SharedState.open("postgresql://svc@db.example.test/svc")


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        *((MemoryDedupe, {"ttl": ttl}) for ttl in (3_600, timedelta())),
        *((MemoryDedupe, {"maxsize": size}) for size in (0, "10")),
        *((partial(SqliteDedupe, "events.db"), {"ttl": ttl}) for ttl in (25 * 3_600.0, timedelta())),
        *((partial(SqliteDedupe, "events.db"), {"owner": owner}) for owner in (7, "")),
        (partial(SqliteDedupe, "events.db"), {"lease": 60}),
        *((STATE.events, {"receiver": name}) for name in (3, "", "a\n", "a" * 201)),
        (partial(SharedEvents, STATE), {"ttl": timedelta()}),
        *(
            (partial(SharedEvents, STATE), {"lease": lease})
            for lease in (60.0, timedelta(milliseconds=999), timedelta(days=1, seconds=1))
        ),
    ],
)
def test_a_setting_of_a_store_out_of_bounds_is_refused(make: Callable[..., object], settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(InvalidArgument, check=has(parameter=name)):
        make(**settings)


@pytest.mark.parametrize("body", ["{}", {}, None, bytearray(b"{}")])
async def test_a_body_that_is_not_bytes_is_an_error_of_the_caller(body: Any) -> None:
    async with WebhookReceiver(keys=[KEY]) as receiver:
        with pytest.raises(InvalidArgument, check=has(parameter="body")):
            await receiver.handle("POST", "", delivery().headers, body)
        with pytest.raises(InvalidArgument, check=has(parameter="body")):
            receiver.unwrap(body, delivery().headers)
        assert receiver.stats.handled == 0


@pytest.mark.parametrize("headers", [None, "x-a: b", [("x-a",)], {"x-a": 1}])
async def test_header_fields_that_are_none_are_an_error_of_the_caller(headers: Any) -> None:
    settings: dict[str, Any] = {"max_body": "1M"}
    async with WebhookReceiver(keys=[KEY]) as receiver:
        with pytest.raises(InvalidArgument, check=has(parameter="headers")):
            await receiver.handle("POST", "", headers, b"{}")
    with pytest.raises(InvalidArgument, check=has(parameter="headers")):
        unwrap(b"{}", headers, keys=[KEY])
    with pytest.raises(InvalidArgument, check=has(parameter="max_body")):
        unwrap(b"{}", {}, keys=[KEY], **settings)


def test_bodies_never_show() -> None:
    context = DeliveryContext(key_id="now", received_at=START, body=b"hello")
    assert "hello" not in repr(context)
    assert context.restored is False


def test_secrets_never_show() -> None:
    assert "consumer-secret" not in repr([KEY, Ack.enqueue(), WebhookReceiver(keys=[KEY])])


# --- life cycle


async def test_deliveries_are_refused_unless_it_runs_and_crc_checks_are_answered_always() -> None:
    receiver = WebhookReceiver(keys=[KEY])
    for _ in range(2):
        assert (await receiver.handle(*delivery())).status == 503
        assert (await receiver.handle(*build_crc())).status == 200
        async with receiver:
            assert receiver.is_running
    assert receiver.stats.rejected == {"not_running": 2}


async def test_it_is_not_started_twice_but_shared() -> None:
    receiver = WebhookReceiver(keys=[KEY])
    async with receiver:
        with pytest.raises(WrongState):
            await receiver.start()
        async with receiver.running():
            pass
        assert receiver.is_running
    async with receiver.running():
        assert receiver.is_running
    assert not receiver.is_running
    await receiver.aclose()


async def test_it_may_be_closed_in_another_task_than_it_was_started_in() -> None:
    receiver = WebhookReceiver(keys=[KEY])
    await asyncio.create_task(receiver.start())
    assert (await receiver.handle(*delivery())).status == 200
    await asyncio.create_task(receiver.aclose())
    assert receiver.stats.handled == 1


async def test_a_receiver_runs_again_with_what_it_remembers() -> None:
    receiver, seen = WebhookReceiver(keys=[KEY]), list[str]()
    receiver.on("*")(lambda event, _: seen.append(event.key))
    for _ in range(2):
        async with receiver:
            assert (await receiver.handle(*delivery())).status == 200
    assert seen == ["1"]


async def test_closing_waits_so_long_and_what_is_left_is_a_dead_letter() -> None:
    clock, dead = VirtualClock(), list[tuple[str, BaseException]]()
    receiver = WebhookReceiver(
        keys=[KEY],
        workers=1,
        clock=clock,
        drain_deadline=30,
        dead_letter=lambda event, error: dead.append((event.key, error)),
    )
    receiver.on("*")(lambda *_: asyncio.Event().wait())
    await receiver.start()
    for uuid in ("1", "2"):
        await receiver.handle(*delivery(uuid))
    closing = asyncio.create_task(receiver.aclose())
    await clock.advance(seconds=29)
    assert not closing.done()
    assert (await receiver.handle(*delivery("3"))).status == 503
    await clock.advance(seconds=1)
    await closing
    assert [key for key, _ in dead] == ["1", "2"]
    assert all(isinstance(error, NotHandled) for _, error in dead)
    assert receiver.stats.abandoned == 2
    async with receiver:  # they were released
        receiver.on("*")  # of no effect
        assert (await receiver.handle(*delivery("1"))).status == 200
        assert receiver.stats.duplicates == 0
        closing = asyncio.create_task(receiver.aclose())
        await clock.advance(seconds=30)
        await closing


async def test_a_receiver_that_is_cancelled_while_it_drains_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()
    dead: list[str] = []
    receiver = WebhookReceiver(keys=[KEY], dead_letter=lambda event, _: dead.append(event.key))
    receiver.on("*")(lambda *_: asyncio.Event().wait())

    async def live() -> None:
        async with receiver:
            await receiver.handle(*delivery())

    living = asyncio.create_task(live())
    await run_ready_tasks()
    living.cancel()
    with pytest.raises(asyncio.CancelledError):
        await living
    assert dead == ["1"]
    assert asyncio.all_tasks() == before


async def test_a_handler_may_close_the_receiver_and_does_not_wait_for_itself() -> None:
    seen: list[str] = []
    receiver = WebhookReceiver(keys=[KEY], ack=Ack.inline(), clock=VirtualClock())

    @receiver.on("*")
    async def handler(event: Event, _: object) -> None:
        await receiver.aclose()
        seen.append(event.key)

    async def live(uuids: str) -> list[int]:
        async with receiver:
            answers = await asyncio.gather(*(receiver.handle(*delivery(uuid)) for uuid in uuids))
            return [*(each.status for each in answers), (await receiver.handle(*delivery("5"))).status]

    for uuids in ("12", "34"):  # it can be entered again
        living = asyncio.create_task(live(uuids))
        await run_ready_tasks()
        assert living.done()
        assert living.result() == [200, 200, 503]
    assert seen == ["1", "2", "3", "4"]


async def test_a_receiver_that_its_handler_has_closed_ends_by_itself() -> None:
    before, receiver = asyncio.all_tasks(), WebhookReceiver(keys=[KEY], clock=VirtualClock())
    receiver.on("*")(lambda *_: receiver.aclose())
    await receiver.start()
    await receiver.handle(*delivery())
    await run_ready_tasks()
    assert (receiver.is_running, receiver.stats.handled, asyncio.all_tasks()) == (False, 1, before)
    async with receiver:
        assert receiver.is_running


async def test_a_callback_may_close_the_receiver_while_a_delivery_is_accepted() -> None:
    clock = VirtualClock()
    receiver = WebhookReceiver(
        keys=[KEY], dedupe=BrokenStore("claim"), clock=clock, on_error=lambda *_: receiver.aclose()
    )
    await receiver.start()
    answering = asyncio.create_task(receiver.handle(*delivery()))
    await run_ready_tasks()
    assert answering.done()
    assert (answering.result().status, receiver.is_running) == (503, False)


async def test_who_waits_for_a_receiver_to_close_is_not_cancelled_with_another_who_waits() -> None:
    receiver = WebhookReceiver(keys=[KEY])
    receiver.on("*")(lambda *_: asyncio.Event().wait())
    await receiver.start()
    await receiver.handle(*delivery())
    first, second = [asyncio.create_task(receiver.aclose()) for _ in "12"]
    await run_ready_tasks()
    first.cancel()
    await asyncio.wait({first, second})
    assert (first.cancelled(), second.cancelled()) == (True, False)


async def test_a_caller_that_goes_away_does_not_undo_an_acceptance() -> None:
    seen: list[str] = []
    store = SlowStore()
    receiver = WebhookReceiver(keys=[KEY], dedupe=store)
    receiver.on("*")(lambda event, _: seen.append(event.key))
    async with receiver:
        call = asyncio.create_task(receiver.handle(*delivery()))
        await run_ready_tasks()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        store.go.set()
    assert seen == ["1"]


async def test_closing_waits_for_deliveries_that_are_being_taken_in() -> None:
    store = SlowStore()
    receiver = WebhookReceiver(keys=[KEY], dedupe=store)
    await receiver.start()
    answering = asyncio.create_task(receiver.handle(*delivery()))
    await run_ready_tasks()
    closing = asyncio.create_task(receiver.aclose())
    await run_ready_tasks()
    store.go.set()
    await closing
    assert (await answering).status == 200
    assert receiver.stats.handled == 1


async def test_closing_does_not_wait_for_a_store_that_hangs() -> None:
    store = SlowStore()
    receiver = WebhookReceiver(keys=[KEY], dedupe=store, drain_deadline=0)
    async with receiver:
        answering = asyncio.create_task(receiver.handle(*delivery()))
        await run_ready_tasks()
    answer = await answering
    assert (answer.status, answer.body) == (503, b"not_running")


# --- statistics


async def test_statistics_count_what_happens() -> None:
    clock = VirtualClock(START.isoformat())
    receiver = WebhookReceiver(keys=[KEY, OLD, SigningKey("unnamed", app="shop")], clock=clock, workers=1)
    go = asyncio.Event()
    receiver.on("post.create")(lambda *_: go.wait())
    async with receiver:
        for request in (
            build_crc(),
            delivery("1"),
            delivery("2", event_type="dm.read", key=OLD),
            delivery("3", event_type="dm.read", key=SigningKey("unnamed")),
            delivery("1"),
            delivery(key=STRANGER),
        ):
            await receiver.handle(*request)
        await clock.advance(seconds=5)
        stats = receiver.stats
        assert (stats.received, stats.crc_answered, stats.duplicates) == (6, 1, 1)
        assert stats.verified == {"now": 2, "before": 1, "key-3": 1}
        assert stats.rejected == {"signature_wrong": 1}
        assert (stats.waiting, stats.lag) == (3, 5.0)
        go.set()
    stats = receiver.stats
    assert (stats.handled, stats.unhandled, stats.failed, stats.waiting, stats.lag) == (3, 2, 0, 0, 0.0)
    assert (stats.ack_p50, stats.ack_p99) == (0.0, 0.0)


async def test_statistics_tell_how_long_answers_took() -> None:
    clock, store = VirtualClock(), SlowStore()
    receiver = WebhookReceiver(keys=[KEY], clock=clock, dedupe=store)
    async with receiver:
        answering = asyncio.create_task(receiver.handle(*delivery()))
        await clock.advance(seconds=2)
        store.go.set()
        await answering
        await receiver.handle(*delivery("2"))
        await receiver.handle(*delivery("3"))
    assert (receiver.stats.ack_p50, receiver.stats.ack_p99) == (0.0, 2.0)


async def test_health_guesses_whether_the_webhook_is_valid() -> None:
    clock = VirtualClock(START.isoformat())
    receiver = WebhookReceiver(keys=[KEY], clock=clock)
    assert receiver.health().probably_valid is None
    async with receiver:
        await receiver.handle(*build_crc())
        await clock.advance(hours=28)
        await receiver.handle(*delivery())
        health = receiver.health()
        assert (health.running, health.probably_valid, health.last_crc_ok) == (True, True, START)
        assert health.last_event == START + timedelta(hours=28)
        await clock.advance(seconds=1)
        assert receiver.health().probably_valid is False


async def test_health_and_statistics_are_json() -> None:
    receiver = WebhookReceiver(keys=[KEY], clock=VirtualClock(START.isoformat()))
    before = {"running": False, "accepting": False, "last_crc_ok": None, "last_event": None, "probably_valid": None}
    assert json.loads(json.dumps(receiver.health().to_dict())) == before
    async with receiver:
        await receiver.handle(*build_crc())
        await receiver.handle(*delivery())
        start = START.isoformat()
        after = {"running": True, "accepting": True, "last_crc_ok": start, "last_event": start, "probably_valid": True}
        assert json.loads(json.dumps(receiver.health().to_dict())) == after
    stats = json.loads(json.dumps(receiver.stats.to_dict()))
    assert (stats["handled"], stats["verified"], stats["rejected"]) == (1, {"now": 1}, {})
    assert stats == attrs.asdict(receiver.stats)


async def test_a_router_may_be_shared() -> None:
    router, seen = EventRouter(), list[str]()
    router.on("*")(lambda event, _: seen.append(event.key))
    async with WebhookReceiver(keys=[KEY], router=router) as receiver:
        await receiver.handle(*delivery())
    assert seen == ["1"]
