"""Jobs on a real cluster whose workers are lost, in real time (`nox -s crash-cluster`).

Three workers send to a service that fails. Every few seconds one of them is killed, or stopped directly before it sends
a request, given up, and continued when others have sent nearly all rows. In the end the service must have exactly what
a model says: nothing lost, nothing wrong, nothing extra, and no request over the limit, which is so low that the jobs
reach it. Two controls run until there is damage: one without journals, and one without the fence between a worker and
the one that replaces it, in which workers are stopped only, as in the part `stopped` that it is compared with.
"""

import argparse
import asyncio
import json
import logging
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
from dask import config
from distributed import Status

from svc_async import BatchError, Session
from svc_async.batch.report import Progress
from svc_async.cluster.clients import start_local
from svc_async.state import SharedState
from tests.campaigns.crash.live_service import LiveService, run_live_service
from tests.campaigns.crash.live_setting import CONTROLS, LiveSetting
from tests.campaigns.crash.stopping import is_stopped, request_stop
from tests.support.postgres import start_postgres
from tests.support.small_limits import read_limits

__all__ = ["main", "run_live_jobs"]

_WORKERS = 3
_FILES, _ROWS, _KEYS = 6, 120, 200
_SHARDS = 6
_USERS_OF_REQUEST = 20
_QUARANTINE = 4.0
_DELAYS = (0.1,) * 30
_NEARLY_ALL = 0.9
"""The share of the rows of a job that others have sent when a worker that was stopped is continued."""
_LONGEST_STOP = 60.0
_AWAKE = 2.0
_LONGEST_WAIT = 10.0
"""Seconds in which a worker is to send a request; one that waits for its limit is stopped there."""
_LOOK = 0.05


async def run_live_jobs(
    *, seed: int, seconds: float, pause: float, stops: float, without: str | None = None
) -> Mapping[str, Any]:
    """Run jobs for some time and return what came of them; a control, at most until there is damage."""
    service = LiveService(random.Random(seed))
    until = time.monotonic() + seconds
    with start_postgres() as url, run_live_service(service) as loop:
        os.environ |= {
            "SVC_BASE_URL": service.url,
            "SVC_ADS_URL": service.url,
            "SVC_STATE_URL": url,
            **dict.fromkeys(
                ("SVC_CONSUMER_KEY", "SVC_CONSUMER_SECRET", "SVC_ACCESS_TOKEN", "SVC_ACCESS_TOKEN_SECRET"), "crash"
            ),
        }
        async with (
            _start_cluster() as client,
            SharedState.open(url, schema=f"crash_{seed}_{time.time_ns()}") as state,
            Session.from_env(state=state) as session,
        ):
            setting = LiveSetting(users=_USERS_OF_REQUEST, requests=service.limit, without=without)
            await client.register_plugin(setting)
            assert {*(await client.run(read_limits)).values()} == {(_USERS_OF_REQUEST, service.limit)}
            campaign = _Campaign(client, session, service, random.Random(seed), pause, stops)
            losing = asyncio.create_task(campaign.lose_workers())
            while time.monotonic() < until and not (without and _count_damage(campaign.totals)):
                await campaign.run_job(until + seconds)
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(service.wait(), loop))
            losing.cancel()
    return {**campaign.totals, **{f"service: {name}": count for name, count in sorted(service.fates.items())}}


@asynccontextmanager
async def _start_cluster() -> AsyncGenerator[Any]:
    """Start a cluster that does not kill a worker 15 s after its scheduler has given it up, as one on many machines."""
    with config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}):
        async with start_local(_WORKERS) as client:
            yield client


def _count_damage(totals: Mapping[str, int]) -> int:
    return sum(totals.get(what, 0) for what in _DAMAGE)


