"""How events are taken in: claimed, kept in the inbox, put into their lanes; all of a delivery, or nothing of it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

import attrs

from svc_async.events.models import Event, UnknownEvent
from svc_async.events.parser import EventParser
from svc_async.webhooks.dedupe import DedupeStore
from svc_async.webhooks.delivery import DeliveryContext, Job
from svc_async.webhooks.dispatch import Handling
from svc_async.webhooks.inbox import Inbox, Kept
from svc_async.webhooks.keyed_lock import Turns
from svc_async.webhooks.keyed_queue import Lanes
from svc_async.webhooks.stats import Tally
from svc_async.webhooks.verification import Reason, Refused

__all__ = ["Intake"]


@attrs.define(kw_only=True)
class Intake:
    """Takes in deliveries that were verified."""

    dedupe: DedupeStore
    inbox: Inbox | None
    handling: Handling
    order_by: Callable[[Event], str | None]
    maxsize: int
    tally: Tally
    lanes: Lanes[Job] = attrs.field(default=attrs.Factory(lambda self: self.new_lanes(), takes_self=True), init=False)
    _turns: Turns = attrs.field(factory=Turns, init=False)

    def new_lanes(self) -> Lanes[Job]:
        """Make empty lanes, for the loop that runs."""
        return Lanes[Job](self.handling.handle, maxsize=self.maxsize)

    def empty(self) -> Sequence[Job]:
        """Begin anew, and give what was not finished."""
        jobs, self.lanes = self.lanes.unfinished(), self.new_lanes()
        return jobs

    async def take(self, events: Sequence[Event], context: DeliveryContext) -> list[Job] | Reason:
        """Take in the events of a delivery, without those that were taken in before, or say why not."""
        try:
            return await self._claim_and_take(events, context)
        except Refused as refused:
            return refused.reason
        except Exception as error:  # noqa: BLE001 - a store may raise anything
            await self.handling.report(None, error)
            return Reason.ACCEPT_FAILED

    async def restore(self, parser: EventParser) -> None:
        """Take in what an earlier receiver left in the inbox."""
        for kept in await self.inbox.kept() if self.inbox else ():
            if not await self.dedupe.claim(kept.key):
                await self.handling.forget(kept.key)  # it was committed and not yet let go of
                continue
            context = DeliveryContext(key_id=kept.key_id, received_at=kept.received_at, body=kept.body, restored=True)
            self.tally.restored += 1
            self._put(self._job(_event_of(kept, parser), context))

    async def _claim_and_take(self, events: Sequence[Event], context: DeliveryContext) -> list[Job]:
        by_key = {event.key: event for event in events}
        # A repeated delivery waits: it must not be acknowledged for the sake of one that is then refused.
        async with self._turns.of(by_key), self._released_unless_taken() as claimed:
            for key, event in by_key.items():
                if await self.dedupe.claim(key):
                    claimed.append(event)
            jobs = [self._job(event, context) for event in claimed]
            await self._keep_and_put(jobs)
        self.tally.duplicates += len(events) - len(jobs)
        if jobs:
            self.tally.last_event = context.received_at
        return jobs

    @asynccontextmanager
    async def _released_unless_taken(self) -> AsyncGenerator[list[Event]]:
        claimed: list[Event] = []
        try:
            yield claimed
        except BaseException:
            for event in claimed:
                await self.handling.release(event)
            raise

    async def _keep_and_put(self, jobs: Sequence[Job]) -> None:
        if not self.lanes.reserve(len(jobs)):
            raise Refused(Reason.QUEUE_FULL)
        try:
            if self.inbox is not None and jobs:
                await self.inbox.keep([_kept(job) for job in jobs])
        finally:
            self.lanes.give_back(len(jobs))
        for job in jobs:
            self._put(job)

    def _put(self, job: Job) -> None:
        self.lanes.put(job, job.order)

    def _job(self, event: Event, context: DeliveryContext) -> Job:
        done = asyncio.get_running_loop().create_future()
        return Job(event=event, context=context, order=self.order_by(event), done=done)


def _kept(job: Job) -> Kept:
    context = job.context
    return Kept(key=job.event.key, body=context.body, key_id=context.key_id, received_at=context.received_at)


def _event_of(kept: Kept, parser: EventParser) -> Event:
    events = {event.key: event for event in parser.parse(kept.body)}
    # An earlier version may have named an event otherwise.
    return events.get(kept.key) or UnknownEvent(key=kept.key, event_type="unknown", raw={}, problem="not found")
