"""The control API under `/_sandbox/`: the calls with which another process operates the sandbox.

They are not part of the service: no fault strikes them and the request log omits them. They are answered to this
machine only, and to no page of another site: the peer must be a loopback address, `Host` must name one (else a name
that resolves to this machine could be used), `Origin` must be the sandbox itself, `Sec-Fetch-Site`, which browsers add,
must not speak of another site, and a body must be JSON.
"""

import inspect
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import attrs
from aiohttp import web

from svc_async.sandbox.api import control_faults
from svc_async.sandbox.api.oauth import oauth1, pkce
from svc_async.sandbox.clock import VirtualClock
from svc_async.sandbox.context import Context
from svc_async.sandbox.push.deliveries import Delivery
from svc_async.sandbox.push.events import Event, set_paths
from svc_async.sandbox.refusal import Problem, Refusal, refuse, report_failure
from svc_async.sandbox.server.decoding import decode_object, json_field
from svc_async.sandbox.server.faults import Faults
from svc_async.sandbox.server.gatekeeping import RateLimits, is_loopback, parse_host
from svc_async.sandbox.server.reading import read_fields
from svc_async.sandbox.server.rendering import Format, OpenResponse, Reply, render_json, render_refusal
from svc_async.sandbox.server.request_log import RequestLog
from svc_async.sandbox.server.server import CONTROL_PREFIX
from svc_async.sandbox.state.store import format_time

__all__ = ["CALLS", "PROTECTION", "ControlApi", "ControlCall"]

Body = Mapping[str, Any]


@attrs.define(kw_only=True)
class ControlApi:
    """Answers the calls of the control API.

    Attributes:
        sandbox: the state that the calls work on; another one after each reset.
        reset: returns the sandbox to the state of its seed.
        calls: the table.
        run: what tells this start of the sandbox, or this reset, from the others.
    """

    sandbox: Context
    limits: RateLimits
    log: RequestLog
    faults: Faults
    reset: Callable[[], Awaitable[None]] = attrs.field(repr=False)
    calls: "Sequence[ControlCall]" = attrs.field(repr=False)
    run: str = attrs.field(factory=lambda: secrets.token_hex(8), init=False)

    def replace(self, sandbox: Context, limits: RateLimits) -> None:
        """Work on another state from now on."""
        self.sandbox, self.limits, self.run = sandbox, limits, secrets.token_hex(8)

    async def answer(self, response: OpenResponse) -> Reply | None:
        """Answer one of the calls, or refuse it; None means that the answer was written."""
        request = response.request
        try:
            _check_sender(request)
            call = self._find_call(request)
            if call.serve is not None:
                await call.serve(self, response)
                return None
            result = call.handle(self, await _read_body(request))
            if inspect.isawaitable(result):
                result = await result
            return _protect(result if isinstance(result, Reply) else Reply(200, render_json(result)))
        except Refusal as refusal:
            return _protect(render_refusal(Format.V2, refusal, None))
        except ConnectionError:
            raise
        except Exception:  # noqa: BLE001 as for the calls of the service
            failure = report_failure()
            if response.response is not None:
                response.abort()
                return None
            return _protect(render_refusal(Format.V2, failure, None))

    def _find_call(self, request: web.BaseRequest) -> "ControlCall":
        path = request.path.removeprefix(CONTROL_PREFIX)
        for call in self.calls:
            if (call.method, call.path) == (request.method, path):
                return call
        raise Refusal(404, Problem("ROUTE_NOT_FOUND", "there is no such call here"))


def _protect(reply: Reply) -> Reply:
    """Return an answer that no page of another site can read or embed."""
    return attrs.evolve(reply, headers={**reply.headers, **PROTECTION})


PROTECTION: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


def _reject(_api: ControlApi, _body: Body) -> Any:
    raise TypeError("this call is answered by `serve`")


@attrs.frozen
class ControlCall:
    """One row of the table.

    Attributes:
        path: after the prefix.
        handle: takes the API and the JSON object of the body, or the query of a GET; its result is the answer.
        serve: writes the answer itself, instead of `handle`.
    """

    method: Literal["GET", "POST"]
    path: str
    handle: Callable[[ControlApi, Body], Any | Awaitable[Any]] = _reject
    serve: Callable[[ControlApi, OpenResponse], Awaitable[None]] | None = None


