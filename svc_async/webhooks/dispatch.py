"""An event that was accepted, and its way through the handlers.

The handlers are called; then the event is committed or, after a failure, goes to on_error and into a dead letter, and
is released.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context
from datetime import datetime
from functools import partial
from typing import TypeVar

import attrs

from svc_async.errors import SvcError
from svc_async.events.models import Event, ReplayJobStatus
from svc_async.events.router import Handler, call_function
from svc_async.webhooks.log_lines import DueLines, describe_error, describe_handler, name_event, name_subject, name_type
from svc_async.webhooks.settings import ReceiverSettings
from svc_async.webhooks.stats import Counters
from svc_async.webhooks.stores.inbox import ACCEPTED_BY_A_DEAD_PROCESS

__all__ = [
    "AcceptedEvent",
    "DeliveryContext",
    "Dispatcher",
    "NotHandled",
    "StoreFailed",
    "TooManyAttempts",
    "find_task",
    "is_end",
    "is_failure",
    "name_failure",
]


@attrs.frozen(kw_only=True)
class DeliveryContext:
    """The context that handlers receive besides the event.

    Attributes:
        key_id: the key that signed the delivery.
        received_at: when it was received.
        body: the delivery, byte for byte as it was signed.
        restored: whether it was found in the inbox at the start: an earlier receiver may have begun to handle it.
        attempts: how often handling of the event has begun and not ended, this time included: more than 1 if processes
            died before, within its handlers or while it waited for them.
    """

    key_id: str
    received_at: datetime
    body: bytes = attrs.field(repr=False)
    restored: bool = False
    attempts: int = 1


@attrs.define(kw_only=True, eq=False)
class AcceptedEvent:
    """An event to handle.

    Attributes:
        key: the key under which it is claimed and stored; see `build_event_key`.
        event: the event.
        context: its delivery.
        order_key: events with the same key are handled in the order in which they were accepted.
        size: its part of the memory that the delivery takes, estimated.
        handled: resolves to whether the event was handled, also if a store could not record that yet.
        done: resolves to the same when nothing is left to do for the event.
        received_in: the context in which its delivery was received, if something observes the receiver.
        is_counted: whether its inbox counts the attempt to handle it, as it does from the start if it was just stored.
        result: whether the event was handled; None until its handlers have returned, or it was given up, so that only
            the stores have to record that.
    """

    key: str
    event: Event
    context: DeliveryContext
    order_key: str | None
    size: int
    handled: asyncio.Future[bool] = attrs.field(factory=lambda: asyncio.get_running_loop().create_future(), init=False)
    done: asyncio.Future[bool] = attrs.field(factory=lambda: asyncio.get_running_loop().create_future(), init=False)
    received_in: Context | None = None
    is_counted: bool = True
    result: bool | None = None

    @property
    def attempts(self) -> int:
        """The number of the attempt to handle it, from 1."""
        return self.context.attempts

    @property
    def may_kill(self) -> bool:
        """Whether it may be what ended a process: at the second attempt is all that such a process had accepted."""
        return self.attempts > ACCEPTED_BY_A_DEAD_PROCESS

    def expect_attempt(self, attempts: int) -> None:
        """Note the number of the attempt to handle it."""
        self.context = attrs.evolve(self.context, attempts=attempts)

    def answer(self, *, handled: bool) -> None:
        """Resolve `handled`, unless its event loop was closed and nothing waits any more."""
        _resolve(self.handled, handled)

    def finish(self, *, handled: bool) -> None:
        """Resolve `handled` and `done` likewise."""
        _resolve(self.handled, handled)
        _resolve(self.done, handled)


class NotHandled(SvcError):
    """An accepted event was not handled in time: before the receiver closed, or a wait for it ended."""


class TooManyAttempts(SvcError):
    """The process died at every attempt to handle an event, as often as `max_attempts` allows; it is not handled."""


def _resolve(future: asyncio.Future[bool], value: bool) -> None:  # noqa: FBT001 - as `set_result`
    if not future.done() and not future.get_loop().is_closed():
        future.set_result(value)


def is_failure(error: BaseException, task: "asyncio.Task[object] | None") -> bool:
    """Return whether an exception that was caught is a failure of the code that raised it.

    That is any exception, also one that is no `Exception`, such as a panic of an extension module in Rust or the
    `Failed` of pytest; unless it ends the process, or is the end of the task.

    Args:
        error: the exception.
        task: the task in which it was caught: what `find_task` returned before.
    """
    return not isinstance(error, KeyboardInterrupt | SystemExit) and not is_end(error, task)


def is_end(error: BaseException, task: "asyncio.Task[object] | None") -> bool:
    """Return whether an exception that was caught is the end of its task: it is cancelled, or its event loop is closed.

    Where the event loop is closed before a task ends, the coroutine of the task is closed when nothing needs it.
    """
    if find_task() is not task:
        return True
    # A cancellation that nobody asked for is one of something that the task has awaited.
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def find_task() -> "asyncio.Task[object] | None":
    """Return the task that runs; None if none does, also because no event loop runs."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


