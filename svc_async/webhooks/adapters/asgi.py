"""The receiver as an ASGI application, for uvicorn and other servers, on its own or mounted."""

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from svc_async.webhooks.adapters.receiver import Receiver
from svc_async.webhooks.verification import HttpAnswer, Rejected, RejectReason

__all__ = ["AsgiApp", "asgi_app"]

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_NOT_FOUND = HttpAnswer(404, {"content-type": "text/plain; charset=utf-8"}, b"not_found")


def asgi_app(receiver: Receiver, path: str | None = None) -> AsgiApp:
    """Return an ASGI application.

    Args:
        receiver: the receiver.
        path: the only path to serve, below where the application is mounted; by default every path.
    """

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        if path is not None and _find_mounted_path(scope) != path:
            await _send_answer(send, _NOT_FOUND)
            return
        answer = await receiver.receive(scope["method"], scope["query_string"], scope["headers"], _chunks(receive))
        await _send_answer(send, answer)

    async def run_lifespan(_: Scope, receive: Receive, send: Send) -> None:
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

    by_type = {"http": respond, "lifespan": run_lifespan, "websocket": _refuse_websocket}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await by_type[scope["type"]](scope, receive, send)

    return app


async def _refuse_websocket(_: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.close"})


def _find_mounted_path(scope: Scope) -> str:
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    more_body = True
    while more_body:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Rejected(RejectReason.BROKEN)
        more_body = message.get("more_body", False)
        yield message.get("body", b"")


async def _send_answer(send: Send, answer: HttpAnswer) -> None:
    headers = {**answer.headers, "content-length": str(len(answer.body))}
    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": fields})
    await send({"type": "http.response.body", "body": answer.body})
