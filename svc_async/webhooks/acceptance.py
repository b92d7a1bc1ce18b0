"""Accepts the events of a delivery: claims, stores and queues all of them, or none."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from operator import attrgetter

import attrs

from svc_async.events.models import Event, UnknownEvent
from svc_async.events.parser import estimate_memory
from svc_async.webhooks.delivery import AcceptedEvent, DeliveryContext
from svc_async.webhooks.dispatch import Dispatcher, StoreFailed, find_task, is_end, is_failure, name_failure
from svc_async.webhooks.keyed_queue import Arrivals, KeyedLock, KeyedQueue, build_event_key, parse_event_key
from svc_async.webhooks.settings import ReceiverSettings
from svc_async.webhooks.stats import Counters
from svc_async.webhooks.stores.dedupe import Claim
from svc_async.webhooks.stores.inbox import Inbox, StoredEvent
from svc_async.webhooks.verification import Rejected, RejectReason

__all__ = ["Acceptor"]


@attrs.define(kw_only=True)
class Acceptor:
    """Accepts deliveries that were verified, within one event loop.

    Attributes:
        apps: the app of each signing key by its id; see `event_keys`.
    """

    settings: ReceiverSettings
    dispatcher: Dispatcher
    apps: Mapping[str, str]
    counters: Counters
    queue: KeyedQueue[AcceptedEvent] = attrs.field(init=False)
    restored_again: int = attrs.field(default=0, init=False)
    """How many events were restored of which a receiver that died may have begun the handling."""
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
        """How many events of the inbox wait until another receiver has handled or released them, or its lease ends."""
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
        context = DeliveryContext(key_id=stored.key_id, received_at=stored.received_at, body=stored.body, restored=True)
        self.counters.restored += 1
        size = estimate_memory(stored.body) // max(1, len(events))
        event = _find_event(stored, events)
        accepted = self._prepare(stored.key, event, context, self.settings.order_by(event), size=size)
        accepted.expect_attempt(stored.attempts + 1)
        accepted.is_counted = False
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
                self._prepare(key, event, context, order_keys[key], size=size, received_in=received_in)
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
                await self._store(inbox, accepted)
        for each in accepted:
            self._put(each)

    async def _store(self, inbox: Inbox, accepted: Sequence[AcceptedEvent]) -> None:
        """Store events; what is stored already keeps its count, such as a dead letter that is delivered again."""
        with name_failure("inbox.store"):
            stored = await inbox.store([_to_stored(each) for each in accepted]) or {}
        for each in accepted:
            if each.key in stored:
                each.expect_attempt(stored[each.key] + 1)
                each.is_counted = False

    def _put(self, accepted: AcceptedEvent) -> None:
        self._unfinished[accepted.key] = accepted
        waits = accepted.may_kill and accepted.attempts <= self.settings.ack.max_attempts
        self.queue.put(accepted, accepted.order_key, rank=accepted.attempts if waits else 0)

    def _prepare(
        self,
        key: str,
        event: Event,
        context: DeliveryContext,
        order_key: str | None,
        *,
        size: int,
        received_in: Context | None = None,
    ) -> AcceptedEvent:
        loop = asyncio.get_running_loop()
        return AcceptedEvent(
            key=key,
            event=event,
            context=context,
            order_key=order_key,
            size=size,
            handled=loop.create_future(),
            done=loop.create_future(),
            received_in=received_in,
        )


def _to_stored(accepted: AcceptedEvent) -> StoredEvent:
    context = accepted.context
    return StoredEvent(key=accepted.key, body=context.body, key_id=context.key_id, received_at=context.received_at)


def _find_event(stored: StoredEvent, events: Mapping[str, Event]) -> Event:
    key = parse_event_key(stored.key)
    # An earlier version may have given an event another key.
    return events.get(key) or UnknownEvent(key=key, event_type="unknown", raw={}, problem="not found")
