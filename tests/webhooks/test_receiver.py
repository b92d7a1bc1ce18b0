"""What becomes of deliveries after they were accepted."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

from svc_async.errors import InvalidArgument
from svc_async.events.models import Event, PostCreated
from svc_async.events.router import EventRouter
from svc_async.sandbox import VirtualClock
from svc_async.webhooks import Ack, DeliveryContext, MemoryDedupe, NotHandled, SigningKey, WebhookReceiver
from svc_async.webhooks.inbox import Kept
from svc_async.webhooks.testing import build_crc, build_delivery
from tests.support.event_samples import activity
from tests.webhooks.deliveries import KEY, OLD, STRANGER, delivery

START = datetime(2026, 6, 10, 12, tzinfo=UTC)


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


# --- construction


def test_a_receiver_without_keys_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="keys must contain at least one key"):
        WebhookReceiver(keys=[])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("workers", 0),
        ("max_body", 0),
        ("retry_after", 0),
        ("read_deadline", -1),
        ("drain_deadline", float("nan")),
        ("crc_signature", "never"),
    ],
)
def test_a_setting_out_of_bounds_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"{name} must be"):
        WebhookReceiver(keys=[KEY], **{name: value})


@pytest.mark.parametrize(
    ("name", "value"), [("maxsize", 0), ("deadline", 0), ("deadline", float("nan")), ("on_deadline", "hope")]
)
def test_an_acknowledgement_out_of_bounds_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"{name} must be"):
        Ack(**{name: value})


def test_secrets_never_show() -> None:
    assert "consumer-secret" not in repr([KEY, Ack.enqueue(), WebhookReceiver(keys=[KEY])])


# --- its life


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
        with pytest.raises(InvalidArgument, match="must not be started twice"):
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
    await settled()
    living.cancel()
    with pytest.raises(asyncio.CancelledError):
        await living
    assert dead == ["1"]
    assert asyncio.all_tasks() == before


async def test_a_caller_that_goes_away_does_not_undo_an_acceptance() -> None:
    seen: list[str] = []
    store = SlowStore()
    receiver = WebhookReceiver(keys=[KEY], dedupe=store)
    receiver.on("*")(lambda event, _: seen.append(event.key))
    async with receiver:
        call = asyncio.create_task(receiver.handle(*delivery()))
        await settled()
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
    await settled()
    closing = asyncio.create_task(receiver.aclose())
    await settled()
    store.go.set()
    await closing
    assert (await answering).status == 200
    assert receiver.stats.handled == 1


async def test_closing_does_not_wait_for_a_store_that_hangs() -> None:
    store = SlowStore()
    receiver = WebhookReceiver(keys=[KEY], dedupe=store, drain_deadline=0)
    async with receiver:
        answering = asyncio.create_task(receiver.handle(*delivery()))
        await settled()
    answer = await answering
    assert (answer.status, answer.body) == (503, b"not_running")


# --- acknowledgement


@attrs.define
class SlowStore(MemoryDedupe):
    """Claims when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    async def claim(self, key: str) -> bool:
        await self.go.wait()
        return await super().claim(key)


@pytest.mark.rule("WH-42", "LIM-01")
async def test_an_answer_does_not_wait_for_handlers() -> None:
    clock = VirtualClock()
    receiver = WebhookReceiver(keys=[KEY], clock=clock, drain_deadline=0)
    receiver.on("*")(lambda *_: asyncio.Event().wait())
    async with receiver:
        assert (await receiver.handle(*delivery())).status == 200
        assert receiver.stats.ack_p99 == 0.0


