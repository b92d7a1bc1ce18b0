"""One run of a receiver: everything that belongs to the event loop in which the receiver was entered.

An `Acceptor` claims, stores and queues all events of a delivery, or none. A `Run` opens the stores, has what the inbox
holds accepted again, and runs the workers that handle what is queued.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from contextvars import copy_context
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import attrs

from svc_async.errors import WrongState
from svc_async.events.models import Event, UnknownEvent
from svc_async.events.parser import estimate_memory
from svc_async.printable import join_first
from svc_async.webhooks.dispatch import (
    AcceptedEvent,
    DeliveryContext,
    Dispatcher,
    NotHandled,
    StoreFailed,
    find_task,
    is_end,
    is_failure,
    name_failure,
)
from svc_async.webhooks.keyed_queue import Arrivals, KeyedLock, KeyedQueue, build_event_key, parse_event_key
from svc_async.webhooks.log_lines import DueLines, describe_error
from svc_async.webhooks.settings import ReceiverSettings
from svc_async.webhooks.stats import Counters
from svc_async.webhooks.stores.dedupe import Claim
from svc_async.webhooks.stores.inbox import StoredEvent
from svc_async.webhooks.stores.sqlite import SqliteDedupe, SqliteInbox
from svc_async.webhooks.verification import ADVICE, ADVICE_AFTER_FAILURE, Rejected, RejectReason

__all__ = ["Acceptor", "RejectionLog", "Run"]


@attrs.define(kw_only=True)
class Acceptor:
    """Accepts deliveries that were verified, within one event loop.

    Attributes:
        apps: the app of each signing key by its id; see `build_event_key`.
    """

    settings: ReceiverSettings
    dispatcher: Dispatcher
    apps: Mapping[str, str]
    counters: Counters
    queue: KeyedQueue[AcceptedEvent] = attrs.field(init=False)
    restored_again: int = attrs.field(default=0, init=False)
    """The number of restored events that a receiver which died may have begun to handle."""
    _arrivals: Arrivals = attrs.field(factory=Arrivals, init=False)
    _lock: KeyedLock = attrs.field(factory=KeyedLock, init=False)
    _unfinished: dict[str, AcceptedEvent] = attrs.field(factory=dict[str, AcceptedEvent], init=False)
    _left: deque[StoredEvent] = attrs.field(factory=deque[StoredEvent], init=False)
    _parsed: tuple[bytes, Mapping[str, Event]] = attrs.field(default=(b"", {}), init=False)

    def __attrs_post_init__(self) -> None:
        ack = self.settings.ack
        self.queue = KeyedQueue(self._handle, measure=attrgetter("size"), maxsize=ack.maxsize, max_bytes=ack.max_bytes)

    @property
    def claimed_elsewhere(self) -> int:
        """The number of events that wait until another receiver has handled or released them, or its lease ends."""
        return len(self._left)

    async def accept(
        self, events: Sequence[Event], context: DeliveryContext, settled: asyncio.Event
    ) -> Sequence[AcceptedEvent] | RejectReason:
        """Accept the events of a delivery, each once; return those that are not handled yet, or why none is accepted.

        Those that were accepted before and are not finished are among them: a repeated delivery can wait for them.
        Deliveries of the same users are accepted in the order of these calls, each when the one before is `settled`.
        """
        task = find_task()
        try:
            return await self._claim_and_queue(events, context, settled)
        except Rejected as rejected:
            return rejected.reason
        except StoreFailed as failed:
            await self.dispatcher.report(None, failed.error, failed.source)
        except BaseException as error:  # `order_by` may raise anything
            if not is_failure(error, task):
                raise
            await self.dispatcher.report(None, error)
        return RejectReason.ACCEPT_FAILED

    async def restore(self) -> int:
        """Accept the events that an earlier receiver left in the inbox; return how many need not be looked at again.

        Those that another receiver has claimed stay, for the next call: it may have ended, and its lease not yet. If a
        store fails, the next call continues with the same event.
        """
        inbox = self.settings.ack.inbox
        if inbox is not None and not self._left:
            self._left.extend(await inbox.load())
        count = 0
        for _ in range(len(self._left)):
            if await self._restore(self._left[0]):
                self._left.popleft()
                count += 1
            else:
                self._left.rotate(-1)
        self._parsed = b"", {}
        return count

    async def _restore(self, stored: StoredEvent) -> bool:
        """Accept an event, unless it is claimed or was handled; return whether no other receiver has claimed it."""
        claim = await self.settings.dedupe.claim(stored.key)
        if claim is Claim.HANDLED:
            await self.dispatcher.remove(stored.key)  # it was committed and not removed yet
        if claim is not Claim.TAKEN:
            return claim is not Claim.ELSEWHERE
        if stored.body is not self._parsed[0]:  # the events of a delivery share its body
            self._parsed = stored.body, {event.key: event for event in self.settings.parser.parse(stored.body)}
        events = self._parsed[1]
        self.counters.restored += 1
        key = parse_event_key(stored.key)
        # An earlier version may have given an event another key.
        event = events.get(key) or UnknownEvent(key=key, event_type="unknown", raw={}, problem="not found")
        accepted = AcceptedEvent(
            key=stored.key,
            event=event,
            context=DeliveryContext(
                key_id=stored.key_id,
                received_at=stored.received_at,
                body=stored.body,
                restored=True,
                attempts=stored.attempts + 1,
            ),
            order_key=self.settings.order_by(event),
            size=estimate_memory(stored.body) // max(1, len(events)),
            is_counted=False,
        )
        self.restored_again += 1 < accepted.attempts <= self.settings.ack.max_attempts
        self._put(accepted)
        return True

    async def _claim_and_queue(
        self, events: Sequence[Event], context: DeliveryContext, settled: asyncio.Event
    ) -> Sequence[AcceptedEvent]:
        app = self.apps[context.key_id]
        by_key = {build_event_key(app, event.key): event for event in events}
        order_keys = {key: self.settings.order_by(event) for key, event in by_key.items()}
        # First the order of arrival: whoever waits for it holds no lock that an earlier delivery may need.
        # A repeated delivery waits: it must not be acknowledged because of one that is rejected afterwards.
        async with (
            self._arrivals.hold({each for each in order_keys.values() if each is not None}, settled),
            self._lock.hold(by_key),
            self._release_on_error() as claimed,
        ):
            running: list[AcceptedEvent] = []
            for key, event in by_key.items():
                unfinished = self._unfinished.get(key)  # before the claim: it may finish meanwhile
                with name_failure("dedupe.claim"):
                    claim = await self.settings.dedupe.claim(key)
                if claim is Claim.ELSEWHERE:  # whoever has it may end before it is handled
                    raise Rejected(RejectReason.CLAIMED_ELSEWHERE)
                if claim is Claim.TAKEN:
                    claimed[key] = event
                elif unfinished is not None:
                    running.append(unfinished)
            size = estimate_memory(context.body) // max(1, len(events))
            received_in = copy_context() if self.counters.subscribers.functions else None
            accepted = [
                AcceptedEvent(
                    key=key,
                    event=event,
                    context=context,
                    order_key=order_keys[key],
                    size=size,
                    received_in=received_in,
                )
                for key, event in claimed.items()
            ]
            await self._store_and_put(accepted)
        self.counters.duplicates += len(events) - len(accepted)
        if accepted:
            self.counters.last_event = context.received_at
        return [*running, *accepted]

    async def _handle(self, accepted: AcceptedEvent) -> None:
        task = find_task()
        try:
            await self.dispatcher.handle(accepted)
        except BaseException as error:
            if not is_end(error, task):  # it ends the process or the receiver, which then takes no attempt back
                accepted.is_counted = False
            raise
        finally:
            if self._unfinished.get(accepted.key) is accepted:  # else it failed, and a repeated one was accepted
                del self._unfinished[accepted.key]

    @asynccontextmanager
    async def _release_on_error(self) -> AsyncGenerator[dict[str, Event]]:
        claimed: dict[str, Event] = {}
        try:
            yield claimed
        except BaseException:
            for key, event in claimed.items():
                await self.dispatcher.release(key, event)
            raise

    async def _store_and_put(self, accepted: Sequence[AcceptedEvent]) -> None:
        with self.queue.reserve(accepted) as has_room:
            if not has_room:
                raise Rejected(RejectReason.QUEUE_FULL)
            if (inbox := self.settings.ack.inbox) is not None and accepted:
                context = accepted[0].context
                rows = [
                    StoredEvent(key=each.key, body=context.body, key_id=context.key_id, received_at=context.received_at)
                    for each in accepted
                ]
                with name_failure("inbox.store"):
                    stored = await inbox.store(rows) or {}
                for each in accepted:
                    if each.key in stored:  # it keeps its count, such as a dead letter that is delivered again
                        each.expect_attempt(stored[each.key] + 1)
                        each.is_counted = False
        for each in accepted:
            self._put(each)

    def _put(self, accepted: AcceptedEvent) -> None:
        self._unfinished[accepted.key] = accepted
        waits = accepted.may_kill and accepted.attempts <= self.settings.ack.max_attempts
        self.queue.put(accepted, accepted.order_key, rank=accepted.attempts if waits else 0)


_NOT_FINISHED = (
    "its handlers have not finished within the deadline of ack, and if one fails, the event is not delivered again; "
    "make the handlers faster, or have it delivered again with Ack.inline(on_deadline='refuse')"
)


@attrs.frozen
class RejectionLog:
    """Logs the first request that is rejected for a reason, and at most once a minute how many more there were.

    Deliveries that are acknowledged before their handlers finish are logged in the same way.
    """

    _lines: DueLines

    def add(self, reason: RejectReason, *, has_failed: bool) -> None:
        """Count a rejected request, and log it if a line is due.

        Args:
            reason: why it is rejected.
            has_failed: whether an unexpected exception has ended the receiver.
        """
        is_failure = has_failed and reason is RejectReason.NOT_RUNNING
        advice = ADVICE_AFTER_FAILURE if is_failure else ADVICE[reason]
        self._add("rejected", "a request", f"{reason.value}: {advice.cause}; {advice.next_step}")

    def add_unfinished(self) -> None:
        """Count a delivery that is acknowledged before its handlers finish, and log it if a line is due."""
        self._add("acknowledged", "a delivery", _NOT_FINISHED)

    def _add(self, outcome: str, subject: str, reason: str) -> None:
        count = self._lines.count(reason)
        if count is not None:
            _log.warning("%s %s: %s", outcome, f"{count:,} more" if count else subject, reason)


T = TypeVar("T")
_Acceptance = asyncio.Task[Sequence[AcceptedEvent] | RejectReason]
"""Accepts a delivery; a caller that is cancelled does not abandon it half-way."""

_log = logging.getLogger("svc_async.webhooks")
_LOOK_AGAIN_IN = 15.0
"""Seconds until events are looked at again that another receiver has claimed."""
_CLAIMED = (
    "the inbox has events that another receiver has claimed (%d); they are handled when it has released them, or when "
    "its lease has ended"
)
_AGAIN = (
    "handling the events (%d) of a process that ended without closing, or that a store could not record; handlers that "
    "had begun are called again"
)
_NOT_RECORDED = (
    "closed with handled events that a store could not record: %d; they are handled again at the next start, or if "
    "they are delivered again"
)
_NOT_HANDLED = "closed with events not handled: %d"
_FAILED = "the receiver has ended because of an unexpected exception: %s; it accepts nothing until it is started again"
_STARTS_WITHIN = 1.0
"""Seconds that what was restored waits until the start of the application is complete, unless a delivery comes."""
_WAITS_FOR_OTHERS = 60.0
"""Seconds that an event which may kill the process waits for the handlers of the others."""
_IN_USE: "WeakKeyDictionary[SqliteInbox | SqliteDedupe, asyncio.AbstractEventLoop]" = WeakKeyDictionary()
"""The stores that a running receiver has open, and its event loop."""


@attrs.define(kw_only=True, eq=False)
class Run:
    """Accepts deliveries and runs workers from `start` to `close`, in the event loop in which it was created."""

    settings: ReceiverSettings
    acceptor: Acceptor
    rejections: RejectionLog
    failure: BaseException | None = attrs.field(default=None, init=False)
    """The exception by which one of its tasks ended, and so all of them; None if none did."""
    _loop: asyncio.AbstractEventLoop = attrs.field(factory=asyncio.get_running_loop, init=False)
    _accepting: set[_Acceptance] = attrs.field(factory=set[_Acceptance], init=False)
    _tasks: asyncio.TaskGroup | None = attrs.field(default=None, init=False)
    _main_task: asyncio.Task[None] | None = attrs.field(default=None, init=False)
    _may_work: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)
    _background: Sequence[asyncio.Task[None]] = attrs.field(default=(), init=False)

    @property
    def _closing(self) -> asyncio.Event:
        return self.acceptor.dispatcher.closing

    @property
    def is_accepting(self) -> bool:
        """Whether deliveries are accepted."""
        is_ending = self._closing.is_set() or self.failure is not None
        return self._tasks is not None and not is_ending and not self._loop.is_closed()

    @property
    def has_ended(self) -> bool:
        """Whether the run was closed, or its event loop was."""
        return self._loop.is_closed() or (self._main_task is not None and self._main_task.done())

    async def start(self) -> None:
        """Open the stores, accept what the inbox still holds, and start the workers; undo all of it on an error."""
        started = self._loop.create_future()
        task = self._main_task = self._loop.create_task(self._serve(started), name="svc-async webhook receiver")
        task.add_done_callback(_retrieve)
        try:
            await asyncio.wait({task, started}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not started.done():
                await _cancel(task)
        if task.done():
            task.result()

    async def close(self) -> None:
        """Reject new deliveries, finish accepted events within the drain deadline, and stop.

        Within a handler or a callback it only begins to, since it would wait for itself.

        Raises:
            BaseException: whatever has ended a task of this run.
        """
        if self.has_ended:
            await self.abandon()
        else:
            self.check_loop()
            self._closing.set()
            if self._main_task is None or self._is_within():
                return
            try:
                await asyncio.wait({self._main_task})
            finally:
                await _cancel(self._main_task)  # if this caller is cancelled; else it has ended
            if self.failure is None and not self._main_task.cancelled():  # else by somebody else who waited for it
                self._main_task.result()
        if self.failure is not None:
            raise self.failure

    async def accept(self, events: Sequence[Event], context: DeliveryContext) -> RejectReason | None:
        """Accept the events of a delivery, or return why they are not accepted within the deadline of `ack`."""
        if self._tasks is None or not self.is_accepting:
            return RejectReason.NOT_RUNNING
        self.check_loop()
        self._may_work.set()
        settled = asyncio.Event()
        task = self._tasks.create_task(self._watch(partial(self.acceptor.accept, events, context, settled)))
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)
        try:
            async with self.settings.clock.timeout(self.settings.ack.deadline):
                await asyncio.wait({task})  # which does not cancel the task if the caller is cancelled
                return await self._wait_for_handlers(task)
        except TimeoutError:
            if not task.done() or self.settings.ack.on_deadline == "refuse":
                return RejectReason.TOO_LATE
            self.rejections.add_unfinished()
            return None
        finally:
            settled.set()  # it is answered: later deliveries of the same users wait for it no longer

    async def wait_until_idle(self, deadline: float) -> None:
        """Wait until all events that were accepted, also meanwhile, are handled or given up.

        Raises:
            NotHandled: some are left at the deadline, in seconds of the event loop.
            WrongState: the caller is a task of this run, which would wait for itself, or runs in another event loop; or
                an exception has ended this run.
        """
        if self.has_ended and self.failure is None:
            return
        self.check_loop()
        if self._is_within():
            raise WrongState("a handler cannot wait until its receiver is idle: its own event is not handled before")
        self._may_work.set()
        try:
            async with asyncio.timeout(deadline):  # a clock of tests may stand still while a handler hangs
                while self._accepting or len(self.acceptor.queue):
                    left: Sequence[asyncio.Future[Any]] = [each.done for each in self.acceptor.queue.unfinished]
                    await asyncio.wait([*self._accepting, *left])
        except TimeoutError:
            raise NotHandled(f"the receiver is not idle after {deadline:g} s; {self._describe_unfinished()}") from None
        if self.failure is not None:
            raise WrongState("the receiver has ended because of an unexpected exception") from self.failure

    async def abandon(self) -> None:
        """Abandon the events that are not finished."""
        self._tasks = None
        unfinished = self.acceptor.queue.clear()
        await self.acceptor.dispatcher.end_attempts(unfinished)
        for accepted in unfinished:
            await self.acceptor.dispatcher.abandon(accepted)

    def check_loop(self) -> None:
        """Make sure that the caller runs in the event loop of this run.

        Raises:
            WrongState: it runs in another.
        """
        if asyncio.get_running_loop() is not self._loop:
            raise WrongState("the receiver runs in another event loop, where it was entered")

    def measure_queue(self) -> tuple[int, float]:
        """Return how many accepted events are not handled, and for how many seconds the oldest is not."""
        oldest = self.acceptor.queue.oldest
        lag = (self.settings.clock.now() - oldest.context.received_at).total_seconds() if oldest else 0.0
        return len(self.acceptor.queue) + self.acceptor.claimed_elsewhere, lag

    async def _wait_for_handlers(self, task: _Acceptance) -> RejectReason | None:
        unfinished = RejectReason.NOT_RUNNING if task.cancelled() else task.result()
        if isinstance(unfinished, RejectReason):
            return unfinished
        if not self.settings.ack.waits or not unfinished:
            return None
        await asyncio.wait([each.handled for each in unfinished])
        return None if all(each.handled.result() for each in unfinished) else RejectReason.HANDLER_FAILED

    def _is_within(self) -> bool:
        """Return whether the caller is a task of this run, as handlers and callbacks are."""
        return asyncio.current_task() in {self._main_task, *self._background, *self._accepting}

    async def _serve(self, started: "asyncio.Future[None]") -> None:
        stores: Sequence[object] = (self.settings.dedupe, self.settings.ack.inbox)
        async with AsyncExitStack() as stack:
            for store in {id(each): each for each in stores}.values():  # one object may be both
                if isinstance(store, SqliteInbox | SqliteDedupe):
                    other = _IN_USE.get(store)  # the locks of the files tell only objects apart
                    if other is not None and not other.is_closed():
                        problem = f"the {type(store).__name__} is used by another receiver"
                        raise WrongState(f"{problem}; give each receiver one of its own")
                    _IN_USE[store] = self._loop
                    stack.callback(_IN_USE.pop, store, None)
                if isinstance(store, AbstractAsyncContextManager):
                    await store.__aenter__()
                    stack.push_async_exit(partial(self._leave, store))
            stack.push_async_callback(self.abandon)
            await self._restore()
            queue = self.acceptor.queue
            restored = len(queue) > 0
            async with asyncio.TaskGroup() as tasks:
                alone = partial(queue.work_alone, partial(self.settings.clock.timeout, _WAITS_FOR_OTHERS))
                work: Sequence[Callable[[], Awaitable[None]]] = [*repeat(queue.work, self.settings.workers), alone]
                workers = [tasks.create_task(self._watch(partial(self._work, each))) for each in work]
                taking_over = tasks.create_task(self._watch(self._take_over))
                self._background = (*workers, taking_over)
                self._tasks = tasks
                # A handler that ends the process does so after the start of the application, not at every start.
                timer = self.settings.clock.call_later(_STARTS_WITHIN if restored else 0, self._may_work.set)
                started.set_result(None)
                await self._closing.wait()
                timer.cancel()
                taking_over.cancel()
                self._may_work.set()
                await self._drain()
                for task in (*workers, *self._accepting):
                    task.cancel()

    async def _watch(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work of a task, and note the first exception by which one ends: it ends all of them."""
        task = find_task()
        try:
            return await work()
        except BaseException as error:
            if self.failure is None and is_failure(error, task):
                self.failure = error
                _log.error(_FAILED, describe_error(error))
            raise

    async def _work(self, work: Callable[[], Awaitable[None]]) -> None:
        await self._may_work.wait()
        await work()

    async def _leave(self, store: AbstractAsyncContextManager[object], *details: Any) -> None:
        """Close a store, unless the event loop was closed before: it may have been entered again in another one."""
        if not self._loop.is_closed():
            await store.__aexit__(*details)

    async def _restore(self) -> None:
        """Accept what the inbox still holds, as far as there is room in the queue."""
        before = self.acceptor.restored_again
        while self.acceptor.queue.is_half_empty and await self.acceptor.restore():
            if self._load_interval is None:
                break  # it has returned all of its events
        if found := self.acceptor.restored_again - before:
            _log.warning(_AGAIN, found)

    async def _take_over(self) -> None:
        """Accept the rest, and what other receivers left, whenever there is room in the queue."""
        if claimed := self.acceptor.claimed_elsewhere:
            _log.warning(_CLAIMED, claimed)
        task = find_task()
        while interval := self._choose_interval():
            await self.settings.clock.sleep(interval)
            try:
                await self._restore()
            except BaseException as error:  # a store may raise anything
                if not is_failure(error, task):
                    raise
                await self.acceptor.dispatcher.report(None, error, "inbox.load or dedupe.claim")

    @property
    def _load_interval(self) -> float | None:
        inbox = self.settings.ack.inbox
        return None if inbox is None else inbox.load_interval

    def _choose_interval(self) -> float | None:
        """Return in how many seconds the inbox is looked at again; None for never."""
        interval = self._load_interval
        if self.acceptor.claimed_elsewhere:
            return min(interval or _LOOK_AGAIN_IN, _LOOK_AGAIN_IN)
        return interval

    async def _drain(self) -> None:
        deadline = self.settings.drain_deadline
        if not deadline:
            return
        try:
            # By the event loop as well: a clock of tests may stand still while a handler hangs.
            async with self.settings.clock.timeout(deadline), asyncio.timeout(deadline):
                if self._accepting:
                    await asyncio.wait(self._accepting)
                await self.acceptor.queue.join()
        except TimeoutError:
            not_handled, not_recorded = self._count_unfinished()
            if not_handled:
                _log.warning(_NOT_HANDLED, not_handled)
            if not_recorded:
                _log.warning(_NOT_RECORDED, not_recorded)
            await self.acceptor.dispatcher.report_unfinished(deadline)

    def _count_unfinished(self) -> tuple[int, int]:
        """Return how many accepted events are not handled, and of how many only that is not recorded."""
        unfinished = self.acceptor.queue.unfinished
        not_recorded = sum(each.result is not None for each in unfinished)
        return len(unfinished) - not_recorded, not_recorded

    def _describe_unfinished(self) -> str:
        not_handled, not_recorded = self._count_unfinished()
        counts = f"events not handled: {not_handled}, deliveries not accepted: {len(self._accepting)}"
        recording = [f"events that a store has not recorded as handled: {not_recorded}"] if not_recorded else []
        handlers = self.acceptor.dispatcher.name_unfinished()
        return join_first([counts, *recording, *(f"the handler {each} has not returned" for each in handlers)])


def _retrieve(task: asyncio.Task[None]) -> None:
    """Keep the event loop from logging an exception of a task with its message, which may tell more than it should."""
    if not task.cancelled():
        task.exception()


async def _cancel(task: asyncio.Task[None]) -> None:
    """Cancel a task if it still runs, and wait until it has ended."""
    task.cancel()
    await asyncio.wait({task})
