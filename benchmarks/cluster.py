"""What a row costs on a cluster of this machine, beside the same upload in one process: `python -m benchmarks.cluster`.

CPU seconds are those of the processes that do the work: of the workers, or of the one process. Wall seconds count from
the call to the report. On a machine with few processors, service and database take their share of both.
"""

import argparse
import asyncio
import json
import logging
import os
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.recording_service import run_recording_service
from svc_async import Session
from svc_async.cluster.clients import start_local
from tests.support.postgres import start_postgres

_ROWS_A_GROUP = 125_000


def main() -> None:
    """Print the figures as JSON, a line for each number of workers; 0 is one process without a cluster."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--shards", type=int)
    options = parser.parse_args()
    logging.getLogger("distributed").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, start_postgres() as state_url, run_recording_service() as url:
        path = _write_customers(Path(folder), options.rows)
        names = ("CONSUMER_KEY", "CONSUMER_SECRET", "ACCESS_TOKEN", "ACCESS_TOKEN_SECRET")
        os.environ |= {"SVC_BASE_URL": url, "SVC_ADS_URL": url, "SVC_STATE_URL": state_url}
        os.environ |= {f"SVC_{name}": "bench" for name in names}
        for workers in options.workers:
            found = asyncio.run(_measure(path, options.rows, workers, options.shards))
            print(json.dumps({"workers": workers, "rows": options.rows, **found}))


def _write_customers(folder: Path, rows: int) -> Path:
    path = folder / "customers.parquet"
    schema = pa.schema({"email": pa.string()})
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, rows, _ROWS_A_GROUP):
            mails = [f"person{number}@example.com" for number in range(first, min(first + _ROWS_A_GROUP, rows))]
            writer.write_table(pa.table({"email": mails}, schema=schema), row_group_size=_ROWS_A_GROUP)
    return path


async def _measure(path: Path, rows: int, workers: int, shards: int | None) -> Mapping[str, Any]:
    async with Session.from_env() as session:
        users, state = session.account("18ce54d4x5t").custom_audience("1nmth").users, session.state
        assert state is not None
        journal = state.journal(f"bench {uuid4()}")
        if not workers:
            before, began = _read_usage(), time.monotonic()
            report = await users.upload(path, journal=journal)
            found = [_read_usage()[0] - before[0]], [_read_usage()[1]]
            return _describe(report.accepted, rows, time.monotonic() - began, *found)
        async with start_local(workers) as client:
            usage, began = await client.run(_read_usage), time.monotonic()
            report = await users.upload(path, journal=journal, cluster=client, shards=shards)
            seconds, after = time.monotonic() - began, await client.run(_read_usage)
            cpu = [after[name][0] - usage[name][0] for name in after]
            return _describe(report.accepted, rows, seconds, cpu, [each[1] for each in after.values()])


def _describe(accepted: int, rows: int, seconds: float, cpu: list[float], memory: list[float]) -> Mapping[str, Any]:
    assert accepted == rows
    return {
        "seconds": round(seconds, 2),
        "cpu_microseconds_a_row": round(sum(cpu) / rows * 1e6, 2),
        "peak_mib_of_a_worker": round(max(memory)),
    }


def _read_usage() -> tuple[float, float]:
    """Return the CPU seconds and the peak memory in MiB of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    main()
