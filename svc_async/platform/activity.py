"""Activity of users, delivered to webhooks and streams that subscribe to it."""

from collections.abc import Callable
from typing import Any

import attrs

from svc_async.engine.paging import Pager
from svc_async.engine.pipeline import Pipeline
from svc_async.events.models import EventDirection, EventFilter, EventType
from svc_async.streams.ingest import Overflow
from svc_async.streams.reconnect_policy import Reconnects
from svc_async.streams.recovery import Gap
from svc_async.streams.states import Checkpoint, MalformedLine, StateChange
from svc_async.streams.stream import QUEUE_BYTES, EventStream, Recover, StreamSettings
from svc_async.wire.checks import any_of, between, length, not_empty, one_of, related, required, satisfies, text
from svc_async.wire.params import find_wrong_text, first_problem
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


# Unspecified: the fields of a subscription, and their places (contract UNS-activity-bodies).
@attrs.frozen(kw_only=True)
class Subscription(Record):
    """A subscription to events of one type.

    Attributes:
        webhook_id: the webhook its events are delivered to; without one they are sent to open streams only.
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
    """A subscription that was deleted.

    Attributes:
        deleted: whether it was; None if the service says it in a form that cannot be read.
    """

    deleted: bool | None = True


_ALL = "/2/activity/subscriptions"
_ONE = "/2/activity/subscriptions/{subscription_id}"

_TAG = length("tag", 200, least=1)
_WEBHOOK_ID = text("webhook_id")
# Unspecified: that the record may be in `data.subscription` (contract UNS-activity-bodies).
_WRAPPER = "subscription"
_CREATE = Route("POST", _ALL, Subscription, surface=Surface.BASE, json=True, wrapper=_WRAPPER)
_CREATE_CHECKS = (
    find_wrong_text,
    text("user_id"),
    not_empty("event_type", "user_id", "keyword"),
    required("event_type"),
    satisfies(
        "event_type",
        lambda value: not str(value)[:1].isupper(),
        "must be a dot-separated name such as post.create; the PascalCase names ended on 2026-03-18",
        rule_ids=("EV-02",),
    ),
    any_of("user_id", "keyword"),
    one_of("direction", *(each.value for each in EventDirection)),
    related(
        ("direction", "event_type"),
        lambda _, event_type: str(event_type).startswith(("dm.", "chat.")),
        "must go with direct-message and chat events only",
        rule_ids=("ACT-03",),
    ),
    _TAG,
    _WEBHOOK_ID,
)
_LIST = Listing(
    _ALL, Subscription, surface=Surface.BASE, reply=Reply.META_PAGE, checks=(between("max_results", 1, 1000),)
)
_UPDATE = Route(
    "PUT",
    _ONE,
    Subscription,
    surface=Surface.BASE,
    json=True,
    wrapper=_WRAPPER,
    checks=(any_of("tag", "webhook_id"), _TAG, _WEBHOOK_ID),
)
_DELETE = Route("DELETE", _ONE, DeletedSubscription, surface=Surface.BASE)


@attrs.frozen(eq=False)
class Subscriptions:
    """The subscriptions of the app."""

    _pipeline: Pipeline = attrs.field(repr=False)

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
            event_type: the type of the events.
            user_id: only events of this user.
            keyword: only events that contain this word.
            direction: for direct-message and chat events; both by default.
            tag: a label of your own, 1 to 200 characters, that events carry.
            webhook_id: the webhook that events are delivered to; without one they are sent to open streams only.

        Contract: ACT-01, ACT-02, ACT-03, `activity_subscriptions.create`.
        """
        conditions = {"user_id": user_id, "keyword": keyword, "direction": direction}
        chosen = {name: value for name, value in conditions.items() if value is not None}
        request = _CREATE(event_type=event_type, filter=chosen, tag=tag, webhook_id=webhook_id)
        given = {"event_type": event_type, "tag": tag, "webhook_id": webhook_id, **conditions}
        problem = first_problem(_CREATE_CHECKS, given)
        return await self._pipeline.send(request.with_problem(problem))

    def list(self, *, max_results: int | None = None) -> Pager[Subscription]:
        """List the subscriptions.

        Args:
            max_results: subscriptions per page, 1 to 1,000.
        """
        return Pager(self._pipeline, _LIST(max_results=max_results))

    async def update(
        self, subscription_id: str, *, tag: str | None = None, webhook_id: str | None = None
    ) -> Subscription:
        """Change the tag or the webhook of a subscription; its filter cannot be changed.

        Args:
            subscription_id: the subscription.
            tag: as in `create`.
            webhook_id: as in `create`.
        """
        return await self._pipeline.send(_UPDATE(subscription_id=subscription_id, tag=tag, webhook_id=webhook_id))

    async def delete(self, subscription_id: str) -> DeletedSubscription:
        """Delete a subscription; its events are no longer delivered."""
        return await self._pipeline.send(_DELETE(subscription_id=subscription_id))


_STREAM: Route[Any] = Route("GET", "/2/activity/stream", None, surface=Surface.BASE, reply=Reply.BODY)
_MAX_CONNECTIONS = 2  # Unspecified: how many may be open at once (contract UNS-stream-protocol).


@attrs.frozen(eq=False)
class Activity:
    """The activity of users."""

    _pipeline: Pipeline = attrs.field(repr=False)

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
        queue_bytes: int = QUEUE_BYTES,
        overflow: Overflow = "block",
        stall_timeout: float = 25.0,
        max_line_bytes: int = 8 * 2**20,
        reconnects: Reconnects | None = None,
        on_state: Callable[[StateChange], object] | None = None,
        on_gap: Callable[[Gap], object] | None = None,
        on_malformed: Callable[[MalformedLine], object] | None = None,
    ) -> EventStream:
        """Stream the events of the app's subscriptions, across dropped, stalled and refused connections.

        Use it as an async context manager and iterate it inside; nothing is sent before it is entered.

        Args:
            recover: `auto` requests the events that were missed while no connection was open; a service that refuses
                this is asked only once, and `on_gap` is called.
            since: the `checkpoint` of an earlier stream to resume from.
            dedupe: suppress events that arrived before, among the last 100,000.
            queue_size: the maximum number of events that wait to be taken.
            queue_bytes: the maximum of the memory that they take, estimated from their lines; by default 64 MiB. A
                larger event waits alone.
            overflow: what happens to an event that arrives while the queue is full: `block` stops reading,
                `drop_oldest` discards the oldest event and counts it, `error` ends the stream.
            stall_timeout: seconds without data after which a connection is considered dead; heartbeats come every 20.
            max_line_bytes: the longest line that is read; a longer one goes to `on_malformed`.
            reconnects: when the stream reconnects.
            on_state: called on every state change, with its reason.
            on_gap: called for every period without a connection, with how the missed events were recovered.
            on_malformed: called with every line that is not an event; by default such lines are logged.

        Raises:
            InvalidArgument: a setting is invalid.

        Contract: STR-01, STR-02, `activity_stream.connect`.
        """
        settings = StreamSettings(
            recover=recover,
            since=since,
            dedupe=dedupe,
            queue_size=queue_size,
            queue_bytes=queue_bytes,
            overflow=overflow,
            stall_timeout=stall_timeout,
            max_line_bytes=max_line_bytes,
            reconnects=reconnects or Reconnects(),
            on_state=on_state,
            on_gap=on_gap,
            on_malformed=on_malformed,
        )
        return EventStream.from_route(self._pipeline, _STREAM, max_connections=_MAX_CONNECTIONS, settings=settings)
