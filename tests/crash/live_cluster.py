"""Jobs on a real cluster whose workers are lost, in real time: `python -m tests.crash.live_cluster --minutes M`.

Three workers send to a service that fails. Every few seconds one of them is killed, or stopped, given up and continued
later. In the end the service must have exactly what a model says: nothing lost, nothing wrong, nothing extra, and no
request over the limit, which is so low that the jobs reach it. Two controls run with the same setting until there is
damage: one without journals, one without the fence between a worker and the one that replaces it.
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
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
from distributed import Status, Worker, WorkerPlugin

from svc_async import BatchError, Session
from svc_async.batch.journal.ledger import JournalLedger, create_ledger
from svc_async.batch.lists.user_list import USER_LIMITS
from svc_async.cluster.clients import start_local
from svc_async.governor.limits import LIMITS
from svc_async.jobs import run as jobs_run
from svc_async.state import SharedState, journals
from tests.crash.live_service import LiveService, run_live_service
from tests.support.postgres import start_postgres

__all__ = ["main", "run_live_jobs"]

_WORKERS = 3
_FILES, _ROWS, _KEYS = 6, 120, 200
_SHARDS = 6
_USERS_OF_REQUEST = 20
_QUARANTINE = 4.0
_DELAYS = (0.1,) * 30
_STOPPED = 20.0
"""Seconds for which a worker is stopped: after the grace and the quarantine, others send what it had."""
_AWAKE = 2.0


def _forget_journals() -> None:
    vars(jobs_run)["create_ledger"] = lambda _, **others: create_ledger(None, **others)


def _remove_fence() -> None:
    vars(journals)["_TAKE_UP"] = vars(journals)["_TAKE_UP"].replace("epoch + 1", "epoch")
    setattr(JournalLedger, "check_sendable", lambda _: None)  # noqa: B010 - mypy refuses to assign to a method


_CONTROLS: Mapping[str, Callable[[], None]] = MappingProxyType({"journals": _forget_journals, "fence": _remove_fence})


class _Setting(WorkerPlugin):
    """Makes the requests and the limit of workers small, and takes away what a control does without."""

    name = "setting"

    def __init__(self, limit: int, without: str | None) -> None:
        self.limit = limit
        self.without = without

    def setup(self, worker: Worker) -> None:
        del worker
        object.__setattr__(USER_LIMITS, "operations", _USERS_OF_REQUEST)
        object.__setattr__(LIMITS[0], "requests", self.limit)
        if self.without is not None:
            _CONTROLS[self.without]()


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
            start_local(_WORKERS) as client,
            SharedState.open(url, schema=f"crash_{seed}_{time.time_ns()}") as state,
            Session.from_env(state=state) as session,
        ):
            await client.register_plugin(_Setting(service.limit, without))
            campaign = _Campaign(client, session, service, random.Random(seed), pause, stops)
            losing = asyncio.create_task(campaign.lose_workers())
            while time.monotonic() < until and not (without and _count_damage(campaign.totals)):
                await campaign.run_job(until + seconds)
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(service.wait(), loop))
            losing.cancel()
    return {**campaign.totals, **{f"service: {name}": count for name, count in sorted(service.fates.items())}}


def _count_damage(totals: Mapping[str, int]) -> int:
    return sum(totals.get(what, 0) for what in ("lost", "wrong", "extra"))


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
            if self.dice.random() < self.stops and not self._stopped:
                self._tasks.add(asyncio.create_task(self._stop(nanny)))
            elif _signal(nanny.pid, signal.SIGKILL):
                self.totals["workers killed"] += 1

    async def _stop(self, nanny: Any) -> None:
        """Stop a worker, have the scheduler give it up, continue it when others have its shards, and kill it then."""
        process, address = nanny.pid, nanny.worker_address
        self._stopped.add(process)
        if _signal(process, signal.SIGSTOP):
            self.totals["workers stopped"] += 1
            await self.client.cluster.scheduler.remove_worker(address, stimulus_id="campaign", close=False)
            await asyncio.sleep(_STOPPED)
            _signal(process, signal.SIGCONT)
            await asyncio.sleep(_AWAKE)
            _signal(process, signal.SIGKILL)
            await self._replace(nanny)
        self._stopped.discard(process)

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
    parser = argparse.ArgumentParser(prog="python -m tests.crash.live_cluster")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--pause", type=float, default=5.0, help="seconds from one lost worker to the next")
    parser.add_argument("--stops", type=float, default=0.25, help="share of lost workers that are stopped, not killed")
    parser.add_argument("--only", choices=["protected", *_CONTROLS])
    options = parser.parse_args(arguments)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    good = True
    for part in [options.only] if options.only else ["protected", *_CONTROLS]:
        without = None if part == "protected" else part
        found = asyncio.run(
            run_live_jobs(
                seed=options.seed,
                seconds=60 * options.minutes,
                pause=options.pause,
                stops=options.stops,
                without=without,
            )
        )
        sys.stdout.write(f"{'protected' if without is None else f'without {without}'}: {json.dumps(found)}\n")
        sys.stdout.flush()
        good = good and (bool(_count_damage(found)) if without else not any(found.get(what) for what in _BAD))
    sys.stdout.write("all is as it must be\n" if good else "NOT all is as it must be\n")
    return 0 if good else 1


_BAD = (
    "lost",
    "wrong",
    "extra",
    "rows that failed",
    "reports that do not add up",
    "jobs that did not end",
    "service: over the limit",
)

if __name__ == "__main__":
    sys.exit(main())
