"""Subscriptions of the activity product, and its stream (ACT-01 to ACT-03, EV-01, EV-02, STR-01)."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import attrs

from svc_async.sandbox.api.v2 import CONNECT, PAGING, connect, make_refusal, operation, paginate
from svc_async.sandbox.api.webhooks import find_webhook
from svc_async.sandbox.push.channels import NAMES_CHANGED, Subscription
from svc_async.sandbox.push.events import KINDS, find_similar_types, may_have_direction
from svc_async.sandbox.push.public_events import PUBLIC_KINDS
from svc_async.sandbox.refusal import Basis, Finding, invalid, missing, refuse
from svc_async.sandbox.server.decoding import json_field
from svc_async.sandbox.server.operations import Answer, Call
from svc_async.sandbox.server.reading import read_fields
from svc_async.sandbox.server.rendering import OpenResponse

__all__ = ["OPERATIONS"]

_PATH = "/2/activity/subscriptions"
_ONE = "/2/activity/subscriptions/{subscription_id}"
_TAG_LENGTH = 200
_DIRECTIONS = ("sent", "received")
# Unspecified: how many subscriptions an app may have, and that they differ (ASM-53); how many a page has (ASM-51).
_MOST = 1_000
_ON_A_PAGE = 100
# Unspecified: the former names (EV-02).
_NEW_NAMES: Mapping[str, str] = {
    "PostCreate": "post.create",
    "PostDelete": "post.delete",
    "DmReceived": "dm.received",
    "DmSent": "dm.sent",
    "DmRead": "dm.read",
    "DmIndicateTyping": "dm.indicate_typing",
    "SpacesStart": "spaces.start",
    "SpacesEnd": "spaces.end",
    "ProfileBioUpdate": "profile.update.bio",
    "ProfileVerifiedUpdate": "profile.update.verified",
    "ProfileAffiliateUpdate": "profile.update.affiliate",
    "ProfileScreennameUpdate": "profile.update.screenname",
    "ProfilePictureUpdate": "profile.update.picture",
    "ProfileBannerUpdate": "profile.update.banner",
    "ProfileGeoUpdate": "profile.update.geo",
    "ProfileUrlUpdate": "profile.update.url",
}

_FILTER = (
    json_field("user_id", "string", rule="ACT-01"),
    json_field("keyword", "string", rule="ACT-02"),
    json_field("direction", "string", rule="ACT-03"),
)


def _create(call: Call) -> Answer:
    event_type = _read_event_type(call)
    chosen, found = read_fields(_FILTER, call.params["filter"], at="filter.")
    refuse(*found, *_check_filter(chosen, event_type))
    app_channels = call.app_channels
    webhook_id = call.params["webhook_id"]
    if webhook_id is not None:
        find_webhook(call, webhook_id, status=400)
    _check_room(call, event_type, chosen)
    subscription = Subscription(
        id=app_channels.new_id("subscription"),
        number=next(app_channels.numbers),
        event_type=event_type,
        name=str(call.params["event_type"]),
        filter=chosen,
        tag=call.params["tag"],
        webhook_id=webhook_id,
        created_at=call.now,
        updated_at=call.now,
    )
    app_channels.subscriptions[subscription.id] = subscription
    return _answer(call, _place(call, subscription), public=event_type in PUBLIC_KINDS)


def _read_event_type(call: Call) -> str:
    """Return the dot-separated name of a type that can be subscribed to (EV-01, EV-02)."""
    name = str(call.params["event_type"])
    if name in _NEW_NAMES:
        # Unspecified: whether older names are refused from their date on (ASM-50).
        if call.now >= NAMES_CHANGED:
            refuse(invalid("EV-02", f"is called {_NEW_NAMES[name]} now", "event_type"))
        return _NEW_NAMES[name]
    if name not in KINDS:
        nearest = find_similar_types(name)
        known = f"similar ones are {', '.join(nearest)}" if nearest else f"there are {', '.join(KINDS)}"
        refuse(invalid("EV-01", f"is not a type of event; {known}", "event_type"))
    return name


def _check_filter(chosen: Mapping[str, Any], event_type: str) -> list[Finding]:
    found: list[Finding] = []
    if not chosen.keys() & {"user_id", "keyword"}:
        # Unspecified: that a keyword alone is sufficient.
        found.append(missing("ACT-01", "filter.user_id"))
    user_id = chosen.get("user_id", "0")
    if not (user_id.isascii() and user_id.isdigit()):
        found.append(invalid("ACT-01", "must be a user id", "filter.user_id"))
    if (direction := chosen.get("direction")) is not None:
        if direction not in _DIRECTIONS:
            found.append(invalid("ACT-03", f"must be one of {', '.join(_DIRECTIONS)}", "filter.direction"))
        if not may_have_direction(event_type):
            found.append(invalid("ACT-03", "is for direct-message and chat events only", "filter.direction"))
    return found


def _check_room(call: Call, event_type: str, chosen: Mapping[str, str]) -> None:
    subscriptions = call.app_channels.subscriptions.values()
    same = any((each.event_type, each.filter) == (event_type, chosen) for each in subscriptions)
    if same:
        message = "a subscription with this event_type and filter is there already"
        raise make_refusal(400, "DuplicateSubscription", message, rule="ASM-53", basis=Basis.ASSUMED)
    if len(subscriptions) >= _MOST:
        message = f"the app has {len(subscriptions)} subscriptions"
        raise make_refusal(400, "SubscriptionLimitExceeded", message, rule="ASM-53", basis=Basis.ASSUMED)


def _list(call: Call) -> Answer:
    found, meta = paginate(call, call.app_channels.subscriptions.values(), default=_ON_A_PAGE)
    return Answer({"data": [subscription.public_fields for subscription in found], "meta": meta})


def _update(call: Call) -> Answer:
    subscription = _find(call)
    if not call.sent:
        refuse(missing("ASM-51", "tag or webhook_id"))
    if (webhook_id := call.sent.get("webhook_id")) is not None:
        find_webhook(call, webhook_id, status=400)
    changes = {name: call.sent[name] for name in ("tag", "webhook_id") if name in call.sent}
    changed = attrs.evolve(subscription, **changes, updated_at=call.now)
    call.app_channels.subscriptions[subscription.id] = changed
    return _answer(call, _place(call, changed))


def _delete(call: Call) -> Answer:
    del call.app_channels.subscriptions[_find(call).id]
    return _answer(call, {"deleted": True})


def _place(call: Call, subscription: Subscription) -> Any:
    # Unspecified: where the answer has the subscription (UNS-activity-bodies).
    fields = subscription.public_fields
    return {"flat": fields, "array": [fields], "nested": {"subscription": fields}}[
        call.sandbox.config.subscription_answers
    ]


def _answer(call: Call, data: Any, *, public: bool = False) -> Answer:
    """Answer with the number of the app's subscriptions; the creation for a public event rests on another rule."""
    meta = {"total_subscriptions": len(call.app_channels.subscriptions)}
    return Answer({"data": data, "meta": meta}, rule=("EVT-04", Basis.PUBLIC) if public else None)


