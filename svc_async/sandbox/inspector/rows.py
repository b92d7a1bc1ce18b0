"""Requests and deliveries as the page shows them: a row of a list, and everything about one of them."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from svc_async.sandbox.inspector.bodies import describe_body, describe_text
from svc_async.sandbox.push.deliveries import Delivery
from svc_async.sandbox.push.outbound import Attempt
from svc_async.sandbox.server.masking import mask_headers, mask_query, mask_url
from svc_async.sandbox.server.request_log import KeptBodies, LoggedRequest
from svc_async.sandbox.state.store import format_milliseconds

__all__ = ["describe_attempt", "describe_delivery", "describe_request", "make_delivery_row", "make_request_row"]

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
