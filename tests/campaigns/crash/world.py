"""The time of one trial, in memory that the service and its clients share.

Time is simulated: it stands still while anybody works, and goes on when a client has nothing to do but wait. So a
quarantine of two minutes costs no second, and its bounds hold exactly, however slow the machine is. Everything else is
real: the processes, the signals that kill them, the sockets and the files.
"""

import math
import mmap
from datetime import UTC, datetime, timedelta

__all__ = ["World"]

_EPOCH = datetime(2026, 3, 1, tzinfo=UTC)
_TIME, _JUMP, _HANDLED, _DUE, _BOOTED, _BOOTS, _SENT = range(7)
_PORTS = 2**16


class World:
    """Shared by the processes that are forked after it was made."""

    def __init__(self) -> None:
        self._cells = memoryview(mmap.mmap(-1, 8 * (_SENT + _PORTS))).cast("d")
        self.due = math.inf

    @property
    def time(self) -> float:
        """Seconds since the trial began."""
        return self._cells[_TIME]

    @time.setter
    def time(self, seconds: float) -> None:
        self._cells[_TIME] = seconds

    @property
    def jump(self) -> float:
        """How many seconds the wall clock of the clients is ahead of the service's."""
        return self._cells[_JUMP]

    @jump.setter
    def jump(self, seconds: float) -> None:
        self._cells[_JUMP] = seconds

    @property
    def handled(self) -> int:
        """How many requests of the present client the service is done with, for now."""
        return int(self._cells[_HANDLED])

    @handled.setter
    def handled(self, count: int) -> None:
        self._cells[_HANDLED] = count

    @property
    def due(self) -> float:
        """When the service will do something by itself."""
        return self._cells[_DUE]

    @due.setter
    def due(self, seconds: float) -> None:
        self._cells[_DUE] = seconds

    def mark_sent(self, port: int) -> None:
        """Note that a request is sent now from this port."""
        self._cells[_SENT + port] = self.time

    def find_sent(self, port: int) -> float:
        """Return when the last request was sent from this port."""
        return self._cells[_SENT + port]

    def boot(self, uptime: float) -> None:
        """Let the machine of the clients have been started this many seconds ago."""
        self._cells[_BOOTED] = self.time - uptime
        self._cells[_BOOTS] += 1

    @property
    def boot_id(self) -> str:
        """What identifies the time since the machine of the clients was started."""
        return f"boot {self._cells[_BOOTS]:g}"

    def read_monotonic(self) -> float:
        """Return the seconds since the machine of the clients was started."""
        return self.time - self._cells[_BOOTED]

    def service_now(self) -> datetime:
        """Return the time by the clock of the service."""
        return _EPOCH + timedelta(seconds=self.time)

    def client_now(self) -> datetime:
        """Return the time by the clock of the clients."""
        return self.service_now() + timedelta(seconds=self.jump)
