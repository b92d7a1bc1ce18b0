"""One life of a client: a process that is forked, does a step of a job, and may be killed meanwhile.

It kills itself before a commit of its files, between two statements, or after it has a connection and before it sends;
the service kills it when a request has arrived, has taken effect or was answered; and a timer at any moment.
"""

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Literal

import aiohttp
import attrs
from aiohttp.connector import Connection

from svc_async import Endpoints, Governor, Session, UserCredentials
from svc_async.errors import (
    BatchError,
    InvalidArgument,
    StateUnavailable,
    SvcError,
    TakenUpElsewhere,
    UnusableFile,
    UnusableState,
)
from svc_async.governor.limits import LIMITS, change_limit
from tests.campaigns.crash.simulated_loop import SimulatedClock, SimulatedLoop
from tests.campaigns.crash.statements import watch_files, watch_postgres
from tests.campaigns.crash.world import World

__all__ = ["SHOW_TASKS", "Death", "Life", "Place", "Result", "Step", "live"]

SHOW_TASKS = signal.SIGUSR1
"""Has a client print what its tasks wait for."""
_CREDENTIALS = UserCredentials(consumer_key="k", consumer_secret="s", token="t", token_secret="ts")

Place = Literal["commit", "statement", "connected", "received", "applied", "late", "answered", "moment"]
Result = Mapping[str, Any]
"""How a life ended, in plain values: `end` is `done`, `stopped`, `refused`, `interrupted` or `failed`."""
Step = Callable[[Session], Awaitable[Any]]
"""Does a step, and returns its report."""


@attrs.frozen
class Death:
    """Where a client is killed, or stopped: at the n-th event of a place, or after `number` real milliseconds."""

    place: Place
    number: int
    signal: int = signal.SIGKILL


@attrs.frozen(kw_only=True)
class Life:
    """What a client does.

    Attributes:
        step: what it does.
        death: where it is killed; None for never.
        cancellations: for each attempt of the step before the last, after how many turns of its event loop it is
            cancelled, and how many turns lie between the first and the second cancellation.
        limit: requests in a minute.
        prepare: changes the process before it begins.
        seed: decides what its governor does at random.
    """

    world: World
    port: int
    poke: int
    step: Step
    prepare: Callable[[], None]
    death: Death | None = None
    cancellations: tuple[tuple[int, int], ...] = ()
    limit: int | None = None
    seed: int = 0


def live(life: Life, output: int) -> None:
    """Do the step, and write the result; then the process is over."""
    life.prepare()
    loop = SimulatedLoop(life.world, life.poke)
    signal.signal(SHOW_TASKS, lambda *_: sys.stderr.write(_describe_tasks(loop)))
    _watch_databases(loop, life.death)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        result = runner.run(_live(life, loop))
    os.write(output, json.dumps(result, default=str).encode())


def _describe_tasks(loop: SimulatedLoop) -> str:
    """Return what the tasks of a client wait for, and how many statements of PostgreSQL hold its time."""
    lines = [f"{os.getpid()}: {loop.statements} statements, time {loop.time()}"]
    lines += [f"{task.get_name()}: {' > '.join(_list_awaits(task.get_coro()))}" for task in asyncio.all_tasks(loop)]
    return "\n".join([*lines, ""])


def _list_awaits(awaited: Any) -> Iterator[str]:
    """Yield the functions that wait for each other, the outermost first."""
    while awaited is not None:
        prefix = next((each for each in ("cr", "ag", "gi") if hasattr(awaited, f"{each}_frame")), None)
        if prefix is None or (frame := getattr(awaited, f"{prefix}_frame")) is None:
            return
        yield f"{frame.f_code.co_qualname}:{frame.f_lineno}"
        awaited = getattr(awaited, f"{prefix}_{'yieldfrom' if prefix == 'gi' else 'await'}")


async def _live(life: Life, loop: SimulatedLoop) -> Result:
    dice = random.Random(life.seed)
    clock = SimulatedClock(life.world)
    limits = LIMITS if life.limit is None else change_limit(LIMITS, "ads.audience_users", requests=life.limit)
    address = f"http://127.0.0.1:{life.port}"
    async with (
        _Connector(loop, life.death) as connector,
        Session(
            _CREDENTIALS,
            endpoints=Endpoints(base_url=address, ads_url=address),
            governor=Governor(limits=limits, clock=clock, rng=dice),
            connector=connector,
            clock=clock,
        ) as session,
    ):
        for turns, between in life.cancellations:
            await _run_and_cancel(life.step(session), turns, between)
            loop.forget_requests()
        return await _describe(life.step(session))


async def _run_and_cancel(step: Awaitable[Any], turns: int, between: int) -> None:
    """Cancel a step twice."""
    task = asyncio.ensure_future(step)
    for pause in (turns, between):
        for _ in range(pause):
            await asyncio.sleep(0)
        task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()  # it may have failed, or ended, before


async def _describe(step: Awaitable[Any]) -> Result:
    try:
        return {"end": "done", "report": (await step).as_dict()}
    except BatchError as error:
        return {"end": "stopped", "why": str(error)}
    except (UnusableFile, UnusableState, InvalidArgument) as error:
        return {"end": "refused", "why": str(error)}
    except (StateUnavailable, TakenUpElsewhere) as error:
        return {"end": "stopped", "why": str(error)}
    except SvcError as error:
        return {"end": "interrupted", "why": f"{type(error).__name__}: {error}"}
    except Exception as error:  # noqa: BLE001 - what a user would see as a traceback
        return {"end": "failed", "why": f"{type(error).__name__}: {error}"}


@attrs.define
class _Countdown:
    """Kills or stops the process at the n-th event."""

    left: int
    signal: int

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), self.signal)


def _countdown(death: Death | None, place: Place) -> Callable[[], None]:
    is_here = death is not None and death.place == place
    return _Countdown(death.number, death.signal) if death is not None and is_here else lambda: None


def _watch_databases(loop: SimulatedLoop, death: Death | None) -> None:
    at_commit, at_statement = _countdown(death, "commit"), _countdown(death, "statement")

    def trace(statement: str) -> None:
        at_statement()
        if statement.startswith("COMMIT"):
            at_commit()

    watch_files(loop, trace)
    watch_postgres(loop, trace)


class _Connector(aiohttp.TCPConnector):
    """Counts the requests that are about to be sent."""

    def __init__(self, loop: SimulatedLoop, death: Death | None) -> None:
        super().__init__()
        self._trial_loop = loop
        self._at_request = _countdown(death, "connected")

    async def connect(self, *arguments: Any, **keywords: Any) -> Connection:
        connection = await super().connect(*arguments, **keywords)
        self._at_request()
        self._trial_loop.begin_request(connection)
        return connection
