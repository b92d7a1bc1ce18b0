"""The open connection of a request that is answered by its own hands: bit by bit, or only after something else."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import attrs
from aiohttp import web

from svc_async.sandbox.clock import Clock, VirtualClock

__all__ = ["Line", "held", "released"]


@attrs.define(eq=False)
class Line:
    """A request and its connection.

    Attributes:
        request: the request; its body has been read.
        over: set when the caller has hung up or the sandbox closes.
        clock: the sandbox's time.
        response: what was opened.
    """

    request: web.BaseRequest = attrs.field(repr=False)
    over: asyncio.Event
    clock: Clock
    _headers: Callable[[int], Mapping[str, str]]
    response: web.StreamResponse | None = None

    async def open(self, status: int = 200, *, headers: Mapping[str, str]) -> web.StreamResponse:
        """Send the head of an answer, with the sandbox's own headers, and give the response to write to."""
        self.response = web.StreamResponse(status=status, headers={**self._headers(status), **headers})
        await self.response.prepare(self.request)
        return self.response

    def watch(self, leave: Callable[[], None]) -> asyncio.Task[None]:
        """Call `leave` as soon as the caller has hung up or the sandbox closes; cancel the task to call it off."""

        async def wait() -> None:
            await self.over.wait()
            leave()

        return asyncio.create_task(wait())

    def abort(self) -> None:
        """Cut the connection."""
        if self.request.transport is not None:
            self.request.transport.abort()

    def released(self) -> AbstractContextManager[None]:
        """Let time go on while the block waits for something: time is held while a request is worked on."""
        return released(self.clock)


def held(clock: Clock) -> AbstractContextManager[None]:
    """Keep a clock that jumps from doing so during the block."""
    return clock.holding() if isinstance(clock, VirtualClock) else nullcontext()


def released(clock: Clock) -> AbstractContextManager[None]:
    """Let a clock that jumps go on for the block."""
    return clock.released() if isinstance(clock, VirtualClock) else nullcontext()
