"""The receiver in an aiohttp application; the only importer of aiohttp's server outside the sandbox."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from svc_async.errors import InvalidArgument
from svc_async.value_rules import instance_of
from svc_async.webhooks.adapters.receiver import PATH, Receiver
from svc_async.webhooks.verification import Rejected, RejectReason

__all__ = ["attach", "serve"]

_APPLICATION = instance_of(
    web.Application, "an aiohttp Application; with FastAPI, Starlette and other ASGI frameworks use receiver.asgi()"
)


def attach(app: web.Application, path: str, receiver: Receiver) -> None:
    """Serve CRC checks and deliveries at a path, and run the receiver as long as the application.

    Args:
        app: the application.
        path: the path of the route; empty in a sub-application that serves nothing else.
        receiver: the receiver.

    Raises:
        InvalidArgument: the application is none of aiohttp, or the path none of a route.
    """
    _APPLICATION.check("app", app)
    if path != "":
        PATH.check("path", path)

    async def respond(request: web.Request) -> web.Response:
        status, headers, body = await receiver.receive(
            request.method, request.rel_url.raw_query_string, request.headers.items(), _chunks(request)
        )
        return web.Response(status=status, headers=headers, body=body)

    async def run(_: web.Application) -> AsyncIterator[None]:
        async with receiver.running():
            yield

    try:
        app.router.add_route("*", path, respond)
    except ValueError:  # braces without a partner, or a wrong pattern between them
        raise InvalidArgument("path", "must be a path of a route of aiohttp") from None
    app.cleanup_ctx.append(run)


async def _chunks(request: web.Request) -> AsyncIterator[bytes]:
    try:
        async for chunk in request.content.iter_any():
            yield chunk
    except (web.RequestPayloadError, HttpProcessingError, ConnectionError):
        raise Rejected(RejectReason.BROKEN) from None


@asynccontextmanager
async def serve(receiver: Receiver, *, host: str, port: int, path: str = "/") -> AsyncGenerator[int]:
    """Serve a receiver on its own within the block.

    Args:
        receiver: the receiver.
        host: the address to listen on.
        port: the port; 0 chooses a free one.
        path: the path to serve.

    Yields:
        The port.
    """
    app = web.Application()
    attach(app, path, receiver)
    runner = web.AppRunner(app, access_log=None, auto_decompress=False)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
