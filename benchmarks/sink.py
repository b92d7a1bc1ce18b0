"""A service that only counts, in a process of its own, so that its work is not counted as the client's.

It answers a POST with the number of users in the body, found by counting one word, and a GET with one account. It
checks nothing: neither signatures nor users nor limits.
"""

import asyncio
import json
import signal
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs

__all__ = ["ACCOUNT", "ACCOUNT_ID", "Sink", "run_sink"]

ACCOUNT_ID = "18ce54d4x5t"
ACCOUNT = {
    "id": ACCOUNT_ID,
    "name": "An account of an advertiser",
    "business_name": None,
    "business_id": None,
    "timezone": "Europe/Vienna",
    "timezone_switch_at": "2026-01-10T23:00:00Z",
    "approval_status": "ACCEPTED",
    "industry_type": "RETAIL",
    "created_at": "2026-01-11T09:12:33Z",
    "updated_at": "2026-03-02T17:45:01Z",
    "deleted": False,
}
_USER = b'"email'
"""Occurs once in each user; the end of a read may cut it."""
_ROOT = Path(__file__).parents[1]


@attrs.frozen
class Sink:
    """A running sink.

    Attributes:
        url: where.
        trust: accepts its certificate; None without TLS.
        certificate: the file of the authority that issued it; empty without TLS.
    """

    url: str
    trust: ssl.SSLContext | None
    certificate: Path

    @property
    def users_url(self) -> str:
        """Where the users of an audience are sent."""
        return f"{self.url}/12/accounts/{ACCOUNT_ID}/custom_audiences/1nmth/users"

    def require_trust(self) -> ssl.SSLContext:
        """Return the context of a sink with TLS."""
        assert self.trust is not None
        return self.trust


@contextmanager
def run_sink(*, tls: bool = False) -> Iterator[Sink]:
    """Run a sink in another process."""
    with subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "benchmarks.sink", *(["--tls"] if tls else [])],
        cwd=_ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            ready = json.loads(process.stdout.readline())
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as certificate:
                certificate.write(ready["certificate"])
                certificate.flush()
                trust = ssl.create_default_context(cadata=ready["certificate"]) if tls else None
                yield Sink(ready["url"], trust, Path(certificate.name))
        finally:
            process.terminate()


class _Connection(asyncio.Protocol):
    """Reads requests of known length, one after the other."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._head = b""
        self._missing = 0
        self._users = 0
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._missing:
            self._count(data)
            return
        self._head += data
        if b"\r\n\r\n" not in self._head:
            return
        head, _, body = self._head.partition(b"\r\n\r\n")
        self._head = b""
        if head.startswith(b"GET"):
            self._answer(_ONE_ACCOUNT)
        else:
            self._begin(head, body)

    def _begin(self, head: bytes, body: bytes) -> None:
        self._missing = int(head.lower().partition(b"content-length:")[2].split(b"\r", 1)[0])
        self._users, self._tail = 0, b""
        self._count(body)

    def _count(self, data: bytes) -> None:
        self._missing -= len(data)
        seen = self._tail + data
        self._users += seen.count(_USER)
        self._tail = seen[-len(_USER) + 1 :]
        if not self._missing:
            self._answer(b'{"data":{"success_count":%d,"total_count":%d}}' % (self._users, self._users))

    def _answer(self, body: bytes) -> None:
        assert self._transport is not None
        self._transport.write(_HEAD % len(body) + body)


_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_ONE_ACCOUNT = json.dumps({"request": {"params": {}}, "data": ACCOUNT}).encode()


async def _serve(*, tls: bool) -> None:
    context, certificate = _make_certificate() if tls else (None, "")
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    print(json.dumps({"url": f"http{'s' * tls}://127.0.0.1:{port}", "certificate": certificate}), flush=True)
    await stopped.wait()
    server.close()


def _make_certificate() -> tuple[ssl.SSLContext, str]:
    import trustme  # noqa: PLC0415 - only with TLS

    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context, authority.cert_pem.bytes().decode()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(tls="--tls" in sys.argv))