def _get_field(body: Body, name: str, kind: type | tuple[type, ...] = str) -> Any:
    """Return a required field.

    Raises:
        Refusal: it is missing or of another type.
    """
    value = body.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise Refusal(400, Problem("INVALID_PARAMETER", f"{name} is missing or of the wrong kind", name))
    return value


def _get_health(api: ControlApi, _body: Body) -> Any:
    return {"status": "ok", "time": format_time(api.sandbox.clock.now()), "requests": api.log.total}


def _get_credentials(api: ControlApi, _body: Body) -> Any:
    seed = api.sandbox.seed
    return {**seed.credentials(0), **seed.get_app_keys(0), "user_id": seed.tokens[0].user_id}


def _approve(api: ControlApi, body: Body) -> Any:
    """Approve for a user, by default the first: a request token, or the authorization that a URL asks for."""
    user_id = _get_field(body, "user_id") if "user_id" in body else api.sandbox.seed.tokens[0].user_id
    if api.sandbox.store["users"].get(user_id) is None:
        raise Refusal(404, Problem("USER_NOT_FOUND", "there is no such user", "user_id"))
    if "authorization_url" in body:
        url = _get_field(body, "authorization_url")
        return {"redirect_url": pkce.approve(api.sandbox, url, user_id)}
    token = api.sandbox.grants.request_tokens.get(_get_field(body, "oauth_token"))
    if token is None:
        raise Refusal(404, Problem("TOKEN_NOT_FOUND", "there is no such request token", "oauth_token"))
    return {"oauth_verifier": oauth1.approve(api.sandbox.grants, token, user_id)}


async def _advance(api: ControlApi, body: Body) -> Any:
    seconds = _get_field(body, "seconds", (int, float))
    if not isinstance(api.sandbox.clock, VirtualClock):
        raise Refusal(409, Problem("REAL_CLOCK", "the sandbox runs on the time of the machine"))
    if not 0 <= seconds <= _LONGEST:
        raise Refusal(400, Problem("INVALID_PARAMETER", f"seconds must be from 0 to {_LONGEST}", "seconds"))
    await api.sandbox.clock.advance(seconds=seconds)
    return {"time": format_time(api.sandbox.clock.now())}


async def _trigger(api: ControlApi, body: Body) -> Any:
    event = _make_event(api, body)
    deliveries = api.sandbox.app_channels.deliveries
    before = deliveries.total
    api.sandbox.channels.publish(event)
    started = deliveries.total - before
    dropped = sum(not each.webhook.takes_deliveries for each in deliveries[-started:]) if started else 0
    await api.sandbox.clock.settle()
    return {
        "event_type": event.event_type,
        "user_id": event.user_id,
        "payload": event.payload,
        "deliveries": started,
        "dropped": dropped,
        "subscribed_users": api.sandbox.app_channels.list_subscribed_users(event.event_type),
    }


_TRIGGER = (
    json_field("event_type", "string", required=True, rule="ASM-24"),
    json_field("user_id", "string", rule="ASM-24"),
    json_field("direction", "string", enum=("sent", "received"), rule="ASM-24"),
    json_field("keyword", "string", rule="ASM-24"),
    json_field("payload", "object", rule="ASM-24"),
    json_field("set", "object", rule="ASM-24"),
)


def _make_event(api: ControlApi, body: Body) -> Event:
    """Read an event: `payload` is merged into the default payload, `set` changes single values of it."""
    fields, found = read_fields(_TRIGGER, body)
    refuse(*found)
    try:
        event = api.sandbox.channels.events.create(
            fields["event_type"],
            user_id=fields.get("user_id", api.sandbox.seed.tokens[0].user_id),
            payload=fields.get("payload"),
            direction=fields.get("direction"),
            keyword=fields.get("keyword"),
        )
        return attrs.evolve(event, payload=set_paths(event.payload, fields.get("set", {})))
    except ValueError as error:
        raise Refusal(400, Problem("INVALID_PARAMETER", str(error))) from None


def _list_deliveries(api: ControlApi, _body: Body) -> Any:
    return {"deliveries": [_show(delivery) for delivery in api.sandbox.app_channels.deliveries]}


