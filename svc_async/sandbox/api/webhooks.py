"""The v2 webhook operations, and the deprecated replay operation (WH-01 to WH-51)."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from svc_async.sandbox.api.v2 import make_refusal, operation
from svc_async.sandbox.push.crc_checks import Webhook
from svc_async.sandbox.push.deliveries import ReplayWindow
from svc_async.sandbox.push.outbound import Attempt, Verdict
from svc_async.sandbox.refusal import Basis, Refusal
from svc_async.sandbox.server.decoding import json_field, text
from svc_async.sandbox.server.operations import Answer, Call
from svc_async.sandbox.server.rendering import OpenResponse

__all__ = ["OPERATIONS", "check_url", "find_webhook"]

_HINTS = {Verdict.WRONG_TOKEN: "is it signed with the consumer secret of this app?"}
_WITHOUT_ANSWER = frozenset({Verdict.CLOSED, Verdict.TIMEOUT, Verdict.UNMAPPED})
_MOST = 5  # Unspecified: URLs that an app may register (ASM-05)
_LONGEST = 200  # Unspecified: the characters of a URL (ASM-42)
_REPLAY_MOVED = datetime(2026, 3, 25, 16, tzinfo=UTC)  # WH-51: 12:00 in New York, which is UTC-4 by then


async def _create(call: Call, response: OpenResponse) -> Answer:
    url = str(call.params["url"])
    check_url(url)
    _check_room(call, url)
    with response.clock.release():
        check = await call.app_channels.crc_checks.check_new(url)
    if not check.ok:
        reason = _describe_failure(check)
        message = f"the challenge was not answered as it should be: {reason}"
        raise _refuse(400, "CrcValidationFailed", message, rule="ASM-42")
    _check_room(call, url)  # again: another request may have registered one during the check
    now = call.sandbox.clock.now()
    webhook = Webhook(
        id=call.app_channels.new_id("webhook"), url=url, created_at=now, last_ok=check.time, checks=[check]
    )
    call.app_channels.webhooks[webhook.id] = webhook
    call.app_channels.crc_checks.schedule(webhook)
    return Answer({"data": webhook.public_fields})


def _describe_failure(check: Attempt) -> str:
    """Return what happened, in words if no answer came, and else with what the answer says."""
    if check.verdict in _WITHOUT_ANSWER and check.reason:
        return check.reason
    verdict = check.verdict if check.verdict is Verdict.WRONG_TOKEN or not check.status else f"HTTP {check.status}"
    hint = check.reason or _HINTS.get(check.verdict)
    return f"{verdict} ({hint})" if hint else verdict


def _list(call: Call) -> Answer:
    shown = [webhook.public_fields for webhook in call.app_channels.webhooks.values()]
    return Answer({"data": shown, "meta": {"result_count": len(shown)}})


def _delete(call: Call) -> Answer:
    webhook = find_webhook(call, call.path["webhook_id"])
    webhook.deleted = True
    del call.app_channels.webhooks[webhook.id]
    return Answer({"data": {"deleted": True}})


async def _validate(call: Call, response: OpenResponse) -> Answer:
    webhook = find_webhook(call, call.path["webhook_id"])
    with response.clock.release():
        await call.app_channels.crc_checks.revalidate(webhook)
    # Unspecified: that the answer is whether the webhook is valid (ASM-44).
    return Answer({"data": {"valid": webhook.valid}})


def _replay_legacy(call: Call) -> Answer:
    # Unspecified: the answer after its date (ASM-49), and that its dates are in the query.
    if call.now >= _REPLAY_MOVED:
        raise make_refusal(410, "GONE", "use POST /2/webhooks/replay", rule="WH-51", basis=Basis.SPEC)
    return _start_replay(call, call.path["webhook_id"])


def _start_replay(call: Call, webhook_id: str) -> Answer:
    try:
        window = ReplayWindow.parse(str(call.params["from_date"]), str(call.params["to_date"]))
        window.check(call.now)
    except ValueError as error:
        raise _refuse(400, "QueryParamInvalid", str(error), rule="ASM-45") from None
    webhook = find_webhook(call, webhook_id)
    if not webhook.valid:
        # Unspecified: the answer to a replay for an invalid webhook.
        raise _refuse(400, "CrcValidationFailed", "the webhook is invalid; PUT re-enables it", rule="ASM-45")
    if (running := call.app_channels.replays.running) is not None:
        raise _refuse(409, "ReplayConflictError", f"job {running.id} is still running", rule="ASM-45")
    return Answer({"data": call.app_channels.replays.start(webhook, window).public_fields})


def find_webhook(call: Call, webhook_id: str, *, status: int = 404) -> Webhook:
    """Find a webhook of the app.

    Raises:
        Refusal: there is none with this id (ASM-20).
    """
    webhook = call.app_channels.webhooks.get(webhook_id)
    if webhook is None:
        raise _refuse(status, "WebhookIdInvalid", "webhook_id names no webhook of this app", rule="ASM-20")
    return webhook


def _check_room(call: Call, url: str) -> None:
    webhooks = call.app_channels.webhooks
    if any(webhook.url == url for webhook in webhooks.values()):
        raise _refuse(400, "DuplicateUrlFailed", "the URL is registered already", rule="ASM-42")
    if len(webhooks) >= _MOST:
        raise _refuse(400, "WebhookLimitExceeded", f"the app has {len(webhooks)} webhooks", rule="ASM-05")


def check_url(url: str) -> None:
    """Check whether a URL can be registered: WH-01, WH-02 and ASM-42.

    Raises:
        Refusal: it cannot.
    """
    if len(url) > _LONGEST:
        raise _refuse_url(f"takes up to {_LONGEST} characters", "ASM-42")
    # Refuse what urlsplit would silently remove: control characters, spaces and non-ASCII characters.
    if not all("!" <= letter <= "~" for letter in url) or "\\" in url:
        raise _refuse_url("holds a character that must be encoded", "ASM-42")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _refuse_url("is malformed", "ASM-42") from None
    for rule, message, is_wrong in _URL_RULES:
        if is_wrong(url, parts):
            raise _refuse_url(message, rule)
    if _is_ip(parts.hostname or ""):
        raise _refuse_url("has an IP address for a host", "ASM-42")


_URL_RULES: tuple[tuple[str, str, Callable[[str, SplitResult], bool]], ...] = (
    ("WH-01", "must use https", lambda _, parts: parts.scheme != "https"),
    ("ASM-42", "carries user info", lambda _, parts: "@" in parts.netloc),
    # A port is any number, an empty or a malformed one.
    ("WH-02", "carries a port number", lambda _, parts: ":" in parts.netloc.rpartition("@")[2].rpartition("]")[2]),
    ("ASM-42", "has no host", lambda _, parts: not parts.hostname),
    ("ASM-42", "carries a fragment", lambda url, _: "#" in url),
)
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        # 127.1 and 0x7f000001 are addresses to a resolver too.
        return _NUMBER.fullmatch(host.removesuffix(".").rpartition(".")[2]) is not None
    return True


def _refuse_url(message: str, rule: str) -> Refusal:
    return _refuse(400, "UrlValidationFailed", f"the URL {message}", rule=rule)


def _refuse(status: int, name: str, message: str, *, rule: str) -> Refusal:
    # Unspecified: the statuses, and the names (ASM-43).
    basis = Basis.SPEC if rule.startswith("WH") else Basis.PUBLIC
    return make_refusal(status, name, message, rule=rule, basis=basis)


OPERATIONS = (
    operation(
        id="webhooks.create",
        method="POST",
        path="/2/webhooks",
        serve=_create,
        query=(json_field("url", "string", required=True, rule="WH-09"),),
        limit="webhooks",
        rule="WH-09",
        body="object",
    ),
    operation(id="webhooks.list", method="GET", path="/2/webhooks", handler=_list, limit="webhooks", rule="WH-10"),
    operation(
        id="webhooks.delete",
        method="DELETE",
        path="/2/webhooks/{webhook_id}",
        handler=_delete,
        limit="webhooks",
        rule="WH-11",
    ),
    operation(
        id="webhooks.validate",
        method="PUT",
        path="/2/webhooks/{webhook_id}",
        serve=_validate,
        limit="webhooks",
        rule="WH-12",
    ),
    operation(
        id="webhooks.replay",
        method="POST",
        path="/2/webhooks/replay",
        handler=lambda call: _start_replay(call, str(call.params["webhook_id"])),
        query=(
            json_field("webhook_id", "string", required=True, rule="ASM-44"),
            json_field("from_date", "string", required=True, rule="ASM-44"),
            json_field("to_date", "string", required=True, rule="ASM-44"),
        ),
        limit="replays",
        rule="WH-50",
        body="object",
    ),
    operation(
        id="account_activity.replay",
        method="POST",
        path="/2/account_activity/replay/webhooks/{webhook_id}/subscriptions/all",
        handler=_replay_legacy,
        query=(text("from_date", required=True, rule="ASM-44"), text("to_date", required=True, rule="ASM-44")),
        limit="replays",
        rule="WH-51",
    ),
)
