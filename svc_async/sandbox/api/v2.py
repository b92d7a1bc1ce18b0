"""Shared by the v2 operations: declarations, refusals, pages of lists, and the opening of streams."""

from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from svc_async.sandbox.push.channels import Product, StreamRule, Subscription
from svc_async.sandbox.push.streams import Hub, StreamRefused, Write
from svc_async.sandbox.refusal import Basis, Problem, Refusal
from svc_async.sandbox.server.decoding import integer, text, timestamp
from svc_async.sandbox.server.operations import Call, Operation
from svc_async.sandbox.server.reading import parse_time
from svc_async.sandbox.server.rendering import Format, OpenResponse

__all__ = ["CONNECT", "PAGING", "connect", "make_refusal", "operation", "paginate"]

# Unspecified: that all of them need an app's bearer token; only the webhook operations state it (ASM-62).
operation = partial(Operation, surface="base", schemes=("bearer_app",), format=Format.V2)

PAGING = (
    integer("max_results", minimum=1, maximum=1_000, rule="ASM-51"),
    text("pagination_token", rule="ASM-51"),
)
CONNECT = (
    integer("backfill_minutes", minimum=0, maximum=5, rule="ASM-58"),
    timestamp("start_time", rule="ASM-58"),
    timestamp("end_time", rule="ASM-58"),
)

_DAY = timedelta(hours=24)
_SERVER_ERRORS = 500


R = TypeVar("R", StreamRule, Subscription)


def make_refusal(
    status: int, name: str, message: str, *, rule: str, basis: Basis = Basis.PUBLIC, parameter: str | None = None
) -> Refusal:
    """Return a refusal with a named failure, which `detail` begins with (ASM-04, ASM-43)."""
    return Refusal(status, Problem(name, message, parameter), rule=rule, basis=basis)


def paginate(call: Call, found: Iterable[R], *, default: int | None) -> tuple[list[R], dict[str, Any]]:
    """Return a page of records in the order of their numbers, and its fields of `meta`."""
    token: str = call.params["pagination_token"] or "n0"
    digits = token.removeprefix("n")
    if digits == token or not (digits.isascii() and digits.isdigit()):
        raise make_refusal(400, "INVALID_PARAMETER", "pagination_token is not one of this list", rule="ASM-51")
    after = int(digits)
    rest = [record for record in found if record.number > after]
    size = call.params["max_results"] or default or len(rest)
    more = {"next_token": f"n{rest[size - 1].number}"} if len(rest) > size else {}
    return rest[:size], {"result_count": len(rest[:size]), **more}


async def connect(call: Call, response: OpenResponse, product: Product) -> None:
    """Open a stream and write to it until it ends."""
    hub = call.app_channels.streams[product]
    recorded, live = _read_recovery(call, hub)
    try:
        connection = hub.admit()
    except StreamRefused as refused:
        raise _refuse_connection(refused) from None
    watch = response.on_close(connection.leave)
    try:
        stream = await response.start(headers={"Content-Type": "application/json;charset=utf-8"})
        with response.clock.release():
            await connection.run(recorded, _translate(stream.write, call), response.abort, live=live)
    finally:
        watch.cancel()
        connection.leave()


def _translate(write: Write, call: Call) -> Write:
    """Return a function that writes lines in the words of the service."""
    dialect = call.sandbox.config.dialect
    return write if dialect is None else lambda line: write(dialect.write_json(line))


def _refuse_connection(refused: StreamRefused) -> Refusal:
    if refused.reason == "TooManyConnections":
        problem = Problem("TooManyConnections", "This stream is currently at the maximum allowed connection limit.")
        # Unspecified: all but the name (STR-02, ASM-56).
        more = {"title": "ConnectionException", "connection_issue": "TooManyConnections"}
        return Refusal(429, problem, rule="STR-02", basis=Basis.SPEC, more=more)
    status = int(refused.reason)
    rule = "STR-03" if status >= _SERVER_ERRORS else "ASM-56"
    return Refusal(status, Problem("INJECTED", "refused on purpose"), rule=rule)


def _read_recovery(call: Call, hub: Hub) -> tuple[list[bytes], bool]:
    """Return the recorded lines to send first, and whether the stream continues after them (ASM-58)."""
    backfill: int | None = call.params["backfill_minutes"]
    start: str | None = call.params["start_time"]
    end: str | None = call.params["end_time"]
    if backfill is None and start is None and end is None:
        return [], True
    if not call.sandbox.config.stream_recovery:
        raise make_refusal(403, "RecoveryNotAvailable", "the app may not recover what it missed", rule="ASM-58")
    if backfill is not None and start is None and end is None:
        return hub.list_recorded(call.now - timedelta(minutes=backfill), call.now), True
    if backfill is not None or start is None:
        problem = "start_time and end_time come without backfill_minutes, and end_time with start_time"
        raise make_refusal(400, "INVALID_PARAMETER", problem, rule="ASM-58")
    # Unspecified: a stream with an `end_time` ends there.
    since, until = parse_time(start), call.now if end is None else parse_time(end)
    if not call.now - _DAY <= since < until <= call.now:
        problem = "start_time and end_time name a span of the past 24 hours"
        raise make_refusal(400, "INVALID_PARAMETER", problem, rule="ASM-58", parameter="start_time")
    return hub.list_recorded(since, until), end is None
