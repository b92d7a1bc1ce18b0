"""In which order events are handled, and what happens when that fails."""

import asyncio
import inspect
import json
import logging
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from svc_async.events.models import Event, PostCreated
from svc_async.monitoring import HandlingEndedEvent
from svc_async.sandbox import VirtualClock
from svc_async.webhooks import Ack, DeliveryContext, MemoryDedupe, WebhookReceiver
from svc_async.webhooks.testing import build_delivery
from tests.support.deliveries import KEY, delivery
from tests.support.event_samples import activity
from tests.support.event_stores import BrokenStore, MemoryInbox, SlowStore
from tests.support.tasks import run_ready_tasks

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
        await run_ready_tasks()
        assert began == ["1", "3"]
        go["b"].set()
        await run_ready_tasks()
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
        await run_ready_tasks()
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
        await run_ready_tasks()
        running.remove(event.key)

    async with receiver:
        for number in range(20):
            await receiver.handle(*delivery(str(number), user=str(number)))
    assert max(most) == 3


# --- failures


async def test_a_failure_is_reported_and_dead_lettered_then_a_repeated_delivery_is_handled() -> None:
    reported: list[tuple[Any, ...]] = []
    failing = True

    async def on_error(event: Event | None, error: BaseException) -> None:
        await asyncio.sleep(0)
        reported.append(("error", event and event.key, type(error)))

    receiver = WebhookReceiver(
        keys=[KEY],
        on_error=on_error,
        dead_letter=lambda event, error: reported.append(("dead", event.key, type(error))),
    )

    @receiver.on("*")
    def handler(event: Event, _: DeliveryContext) -> None:
        if failing:
            raise LookupError
        reported.append(("handled", event.key))

    async with receiver:
        assert (await receiver.handle(*delivery())).status == 200
        await run_ready_tasks()
        failing = False
        assert (await receiver.handle(*delivery())).status == 200
        await run_ready_tasks()
        assert (await receiver.handle(*delivery())).status == 200
    assert reported == [("error", "1", LookupError), ("dead", "1", LookupError), ("handled", "1")]
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
    assert "fails: RuntimeError at " in caplog.text


async def test_a_cancellation_within_a_handler_is_a_failure_and_no_end_of_a_worker() -> None:
    reported: list[type[BaseException]] = []
    receiver = WebhookReceiver(keys=[KEY], workers=1, on_error=lambda _, error: reported.append(type(error)))

    @receiver.on("*")
    async def handler(*_: object) -> None:
        part = asyncio.create_task(asyncio.Event().wait())
        part.cancel()
        await part

    async with receiver:
        for number in range(3):
            await receiver.handle(*delivery(str(number)))
    assert reported == [asyncio.CancelledError] * 3


async def test_a_handler_of_which_nothing_has_run_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def generate() -> AsyncIterator[None]:
        yield

    dead, reported = list[str](), list[str]()

    def keep(_: Event, error: BaseException) -> object:
        dead.append(str(error).partition(" must")[0])
        return generate()

    receiver = WebhookReceiver(
        keys=[KEY],
        ack=Ack.inline(),
        dead_letter=keep,
        on_error=lambda _, error: reported.append(str(error).partition(" must")[0]),
    )
    receiver.on("*")(lambda *_: generate())
    async with receiver:
        assert (await receiver.handle(*delivery())).status == 500
    assert (dead, reported) == (["handler"], ["handler", "dead_letter"])
    assert (receiver.stats.handled, receiver.stats.failed) == (0, 1)
    assert [message.split(" at ")[0].rpartition(" ")[2] for message in caplog.messages[:2]] == ["InvalidArgument"] * 2


async def test_a_store_that_fails_refuses_deliveries_until_it_works_again() -> None:
    reported: list[tuple[Event | None, type[BaseException]]] = []
    store = BrokenStore("claim 2")
    receiver = WebhookReceiver(
        keys=[KEY], dedupe=store, on_error=lambda event, error: reported.append((event, type(error)))
    )
    both = build_delivery({"data": [activity("post.create", uuid=uuid) for uuid in ("1", "2")]}, KEY)
    async with receiver:
        answer = await receiver.handle(*both)
        assert (answer.status, answer.body) == (503, b"accept_failed")
        assert reported == [(None, OSError)]
        store.broken.clear()
        assert (await receiver.handle(*both)).status == 200
    assert receiver.stats.handled == 2


