"""What a receiver reports of deliveries and handlers."""

import asyncio
from contextvars import ContextVar

import pytest

from svc_async.events.models import Event
from svc_async.monitoring import DeliveryEvent, HandlingEndedEvent, HandlingStartedEvent
from svc_async.sandbox import VirtualClock
from svc_async.webhooks import Ack, DeliveryContext, SigningKey, WebhookReceiver
from tests.support.deliveries import KEY, STRANGER, delivery
from tests.support.panics import Panic

PLACE: ContextVar[str] = ContextVar("place", default="")


async def send(
    receiver: WebhookReceiver, key: SigningKey = KEY, *, uuid: str = "1", event_type: str = "post.create"
) -> int:
    request = delivery(uuid, event_type=event_type, key=key)
    return (await receiver.handle("POST", "", request.headers, request.body)).status


async def test_deliveries_and_their_handlers_are_reported() -> None:
    events: list[object] = []
    receiver = WebhookReceiver(keys=[KEY], ack=Ack.inline(), on_event=events.append)

    @receiver.on("post.create")
    async def handle(_: Event, __: DeliveryContext) -> None:
        """Do nothing."""

    @receiver.on("post.delete")
    async def fail(_: Event, __: DeliveryContext) -> None:
        raise ValueError("ann")

    async with receiver:
        PLACE.set("the request")
        assert await send(receiver) == 200
        assert await send(receiver, uuid="2", event_type="post.delete") == 500
        assert await send(receiver, uuid="3", event_type="chat.sent") == 200
        assert await send(receiver, STRANGER) == 401

    answers = [event for event in events if isinstance(event, DeliveryEvent)]
    assert [(each.reason, each.events) for each in answers] == [
        (None, 1),
        ("handler_failed", 0),
        (None, 1),
        ("signature_wrong", 0),
    ]
    assert all(each.bytes_received == len(delivery().body) for each in answers[:1])
    ended = [event for event in events if isinstance(event, HandlingEndedEvent)]
    assert [(each.event_type, each.handlers, each.error_type) for each in ended] == [
        ("post.create", 1, None),
        ("post.delete", 0, "ValueError"),
        ("chat.sent", 0, None),
    ]
    started = [event for event in events if isinstance(event, HandlingStartedEvent)]
    assert [each.context and each.context.get(PLACE) for each in started] == ["the request"] * 3
    assert "ann" not in repr(events)


@pytest.mark.parametrize("inside", [False, True])
async def test_a_handler_that_is_cancelled_has_ended(*, inside: bool) -> None:
    ended: list[HandlingEndedEvent] = []
    begun = asyncio.Event()
    receiver = WebhookReceiver(keys=[KEY], ack=Ack.inline(), drain_deadline=0)
    receiver.subscribe(lambda event: ended.append(event) if isinstance(event, HandlingEndedEvent) else None)

    @receiver.on("post.create")
    async def wait(_: Event, __: DeliveryContext) -> None:
        begun.set()
        if inside:
            raise asyncio.CancelledError
        await asyncio.Event().wait()

    async with receiver:
        sending = asyncio.create_task(send(receiver))
        await begun.wait()
    await asyncio.wait([sending])

    assert [(each.handlers, each.error_type) for each in ended] == [(0, "CancelledError")]


async def test_rejections_are_logged_once_and_then_at_most_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    receiver = WebhookReceiver(keys=[KEY], clock=clock)

    for _ in range(3):
        assert await send(receiver) == 503
    assert await send(receiver, STRANGER) == 401
    assert [(record.name, record.levelname) for record in caplog.records] == [("svc_async.webhooks", "WARNING")] * 2
    first, second = caplog.messages
    assert first.startswith("rejected a request: not_running: the receiver was not started, or is closing; enter the ")
    assert second.startswith("rejected a request: signature_wrong: ")

    caplog.clear()
    await clock.advance(seconds=59)
    assert await send(receiver) == 503
    assert caplog.messages == []
    await clock.advance(seconds=1)
    for _ in range(3):
        assert await send(receiver) == 503
    assert [message.split(": ")[:2] for message in caplog.messages] == [["rejected 4 more", "not_running"]]

    caplog.clear()
    await clock.advance(seconds=60)
    assert await send(receiver) == 503
    assert [message.split(": ")[:2] for message in caplog.messages] == [["rejected 3 more", "not_running"]]


async def test_deliveries_that_are_acknowledged_at_their_deadline_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    clock, ack = VirtualClock(), Ack.inline(on_deadline="ack_and_continue")
    receiver = WebhookReceiver(keys=[KEY], clock=clock, ack=ack, drain_deadline=0)
    receiver.on("*")(lambda *_: asyncio.Event().wait())

    async def reach_deadline() -> None:
        sending = asyncio.create_task(send(receiver))
        await clock.advance(seconds=8)
        assert await sending == 200

    async with receiver:
        await reach_deadline()
        assert [(record.name, record.levelname) for record in caplog.records] == [("svc_async.webhooks", "WARNING")]
        assert caplog.messages[0].startswith("acknowledged a delivery: its handlers have not finished within ")
        assert "Ack.inline(on_deadline='refuse')" in caplog.messages[0]
        caplog.clear()
        for _ in range(7):
            await reach_deadline()
        assert caplog.messages == []
        await reach_deadline()
        assert [message.partition(":")[0] for message in caplog.messages] == ["acknowledged 8 more"]


async def test_a_delivery_that_is_refused_at_its_deadline_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    receiver = WebhookReceiver(keys=[KEY], clock=clock, ack=Ack.inline(), drain_deadline=0)
    receiver.on("*")(lambda *_: asyncio.Event().wait())
    async with receiver:
        sending = asyncio.create_task(send(receiver))
        await clock.advance(seconds=8)
        assert await sending == 503
        assert [message.split(": ")[:2] for message in caplog.messages] == [["rejected a request", "deadline_passed"]]


@pytest.mark.parametrize("kind", [RuntimeError, Panic])
async def test_an_observer_that_fails_changes_nothing(
    caplog: pytest.LogCaptureFixture, kind: type[BaseException]
) -> None:
    def fail(_: object) -> None:
        raise kind("hush")

    receiver = WebhookReceiver(keys=[KEY], ack=Ack.inline())
    receiver.on("*")(lambda *_: None)
    end = receiver.subscribe(fail)
    async with receiver:
        assert await send(receiver) == 200
        assert {record.getMessage() for record in caplog.records} == {f"on_event failed: {kind.__name__}"}
        caplog.clear()
        end()
        assert await send(receiver, uuid="2") == 200
    assert caplog.text == ""
