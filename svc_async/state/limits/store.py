"""Windows that several processes share: asks for leases in the background, and goes on without them if it must."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import blake2b
from uuid import UUID
from weakref import WeakKeyDictionary, ref

import attrs

from svc_async.clock import Clock, SystemClock, Timer
from svc_async.errors import StateUnavailable, SvcError
from svc_async.governor.window_store import WindowSpec, WindowStore
from svc_async.governor.windows import NEVER, SECOND, Demand
from svc_async.state.limits.holding import Holding, Lease, LeaseRequest, SharedLimit
from svc_async.state.limits.leased_window import LeasedWindow
from svc_async.store.postgres import KEPT_CONNECTIONS

__all__ = ["SharedWindows"]

_log = logging.getLogger("svc_async")

_MILLION = 1_000_000
_ANSWER_TIMEOUT = 2.0
"""Seconds without an answer of the database after which this process goes on with its share."""
_ANSWER_TICKS = 8
_RETRY_SECONDS = 1.0
_CLOSE_SECONDS = 2.0


@attrs.define
class _AnswerTimer:
    """Calls a function unless it is cancelled within two seconds in which the event loop runs.

    One timer would fire before the answer is read that arrived while the event loop stood still.
    """

    clock: Clock
    on_end: Callable[[], object]
    ticks: int = _ANSWER_TICKS
    _timer: Timer | None = attrs.field(default=None, init=False)

    def start(self) -> None:
        self._timer = self.clock.call_later(_ANSWER_TIMEOUT / _ANSWER_TICKS, self._tick)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        self.ticks -= 1
        if self.ticks:
            self.start()
        else:
            self.on_end()


class SharedWindows(WindowStore):
    """Windows whose requests are counted over several processes.

    Attributes:
        is_degraded: the shared count cannot be reached, and every window keeps to its share of the limit.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[object]],
        lease: Callable[[LeaseRequest], Awaitable[Lease]],
        *,
        clock: Clock | None = None,
        required: bool = True,
    ) -> None:
        """Start without windows.

        Args:
            connect: reaches the shared count, or raises `StateUnavailable`.
            lease: returns what is granted; whatever it raises, the shared count cannot be reached.
            clock: the time; the same as the governor's.
            required: whether the shared count must be reached when this is opened.
        """
        self._connect = connect
        self._lease = lease
        self._required = required
        self.is_degraded = False
        self._clock = clock or SystemClock()
        self._windows: WeakKeyDictionary[LeasedWindow, Timer | None] = WeakKeyDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(KEPT_CONNECTIONS)
        self._opened = 0
        self._is_closed = False
        self._retry: Timer | None = None

    async def open(self) -> None:
        """Reach the shared count.

        Raises:
            SvcError: it must be reached, and cannot.
        """
        if not self._opened:
            self._turns = asyncio.Semaphore(KEPT_CONNECTIONS)  # of this event loop
        try:
            await self._connect()
        except StateUnavailable as error:
            if self._required:
                raise
            self._degrade(str(error))
        self._opened += 1
        self._is_closed = False

    async def close(self) -> None:
        """Return what is leased, and report what was sent."""
        self._opened -= 1
        if self._opened > 0:
            return
        self._is_closed = True
        await self._end(set(self._tasks))
        for timer in (self._retry, *self._windows.values()):  # those of the tasks, too, that have just ended
            if timer is not None:
                timer.cancel()
        if not self.is_degraded:
            reported = [window for window in tuple(self._windows) if window.holding.needs_end_report(self._now())]
            await self._end({asyncio.ensure_future(self._report_end(window)) for window in reported})

    def window(self, spec: WindowSpec, on_change: Callable[[], object]) -> LeasedWindow:
        """Return a new window of a bucket.

        Args:
            spec: what it counts.
            on_change: makes the scheduler look again.
        """
        identity = repr((spec.surface.value, spec.name, spec.scope)).encode()  # the same in all processes
        shared = SharedLimit(
            bucket=UUID(bytes=blake2b(identity, digest_size=16, person=b"svc-async").digest()),
            name=spec.name,
            limit=spec.limit,
            period=spec.period,
            headroom=round(spec.headroom * _MILLION),
            documented=spec.documented,
        )
        window = LeasedWindow(Holding(shared), on_change, self._ask)
        self._windows[window] = None
        if self.is_degraded:
            window.degrade(self._now())
        return window

    def _now(self) -> int:
        return int(self._clock.monotonic() * SECOND)

    def _ask(self, window: LeasedWindow, demand: Demand | None) -> None:
        if window.is_asking or self._is_closed:
            return
        window.is_asking = True
        task = asyncio.get_running_loop().create_task(self._renew(window, demand))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _renew(self, window: LeasedWindow, demand: Demand | None) -> None:
        timer = _AnswerTimer(self._clock, partial(self._degrade, "the shared state does not answer"))
        try:
            async with self._turns:
                timer.start()
                lease = await self._lease(window.holding.make_request(demand, self._now()))
        except Exception as error:  # noqa: BLE001 - whatever keeps the database from answering, calls go on
            self._degrade(str(error) if isinstance(error, SvcError) else type(error).__name__)
            window.degrade(self._now())
        else:
            self._recover()
            window.apply(lease, self._now())
        finally:
            timer.cancel()
            window.is_asking = False
        window.on_change()
        self._set_timer(window)

    def _set_timer(self, window: LeasedWindow) -> None:
        """Look at a window again when its lease ends, its turn comes or its heartbeat is due."""
        timer = self._windows.get(window)
        if timer is not None:
            timer.cancel()
        now = self._now()
        due = NEVER if self.is_degraded or window.is_asking else window.holding.next_report_at(now)
        self._windows[window] = (
            None if due == NEVER else self._clock.call_later((due - now) / SECOND, partial(self._look_at, ref(window)))
        )

    def _look_at(self, reference: "ref[LeasedWindow]") -> None:
        window = reference()
        if window is None or self.is_degraded or window.is_asking:
            return
        window.on_change()
        if window.holding.needs_report(self._now()):
            self._ask(window, None)
        else:
            self._set_timer(window)

    def _degrade(self, reason: str) -> None:
        if self.is_degraded:
            return
        self.is_degraded = True
        _log.warning("this process keeps to its share of each rate limit for now: %s", reason)
        now = self._now()
        for window in tuple(self._windows):
            window.degrade(now)
            asyncio.get_running_loop().call_soon(window.on_change)
        self._retry = self._clock.call_later(_RETRY_SECONDS, self._try_again)

    def _try_again(self) -> None:
        """Ask for one window; if that succeeds, the others ask by themselves."""
        idle = next((window for window in self._windows if not window.is_asking), None)
        if idle is not None and not self._tasks:
            self._ask(idle, None)
        if self.is_degraded:
            self._retry = self._clock.call_later(_RETRY_SECONDS, self._try_again)

    def _recover(self) -> None:
        if not self.is_degraded:
            return
        self.is_degraded = False
        if self._retry is not None:
            self._retry.cancel()
        _log.info("this process shares its rate limits again")
        for window in tuple(self._windows):
            self._ask(window, None)

    async def _report_end(self, window: LeasedWindow) -> None:
        """Report what a process leaves behind, in turn; what there is no time for ends by itself."""
        async with self._turns:
            now = self._now()
            window.holding.end(now)
            await self._lease(window.holding.make_request(Demand(0, 0), now))

    async def _end(self, tasks: "set[asyncio.Task[None]]") -> None:
        """Wait for tasks, but not for long; what they would have done is then given up."""
        if not tasks:
            return
        _, pending = await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)
        for task in pending:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