@pytest.mark.rule("WH-42", "LIM-01")
@pytest.mark.parametrize("deadline", [None, 3.0])
async def test_an_answer_is_given_within_ten_seconds_even_if_a_store_hangs(deadline: float | None) -> None:
    clock, store = VirtualClock(), SlowStore()
    ack = Ack.enqueue() if deadline is None else Ack.inline(deadline=deadline)
    receiver = WebhookReceiver(keys=[KEY], clock=clock, dedupe=store, ack=ack)
    async with receiver:
        answering = asyncio.create_task(receiver.handle(*delivery()))
        await clock.advance(seconds=(deadline or 8.0) - 0.5)
        assert not answering.done()
        await clock.advance(seconds=0.5)
        answer = await answering
        assert (answer.status, answer.body) == (503, b"deadline_passed")
        store.go.set()  # it was accepted after all, and is handled
    assert receiver.stats.handled == 1


@pytest.mark.parametrize(("fails", "status"), [(False, 200), (True, 500)])
async def test_inline_answers_with_what_the_handlers_came_to(fails: bool, status: int) -> None:
    receiver = WebhookReceiver(keys=[KEY], ack=Ack.inline())

    @receiver.on("*")
    async def handler(event: Event, _: DeliveryContext) -> None:
        await asyncio.sleep(0)
        if fails and event.key == "2":
            raise LookupError

    several = {"data": [activity("post.create", uuid=uuid) for uuid in ("1", "2")]}
    async with receiver:
        assert (await receiver.handle(*build_delivery(several, KEY))).status == status
        assert (await receiver.handle(*build_delivery(several, KEY))).status == status
    assert receiver.stats.duplicates == (1 if fails else 2)


@pytest.mark.rule("WH-42", "LIM-01")
@pytest.mark.parametrize(("on_deadline", "status"), [("ack_and_continue", 200), ("refuse", 503)])
async def test_inline_answers_at_its_deadline_and_handlers_go_on(on_deadline: Any, status: int) -> None:
    clock, go, seen = VirtualClock(), asyncio.Event(), list[str]()
    receiver = WebhookReceiver(keys=[KEY], clock=clock, ack=Ack.inline(on_deadline=on_deadline))

    @receiver.on("*")
    async def handler(event: Event, _: DeliveryContext) -> None:
        await go.wait()
        seen.append(event.key)

    async with receiver:
        answering = asyncio.create_task(receiver.handle(*delivery()))
        await clock.advance(seconds=8)
        assert (await answering).status == status
        assert (await receiver.handle(*delivery())).status == 200  # in flight
        go.set()
    assert seen == ["1"]


async def test_a_body_that_does_not_come_is_given_up() -> None:
    clock = VirtualClock()
    receiver = WebhookReceiver(keys=[KEY], clock=clock)
    request = delivery()

    async def body() -> Any:
        yield request.body[:5]
        await asyncio.Event().wait()

    async with receiver:
        answering = asyncio.create_task(receiver.receive("POST", "", request.headers, body()))
        await clock.advance(seconds=5)
        answer = await answering
    assert (answer.status, answer.body) == (408, b"body_too_slow")
    assert receiver.stats.rejected == {"body_too_slow": 1}


async def test_no_more_of_a_body_is_read_than_is_allowed() -> None:
    read = 0

    async def endless() -> Any:
        nonlocal read
        while True:
            read += 1
            yield b"x" * 10

    receiver = WebhookReceiver(keys=[KEY], max_body=100)
    assert (await receiver.receive("POST", "", {}, endless())).status == 413
    assert read == 11


async def test_an_order_that_is_no_key_refuses_the_delivery_and_leaves_nothing_behind() -> None:
    errors: list[BaseException] = []
    orders: dict[str, Any] = {"bad": ["a", "list"]}
    receiver = WebhookReceiver(
        keys=[KEY], order_by=lambda event: orders.get(event.key), on_error=lambda _, error: errors.append(error)
    )
    async with receiver:
        assert (await receiver.handle(*delivery("bad"))).body == b"accept_failed"
        assert receiver.stats.waiting == 0
        orders.clear()
        assert (await receiver.handle(*delivery("bad"))).status == 200
    assert [type(error) for error in errors] == [TypeError]
    assert receiver.stats.handled == 1


