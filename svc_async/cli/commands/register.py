"""Registers a webhook, and subscribes it to events."""

import asyncio
import json
from collections.abc import Sequence

import attrs

from svc_async.cli.console import stderr, stdout
from svc_async.cli.exit_codes import Exit
from svc_async.cli.sessions import session_of
from svc_async.cli.signals import Interrupted, until_stopped
from svc_async.errors import InvalidArgument
from svc_async.platform.activity import Subscription, Subscriptions
from svc_async.platform.webhooks import Webhook
from svc_async.session import Session
from svc_async.wire.route import Surface

__all__ = ["run"]


@attrs.frozen
class _Wanted:
    """A webhook, and the events that shall come to it."""

    url: str
    events: Sequence[str]
    user: str | None


def run(url: str, *, events: Sequence[str], user: str | None, profile: str | None, as_json: bool) -> int:
    """See to it that a URL is registered, valid and subscribed, and give the exit code."""
    if bool(events) != bool(user):
        raise InvalidArgument("--event and --user", "go together: the events of a user")
    try:
        webhook, subscriptions = asyncio.run(_registered(_Wanted(url, events, user), profile))
    except Interrupted:
        return Exit.INTERRUPTED
    if as_json:
        stdout().print(json.dumps(_described(webhook, subscriptions)))
        return Exit.DONE
    stderr().print(f"The webhook {webhook.id} is valid; events for it go to {webhook.url}.")
    for each in subscriptions:
        stderr().print(f"It is told of {each.event_type} of user {each.filter.user_id}.")
    return Exit.DONE


async def _registered(wanted: _Wanted, profile: str | None) -> tuple[Webhook, Sequence[Subscription]]:
    async with session_of(profile, Surface.BASE) as session:
        return await until_stopped(_ensured(session, wanted))


async def _ensured(session: Session, wanted: _Wanted) -> tuple[Webhook, Sequence[Subscription]]:
    webhook = await session.webhooks.ensure(wanted.url)
    return webhook, await _subscribed(session.activity.subscriptions, webhook, wanted) if wanted.events else ()


async def _subscribed(subscriptions: Subscriptions, webhook: Webhook, wanted: _Wanted) -> Sequence[Subscription]:
    standing = {
        str(each.event_type): each
        for each in await subscriptions.list().collect()
        if (each.webhook_id, each.filter.user_id) == (webhook.id, wanted.user)
    }
    return [
        standing.get(event) or await subscriptions.create(event_type=event, user_id=wanted.user, webhook_id=webhook.id)
        for event in dict.fromkeys(wanted.events)
    ]


def _described(webhook: Webhook, subscriptions: Sequence[Subscription]) -> dict[str, object]:
    return {
        "webhook_id": webhook.id,
        "url": webhook.url,
        "valid": webhook.valid,
        "subscriptions": [
            {"subscription_id": each.subscription_id, "event_type": each.event_type, "user_id": each.filter.user_id}
            for each in subscriptions
        ],
    }
