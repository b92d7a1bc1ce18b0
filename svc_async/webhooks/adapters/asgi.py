"""The receiver as an ASGI application, for uvicorn and other servers, on its own or mounted."""

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

import attrs

from svc_async.errors import SvcError
from svc_async.value_rules import instance_of, or_none
from svc_async.webhooks.adapters.receiver import PATH, Receiver
from svc_async.webhooks.dispatch import find_task, is_failure
from svc_async.webhooks.verification import HttpAnswer, Rejected, RejectReason

__all__ = ["AsgiApp"]

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_TEXT = instance_of(
    str, "a string that begins with a slash; if a framework called this, pass it receiver.asgi(), with the parentheses"
)


@attrs.frozen
class AsgiApp:
    """An ASGI application.

    It is an object and not a function, so that frameworks pass the request on instead of calling it as a view.

    Args:
        receiver: the receiver.
        path: the only path to serve, below where the application is mounted; by default every path.

    Raises:
        InvalidArgument: the path is no string that begins with a slash.
    """

    receiver: Receiver
    path: str | None = attrs.field(default=None, validator=[or_none(_TEXT), or_none(PATH)])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a connection, or the lifespan of the server."""
        serve = {"http": self._respond, "lifespan": self._run_lifespan, "websocket": _refuse_websocket}
        await serve[scope["type"]](scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.path is not None and _find_mounted_path(scope) != self.path:
            await _send_answer(send, self.receiver.reject_path())
            return
        answer = await self.receiver.receive(scope["method"], scope["query_string"], scope["headers"], _chunks(receive))
        await _send_answer(send, answer)

    async def _run_lifespan(self, _: Scope, receive: Receive, send: Send) -> None:
        await receive()
        task, phase = find_task(), "startup"
        try:
            async with self.receiver.running():
                await send({"type": "lifespan.startup.complete"})
                phase = "shutdown"
                await receive()
        except BaseException as error:
            if is_failure(error, task):
                await send({"type": f"lifespan.{phase}.failed", "message": _describe(error)})
            raise
        await send({"type": "lifespan.shutdown.complete"})


def _describe(error: BaseException) -> str:
    """Return the message of an error of the SDK, which the server prints; of another, which may tell more, its type."""
    return str(error) if isinstance(error, SvcError) else type(error).__name__


async def _refuse_websocket(_: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.close"})


def _find_mounted_path(scope: Scope) -> str:
    """Return the path below the mount; servers and frameworks differ in whether `path` contains `root_path`."""
    path: str = scope["path"]
    root = scope.get("root_path", "").rstrip("/")
    return path.removeprefix(root) if path.startswith(f"{root}/") or path == root else path


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