async def test_of_a_compressed_body_nothing_is_read() -> None:
    async def body() -> Any:
        raise AssertionError
        yield b""

    answer = await WebhookReceiver(keys=[KEY]).receive("POST", "", {"Content-Encoding": "gzip"}, body())
    assert (answer.status, answer.body) == (415, b"body_encoded")


async def test_header_fields_may_be_given_so_that_they_are_read_once() -> None:
    request = delivery()
    async with WebhookReceiver(keys=[KEY], crc_signature="verify_if_present") as receiver:
        assert (await receiver.handle("POST", "", iter(request.headers.items()), request.body)).status == 200
        method, query, headers, body = build_crc(key=KEY)
        assert (await receiver.handle(method, query, iter(headers.items()), body)).status == 200


async def test_the_name_of_a_header_may_be_given_in_any_case() -> None:
    async with WebhookReceiver(keys=[SigningKey(KEY.secret, header="X-Svc-Webhooks-Signature")]) as receiver:
        assert (await receiver.handle(*delivery())).status == 200


async def test_a_body_may_hold_more_events_than_the_queue_when_it_is_empty() -> None:
    receiver, go = WebhookReceiver(keys=[KEY], ack=Ack.enqueue(maxsize=2)), asyncio.Event()
    receiver.on("*")(lambda *_: go.wait())
    several = {"data": [activity("post.create", uuid=str(number)) for number in range(5)]}
    async with receiver:
        assert (await receiver.handle(*build_delivery(several, KEY))).status == 200
        assert (await receiver.handle(*delivery("9"))).status == 503
        go.set()
        await settled()
        assert (await receiver.handle(*delivery("9"))).status == 200
    assert receiver.stats.handled == 6


@pytest.mark.parametrize(
    ("setting", "unsigned", "signed", "forged"),
    [("ignore", 200, 200, 200), ("verify_if_present", 200, 200, 401), ("require", 401, 200, 401)],
)
async def test_a_signature_of_the_crc_check_itself(setting: Any, unsigned: int, signed: int, forged: int) -> None:
    receiver = WebhookReceiver(keys=[KEY], crc_signature=setting)
    requests = [build_crc(), build_crc(key=KEY), build_crc(key=STRANGER)]
    assert [(await receiver.handle(*request)).status for request in requests] == [unsigned, signed, forged]


# --- order


async def test_events_of_one_user_keep_their_order_and_users_do_not_wait_for_each_other() -> None:
    go = {user: asyncio.Event() for user in ("a", "b")}
    began, ended = list[str](), list[str]()
    receiver = WebhookReceiver(keys=[KEY], workers=4)

    @receiver.on("*")
    async def handler(event: PostCreated, _: DeliveryContext) -> None:
        began.append(event.key)
        await go[event.filter.user_id or ""].wait()
        ended.append(event.key)

    async with receiver:
        for uuid, user in (("1", "a"), ("2", "a"), ("3", "b"), ("4", "a"), ("5", "b")):
            await receiver.handle(*delivery(uuid, user=user))
        await settled()
        assert began == ["1", "3"]
        go["b"].set()
        await settled()
        assert ended == ["3", "5"]
        go["a"].set()
    assert ended == ["3", "5", "1", "2", "4"]


@pytest.mark.parametrize(("order_by", "at_once"), [(lambda _: None, 3), (lambda event: event.event_type, 1)])
async def test_the_order_is_a_setting(order_by: Callable[[Event], str | None], at_once: int) -> None:
    running = 0
    most = 0
    receiver = WebhookReceiver(keys=[KEY], workers=8, order_by=order_by)

    @receiver.on("*")
    async def handler(*_: object) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await settled()
        running -= 1

    async with receiver:
        for number in range(3):
            await receiver.handle(*delivery(str(number)))
    assert most == at_once
    assert receiver.stats.handled == 3


