"""What the page shows: rows of requests and deliveries, their bodies, and the present of the sandbox."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from svc_async.sandbox.api import control_faults
from svc_async.sandbox.api.control import ControlApi
from svc_async.sandbox.clock import VirtualClock
from svc_async.sandbox.context import Context
from svc_async.sandbox.push.deliveries import Delivery
from svc_async.sandbox.push.events import KINDS
from svc_async.sandbox.push.outbound import Attempt
from svc_async.sandbox.server.request_log import (
    KeptBodies,
    LoggedRequest,
    mask_fields,
    mask_headers,
    mask_query,
    mask_url,
)
from svc_async.sandbox.state.store import format_milliseconds, format_time

__all__ = [
    "describe_attempt",
    "describe_delivery",
    "describe_options",
    "describe_present",
    "describe_request",
    "describe_text",
    "make_delivery_row",
    "make_request_row",
]

_SHOWN = 100_000
"""Characters of a body that are shown."""

_FORM = "application/x-www-form-urlencoded"


def describe_body(body: bytes, content_type: str, *, private: bool, size: int | None = None) -> dict[str, Any]:
    """Return a body decoded.

    Args:
        body: the body, or the beginning of it that was kept.
        content_type: how it is encoded.
        private: whether it may contain secrets, so that it is shown only if they can be found.
        size: of the whole body.
    """
    size = len(body) if size is None else size
    media_type = content_type.partition(";")[0].strip().lower()
    if not body:
        return {"kind": "none", "size": size, "text": "", "cut": False}
    if media_type == _FORM:
        text = "\n".join(mask_query(body.decode("utf-8", "replace")).split("&"))
        return _show("form", text, size)
    if media_type == "text/html" and private:
        return {"kind": "page", "size": size, "text": "", "cut": False}
    formatted = _format_json(body)
    if formatted is not None:
        return _show("json", formatted, size)
    if private:
        return {"kind": "private", "size": size, "text": "", "cut": False}
    return _show("text", body.decode("utf-8", "replace"), size)


def describe_text(value: str) -> str:
    """Return a text of a row, cut where it is long."""
    return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"


_LONGEST = 300


def _show(kind: str, text: str, size: int) -> dict[str, Any]:
    return {"kind": kind, "size": size, "text": text[:_SHOWN], "cut": len(text) > _SHOWN}


def _format_json(body: bytes) -> str | None:
    """Return JSON with line breaks, its numbers as they came; None if it is none."""
    try:
        value = msgspec.json.decode(body)
        masked = mask_fields(value)
        return msgspec.json.format(body if masked == value else msgspec.json.encode(masked), indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


_GAUGES = 60


def describe_options(api: ControlApi) -> dict[str, Any]:
    """Return what the forms of the page offer; it changes with a reset only."""
    clock, sandbox = api.sandbox.clock, api.sandbox
    return {
        "run": api.run,
        "clock": clock.mode if isinstance(clock, VirtualClock) else "machine",
        "fault_kinds": [control_faults.describe_kind(name) for name in control_faults.KINDS],
        "event_types": list(KINDS),
        "users": [[row.id, row.fields.get("screen_name", "")] for row in sandbox.store["users"]],
        "user_id": sandbox.seed.tokens[0].user_id,
    }


def describe_present(api: ControlApi) -> dict[str, Any]:
    """Return the values that change while the sandbox runs."""
    return {
        "time": format_time(api.sandbox.clock.now()),
        "requests": api.log.total - api.log.begin,
        "deliveries": sum(channels.deliveries.total for channels in api.sandbox.channels.list_all()),
        "gauges": list(_list_gauges(api)),
        "streams": list(_list_streams(api.sandbox)),
        "faults": [control_faults.describe(injection) for injection in api.faults.armed],
    }


def _list_gauges(api: ControlApi) -> Iterator[dict[str, Any]]:
    gauges = sorted(api.limits.list_gauges(), key=lambda gauge: -gauge.used / max(gauge.rule.requests, 1))
    for gauge in gauges[:_GAUGES]:
        yield {
            "name": gauge.name,
            "scope": _name_scope(api.sandbox, gauge.scope),
            "used": gauge.used,
            "limit": gauge.rule.requests,
            "period": gauge.rule.seconds,
            "reset": gauge.reset,
        }


def _name_scope(sandbox: Context, counted_as: str) -> str:
    """Name the account, or the user or the app whose token or key this is, without showing it."""
    if sandbox.store["accounts"].get(counted_as, with_deleted=True) is not None:
        return f"account {counted_as}"
    grants = sandbox.grants
    if (app := grants.apps.get(counted_as)) is not None:
        return f"app {app.name}"
    token, scoped = grants.tokens.get(counted_as), grants.scoped.get(counted_as)
    user_id = token.user_id if token is not None else scoped.grant.user_id if scoped is not None else ""
    row = sandbox.store["users"].get(user_id)
    return "a caller" if row is None else describe_text(f"user {row.fields.get('screen_name', user_id)}")


def _list_streams(sandbox: Context) -> Iterator[dict[str, Any]]:
    for channels in sandbox.channels.list_all():
        for product, hub in channels.streams.items():
            for connection in hub:
                yield {
                    "product": product,
                    "number": connection.number,
                    "opened_at": format_time(connection.opened_at),
                    "sent": connection.sent,
                    "queued": connection.queued,
                    "stalled": connection.stalled,
                }


_JSON = "application/json"


@cache
def _read_statements() -> Mapping[str, str]:
    """Return what rules say, by their ids; `docs/reference/rules.py` writes the file."""
    statements: dict[str, str] = json.loads(
        files("svc_async.sandbox.inspector").joinpath("rules.json").read_text("utf-8")
    )
    return statements


def make_request_row(entry: LoggedRequest) -> dict[str, Any]:
    """Return what the list shows of a request."""
    return {
        "number": entry.number,
        "time": format_milliseconds(entry.time),
        "method": entry.method,
        "path": describe_text(entry.path),
        "query": describe_text(entry.query),
        "status": entry.status,
        "seconds": entry.seconds,
        "operation": entry.operation,
        "rule": entry.rule,
        "basis": entry.basis,
        "reason": describe_text(entry.reason),
        "faults": entry.faults,
        "size": entry.size,
    }


def describe_request(entry: LoggedRequest, bodies: KeptBodies | None) -> dict[str, Any]:
    """Return everything about a request and its answer."""
    private = "/oauth" in entry.path
    whole = {
        "path": entry.path,
        "query": entry.query,
        "reason": entry.reason,
        "statement": _read_statements().get(entry.rule, ""),
        "headers": list(entry.headers.items()),
    }
    if bodies is None:
        return {**make_request_row(entry), **whole, "body": None, "answer": None}
    content_type = entry.headers.get("content-type", "")
    body = describe_body(bodies.request, content_type, private=private, size=entry.size)
    answer = None
    if bodies.answer is not None:
        headers = mask_headers({"content-type": bodies.answer_type, **bodies.answer_headers})
        answer = {
            "headers": list(headers.items()),
            "body": describe_body(bodies.answer, bodies.answer_type, private=private),
        }
    return {**make_request_row(entry), **whole, "body": body, "answer": answer}


def make_delivery_row(delivery: Delivery) -> dict[str, Any]:
    """Return what the list shows of a delivery."""
    last = delivery.attempts[-1] if delivery.attempts else None
    return {
        "id": delivery.id,
        "time": format_milliseconds(delivery.created_at),
        "event_type": describe_text(_find_event_type(delivery.event)),
        "url": describe_text(mask_url(delivery.webhook.url)),
        "state": delivery.state,
        "attempts": len(delivery.attempts),
        "status": None if last is None else last.status,
        "verdict": "" if last is None else last.verdict,
        "rule": "" if last is None else last.rule,
        "fault": _describe_fault(delivery),
    }


def describe_delivery(delivery: Delivery) -> dict[str, Any]:
    """Return everything about a delivery, with its signatures and attempts."""
    return {
        **make_delivery_row(delivery),
        "url": mask_url(delivery.webhook.url),
        "webhook_id": delivery.webhook.id,
        "event_uuid": delivery.event_uuid,
        "replay_job": delivery.replay_job,
        "body": describe_body(delivery.body, _JSON, private=False),
        "tries": [describe_attempt(attempt) for attempt in delivery.attempts],
    }


def describe_attempt(attempt: Attempt) -> dict[str, Any]:
    """Return one attempt of a delivery, or one check of a webhook."""
    return {
        "time": format_milliseconds(attempt.time),
        "occasion": attempt.occasion,
        "method": attempt.method,
        "query": mask_query(attempt.query),
        "headers": list(mask_headers(attempt.headers).items()),
        "status": attempt.status,
        "seconds": attempt.latency,
        "verdict": attempt.verdict,
        "rule": attempt.rule,
        "statement": _read_statements().get(attempt.rule, ""),
        "reason": attempt.reason,
        "answer": describe_body(attempt.answer_body, attempt.answer_headers.get("content-type", ""), private=False),
    }


def _find_event_type(event: Mapping[str, Any]) -> str:
    data = event.get("data")
    first = data[0] if isinstance(data, list) and data else data
    name = first.get("event_type") if isinstance(first, dict) else None
    if isinstance(name, str):
        return name
    return "filtered post" if "matching_rules" in event else next(iter(event), "")


def _describe_fault(delivery: Delivery) -> str:
    fault = delivery.fault
    wrong_secret = fault.sign_with is not None
    names = {
        "copy": delivery.repeated,
        "sent after the next": fault.reorder,
        "signature of another body": fault.corrupt_signature,
        "signed with another secret": wrong_secret,
        f"sent {fault.delay:g} s late": bool(fault.delay),
    }
    return ", ".join(name for name, is_so in names.items() if is_so)
