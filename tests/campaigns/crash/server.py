"""An HTTP server without an event loop: a client is forked from its process, and it does nothing by itself.

It serves one client until that ends. What becomes of a request is decided by `handle`, which answers it, now or later,
breaks its connection or keeps it waiting. Whenever something has happened to a request, `on_point` is told.
"""

import heapq
import os
import random
import selectors
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from email.utils import format_datetime
from itertools import count
from typing import Any

import attrs

from tests.campaigns.crash.client import SHOW_TASKS, Death
from tests.campaigns.crash.world import World

__all__ = ["Exchange", "Hung", "Server", "Stopped"]

_LONGEST_LIFE = 60.0
"""Real seconds after which a client that has not ended is taken for hung."""


_PAUSE = 0.005
"""Real seconds between two looks at whether a client has stopped."""


_PRINT_SECONDS = 1.0
"""Real seconds for such a client to print what it waits for."""


class Hung(Exception):
    """A client did not end."""


class Stopped(Exception):
    """A client was stopped, and may be continued.

    Attributes:
        connections: its connections, which stay open.
        output: what it has written so far.
    """

    def __init__(self, connections: "list[_Connection]", output: bytes) -> None:
        super().__init__()
        self.connections = connections
        self.output = output


@attrs.define(eq=False)
class _Connection:
    """A connection of a client, and what was received on it."""

    socket: socket.socket
    port: int
    received: bytearray = attrs.field(factory=bytearray)
    closed: bool = False

    def send(self, data: bytes) -> None:
        with suppress(OSError):  # the client is dead or has given up
            self.socket.sendall(data)

    def close(self, *, reset: bool = False) -> None:
        if not self.closed and reset:
            with suppress(OSError):
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.closed = True
        self.socket.close()