async def test_no_more_events_are_handled_at_a_time_than_there_are_workers() -> None:
    running: set[str] = set()
    most: list[int] = []
    receiver = WebhookReceiver(keys=[KEY], workers=3)

    @receiver.on("*")
    async def handler(event: Event, _: DeliveryContext) -> None:
        running.add(event.key)
        most.append(len(running))
        await settled()
        running.remove(event.key)

    async with receiver:
        for number in range(20):
            await receiver.handle(*delivery(str(number), user=str(number)))
    assert max(most) == 3


# --- failures


async def test_a_failure_is_told_then_buried_then_a_repeated_delivery_is_handled() -> None:
    told: list[tuple[Any, ...]] = []
    failing = True

    async def on_error(event: Event | None, error: BaseException) -> None:
        await asyncio.sleep(0)
        told.append(("error", event and event.key, type(error)))

    receiver = WebhookReceiver(
        keys=[KEY],
        on_error=on_error,
        dead_letter=lambda event, error: told.append(("dead", event.key, type(error))),
    )

    @receiver.on("*")
    def handler(event: Event, _: DeliveryContext) -> None:
        if failing:
            raise LookupError
        told.append(("handled", event.key))

    async with receiver:
        assert (await receiver.handle(*delivery())).status == 200
        await settled()
        failing = False
        assert (await receiver.handle(*delivery())).status == 200
        await settled()
        assert (await receiver.handle(*delivery())).status == 200
    assert told == [("error", "1", LookupError), ("dead", "1", LookupError), ("handled", "1")]
    assert (receiver.stats.failed, receiver.stats.handled, receiver.stats.duplicates) == (1, 1, 1)


async def test_callbacks_that_fail_stop_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("secret")

    receiver = WebhookReceiver(keys=[KEY], workers=1, on_error=fails, dead_letter=fails)
    receiver.on("*")(fails)
    with caplog.at_level(logging.ERROR):
        async with receiver:
            for number in range(3):
                assert (await receiver.handle(*delivery(str(number)))).status == 200
    assert receiver.stats.failed == 3
    assert "secret" not in caplog.text
    assert "post.create: RuntimeError" in caplog.text


async def test_a_cancellation_within_a_handler_is_a_failure_and_no_end_of_a_worker() -> None:
    told: list[type[BaseException]] = []
    receiver = WebhookReceiver(keys=[KEY], workers=1, on_error=lambda _, error: told.append(type(error)))

    @receiver.on("*")
    async def handler(*_: object) -> None:
        part = asyncio.create_task(asyncio.Event().wait())
        part.cancel()
        await part

    async with receiver:
        for number in range(3):
            await receiver.handle(*delivery(str(number)))
    assert told == [asyncio.CancelledError] * 3


class BrokenStore(MemoryDedupe):
    def __init__(self, *broken: str) -> None:
        super().__init__()
        self.broken = set(broken)

    async def claim(self, key: str) -> bool:
        self._fail("claim", key)
        return await super().claim(key)

    async def commit(self, key: str) -> None:
        self._fail("commit", key)
        await super().commit(key)

    def _fail(self, step: str, key: str) -> None:
        if step in self.broken or f"{step} {key}" in self.broken:
            raise OSError


async def test_a_store_that_fails_refuses_deliveries_until_it_works_again() -> None:
    told: list[tuple[Event | None, type[BaseException]]] = []
    store = BrokenStore("claim 2")
    receiver = WebhookReceiver(
        keys=[KEY], dedupe=store, on_error=lambda event, error: told.append((event, type(error)))
    )
    both = build_delivery({"data": [activity("post.create", uuid=uuid) for uuid in ("1", "2")]}, KEY)
    async with receiver:
        answer = await receiver.handle(*both)
        assert (answer.status, answer.body) == (503, b"accept_failed")
        assert told == [(None, OSError)]
        store.broken.clear()
        assert (await receiver.handle(*both)).status == 200
    assert receiver.stats.handled == 2


async def test_a_commit_that_fails_is_told() -> None:
    told: list[Event | None] = []
    receiver = WebhookReceiver(keys=[KEY], dedupe=BrokenStore("commit"), on_error=lambda event, _: told.append(event))
    async with receiver:
        assert (await receiver.handle(*delivery())).status == 200
    assert [event.key for event in told if event] == ["1"]


