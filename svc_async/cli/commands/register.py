"""`svc-async webhook register`: register a webhook and subscribe it to events."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import attrs
from cyclopts import Parameter

from svc_async.cli.exit_codes import Exit
from svc_async.cli.options import JsonFlag
from svc_async.cli.output.console import say, show_json
from svc_async.cli.sessions import open_session
from svc_async.cli.signals import run_until_stopped
from svc_async.errors import BadRequest, InvalidArgument
from svc_async.events.models import EventFilter
from svc_async.platform.activity import Subscription, Subscriptions
from svc_async.platform.webhooks import Webhook, check_url
from svc_async.session import Session
from svc_async.wire.route import Surface

__all__ = ["register"]

_OPTIONS = {"event_type": "--event", "user_id": "--user"}
"""The options by what the service calls their values."""


def register(
    url: str,
    /,
    *,
    event: Annotated[list[str] | None, Parameter(negative=())] = None,
    user: str | None = None,
    move: bool = False,
    profile: str | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Register and validate a webhook URL, and subscribe it to events of a user.

    What exists already is left unchanged, so the command can be repeated. The receiver must be running: the service
    checks a URL that is new, or registered and invalid. One that is valid already is not checked again.

    Args:
        url: The webhook URL: https, without a port.
        event: A type of event to subscribe to, such as post.create. Repeatable.
        user: The id of the user whose events are sent.
        move: Take the events from another webhook to which they go.
        profile: Use the credentials and hosts of this profile, not SVC_* variables.
        as_json: Print only JSON.
    """
    if bool(event) != bool(user):
        raise InvalidArgument("--event and --user", "go together: the events of a user")
    if user and not (user.isascii() and user.isdigit()):
        raise InvalidArgument("--user", "must be the id of a user, a string of digits")
    check_url(url)
    wanted = _Registration(url, tuple(dict.fromkeys(event or ())), user, move)
    registered = asyncio.run(_register(wanted, profile))
    if as_json:
        show_json(_describe(registered))
        return Exit.DONE
    say(_summarize(registered))
    for each in registered.subscriptions:
        say(f"It is subscribed to {each.event_type} of user {each.filter.user_id}.")
    return Exit.DONE


@attrs.frozen
class _Registration:
    """A webhook, and the events to subscribe it to."""

    url: str
    events: Sequence[str]
    user: str | None
    move: bool


@attrs.frozen
class _Registered:
    """What stands now, and whether the service has checked the URL for it."""

    webhook: Webhook
    was_checked: bool
    subscriptions: Sequence[Subscription]


async def _register(wanted: _Registration, profile: str | None) -> _Registered:
    async with open_session(profile, Surface.BASE) as session:
        return await run_until_stopped(_ensure(session, wanted))


async def _ensure(session: Session, wanted: _Registration) -> _Registered:
    existing = await _find_subscriptions(session.activity.subscriptions, wanted) if wanted.events else {}
    webhooks = await session.webhooks.list().collect()
    if existing and not wanted.move:
        _refuse_second_webhook(existing, webhooks, wanted)
    valid = next((each for each in webhooks if each.url == wanted.url and each.valid), None)
    webhook = valid or await session.webhooks.ensure(wanted.url)
    subscriptions = [
        await _subscribe(session.activity.subscriptions, webhook, event, existing.get(event), wanted.user)
        for event in wanted.events
    ]
    return _Registered(webhook, valid is None, subscriptions)


async def _find_subscriptions(subscriptions: Subscriptions, wanted: _Registration) -> Mapping[str, Subscription]:
    """Return the subscriptions to all wanted events of the user, by event."""
    whole = EventFilter(user_id=wanted.user)
    found = {str(each.event_type): each for each in await subscriptions.list().collect() if each.filter == whole}
    return {event: found[event] for event in wanted.events if event in found}


def _refuse_second_webhook(
    existing: Mapping[str, Subscription], webhooks: Iterable[Webhook], wanted: _Registration
) -> None:
    urls = {webhook.id: webhook.url for webhook in webhooks if webhook.url != wanted.url}
    for event, subscription in existing.items():
        if url := urls.get(subscription.webhook_id or ""):
            where = f"{event} of user {wanted.user} goes to {url} already"
            raise InvalidArgument("--event", f"{where}, and to one webhook only; --move takes it from there")


async def _subscribe(
    subscriptions: Subscriptions, webhook: Webhook, event: str, existing: Subscription | None, user: str | None
) -> Subscription:
    if existing is None:
        return await _create(subscriptions, webhook, event, user)
    if existing.webhook_id != webhook.id:
        return await subscriptions.update(existing.subscription_id, webhook_id=webhook.id)
    return existing


async def _create(subscriptions: Subscriptions, webhook: Webhook, event: str, user: str | None) -> Subscription:
    """Subscribe to events; a refusal of a parameter says which option gives it."""
    try:
        return await subscriptions.create(event_type=event, user_id=user, webhook_id=webhook.id)
    except BadRequest as error:
        said = " ".join(each.message for each in error.errors)  # the service has no field for it
        options = [option for name, option in _OPTIONS.items() if name in said]
        if options and not error.has_code("DuplicateSubscription"):
            error.add_note(f"check {' and '.join(options)}")
        raise


def _summarize(registered: _Registered) -> str:
    webhook = registered.webhook
    if registered.was_checked:
        return f"The webhook {webhook.id} is valid; events for it go to {webhook.url}."
    return (
        f"The webhook {webhook.id} was valid already and was not checked now; events for it go to {webhook.url}. "
        "`svc-async webhook check URL` checks the receiver; with a sandbox, give the receiver's own address."
    )


def _describe(registered: _Registered) -> dict[str, object]:
    return {
        "webhook_id": registered.webhook.id,
        "url": registered.webhook.url,
        "valid": registered.webhook.valid,
        "checked": registered.was_checked,
        "subscriptions": [
            {"subscription_id": each.subscription_id, "event_type": each.event_type, "user_id": each.filter.user_id}
            for each in registered.subscriptions
        ],
    }
