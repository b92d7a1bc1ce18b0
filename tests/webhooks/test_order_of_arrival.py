"""Events of one user are stored and handled in the order in which their deliveries arrived, however stores answer."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from svc_async.events.models import Event
from svc_async.sandbox import VirtualClock
from svc_async.state import SharedState
from svc_async.webhooks import Ack, Claim, MemoryDedupe, WebhookReceiver
from svc_async.webhooks.stores.inbox import StoredEvent
from svc_async.webhooks.testing import build_delivery
from svc_async.webhooks.verification import HttpAnswer
from tests.support.deliveries import KEY, delivery
from tests.support.event_samples import activity
from tests.support.event_stores import BrokenStore, MemoryInbox
from tests.support.tasks import run_ready_tasks

MANY = [str(number) for number in range(50)]


class HeldBack:
    """Answers of a store that wait, each until its event is answered."""

    def __init__(self) -> None:
        self._may_go: Mapping[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def wait(self, key: str) -> None:
        await self._may_go[key].wait()

    async def answer(self, keys: str) -> None:
        """Answer events, one after another."""
        for key in keys:
            self._may_go[key].set()
            await run_ready_tasks()


class HeldDedupe(MemoryDedupe):
    def __init__(self, held: HeldBack) -> None:
        super().__init__()
        self.held = held

    async def claim(self, key: str) -> Claim:
        await self.held.wait(key)
        return await super().claim(key)


class HeldInbox(MemoryInbox):
    def __init__(self, held: HeldBack) -> None:
        super().__init__()
        self.held = held

    async def store(self, events: Sequence[StoredEvent]) -> None:
        for each in events:
            await self.held.wait(each.key)
        await super().store(events)


def make_receiver(seen: list[str], **settings: Any) -> WebhookReceiver:
    receiver = WebhookReceiver(keys=[KEY], **settings)
    receiver.on("*")(lambda event, _: seen.append(event.key))
    return receiver


async def begin(receiver: WebhookReceiver, *events: tuple[str, str]) -> "asyncio.Task[HttpAnswer]":
    """Let a delivery of events arrive, each a key and a user."""
    data = [activity("post.create", uuid=uuid, user_id=user) for uuid, user in events]
    task = asyncio.create_task(receiver.handle(*build_delivery({"data": data}, KEY)))
    await run_ready_tasks()
    return task


@pytest.mark.parametrize("answers", ["123", "321", "231"])
async def test_the_order_in_which_a_dedupe_store_answers_changes_nothing(answers: str) -> None:
    seen, held = list[str](), HeldBack()
    async with make_receiver(seen, dedupe=HeldDedupe(held)) as receiver:
        calls = [await begin(receiver, (uuid, "a")) for uuid in "123"]
        await held.answer(answers)
        assert [(await call).status for call in calls] == [200] * 3
    assert seen == ["1", "2", "3"]


@pytest.mark.parametrize("answers", ["123", "321", "231"])
async def test_the_order_in_which_an_inbox_answers_changes_nothing(answers: str) -> None:
    seen, held = list[str](), HeldBack()
    inbox = HeldInbox(held)
    receiver = WebhookReceiver(keys=[KEY], ack=Ack.durable(inbox), drain_deadline=0)
    receiver.on("*")(lambda *_: asyncio.Event().wait())
    async with receiver:
        calls = [await begin(receiver, (uuid, "a")) for uuid in "123"]
        await held.answer(answers)
        assert [(await call).status for call in calls] == [200] * 3
    async with make_receiver(seen, ack=Ack.durable(inbox)):  # the next start
        pass
    assert seen == ["1", "2", "3"]


async def test_a_small_delivery_does_not_overtake_a_larger_one() -> None:
    seen, held = list[str](), HeldBack()
    async with make_receiver(seen, dedupe=HeldDedupe(held)) as receiver:
        await begin(receiver, ("1", "a"), ("2", "b"), ("3", "c"))
        await begin(receiver, ("4", "c"))
        await held.answer("4123")
    assert seen == ["1", "2", "3", "4"]


@pytest.mark.parametrize("by_none", [True, False])
async def test_events_of_other_keys_do_not_wait(*, by_none: bool) -> None:
    seen, held = list[str](), HeldBack()

    def order_by(event: Event) -> str | None:
        return None if by_none else event.user_id

    async with make_receiver(seen, dedupe=HeldDedupe(held), order_by=order_by) as receiver:
        for uuid, user in (("1", "a"), ("2", "a" if by_none else "b")):
            await begin(receiver, (uuid, user))
        await held.answer("21")
    assert seen == ["2", "1"]


async def test_a_delivery_that_is_refused_is_not_waited_for_any_more() -> None:
    seen: list[str] = []
    async with make_receiver(seen, dedupe=BrokenStore("claim 1")) as receiver:
        answers = await asyncio.gather(*(receiver.handle(*delivery(uuid)) for uuid in "123"))
        assert [each.status for each in answers] == [503, 200, 200]
    assert seen == ["2", "3"]


async def test_a_delivery_is_waited_for_until_its_own_deadline() -> None:
    seen, held, clock = list[str](), HeldBack(), VirtualClock()
    settings = {"ack": Ack.enqueue(deadline=8), "clock": clock, "drain_deadline": 0}
    async with make_receiver(seen, dedupe=HeldDedupe(held), **settings) as receiver:
        hanging = await begin(receiver, ("1", "a"))
        await held.answer("23")
        await clock.advance(seconds=3)
        waiting = await begin(receiver, ("2", "a"))
        await clock.advance(seconds=4)
        assert not waiting.done()
        await clock.advance(seconds=1)
        answer = await hanging
        assert (answer.status, answer.body) == (503, b"deadline_passed")
        assert (await waiting).status == 200
        assert (await receiver.handle(*delivery("3", user="a"))).status == 200  # at once
        await held.answer("1")
        assert (await receiver.handle(*delivery("1", user="a"))).status == 200
    assert seen == ["2", "3", "1"]


async def test_a_delivery_behind_one_that_waits_is_waited_for_no_longer_than_its_deadline() -> None:
    seen, held, clock = list[str](), HeldBack(), VirtualClock()
    settings = {"ack": Ack.enqueue(deadline=8), "clock": clock, "drain_deadline": 0}
    async with make_receiver(seen, dedupe=HeldDedupe(held), **settings) as receiver:
        calls = []
        for uuid in "123":
            calls.append(await begin(receiver, (uuid, "a")))
            await clock.advance(seconds=1)
        await held.answer("3")
        await clock.advance(seconds=5)
        assert (await calls[0]).status == 503
        await clock.advance(seconds=1)
        assert [(await call).status for call in calls[1:]] == [503, 200]
        await held.answer("12")
    assert seen == ["3", "1", "2"]


async def test_a_caller_that_goes_away_while_its_delivery_waits_lets_none_overtake_the_one_before() -> None:
    seen, held = list[str](), HeldBack()
    async with make_receiver(seen, dedupe=HeldDedupe(held)) as receiver:
        first, second, third = [await begin(receiver, (uuid, "a")) for uuid in "123"]
        second.cancel()
        await held.answer("321")
        assert [(await each).status for each in (first, third)] == [200, 200]
    assert (seen[0], sorted(seen)) == ("1", ["1", "2", "3"])


async def test_deliveries_that_share_events_and_users_do_not_wait_for_each_other_for_ever() -> None:
    seen, held = list[str](), HeldBack()
    async with make_receiver(seen, dedupe=HeldDedupe(held)) as receiver:
        calls = [
            await begin(receiver, *events)
            for events in ([("1", "a")], [("1", "a"), ("2", "b")], [("2", "b")], [("2", "b"), ("3", "a")])
        ]
        await held.answer("321")
        assert [(await call).status for call in calls] == [200] * 4
    assert seen == ["1", "2", "3"]


@pytest.mark.parametrize("workers", [8, pytest.param(1, marks=pytest.mark.long)])
async def test_receivers_with_a_state_handle_events_of_one_user_in_the_order_of_arrival(
    postgres_url: str, schema: str, workers: int
) -> None:
    seen: list[str] = []
    async with make_receiver(seen, state=SharedState.open(postgres_url, schema=schema), workers=workers) as receiver:
        answers = await asyncio.gather(*(receiver.handle(*delivery(uuid)) for uuid in MANY))
        assert {each.status for each in answers} == {200}
    assert seen == MANY


@pytest.mark.long("two receivers take many events with a database")
async def test_what_a_receiver_with_a_state_has_left_is_handled_in_the_order_of_arrival(
    postgres_url: str, schema: str
) -> None:
    seen: list[str] = []
    async with SharedState.open(postgres_url, schema=schema) as state:
        ended = WebhookReceiver(keys=[KEY], state=state, drain_deadline=0)
        ended.on("*")(lambda *_: asyncio.Event().wait())
        async with ended:
            answers = await asyncio.gather(*(ended.handle(*delivery(uuid)) for uuid in MANY))
            assert {each.status for each in answers} == {200}
        async with make_receiver(seen, state=state):
            pass
    assert seen == MANY