async def test_an_order_that_fails_refuses_the_delivery() -> None:
    receiver = WebhookReceiver(keys=[KEY], order_by=lambda event: event.raw["nothing"])
    async with receiver:
        assert (await receiver.handle(*delivery())).status == 503
        assert (await receiver.handle(*delivery())).status == 503
    assert receiver.stats.duplicates == 0


async def test_a_repeated_delivery_is_not_acknowledged_for_the_sake_of_one_that_is_refused() -> None:
    store = SlowStore()
    receiver = WebhookReceiver(keys=[KEY], dedupe=store, ack=Ack.enqueue(maxsize=1), workers=1, drain_deadline=0)
    receiver.on("*")(lambda *_: asyncio.Event().wait())
    async with receiver:
        first = asyncio.create_task(receiver.handle(*delivery("0")))
        store.go.set()
        assert (await first).status == 200  # the queue is full
        store.go.clear()
        calls = [asyncio.create_task(receiver.handle(*delivery("1"))) for _ in range(2)]
        await settled()
        store.go.set()
        assert [answer.status for answer in await asyncio.gather(*calls)] == [503, 503]


async def test_bodies_that_share_events_in_any_order_do_not_wait_for_each_other_for_ever() -> None:
    store = SlowStore()
    receiver = WebhookReceiver(keys=[KEY], dedupe=store)
    bodies = [{"data": [activity("post.create", uuid=uuid) for uuid in order]} for order in ("a", "ab", "ba", "bca")]
    async with receiver:
        calls = [asyncio.create_task(receiver.handle(*build_delivery(body, KEY))) for body in bodies]
        await settled()
        store.go.set()
        assert [answer.status for answer in await asyncio.gather(*calls)] == [200] * 4
    assert receiver.stats.handled == 3


# --- what it tells


async def test_statistics_count_what_happens() -> None:
    clock = VirtualClock(START.isoformat())
    receiver = WebhookReceiver(keys=[KEY, OLD, SigningKey("unnamed")], clock=clock, workers=1)
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
    assert (stats.handled, stats.unheard, stats.failed, stats.waiting, stats.lag) == (3, 2, 0, 0, 0.0)
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
    assert receiver.health().valid_guess is None
    async with receiver:
        await receiver.handle(*build_crc())
        await clock.advance(hours=28)
        await receiver.handle(*delivery())
        health = receiver.health()
        assert (health.running, health.valid_guess, health.last_crc_ok) == (True, True, START)
        assert health.last_event == START + timedelta(hours=28)
        await clock.advance(seconds=1)
        assert receiver.health().valid_guess is False


async def test_a_router_may_be_shared() -> None:
    router, seen = EventRouter(), list[str]()
    router.on("*")(lambda event, _: seen.append(event.key))
    async with WebhookReceiver(keys=[KEY], router=router) as receiver:
        await receiver.handle(*delivery())
    assert seen == ["1"]


# --- stored before it is acknowledged


@attrs.define
class ListInbox:
    """An inbox in memory, which fails or waits when it is told to."""

    rows: dict[str, Kept] = attrs.field(factory=dict[str, Kept])
    go: asyncio.Event | None = None
    fails: bool = False

    async def keep(self, events: Sequence[Kept]) -> None:
        if self.go:
            await self.go.wait()
        if self.fails:
            raise OSError
        self.rows |= {each.key: each for each in events if each.key not in self.rows}

    async def done(self, key: str) -> None:
        self.rows.pop(key, None)

    async def kept(self) -> Sequence[Kept]:
        return tuple(self.rows.values())


