"""Random schedules of receivers that share a database: they are killed, suspended and cut off, and lose no event."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import attrs
import pytest

from svc_async.errors import StateUnavailable
from svc_async.sandbox import VirtualClock
from svc_async.state import SharedState
from svc_async.state.events import SharedEvents
from svc_async.store.postgres import Database
from svc_async.webhooks import Ack, WebhookReceiver
from tests.support.deliveries import KEY, delivery

LEASE = timedelta(seconds=60)
EVENTS = 40


class Machine(VirtualClock):
    """The time of a machine, which can be suspended."""

    asleep = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.handles, self.awake = asyncio.Event(), asyncio.Event()
        self.handles.set()
        self.awake.set()

    def monotonic(self) -> float:
        return super().monotonic() + self.asleep


class QueuedEvents(SharedEvents):
    """The events of a receiver that may have accepted some and have begun to handle none of them."""

    def __init__(self, state: SharedState, machine: Machine, read_time: Callable[[], datetime]) -> None:
        super().__init__(state, lease=LEASE, clock=machine, read_time=read_time)
        self.machine = machine

    async def confirm(self, key: str) -> bool:
        await self.machine.handles.wait()
        return await super().confirm(key)


@attrs.define(eq=False)
class Life:
    """A receiver from its start to its end."""

    store: QueuedEvents
    machine: Machine
    receiver: WebhookReceiver
    state: SharedState
    committed: set[str]
    active: set[str] = attrs.field(factory=set[str])
    committing: set[str] = attrs.field(factory=set[str])

    async def commit(self, key: str) -> None:
        self.committing.add(key)
        try:
            await SharedEvents.commit(self.store, key)
            self.committed.add(key)
        finally:
            self.committing.discard(key)


@attrs.define(eq=False)
class World:
    """Receivers over one database, and what they did."""

    url: str
    schema: str
    choose: random.Random
    clock: VirtualClock = attrs.field(factory=VirtualClock)
    lives: list[Life] = attrs.field(factory=list[Life])
    handled: Counter[str] = attrs.field(factory=Counter[str])
    committed: set[str] = attrs.field(factory=set[str])
    twice: list[str] = attrs.field(factory=list[str])
    acknowledged: set[str] = attrs.field(factory=set[str])
    losing: bool = False
    dead: list[Database] = attrs.field(factory=list[Database])
    connections: int = 0
    suspensions: int = 0
    machines: dict[Database, Machine] = attrs.field(factory=dict[Database, Machine])

    async def start(self) -> None:
        self.losing = False  # a receiver that cannot start is an error of its own
        machine, state = Machine(), SharedState.open(self.url, schema=self.schema)
        store = QueuedEvents(state, machine, self.clock.now)
        receiver = WebhookReceiver(
            keys=[KEY], ack=Ack.durable(store), dedupe=store, clock=machine, workers=2, drain_deadline=0
        )
        life = Life(store, machine, receiver, state, self.committed)
        store.commit = life.commit  # type: ignore[method-assign]  # to see when it has succeeded
        receiver.on("*")(lambda event, _: self.handle(life, event.key))
        await receiver.start()
        self.machines[state.database] = machine
        self.lives.append(life)

    async def handle(self, life: Life, key: str) -> None:
        is_active = any(key in other.active for other in self.lives if other is not life)
        if is_active or key in self.committed:
            self.twice.append(key)
        life.active.add(key)
        for _ in range(self.choose.randrange(50)):
            await asyncio.sleep(0)
        life.active.discard(key)
        self.handled[key] += 1

    async def deliver(self) -> None:
        await self.deliver_to(self.choose.choice(self.lives).receiver)

    async def deliver_to(self, receiver: WebhookReceiver) -> None:
        keys = [str(self.choose.randrange(EVENTS)) for _ in range(4)]  # of one user, so that some wait
        answers = await asyncio.gather(*(receiver.handle(*delivery(key)) for key in keys))
        for key, answer in zip(keys, answers, strict=True):
            if answer.status == 200:
                self.acknowledged.add(key)

    async def kill(self) -> None:
        """End a receiver without a word to the database."""
        life = self.lives.pop(self.choose.randrange(len(self.lives)))
        self.dead.append(life.state.database)
        life.active.clear()
        await life.receiver.aclose()
        await self.start()

    async def close(self) -> None:
        life = self.lives.pop(self.choose.randrange(len(self.lives)))
        life.active.clear()
        await life.receiver.aclose()
        await self.start()

    async def suspend(self) -> None:
        """Stop a receiver for longer than its lease; the others take over what it had and has not begun.

        It is one that runs no handler: one that has begun cannot be called back.
        """
        life = self.choose.choice(self.lives)
        life.machine.handles.clear()
        await self.deliver_to(life.receiver)
        delivering = asyncio.create_task(self.deliver_to(life.receiver))
        while life.active | life.committing:  # noqa: ASYNC110 - whatever changes it is real
            await asyncio.sleep(0.0002)
        for _ in range(self.choose.randrange(200)):
            await asyncio.sleep(0)
        life.machine.awake.clear()
        life.machine.asleep += 75
        await self.pass_time([each for each in self.lives if each is not life])
        life.machine.awake.set()
        life.machine.handles.set()
        await delivering

    async def pass_time(self, lives: list[Life]) -> None:
        for _ in range(5):
            for life in lives:  # before the database, which must not be ahead by more than what a lease allows for
                await life.machine.advance(seconds=15)
            await self.clock.advance(seconds=15)
            await self.settle()

    async def settle(self) -> None:
        """Let the receivers work; a lease must not end because its renewal is slow in real time."""
        for _ in range(30):  # how far this gets changes the schedule, and nothing that is asserted
            await asyncio.sleep(0.0002)
            while self.connections:  # noqa: ASYNC110 - whatever changes it is real
                await asyncio.sleep(0.0002)

    async def step(self) -> None:
        weights = {self.deliver: 12, self.settle: 4, self.kill: 1, self.close: 1, self.suspend: self.suspensions}
        (act,) = self.choose.choices([*weights], [*weights.values()])
        self.losing = self.choose.random() < 0.2
        await act()
        self.losing = False


@pytest.fixture
def make_world(postgres_url: str, schema: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], World]:
    def make_world(seed: int) -> World:
        world = World(postgres_url, schema, random.Random(seed))
        monkeypatch.setattr(Database, "connect", refuse_dead(world, Database.connect))
        for name in ("execute", "fetch_row"):
            monkeypatch.setattr(Database, name, lose(world, getattr(Database, name)))
        monkeypatch.setattr("svc_async.state.events._DELAYS", ())
        return world

    return make_world


def refuse_dead(world: World, connect: Callable[..., Any]) -> Callable[..., Any]:
    @asynccontextmanager
    async def refuse(database: Database, **how: Any) -> AsyncGenerator[Any]:
        if database in world.dead:
            raise StateUnavailable(database.name, "the process is dead")
        machine = world.machines.get(database)
        if machine is not None:
            await machine.awake.wait()
        world.connections += 1
        try:
            async with connect(database, **how) as connection:
                yield connection
        finally:
            world.connections -= 1
        if machine is not None:
            await machine.awake.wait()  # it reads the answer when it goes on

    return refuse


def lose(world: World, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Lose some requests before the database has them, and some answers on their way back."""

    async def lose(database: Database, *arguments: object) -> Any:
        if database in world.dead:
            raise StateUnavailable(database.name, "the process is dead")
        if world.losing and world.choose.random() < 0.1:
            raise StateUnavailable(database.name, "the request is lost")
        answer = await call(database, *arguments)
        if world.losing and world.choose.random() < 0.1:
            raise StateUnavailable(database.name, "the answer is lost")
        return answer

    return lose


async def run(world: World, steps: int) -> None:
    try:
        for _ in range(3):
            await world.start()
        for _ in range(steps):
            await world.step()
        while world.acknowledged - world.handled.keys():  # one that is lost is a timeout of this test
            await world.pass_time(world.lives)
    finally:
        for life in world.lives:
            await life.receiver.aclose()


@pytest.mark.parametrize(
    ("seed", "suspensions", "steps"),
    [
        (0, 0, 8),
        *(pytest.param(seed, each, 40, marks=pytest.mark.long) for seed in range(3) for each in (0, 2)),
    ],
)
async def test_no_event_is_lost_or_handled_twice(
    make_world: Callable[[int], World], seed: int, suspensions: int, steps: int
) -> None:
    world = make_world(seed)
    world.suspensions = suspensions
    await run(world, steps)
    assert world.acknowledged
    assert world.acknowledged <= world.handled.keys()
    assert world.twice == []