@attrs.define(eq=False)
class Exchange:
    """A request, and what may be done with it; exactly one of the methods is called."""

    server: "Server"
    connection: _Connection
    method: str
    path: str
    body: bytes

    @property
    def sent_at(self) -> float:
        """When the client sent it, which is before it arrived if the client did not wait for the service."""
        return self.server.world.find_sent(self.connection.port)

    def answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None, *, copies: int = 1) -> None:
        """Answer it; with several copies, what follows is nobody's answer."""
        self.connection.send(copies * self._render(status, body, headers))
        self.server.finish()

    def cut(self, status: int, body: bytes, share: float) -> None:
        """Send a share of an answer, and close the connection."""
        whole = self._render(status, body, None)
        self.connection.send(whole[: int(share * len(whole))])
        self.server.close(self.connection)
        self.server.finish()

    def drop(self, *, reset: bool) -> None:
        """Close the connection without an answer."""
        self.server.close(self.connection, reset=reset)
        self.server.finish()

    def hold(self) -> None:
        """Never answer."""
        self.server.finish()

    def answer_in(self, seconds: float, status: int, body: bytes) -> None:
        """Answer later, by the time of the trial."""
        data = self._render(status, body, None)
        self.server.schedule(seconds, lambda: self.connection.send(data))
        self.server.finish()

    def answer_and_close(self, status: int, body: bytes, seconds: float) -> None:
        """Answer it, and later say 408 to nobody and close the connection, as some gateways do."""
        self.connection.send(self._render(status, body, None))
        goodbye = self._render(408, b"", {"connection": "close"})

        def close() -> None:
            self.connection.send(goodbye)
            self.server.close(self.connection)

        self.server.schedule(seconds, close)
        self.server.finish()

    def _render(self, status: int, body: bytes, headers: Mapping[str, str] | None) -> bytes:
        kind = "text/html" if body.startswith(b"<") else "application/json"
        now = format_datetime(self.server.world.service_now(), usegmt=True)
        fields = {"content-type": kind, "content-length": str(len(body)), "date": now, **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + body


class Server:
    """Serves the clients of one trial, one after another."""

    def __init__(self, world: World, handle: Callable[[Exchange], None]) -> None:
        self.world = world
        self.port = 0
        self.on_point: Callable[[str], None] = lambda _: None
        self._handle = handle
        self._reset_next = 0
        self._selector = selectors.DefaultSelector()
        self._connections: set[_Connection] = set()
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._listener: socket.socket | None = None
        self._listen()

    def _listen(self) -> None:
        listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self._selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))
        self._listener = listener

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def close_in_child(self) -> None:
        """Close what a forked client has no business with."""
        if self._listener is not None:
            self._listener.close()
        self._selector.close()

    def shut_down(self) -> None:
        """Stop for good."""
        self._forget_client()
        self._stop_listening()
        self._selector.close()

    def restart(self, dice: random.Random) -> None:
        """Break all connections, and then refuse others for some time, or break the next ones, too."""
        for connection in [*self._connections]:
            self.close(connection, reset=True)
        if dice.random() < 1 / 2:
            self._reset_next = dice.randrange(3)
        else:
            self._stop_listening()
            self.schedule(dice.uniform(0, 30), self._listen)

    def serve(
        self, pid: int, result: int, poke: int, death: Death | None = None, before: Stopped | None = None
    ) -> bytes:
        """Serve a client until it ends, and return what it wrote to its pipe.

        Args:
            pid: its process.
            result: the pipe of its result.
            poke: the pipe by which it says that time has gone on.
            death: where it is killed or stopped.
            before: how it stopped before, if it is continued.

        Raises:
            Hung: it did not end.
            Stopped: it was stopped.
        """
        output, ended = bytearray(before.output if before else b""), False
        self._connections.update(before.connections if before else ())
        for connection in self._connections:
            self._register(connection)

        def read_result() -> None:
            nonlocal ended
            data = os.read(result, 65536)
            output.extend(data)
            ended = not data

        self._selector.register(result, selectors.EVENT_READ, read_result)
        self._selector.register(poke, selectors.EVENT_READ, lambda: self._do_what_is_due(poke))
        try:
            for seconds in _watch(pid, death):
                for key, _ in self._selector.select(seconds):
                    if self._selector.get_map().get(key.fd) == key:  # not closed since
                        key.data()
                if ended:
                    return bytes(output)
                if death is not None and death.signal == signal.SIGSTOP and _has_stopped(pid):
                    raise Stopped(self._release_connections(), bytes(output))
            raise Hung
        finally:
            self._selector.unregister(result)
            self._selector.unregister(poke)
            self._forget_client()

    def _release_connections(self) -> "list[_Connection]":
        """Return the connections, which are neither served nor closed until their client is continued."""
        connections, self._connections = [*self._connections], set()
        for connection in connections:
            self._selector.unregister(connection.socket)
        return connections

    def _register(self, connection: _Connection) -> None:
        self._selector.register(connection.socket, selectors.EVENT_READ, lambda: self._receive(connection))

    def _forget_client(self) -> None:
        for connection in [*self._connections]:
            self.close(connection)
        self._later = []
        if self._listener is None:
            self._listen()
        self.world.due = float("inf")

    def finish(self) -> None:
        """Count a request that needs nothing more for now."""
        self.world.handled += 1

    def schedule(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something later, by the time of the trial."""
        heapq.heappush(self._later, (self.world.time + seconds, next(self._numbers), action))
        self.world.due = self._later[0][0]

    def _do_what_is_due(self, poke: int) -> None:
        os.read(poke, 4096)
        while self._later and self._later[0][0] <= self.world.time:
            heapq.heappop(self._later)[2]()
        self.world.due = self._later[0][0] if self._later else float("inf")
        self.finish()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(BlockingIOError):
            accepted, (_, port) = listener.accept()
            connection = _Connection(accepted, port)
            if self._reset_next:
                self._reset_next -= 1
                connection.close(reset=True)
                self.finish()
                return
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections.add(connection)
            self._register(connection)

    def close(self, connection: _Connection, *, reset: bool = False) -> None:
        """Close a connection."""
        if connection in self._connections:
            self._connections.discard(connection)
            self._selector.unregister(connection.socket)
        connection.close(reset=reset)

    def _receive(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(2**18)
        except OSError:
            data = b""
        if not data:
            self.close(connection)
            return
        connection.received += data
        exchange = self._parse(connection)
        if exchange is not None:
            self.on_point("received")
            self._handle(exchange)
            self.on_point("answered")

    def _parse(self, connection: _Connection) -> Exchange | None:
        head, found, rest = bytes(connection.received).partition(b"\r\n\r\n")
        if not found:
            return None
        lines = head.decode("latin-1").split("\r\n")
        fields: dict[str, Any] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            fields[name.lower()] = value.strip()
        size = int(fields.get("content-length", 0))
        if len(rest) < size:
            return None
        connection.received = bytearray(rest[size:])
        method, path, _ = lines[0].split(" ")
        return Exchange(self, connection, method, path, rest[:size])


def _watch(pid: int, death: Death | None) -> Iterator[float]:
    """Yield how long to wait for the next event, until a client must have ended; kill or stop it when it is time."""
    began = time.monotonic()
    after = death.number / 1000 if death is not None and death.place == "moment" else None
    is_stopped = death is not None and death.signal == signal.SIGSTOP
    while (lived := time.monotonic() - began) < _LONGEST_LIFE:
        if death is not None and after is not None and lived >= after:
            os.kill(pid, death.signal)
            after = None
        rest = _LONGEST_LIFE - lived if after is None else after - lived
        yield min(rest, _PAUSE) if is_stopped else rest
    os.kill(pid, SHOW_TASKS)
    time.sleep(_PRINT_SECONDS)
    os.kill(pid, signal.SIGKILL)


def _has_stopped(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # it has ended
        return False