async def test_it_is_stored_before_it_is_acknowledged() -> None:
    inbox = ListInbox(go=asyncio.Event())
    receiver = WebhookReceiver(keys=[KEY], ack=Ack.durable(inbox), drain_deadline=0)
    receiver.on("*")(lambda *_: asyncio.Event().wait())
    async with receiver:
        answering = asyncio.create_task(receiver.handle(*delivery()))
        again = asyncio.create_task(receiver.handle(*delivery()))
        await settled()
        assert not answering.done()
        assert not again.done()
        assert inbox.go is not None
        inbox.go.set()
        assert [(await each).status for each in (answering, again)] == [200, 200]
        assert [*inbox.rows] == ["1"]
    assert [*inbox.rows] == ["1"]  # it was not handled


async def test_what_cannot_be_stored_is_not_acknowledged() -> None:
    inbox = ListInbox(fails=True)
    seen: list[str] = []
    receiver = WebhookReceiver(keys=[KEY], ack=Ack.durable(inbox))
    receiver.on("*")(lambda event, _: seen.append(event.key))
    async with receiver:
        assert (await receiver.handle(*delivery())).status == 503
        inbox.fails = False
        assert (await receiver.handle(*delivery())).status == 200
    assert seen == ["1"]
    assert inbox.rows == {}


async def test_a_receiver_that_starts_handles_what_is_left_in_the_inbox() -> None:
    inbox, clock, dead = ListInbox(), VirtualClock(START.isoformat()), list[object]()
    first = WebhookReceiver(
        keys=[KEY], ack=Ack.durable(inbox), drain_deadline=0, clock=clock, dead_letter=lambda *each: dead.append(each)
    )
    first.on("*")(lambda *_: asyncio.Event().wait())
    several = build_delivery({"data": [activity("post.create", uuid=uuid) for uuid in ("1", "2")]}, KEY)
    async with first:
        assert (await first.handle(*several)).status == 200
        assert (await first.handle(*build_delivery({"to": "come"}, KEY))).status == 200
    await clock.advance(hours=1)
    seen: list[tuple[Event, DeliveryContext]] = []
    second = WebhookReceiver(keys=[KEY], ack=Ack.durable(inbox, maxsize=1), clock=clock, workers=1)
    second.on("*")(lambda event, context: seen.append((event, context)))
    async with second:
        pass
    assert [event.key for event, _ in seen if event.user_id] == ["1", "2"]
    assert [event.raw for event, _ in seen if not event.user_id] == [{"to": "come"}]
    assert {(context.restored, context.received_at, context.key_id) for _, context in seen} == {(True, START, "now")}
    assert seen[0][1].body == several.body
    assert inbox.rows == {}
    assert dead == []
    assert second.stats.restored == 3


async def test_what_failed_stays_in_the_inbox_unless_it_was_buried() -> None:
    def fails(*_: object) -> None:
        raise LookupError

    for dead_letter, left in ((None, ["1"]), (fails, ["1"]), (lambda *_: None, [])):
        inbox = ListInbox()
        receiver = WebhookReceiver(keys=[KEY], ack=Ack.durable(inbox), dead_letter=dead_letter)
        receiver.on("*")(fails)
        async with receiver:
            await receiver.handle(*delivery())
        assert [*inbox.rows] == left


async def test_what_was_committed_and_not_let_go_of_is_not_handled_again() -> None:
    inbox, dedupe = ListInbox(), MemoryDedupe()
    inbox.rows["1"] = Kept(key="1", body=delivery().body, key_id="now", received_at=START)
    await dedupe.claim("1")
    await dedupe.commit("1")
    async with WebhookReceiver(keys=[KEY], ack=Ack.durable(inbox), dedupe=dedupe) as receiver:
        pass
    assert receiver.stats.handled == 0
    assert inbox.rows == {}


async def test_an_inbox_that_cannot_be_read_stops_the_start() -> None:
    class Unreadable(ListInbox):
        async def kept(self) -> Sequence[Kept]:
            raise LookupError

    receiver = WebhookReceiver(keys=[KEY], ack=Ack.durable(Unreadable()))
    for _ in range(2):
        with pytest.raises(LookupError):
            await receiver.start()
    assert not receiver.is_running
