"""The open connection of a request whose operation writes its own answer: piece by piece, or after waiting."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import attrs
from aiohttp import web

from svc_async.sandbox.clock import Clock, VirtualClock

__all__ = ["OpenResponse", "hold_clock", "release_clock"]


@attrs.define(eq=False)
class OpenResponse:
    """A request and its connection.

    Attributes:
        request: the request; its body has been read.
        closed: set when the client has disconnected or the sandbox closes.
        clock: the sandbox's time.
        response: the response that was started.
    """

    request: web.BaseRequest = attrs.field(repr=False)
    closed: asyncio.Event
    clock: Clock
    _headers: Callable[[int], Mapping[str, str]]
    response: web.StreamResponse | None = None

    async def start(self, status: int = 200, *, headers: Mapping[str, str]) -> web.StreamResponse:
        """Send status and headers, with the sandbox's own, and return the response to write to."""
        self.response = web.StreamResponse(status=status, headers={**self._headers(status), **headers})
        await self.response.prepare(self.request)
        return self.response

    def on_close(self, callback: Callable[[], None]) -> asyncio.Task[None]:
        """Call back once the client has disconnected or the sandbox closes; cancel the task to unsubscribe."""

        async def wait() -> None:
            await self.closed.wait()
            callback()

        return asyncio.create_task(wait())

    def abort(self) -> None:
        """Cut the connection."""
        if self.request.transport is not None:
            self.request.transport.abort()

    def release_clock(self) -> AbstractContextManager[None]:
        """Let time pass while the block waits: time is held while a request is processed."""
        return release_clock(self.clock)


def hold_clock(clock: Clock) -> AbstractContextManager[None]:
    """Keep a clock that jumps from doing so during the block."""
    return clock.hold() if isinstance(clock, VirtualClock) else nullcontext()


def release_clock(clock: Clock) -> AbstractContextManager[None]:
    """Let a clock that jumps do so during the block."""
    return clock.release() if isinstance(clock, VirtualClock) else nullcontext()
