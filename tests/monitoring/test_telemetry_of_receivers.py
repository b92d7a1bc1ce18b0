"""The spans and metrics of receivers."""

import asyncio

from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from svc_async.events.models import Event
from svc_async.sandbox import VirtualClock
from svc_async.webhooks import Ack, DeliveryContext, WebhookReceiver
from tests.support.deliveries import KEY, STRANGER, delivery
from tests.support.tasks import run_ready_tasks
from tests.support.telemetry import Telemetry


async def send(receiver: WebhookReceiver, uuid: str, event_type: str = "post.create") -> int:
    request = delivery(uuid, event_type=event_type)
    return (await receiver.handle("POST", "", request.headers, request.body)).status


async def test_handlers_run_in_a_span_below_that_of_their_delivery(telemetry: Telemetry) -> None:
    receiver = WebhookReceiver(keys=[KEY], ack=Ack.inline())
    telemetry.instrument(receiver)
    tracer = telemetry.tracers.get_tracer("app")

    @receiver.on("post.create")
    async def handle(_: Event, __: DeliveryContext) -> None:
        tracer.start_span("within the handler").end()

    async with receiver:
        with tracer.start_as_current_span("the request"):
            assert await send(receiver, "1") == 200
        assert await send(receiver, "2") == 200
        assert not get_current_span().get_span_context().is_valid

    within, process, request, _, second = telemetry.spans
    assert (process.name, process.kind) == ("process post.create", SpanKind.CONSUMER)
    assert process.parent == request.context
    assert within.parent == process.context
    assert second.parent is None
    assert dict(process.attributes or {}) == {
        "messaging.system": "svc",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "post.create",
        "svc_async.handlers": 1,
    }


async def test_deliveries_are_counted_by_result(telemetry: Telemetry) -> None:
    after = []
    receiver = WebhookReceiver(
        keys=[KEY],
        ack=Ack.inline(),
        on_error=lambda *_: after.append(get_current_span().get_span_context().is_valid),
    )
    end = telemetry.instrument(receiver)

    @receiver.on("post.delete")
    async def fail(_: Event, __: DeliveryContext) -> None:
        raise ValueError("ann")

    async with receiver:
        await send(receiver, "1")
        await send(receiver, "2", "post.delete")
        forged = delivery(key=STRANGER)
        await receiver.handle("POST", "", forged.headers, forged.body)
        metrics = telemetry.read_metrics()
        end()
        await send(receiver, "3")
        later = telemetry.read_metrics()
        assert later == {name: values for name, values in metrics.items() if name in later}
        assert metrics.keys() - later.keys() == {"svc_async.receiver.lag", "svc_async.receiver.waiting"}

    results = {attributes["svc_async.result"]: count for attributes, count in metrics["svc_async.receiver.deliveries"]}
    assert results == {"accepted": 1, "handler_failed": 1, "signature_wrong": 1}
    handled = {attributes["messaging.destination.name"] for attributes, _ in metrics["messaging.process.duration"]}
    assert handled == {"post.create", "post.delete"}
    _, failed = telemetry.spans
    assert (failed.attributes or {})["error.type"] == "ValueError"
    assert (failed.attributes or {})["code.function.name"] == f"{__name__}.{fail.__qualname__}"
    assert failed.status.status_code is StatusCode.ERROR
    assert after == [False], "the span is over"
    assert "ann" not in repr(telemetry)


async def test_the_backlog_of_all_receivers_is_measured_when_metrics_are_read(telemetry: Telemetry) -> None:
    def read_backlog() -> list[object]:
        metrics = telemetry.read_metrics()
        return [metrics[f"svc_async.receiver.{name}"] for name in ("waiting", "lag")]

    clock, go = VirtualClock(), asyncio.Event()
    receivers = [WebhookReceiver(keys=[KEY], clock=clock) for _ in range(2)]
    for receiver in receivers:
        telemetry.instrument(receiver)
        receiver.on("*")(lambda *_: go.wait())

    first, second = receivers
    async with first, second:
        assert read_backlog() == [[({}, 0)], [({}, 0.0)]]
        assert await send(first, "1") == 200
        await clock.advance(seconds=5)
        assert await send(first, "2") == 200
        assert await send(second, "3") == 200
        await clock.advance(seconds=2)
        assert read_backlog() == [[({}, 3)], [({}, 7.0)]]
        go.set()
        await run_ready_tasks()
        assert read_backlog() == [[({}, 0)], [({}, 0.0)]]
