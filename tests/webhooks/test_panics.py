"""Code of users that raises what is no `Exception` fails as any other does; an unexpected exception ends a receiver."""

import asyncio
import gc
import logging
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import pytest

from svc_async.errors import WrongState
from svc_async.events.models import Event
from svc_async.sandbox import VirtualClock
from svc_async.webhooks import Ack, Claim, DeliveryContext, MemoryDedupe, SqliteInbox, WebhookReceiver
from svc_async.webhooks.stores.inbox import StoredEvent
from tests.support.deliveries import KEY, delivery
from tests.support.event_stores import MemoryInbox, open_shared_events
from tests.support.panics import Panic
from tests.support.tasks import run_ready_tasks

NOW = VirtualClock().now()
Open = Callable[[], AbstractAsyncContextManager[dict[str, Any]]]


def raise_(kind: type[BaseException]) -> None:
    raise kind("secret")


async def raise_in_coroutine(kind: type[BaseException]) -> None:
    await asyncio.sleep(0)
    raise kind("secret")


async def raise_in_thread(kind: type[BaseException]) -> None:
    await asyncio.to_thread(raise_, kind)


async def raise_in_group(kind: type[BaseException]) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(raise_in_coroutine(kind))


RAISE: dict[str, Callable[[], object]] = {
    "a panic": lambda: raise_(Panic),
    "a panic in a coroutine": lambda: raise_in_coroutine(Panic),
    "a panic in a thread": lambda: raise_in_thread(Panic),
    "a panic in a group": lambda: raise_in_group(Panic),
    "the end of a generator": lambda: raise_(GeneratorExit),
    "the end of a generator in a coroutine": lambda: raise_in_coroutine(GeneratorExit),
    "a verdict of pytest in a coroutine": lambda: raise_in_coroutine(pytest.fail.Exception),
}


