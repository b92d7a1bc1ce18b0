"""Stores that fail for longer than a moment: no event is handled twice for it, and the log stays short."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from svc_async.sandbox import VirtualClock
from svc_async.state import SharedState
from svc_async.webhooks import Ack, NotHandled, SqliteInbox, WebhookReceiver
from tests.support.deliveries import KEY, delivery
from tests.support.event_stores import BrokenStore, MemoryInbox
from tests.support.postgres_proxy import run_postgres_proxy
from tests.support.tasks import run_ready_tasks


class BrokenInbox(MemoryInbox):
    """Cannot remove events until it is repaired."""

    is_broken = True

    async def remove(self, key: str) -> None:
        if self.is_broken:
            raise OSError
        await super().remove(key)


def make_receiver(clock: VirtualClock, seen: list[str], **settings: Any) -> WebhookReceiver:
    receiver = WebhookReceiver(keys=[KEY], clock=clock, **settings)
    receiver.on("*")(lambda event, _: seen.append(event.key))
    return receiver


async def deliver(receiver: WebhookReceiver, uuid: str = "1") -> int:
    status = (await receiver.handle(*delivery(uuid))).status
    await run_ready_tasks()
    return status


async def pass_time(clock: VirtualClock, *waits: float) -> None:
    for seconds in waits:
        await clock.advance(seconds=seconds)
        await run_ready_tasks()


@pytest.mark.parametrize("broken", ["dedupe", "inbox"])
async def test_an_event_is_recorded_as_handled_when_its_store_works_again(broken: str) -> None:
    clock, seen = VirtualClock(), list[str]()
    store, inbox = BrokenStore("commit" if broken == "dedupe" else ""), BrokenInbox()
    inbox.is_broken = broken == "inbox"
    async with make_receiver(clock, seen, dedupe=store, ack=Ack.durable(inbox)) as receiver:
        assert await deliver(receiver) == 200
        await pass_time(clock, 1, *[5] * 100)
        assert (seen, [*inbox.rows], receiver.stats.waiting, receiver.stats.handled) == (["1"], ["1"], 1, 1)
        assert receiver.stats.lag == 501
        store.broken.clear()
        inbox.is_broken = False
        await pass_time(clock, 5)
        assert (inbox.rows, receiver.stats.waiting) == ({}, 0)
    async with make_receiver(clock, seen, dedupe=store, ack=Ack.durable(inbox)) as receiver:
        assert await deliver(receiver) == 200
    assert seen == ["1"]


async def test_whoever_waits_for_the_handlers_does_not_wait_for_a_store_that_fails() -> None:
    clock, seen, store = VirtualClock(), list[str](), BrokenStore("commit")
    async with make_receiver(clock, seen, dedupe=store, ack=Ack.inline()) as receiver:
        assert [await deliver(receiver) for _ in range(2)] == [200, 200]
        with pytest.raises(NotHandled, match="events that a store has not recorded as handled: 1"):
            await receiver.wait_until_idle(deadline=0)
        store.broken.clear()
        await pass_time(clock, 1)
        await receiver.wait_until_idle()
    assert (seen, receiver.stats.duplicates) == (["1"], 1)


async def test_a_receiver_that_closes_calls_a_store_every_second_until_it_works(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, seen = VirtualClock(), list[str]()
    store, inbox = BrokenStore("commit"), MemoryInbox()
    receiver = make_receiver(clock, seen, dedupe=store, ack=Ack.durable(inbox))
    await receiver.start()
    await deliver(receiver)
    await pass_time(clock, 1, 5)
    closing = asyncio.create_task(receiver.aclose())
    await run_ready_tasks()
    await pass_time(clock, 1, 1)
    assert not closing.done()
    store.broken.clear()
    await pass_time(clock, 1)
    await closing
    assert (seen, inbox.rows, len(caplog.records)) == (["1"], {}, 1)


@pytest.mark.parametrize("is_durable", [True, False])
async def test_an_event_that_could_not_be_recorded_is_no_event_that_was_not_handled(
    caplog: pytest.LogCaptureFixture, *, is_durable: bool
) -> None:
    clock, seen, dead, inbox = VirtualClock(), list[str](), list[str](), MemoryInbox()
    receiver = make_receiver(
        clock,
        seen,
        dedupe=BrokenStore("commit"),
        ack=Ack.durable(inbox) if is_durable else Ack.enqueue(),
        dead_letter=lambda event, _: dead.append(event.key),
    )
    await receiver.start()
    await deliver(receiver)
    closing = asyncio.create_task(receiver.aclose())
    await run_ready_tasks()
    await pass_time(clock, *[1] * 30)
    await closing
    assert (seen, dead, receiver.stats.abandoned, [*inbox.rows]) == (["1"], [], 0, ["1"] if is_durable else [])
    assert caplog.messages[-1].startswith("closed with handled events that a store could not record: 1; ")
    assert "not handled" not in caplog.text


async def test_failures_of_a_store_are_logged_once_and_then_at_most_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, errors, store = VirtualClock(), list[object](), BrokenStore("claim")
    inbox = MemoryInbox(fails=True)
    receiver = make_receiver(
        clock, [], dedupe=store, ack=Ack.durable(inbox), on_error=lambda _, error: errors.append(error)
    )
    async with receiver:
        assert [await deliver(receiver, str(number)) for number in range(3)] == [503] * 3
        store.broken.clear()
        assert await deliver(receiver) == 503
        lines = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert [line.split(" at ")[0] for line in lines] == [
            "a delivery: dedupe.claim: OSError",
            "a delivery: inbox.store: OSError",
        ]
        caplog.clear()
        store.broken.add("claim")
        await pass_time(clock, 59)
        await deliver(receiver)
        assert caplog.text == ""
        await pass_time(clock, 1)
        await deliver(receiver)
        (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert line.startswith("a delivery: dedupe.claim: OSError at ")
        assert line.endswith(" (4 failures of the store since the last line)")
    assert len(errors) == 6


async def test_the_log_says_why_a_shared_state_cannot_be_reached(
    postgres_url: str, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        run_postgres_proxy(postgres_url) as proxy,
        WebhookReceiver(keys=[KEY], state=SharedState.open(proxy.url, schema=schema)) as receiver,
    ):
        folder, proxy.folder = proxy.folder, "/nowhere"
        proxy.cut()
        assert await deliver(receiver) == 503
        proxy.folder = folder
    (line,) = [message for message in caplog.messages if message.startswith("a delivery: dedupe.claim: ")]
    assert line.startswith("a delivery: dedupe.claim: StateUnavailable: the shared state at ")
    assert ".py" not in line


async def test_health_says_for_a_minute_that_a_store_failed() -> None:
    clock, store = VirtualClock(), BrokenStore("claim")
    receiver = make_receiver(clock, [], dedupe=store)

    def describe() -> tuple[bool, bool]:
        return receiver.health().running, receiver.health().accepting

    assert describe() == (False, False)
    async with receiver:
        assert describe() == (True, True)
        assert await deliver(receiver) == 503
        assert describe() == (True, False)
        await clock.advance(seconds=60)
        assert describe() == (True, False)
        await clock.advance(seconds=1)
        assert describe() == (True, True)

        assert await deliver(receiver) == 503
        store.broken.clear()
        assert describe() == (True, False)
        assert await deliver(receiver, "2") == 200
        assert describe() == (True, True)
    assert describe() == (False, False)


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_store_whose_file_is_removed_while_it_is_open_accepts_nothing_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, replaced: bool
) -> None:
    clock, seen, path = VirtualClock(), list[str](), tmp_path / "inbox.db"
    receiver = make_receiver(clock, seen, ack=Ack.durable(SqliteInbox(path)))
    async with receiver:
        assert await deliver(receiver) == 200
        await receiver.wait_until_idle()
        path.unlink()
        if replaced:
            path.touch()
        assert await deliver(receiver, "2") == 503
        assert "was removed or replaced while it was open" in caplog.text
    assert len(seen) == 1
