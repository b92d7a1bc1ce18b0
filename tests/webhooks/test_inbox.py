"""Events that are stored before they are acknowledged."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from svc_async.errors import Hint, UnusableFile, WrongState
from svc_async.events.models import Event
from svc_async.events.parser import EventParser
from svc_async.sandbox import VirtualClock
from svc_async.webhooks import Ack, DeliveryContext, MemoryDedupe, SqliteDedupe, SqliteInbox, WebhookReceiver
from svc_async.webhooks.stores.inbox import StoredEvent
from svc_async.webhooks.testing import build_delivery
from tests.support.deliveries import KEY, delivery
from tests.support.errors import has
from tests.support.event_samples import activity
from tests.support.event_stores import MemoryInbox
from tests.support.tasks import let_threads_run, run_ready_tasks, wait_until

START = datetime(2026, 6, 10, 12, tzinfo=UTC)


async def test_it_is_stored_before_it_is_acknowledged() -> None:
    inbox = MemoryInbox(go=asyncio.Event())
    receiver = WebhookReceiver(keys=[KEY], ack=Ack.durable(inbox), drain_deadline=0)
    receiver.on("*")(lambda *_: asyncio.Event().wait())
    async with receiver:
        answering = asyncio.create_task(receiver.handle(*delivery()))
        again = asyncio.create_task(receiver.handle(*delivery()))
        await run_ready_tasks()
        assert not answering.done()
        assert not again.done()
        assert inbox.go is not None
        inbox.go.set()
        assert [(await each).status for each in (answering, again)] == [200, 200]
        assert [*inbox.rows] == ["1"]
    assert [*inbox.rows] == ["1"]  # it was not handled


async def test_what_cannot_be_stored_is_not_acknowledged() -> None:
    inbox = MemoryInbox(fails=True)
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
    inbox, clock, dead = MemoryInbox(), VirtualClock(START.isoformat()), list[object]()
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


async def test_a_failed_event_stays_in_the_inbox_unless_it_was_dead_lettered() -> None:
    def fails(*_: object) -> None:
        raise LookupError

    for dead_letter, left in ((None, ["1"]), (fails, ["1"]), (lambda *_: None, [])):
        inbox = MemoryInbox()
        receiver = WebhookReceiver(keys=[KEY], ack=Ack.durable(inbox), dead_letter=dead_letter)
        receiver.on("*")(fails)
        async with receiver:
            await receiver.handle(*delivery())
        assert [*inbox.rows] == left


async def test_an_event_that_was_committed_and_not_removed_is_not_handled_again() -> None:
    inbox, dedupe = MemoryInbox(), MemoryDedupe()
    inbox.rows["1"] = StoredEvent(key="1", body=delivery().body, key_id="now", received_at=START)
    await dedupe.claim("1")
    await dedupe.commit("1")
    async with WebhookReceiver(keys=[KEY], ack=Ack.durable(inbox), dedupe=dedupe) as receiver:
        assert receiver.stats.waiting == 0  # nobody else has it
    assert receiver.stats.handled == 0
    assert inbox.rows == {}


async def test_an_inbox_that_cannot_be_read_stops_the_start() -> None:
    class Unreadable(MemoryInbox):
        async def load(self) -> Sequence[StoredEvent]:
            raise LookupError

    receiver = WebhookReceiver(keys=[KEY], ack=Ack.durable(Unreadable()))
    for _ in range(2):
        with pytest.raises(LookupError):
            await receiver.start()
    assert not receiver.is_running


async def test_a_body_is_parsed_once_for_all_of_its_events(tmp_path: Path) -> None:
    parsed, seen = list[bytes](), list[str]()

    class Counting(EventParser):
        def parse(self, body: bytes) -> tuple[Event, ...]:
            parsed.append(body)
            return super().parse(body)

    bodies = [{"data": [activity("post.create", uuid=uuid) for uuid in uuids]} for uuids in ("123", "45")]
    for drain_deadline in (0, 30):
        receiver = WebhookReceiver(
            keys=[KEY],
            parser=Counting(),
            workers=1,
            drain_deadline=drain_deadline,
            ack=Ack.durable(SqliteInbox(tmp_path / "inbox.db")),
        )
        receiver.on("*")(lambda event, _: seen.append(event.key) if len(parsed) > 2 else asyncio.Event().wait())
        async with receiver:
            for body in bodies if drain_deadline == 0 else ():
                assert (await receiver.handle(*build_delivery(body, KEY))).status == 200
    assert seen == ["1", "2", "3", "4", "5"]
    assert len(parsed) == 4


async def test_any_number_of_events_is_handled_a_part_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("svc_async.webhooks.stores.sqlite._MOST_EVENTS", 5)
    events = [activity("post.create", uuid=str(number)) for number in range(18)]
    body = build_delivery({"data": events}, KEY).body
    async with SqliteInbox(tmp_path / "inbox.db") as inbox:
        await inbox.store(
            [StoredEvent(key=each["event_uuid"], body=body, key_id="now", received_at=START) for each in events]
        )
    clock, waiting, seen = VirtualClock(START.isoformat()), list[int](), list[str]()
    ack = Ack.durable(SqliteInbox(tmp_path / "inbox.db"), maxsize=8)
    receiver = WebhookReceiver(keys=[KEY], ack=ack, clock=clock, workers=1)

    @receiver.on("*")
    async def note(event: Event, _: DeliveryContext) -> None:
        seen.append(event.key)
        waiting.append(receiver.stats.waiting)

    async with receiver:
        while len(seen) < len(events):
            let_threads_run()
            await clock.advance(seconds=1)
        assert (await receiver.handle(*delivery("1"))).status == 200
    assert seen == [each["event_uuid"] for each in events]
    assert max(waiting) <= 8
    async with SqliteInbox(tmp_path / "inbox.db") as inbox:
        assert [*await inbox.load()] == []


async def test_a_receiver_that_starts_accepts_all_events_for_which_there_is_room_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("svc_async.webhooks.stores.sqlite._MOST_EVENTS", 5)
    clock = VirtualClock(START.isoformat())
    async with SqliteInbox(tmp_path / "inbox.db") as inbox:
        await inbox.store([StoredEvent(key=str(n), body=b"{}", key_id="now", received_at=START) for n in range(11)])
    ack = Ack.durable(SqliteInbox(tmp_path / "inbox.db"))
    async with WebhookReceiver(keys=[KEY], ack=ack, clock=clock) as receiver:
        assert receiver.stats.restored == 11  # more than two parts, and no time has passed


async def test_one_receiver_at_a_time_uses_an_inbox_in_a_file(tmp_path: Path) -> None:
    def make() -> WebhookReceiver:
        return WebhookReceiver(
            keys=[KEY],
            ack=Ack.durable(SqliteInbox(tmp_path / "webhooks.db")),
            dedupe=SqliteDedupe(tmp_path / "webhooks.db"),
        )

    async with make(), SqliteDedupe(tmp_path / "webhooks.db", owner="other"):
        with pytest.raises(UnusableFile, check=has(parameter="path", hint=Hint.RUN_ONE_RECEIVER)):
            await make().start()
    async with make():
        pass


@pytest.mark.parametrize("shared", ["inbox", "dedupe"])
async def test_one_receiver_at_a_time_uses_a_store_object(tmp_path: Path, shared: str) -> None:
    inbox, dedupe = SqliteInbox(tmp_path / "inbox.db"), SqliteDedupe(tmp_path / "dedupe.db")

    def make(name: str) -> WebhookReceiver:
        own_inbox = inbox if shared == "inbox" else SqliteInbox(tmp_path / name)
        own_dedupe = dedupe if shared == "dedupe" else SqliteDedupe(tmp_path / f"{name}.dedupe")
        return WebhookReceiver(keys=[KEY], ack=Ack.durable(own_inbox), dedupe=own_dedupe)

    async with make("one") as receiver:
        with pytest.raises(WrongState):
            await make("two").start()
        assert receiver.is_running
    async with make("two"):
        pass


async def test_events_of_a_receiver_with_another_name_are_handled_when_its_lease_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, seen = VirtualClock(START.isoformat()), list[str]()
    body = build_delivery({"data": [activity("post.create", uuid=uuid) for uuid in "12"]}, KEY).body
    dead = SqliteDedupe(tmp_path / "events.db", lease=timedelta(minutes=2), clock=clock)
    async with SqliteInbox(tmp_path / "inbox.db") as inbox, dead as dedupe:
        await inbox.store([StoredEvent(key=key, body=body, key_id="now", received_at=START) for key in "12"])
        await dedupe.claim("1")  # and its process is killed

    receiver = WebhookReceiver(
        keys=[KEY],
        ack=Ack.durable(SqliteInbox(tmp_path / "inbox.db")),
        dedupe=SqliteDedupe(tmp_path / "events.db", owner="new", clock=clock),
        clock=clock,
    )
    receiver.on("*")(lambda event, _: seen.append(event.key))
    async with receiver:
        await clock.advance(minutes=1)
        await wait_until(lambda: receiver.stats.waiting == 1)
        assert seen == ["2"]
        assert "the inbox has events that another receiver has claimed (1)" in caplog.text
        while receiver.stats.waiting:
            let_threads_run()
            await clock.advance(seconds=10)
        assert seen == ["2", "1"]
