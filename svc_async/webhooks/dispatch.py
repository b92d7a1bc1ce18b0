"""Calls the handlers of accepted events: then commit; or, after a failure, on_error, dead letter and release."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from traceback import walk_tb
from typing import TypeVar

import attrs

from svc_async.clock import Clock
from svc_async.events.models import Event
from svc_async.events.router import EventRouter, Handler, call_function, name_handler
from svc_async.printable import clean
from svc_async.webhooks.delivery import AcceptedEvent, NotHandled, TooManyAttempts
from svc_async.webhooks.stats import Counters
from svc_async.webhooks.stores.dedupe import DedupeStore
from svc_async.webhooks.stores.inbox import CountingInbox, Inbox

__all__ = ["DeadLetter", "Dispatcher", "OnError"]

T = TypeVar("T")
OnError = Callable[[Event | None, BaseException], object]
"""Called after a failure; the event is None if a whole delivery is concerned. A function or a coroutine function."""

DeadLetter = Callable[[Event, BaseException], object]
"""Receives an event that was accepted and could not be handled. A function or a coroutine function."""

_log = logging.getLogger("svc_async.webhooks")
_SHOWN = 100  # characters of a type of event, of its key, and of the name of a handler
_LONGEST_PATH = 1_000
_PACKAGE = str(Path(__file__).parents[1])
_WAITS = (1.0, 5.0, 15.0)
"""Seconds until a store that failed is called again; from then on it is called once a minute."""
_LONGEST_WAIT = 60.0
_AGAIN = "%s: handled again, attempt %d of %d: at the former ones the process ended before its handlers"
_ENDS_PROCESS = "%s: handler %s ends the process: %s"
_GIVEN_UP = "the process ended at each of %d attempts to handle it"


@attrs.frozen(kw_only=True)
class Dispatcher:
    """Handles accepted events; an exception of a handler, a callback or a store never ends it."""

    router: EventRouter
    dedupe: DedupeStore
    inbox: Inbox | None
    on_error: OnError | None
    dead_letter: DeadLetter | None
    counters: Counters
    max_attempts: int
    clock: Clock
    _unfinished: dict[AcceptedEvent, Handler] = attrs.field(factory=dict[AcceptedEvent, Handler], init=False)
    """The events of which a handler has not returned."""

    async def handle(self, accepted: AcceptedEvent) -> None:
        """Call the handlers of an event, once; skip it if another receiver has taken it over.

        An attempt that the inbox does not count yet is counted first. After too many the handlers are not called.
        """
        if accepted.attempts > self.max_attempts:
            if await self._confirm(accepted):
                await self._give_up(accepted)
        elif await self._begin(accepted) and await self._confirm(accepted):
            if accepted.may_kill:
                _log.warning(_AGAIN, _name_event(accepted.event), accepted.attempts, self.max_attempts)
            await self._call_handlers(accepted)

    async def end_attempts(self, events: Sequence[AcceptedEvent]) -> None:
        """Have the inbox take back the attempts of events that stay there, since they ended with the process alive."""
        keys = [each.key for each in events if each.is_counted]
        if keys and isinstance(self.inbox, CountingInbox):
            await self._attempt(self.inbox.end(keys), None, "inbox.end")
        for each in events:
            each.is_counted = False  # not if it was cancelled: rather one attempt too many than an event given up

    async def _call_handlers(self, accepted: AcceptedEvent) -> None:
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
        except (SystemExit, KeyboardInterrupt) as error:
            end(0, error, _name(handler))
            accepted.is_counted = False  # so that closing the receiver does not take the attempt back
            _log.error(_ENDS_PROCESS, _name_event(accepted.event), _name(handler), _describe(error))
            raise
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

    async def _begin(self, accepted: AcceptedEvent) -> bool:
        """Have the inbox count the attempt, if it does not yet; return whether the event is still there."""
        if accepted.is_counted or not isinstance(self.inbox, CountingInbox):
            return True
        accepted.is_counted = True  # also if this is cancelled, since the inbox goes on
        attempts = await self._repeat(partial(self.inbox.begin, accepted.key), accepted.event, "inbox.begin")
        if attempts is None:  # somebody has discarded it
            await self.release(accepted.key, accepted.event)
            accepted.finish(handled=False)
            return False
        accepted.expect_attempt(attempts)
        return True

    async def _confirm(self, accepted: AcceptedEvent) -> bool:
        """Return whether the event is still this receiver's to handle."""
        if await self._repeat(partial(self.dedupe.confirm, accepted.key), accepted.event, "dedupe.confirm"):
            return True
        accepted.finish(handled=False)
        return False

    async def _repeat(self, call: Callable[[], Awaitable[T]], event: Event, source: str) -> T:
        """Call a store until it answers, and report each failure; meanwhile the later events of the user wait.

        The event was acknowledged: nobody else handles it while this receiver runs. Closing the receiver cancels this.
        """
        waits = iter(_WAITS)
        while True:
            try:
                return await call()
            except Exception as error:  # noqa: BLE001 - a store may raise anything
                wait = next(waits, _LONGEST_WAIT)
                await self.report(event, error, f"{source}, called again in {wait:g} s")
            await self.clock.sleep(wait)

    async def _succeed(self, accepted: AcceptedEvent, handlers: int) -> None:
        self.counters.handled += 1
        self.counters.unhandled += not handlers
        await self._commit(accepted)
        accepted.finish(handled=True)

    async def _commit(self, accepted: AcceptedEvent) -> None:
        if await self._attempt(self.dedupe.commit(accepted.key), accepted.event, "dedupe.commit"):
            await self.remove(accepted.key)

    async def _give_up(self, accepted: AcceptedEvent) -> None:
        """Put an event that ends the process into `dead_letter`; unless that takes it, the inbox keeps it as it is."""
        self.counters.failed += 1
        problem = _GIVEN_UP % (accepted.attempts - 1)
        error = TooManyAttempts(problem)
        kept = "; it stays in the inbox, and is not handled" if self.dead_letter is None else ""
        await self.report(accepted.event, error, f"{problem}{kept}")
        if await self._dead_letter(accepted, error):
            await self._commit(accepted)  # not released: a repeated delivery would end the process again
        else:
            await self.release(accepted.key, accepted.event)
        accepted.finish(handled=False)

    async def _fail(self, accepted: AcceptedEvent, error: BaseException, handler: Handler | None) -> None:
        self.counters.failed += 1
        await self.report(accepted.event, error, f"handler {_name(handler)}")
        if await self._dead_letter(accepted, error):
            await self.remove(accepted.key)
        else:
            await self.end_attempts([accepted])
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
    """Return the file and the line where an error was raised; of a group, those of its first error.

    Before an error that a library raises, the line that called the library: the last one in the file of the handler,
    the callback or the store that was called.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    if not frames:
        return None
    called = next((file for file, _ in frames if not file.startswith(_PACKAGE)), None)
    *_, own = [frame for frame in frames if frame[0] == called] or frames
    raised = _name_line(*frames[-1])
    return raised if own == frames[-1] else f"{_name_line(*own)}, raised at {raised}"


def _name_line(file: str, line: int) -> str:
    return f"{clean(file[:_LONGEST_PATH])}:{line}"
