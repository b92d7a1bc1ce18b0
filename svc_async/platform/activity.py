"""Activity: what users do, told to webhooks and streams that subscribe to it."""

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from svc_async.engine.paging import Pager
from svc_async.engine.pipeline import Pipeline
from svc_async.events.models import EventDirection, EventFilter, EventType
from svc_async.streams.buffer import Overflow
from svc_async.streams.reconnect_policy import Reconnects
from svc_async.streams.recovery import Gap
from svc_async.streams.states import Checkpoint, MalformedLine, StateChange
from svc_async.streams.stream import EventStream, Recover, StreamSettings
from svc_async.wire.checks import any_of, between, first_problem, length, not_empty, one_of, related, satisfies
from svc_async.wire.records import Record, Timestamp
from svc_async.wire.route import Listing, Reply, Route, Surface

__all__ = [
    "Activity",
    "DeletedSubscription",
    "EventDirection",
    "EventFilter",
    "EventType",
    "Subscription",
    "Subscriptions",
]


# Unspecified: the fields of a subscription, and where they stand (contract UNS-activity-bodies).
@attrs.frozen(kw_only=True)
class Subscription(Record):
    """A subscription to events of one type.

    Attributes:
        webhook_id: where its events are delivered; without one they reach open streams only.
    """

    subscription_id: str
    event_type: EventType
    filter: EventFilter = attrs.field(factory=EventFilter)
    tag: str | None = None
    webhook_id: str | None = None
    created_at: Timestamp | None = None
    updated_at: Timestamp | None = None


@attrs.frozen(kw_only=True)
class DeletedSubscription(Record):
    """A subscription that is no more."""

    deleted: bool = True


_ALL = "/2/activity/subscriptions"
_ONE = "/2/activity/subscriptions/{subscription_id}"

_TAG = length("tag", 200, least=1)
_CREATE = Route("POST", _ALL, Subscription, surface=Surface.BASE, json=True)
_CREATE_CHECKS = (
    not_empty("event_type", "user_id", "keyword"),
    satisfies(
        "event_type",
        lambda value: not str(value)[:1].isupper(),
        "must be a dot-separated name such as post.create; the PascalCase names ended on 2026-03-18 (contract EV-02)",
    ),
    any_of("user_id", "keyword"),
    one_of("direction", *(each.value for each in EventDirection)),
    related(
        ("direction", "event_type"),
        lambda _, event_type: str(event_type).startswith(("dm.", "chat.")),
        "must go with direct-message and chat events only (contract ACT-03)",
    ),
    _TAG,
)
_LIST = Listing(
    _ALL, Subscription, surface=Surface.BASE, reply=Reply.META_PAGE, checks=(between("max_results", 1, 1000),)
)
_UPDATE = Route("PUT", _ONE, Subscription, surface=Surface.BASE, json=True, checks=(any_of("tag", "webhook_id"), _TAG))
_DELETE = Route("DELETE", _ONE, DeletedSubscription, surface=Surface.BASE)


@attrs.frozen
class Subscriptions:
    """The subscriptions of the app."""

    _pipeline: Pipeline

    async def create(
        self,
        *,
        event_type: EventType | str,
        user_id: str | None = None,
        keyword: str | None = None,
        direction: EventDirection | str | None = None,
        tag: str | None = None,
        webhook_id: str | None = None,
    ) -> Subscription:
        """Subscribe to events of a type.

        Args:
            event_type: what happens.
            user_id: whose events.
            keyword: events that hold it.
            direction: for direct-message and chat events; both if left out.
            tag: a name of your own, 1 to 200 characters, that events come with.
            webhook_id: where events are delivered; without one they reach open streams only.

        Contract: ACT-01, ACT-02, ACT-03, `activity_subscriptions.create`.
        """
        wanted = {"user_id": user_id, "keyword": keyword, "direction": direction}
        request = _CREATE(event_type=event_type, filter=_given(wanted), tag=tag, webhook_id=webhook_id)
        broken = first_problem(_CREATE_CHECKS, {"event_type": event_type, "tag": tag, **wanted})
        return await self._pipeline.send(request.with_problem(broken))

    def list(self, *, max_results: int | None = None) -> Pager[Subscription]:
        """List them.

        Args:
            max_results: subscriptions a page, 1 to 1,000.
        """
        return Pager(self._pipeline, _LIST(max_results=max_results))

    async def update(
        self, subscription_id: str, *, tag: str | None = None, webhook_id: str | None = None
    ) -> Subscription:
        """Change the tag or the webhook of a subscription; what it filters by stays.

        Args:
            subscription_id: the subscription.
            tag: as in `create`.
            webhook_id: as in `create`.
        """
        return await self._pipeline.send(_UPDATE(subscription_id=subscription_id, tag=tag, webhook_id=webhook_id))

    async def delete(self, subscription_id: str) -> DeletedSubscription:
        """Delete a subscription; its events are told no more."""
        return await self._pipeline.send(_DELETE(subscription_id=subscription_id))


_STREAM: Route[Any] = Route("GET", "/2/activity/stream", None, surface=Surface.BASE, reply=Reply.BODY)
_MAX_CONNECTIONS = 2  # Unspecified: how many may be open at once (contract UNS-stream-protocol).


@attrs.frozen
class Activity:
    """What users do."""

    _pipeline: Pipeline

    @property
    def subscriptions(self) -> Subscriptions:
        """The subscriptions of the app."""
        return Subscriptions(self._pipeline)

    def stream(
        self,
        *,
        recover: Recover = "auto",
        since: Checkpoint | None = None,
        dedupe: bool = True,
        queue_size: int = 10_000,
        overflow: Overflow = "block",
        stall_timeout: float = 25.0,
        max_line_bytes: int = 8 * 2**20,
        reconnects: Reconnects | None = None,
        on_state: Callable[[StateChange], object] | None = None,
        on_gap: Callable[[Gap], object] | None = None,
        on_malformed: Callable[[MalformedLine], object] | None = None,
    ) -> EventStream:
        """Follow the events of the app's subscriptions as they happen, through drops, stalls and refusals.

        Use it as an async context manager and iterate it inside; nothing is sent before it is entered.

        Args:
            recover: `auto` asks the service for what was missed while no connection was open; a service that refuses
                that is asked once, and `on_gap` is told.
            since: where an earlier stream was left: its `checkpoint`.
            dedupe: hide events that came before, as far as the last 100,000 events reach.
            queue_size: events that may wait to be taken.
            overflow: what becomes of an event that finds the queue full: `block` stops reading, `drop_oldest` lets
                the oldest one go and counts it, `error` ends the stream.
            stall_timeout: seconds of silence after which a connection counts as dead; heartbeats come every 20.
            max_line_bytes: the longest line that is read; a longer one goes to `on_malformed`.
            reconnects: how the stream comes back.
            on_state: told of every step of the stream's life, and why.
            on_gap: told of every time without a connection, and whether what was missed is made good.
            on_malformed: given every line that is no event; without it, the log is told.

        Raises:
            InvalidArgument: a setting makes no sense.

        Contract: STR-01, STR-02, `activity_stream.connect`.
        """
        settings = StreamSettings(
            recover=recover,
            since=since,
            dedupe=dedupe,
            queue_size=queue_size,
            overflow=overflow,
            stall_timeout=stall_timeout,
            max_line_bytes=max_line_bytes,
            reconnects=reconnects or Reconnects(),
            on_state=on_state,
            on_gap=on_gap,
            on_malformed=on_malformed,
        )
        return EventStream.from_route(self._pipeline, _STREAM, max_connections=_MAX_CONNECTIONS, settings=settings)


def _given(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
