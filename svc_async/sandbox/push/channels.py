"""The channels on which an app receives events: webhooks, subscriptions, rules and streams.

What happens to a user is an event. The activity product wraps it in an envelope for every subscription that matches;
the filtered stream delivers every new post that a rule matches. Both are sent on the stream of the product and to
webhooks.
"""

import itertools
import random
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import attrs

from svc_async.sandbox.background import BackgroundTasks
from svc_async.sandbox.config import SandboxConfig
from svc_async.sandbox.push.crc_checks import CrcChecks, Webhook
from svc_async.sandbox.push.deliveries import Deliveries, Replays
from svc_async.sandbox.push.events import Event, EventFactory
from svc_async.sandbox.push.outbound import DeliveryTargets, Outbound, Signer
from svc_async.sandbox.push.rule_language import Post, Rule, contains
from svc_async.sandbox.push.streams import Hub
from svc_async.sandbox.state.grants import App, Grants
from svc_async.sandbox.state.store import Ids, Store, format_time

__all__ = ["NAMES_CHANGED", "AppChannels", "Channels", "Product", "StreamRule", "Subscription"]

Product = Literal["activity", "filtered"]

# Unspecified: the open streams that an app may have (ASM-57).
_CONNECTIONS: Mapping[Product, int] = {"activity": 2, "filtered": 1}
NAMES_CHANGED = datetime(2026, 3, 18, tzinfo=UTC)
"""The date from which events have dot-separated names only (EV-02, ASM-50)."""


@attrs.frozen(kw_only=True)
class Subscription:
    """A subscription of an app to one type of event.

    Attributes:
        number: its position in the order of creation.
        event_type: the dot-separated name.
        name: the name it was created with, which may be an older one.
        filter: `user_id`, `keyword` and `direction`, where they are given.
    """

    id: str
    number: int
    event_type: str
    name: str
    filter: Mapping[str, str]
    tag: str | None
    webhook_id: str | None
    created_at: datetime
    updated_at: datetime

    @property
    def public_fields(self) -> dict[str, Any]:
        """The subscription as the service shows it, without absent fields."""
        optional = {"tag": self.tag, "webhook_id": self.webhook_id}
        return {
            "subscription_id": self.id,
            "event_type": self.name,
            "filter": dict(self.filter),
            **{name: value for name, value in optional.items() if value is not None},
            "created_at": format_time(self.created_at),
            "updated_at": format_time(self.updated_at),
        }

    def matches(self, event: Event) -> bool:
        """Return whether an event matches (ACT-01 to ACT-03)."""
        keyword = self.filter.get("keyword")
        return (
            self.event_type == event.event_type
            and self.filter.get("user_id") in (None, event.user_id)
            and self.filter.get("direction") in (None, event.direction)
            and (keyword is None or contains(f"{event.text} {event.keyword or ''}", keyword))
        )


@attrs.frozen(kw_only=True)
class StreamRule:
    """A rule of the filtered stream."""

    id: str
    number: int
    rule: Rule
    tag: str | None

    @property
    def public_fields(self) -> dict[str, str]:
        """The rule as the service shows it."""
        return {"id": self.id, "value": self.rule.text, **self._tag}

    @property
    def match_fields(self) -> dict[str, str]:
        """The rule as a matching post names it."""
        return {"id": self.id, **self._tag}

    @property
    def _tag(self) -> dict[str, str]:
        return {} if self.tag is None else {"tag": self.tag}


