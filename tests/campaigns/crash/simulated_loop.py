"""An event loop whose time is that of a trial: it goes on when nothing is left to do but wait."""

import asyncio
import math
import os
import selectors
import sqlite3
from collections.abc import Callable
from datetime import datetime
from typing import Any

from aiohttp.connector import Connection

from svc_async.clock import SystemClock
from tests.campaigns.crash.world import World

__all__ = ["SimulatedClock", "SimulatedLoop"]

_GRACE = 0.0003
"""Real seconds for threads and the kernel before time goes on."""
_BUSY = 0.005
"""Real seconds that a transaction may take before time goes on nevertheless, as it would on a slow disk."""
_LOST = 0.2
"""Real seconds to wait for the service to handle a request that it may never have received."""
_LONGEST_STATEMENT = 15.0
"""Real seconds to wait for PostgreSQL."""
_SMALLEST = 1e-6


class SimulatedLoop(asyncio.SelectorEventLoop):
    """A loop in the time of a trial.

    Attributes:
        begun: how many requests were begun; the service counts those that it has handled.
        databases: the files that are open, which threads may be writing to.
        statements: how many statements a server is executing.
    """

    def __init__(self, world: World, poke: int) -> None:
        self.world = world
        self.begun = 0
        self.databases: list[sqlite3.Connection] = []
        self.statements = 0
        self._poke = poke
        super().__init__(_IdleSelector(self._pass_time))

    def time(self) -> float:
        return self.world.time

    def begin_request(self, connection: Connection) -> None:
        """Count a request that is sent now."""
        self.begun += 1
        if connection.transport is not None:
            self.world.mark_sent(connection.transport.get_extra_info("sockname")[1])

    def forget_requests(self) -> None:
        """Wait no more for requests that were cancelled, or never arrived."""
        self.begun = self.world.handled

    def _pass_time(self, poll: Callable[[float | None], Any], timeout: float | None) -> Any:
        """Wait for what others are doing now, then let time go on to the next timer, here or at the service."""
        waited = 0.0
        while True:
            if events := poll(_GRACE):
                return events
            waited += _GRACE
            if self.world.handled < self.begun:
                if waited < _LOST:
                    continue
                self.forget_requests()  # or every wait from now on would be as long
            if self.statements and waited < _LONGEST_STATEMENT:
                continue
            if waited >= _BUSY or not any(map(_is_busy, self.databases)):
                break
        due = self.world.due - self.world.time
        if timeout is None and math.isinf(due):
            return poll(None)
        if timeout is None or due <= timeout:
            self.world.time += max(due, 0.0)
            self.begun += 1
            os.write(self._poke, b".")
        else:
            self.world.time += max(timeout, _SMALLEST)
        return []


def _is_busy(database: sqlite3.Connection) -> bool:
    try:
        return database.in_transaction
    except sqlite3.ProgrammingError:  # it is closed
        return False


class _IdleSelector(selectors.DefaultSelector):
    """Asks what to do when a loop would wait."""

    def __init__(self, wait: Callable[[Callable[[float | None], Any], float | None], Any]) -> None:
        super().__init__()
        self._wait = wait

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        poll = super().select
        events = poll(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        waited: list[tuple[selectors.SelectorKey, int]] = self._wait(poll, timeout)
        return waited


class SimulatedClock(SystemClock):
    """The time of the running loop, and the wall clock of the clients."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> datetime:
        return self._world.client_now()

    def boot(self) -> str:
        return self._world.boot_id

    def monotonic(self) -> float:
        return self._world.read_monotonic()
