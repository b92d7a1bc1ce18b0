"""A service that keeps who is on each list, in a process of its own: as little as shows what a job has done.

A POST with operations adds or removes their users, by their first identifier; a GET of an account finds it. It checks
neither signatures nor rules. A GET of `/lists` returns the number of users of each list and a digest of them, by which
two lists can be compared, and when the requests of each account arrived, in seconds.
"""

import asyncio
import json
import re
import subprocess
import sys
from array import array
from collections import defaultdict
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from aiohttp import web

__all__ = ["digest_users", "run_recording_service"]

_ROOT = Path(__file__).parents[1]
_FIRST = re.compile(rb'\{"[a-z_]+":\["([0-9a-f]{64})"')
"""The first identifier of each user of a body."""
_BODY = 16_000_000


class _Lists:
    """Who is on each list."""

    def __init__(self) -> None:
        self._users: defaultdict[str, set[bytes]] = defaultdict(set)
        self._times: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))
        self._received = 0

    async def take(self, request: web.Request) -> web.Response:
        """Apply the operations of a request."""
        account, target = request.match_info["account"], request.match_info["list"]
        self._times[account].append(asyncio.get_running_loop().time())
        try:
            body = await request.read()
        except ConnectionResetError:  # the client was killed while it sent
            return web.Response(status=400)
        hashes = {bytes.fromhex(each.decode()) for each in _FIRST.findall(body)}
        count = body.count(b'{"email":["') or len(hashes)
        self._received += count
        if b'"operation_type":"Delete"' in body:
            self._users[target] -= hashes
        else:
            self._users[target] |= hashes
        data = {"success_count": count, "total_count": count}
        return web.json_response({"request": {"params": {}}, "data": data})

    async def find_account(self, request: web.Request) -> web.Response:
        """Return an account; every one exists."""
        account = {"id": request.match_info["account"], "name": "An account", "deleted": False}
        return web.json_response({"request": {"params": {}}, "data": account})

    async def describe(self, _: web.Request) -> web.Response:
        """Return what there is."""
        lists = {name: [len(users), digest_users(users)] for name, users in self._users.items()}
        times = {account: [*moments] for account, moments in self._times.items()}
        return web.json_response({"lists": lists, "received": self._received, "times": times})


def digest_users(hashes: Iterable[bytes]) -> str:
    """Return a digest of a set of users that does not depend on their order."""
    total = 0
    for each in hashes:
        total ^= int.from_bytes(sha256(each).digest())
    return f"{total:064x}"


@contextmanager
def run_recording_service() -> Generator[str]:
    """Run a service and yield its URL."""
    command = [sys.executable, "-m", "benchmarks.recording_service"]
    process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own module
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


async def _serve() -> None:
    lists = _Lists()
    app = web.Application(client_max_size=_BODY)
    app.router.add_post("/{version}/accounts/{account}/custom_audiences/{list}/users", lists.take)
    app.router.add_get("/{version}/accounts/{account}", lists.find_account)
    app.router.add_get("/lists", lists.describe)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    sys.stdout.write(json.dumps(f"http://{host}:{port}") + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve())