@attrs.frozen(kw_only=True)
class AppChannels:
    """The webhooks, subscriptions, rules and streams of one app."""

    config: SandboxConfig
    background: BackgroundTasks
    ids: Ids
    events: EventFactory
    crc_checks: CrcChecks
    deliveries: Deliveries
    replays: Replays
    streams: Mapping[Product, Hub]
    webhooks: dict[str, Webhook] = attrs.field(factory=dict[str, Webhook], init=False)
    subscriptions: dict[str, Subscription] = attrs.field(factory=dict[str, Subscription], init=False)
    rules: dict[str, StreamRule] = attrs.field(factory=dict[str, StreamRule], init=False)
    numbers: Iterator[int] = attrs.field(factory=lambda: itertools.count(1), init=False)
    """Numbers new records, in order."""

    def new_id(self, kind: str) -> str:
        """Return a new id in the service's form."""
        return _new_id(self.ids, kind)

    def list_subscribed_users(self, event_type: str) -> list[str]:
        """Return the users to whose events of a type webhooks are subscribed."""
        found = (each for each in self.subscriptions.values() if each.event_type == event_type)
        users = {each.filter.get("user_id") for each in found if each.webhook_id in self.webhooks}
        return sorted(user for user in users if user is not None)

    def publish(self, event: Event) -> None:
        """Send an event to all streams and webhooks that it is meant for."""
        if event.event_type == "post.create":
            self._publish_post(event)
        for subscription in list(self.subscriptions.values()):
            if subscription.matches(event):
                self._publish_to(subscription, event)

    def _publish_post(self, event: Event) -> None:
        author = self.events.find_user(event.user_id)
        post = Post(event.payload, str(author["screen_name"]), event.time)
        matching = [rule.match_fields for rule in self.rules.values() if rule.rule.matches(post)]
        if not matching:
            return
        message = {"data": _complete(event.payload), "includes": event.includes, "matching_rules": matching}
        self.streams["filtered"].publish(message)
        # FS-06: on webhooks it is for enterprises only. Unspecified: how to choose a webhook (FS-01); here all get it.
        if "enterprise" not in self.config.closed_gates:
            for webhook in list(self.webhooks.values()):
                self.deliveries.send(webhook, message)

    def _publish_to(self, subscription: Subscription, event: Event) -> None:
        # An event id is an opaque string, which may look like a negative number (ASM-48).
        draw = random.Random(self.new_id("event"))  # noqa: S311 an id, no secret
        data = {
            "event_uuid": str(draw.randrange(-(2**63), 2**63)),
            "filter": dict(subscription.filter),
            "event_type": subscription.name if event.time < NAMES_CHANGED else event.event_type,
            **({} if subscription.tag is None else {"tag": subscription.tag}),
            "payload": event.payload,
            **({} if event.includes is None else {"includes": event.includes}),
        }
        # Unspecified: that `data` is the event, not an array of one (ASM-24).
        envelope = {"data": data}
        self.streams["activity"].publish(envelope)
        # Unspecified: a subscription without a webhook, or with a deleted one, reaches streams only (ASM-20, ASM-51).
        webhook = self.webhooks.get(subscription.webhook_id or "")
        if webhook is not None:
            self.deliveries.send(webhook, envelope)


class Channels:
    """The channels of all apps, and the delivery targets that they share."""

    def __init__(
        self,
        config: SandboxConfig,
        background: BackgroundTasks,
        store: Store,
        grants: Grants,
        targets: DeliveryTargets | None = None,
    ) -> None:
        self.targets = targets or DeliveryTargets(allow_egress=config.allow_egress)
        self.events = EventFactory(store)
        self._config, self._background, self._store, self._grants = config, background, store, grants
        self._by_app: dict[str, AppChannels] = {}

    def of_app(self, app: App) -> AppChannels:
        """Return the channels of an app."""
        if app.consumer_key not in self._by_app:
            self._by_app[app.consumer_key] = self._create(app)
        return self._by_app[app.consumer_key]

    def list_all(self) -> list[AppChannels]:
        """Return the channels of all apps."""
        return [self.of_app(app) for app in list(self._grants.apps.values())]

    def publish(self, event: Event) -> None:
        """Send an event to the channels of all apps."""
        for channels in self.list_all():
            channels.publish(event)

    def open(self) -> None:
        """Resume the checks of existing webhooks after `close()`."""
        for channels in self._by_app.values():
            for webhook in channels.webhooks.values():
                channels.crc_checks.schedule(webhook)

    async def close(self) -> None:
        """End all streams and background work."""
        for channels in self._by_app.values():
            for hub in channels.streams.values():
                hub.close()
        await self._background.close()
        await self.targets.close()

    def _create(self, app: App) -> AppChannels:
        config, background, ids = self._config, self._background, self._store.ids
        signer = Signer(consumer_secret=app.consumer_secret, dialect=config.dialect)
        outbound = Outbound(background.clock, self.targets)
        deliveries = Deliveries(
            config=config,
            background=background,
            outbound=outbound,
            signer=signer,
            next_id=lambda: _new_id(ids, "delivery"),
        )
        return AppChannels(
            config=config,
            background=background,
            ids=ids,
            events=self.events,
            crc_checks=CrcChecks(background=background, outbound=outbound, signer=signer, ids=ids),
            deliveries=deliveries,
            replays=Replays(background=background, deliveries=deliveries, ids=ids),
            streams={
                product: Hub(background=background, config=config, limit=limit)
                for product, limit in _CONNECTIONS.items()
            },
        )


def _new_id(ids: Ids, kind: str) -> str:
    return str(int(ids.next(kind, 12), 36))


def _complete(post: Mapping[str, Any]) -> dict[str, Any]:
    """Return a post with the counter that its schema requires under two names (contract UNS-event-payloads)."""
    metrics = post.get("public_metrics")
    if not isinstance(metrics, Mapping) or "retweet_count" not in metrics:
        return dict(post)
    return {**post, "public_metrics": {"repost_count": metrics["retweet_count"], **metrics}}
