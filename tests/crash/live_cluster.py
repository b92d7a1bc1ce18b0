"""Jobs on a real cluster whose workers are killed, in real time: `python -m tests.crash.live_cluster --minutes M`.

Three workers send to a service that fails, and one of them is killed every few seconds. In the end the service must
have exactly what a model says: nothing lost, nothing wrong, nothing extra, and no request over the limit. A control
runs the same without journals.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from dask import config
from distributed import Client, LocalCluster, Worker, WorkerPlugin

from svc_async import BatchError, Session
from svc_async.batch.journal.ledger import create_ledger
from svc_async.jobs import run as jobs_run
from svc_async.state import SharedState
from tests.crash.live_service import LiveService, run_live_service
from tests.support.postgres import start_postgres

__all__ = ["main", "run_live_jobs"]

_WORKERS = 3
_FILES, _ROWS, _KEYS = 6, 600, 1_500
_SHARDS = 6
_QUARANTINE = 4.0
_DELAYS = (0.1,) * 30


class _NoJournal(WorkerPlugin):
    """Removes the journals of shards."""

    name = "no journal"

    def setup(self, worker: Worker) -> None:
        del worker
        vars(jobs_run)["create_ledger"] = lambda _, **others: create_ledger(None, **others)


async def run_live_jobs(*, seed: int, seconds: float, pause: float, journals: bool = True) -> Mapping[str, Any]:
    """Run jobs for some time and return what came of them; without journals, at most until there is damage."""
    dice = random.Random(seed)
    service = LiveService(random.Random(seed))
    totals: Counter[str] = Counter()
    until = time.monotonic() + seconds
    settings = {
        "distributed.scheduler.allowed-failures": 10_000,
        "distributed.comm.timeouts.connect": "5s",
    }
    with start_postgres() as url, run_live_service(service) as loop, config.set(settings):
        os.environ |= {
            "SVC_BASE_URL": service.url,
            "SVC_ADS_URL": service.url,
            "SVC_STATE_URL": url,
            **dict.fromkeys(
                ("SVC_CONSUMER_KEY", "SVC_CONSUMER_SECRET", "SVC_ACCESS_TOKEN", "SVC_ACCESS_TOKEN_SECRET"), "crash"
            ),
        }
        async with (
            LocalCluster(
                n_workers=_WORKERS, threads_per_worker=2, asynchronous=True, dashboard_address=None, silence_logs=50
            ) as cluster,
            Client(cluster, asynchronous=True) as client,
            SharedState.open(url, schema=f"crash_{seed}_{time.time_ns()}") as state,
            Session.from_env(state=state) as session,
        ):
            if not journals:
                await client.register_plugin(_NoJournal())
            killer = asyncio.create_task(_kill_workers(cluster, dice, totals, pause))
            while (time.monotonic() < until or not totals["jobs"]) and (journals or not _count_damage(totals)):
                await _run_job(session, client, service, dice, totals)
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(service.wait(), loop))
            killer.cancel()
    return {**totals, **{f"service: {name}": count for name, count in sorted(service.fates.items())}}


def _count_damage(totals: Mapping[str, int]) -> int:
    return sum(totals.get(what, 0) for what in ("lost", "wrong", "extra"))


async def _kill_workers(cluster: LocalCluster, dice: random.Random, totals: "Counter[str]", pause: float) -> None:
    while True:
        await asyncio.sleep(pause)
        processes = [nanny.pid for nanny in cluster.workers.values() if nanny.pid]
        if processes:
            with suppress(ProcessLookupError):
                os.kill(dice.choice(processes), signal.SIGKILL)
                totals["kills"] += 1


async def _run_job(
    session: Session, client: Client, service: LiveService, dice: random.Random, totals: "Counter[str]"
) -> None:
    state = session.state
    assert state is not None
    service.people.clear()
    name = f"job {totals['jobs']}"
    with tempfile.TemporaryDirectory() as folder:
        expected = _write_files(Path(folder), dice)
        users = session.account("a1").custom_audience("c1").users
        while True:
            try:
                report = await users.upload(
                    f"{folder}/*.jsonl",
                    journal=state.journal(name),
                    cluster=client,
                    shards=_SHARDS,
                    quarantine=_QUARANTINE,
                    retry_delays=_DELAYS,
                )
                break
            except BatchError as error:
                totals[f"ended early: {type(error.__cause__).__name__}"] += 1
    totals["jobs"] += 1
    totals["rows"] += report.read
    totals["rows that failed"] += report.failed
    totals["reports that do not add up"] += report.read != _FILES * _ROWS or report.pending != 0
    await asyncio.sleep(service.latest)
    found = dict(service.people)
    totals["lost"] += len(expected.keys() - found.keys())
    totals["extra"] += len(found.keys() - expected.keys())
    totals["wrong"] += sum(found[key] != expected[key] for key in expected.keys() & found.keys())


def _write_files(folder: Path, dice: random.Random) -> dict[str, str]:
    """Write files whose rows repeat keys with other values; return the last value of each key."""
    expected: dict[str, str] = {}
    for number in range(_FILES):
        lines = []
        for _ in range(_ROWS):
            mail, handle = f"p{dice.randrange(_KEYS)}@example.com", f"h{dice.randrange(10**9)}"
            lines.append(json.dumps({"email": mail, "handle": handle}))
            expected[_hash(mail)] = _hash(handle)
        (folder / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    return expected


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def main() -> int:
    """Run a campaign and its control; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.live_cluster")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--pause", type=float, default=20.0, help="seconds from one kill to the next")
    parser.add_argument("--no-controls", action="store_true")
    options = parser.parse_args()
    found = asyncio.run(run_live_jobs(seed=options.seed, seconds=60 * options.minutes, pause=options.pause))
    sys.stdout.write(f"{json.dumps(found, indent=1)}\n")
    sys.stdout.flush()
    good = not any(found.get(what) for what in _BAD)
    if not options.no_controls:
        control = asyncio.run(
            run_live_jobs(seed=options.seed, seconds=60 * options.minutes, pause=options.pause, journals=False)
        )
        sys.stdout.write(f"without journals: {json.dumps(control, indent=1)}\n")
        good = good and bool(_count_damage(control))
    sys.stdout.write("all is as it must be\n" if good else "NOT all is as it must be\n")
    return 0 if good else 1


_BAD = ("lost", "wrong", "extra", "rows that failed", "reports that do not add up", "service: over the limit")

if __name__ == "__main__":
    sys.exit(main())
