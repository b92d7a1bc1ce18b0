"""When a session is open: from `open` to `close`, in one event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

import attrs

from svc_async.clock import require_event_loop
from svc_async.engine.transport import OTHER_LOOP
from svc_async.errors import WrongState
from svc_async.wiring import SessionResources, SettingsSource, open_resources

__all__ = ["LifeCycle"]

_CLOSE_THERE: Final = "the session was opened in another event loop; close it there"


@attrs.define(eq=False)
class LifeCycle:
    """Opens and closes what a session uses.

    Attributes:
        source: provides the settings of the session.
        resources: what it uses, from `open` to `close`.
        made_from: the life cycle of the session whose connections it uses, and what that one used; None if it opens its
            own.
    """

    source: SettingsSource
    resources: SessionResources | None = None
    made_from: "tuple[LifeCycle, SessionResources] | None" = None
    _was_closed: bool = attrs.field(default=False, init=False)
    _closing: AsyncExitStack = attrs.field(factory=AsyncExitStack, init=False)
    _changing: asyncio.Lock = attrs.field(factory=asyncio.Lock, init=False)
    _changing_in: asyncio.AbstractEventLoop | None = attrs.field(default=None, init=False)

    def derive(
        self, resources: SessionResources, on_close: Callable[[], Awaitable[object]] | None = None
    ) -> "LifeCycle":
        """Return that of a session that uses the connections of this one, and is open as long as this one.

        Args:
            resources: what it uses.
            on_close: awaited when it is closed before.
        """
        derived = LifeCycle(self.source, resources, (self, self.require_open()))
        if on_close is not None:
            derived._closing.push_async_callback(on_close)
        return derived

    async def open(self) -> None:
        """Open what the session uses, unless it is open.

        Raises:
            StateUnavailable: the database of the state cannot be reached.
            WrongState: it is open in another event loop, which is not closed; or the session that it was made from was
                closed; or no event loop of asyncio runs.
        """
        async with self._take_turn(OTHER_LOOP):
            if self.made_from is not None:
                self.require_open()
            elif not self.is_in_use:
                await self._end()  # if it was left open when its event loop was closed
                async with AsyncExitStack() as stack:
                    self.resources = await open_resources(self.source, stack)
                    self._closing = stack.pop_all()

    async def close(self) -> None:
        """Close what the session uses, if it is open.

        Raises:
            WrongState: it is open in another event loop, which is not closed; it stays open.
        """
        async with self._take_turn(_CLOSE_THERE):
            await self._end()

    @property
    def is_in_use(self) -> bool:
        """Whether it is open, in an event loop that is not closed."""
        return self.resources is not None and not self.resources.loop.is_closed()

    def require_open(self) -> SessionResources:
        """Return what the session uses.

        Raises:
            WrongState: it is not open.
        """
        if (resources := self.find_open()) is not None:
            return resources
        if self.made_from is not None:
            raise WrongState("the session was closed; make another one with as_user() or but()")
        what = "was closed" if self._was_closed else "is not open"
        raise WrongState(f"the session {what}; use it inside `async with`, or between open() and close()")

    def find_open(self) -> SessionResources | None:
        """Return what it uses while it is open, and the session that it was made from has not been closed."""
        session, used = self.made_from or (None, None)
        is_over = session is not None and session.find_open() is not used
        return None if is_over else self.resources

    async def _end(self) -> None:
        if self.resources is not None:
            self.resources, self._was_closed = None, True
            await self._closing.aclose()

    def _take_turn(self, refusal: str) -> asyncio.Lock:
        """Return the lock to be held while it is opened or closed, unless another event loop has the session.

        A lock belongs to the event loop in which tasks have waited for it, so each has its own.
        """
        require_event_loop("a session")
        running = asyncio.get_running_loop()
        home = None if self.resources is None else self.resources.loop
        for loop in (home, self._changing_in if self._changing.locked() else None):
            if loop is not None and loop is not running and not loop.is_closed():
                raise WrongState(refusal)
        if self._changing_in is not running:
            self._changing, self._changing_in = asyncio.Lock(), running
        return self._changing