async def test_a_commit_that_fails_is_reported() -> None:
    reported: list[Event | None] = []
    receiver = WebhookReceiver(
        keys=[KEY], dedupe=BrokenStore("commit"), on_error=lambda event, _: reported.append(event), drain_deadline=0
    )
    async with receiver:
        assert (await receiver.handle(*delivery())).status == 200
        await run_ready_tasks()
    assert [event.key for event in reported if event] == ["1"]


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
        await run_ready_tasks()
        store.go.set()
        assert [answer.status for answer in await asyncio.gather(*calls)] == [503, 503]


async def test_bodies_that_share_events_in_any_order_do_not_wait_for_each_other_for_ever() -> None:
    store = SlowStore()
    receiver = WebhookReceiver(keys=[KEY], dedupe=store)
    bodies = [{"data": [activity("post.create", uuid=uuid) for uuid in order]} for order in ("a", "ab", "ba", "bca")]
    async with receiver:
        calls = [asyncio.create_task(receiver.handle(*build_delivery(body, KEY))) for body in bodies]
        await run_ready_tasks()
        store.go.set()
        assert [answer.status for answer in await asyncio.gather(*calls)] == [200] * 4
    assert receiver.stats.handled == 3


async def test_a_type_of_event_cannot_write_to_a_terminal_through_the_log(caplog: pytest.LogCaptureFixture) -> None:
    receiver = WebhookReceiver(keys=[KEY])
    receiver.on("*")(_fail)
    async with receiver:
        await receiver.handle(*build_delivery({"data": {"event_type": "\x1b[31mx\n\u202e" + "y" * 1_000}}, KEY))
        await run_ready_tasks()
    assert any(message.startswith(rf"\x1b[31mx\n\u202e{'y' * 92} ") for message in caplog.messages)
    assert all(message.isascii() and message.isprintable() for message in caplog.messages)


def _fail(_: object, __: object) -> None:
    raise LookupError


def find_line(function: Callable[..., object], text: str) -> str:
    """Return the place of a line of a function, as a log has it."""
    lines, first = inspect.getsourcelines(function)
    (offset,) = (number for number, line in enumerate(lines) if text in line)
    return f"{inspect.getsourcefile(function)}:{first + offset}"


def raise_secret(*_: object) -> None:
    raise LookupError("secret")


class Shop:
    """Handlers that are no functions of a module."""

    async def __call__(self, event: Event, _: DeliveryContext) -> None:
        raise_secret(event)

    async def sell(self, event: Event, _: DeliveryContext) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self(event, _))


async def test_the_log_names_what_failed_and_where_and_no_message(caplog: pytest.LogCaptureFixture) -> None:
    place = find_line(raise_secret, "raise LookupError")
    with caplog.at_level(logging.ERROR):
        async with WebhookReceiver(keys=[KEY], dedupe=BrokenStore("claim 2"), on_error=raise_secret) as receiver:
            receiver.on("*")(raise_secret)
            assert (await receiver.handle(*delivery("1\n"))).status == 200
            await run_ready_tasks()
            assert (await receiver.handle(*delivery("2"))).status == 503
    store = find_line(BrokenStore._fail, "raise OSError")
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("svc_async.webhooks", rf"post.create 1\n: handler {__name__}.raise_secret: LookupError at {place}"),
        ("svc_async.webhooks", rf"post.create 1\n: on_error itself failed: LookupError at {place}"),
        ("svc_async.webhooks", f"a delivery: dedupe.claim: OSError at {store}"),
        ("svc_async.webhooks", f"a delivery: on_error itself failed: LookupError at {place}"),
    ]


@pytest.mark.parametrize(
    ("handler", "name", "kind"),
    [
        (Shop(), "Shop", "LookupError"),
        (Shop().sell, "Shop.sell", "ExceptionGroup"),
        (partial(partial(raise_secret), 1), "raise_secret", "LookupError"),
    ],
)
async def test_the_log_names_handlers_that_are_no_functions(
    caplog: pytest.LogCaptureFixture, handler: Any, name: str, kind: str
) -> None:
    ended: list[HandlingEndedEvent] = []
    receiver = WebhookReceiver(keys=[KEY])
    receiver.subscribe(lambda event: ended.append(event) if isinstance(event, HandlingEndedEvent) else None)
    receiver.on("*")(print)
    receiver.on("*")(handler)
    async with receiver:
        assert (await receiver.handle(*delivery())).status == 200
    place = find_line(raise_secret, "raise LookupError")
    assert caplog.messages == [
        f"post.create 1: handler {__name__}.{name}: {kind} at {place}; on_error receives the exception"
    ]
    assert [each.handler for each in ended] == [f"{__name__}.{name}"]


