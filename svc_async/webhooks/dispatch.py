"""Calls the handlers of accepted events: then commit; or, after a failure, on_error, dead letter and release."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from traceback import walk_tb

import attrs

from svc_async.events.models import Event
from svc_async.events.router import EventRouter, Handler, call_function, name_handler
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
_SHOWN = 100  # characters of a type of event, of its key, and of the name of a handler
_LONGEST_PATH = 1_000


@attrs.frozen(kw_only=True)
class Dispatcher:
    """Handles accepted events; an exception of a handler, a callback or a store never ends it."""

    router: EventRouter
    dedupe: DedupeStore
    inbox: Inbox | None
    on_error: OnError | None
    dead_letter: DeadLetter | None
    counters: Counters
    _unfinished: dict[AcceptedEvent, Handler] = attrs.field(factory=dict[AcceptedEvent, Handler], init=False)
    """The events of which a handler has not returned."""

    async def handle(self, accepted: AcceptedEvent) -> None:
        """Call the handlers of an event, once; skip it if another receiver has taken it over."""
        if not await self._confirm(accepted):
            return
        end = self.counters.start_handling(accepted.event, accepted.received_in)
        handlers, handler = self.router.find_handlers(accepted.event), None
        try:
            for handler in handlers:
                with self._note(accepted, handler):
                    await call_function("handler", handler, accepted.event, accepted.context)
        except asyncio.CancelledError as error:
            end(0, error, _name(handler))
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            await self._fail(accepted, error, handler)  # something within the handler was cancelled
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            end(0, error, _name(handler))
            await self._fail(accepted, error, handler)
        else:
            end(len(handlers), None, None)
            await self._succeed(accepted, len(handlers))

    async def abandon(self, accepted: AcceptedEvent) -> None:
        """Abandon an event that this receiver does not handle any more; an inbox keeps it for the next start."""
        self.counters.abandoned += 1
        if self.inbox is None:
            await self._dead_letter(accepted, NotHandled("the receiver ended before the event was handled"))
        await self.release(accepted.key, accepted.event)
        accepted.finish(handled=False)

    async def release(self, key: str, event: Event) -> None:
        """Release the claim of an event, so that a repeated delivery is accepted."""
        await self._attempt(self.dedupe.release(key), event, "dedupe.release")

    async def remove(self, key: str) -> None:
        """Remove an event from the inbox."""
        if self.inbox is not None:
            await self._attempt(self.inbox.remove(key), None, "inbox.remove")

    async def report(self, event: Event | None, error: BaseException, source: str | None = None) -> None:
        """Log a failure and call `on_error`.

        Args:
            event: the event; None if a whole delivery is concerned.
            error: why it failed.
            source: the function that failed, if it is known.
        """
        await self._report(event, error, f"{source}: {_describe(error)}" if source else _describe(error))

    async def _report(self, event: Event | None, error: BaseException, problem: str) -> None:
        advice = "; on_error receives the exception" if self.on_error is None else ""
        subject = _name_event(event) if event else "a delivery"
        _log.error("%s: %s%s", subject, problem, advice)
        if self.on_error is None:
            return
        try:
            await call_function("on_error", self.on_error, event, error)
        except Exception as failure:  # noqa: BLE001 - the log is the last resort
            _log.error("%s: on_error itself failed: %s", subject, _describe(failure))

    def name_unfinished(self) -> Sequence[str]:
        """Return the names of the handlers that have not returned, each once."""
        return tuple(dict.fromkeys(_describe_handler(each) for each in self._unfinished.values()))

    async def report_unfinished(self, deadline: float) -> None:
        """Report the events of which a handler has not returned within a deadline, in seconds."""
        for accepted, handler in tuple(self._unfinished.items()):
            error = NotHandled(f"the handler {_describe_handler(handler)} has not returned within {deadline:g} s")
            await self._report(accepted.event, error, str(error))

    @contextmanager
    def _note(self, accepted: AcceptedEvent, handler: Handler) -> Generator[None]:
        """Know that a handler of an event has not returned, within the block."""
        self._unfinished[accepted] = handler
        try:
            yield
        finally:
            del self._unfinished[accepted]

    async def _confirm(self, accepted: AcceptedEvent) -> bool:
        """Return whether the event is still this receiver's to handle."""
        try:
            if await self.dedupe.confirm(accepted.key):
                return True
        except Exception as error:  # noqa: BLE001 - a store may raise anything
            await self.report(accepted.event, error, "dedupe.confirm")
            await self.abandon(accepted)  # another receiver may be handling it
        accepted.finish(handled=False)
        return False

    async def _succeed(self, accepted: AcceptedEvent, handlers: int) -> None:
        self.counters.handled += 1
        self.counters.unhandled += not handlers
        if await self._attempt(self.dedupe.commit(accepted.key), accepted.event, "dedupe.commit"):
            await self.remove(accepted.key)
        accepted.finish(handled=True)

    async def _fail(self, accepted: AcceptedEvent, error: BaseException, handler: Handler | None) -> None:
        self.counters.failed += 1
        await self.report(accepted.event, error, f"handler {_name(handler)}")
        if await self._dead_letter(accepted, error):
            await self.remove(accepted.key)
        await self.release(accepted.key, accepted.event)
        accepted.finish(handled=False)

    async def _dead_letter(self, accepted: AcceptedEvent, error: BaseException) -> bool:
        if self.dead_letter is None:
            return False
        putting = call_function("dead_letter", self.dead_letter, accepted.event, error)
        return await self._attempt(putting, accepted.event, "dead_letter")

    async def _attempt(self, step: Awaitable[object], event: Event | None, source: str) -> bool:
        """Take a step and report its failure; return whether it succeeded."""
        try:
            await step
        except Exception as error:  # noqa: BLE001 - a store or a callback may raise anything
            await self.report(event, error, source)
            return False
        return True


def _name(handler: Handler | None) -> str | None:
    return None if handler is None else _describe_handler(handler)


def _describe_handler(handler: Handler) -> str:
    return clean(name_handler(handler)[:_SHOWN])


def _name_event(event: Event) -> str:
    return f"{clean(event.event_type[:_SHOWN])} {clean(event.key[:_SHOWN])}"


def _describe(error: BaseException) -> str:
    """Return the type of an error and where it was raised; its message may repeat what users wrote."""
    place = _find_place(error)
    return f"{type(error).__name__} at {place}" if place else type(error).__name__


def _find_place(error: BaseException) -> str | None:
    """Return the file and the line of the innermost frame of an error; of a group, those of its first error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    place = None
    for frame, line in walk_tb(error.__traceback__):
        place = f"{clean(frame.f_code.co_filename[:_LONGEST_PATH])}:{line}"
    return place
