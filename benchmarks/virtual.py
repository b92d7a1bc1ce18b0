"""An event loop whose time is counted, not waited for: an hour takes as long as its work."""

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from svc_async.clock import SystemClock

__all__ = ["EPOCH", "VirtualClock", "run"]

T = TypeVar("T")

EPOCH = datetime(2026, 6, 10, 12, 0, tzinfo=UTC)


class _Selector(selectors.DefaultSelector):
    """Instead of waiting, lets the time pass."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0:
            self.passed += timeout
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._passing = _Selector()
        super().__init__(self._passing)

    def time(self) -> float:
        return self._passing.passed


class VirtualClock(SystemClock):
    """The SDK's clock on the time of the running loop."""

    def now(self) -> datetime:
        """Give the time since the epoch of this run."""
        return EPOCH + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        """Give the loop's time."""
        return asyncio.get_running_loop().time()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run some work on a loop of virtual time."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(work)