def _find(call: Call) -> Subscription:
    subscription = call.app_channels.subscriptions.get(call.path["subscription_id"])
    if subscription is None:
        raise make_refusal(404, "SubscriptionIdInvalid", "there is no such subscription", rule="ASM-102")
    return subscription


async def _connect(call: Call, response: OpenResponse) -> None:
    await connect(call, response, "activity")


_TAG = json_field("tag", "string", max_length=_TAG_LENGTH, rule="ASM-51")
_WEBHOOK_ID = json_field("webhook_id", "string", rule="ASM-51")

# Unspecified: which tokens these calls take (ASM-62); AUTH-26 speaks of account-activity subscriptions.
_operation = partial(operation, may_be_scoped=True)

OPERATIONS = (
    _operation(
        id="activity_subscriptions.create",
        method="POST",
        path=_PATH,
        handler=_create,
        query=(
            json_field("event_type", "string", required=True, rule="EV-01"),
            json_field("filter", "object", required=True, rule="ACT-01"),
            _TAG,
            _WEBHOOK_ID,
        ),
        limit="activity_subscriptions",
        rule="ACT-01",
        body="object",
    ),
    _operation(
        id="activity_subscriptions.list",
        method="GET",
        path=_PATH,
        handler=_list,
        query=PAGING,
        limit="activity_subscriptions",
        rule="ASM-51",
        basis=Basis.PUBLIC,
    ),
    _operation(
        id="activity_subscriptions.update",
        method="PUT",
        path=_ONE,
        handler=_update,
        query=(_TAG, _WEBHOOK_ID),
        limit="activity_subscriptions",
        rule="ASM-51",
        basis=Basis.PUBLIC,
        body="object",
    ),
    _operation(
        id="activity_subscriptions.delete",
        method="DELETE",
        path=_ONE,
        handler=_delete,
        limit="activity_subscriptions",
        rule="ASM-51",
        basis=Basis.PUBLIC,
    ),
    _operation(
        id="activity_stream.connect",
        method="GET",
        path="/2/activity/stream",
        serve=_connect,
        query=CONNECT,
        limit="activity_connects",
        rule="STR-01",
    ),
)