def read_amount(text: str) -> object:
    return json.loads(text)


async def test_the_log_names_the_line_that_called_a_library_which_raised(caplog: pytest.LogCaptureFixture) -> None:
    receiver = WebhookReceiver(keys=[KEY])
    receiver.on("*")(lambda *_: read_amount("{bad"))
    async with receiver:
        assert (await receiver.handle(*delivery())).status == 200
    place = find_line(read_amount, "json.loads")
    assert f": JSONDecodeError at {place}, raised at {json.decoder.__file__}:" in caplog.text


@pytest.mark.parametrize("source", ["dead_letter", "dedupe.commit", "inbox.remove"])
async def test_the_log_names_what_failed_besides_handlers(caplog: pytest.LogCaptureFixture, source: str) -> None:
    class BrokenInbox(MemoryInbox):
        async def remove(self, key: str) -> None:
            raise_secret(key)

    place, _, name = source.rpartition(".")
    receiver = WebhookReceiver(
        keys=[KEY],
        ack=Ack.durable(BrokenInbox()) if place == "inbox" else None,
        dedupe=BrokenStore(name if place == "dedupe" else ""),
        dead_letter=None if place else raise_secret,
        drain_deadline=0,
    )
    if name == "dead_letter":
        receiver.on("*")(raise_secret)
    async with receiver:
        assert (await receiver.handle(*delivery())).status == 200
        await run_ready_tasks()
    again = ", called again in 1 s" if place else ""
    assert f": {source}{again}: {'OSError' if name == 'commit' else 'LookupError'} at " in caplog.messages[-1]


async def test_an_event_without_a_handler_is_handled_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async with WebhookReceiver(keys=[KEY]) as receiver:
        await receiver.handle(*delivery())
    assert (receiver.stats.handled, receiver.stats.unhandled) == (1, 1)
    assert "no handler is registered for post.create: such events count as handled" in caplog.text
    async with receiver:
        receiver.on("*")(lambda *_: None)
        await receiver.handle(*delivery("2"))
    assert (receiver.stats.handled, receiver.stats.unhandled) == (2, 1)


async def test_the_end_of_a_replay_needs_no_handler(caplog: pytest.LogCaptureFixture) -> None:
    status = {"webhook_id": "3", "job_state": "Complete", "job_state_description": "done", "job_id": 12}
    async with WebhookReceiver(keys=[KEY]) as receiver:
        await receiver.handle(*build_delivery({"replay_job_status": status}, KEY))
    assert (receiver.stats.handled, receiver.stats.unhandled) == (1, 1)
    assert not caplog.messages


async def test_the_first_event_of_a_type_without_a_handler_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    types = [f"x.type{number}\n{'y' * 300}" for number in range(150)] * 2
    async with WebhookReceiver(keys=[KEY]) as receiver:
        for number, event_type in enumerate(types):
            await receiver.handle(*delivery(str(number), event_type=event_type))
    lines = [line for line in caplog.messages if "no handler" in line]
    assert receiver.stats.unhandled == 300
    assert (len(lines), len({*lines})) == (100, 100)
    assert max(map(len, lines)) < 500
    assert not any("\n" in line for line in lines)


async def hang(_: Event, __: object) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("durable", [True, False])
async def test_closing_abandons_what_is_not_handled(caplog: pytest.LogCaptureFixture, *, durable: bool) -> None:
    clock, inbox, dead = VirtualClock(), MemoryInbox(), list[str]()
    ack = Ack.durable(inbox) if durable else Ack.enqueue()
    receiver = WebhookReceiver(
        keys=[KEY], clock=clock, ack=ack, drain_deadline=1, dead_letter=lambda event, _: dead.append(event.key)
    )
    receiver.on("*")(hang)
    await receiver.start()
    for uuid in ("1", "2"):
        assert (await receiver.handle(*delivery(uuid))).status == 200
    closing = asyncio.create_task(receiver.aclose())
    await clock.advance(seconds=1)
    await closing
    problem = f"the handler {__name__}.hang has not returned within 1 s; on_error receives the exception"
    assert [record.getMessage() for record in caplog.records] == [
        "closed with events not handled: 2",
        f"post.create 1: {problem}",
    ]
    assert receiver.stats.abandoned == 2
    assert (dead, [*inbox.rows]) == (([], ["1", "2"]) if durable else (["1", "2"], []))


