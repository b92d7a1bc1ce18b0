"""Calls the handlers of accepted events: then commit; or, after a failure, on_error, dead letter and release."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from svc_async.events.models import Event
from svc_async.events.router import EventRouter
from svc_async.printable import clean
from svc_async.webhooks.delivery import AcceptedEvent, NotHandled
from svc_async.webhooks.stats import Counters
from svc_async.webhooks.stores.dedupe import DedupeStore
from svc_async.webhooks.stores.inbox import Inbox

__all__ = ["DeadLetter", "Dispatcher", "OnError"]

OnError = Callable[[Event | None, BaseException], object]
"""Called after a failure; the event is None if a whole delivery is concerned. A function or a coroutine function."""

DeadLetter = Callable[[Event, BaseException], object]
"""Receives an event that was accepted and could not be handled. A function or a coroutine function."""

_log = logging.getLogger("svc_async.webhooks")
_SHOWN = 100  # characters of a type of event


@attrs.frozen(kw_only=True)
class Dispatcher:
    """Handles accepted events; an exception of a handler, a callback or a store never ends it."""

    router: EventRouter
    dedupe: DedupeStore
    inbox: Inbox | None
    on_error: OnError | None
    dead_letter: DeadLetter | None
    counters: Counters

    async def handle(self, accepted: AcceptedEvent) -> None:
        """Call the handlers of an event, once; skip it if another receiver has taken it over."""
        if not await self._confirm(accepted):
            return
        end = self.counters.start_handling(accepted.event, accepted.received_in)
        try:
            handlers = await self.router.dispatch(accepted.event, accepted.context)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                end(0, error)
                raise
            end(0, error)
            await self._fail(accepted, error)  # something within the handler was cancelled
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            end(0, error)
            await self._fail(accepted, error)
        else:
            end(handlers, None)
            await self._succeed(accepted, handlers)

    async def abandon(self, accepted: AcceptedEvent) -> None:
        """Abandon an event that this receiver does not handle any more; an inbox keeps it for the next start."""
        self.counters.abandoned += 1
        if self.inbox is None:
            await self._dead_letter(accepted, NotHandled("the receiver ended before the event was handled"))
        await self.release(accepted.key, accepted.event)
        accepted.finish(handled=False)

    async def release(self, key: str, event: Event) -> None:
        """Release the claim of an event, so that a repeated delivery is accepted."""
        await self._attempt(self.dedupe.release(key), event)

    async def remove(self, key: str) -> None:
        """Remove an event from the inbox."""
        if self.inbox is not None:
            await self._attempt(self.inbox.remove(key), None)

    async def report(self, event: Event | None, error: BaseException) -> None:
        """Log a failure and call `on_error`."""
        # The message of an error may repeat what users wrote.
        advice = "; on_error receives the exception" if self.on_error is None else ""
        subject = clean(event.event_type[:_SHOWN]) if event else "a delivery"
        _log.error("%s: %s%s", subject, type(error).__name__, advice)
        if self.on_error is None:
            return
        try:
            await _call(self.on_error, event, error)
        except Exception as problem:  # noqa: BLE001 - the log is the last resort
            _log.error("on_error itself failed: %s", type(problem).__name__)

    async def _confirm(self, accepted: AcceptedEvent) -> bool:
        """Return whether the event is still this receiver's to handle."""
        try:
            if await self.dedupe.confirm(accepted.key):
                return True
        except Exception as error:  # noqa: BLE001 - a store may raise anything
            await self.report(accepted.event, error)
            await self.abandon(accepted)  # another receiver may be handling it
        accepted.finish(handled=False)
        return False

    async def _succeed(self, accepted: AcceptedEvent, handlers: int) -> None:
        self.counters.handled += 1
        self.counters.unhandled += not handlers
        if await self._attempt(self.dedupe.commit(accepted.key), accepted.event):
            await self.remove(accepted.key)
        accepted.finish(handled=True)

    async def _fail(self, accepted: AcceptedEvent, error: BaseException) -> None:
        self.counters.failed += 1
        await self.report(accepted.event, error)
        if await self._dead_letter(accepted, error):
            await self.remove(accepted.key)
        await self.release(accepted.key, accepted.event)
        accepted.finish(handled=False)

    async def _dead_letter(self, accepted: AcceptedEvent, error: BaseException) -> bool:
        if self.dead_letter is None:
            return False
        return await self._attempt(_call(self.dead_letter, accepted.event, error), accepted.event)

    async def _attempt(self, step: Awaitable[object], event: Event | None) -> bool:
        """Take a step and report its failure; return whether it succeeded."""
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
