"""A service in real time for a real cluster: it keeps people, loses answers and lets requests take effect late."""

import asyncio
import json
import random
import threading
from collections import Counter, deque
from collections.abc import Generator
from contextlib import contextmanager

import attrs
from aiohttp import web

__all__ = ["LiveService", "run_live_service"]

_PERIOD = 60.0


@attrs.define(eq=False)
class LiveService:
    """The people of one audience; an Update replaces the identifiers of a person, so that its order can be seen.

    Attributes:
        dice: decides what goes wrong.
        faults: the probability that the answer to a request is not the right one.
        latest: seconds after which a request that takes effect late has done so.
        limit: requests in a minute that it takes; it refuses others.
        people: the value of each key.
        fates: how often what happened.
    """

    dice: random.Random
    faults: float = 0.15
    latest: float = 3.5
    limit: int = 300
    people: dict[str, str] = attrs.field(factory=dict[str, str])
    fates: Counter[str] = attrs.field(factory=Counter[str])
    url: str = ""
    _times: deque[float] = attrs.field(factory=deque[float])
    _late: set["asyncio.Task[None]"] = attrs.field(factory=set)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Decide what becomes of a request."""
        body = await request.read()
        if not self._count():
            self.fates["over the limit"] += 1
            return web.Response(status=429)
        fate = self.dice.choice(_FATES) if self.dice.random() < self.faults else "right"
        self.fates[fate] += 1
        if fate in {"applied, connection lost", "applied, 504"}:
            self._apply(body)
        elif fate in {"late, connection lost", "late, 504"}:
            late = asyncio.create_task(self._apply_late(body))
            self._late.add(late)
            late.add_done_callback(self._late.discard)
        if fate.endswith("connection lost"):
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        if fate.endswith("504"):
            return web.Response(status=504)
        if fate == "wrong counts":
            return _answer(0, self._apply(body))
        return _answer(count := self._apply(body), count)

    async def wait(self) -> None:
        """Wait until nothing takes effect any more."""
        while self._late:
            await asyncio.wait(self._late)

    def _count(self) -> bool:
        now = asyncio.get_running_loop().time()
        while self._times and self._times[0] <= now - _PERIOD:
            self._times.popleft()
        if len(self._times) >= self.limit:
            return False
        self._times.append(now)
        return True

    async def _apply_late(self, body: bytes) -> None:
        await asyncio.sleep(self.dice.uniform(0, self.latest))
        self._apply(body)

    def _apply(self, body: bytes) -> int:
        users = [
            (operation["operation_type"], user)
            for operation in json.loads(body)
            for user in operation["params"]["users"]
        ]
        for kind, user in users:
            (key, *values) = [value for several in user.values() for value in several]
            if kind == "Delete":
                self.people.pop(key, None)
            else:
                self.people[key] = " ".join(values)
        return len(users)


_FATES = (
    "nothing, connection lost",
    "nothing, 504",
    "applied, connection lost",
    "applied, 504",
    "late, connection lost",
    "late, 504",
    "wrong counts",
)


def _answer(succeeded: int, total: int) -> web.Response:
    return web.json_response({"request": {"params": {}}, "data": {"success_count": succeeded, "total_count": total}})


@contextmanager
def run_live_service(service: LiveService) -> Generator[asyncio.AbstractEventLoop]:
    """Run a service in a thread; yield its event loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{path:.*}", service.handle)

    async def start() -> web.AppRunner:
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        service.url = f"http://{host}:{port}"
        return runner

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield loop
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
