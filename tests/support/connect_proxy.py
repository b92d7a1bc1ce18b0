"""A small HTTP proxy: it opens tunnels (CONNECT), and forwards requests that name their whole URL."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import attrs

__all__ = ["ConnectProxy", "run_proxy"]


@attrs.define
class ConnectProxy:
    """A proxy that runs.

    Attributes:
        url: its URL.
        user: the user and password that it requires; without, it serves everybody.
        targets: the method, host and port of each request that it passed on.
        refused: how many requests had not the right user.
    """

    url: str = ""
    user: str | None = None
    targets: list[tuple[str, str, int]] = attrs.field(factory=list)
    refused: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
            if not self._is_admitted(head):
                self.refused += 1
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            elif method == "CONNECT":
                host, _, port = target.rpartition(":")
                self.targets.append((method, host, int(port)))
                await self._tunnel(reader, writer, host, int(port), b"")
            else:
                parts = urlsplit(target)
                self.targets.append((method, parts.hostname or "", parts.port or 80))
                await self._tunnel(reader, writer, parts.hostname or "", parts.port or 80, head)
        writer.close()

    def _is_admitted(self, head: bytes) -> bool:
        if self.user is None:
            return True
        expected = b"proxy-authorization: basic " + b64encode(self.user.encode()).lower()
        return expected in head.lower()

    async def _tunnel(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int, head: bytes
    ) -> None:
        upstream_reader, upstream = await asyncio.open_connection(host, port)
        if head:
            upstream.write(head)
        else:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        directions = {
            asyncio.ensure_future(_copy(reader, upstream)),
            asyncio.ensure_future(_copy(upstream_reader, writer)),
        }
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        for direction in directions:
            direction.cancel()
        upstream.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def run_proxy(user: str | None = None) -> AsyncGenerator[ConnectProxy]:
    """Run a proxy on a free port."""
    proxy = ConnectProxy(user=user)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    proxy.url = f"http://{f'{user}@' if user else ''}{host}:{port}"
    try:
        yield proxy
    finally:
        server.close()