def _show(delivery: Delivery) -> dict[str, Any]:
    return {
        "id": delivery.id,
        "webhook_id": delivery.webhook.id,
        "url": delivery.webhook.url,
        "event_uuid": delivery.event_uuid,
        "created_at": format_time(delivery.created_at),
        "state": delivery.state,
        "event": delivery.event,
        "attempts": [
            {
                "time": format_time(attempt.time),
                "status": attempt.status,
                "latency": attempt.latency,
                "verdict": attempt.verdict,
                "rule": attempt.rule,
                "reason": attempt.reason,
            }
            for attempt in delivery.attempts
        ],
    }


def _list_users(api: ControlApi, body: Body) -> Any:
    """Return some users of an audience or a do-not-reach list, in the order of addition, and where others begin."""
    audience = api.sandbox.store.audiences.get(_get_field(body, "list_id"))
    if audience is None:
        raise Refusal(404, Problem("LIST_NOT_FOUND", "there is no such audience or do-not-reach list", "list_id"))
    first = body.get("first", "0")
    if not (isinstance(first, str) and first.isascii() and first.isdigit() and len(first) <= _MOST_DIGITS):
        raise Refusal(400, Problem("INVALID_PARAMETER", "first must be a number from 0", "first"))
    members = audience.members(api.sandbox.clock.now())
    end = int(first) + _USERS_AT_ONCE
    return {
        "total": len(members),
        "users": [member.identifiers for member in members[int(first) : end]],
        "next": end if end < len(members) else None,
    }


def _list_faults(api: ControlApi, _body: Body) -> Any:
    return {"faults": [control_faults.describe(injection) for injection in api.faults.armed]}


def _disarm_fault(api: ControlApi, body: Body) -> Any:
    if not api.faults.disarm(_get_field(body, "number", int)):
        raise Refusal(404, Problem("FAULT_NOT_FOUND", "no fault with this number is armed", "number"))
    return _list_faults(api, body)


def _clear_faults(api: ControlApi, body: Body) -> Any:
    api.faults.clear()
    return _list_faults(api, body)


async def _reset(api: ControlApi, body: Body) -> Any:
    await api.reset()
    return _get_health(api, body)


_LONGEST = 10 * 365 * 86_400
_USERS_AT_ONCE = 10_000
_MOST_DIGITS = 12

CALLS: tuple[ControlCall, ...] = (
    ControlCall("GET", "health", _get_health),
    ControlCall("GET", "credentials", _get_credentials),
    ControlCall("POST", "oauth/approve", _approve),
    ControlCall("POST", "clock/advance", _advance),
    ControlCall("POST", "events", _trigger),
    ControlCall("GET", "deliveries", _list_deliveries),
    ControlCall("GET", "users", _list_users),
    ControlCall("GET", "faults", _list_faults),
    ControlCall("POST", "faults", lambda api, body: control_faults.describe(control_faults.arm(api.faults, body))),
    ControlCall("POST", "faults/disarm", _disarm_fault),
    ControlCall("POST", "faults/clear", _clear_faults),
    ControlCall("POST", "reset", _reset),
)


def _check_sender(request: web.BaseRequest) -> None:
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    origin = request.headers.get("Origin")
    host = parse_host(request.headers.getall("Host", ()))
    here = f"{request.scheme}://{request.host}"
    if not peer or not is_loopback(peer[0]) or not is_loopback(host) or origin not in (None, here):
        raise Refusal(403, Problem("FORBIDDEN", "these calls are for this machine only"))
    if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin") and not _is_visit(request):
        raise Refusal(403, Problem("FORBIDDEN", "these calls are for no page of another site"))


def _is_visit(request: web.BaseRequest) -> bool:
    """Return whether a link of another page opens this one in its place: the other page can read nothing of it."""
    wanted = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    return request.method == "GET" and all(request.headers.get(name) == value for name, value in wanted.items())


async def _read_body(request: web.BaseRequest) -> Body:
    try:
        content = await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise Refusal(413, Problem("INVALID_PARAMETER", "the body takes up to 1 MiB")) from None
    except web.RequestPayloadError:
        raise Refusal(400, Problem("INVALID_PARAMETER", "the body is not of its Content-Encoding")) from None
    if request.method == "GET":
        return dict(request.query)
    if not content:
        return {}
    if request.content_type != "application/json":
        raise Refusal(400, Problem("INVALID_PARAMETER", "the body needs Content-Type: application/json"))
    return decode_object(content)
