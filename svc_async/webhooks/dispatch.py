"""What is done about an accepted event: handlers, then the commit; or on_error, the dead letter, the release."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from svc_async.events.models import Event
from svc_async.events.router import EventRouter
from svc_async.webhooks.dedupe import DedupeStore
from svc_async.webhooks.delivery import Job, NotHandled
from svc_async.webhooks.inbox import Inbox
from svc_async.webhooks.stats import Tally

__all__ = ["DeadLetter", "Handling", "OnError"]

OnError = Callable[[Event | None, BaseException], object]
"""Is told of a failure; the event is None where a whole delivery is concerned. Plain, or a coroutine function."""

DeadLetter = Callable[[Event, BaseException], object]
"""Is given an event that was accepted and not handled. Plain, or a coroutine function."""

_log = logging.getLogger("svc_async.webhooks")


@attrs.frozen(kw_only=True)
class Handling:
    """Handles jobs; nothing that a handler, a callback or a store raises ends it."""

    router: EventRouter
    dedupe: DedupeStore
    inbox: Inbox | None
    on_error: OnError | None
    dead_letter: DeadLetter | None
    tally: Tally

    async def handle(self, job: Job) -> None:
        """Call the handlers of an event, once."""
        try:
            heard = await self.router.dispatch(job.event, job.context)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            await self._fail(job, error)  # something within the handler was cancelled
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            await self._fail(job, error)
        else:
            await self._succeed(job, heard)

    async def abandon(self, job: Job) -> None:
        """Give up an event that was not handled in time; an inbox keeps it for the next start."""
        self.tally.abandoned += 1
        if self.inbox is None:
            await self._bury(job, NotHandled("the receiver closed before the event was handled"))
        await self.release(job.event)
        job.settle(handled=False)

    async def release(self, event: Event) -> None:
        """Let a repeated delivery of an event in."""
        await self._told(self.dedupe.release(event.key), event)

    async def forget(self, key: str) -> None:
        """Let go of an event in the inbox."""
        if self.inbox is not None:
            await self._told(self.inbox.done(key), None)

    async def report(self, event: Event | None, error: BaseException) -> None:
        """Tell of a failure."""
        # The words of an error may repeat what people wrote.
        _log.error("%s: %s", event.event_type if event else "a delivery", type(error).__name__)
        if self.on_error is None:
            return
        try:
            await _call(self.on_error, event, error)
        except Exception as problem:  # noqa: BLE001 - the last one to tell is the log
            _log.error("on_error itself failed: %s", type(problem).__name__)

    async def _succeed(self, job: Job, heard: int) -> None:
        self.tally.handled += 1
        self.tally.unheard += not heard
        if await self._told(self.dedupe.commit(job.event.key), job.event):
            await self.forget(job.event.key)
        job.settle(handled=True)

    async def _fail(self, job: Job, error: BaseException) -> None:
        self.tally.failed += 1
        await self.report(job.event, error)
        if await self._bury(job, error):
            await self.forget(job.event.key)
        await self.release(job.event)
        job.settle(handled=False)

    async def _bury(self, job: Job, error: BaseException) -> bool:
        if self.dead_letter is None:
            return False
        return await self._told(_call(self.dead_letter, job.event, error), job.event)

    async def _told(self, step: Awaitable[object], event: Event | None) -> bool:
        """Take a step; if it fails, tell, and go on."""
        try:
            await step
        except Exception as error:  # noqa: BLE001 - a store or a callback may raise anything
            await self.report(event, error)
            return False
        return True


async def _call(function: Callable[..., object], *arguments: Any) -> None:
    result = function(*arguments)
    if inspect.isawaitable(result):
        await result
