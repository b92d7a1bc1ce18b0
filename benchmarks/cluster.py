"""What a row costs on a cluster of this machine, beside the same upload in one process: `python -m benchmarks.cluster`.

Workers are compared with as many processes that know nothing of each other and upload a part of the rows each, at
once: processors that share caches, or are threads of one core, make a row cost more when all of them work, whatever the
software does. All have imported what they need, have a journal in PostgreSQL, and send to the same service. The ways
are measured in turn, several rounds of them, and what is printed last are medians.

CPU seconds are those of the processes that do the work; those of the scheduler, which runs in the process of the
caller, are printed beside them. Wall seconds count from the call to the report. On a machine with few processors,
service and database take their share of both.
"""

import argparse
import asyncio
import json
import logging
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.sink import run_sink
from svc_async import Session
from svc_async.cluster.clients import start_local
from tests.support.postgres import start_postgres

_ROWS_A_GROUP = 125_000
_PRELOAD = "svc_async.cluster.worker.preload"


@attrs.frozen(kw_only=True)
class _Cost:
    """What an upload cost.

    Attributes:
        seconds: from the call to the report.
        cpu: CPU seconds of the processes that do the work.
        scheduler: CPU seconds of the scheduler and the caller.
        peak: MiB of the largest process.
    """

    seconds: float
    cpu: float
    scheduler: float = 0.0
    peak: float

    def describe(self, rows: int) -> Mapping[str, float]:
        """Return the figures that are printed."""
        return {
            "seconds": round(self.seconds, 2),
            "cpu_microseconds_a_row": round(self.cpu / rows * 1e6, 3),
            "scheduler_microseconds_a_row": round(self.scheduler / rows * 1e6, 3),
            "peak_mib": round(self.peak),
        }


def main() -> None:
    """Print the figures as JSON: a line for each run, then one for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2], help="numbers of workers to measure")
    parser.add_argument("--processes", type=int, nargs="*", default=[1, 2], help="numbers of processes to measure")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--rows-a-group", type=int, default=_ROWS_A_GROUP, help="of the Parquet file")
    parser.add_argument("--shards", type=int)
    options = parser.parse_args()
    logging.getLogger("distributed").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, start_postgres() as state_url, run_sink() as sink:
        names = ("CONSUMER_KEY", "CONSUMER_SECRET", "ACCESS_TOKEN", "ACCESS_TOKEN_SECRET")
        os.environ |= {"SVC_BASE_URL": sink.url, "SVC_ADS_URL": sink.url, "SVC_STATE_URL": state_url}
        os.environ |= {f"SVC_{name}": "bench" for name in names}
        files = {
            count: _write_parts(Path(folder), options.rows, count, options.rows_a_group)
            for count in {1, *options.processes}
        }
        ways = [("processes", count) for count in options.processes] + [("workers", count) for count in options.workers]
        costs: dict[tuple[str, int], list[_Cost]] = {way: [] for way in ways}
        for number in range(options.rounds):
            for kind, count in ways if number % 2 else reversed(ways):
                if kind == "processes":
                    cost = _measure_processes(files[count])
                else:
                    (file,) = files[1]
                    cost = asyncio.run(_measure_workers(file, count, options.shards))
                costs[kind, count].append(cost)
                print(json.dumps({kind: count, "rows": options.rows, **cost.describe(options.rows)}), flush=True)
        _print_medians(costs, options.rows)


def _print_medians(costs: Mapping[tuple[str, int], Sequence[_Cost]], rows: int) -> None:
    for (kind, count), all_costs in costs.items():
        described = [cost.describe(rows) for cost in all_costs]
        medians = {name: statistics.median(each[name] for each in described) for name in described[0]}
        ratios: dict[str, float] = {}
        if kind == "workers":
            for name, others in (("one_process", 1), ("as_many_processes", count)):
                pairs = zip(all_costs, costs.get(("processes", others), ()), strict=False)
                if found := [cost.cpu / other.cpu for cost, other in pairs]:
                    ratios[f"cpu_by_that_of_{name}"] = round(statistics.median(found), 2)
        print(json.dumps({"median of": len(all_costs), kind: count, "rows": rows, **medians, **ratios}))


def _write_parts(folder: Path, rows: int, parts: int, rows_a_group: int) -> Sequence[Path]:
    ends = [rows * number // parts for number in range(parts + 1)]
    paths = [folder / f"customers-{parts}-{number}.parquet" for number in range(parts)]
    for path, first, end in zip(paths, ends, ends[1:], strict=False):
        _write_customers(path, first, end, rows_a_group)
    return paths


def _write_customers(path: Path, first: int, end: int, rows_a_group: int) -> None:
    schema = pa.schema({"email": pa.string()})
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(first, end, rows_a_group):
            mails = [f"person{number}@example.com" for number in range(start, min(start + rows_a_group, end))]
            writer.write_table(pa.table({"email": mails}, schema=schema), row_group_size=rows_a_group)


def _measure_processes(files: Sequence[Path]) -> _Cost:
    """Measure processes that upload a file each."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_PRELOAD])
    with ProcessPoolExecutor(len(files), mp_context=context) as pool:
        costs = list(pool.map(_measure_process, files))
    return _Cost(
        seconds=max(cost.seconds for cost in costs),
        cpu=sum(cost.cpu for cost in costs),
        peak=max(cost.peak for cost in costs),
    )


def _measure_process(file: Path) -> _Cost:
    before, began = _read_usage(), time.monotonic()
    asyncio.run(_upload(file))
    seconds, (cpu, peak) = time.monotonic() - began, _read_usage()
    return _Cost(seconds=seconds, cpu=cpu - before[0], peak=peak)


async def _measure_workers(file: Path, count: int, shards: int | None) -> _Cost:
    """Measure an upload on workers of this machine."""
    async with start_local(count) as client:
        before, own, began = await client.run(_read_usage), _read_usage(), time.monotonic()
        await _upload(file, cluster=client, shards=shards)
        seconds, after = time.monotonic() - began, await client.run(_read_usage)
        return _Cost(
            seconds=seconds,
            cpu=sum(after[name][0] - before[name][0] for name in after),
            scheduler=_read_usage()[0] - own[0],
            peak=max(peak for _, peak in after.values()),
        )


async def _upload(file: Path, **cluster: Any) -> None:
    async with Session.from_env() as session:
        users, state = session.account("18ce54d4x5t").custom_audience("1nmth").users, session.state
        assert state is not None
        report = await users.upload(file, journal=state.journal(f"bench {uuid4()}"), **cluster)
        assert report.accepted == report.read


def _read_usage() -> tuple[float, float]:
    """Return the CPU seconds and the peak memory in MiB of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    main()