@pytest.fixture(params=["enqueue", "inline", "sqlite", "postgres"])
def mode(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def open_settings(mode: str, request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Return what opens the stores of a receiver again and again, as its settings."""

    @asynccontextmanager
    async def open_settings() -> AsyncGenerator[dict[str, Any]]:
        if mode == "postgres":
            url, schema = request.getfixturevalue("postgres_url"), request.getfixturevalue("schema")
            async with open_shared_events(url, schema) as events:
                yield {"ack": Ack.durable(events), "dedupe": events}
        else:
            acks = {"enqueue": Ack.enqueue, "inline": Ack.inline}
            yield {"ack": acks[mode]() if mode in acks else Ack.durable(SqliteInbox(tmp_path / "inbox.db"))}

    if mode == "postgres":
        request.getfixturevalue("schema")
    return open_settings


@pytest.mark.parametrize(
    ("mode", "raised"),
    [
        *(("enqueue", raised) for raised in RAISE),
        *((mode, "a panic in a coroutine") for mode in ("inline", "sqlite")),
        *(
            pytest.param(mode, raised, marks=pytest.mark.long)
            for mode in ("inline", "sqlite", "postgres")
            for raised in RAISE
            if mode == "postgres" or raised != "a panic in a coroutine"
        ),
    ],
    indirect=["mode"],
)
async def test_whatever_a_handler_raises_fails_its_event_and_the_receiver_goes_on(
    mode: str, open_settings: Open, raised: str, caplog: pytest.LogCaptureFixture
) -> None:
    reported, dead = list[tuple[Event | None, BaseException]](), list[tuple[Event | None, BaseException]]()
    async with open_settings() as settings:
        receiver = WebhookReceiver(
            keys=[KEY],
            workers=1,
            on_error=lambda event, error: reported.append((event, error)),
            dead_letter=lambda event, error: dead.append((event, error)),
            **settings,
        )
        receiver.on("post.create")(fail := lambda *_: RAISE[raised]())
        receiver.on("post.delete")(lambda *_: None)
        async with receiver:
            assert (await receiver.handle(*delivery())).status == (500 if mode == "inline" else 200)
            assert (await receiver.handle(*delivery("2", event_type="post.delete"))).status == 200
            await receiver.wait_until_idle()
            assert receiver.health().running
    ((event, error),) = reported
    assert event is not None
    assert (event.key, dead) == ("1", reported)
    assert (receiver.stats.failed, receiver.stats.handled, receiver.stats.abandoned) == (1, 1, 0)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    problem = f"handler {__name__}.{fail.__qualname__}"[: len("handler ") + 100]
    assert line.startswith(f"post.create 1: {problem}: {type(error).__name__} at {__file__}:")
    assert "secret" not in caplog.text


@pytest.mark.parametrize("mode", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)], indirect=True)
async def test_an_event_whose_handler_panics_is_handled_at_the_next_start(open_settings: Open) -> None:
    handled = list[tuple[str, int]]()
    for error in (Panic(), None):
        async with open_settings() as settings:
            receiver = WebhookReceiver(keys=[KEY], workers=1, **settings)

            @receiver.on("*")
            def handle(event: Event, context: DeliveryContext, error: Panic | None = error) -> None:
                if error is not None:
                    raise error
                handled.append((event.key, context.attempts))

            async with receiver:
                if error is not None:
                    await receiver.handle(*delivery())
    assert handled == [("1", 1)]


class PanickingStore(MemoryDedupe):
    """Raises a panic, once for each of its functions."""

    def __init__(self) -> None:
        super().__init__()
        self.raised = set[str]()

    async def claim(self, key: str) -> Claim:
        self._raise("claim")
        return await super().claim(key)

    async def confirm(self, key: str) -> bool:
        self._raise("confirm")
        return await super().confirm(key)

    async def commit(self, key: str) -> None:
        self._raise("commit")
        await super().commit(key)

    def _raise(self, step: str) -> None:
        if step not in self.raised:
            self.raised.add(step)
            raise Panic("secret")


async def test_callbacks_that_panic_stop_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def panic(*_: object) -> None:
        raise Panic("secret")

    receiver = WebhookReceiver(
        keys=[KEY], workers=1, on_error=panic, dead_letter=panic, on_event=panic, order_by=panic_about_user("8")
    )
    receiver.on("*")(panic)
    async with receiver:
        answers = [(await receiver.handle(*delivery(user, user=user))).status for user in "789"]
        await receiver.wait_until_idle()
    assert (answers, receiver.stats.failed) == ([200, 503, 200], 2)
    assert "a delivery: Panic at " in caplog.text
    assert "post.create 7: dead_letter: Panic at " in caplog.text
    assert "post.create 9: on_error itself failed: Panic at " in caplog.text
    assert "secret" not in caplog.text


def panic_about_user(user: str) -> Callable[[Event], str | None]:
    def order_by(event: Event) -> str | None:
        if event.user_id == user:
            raise Panic("secret")
        return event.user_id

    return order_by


async def test_a_store_that_panics_is_called_again(caplog: pytest.LogCaptureFixture) -> None:
    handled, store = list[str](), PanickingStore()
    receiver = WebhookReceiver(keys=[KEY], workers=1, dedupe=store, clock=VirtualClock(mode="jump"))
    receiver.on("*")(lambda event, _: handled.append(event.key))
    async with receiver:
        assert [(await receiver.handle(*delivery())).status for _ in range(2)] == [503, 200]
    assert (handled, store.raised) == (["1"], {"claim", "confirm", "commit"})
    assert "a delivery: dedupe.claim: Panic at " in caplog.text


async def test_a_store_that_panics_while_it_is_looked_at_again_is_reported() -> None:
    reported, looked = list[BaseException](), asyncio.Event()
    stored = StoredEvent(key="1", body=delivery().body, key_id="now", received_at=NOW)

    class Elsewhere(MemoryDedupe):
        claims = 0

        async def claim(self, key: str) -> Claim:
            self.claims += 1
            if self.claims == 2:
                raise Panic
            if self.claims == 3:
                looked.set()
                return await super().claim(key)
            return Claim.ELSEWHERE

    clock = VirtualClock()
    receiver = WebhookReceiver(
        keys=[KEY],
        ack=Ack.durable(MemoryInbox({"1": stored})),
        dedupe=Elsewhere(),
        clock=clock,
        on_error=lambda _, error: reported.append(error),
    )
    async with receiver:
        for _ in range(2):
            await run_ready_tasks()
            await clock.advance(seconds=15)
        await looked.wait()
    assert [type(error) for error in reported] == [Panic]
    assert receiver.stats.handled == 1


LEAVES = """
import asyncio, sys
from svc_async.webhooks import Ack, SqliteInbox, WebhookReceiver
from tests.support.deliveries import KEY, delivery

def leave(*_):
    sys.exit(3)

async def main(callback, inbox):
    receiver = WebhookReceiver(keys=[KEY], ack=Ack.durable(SqliteInbox(inbox)), **{callback: leave})
    receiver.on("*")(lambda *_: [][0])
    async with receiver:
        await receiver.handle(*delivery())

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.long("it ends a process")
@pytest.mark.parametrize("callback", ["on_error", "dead_letter"])
async def test_a_callback_that_ends_the_process_counts_as_an_attempt(tmp_path: Path, callback: str) -> None:
    inbox = tmp_path / "inbox.db"
    command = [sys.executable, "-c", LEAVES, callback, str(inbox)]
    process = await asyncio.create_subprocess_exec(*command, cwd=Path(__file__).parents[2], stderr=DEVNULL)
    assert await process.wait() == 3
    async with SqliteInbox(inbox) as store:
        assert [each.attempts for each in await store.list_events()] == [1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # what asyncio itself says of such tasks
def test_a_handler_whose_event_loop_was_closed_has_not_failed(caplog: pytest.LogCaptureFixture) -> None:
    reported = list[BaseException]()

    async def run() -> None:
        begun = asyncio.Event()
        receiver = WebhookReceiver(keys=[KEY], on_error=lambda _, error: reported.append(error))

        @receiver.on("*")
        async def hang(*_: object) -> None:
            begun.set()
            await asyncio.Event().wait()

        await receiver.start()
        await receiver.handle(*delivery())
        await begun.wait()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(run())
    loop.close()
    gc.collect()
    assert reported == []
    assert not [record for record in caplog.records if record.name.startswith("svc_async")]


# --- an unexpected exception: here of an inbox that returns what is no number


class WrongInbox(MemoryInbox):
    may_begin: asyncio.Event | None = None

    async def begin(self, key: str) -> int | None:
        if self.may_begin:
            await self.may_begin.wait()
        return str(self.rows[key].attempts)  # type: ignore[return-value]  # which is what is wrong

    async def end(self, keys: object) -> None:
        """Take nothing back."""


def make_inbox() -> WrongInbox:
    return WrongInbox({"1": StoredEvent(key="1", body=delivery().body, key_id="now", received_at=NOW)})


def make_receiver(inbox: WrongInbox) -> WebhookReceiver:
    return WebhookReceiver(keys=[KEY], ack=Ack.durable(inbox))


async def test_an_unexpected_exception_ends_the_receiver_and_is_told_everywhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    receiver = make_receiver(make_inbox())
    await receiver.start()
    with pytest.raises(WrongState) as caught:
        await receiver.wait_until_idle()
    assert isinstance(caught.value.__cause__, TypeError)
    assert not receiver.health().running
    answer = await receiver.handle(*delivery("2"))
    assert (answer.status, answer.body) == (503, b"not_running")
    await run_ready_tasks()
    with pytest.raises(WrongState):  # also when all of its tasks have ended
        await receiver.wait_until_idle()
    _, ended, rejected = [record.getMessage() for record in caplog.records]
    assert ended.startswith("the receiver has ended because of an unexpected exception: TypeError at ")
    assert rejected == (
        "rejected a request: not_running: the receiver has ended because of an unexpected exception; find the "
        "exception in the log of errors and report it, and start the receiver again"
    )
    with pytest.raises(TypeError):
        await receiver.aclose()
    await receiver.aclose()
    assert (await receiver.handle(*delivery("3"))).status == 503
    assert caplog.messages[-1].startswith("rejected a request: not_running: the receiver was not started")


async def test_a_receiver_that_an_exception_has_ended_can_be_started_again() -> None:
    inbox = make_inbox()
    receiver = make_receiver(inbox)
    await receiver.start()
    with pytest.raises(WrongState):
        await receiver.wait_until_idle()
    await run_ready_tasks()
    inbox.rows.clear()
    await receiver.start()
    assert (await receiver.handle(*delivery("2"))).status == 200
    await receiver.wait_until_idle()
    await receiver.aclose()


async def test_a_delivery_is_refused_in_order_while_an_exception_ends_the_receiver() -> None:
    begun, may_end, inbox = asyncio.Event(), asyncio.Event(), make_inbox()
    inbox.may_begin = asyncio.Event()
    receiver = make_receiver(inbox)

    @receiver.on("*")
    async def linger(*_: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await may_end.wait()

    await receiver.start()
    assert (await receiver.handle(*delivery("2", user="8"))).status == 200
    await begun.wait()
    inbox.may_begin.set()
    await run_ready_tasks()
    assert (await receiver.handle(*delivery("3", user="9"))).status == 503
    may_end.set()
    with pytest.raises(TypeError):
        await receiver.aclose()


async def test_a_server_is_told_that_an_exception_has_ended_the_receiver() -> None:
    receiver, sent = make_receiver(make_inbox()), list[str]()
    messages = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> dict[str, str]:
        if sent:
            with pytest.raises(WrongState):
                await receiver.wait_until_idle()
        return {"type": next(messages)}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    with pytest.raises(TypeError):
        await receiver.asgi()({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.failed"]
