"""A service that keeps its own state and fails in every way, on a socket.

It knows nothing of the SDK: a request is a list of operations, a user has one `partner_user_id` and one `svc_id`, and
the state is the last `svc_id` of each. `events` counts what happens to requests, and `on_event` is called at each, in
the middle of the request.
"""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
from aiohttp import web

__all__ = ["CALM", "FAULTS", "Service", "serve"]

CALM: Mapping[str, float] = {}
FAULTS: Mapping[str, float] = {
    "429": 0.01,
    "503": 0.06,
    "reset before": 0.06,
    "reset after": 0.06,
    "late": 0.06,
    "hang before": 0.02,
    "hang after": 0.02,
    "wrong counts": 0.06,
    "unreadable": 0.04,
}
"""What may happen to a request, with its probability."""


@attrs.define
class Service:
    """The state, and what happens to requests.

    Attributes:
        faults: the faults and their probabilities.
        late: seconds after which a late request is applied.
        state: the last value of each key.
        sent: how many times each row arrived.
        faults_seen: how often each fault was chosen.
        events: how many events there were.
        on_event: called with the number of each event.
    """

    faults: Mapping[str, float]
    dice: random.Random
    late: float = 0.15
    state: dict[str, str] = attrs.field(factory=dict)
    sent: Counter[str] = attrs.field(factory=Counter)
    faults_seen: Counter[str] = attrs.field(factory=Counter)
    events: int = 0
    on_event: Callable[[int], None] = lambda _: None

    def count_event(self) -> None:
        self.events += 1
        self.on_event(self.events)

    def choose_fault(self) -> str:
        kinds = list(self.faults)
        weights = [*self.faults.values(), max(0.0, 1 - sum(self.faults.values()))]
        (kind,) = self.dice.choices([*kinds, "fine"], weights)
        self.faults_seen[kind] += 1
        return kind

    def apply(self, operations: list[Any]) -> int:
        users = [user for operation in operations for user in operation["params"]["users"]]
        self.state.update({user["partner_user_id"][0]: user["svc_id"][0] for user in users})
        return len(users)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        operations = json.loads(await request.read())
        self.sent.update(user["svc_id"][0] for operation in operations for user in operation["params"]["users"])
        self.count_event()
        kind = self.choose_fault()
        response = await _ANSWERS[kind](self, request, operations)
        self.count_event()
        return response


Answer = Callable[[Service, web.Request, list[Any]], Awaitable[web.Response]]


async def _accept(service: Service, _: web.Request, operations: list[Any]) -> web.Response:
    return _answer_counts(service.apply(operations))


async def _turn_away(_: Service, __: web.Request, ___: list[Any]) -> web.Response:
    return web.Response(status=503)


async def _limit(_: Service, __: web.Request, ___: list[Any]) -> web.Response:
    return web.Response(status=429, headers={"x-rate-limit-reset": str(int(time.time()) + 1)})


async def _reset_before(_: Service, request: web.Request, __: list[Any]) -> web.Response:
    return _break(request)


async def _reset_after(service: Service, request: web.Request, operations: list[Any]) -> web.Response:
    service.apply(operations)
    service.count_event()
    return _break(request)


async def _apply_late(service: Service, request: web.Request, operations: list[Any]) -> web.Response:
    asyncio.get_running_loop().call_later(service.late, service.apply, operations)
    return _break(request)


async def _hang_before(_: Service, __: web.Request, ___: list[Any]) -> web.Response:
    await asyncio.sleep(3600)
    raise AssertionError


async def _hang_after(service: Service, request: web.Request, operations: list[Any]) -> web.Response:
    service.apply(operations)
    service.count_event()
    return await _hang_before(service, request, operations)


async def _miscount(service: Service, _: web.Request, operations: list[Any]) -> web.Response:
    applied = service.apply(operations[: len(operations) // 2])
    return _answer_counts(applied, total=sum(len(operation["params"]["users"]) for operation in operations))


async def _answer_unreadably(service: Service, _: web.Request, operations: list[Any]) -> web.Response:
    service.apply(operations)
    return web.Response(body=b'{"data": {"success', content_type="application/json")


_ANSWERS: Mapping[str, Answer] = {
    "fine": _accept,
    "429": _limit,
    "503": _turn_away,
    "reset before": _reset_before,
    "reset after": _reset_after,
    "late": _apply_late,
    "hang before": _hang_before,
    "hang after": _hang_after,
    "wrong counts": _miscount,
    "unreadable": _answer_unreadably,
}


def _answer_counts(success: int, *, total: int | None = None) -> web.Response:
    counts = {"success_count": success, "total_count": success if total is None else total}
    return web.json_response({"request": {}, "data": counts})


def _break(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


@asynccontextmanager
async def serve(service: Service) -> AsyncIterator[str]:
    """Serve requests, and yield the address."""
    application = web.Application(client_max_size=10_000_000)
    application.router.add_post("/{path:.*}", service.handle)
    runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        (address,) = runner.addresses
        yield f"http://127.0.0.1:{address[1]}"
    finally:
        await runner.cleanup()
