"""A proxy in front of the PostgreSQL of the tests, for a network that fails."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit

import attrs
import pytest

__all__ = ["PostgresProxy", "run_postgres_proxy"]

_SYNC = b"S\0\0\0\4"
"""The message that ends a statement and its transaction, unless one was begun."""


@attrs.define(eq=False)
class PostgresProxy:
    """A proxy that passes everything on until it is told to swallow it.

    Attributes:
        url: the URL of the database behind it.
        swallowed: set when something was swallowed.
    """

    folder: str
    url: str = ""
    swallowed: asyncio.Event = attrs.field(factory=asyncio.Event)
    _known: list[asyncio.Event] = attrs.field(factory=list)
    _passes: asyncio.Event = attrs.field(factory=asyncio.Event)
    _end: bytes = b""
    _writers: set[asyncio.StreamWriter] = attrs.field(factory=set)

    def swallow(self) -> None:
        """Pass nothing on, as a network that is cut: connections stay open."""
        self._passes.clear()
        self.swallowed.clear()

    def swallow_sync(self) -> None:
        """Pass on statements without the message that ends them, as if the client stood still before sending it."""
        self._end = _SYNC
        self.swallow()

    def forget(self) -> None:
        """Pass nothing more on over the connections that are open, as a gateway that has forgotten them."""
        for known in self._known:
            known.clear()

    def heal(self) -> None:
        """Pass on what was swallowed, and what follows."""
        self._end = b""
        for passes in (self._passes, *self._known):
            passes.set()

    def cut(self) -> None:
        """Close all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        server_reader, server = await asyncio.open_unix_connection(f"{self.folder}/.s.PGSQL.5432")
        self._writers |= {writer, server}
        known = asyncio.Event()
        known.set()
        self._known.append(known)
        await asyncio.gather(self._copy(reader, server, known), self._copy(server_reader, writer, known))
        self._writers -= {writer, server}

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, known: asyncio.Event) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if not self._passes.is_set():
                    rest = self._end if data.endswith(self._end) else b""
                    if rest:
                        writer.write(data.removesuffix(rest))
                    self.swallowed.set()
                    await self._passes.wait()
                    data = rest or data
                if not known.is_set():
                    self.swallowed.set()
                    await known.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def run_postgres_proxy(postgres_url: str) -> AsyncGenerator[PostgresProxy]:
    """Run a proxy on a free port; skip the test if the server has no socket in the file system."""
    (folder,) = parse_qs(urlsplit(postgres_url).query).get("host", [""])
    if not folder:
        pytest.skip("needs the socket of the server")
    proxy = PostgresProxy(folder)
    proxy.heal()
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        proxy.url = f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable"
        yield proxy
        proxy.heal()