async def test_a_handler_that_fails_inline_releases_its_event() -> None:
    failing = True
    receiver = WebhookReceiver(keys=[KEY], ack=Ack.inline())

    @receiver.on("*")
    def handler(*_: object) -> None:
        if failing:
            raise LookupError

    async with receiver:
        answer = await receiver.handle(*delivery())
        assert (answer.status, answer.body) == (500, b"handler_failed")
        failing = False
        assert (await receiver.handle(*delivery())).status == 200
    assert (receiver.stats.handled, receiver.stats.failed, receiver.stats.duplicates) == (1, 1, 0)


async def test_the_last_event_is_the_last_that_was_new() -> None:
    clock = VirtualClock()
    async with WebhookReceiver(keys=[KEY], clock=clock) as receiver:
        await receiver.handle(*delivery())
        first = receiver.health().last_event
        await clock.advance(seconds=1)
        await receiver.handle(*delivery())
        assert receiver.health().last_event == first == clock.now() - timedelta(seconds=1)


async def test_an_event_that_was_taken_over_is_not_handled() -> None:
    class Lost(MemoryDedupe):
        async def confirm(self, key: str) -> bool:
            return key != "1"

    seen: list[str] = []
    async with WebhookReceiver(keys=[KEY], dedupe=Lost(), ack=Ack.inline()) as receiver:
        receiver.on("*")(lambda event, _: seen.append(event.key))
        assert [(await receiver.handle(*delivery(key))).status for key in "12"] == [500, 200]
    assert seen == ["2"]


@pytest.mark.parametrize(("inbox", "letters"), [(None, ["1"]), (MemoryInbox(), [])])
async def test_an_event_whose_claim_cannot_be_confirmed_is_not_handled(
    inbox: MemoryInbox | None, letters: list[str]
) -> None:
    seen, dead, errors = list[str](), list[str](), list[object]()
    receiver = WebhookReceiver(
        keys=[KEY],
        dedupe=BrokenStore("confirm"),
        ack=Ack.durable(inbox) if inbox is not None else None,
        on_error=lambda _, error: errors.append(type(error)),
        dead_letter=lambda event, _: dead.append(event.key),
        drain_deadline=0,
    )
    receiver.on("*")(lambda event, _: seen.append(event.key))
    async with receiver:
        assert (await receiver.handle(*delivery())).status == 200
        await run_ready_tasks()
    assert (seen, dead, errors, receiver.stats.abandoned) == ([], letters, [OSError], 1)
    assert inbox is None or [*inbox.rows] == ["1"]


@pytest.mark.parametrize("inbox", [None, MemoryInbox()])
async def test_events_wait_for_a_store_that_fails_and_are_handled_in_their_order(
    inbox: MemoryInbox | None, caplog: pytest.LogCaptureFixture
) -> None:
    clock, store, seen = VirtualClock(), BrokenStore("confirm 1"), list[str]()
    ack = Ack.durable(inbox) if inbox is not None else None
    failed: list[object] = []
    receiver = WebhookReceiver(
        keys=[KEY], dedupe=store, ack=ack, clock=clock, on_error=lambda _, error: failed.append(error)
    )
    receiver.on("*")(lambda event, _: seen.append(event.key))
    async with receiver:
        for key, user in (("1", "a"), ("2", "a"), ("3", "b")):
            assert (await receiver.handle(*delivery(key, user=user))).status == 200
        await run_ready_tasks()
        assert caplog.messages[-1].startswith("post.create 1: dedupe.confirm, called again in 1 s: OSError at")
        for wait in (1, 5, 15, 60, 60):
            await clock.advance(seconds=wait)
            await run_ready_tasks()
        assert (seen, len(failed)) == (["3"], 6)
        store.broken.clear()
        await clock.advance(seconds=60)
        await run_ready_tasks()
        assert seen == ["3", "1", "2"]
    assert (receiver.stats.handled, receiver.stats.abandoned) == (3, 0)
    assert inbox is None or not inbox.rows