T = TypeVar("T")
_log = logging.getLogger("svc_async.webhooks")
_WAITS = (1.0, 5.0, 15.0)
"""Seconds until a store that failed is called again; from then on it is called once a minute."""
_LONGEST_WAIT = 60.0
_LONGEST_WAIT_TO_RECORD = 5.0
"""The same for what was handled: until that is recorded, another receiver may handle it, too, if a lease has ended."""
_LONGEST_WAIT_TO_CLOSE = 1.0
_AGAIN = "%s: handled again, attempt %d of %d: the former ones ended with the process, or a store could not record it"
_NO_HANDLER = (
    "no handler is registered for %s: such events count as handled, and are not handled later if they come again; "
    "register a handler before you subscribe, or end the subscription"
)
_MOST_TYPES = 100
_ENDS_PROCESS = "%s: handler %s ends the process: %s"
_GIVEN_UP = "the process ended at each of %d attempts to handle it"


@attrs.frozen
class Dispatcher:
    """Handles accepted events; an exception of a handler, a callback or a store never ends it.

    Attributes:
        failures: decides which failures of the stores are logged.
        closing: set when the run of the receiver closes, so that stores that fail are called again more often.
    """

    settings: ReceiverSettings
    counters: Counters
    failures: DueLines
    closing: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)
    _unfinished: dict[AcceptedEvent, Handler] = attrs.field(factory=dict[AcceptedEvent, Handler], init=False)
    """The events of which a handler has not returned."""
    _unhandled: set[str] = attrs.field(factory=set[str], init=False)
    """The types of events without a handler that were logged."""

    async def handle(self, accepted: AcceptedEvent) -> None:
        """Call the handlers of an event, once; skip it if another receiver has taken it over.

        An attempt that the inbox does not count yet is counted first. After too many the handlers are not called.
        """
        if accepted.attempts > self.settings.ack.max_attempts:
            if await self._confirm(accepted):
                await self._give_up(accepted)
        elif await self._begin(accepted) and await self._confirm(accepted):
            if accepted.may_kill:
                _log.warning(_AGAIN, name_event(accepted.event), accepted.attempts, self.settings.ack.max_attempts)
            await self._call_handlers(accepted)

    async def end_attempts(self, events: Sequence[AcceptedEvent]) -> None:
        """Have the inbox take back the attempts of events that stay there, since they ended with the process alive."""
        inbox, keys = self.settings.ack.inbox, [each.key for each in events if each.is_counted]
        if keys and inbox is not None:
            await self._attempt(inbox.end(keys), None, "inbox.end")
        for each in events:
            each.is_counted = False  # not if it was cancelled: rather one attempt too many than an event given up

    async def _call_handlers(self, accepted: AcceptedEvent) -> None:
        task = find_task()
        end = self.counters.start_handling(accepted.event, accepted.received_in)
        handlers, handler = self.settings.router.find_handlers(accepted.event), None
        try:
            for handler in handlers:
                self._unfinished[accepted] = handler
                await call_function("handler", handler, accepted.event, accepted.context)
        except BaseException as error:
            self._unfinished.pop(accepted, None)
            end(0, error, _name(handler))
            if not is_failure(error, task):
                if isinstance(error, SystemExit | KeyboardInterrupt):
                    _log.error(_ENDS_PROCESS, name_event(accepted.event), _name(handler), describe_error(error))
                raise
            await self._fail(accepted, error, handler)
        else:
            self._unfinished.pop(accepted, None)
            end(len(handlers), None, None)
            self.counters.handled += 1
            if not handlers:
                self._note_unhandled(accepted.event)
            await self._record(accepted, handled=True)

    async def abandon(self, accepted: AcceptedEvent) -> None:
        """Abandon an event that this receiver does not handle any more; an inbox keeps it for the next start.

        The claim of one that only is to be recorded stays: it is not to be handled again.
        """
        if accepted.result is not None:
            accepted.finish(handled=accepted.result)
            return
        self.counters.abandoned += 1
        if self.settings.ack.inbox is None:
            await self._dead_letter(accepted, NotHandled("the receiver ended before the event was handled"))
        await self.release(accepted.key, accepted.event)
        accepted.finish(handled=False)

    async def release(self, key: str, event: Event) -> None:
        """Release the claim of an event, so that a repeated delivery is accepted."""
        await self._attempt(self.settings.dedupe.release(key), event, "dedupe.release")

    async def remove(self, key: str) -> None:
        """Remove an event from the inbox."""
        if (inbox := self.settings.ack.inbox) is not None:
            await self._attempt(inbox.remove(key), None, "inbox.remove")

    async def report(self, event: Event | None, error: BaseException, source: str | None = None) -> None:
        """Log a failure and call `on_error`; of the failures of a store, at most one a minute is logged.

        Args:
            event: the event; None if a whole delivery is concerned.
            error: why it failed.
            source: the function that failed, if it is known; that of a store begins with `dedupe.` or `inbox.`.
        """
        problem = f"{source}: {describe_error(error)}" if source else describe_error(error)
        store = {"dedupe": self.settings.dedupe, "inbox": self.settings.ack.inbox}.get((source or "").partition(".")[0])
        if store is None:
            await self._report(event, error, problem)
            return
        count = self.failures.count(id(store))  # one object may be both stores
        if count is None:
            await self._call_on_error(event, error)
            return
        since = f" ({count:,} failures of the store since the last line)" if count > 1 else ""
        await self._report(event, error, f"{problem}{since}")

    async def _report(self, event: Event | None, error: BaseException, problem: str) -> None:
        advice = "; on_error receives the exception" if self.settings.on_error is None else ""
        _log.error("%s: %s%s", name_subject(event), problem, advice)
        await self._call_on_error(event, error)

    async def _call_on_error(self, event: Event | None, error: BaseException) -> None:
        if self.settings.on_error is None:
            return
        task = find_task()
        try:
            await call_function("on_error", self.settings.on_error, event, error)
        except BaseException as failure:
            if not is_failure(failure, task):
                raise
            _log.error("%s: on_error itself failed: %s", name_subject(event), describe_error(failure))

    def name_unfinished(self) -> Sequence[str]:
        """Return the names of the handlers that have not returned, each once."""
        return tuple(dict.fromkeys(describe_handler(each) for each in self._unfinished.values()))

    async def report_unfinished(self, deadline: float) -> None:
        """Report the events of which a handler has not returned within a deadline, in seconds."""
        for accepted, handler in tuple(self._unfinished.items()):
            error = NotHandled(f"the handler {describe_handler(handler)} has not returned within {deadline:g} s")
            await self._report(accepted.event, error, str(error))

    async def _begin(self, accepted: AcceptedEvent) -> bool:
        """Have the inbox count the attempt, if it does not yet; return whether the event is still there."""
        inbox = self.settings.ack.inbox
        if accepted.is_counted or inbox is None:
            return True
        accepted.is_counted = True  # also if this is cancelled, since the inbox goes on
        attempts = await self._repeat(partial(inbox.begin, accepted.key), accepted.event, "inbox.begin")
        if attempts is None:  # somebody has discarded it
            await self.release(accepted.key, accepted.event)
            accepted.finish(handled=False)
            return False
        accepted.expect_attempt(attempts)
        return True

    async def _confirm(self, accepted: AcceptedEvent) -> bool:
        """Return whether the event is still this receiver's to handle."""
        if await self._repeat(partial(self.settings.dedupe.confirm, accepted.key), accepted.event, "dedupe.confirm"):
            return True
        accepted.finish(handled=False)
        return False

    async def _repeat(
        self,
        call: Callable[[], Awaitable[T]],
        event: Event,
        source: str,
        *,
        longest: float = _LONGEST_WAIT,
        on_failure: Callable[[], object] = lambda: None,
    ) -> T:
        """Call a store until it answers, and report each failure; meanwhile the later events of the user wait.

        The event was acknowledged: nobody else handles it while this receiver runs. A receiver that closes calls the
        store more often, and cancels this at its drain deadline.
        """
        task, waits = find_task(), iter(_WAITS)
        while True:
            try:
                return await call()
            except BaseException as error:
                if not is_failure(error, task):
                    raise
                longest = _LONGEST_WAIT_TO_CLOSE if self.closing.is_set() else longest
                wait = min(next(waits, longest), longest)
                await self.report(event, error, f"{source}, called again in {wait:g} s")
                on_failure()
            if self.closing.is_set():
                await self.settings.clock.sleep(wait)
            else:
                with suppress(TimeoutError):
                    async with self.settings.clock.timeout(wait):
                        await self.closing.wait()

    def _note_unhandled(self, event: Event) -> None:
        """Count an event without a handler, and log the first of its type, unless it comes without a subscription."""
        self.counters.unhandled += 1
        if isinstance(event, ReplayJobStatus):
            return
        event_type = name_type(event)
        if event_type not in self._unhandled and len(self._unhandled) < _MOST_TYPES:
            self._unhandled.add(event_type)
            _log.warning(_NO_HANDLER, event_type)

    async def _record(self, accepted: AcceptedEvent, *, handled: bool) -> None:
        """Have the stores record that an event is not to be handled again, and finish it.

        Args:
            accepted: the event.
            handled: whether it was handled; else it was given up. Who waits for its handlers waits for no store that
                fails.
        """
        accepted.result = handled
        answer = partial(accepted.answer, handled=handled)
        repeat = partial(self._repeat, longest=_LONGEST_WAIT_TO_RECORD, on_failure=answer)
        await repeat(partial(self.settings.dedupe.commit, accepted.key), accepted.event, "dedupe.commit")
        if (inbox := self.settings.ack.inbox) is not None:
            await repeat(partial(inbox.remove, accepted.key), accepted.event, "inbox.remove")
        accepted.finish(handled=handled)

    async def _give_up(self, accepted: AcceptedEvent) -> None:
        """Put an event that ends the process into `dead_letter`; unless that takes it, the inbox keeps it as it is."""
        self.counters.failed += 1
        problem = _GIVEN_UP % (accepted.attempts - 1)
        error = TooManyAttempts(problem)
        kept = "; it stays in the inbox, and is not handled" if self.settings.dead_letter is None else ""
        await self.report(accepted.event, error, f"{problem}{kept}")
        if await self._dead_letter(accepted, error):  # not released: a repeated delivery would end the process again
            await self._record(accepted, handled=False)
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
        if self.settings.dead_letter is None:
            return False
        putting = call_function("dead_letter", self.settings.dead_letter, accepted.event, error)
        return await self._attempt(putting, accepted.event, "dead_letter")

    async def _attempt(self, step: Awaitable[object], event: Event | None, source: str) -> bool:
        """Take a step and report its failure; return whether it succeeded."""
        task = find_task()
        try:
            await step
        except BaseException as error:
            if not is_failure(error, task):
                raise
            await self.report(event, error, source)
            return False
        return True


@attrs.frozen(eq=False)
class StoreFailed(Exception):
    """A store has failed.

    Attributes:
        source: the function of the store.
        error: what it has raised.
    """

    source: str
    error: BaseException


@contextmanager
def name_failure(source: str) -> Generator[None]:
    """Raise `StoreFailed` in place of an error within the block, in which a function of a store is called."""
    task = find_task()
    try:
        yield
    except BaseException as error:
        if not is_failure(error, task):
            raise
        raise StoreFailed(source, error) from error


def _name(handler: Handler | None) -> str | None:
    return None if handler is None else describe_handler(handler)
