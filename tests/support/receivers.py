"""Receivers behind each entry point, and a client that sends any bytes."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import uvicorn
from aiohttp import web

from svc_async.webhooks import WebhookReceiver
from svc_async.webhooks.verification import HttpAnswer
from tests.support.tasks import wait_until

Fields = Mapping[str, str] | Iterable[tuple[str, str]]
Send = Callable[[str, str, Fields, bytes], Awaitable[HttpAnswer]]
EntryPoint = Callable[[WebhookReceiver], AbstractAsyncContextManager[Send]]
Server = Callable[[WebhookReceiver], AbstractAsyncContextManager[int]]

PATH = "/hooks/svc"


@asynccontextmanager
async def serve_with_aiohttp(receiver: WebhookReceiver) -> AsyncGenerator[int]:
    app = web.Application()
    receiver.attach(app, PATH)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


class _Uvicorn(uvicorn.Server):
    """A server that starts, serves and ends as uvicorn does, which looks every 0.1 seconds whether it is to end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ended = asyncio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.ended.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for each in (*self.servers, *(sockets or ())):
            each.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await wait_until(lambda: not (self.server_state.connections or self.server_state.tasks))
        await self.lifespan.shutdown()


@asynccontextmanager
async def serve_with_uvicorn(receiver: WebhookReceiver) -> AsyncGenerator[int]:
    config = uvicorn.Config(receiver.asgi(PATH), lifespan="on", log_level="critical", http="h11", ws="none")
    server = _Uvicorn(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        await wait_until(lambda: server.started or serving.done())
        try:
            yield listening.getsockname()[1]
        finally:
            server.ended.set()
            await serving


SERVERS: Mapping[str, Server] = {"aiohttp": serve_with_aiohttp, "asgi": serve_with_uvicorn}


@asynccontextmanager
async def call_directly(receiver: WebhookReceiver) -> AsyncGenerator[Send]:
    async with receiver:
        yield receiver.handle


def connect_through(server: Server) -> EntryPoint:
    @asynccontextmanager
    async def entry_point(receiver: WebhookReceiver) -> AsyncGenerator[Send]:
        async with server(receiver) as port:
            yield create_sender(port)

    return entry_point


ENTRY_POINTS: Mapping[str, EntryPoint] = {
    "handle": call_directly,
    **{name: connect_through(server) for name, server in SERVERS.items()},
}


def create_sender(port: int, path: str = PATH) -> Send:
    async def send(method: str, raw_query: str, headers: Fields, body: bytes) -> HttpAnswer:
        fields = headers.items() if isinstance(headers, Mapping) else headers
        lines = [f"{method} {path}?{raw_query} HTTP/1.1", "Host: localhost", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in fields]
        if method != "GET":
            lines.append(f"Content-Length: {len(body)}")
        return parse_answer(await exchange_raw(port, "\r\n".join([*lines, "", ""]).encode("latin-1") + body))

    return send


async def exchange_raw(port: int, request: bytes, *, then_end: bool = False) -> bytes:
    """Send bytes, and return what the server sends until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    if then_end:
        writer.write_eof()
    try:
        await writer.drain()
        return await reader.read()
    except ConnectionError:  # the server closed before it had read everything
        return b""
    finally:
        writer.close()


def parse_answer(answer: bytes) -> HttpAnswer:
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.split(": ", 1) for line in lines)
    return HttpAnswer(int(status.split()[1]), {name.lower(): value for name, value in pairs}, body)
