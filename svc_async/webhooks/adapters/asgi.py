"""The receiver as an ASGI application: for uvicorn and its like, alone or mounted."""

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from svc_async.webhooks.adapters.served import Served
from svc_async.webhooks.verification import HttpAnswer, Reason, Refused

__all__ = ["AsgiApp", "asgi_app"]

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_NOT_FOUND = HttpAnswer(404, {"content-type": "text/plain; charset=utf-8"}, b"not_found")


def asgi_app(receiver: Served, path: str | None = None) -> AsgiApp:
    """Make the application.

    Args:
        receiver: what to serve.
        path: the only path to serve, below where the application is mounted; by default every path.
    """

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        if path is not None and _path_below(scope) != path:
            await _answer(send, _NOT_FOUND)
            return
        answer = await receiver.receive(scope["method"], scope["query_string"], scope["headers"], _chunks(receive))
        await _answer(send, answer)

    async def live(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        phase = "startup"
        try:
            async with receiver.running():
                await send({"type": "lifespan.startup.complete"})
                phase = "shutdown"
                await receive()
        except Exception as error:
            await send({"type": f"lifespan.{phase}.failed", "message": type(error).__name__})
            raise
        await send({"type": "lifespan.shutdown.complete"})

    kinds = {"http": respond, "lifespan": live, "websocket": _refuse_websocket}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await kinds[scope["type"]](scope, receive, send)

    return app


async def _refuse_websocket(_: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.close"})


def _path_below(scope: Scope) -> str:
    whole: str = scope["path"]
    return whole.removeprefix(scope.get("root_path", ""))


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(Reason.BROKEN)
        more = message.get("more_body", False)
        yield message.get("body", b"")


async def _answer(send: Send, answer: HttpAnswer) -> None:
    headers = {**answer.headers, "content-length": str(len(answer.body))}
    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": fields})
    await send({"type": "http.response.body", "body": answer.body})
