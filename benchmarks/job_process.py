"""Runs a job in a process of its own, and measures its processor time and its peak memory.

The child imports nothing but the package, so that it also measures an earlier version of it.
"""

import asyncio
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import attrs

from svc_async import Endpoints, Governor, Session, UserCredentials
from svc_async.governor.limits import LIMITS

__all__ = ["ROOT", "JobCost", "run_job"]

ROOT = Path(__file__).parents[1]
"""The checkout of these benchmarks."""


@attrs.frozen(kw_only=True)
class JobCost:
    """What a job cost.

    Attributes:
        cpu: seconds of processor time.
        seconds: elapsed ones.
        before: MiB of the process before the job, at their peak.
        peak: MiB at the peak of the job.
        finished: seconds after which each of several uploads ended.
    """

    cpu: float
    seconds: float
    before: float
    peak: float
    finished: list[float]


def run_job(
    url: str, file: Path, *, accounts: int = 1, state: Path | None = None, package: Path = ROOT, **settings: Any
) -> JobCost:
    """Upload a file to the audience of each account, or sync it if there is a state.

    Args:
        url: the service.
        file: a file of users.
        accounts: how many uploads run at once.
        state: the state of a sync.
        package: the checkout of the package to measure.
        settings: settings of the job that are not the defaults.
    """
    if state is not None:
        settings["state"] = str(state)
    options = json.dumps({"url": url, "file": str(file), "accounts": accounts, "settings": settings})
    paths = filter(None, [str(package), os.environ.get("PYTHONPATH")])
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-P", __file__, options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    return JobCost(**json.loads(done.stdout))


async def _run(url: str, file: str, accounts: int, settings: dict[str, Any]) -> list[float]:
    """Return the seconds after which each job ended."""
    credentials = UserCredentials(consumer_key="c", consumer_secret="s", token="t", token_secret="u")
    lifted = [attrs.evolve(limit, requests=10**9) for limit in LIMITS]
    endpoints = Endpoints(base_url=url, ads_url=url)
    started = time.perf_counter()

    async def run_one(number: int) -> float:
        users = session.account(f"account{number}").custom_audience("1nmth").users
        if "state" in settings:
            await users.sync(file, **settings)
        else:
            await users.upload(file, **settings)
        return time.perf_counter() - started

    async with Session(credentials, endpoints=endpoints, governor=Governor(limits=lifted)) as session:
        return await asyncio.gather(*map(run_one, range(accounts)))


def _read_peak() -> float:
    """Return this process's peak in MiB; getrusage would count the parent's, from before the exec."""
    status = Path("/proc/self/status")
    if status.exists():
        (kibibytes,) = re.findall(r"VmHWM:\s+(\d+) kB", status.read_text(encoding="ascii"))
        return int(kibibytes) / 1_024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def _load_modules(options: dict[str, Any]) -> None:
    """Do a job of one row: it imports what is imported on first use, which is no cost of the rows."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "customers.csv"
        file.write_text("email\nsomebody@example.com\n", encoding="utf-8")
        settings = {**options["settings"]}
        if "state" in settings:
            settings["state"] = f"{folder}/state"
        asyncio.run(_run(options["url"], str(file), 1, settings))


def _measure(options: dict[str, Any]) -> dict[str, Any]:
    _load_modules(options)
    before, spent, began = _read_peak(), time.process_time(), time.perf_counter()
    finished = asyncio.run(_run(**options))
    return {
        "cpu": time.process_time() - spent,
        "seconds": time.perf_counter() - began,
        "before": before,
        "peak": _read_peak(),
        "finished": finished,
    }


if __name__ == "__main__":
    print(json.dumps(_measure(json.loads(sys.argv[1]))))
