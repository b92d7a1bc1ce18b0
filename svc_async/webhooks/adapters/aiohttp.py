"""The receiver in an aiohttp application; the only importer of aiohttp's server outside the sandbox."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from svc_async.webhooks.adapters.receiver import Receiver
from svc_async.webhooks.verification import Rejected, RejectReason

__all__ = ["attach", "serve"]


def attach(app: web.Application, path: str, receiver: Receiver) -> None:
    """Serve CRC checks and deliveries at a path, and run the receiver as long as the application."""

    async def respond(request: web.Request) -> web.Response:
        status, headers, body = await receiver.receive(
            request.method, request.rel_url.raw_query_string, request.headers.items(), _chunks(request)
        )
        return web.Response(status=status, headers=headers, body=body)

    async def run(_: web.Application) -> AsyncIterator[None]:
        async with receiver.running():
            yield

    app.router.add_route("*", path, respond)
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
