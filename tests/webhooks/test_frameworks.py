"""The ASGI application within real frameworks and servers; the pages of the documentation run the recipes."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.testclient import TestClient

from svc_async.errors import InvalidArgument, WrongState
from svc_async.webhooks import MemoryDedupe, Rejected, RejectReason, WebhookReceiver, unwrap
from svc_async.webhooks.testing import build_crc
from svc_async.webhooks.verification import ADVICE
from tests.support.deliveries import KEY, delivery
from tests.support.errors import has
from tests.support.receivers import create_sender
from tests.support.tasks import run_ready_tasks

Routes = Callable[[WebhookReceiver], list[BaseRoute]]


def build_app(receiver: WebhookReceiver, routes: Routes) -> Starlette:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with receiver:
            yield

    return Starlette(lifespan=lifespan, routes=routes(receiver))


ROUTES: dict[str, Routes] = {
    "route": lambda receiver: [Route("/hooks/svc", receiver.asgi())],
    "route with the path": lambda receiver: [Route("/hooks/svc", receiver.asgi("/hooks/svc"))],
    "mounted folder": lambda receiver: [Mount("/hooks", app=receiver.asgi("/svc"))],
    "mounted twice": lambda receiver: [Mount("/hooks", routes=[Mount("", app=receiver.asgi("/svc"))])],
    "mounted root": lambda receiver: [Mount("", app=receiver.asgi("/hooks/svc"))],
    "route in a mount": lambda receiver: [Mount("/hooks", routes=[Route("/svc", receiver.asgi())])],
}


@pytest.mark.parametrize("routes", ROUTES.values(), ids=ROUTES)
def test_a_url_is_served_without_a_redirect(routes: Routes) -> None:
    receiver = WebhookReceiver(keys=[KEY])
    seen: list[str] = []
    receiver.on("*")(lambda event, _: seen.append(event.key))
    request = delivery()
    with TestClient(build_app(receiver, routes), follow_redirects=False) as client:
        assert client.get("/hooks/svc?crc_token=a").status_code == 200
        assert client.post("/hooks/svc", content=request.body, headers=dict(request.headers)).status_code == 200
        assert client.put("/hooks/svc").status_code == 405
        assert client.get("/hooks/other?crc_token=a").status_code == 404
    assert seen == ["1"]


def test_a_mount_serves_the_url_with_a_slash() -> None:
    app = build_app(WebhookReceiver(keys=[KEY]), lambda receiver: [Mount("/hooks/svc", app=receiver.asgi())])
    with TestClient(app, follow_redirects=False) as client:
        assert client.get("/hooks/svc/?crc_token=a").status_code == 200


def test_a_path_that_repeats_the_prefix_of_its_mount_is_not_found_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    receiver = WebhookReceiver(keys=[KEY])
    app = build_app(receiver, lambda receiver: [Mount("/hooks/svc", app=receiver.asgi("/hooks/svc"))])
    with TestClient(app, follow_redirects=False) as client:
        answers = [client.get("/hooks/svc/?crc_token=a"), client.post("/hooks/svc/secret", content=b"secret")]
    assert [(answer.status_code, answer.text) for answer in answers] == [(404, "not_found")] * 2
    assert (receiver.stats.received, receiver.stats.rejected) == (2, {"not_found": 2})
    (line,) = caplog.messages
    advice = ADVICE[RejectReason.NOT_FOUND]
    assert line == f"rejected a request: not_found: {advice.cause}; {advice.next_step}"


@pytest.mark.parametrize(("how", "status"), [("body", 200), ("json", 200), ("stream", 400)])
def test_only_the_stream_of_a_request_takes_its_body_away_in_an_http_middleware(how: str, status: int) -> None:
    receiver = WebhookReceiver(keys=[KEY])
    app, request = build_app(receiver, ROUTES["route"]), delivery()

    async def read(received: Request, call_next: RequestResponseEndpoint) -> Response:
        if how == "stream":
            return await read_body(received, call_next)
        await getattr(received, how)()
        return await call_next(received)

    app.add_middleware(BaseHTTPMiddleware, dispatch=read)
    with TestClient(app) as client:
        answer = client.post("/hooks/svc", content=request.body, headers=dict(request.headers))
    assert answer.status_code == status


@pytest.mark.parametrize("root_path", ["/api", "/api/", "/hook"])
def test_a_server_behind_a_proxy_has_a_root_path(root_path: str) -> None:
    with TestClient(WebhookReceiver(keys=[KEY]).asgi("/hooks/svc"), root_path=root_path) as client:
        assert client.get("/hooks/svc?crc_token=a").status_code == 200


@pytest.mark.parametrize("path", ["hooks", "", 5, b"/hooks"])
def test_a_path_begins_with_a_slash(path: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="path")):
        WebhookReceiver(keys=[KEY]).asgi(path)


def test_a_route_to_what_makes_the_application_says_that_it_must_be_called() -> None:
    receiver = WebhookReceiver(keys=[KEY])
    app = build_app(receiver, lambda receiver: [Route("/hooks/svc", receiver.asgi)])
    with (
        TestClient(app) as client,
        pytest.raises(InvalidArgument, check=has(parameter="path")),
    ):
        client.get("/hooks/svc?crc_token=a")


@pytest.mark.parametrize("app", [Starlette(), FastAPI(), None, web.Application])
def test_an_application_of_another_framework_is_told_what_to_use(app: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="app")):
        WebhookReceiver(keys=[KEY]).attach(app, "/hooks")


@pytest.mark.parametrize("path", ["hooks", 5, None, "/{", "/{a:[}"])
def test_a_path_that_no_route_of_aiohttp_has_is_refused(path: Any) -> None:
    app = web.Application()
    with pytest.raises(InvalidArgument, check=has(parameter="path")):
        WebhookReceiver(keys=[KEY]).attach(app, path)
    assert (len(app.router.routes()), len(app.cleanup_ctx)) == (0, 0)


async def test_a_sub_application_of_aiohttp_may_be_the_whole_path() -> None:
    app, below = web.Application(), web.Application()
    WebhookReceiver(keys=[KEY]).attach(below, "")
    app.add_subapp("/hooks", below)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    assert (await create_sender(runner.addresses[0][1], "/hooks")(*build_crc())).status == 200
    await runner.cleanup()


async def read_body(request: Request, call_next: RequestResponseEndpoint) -> Response:
    async for _ in request.stream():
        pass
    return await call_next(request)


def test_a_body_that_something_else_has_read_is_no_wrong_signature() -> None:
    receiver = WebhookReceiver(keys=[KEY])
    app, request = build_app(receiver, ROUTES["route"]), delivery()
    app.add_middleware(BaseHTTPMiddleware, dispatch=read_body)
    with TestClient(app) as client:
        answer = client.post("/hooks/svc", content=request.body, headers=dict(request.headers))
    assert (answer.status_code, answer.text) == (400, "body_already_read")
    with pytest.raises(Rejected, check=has(reason=RejectReason.ALREADY_READ)):
        unwrap(b"", {**dict(request.headers), "Content-Length": "17"}, keys=[KEY])
    with pytest.raises(Rejected, check=has(reason=RejectReason.SIGNATURE_WRONG)):
        unwrap(b"", {**dict(request.headers), "Content-Length": "0"}, keys=[KEY])


async def test_a_body_that_a_middleware_of_aiohttp_has_read_is_no_wrong_signature() -> None:
    @web.middleware
    async def read(request: web.Request, handler: Handler) -> web.StreamResponse:
        await request.read()
        return await handler(request)

    app = web.Application(middlewares=[read])
    WebhookReceiver(keys=[KEY]).attach(app, "/hooks/svc")
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    answer = await create_sender(runner.addresses[0][1], "/hooks/svc")(*delivery())
    assert (answer.status, answer.body) == (400, b"body_already_read")
    await runner.cleanup()


@pytest.mark.long("needs Hypercorn, which the group `test-long` brings")
async def test_hypercorn_starts_and_drains_the_receiver() -> None:
    from hypercorn.asyncio import serve  # noqa: PLC0415 - only the group `test-long` has it
    from hypercorn.config import Config  # noqa: PLC0415 - only the group `test-long` has it

    receiver, stop, config = WebhookReceiver(keys=[KEY]), asyncio.Event(), Config()
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    config.bind, config.errorlog = [f"fd://{listening.detach()}"], None
    app: Any = receiver.asgi("/hooks/svc")
    serving = asyncio.create_task(serve(app, config, shutdown_trigger=stop.wait))
    send = create_sender(port)
    assert (await send(*build_crc())).status == 200
    assert (await send(*delivery())).status == 200
    stop.set()
    await serving
    assert receiver.stats.handled == 1
    assert not receiver.is_running


# --- event loops


def handle_once(receiver: WebhookReceiver, uuid: str) -> int:
    async def live() -> int:
        async with receiver:
            return (await receiver.handle(*delivery(uuid))).status

    return asyncio.run(live())


def test_a_receiver_runs_in_one_event_loop_after_the_other() -> None:
    receiver, seen = WebhookReceiver(keys=[KEY]), list[str]()
    receiver.on("*")(lambda event, _: seen.append(event.key))
    assert [handle_once(receiver, uuid) for uuid in ("1", "2", "1")] == [200] * 3
    assert seen == ["1", "2"]


def test_two_test_clients_may_follow_each_other() -> None:
    receiver = WebhookReceiver(keys=[KEY])
    app = build_app(receiver, ROUTES["route"])
    for uuid in ("1", "2", "3"):
        request = delivery(uuid)
        with TestClient(app) as client:
            posted = client.post("/hooks/svc", content=request.body, headers=dict(request.headers))
            assert posted.status_code == 200
    assert receiver.stats.handled == 3


def test_it_runs_again_after_an_event_loop_that_was_closed_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    dead: list[str] = []
    receiver = WebhookReceiver(keys=[KEY], dead_letter=lambda event, _: dead.append(event.key))
    hang = True

    @receiver.on("*")
    async def handler(*_: object) -> None:
        if hang:
            await asyncio.get_running_loop().create_future()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(receiver.start())
    assert loop.run_until_complete(receiver.handle(*delivery())).status == 200
    left = asyncio.all_tasks(loop)  # asyncio refers to them weakly
    with monkeypatch.context() as patched:  # not really, since Python complains of tasks that never end
        patched.setattr(loop, "is_closed", lambda: True)
        assert not receiver.is_running
        hang = False
        assert handle_once(receiver, "1") == 200
    assert dead == ["1"]
    assert (receiver.stats.handled, receiver.stats.abandoned) == (1, 1)
    for task in left:
        task.cancel()
    loop.run_until_complete(asyncio.wait(left))
    loop.close()


def test_asyncio_run_ends_a_receiver_that_was_not_closed() -> None:
    receiver = WebhookReceiver(keys=[KEY])
    asyncio.run(receiver.start())
    assert not receiver.is_running
    assert handle_once(receiver, "1") == 200


def test_a_closed_event_loop_does_not_keep_the_receiver_from_closing() -> None:
    receiver = WebhookReceiver(keys=[KEY])
    asyncio.run(receiver.start())
    asyncio.run(receiver.aclose())
    assert receiver.stats.waiting == 0


def test_what_a_closed_event_loop_has_left_is_given_up_when_the_receiver_closes() -> None:
    class Loop(asyncio.SelectorEventLoop):
        """Says that it is closed, and ends its tasks afterwards."""

        says_closed = False

        def is_closed(self) -> bool:
            return self.says_closed or super().is_closed()

    dead = list[str]()
    receiver = WebhookReceiver(keys=[KEY], dead_letter=lambda event, _: dead.append(event.key))
    receiver.on("*")(lambda *_: asyncio.Event().wait())

    async def receive() -> None:
        await receiver.start()
        assert (await receiver.handle(*delivery("1"))).status == 200

    async def end() -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.wait(left)

    loop = Loop()
    loop.run_until_complete(receive())
    loop.says_closed = True
    asyncio.run(receiver.aclose())
    assert (dead, receiver.stats.abandoned, receiver.stats.waiting) == (["1"], 1, 0)
    loop.says_closed = False
    loop.run_until_complete(end())
    loop.close()


async def test_another_event_loop_is_refused_while_it_runs() -> None:
    receiver = WebhookReceiver(keys=[KEY])
    async with receiver:
        for call in (lambda: receiver.handle(*delivery()), receiver.aclose, receiver.running().__aenter__):
            with pytest.raises(WrongState):
                await asyncio.to_thread(asyncio.run, call())
        with pytest.raises(WrongState):
            await asyncio.to_thread(asyncio.run, receiver.start())
        assert (await receiver.handle(*delivery())).status == 200


async def test_a_receiver_whose_task_was_cancelled_may_be_started_again() -> None:
    receiver = WebhookReceiver(keys=[KEY])
    await receiver.start()
    (task,) = (each for each in asyncio.all_tasks() if each.get_name() == "svc-async webhook receiver")
    task.cancel()
    await asyncio.wait({task})
    assert not receiver.is_running
    assert (await receiver.handle(*delivery())).status == 503
    async with receiver:
        assert (await receiver.handle(*delivery())).status == 200
    await receiver.aclose()


async def test_a_start_that_is_cancelled_leaves_no_task_behind() -> None:
    class Hanging(MemoryDedupe):
        left = 0

        async def __aenter__(self) -> Self:
            try:
                await go.wait()
            finally:
                self.left += 1
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

    go, store, before = asyncio.Event(), Hanging(), asyncio.all_tasks()
    receiver = WebhookReceiver(keys=[KEY], dedupe=store)
    starting = asyncio.create_task(receiver.start())
    await run_ready_tasks()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert (asyncio.all_tasks(), store.left, receiver.is_running) == (before, 1, False)
    go.set()
    async with receiver:
        assert receiver.is_running
