"""From nothing to a list on a cluster: `nox -s demo-cluster`.

It starts an embedded PostgreSQL, a service and two worker processes, writes two million customers as Parquet files,
uploads them, kills a worker on the way, and compares the list with what was computed beside it.
"""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path
from urllib.request import urlopen
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.recording_service import digest_users, run_recording_service
from svc_async import Session
from svc_async.batch.report import Progress, Report
from svc_async.cluster.clients import start_local
from svc_async.state.embedded import run_postgres

_ROWS_A_FILE = 250_000
_ROWS_A_GROUP = 125_000
_ACCOUNT, _AUDIENCE = "18ce54d4x5t", "1nmth"
_REPEATED = 50
"""Each row of this number repeats an earlier one, written differently."""


def main() -> int:
    """Run the demo and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    logging.getLogger("distributed").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, run_recording_service() as url:
        print(f"Writing {options.rows:,} customers to Parquet files ...")
        expected = _write_customers(Path(folder), options.rows)
        os.environ |= {
            "SVC_BASE_URL": url,
            "SVC_ADS_URL": url,
            **{f"SVC_{name}": "demo" for name in ("CONSUMER_KEY", "CONSUMER_SECRET", "ACCESS_TOKEN")},
            "SVC_ACCESS_TOKEN_SECRET": "demo",
        }
        began = time.monotonic()
        report = asyncio.run(_upload(f"{folder}/*.parquet", options.workers))
        seconds = time.monotonic() - began
        with urlopen(f"{url}/lists") as answer:  # noqa: S310 - our own service
            found = json.load(answer)["lists"][_AUDIENCE]
    size, digest = expected
    counts = f"{report.read:,} rows read, {report.accepted:,} accepted, {report.coalesced:,} coalesced"
    print(f"{counts} in {seconds:.0f} s.")
    if found != [size, digest] or report.read != options.rows or not report.complete:
        print(f"The list is wrong: it has {found[0]:,} users, and {size:,} were expected.")
        return 1
    print(f"The list has exactly the {size:,} users that were computed beside it, although a worker was killed.")
    return 0


def _write_customers(folder: Path, rows: int) -> tuple[int, str]:
    """Write files of customers; return how many there are, and a digest of their hashes."""
    hashes: set[bytes] = set()
    for first in range(0, rows, _ROWS_A_FILE):
        numbers = range(first, min(first + _ROWS_A_FILE, rows))
        mails = [_invent_mail(number) for number in numbers]
        hashes.update(sha256(mail.strip().lower().encode()).digest() for mail in mails)
        table = pa.table({"email": mails})
        pq.write_table(table, folder / f"customers-{first // _ROWS_A_FILE:03}.parquet", row_group_size=_ROWS_A_GROUP)
    return len(hashes), digest_users(hashes)


def _invent_mail(number: int) -> str:
    if number % _REPEATED == 0:
        return f" Person{number // 2}@Example.COM "
    return f"person{number}@example.com"


async def _upload(source: str, workers: int) -> Report:
    async with run_postgres() as state_url:
        os.environ["SVC_STATE_URL"] = state_url
        async with start_local(workers) as cluster, Session.from_env() as session:
            processes = list((await cluster.run(os.getpid)).values())
            watch = _Watch(processes[0])
            assert session.state is not None
            return (
                await session.account(_ACCOUNT)
                .custom_audience(_AUDIENCE)
                .users.upload(
                    source,
                    journal=session.state.journal(f"demo {uuid4()}"),
                    cluster=cluster,
                    quarantine=5,
                    progress=watch.show,
                )
            )


class _Watch:
    """Prints how far the job is, and kills a worker when a part of the rows is accepted."""

    def __init__(self, victim: int) -> None:
        self._victim: int | None = victim
        self._next = 0.0

    def show(self, progress: Progress) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 2
            print(f"{progress.phase}: {progress.accepted:,} of {progress.read:,} rows accepted")
        if self._victim is not None and progress.accepted:
            print(f"Killing worker process {self._victim} ...")
            os.kill(self._victim, signal.SIGKILL)
            self._victim = None


if __name__ == "__main__":
    sys.exit(main())
