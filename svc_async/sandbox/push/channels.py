"""How an app is told of what happens: its webhooks, its subscriptions, its rules and its streams.

What happens to a user is an event. The activity product makes an envelope of it for every subscription that wants it;
the filtered stream tells of every new post that a rule matches. Both go out on the stream of the product and to
webhooks.
"""

import itertools
import random
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import attrs

from svc_async.sandbox.background import Jobs
from svc_async.sandbox.config import SandboxConfig
from svc_async.sandbox.push.crc_checks import Challenges, Webhook
from svc_async.sandbox.push.deliveries import Deliveries
from svc_async.sandbox.push.delivery_targets import DeliveryMap
from svc_async.sandbox.push.events import Event, Events
from svc_async.sandbox.push.outbound import Attempts
from svc_async.sandbox.push.replays import Replays
from svc_async.sandbox.push.rule_language import Post, Rule, contains
from svc_async.sandbox.push.signing import Signer
from svc_async.sandbox.push.streams import Hub
from svc_async.sandbox.state.grants import App, Registry
from svc_async.sandbox.state.store import Ids, Store, written

__all__ = ["NAMES_CHANGED", "Outlet", "Outlets", "Product", "StreamRule", "Subscription"]

Product = Literal["activity", "filtered"]

NAMES_CHANGED = datetime(2026, 3, 18, tzinfo=UTC)
"""From then on events go by their dot-separated names only (EV-02, ASM-50)."""


@attrs.frozen(kw_only=True)
class Subscription:
    """What an app wants to be told of.

    Attributes:
        number: its place in the order of creation.
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
    def shown(self) -> dict[str, Any]:
        """The subscription as the service shows it; what is absent is left out."""
        optional = {"tag": self.tag, "webhook_id": self.webhook_id}
        return {
            "subscription_id": self.id,
            "event_type": self.name,
            "filter": dict(self.filter),
            **{name: value for name, value in optional.items() if value is not None},
            "created_at": written(self.created_at),
            "updated_at": written(self.updated_at),
        }

    def wants(self, event: Event) -> bool:
        """Tell whether an event fits (ACT-01 to ACT-03)."""
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
    def shown(self) -> dict[str, str]:
        """The rule as the service shows it."""
        return {"id": self.id, "value": self.rule.text, **self._tag}

    @property
    def matched(self) -> dict[str, str]:
        """How a post that it matches names it."""
        return {"id": self.id, **self._tag}

    @property
    def _tag(self) -> dict[str, str]:
        return {} if self.tag is None else {"tag": self.tag}


@attrs.frozen(kw_only=True)
class Outlet:
    """All that one app is told by."""

    config: SandboxConfig
    jobs: Jobs
    ids: Ids
    events: Events
    challenges: Challenges
    deliveries: Deliveries
    replays: Replays
    streams: Mapping[Product, Hub]
    webhooks: dict[str, Webhook] = attrs.field(factory=dict[str, Webhook], init=False)
    subscriptions: dict[str, Subscription] = attrs.field(factory=dict[str, Subscription], init=False)
    rules: dict[str, StreamRule] = attrs.field(factory=dict[str, StreamRule], init=False)
    numbers: Iterator[int] = attrs.field(factory=lambda: itertools.count(1), init=False)
    """Numbers what is created, in order."""

    def new_id(self, kind: str) -> str:
        """Draw an id that looks like the service's."""
        return _new_id(self.ids, kind)

    def tell(self, event: Event) -> None:
        """Let everything out that an event calls for."""
        if event.event_type == "post.create":
            self._tell_of_post(event)
        for subscription in list(self.subscriptions.values()):
            if subscription.wants(event):
                self._tell_subscriber(subscription, event)

    def _tell_of_post(self, event: Event) -> None:
        author = self.events.user(event.user_id)
        post = Post(event.payload, str(author["screen_name"]), event.time)
        matching = [rule.matched for rule in self.rules.values() if rule.rule.matches(post)]
        if not matching:
            return
        message = {"data": dict(event.payload), "includes": event.includes, "matching_rules": matching}
        self.streams["filtered"].publish(message)
        # FS-06: on webhooks it is for enterprises only.
        if self.config.filtered_webhooks and self.config.enterprise:
            for webhook in list(self.webhooks.values()):
                self.deliveries.send(webhook, message)

    def _tell_subscriber(self, subscription: Subscription, event: Event) -> None:
        data = {
            "event_uuid": self._event_uuid(),
            "filter": dict(subscription.filter),
            "event_type": self._name(subscription, event),
            **({} if subscription.tag is None else {"tag": subscription.tag}),
            "payload": event.payload,
            **({} if event.includes is None else {"includes": event.includes}),
        }
        envelope = {"data": [data] if self.config.event_data_in_array else data}
        self.streams["activity"].publish(envelope)
        # Unspecified: a subscription without a webhook, or with a deleted one, reaches streams only (ASM-20, ASM-51).
        webhook = self.webhooks.get(subscription.webhook_id or "")
        if webhook is not None:
            self.deliveries.send(webhook, envelope)

    def _event_uuid(self) -> str:
        """Draw the id of an event: an opaque string, which may look like a negative number (ASM-48)."""
        draw = random.Random(self.new_id("event"))  # noqa: S311 an id, no secret
        return str(draw.randrange(-(2**63), 2**63))

    def _name(self, subscription: Subscription, event: Event) -> str:
        return subscription.name if event.time < NAMES_CHANGED else event.event_type


class Outlets:
    """Those of all apps, and what they share: the jobs and the delivery map."""

    def __init__(self, config: SandboxConfig, jobs: Jobs, store: Store, registry: Registry) -> None:
        self.targets = DeliveryMap(allow_egress=config.allow_egress)
        self.events = Events(store)
        self._config, self._jobs, self._store, self._registry = config, jobs, store, registry
        self._of: dict[str, Outlet] = {}

    def of(self, app: App) -> Outlet:
        """Give the outlet of an app."""
        if app.consumer_key not in self._of:
            self._of[app.consumer_key] = self._made(app)
        return self._of[app.consumer_key]

    def tell(self, event: Event) -> None:
        """Tell all apps of an event."""
        for app in list(self._registry.apps.values()):
            self.of(app).tell(event)

    def open(self) -> None:
        """Go on with what `close()` ended: the checks of webhooks that are there already."""
        for outlet in self._of.values():
            for webhook in outlet.webhooks.values():
                outlet.challenges.watch(webhook)

    async def close(self) -> None:
        """End all streams and jobs."""
        for outlet in self._of.values():
            for hub in outlet.streams.values():
                hub.close()
        await self._jobs.close()
        await self.targets.close()

    def _made(self, app: App) -> Outlet:
        config, jobs, ids = self._config, self._jobs, self._store.ids
        signer = Signer.of(app, config)
        attempts = Attempts(jobs.clock, self.targets)
        deliveries = Deliveries(
            config=config, jobs=jobs, made=attempts, signer=signer, next_id=lambda: _new_id(ids, "delivery")
        )
        limits: dict[Product, int] = {"activity": config.activity_connections, "filtered": config.filtered_connections}
        return Outlet(
            config=config,
            jobs=jobs,
            ids=ids,
            events=self.events,
            challenges=Challenges(config=config, jobs=jobs, attempts=attempts, signer=signer, ids=ids),
            deliveries=deliveries,
            replays=Replays(config=config, jobs=jobs, deliveries=deliveries, ids=ids),
            streams={product: Hub(jobs=jobs, config=config, limit=limit) for product, limit in limits.items()},
        )


def _new_id(ids: Ids, kind: str) -> str:
    return str(int(ids.next(kind, 12), 36))
