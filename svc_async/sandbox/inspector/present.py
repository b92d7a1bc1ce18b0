"""The present of a sandbox in a few values: time, rate limits, open streams, armed faults."""

from collections.abc import Iterator
from typing import Any

from svc_async.sandbox.api import control_faults
from svc_async.sandbox.api.control import ControlApi
from svc_async.sandbox.clock import VirtualClock
from svc_async.sandbox.context import Context
from svc_async.sandbox.inspector.bodies import describe_text
from svc_async.sandbox.push.events import KINDS
from svc_async.sandbox.state.store import format_time

__all__ = ["describe_options", "describe_present"]

_GAUGES = 60


def describe_options(api: ControlApi) -> dict[str, Any]:
    """Return what the forms of the page offer; it changes with a reset only."""
    clock, sandbox = api.sandbox.clock, api.sandbox
    return {
        "run": api.run,
        "clock": clock.mode if isinstance(clock, VirtualClock) else "machine",
        "fault_kinds": [control_faults.describe_kind(kind) for kind in control_faults.KINDS],
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