@attrs.define
class _Campaign:
    """Jobs that run one after another, while workers are lost."""

    client: Any
    session: Session
    service: LiveService
    dice: random.Random
    pause: float
    stops: float
    totals: "Counter[str]" = attrs.field(factory=Counter[str])
    _nearly_done: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)
    _stopped: set[int] = attrs.field(factory=set[int], init=False)
    _tasks: "set[asyncio.Task[None]]" = attrs.field(factory=set, init=False)

    async def lose_workers(self) -> None:
        """Kill or stop a worker again and again."""
        while True:
            await asyncio.sleep(self.pause)
            nannies = [each for each in self.client.cluster.workers.values() if each.pid not in {None, *self._stopped}]
            if not nannies:
                continue
            nanny = self.dice.choice(nannies)
            if self.dice.random() >= self.stops:
                self.totals["workers killed"] += _signal(nanny.pid, signal.SIGKILL)
            elif not self._stopped and not self._nearly_done.is_set():
                self._tasks.add(asyncio.create_task(self._stop(nanny)))

    async def _stop(self, nanny: Any) -> None:
        """Stop a worker, have the scheduler give it up, continue it when others have its shards, and kill it then."""
        process, address = nanny.pid, nanny.worker_address
        self._stopped.add(process)
        if await self._stop_before_request(process, address):
            await self.client.cluster.scheduler.remove_worker(address, stimulus_id="campaign", close=False)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST_STOP):
                    await self._nearly_done.wait()
            _signal(process, signal.SIGCONT)
            await asyncio.sleep(_AWAKE)
            _signal(process, signal.SIGKILL)
            await self._replace(nanny)
        self._stopped.discard(process)

    async def _stop_before_request(self, process: int, address: str) -> bool:
        """Stop a worker before its next request, or wherever it is if it sends none; return whether it was there."""
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(_LONGEST_WAIT):
                await self.client.run(request_stop, workers=[address], on_error="ignore")
                while not is_stopped(process):  # noqa: ASYNC110 - nothing announces it
                    await asyncio.sleep(_LOOK)
            self.totals["workers stopped before a request"] += 1
            return True
        is_there = _signal(process, signal.SIGSTOP)
        self.totals["workers stopped elsewhere"] += is_there
        return is_there

    async def _replace(self, nanny: Any) -> None:
        """Start another worker if this one ended for good, as one does that finds out that it was given up."""
        await asyncio.sleep(_AWAKE)
        if nanny.status in {Status.closing, Status.closed}:
            self.client.cluster.scale(len(self.client.cluster.worker_spec) + 1)

    async def run_job(self, until: float) -> None:
        """Run a job to its end, however often it must be taken up, and compare what the service has."""
        state = self.session.state
        assert state is not None
        self.service.people.clear()
        self._nearly_done.clear()
        began, name = time.monotonic(), f"job {self.totals['jobs']}"
        with tempfile.TemporaryDirectory() as folder:
            expected = _write_files(Path(folder), self.dice)
            users = self.session.account("a1").custom_audience("c1").users
            while True:
                try:
                    async with asyncio.timeout(until - time.monotonic()):
                        report = await users.upload(
                            f"{folder}/*.jsonl",
                            journal=state.journal(name),
                            cluster=self.client,
                            shards=_SHARDS,
                            quarantine=_QUARANTINE,
                            retry_delays=_DELAYS,
                            users_per_operation=1,
                            progress=self._on_progress,
                        )
                    break
                except BatchError as error:
                    self.totals[f"taken up again after {type(error.__cause__).__name__}"] += 1
                except TimeoutError:
                    self.totals["jobs that did not end"] += 1
                    return
        self.totals["jobs"] += 1
        self.totals["seconds of the longest job"] = max(
            self.totals["seconds of the longest job"], round(time.monotonic() - began)
        )
        self.totals["rows"] += report.read
        self.totals["rows that failed"] += report.failed
        self.totals["reports that do not add up"] += report.read != _FILES * _ROWS or report.pending != 0
        await asyncio.sleep(self.service.latest)
        self._compare(expected, dict(self.service.people))

    def _on_progress(self, progress: Progress) -> None:
        if progress.accepted + progress.coalesced >= _NEARLY_ALL * _FILES * _ROWS:
            self._nearly_done.set()

    def _compare(self, expected: Mapping[str, str], found: Mapping[str, str]) -> None:
        self.totals["lost"] += len(expected.keys() - found.keys())
        self.totals["extra"] += len(found.keys() - expected.keys())
        self.totals["wrong"] += sum(found[key] != expected[key] for key in expected.keys() & found.keys())


def _signal(process: int, number: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(process, number)
        return True
    return False


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


def main(arguments: list[str] | None = None) -> int:
    """Run a campaign and its controls; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.crash.live_cluster")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--pause", type=float, default=5.0, help="seconds from one lost worker to the next")
    parser.add_argument("--stops", type=float, default=0.25, help="share of lost workers that are stopped, not killed")
    parser.add_argument("--only", choices=_PARTS)
    options = parser.parse_args(arguments)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    good = True
    for part in [options.only] if options.only else _PARTS:
        without = part if part in CONTROLS else None
        found = asyncio.run(
            run_live_jobs(
                seed=options.seed,
                seconds=60 * options.minutes,
                pause=options.pause,
                stops=1.0 if part in _STOPS_ONLY else options.stops,
                without=without,
            )
        )
        sys.stdout.write(f"{part if without is None else f'without {without}'}: {json.dumps(found)}\n")
        sys.stdout.flush()
        harm = _HARM.get(part, _BAD)
        good = good and any(found.get(what) for what in harm) == (without is not None)
    sys.stdout.write("all is as it must be\n" if good else "NOT all is as it must be\n")
    return 0 if good else 1


_PARTS = ("protected", "journals", "stopped", "fence")
"""What is run: with all that protects, or without one thing."""
_STOPS_ONLY = frozenset({"stopped", "fence"})
"""Workers are stopped in these, and none is killed: only a worker that is continued shows what the fence is for."""
_BAD = (
    "lost",
    "wrong",
    "extra",
    "rows that failed",
    "reports that do not add up",
    "jobs that did not end",
    "service: over the limit",
)
_DAMAGE = ("lost", "wrong", "extra")
_HARM: Mapping[str, Sequence[str]] = MappingProxyType(
    {"journals": (*_DAMAGE, "jobs that did not end"), "fence": _DAMAGE}
)
"""What a control must do. Without journals each lost worker begins its shards anew, so that a job may never end."""

if __name__ == "__main__":
    sys.exit(main())
