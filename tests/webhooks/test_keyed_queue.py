"""How much a queue holds, in number and bytes, and in which order it is processed."""

import asyncio
from functools import partial

import pytest

from svc_async.events.parser import estimate_memory
from svc_async.sandbox import VirtualClock
from svc_async.webhooks import Ack, WebhookReceiver
from svc_async.webhooks.keyed_queue import KeyedQueue
from svc_async.webhooks.testing import build_delivery
from tests.support.deliveries import KEY, delivery
from tests.support.event_samples import activity
from tests.support.event_stores import MemoryInbox
from tests.support.tasks import run_ready_tasks


async def hang(_: bytearray) -> None:
    await asyncio.Event().wait()


def items(*sizes: int) -> list[bytearray]:
    return [bytearray(size) for size in sizes]


def make(*sizes: int) -> "KeyedQueue[bytearray]":
    """Return a queue of three items and 10 bytes at most, which holds items of these sizes."""
    queue: KeyedQueue[bytearray] = KeyedQueue(hang, measure=len, maxsize=3, max_bytes=10)
    for item in items(*sizes):
        queue.put(item, None)
    return queue


def fits(queue: "KeyedQueue[bytearray]", *sizes: int) -> bool:
    with queue.reserve(items(*sizes)) as reserved:
        return reserved


@pytest.mark.parametrize(
    ("held", "group", "admitted"),
    [
        ([], [1, 1, 1, 1], True),  # larger than the queue, which is empty
        ([], [11], True),
        ([1], [1, 1], True),
        ([1], [1, 1, 1], False),
        ([1], [9], True),
        ([1], [10], False),
        ([5, 4], [1], True),
        ([5, 4], [2], False),
        ([11], [], False),
        ([1, 1, 1], [], True),
    ],
)
async def test_a_group_is_admitted_if_it_fits(held: list[int], group: list[int], *, admitted: bool) -> None:
    assert fits(make(*held), *group) == admitted


async def test_what_is_reserved_counts_until_the_block_ends() -> None:
    queue = make()
    with queue.reserve(items(2, 2)) as reserved:
        assert reserved
        assert fits(queue, 6)
        assert not fits(queue, 7)
        assert not fits(queue, 1, 1)
    assert fits(queue, 11)
    queue.put(bytearray(1), None)
    with queue.reserve(items(1, 1, 1)) as reserved:
        assert not reserved
        assert fits(queue, 4, 5)


@pytest.mark.parametrize(
    ("held", "reserved", "is_half_empty"),
    [
        ([], [], True),
        ([1], [], True),
        ([1, 1], [], False),  # of three
        ([5], [], False),  # of ten bytes
        ([], [4], True),
        ([], [1, 1], False),
        ([1], [1], False),
        ([], [5], False),
    ],
)
async def test_a_queue_is_half_empty_if_neither_what_it_holds_nor_what_is_reserved_takes_half(
    held: list[int], reserved: list[int], *, is_half_empty: bool
) -> None:
    queue = make(*held)
    with queue.reserve(items(*reserved)):
        assert queue.is_half_empty == is_half_empty
    assert queue.is_half_empty == (sum(held) < 5 and len(held) < 2)


async def test_what_is_finished_counts_no_more() -> None:
    processed: list[bytearray] = []

    async def process(item: bytearray) -> None:
        processed.append(item)

    queue: KeyedQueue[bytearray] = KeyedQueue(process, measure=len, maxsize=2, max_bytes=10)
    first, second, third = items(6, 4, 1)
    queue.put(first, "x")
    queue.put(second, "x")
    assert (len(queue), queue.oldest is first) == (2, True)
    assert not fits(queue, 0)
    working = asyncio.create_task(queue.work())
    await queue.join()
    assert (len(queue), queue.oldest, processed) == (0, None, [first, second])
    queue.put(third, "y")
    assert fits(queue, 9)
    assert not fits(queue, 10)
    working.cancel()
    (left,) = queue.clear()
    assert left is third
    assert len(queue) == 0


async def test_events_are_refused_when_their_deliveries_take_too_many_bytes() -> None:
    size = estimate_memory(delivery("1").body)
    receiver = WebhookReceiver(keys=[KEY], workers=1, drain_deadline=0, ack=Ack.enqueue(max_bytes=2 * size))
    receiver.on("*")(lambda *_: asyncio.Event().wait())
    async with receiver:
        statuses = [(await receiver.handle(*delivery(uuid))).status for uuid in ("1", "2", "3")]
        assert statuses == [200, 200, 503]
        assert (await receiver.handle(*delivery("1"))).status == 200  # a duplicate needs no place
    assert receiver.stats.rejected == {"queue_full": 1}


async def test_the_bytes_of_a_delivery_are_shared_by_its_events() -> None:
    several = build_delivery({"data": [activity("post.create", uuid=uuid) for uuid in ("1", "2", "3", "4")]}, KEY)
    ack = Ack.durable(MemoryInbox(), max_bytes=estimate_memory(several.body) + estimate_memory(delivery("5").body) - 1)
    receiver, go = WebhookReceiver(keys=[KEY], workers=4, ack=ack, order_by=lambda _: None), asyncio.Event()

    @receiver.on("*")
    async def handler(event: object, _: object) -> None:
        if getattr(event, "key", None) != "1":
            await go.wait()

    async with receiver:
        assert (await receiver.handle(*several)).status == 200
        await run_ready_tasks()
        assert receiver.stats.waiting == 3
        assert (await receiver.handle(*delivery("5"))).status == 200  # one of four is handled: a quarter is free
        assert (await receiver.handle(*delivery("6"))).status == 503
        go.set()
    assert receiver.stats.handled == 5


@pytest.mark.parametrize("mode", ["enqueue", "durable", "inline"])
async def test_each_acknowledgement_has_both_bounds(mode: str) -> None:
    arguments = (MemoryInbox(),) if mode == "durable" else ()
    ack: Ack = getattr(Ack, mode)(*arguments, maxsize=7, max_bytes=9, deadline=3)
    assert (ack.maxsize, ack.max_bytes, ack.deadline, ack.waits) == (7, 9, 3, mode == "inline")
    default: Ack = getattr(Ack, mode)(*arguments)
    assert (default.maxsize, default.max_bytes, default.deadline) == (10_000, 64 * 1024 * 1024, 8.0)


async def test_an_item_that_may_do_harm_does_not_wait_for_others_for_ever() -> None:
    clock, done, forever = VirtualClock(), list[str](), asyncio.Event()

    async def process(item: str) -> None:
        await (forever.wait() if item == "hangs" else asyncio.sleep(0))
        done.append(item)

    queue = KeyedQueue[str](process, measure=len, maxsize=10, max_bytes=100)
    queue.put("second", "a", rank=4)
    queue.put("first", "b", rank=3)
    queue.put("hangs", "c")
    queue.put("later", "a")
    working = [asyncio.create_task(each) for each in (queue.work(), queue.work_alone(partial(clock.timeout, 60)))]
    await run_ready_tasks()
    assert done == []
    for _ in range(2):
        await clock.advance(seconds=60)
        await run_ready_tasks()
    assert done == ["first", "second"]
    forever.set()
    await queue.join()
    assert done == ["first", "second", "hangs", "later"]
    for task in working:
        task.cancel()
    await asyncio.wait(working)
