"""When deliveries are answered, and how."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from svc_async.events.models import Event
from svc_async.sandbox import VirtualClock
from svc_async.webhooks import Ack, Claim, DeliveryContext, MemoryDedupe, SigningKey, WebhookReceiver
from svc_async.webhooks.testing import build_crc, build_delivery
from tests.support.deliveries import KEY, STRANGER, delivery
from tests.support.event_samples import activity
from tests.support.event_stores import SlowStore
from tests.support.tasks import run_ready_tasks


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
async def test_a_delivery_is_answered_within_ten_seconds_even_if_a_store_hangs(deadline: float | None) -> None:
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
    receiver = WebhookReceiver(keys=[KEY], clock=clock, ack=Ack.inline(on_deadline=on_deadline), drain_deadline=0)

    @receiver.on("*")
    async def handler(event: Event, _: DeliveryContext) -> None:
        await go.wait()
        seen.append(event.key)

    async with receiver:
        for _ in range(2):  # the repeat waits for the same handlers, as long
            answering = asyncio.create_task(receiver.handle(*delivery()))
            await clock.advance(seconds=7.5)
            assert not answering.done()
            await clock.advance(seconds=0.5)
            assert (await answering).status == status
        go.set()
        await run_ready_tasks()
        assert seen == ["1"]


@pytest.mark.rule("WH-41")
@pytest.mark.parametrize(("fails", "status"), [(False, 200), (True, 500)])
@pytest.mark.parametrize("on_deadline", ["ack_and_continue", "refuse"])
async def test_a_repeat_waits_inline_for_the_handlers_of_the_first(on_deadline: Any, fails: bool, status: int) -> None:
    clock, go, calls = VirtualClock(), asyncio.Event(), 0
    receiver = WebhookReceiver(keys=[KEY], clock=clock, ack=Ack.inline(on_deadline=on_deadline), drain_deadline=0)

    @receiver.on("*")
    async def handler(*_: object) -> None:
        nonlocal calls
        calls += 1
        await go.wait()
        if fails and calls == 1:
            raise LookupError

    async with receiver:
        first = asyncio.create_task(receiver.handle(*delivery()))
        await clock.advance(seconds=4)
        repeat = asyncio.create_task(receiver.handle(*delivery()))
        await clock.advance(seconds=4)
        assert (await first).status == (200 if on_deadline == "ack_and_continue" else 503)
        assert not repeat.done()
        go.set()
        assert (await repeat).status == status
        assert (await receiver.handle(*delivery())).status == 200  # handled again, if it failed
    assert (calls, receiver.stats.handled) == ((2, 1) if fails else (1, 1))


async def test_a_repeat_with_other_events_waits_inline_for_all_of_them() -> None:
    going = {uuid: asyncio.Event() for uuid in "12"}
    receiver = WebhookReceiver(keys=[KEY], ack=Ack.inline(), order_by=lambda _: None, drain_deadline=0)
    receiver.on("*")(lambda event, _: going[event.key].wait())
    several = {"data": [activity("post.create", uuid=uuid) for uuid in "12"]}
    async with receiver:
        first = asyncio.create_task(receiver.handle(*delivery("1")))
        await run_ready_tasks()
        both = asyncio.create_task(receiver.handle(*build_delivery(several, KEY)))
        await run_ready_tasks()
        going["2"].set()
        await run_ready_tasks()
        assert not both.done()
        going["1"].set()
        assert [(await each).status for each in (first, both)] == [200, 200]
    assert (receiver.stats.handled, receiver.stats.duplicates) == (2, 1)


async def test_a_repeat_whose_claim_is_answered_late_learns_inline_that_the_first_failed() -> None:
    class LateStore(MemoryDedupe):
        async def claim(self, key: str) -> Claim:
            found = await super().claim(key)
            await answers.wait()
            return found

    answers, fails = asyncio.Event(), asyncio.Event()
    receiver = WebhookReceiver(keys=[KEY], dedupe=LateStore(), ack=Ack.inline(), drain_deadline=0)

    @receiver.on("*")
    async def handler(*_: object) -> None:
        await fails.wait()
        raise LookupError

    async with receiver:
        answers.set()
        first = asyncio.create_task(receiver.handle(*delivery()))
        await run_ready_tasks()
        answers.clear()
        repeat = asyncio.create_task(receiver.handle(*delivery()))
        await run_ready_tasks()
        fails.set()
        assert (await first).status == 500
        answers.set()
        assert (await repeat).status == 500


async def test_a_repeat_waits_inline_for_the_repeat_that_took_the_place_of_the_first() -> None:
    class SlowRelease(MemoryDedupe):
        async def release(self, key: str) -> None:
            await super().release(key)
            await released.wait()

    released, ends, calls = asyncio.Event(), asyncio.Event(), 0
    receiver = WebhookReceiver(keys=[KEY], dedupe=SlowRelease(), ack=Ack.inline(), drain_deadline=0)

    @receiver.on("*")
    async def handler(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise LookupError
        await ends.wait()

    async with receiver:
        answers = list[asyncio.Task[Any]]()
        for _ in range(2):  # the second claims the event before the first has finished
            answers.append(asyncio.create_task(receiver.handle(*delivery())))
            await run_ready_tasks()
        released.set()
        await run_ready_tasks()
        answers.append(asyncio.create_task(receiver.handle(*delivery())))
        await run_ready_tasks()
        assert [each.done() for each in answers] == [True, False, False]
        ends.set()
        assert [(await each).status for each in answers] == [500, 200, 200]
    assert calls == 2


async def test_an_event_that_is_finished_is_not_kept() -> None:
    contexts = list[weakref.ref[DeliveryContext]]()
    receiver = WebhookReceiver(keys=[KEY], ack=Ack.inline(), workers=1)
    receiver.on("*")(lambda _, context: contexts.append(weakref.ref(context)))
    async with receiver:
        for key in "12":
            assert (await receiver.handle(*delivery(key))).status == 200
        gc.collect()
        assert contexts[0]() is None


async def test_a_body_that_does_not_arrive_is_rejected() -> None:
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
    async with receiver:
        assert (await receiver.receive("POST", "", delivery().headers, endless())).status == 413
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


async def test_header_fields_may_come_from_an_iterator() -> None:
    request = delivery()
    async with WebhookReceiver(keys=[KEY], crc_signature="verify_if_present") as receiver:
        assert (await receiver.handle("POST", "", iter(request.headers.items()), request.body)).status == 200
        method, query, headers, body = build_crc(key=KEY)
        assert (await receiver.handle(method, query, iter(headers.items()), body)).status == 200


async def test_the_header_of_a_key_may_be_in_any_case() -> None:
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
        await run_ready_tasks()
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
