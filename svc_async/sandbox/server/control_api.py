"""The calls under `/_sandbox/`, for whoever runs the sandbox: a table of a method, a path and a function.

They are not part of the service: no fault strikes them and no journal tells of them. They are answered to this machine
only, and to no page of another site: the peer must be a loopback address, `Host` must name one (else a name that leads
here could be used), `Origin` must be the sandbox itself, and a body must be JSON.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import ip_address
from typing import Any, Literal

import attrs
import msgspec
from aiohttp import web
from yarl import URL

from svc_async.sandbox.api.oauth import oauth1, pkce
from svc_async.sandbox.clock import VirtualClock
from svc_async.sandbox.context import Service
from svc_async.sandbox.push.deliveries import Delivery
from svc_async.sandbox.push.events import Event, with_paths
from svc_async.sandbox.server.params import json_field, read_fields, refuse
from svc_async.sandbox.server.rendering import Dialect, Problem, Refusal, Reply, encode, refused
from svc_async.sandbox.state.store import written

__all__ = ["CALLS", "PREFIX", "AdminCall", "answer", "wanted"]

PREFIX = "/_sandbox/"

Body = Mapping[str, Any]


@attrs.frozen
class AdminCall:
    """One row of the table.

    Attributes:
        path: after the prefix.
        handle: takes the parts of the sandbox and the JSON object that came, empty if none did; what it gives is sent.
    """

    method: Literal["GET", "POST"]
    path: str
    handle: Callable[[Service, Body], Any | Awaitable[Any]]


def wanted(body: Body, name: str, kind: type | tuple[type, ...] = str) -> Any:
    """Give a field that must be there.

    Raises:
        Refusal: it is not, or is of another kind.
    """
    value = body.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise Refusal(400, Problem("INVALID_PARAMETER", f"{name} is missing or of the wrong kind", name))
    return value


def _health(service: Service, _body: Body) -> Any:
    return {"status": "ok", "time": written(service.clock.now()), "requests": len(service.journal)}


def _credentials(service: Service, _body: Body) -> Any:
    world = service.world
    return {**world.signing(0), **world.identity(0), "user_id": world.tokens[0].user_id}


def _approve(service: Service, body: Body) -> Any:
    """Approve for a user, by default the first: a request token, or what the address of an authorize page asks."""
    user_id = wanted(body, "user_id") if "user_id" in body else service.world.tokens[0].user_id
    if service.store["users"].get(user_id) is None:
        raise Refusal(404, Problem("USER_NOT_FOUND", "there is no such user", "user_id"))
    if "authorization_url" in body:
        url = wanted(body, "authorization_url")
        return {"redirect_url": pkce.approve(service.registry, service.config, service.clock.now(), url, user_id)}
    token = service.registry.request_tokens.get(wanted(body, "oauth_token"))
    if token is None:
        raise Refusal(404, Problem("TOKEN_NOT_FOUND", "there is no such request token", "oauth_token"))
    return {"oauth_verifier": oauth1.approve(service.registry, token, user_id)}


async def _advance(service: Service, body: Body) -> Any:
    seconds = wanted(body, "seconds", (int, float))
    if not isinstance(service.clock, VirtualClock):
        raise Refusal(409, Problem("REAL_CLOCK", "the sandbox runs on the time of the machine"))
    if not 0 <= seconds <= _LONGEST:
        raise Refusal(400, Problem("INVALID_PARAMETER", f"seconds must be from 0 to {_LONGEST}", "seconds"))
    await service.clock.advance(seconds=seconds)
    return {"time": written(service.clock.now())}


async def _trigger(service: Service, body: Body) -> Any:
    event = _event(service, body)
    before = len(service.deliveries)
    service.outlets.tell(event)
    deliveries = len(service.deliveries) - before
    await service.clock.settle()
    return {
        "event_type": event.event_type,
        "user_id": event.user_id,
        "payload": event.payload,
        "deliveries": deliveries,
    }


_TRIGGER = (
    json_field("event_type", "string", required=True, rule="ASM-24"),
    json_field("user_id", "string", rule="ASM-24"),
    json_field("direction", "string", enum=("sent", "received"), rule="ASM-24"),
    json_field("keyword", "string", rule="ASM-24"),
    json_field("payload", "object", rule="ASM-24"),
    json_field("set", "object", rule="ASM-24"),
)


def _event(service: Service, body: Body) -> Event:
    """Read what happens: `set` changes what is in the usual payload, `payload` may add to it."""
    given, found = read_fields(_TRIGGER, body)
    refuse(*found)
    try:
        event = service.outlets.events.make(
            given["event_type"],
            user_id=given.get("user_id", service.world.tokens[0].user_id),
            payload=given.get("payload"),
            direction=given.get("direction"),
            keyword=given.get("keyword"),
        )
        return attrs.evolve(event, payload=with_paths(event.payload, given.get("set", {})))
    except ValueError as error:
        raise Refusal(400, Problem("INVALID_PARAMETER", str(error))) from None


def _deliveries(service: Service, _body: Body) -> Any:
    return {"deliveries": [_shown(delivery) for delivery in service.deliveries]}


def _shown(delivery: Delivery) -> dict[str, Any]:
    return {
        "id": delivery.id,
        "webhook_id": delivery.webhook.id,
        "url": delivery.webhook.url,
        "event_uuid": delivery.event_uuid,
        "created_at": written(delivery.created_at),
        "state": delivery.state,
        "event": delivery.event,
        "attempts": [
            {
                "time": written(attempt.time),
                "status": attempt.status,
                "latency": attempt.latency,
                "verdict": attempt.verdict,
                "rule": attempt.rule,
                "reason": attempt.reason,
            }
            for attempt in delivery.attempts
        ],
    }


_LONGEST = 10 * 365 * 86_400

CALLS: tuple[AdminCall, ...] = (
    AdminCall("GET", "health", _health),
    AdminCall("GET", "credentials", _credentials),
    AdminCall("POST", "oauth/approve", _approve),
    AdminCall("POST", "clock/advance", _advance),
    AdminCall("POST", "events", _trigger),
    AdminCall("GET", "deliveries", _deliveries),
)


async def answer(service: Service, request: web.BaseRequest) -> Reply:
    """Answer one of the calls, or refuse it."""
    try:
        _check_sender(request)
        call = _call(request)
        given = call.handle(service, await _body(request))
        return Reply(200, encode(await given if inspect.isawaitable(given) else given))
    except Refusal as refusal:
        return refused(Dialect.V2, refusal, None)


def _check_sender(request: web.BaseRequest) -> None:
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    origin = request.headers.get("Origin")
    here = f"{request.scheme}://{request.host}"
    if not peer or not _is_loopback(peer[0]) or not _is_loopback(_host(here)) or origin not in (None, here):
        raise Refusal(403, Problem("FORBIDDEN", "these calls are for this machine only"))


def _host(address: str) -> str:
    try:
        return URL(address).host or ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _call(request: web.BaseRequest) -> AdminCall:
    path = request.path.removeprefix(PREFIX)
    for call in CALLS:
        if (call.method, call.path) == (request.method, path):
            return call
    raise Refusal(404, Problem("ROUTE_NOT_FOUND", "there is no such call here"))


async def _body(request: web.BaseRequest) -> Body:
    try:
        content = await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise Refusal(413, Problem("INVALID_PARAMETER", "the body takes up to 1 MiB")) from None
    if request.method == "GET" or not content:
        return {}
    if request.content_type != "application/json":
        raise Refusal(400, Problem("INVALID_PARAMETER", "the body needs Content-Type: application/json"))
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refusal(400, Problem("INVALID_PARAMETER", "the body is no JSON object")) from None
