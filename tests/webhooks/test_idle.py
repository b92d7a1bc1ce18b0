"""Waiting until a receiver is idle, and closing one whose handlers hang."""

import asyncio
import math
from typing import Any

import pytest

from svc_async.errors import InvalidArgument, WrongState
from svc_async.events.models import Event
from svc_async.sandbox import VirtualClock
from svc_async.webhooks import Ack, NotHandled, WebhookReceiver
from tests.support.deliveries import KEY, delivery
from tests.support.errors import has
from tests.support.event_stores import MemoryInbox, SlowStore
from tests.support.tasks import run_ready_tasks


@pytest.fixture(params=["system", "manual", "jump"])
def clock(request: pytest.FixtureRequest) -> VirtualClock | None:
    return None if request.param == "system" else VirtualClock(mode=request.param)


async def hang(_: Event, __: object) -> None:
    await asyncio.Event().wait()


async def test_whoever_waits_until_a_receiver_is_idle_waits_for_handlers_that_use_threads(
    clock: VirtualClock | None,
) -> None:
    stored: list[str] = []
    async with WebhookReceiver(keys=[KEY], clock=clock, workers=1) as receiver:

        @receiver.on("*")
        async def store(event: Event, _: object) -> None:
            await asyncio.to_thread(stored.append, event.key)

        for uuid in "123":
            await receiver.handle(*delivery(uuid))
        await receiver.wait_until_idle()
        assert stored == ["1", "2", "3"]
        assert (receiver.stats.handled, receiver.stats.waiting) == (3, 0)


async def test_a_receiver_is_idle_when_what_was_accepted_meanwhile_is_handled_too() -> None:
    seen: list[str] = []
    store = SlowStore()
    async with WebhookReceiver(keys=[KEY], dedupe=store) as receiver:

        @receiver.on("*")
        async def handle(event: Event, _: object) -> None:
            seen.append(event.key)
            if event.key == "1":
                await receiver.handle(*delivery("2"))

        answering = asyncio.create_task(receiver.handle(*delivery("1")))
        await run_ready_tasks()
        waiting = asyncio.create_task(receiver.wait_until_idle())
        await run_ready_tasks()
        assert not waiting.done()
        store.go.set()
        await waiting
        assert seen == ["1", "2"]
        assert (await answering).status == 200


async def test_an_event_whose_handler_failed_was_given_up() -> None:
    async with WebhookReceiver(keys=[KEY]) as receiver:
        receiver.on("*")(lambda event, _: event.nothing)
        await receiver.handle(*delivery())
        await receiver.wait_until_idle(math.inf)
        assert receiver.stats.failed == 1


@pytest.mark.parametrize("ack", [Ack.enqueue(), Ack.durable(MemoryInbox())])
async def test_events_are_given_up_when_the_receiver_closes(ack: Ack) -> None:
    receiver = WebhookReceiver(keys=[KEY], ack=ack, drain_deadline=0)
    receiver.on("*")(hang)
    async with receiver:
        await receiver.handle(*delivery())
        waiting = asyncio.create_task(receiver.wait_until_idle())
        await run_ready_tasks()
        assert not waiting.done()
    await waiting
    assert receiver.stats.abandoned == 1


async def test_a_handler_that_has_not_returned_is_named_at_the_deadline(clock: VirtualClock | None) -> None:
    async with WebhookReceiver(keys=[KEY], clock=clock, workers=1, drain_deadline=0) as receiver:
        receiver.on("*")(hang)
        for uuid in "12":
            await receiver.handle(*delivery(uuid))
        await run_ready_tasks()
        with pytest.raises(NotHandled) as caught:
            await receiver.wait_until_idle(deadline=0)
        assert str(caught.value) == (
            "the receiver is not idle after 0 s; events not handled: 2, deliveries not accepted: 0; "
            f"the handler {__name__}.hang has not returned"
        )


async def test_a_store_that_hangs_is_no_handler() -> None:
    store = SlowStore()
    async with WebhookReceiver(keys=[KEY], dedupe=store, drain_deadline=0) as receiver:
        answering = asyncio.create_task(receiver.handle(*delivery()))
        await run_ready_tasks()
        with pytest.raises(NotHandled, match="events not handled: 0, deliveries not accepted: 1$"):
            await receiver.wait_until_idle(deadline=0)
    await answering


async def test_a_receiver_that_does_not_run_is_idle() -> None:
    receiver = WebhookReceiver(keys=[KEY])
    await receiver.wait_until_idle()
    async with receiver:
        await receiver.wait_until_idle(deadline=0)
    await receiver.wait_until_idle()


async def test_a_handler_does_not_wait_for_itself() -> None:
    errors: list[BaseException] = []
    receiver = WebhookReceiver(keys=[KEY], on_error=lambda _, error: errors.append(error))

    @receiver.on("*")
    async def handle(_: Event, __: object) -> None:
        await receiver.wait_until_idle()

    async with receiver:
        await receiver.handle(*delivery())
        await receiver.wait_until_idle()
    (error,) = errors
    assert isinstance(error, WrongState)


@pytest.mark.parametrize("deadline", [None, -1, "30", math.nan])
async def test_a_deadline_that_is_none_is_refused(deadline: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="deadline")):
        await WebhookReceiver(keys=[KEY]).wait_until_idle(deadline)


async def test_a_handler_that_hangs_does_not_keep_a_receiver_open(clock: VirtualClock | None) -> None:
    reported: list[str] = []
    receiver = WebhookReceiver(
        keys=[KEY],
        clock=clock,
        drain_deadline=0.001,
        on_error=lambda event, error: reported.append(f"{event and event.key}: {error}"),
    )
    receiver.on("*")(hang)
    async with receiver:
        await receiver.handle(*delivery())
    assert reported == [f"1: the handler {__name__}.hang has not returned within 0.001 s"]
    assert receiver.stats.abandoned == 1
