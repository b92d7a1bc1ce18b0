"""A customer file becomes accepted rows over TLS; the service is another process that only counts.

The limit of 1,500 requests a minute is lifted, or the processor would have nothing to do. All ways parse the same file
with `csv.reader`. The floor hashes, joins and posts with aiohttp, one request after the other, and checks nothing. The
scripts are what one writes by hand: a loop with the common HTTP library, and a task for each request.
"""

import asyncio
import csv
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import aiohttp

from benchmarks import scripts, sink
from benchmarks.data import write_customers
from benchmarks.encode_rows import join_emails
from benchmarks.fake_transport import CREDENTIALS, lift_limits
from benchmarks.measure import USERS_PER_OPERATION, Figure, Pairs, Scale, at_least, describe_settings, measure_pairs
from svc_async import Endpoints, Governor, Session

__all__ = ["measure", "measure_scripts"]

Way = Callable[[Path, sink.Sink], int]
"""Uploads a file and returns how many rows were accepted."""


def measure(scale: Scale) -> list[Figure]:
    """Measure a file of e-mails against the floor, with 25 users an operation and with one."""
    figures = []
    for users_per_operation, target, fast in ((USERS_PER_OPERATION, 0.8, 0.9), (1, 0.75, 0.85)):
        ours, floor = (partial(way, users_per_operation) for way in (_upload_with_sdk, _upload_with_floor))
        pairs, rows = _measure_pairs(ours, floor, scale)
        figures.append(
            pairs.report_speed(
                "CSV → accepted over TLS",
                at_least(target),
                fast_target=at_least(fast),
                settings=describe_settings(users_per_operation),
                floor="csv, template join, aiohttp",
                notes={"rows_per_second": rows / statistics.median(pairs.ours)},
            )
        )
    return figures


def measure_scripts(scale: Scale) -> list[Figure]:
    """Measure two scripts on the same file, in multiples of our cost.

    They send one user an operation, which is the obvious thing to write; and 25, for comparison.
    """
    library = "requests, requests-oauthlib"
    figures = []
    for users_per_operation, target, fast in ((USERS_PER_OPERATION, 9, 11), (1, 5, 6)):
        ours = partial(_upload_with_sdk, users_per_operation)
        pairs, _ = _measure_pairs(ours, partial(scripts.upload_in_a_loop, 1), scale)
        figures.append(
            pairs.report_speed(
                "CPU of a synchronous loop over ours",
                at_least(target),
                fast_target=at_least(fast),
                settings=describe_settings(users_per_operation),
                floor=library,
            )
        )
    ours = partial(_upload_with_sdk, USERS_PER_OPERATION)
    for job, script, floor in (
        ("the same with 25 users an operation in the loop", scripts.upload_in_a_loop, library),
        (
            "CPU of a naive asyncio script over ours, both 25 an operation",
            scripts.upload_with_tasks,
            "aiohttp, oauthlib",
        ),
    ):
        pairs, _ = _measure_pairs(ours, partial(script, USERS_PER_OPERATION), scale)
        figures.append(pairs.report_speed(job, floor=floor))
    return figures


def _measure_pairs(ours: Way, floor: Way, scale: Scale) -> tuple[Pairs, int]:
    """Return the costs, and the number of rows."""
    rows = scale.pick(20_000, 400_000)
    with tempfile.TemporaryDirectory() as folder, sink.run_sink(tls=True) as service:
        file = Path(folder) / "customers.csv"
        write_customers(file, rows)

        def cost(way: Way) -> float:
            started = time.process_time()
            accepted = way(file, service)
            assert accepted == rows
            return time.process_time() - started

        return measure_pairs(lambda: cost(ours), lambda: cost(floor), scale), rows


def _upload_with_sdk(users_per_operation: int, file: Path, service: sink.Sink) -> int:
    async def upload() -> int:
        endpoints = Endpoints(base_url=service.url, ads_url=service.url)
        governor = Governor(limits=lift_limits())
        async with Session(CREDENTIALS, endpoints=endpoints, governor=governor, connector=service.trust) as session:
            users = session.account(sink.ACCOUNT_ID).custom_audience("1nmth").users
            return (await users.upload(file, users_per_operation=users_per_operation)).accepted

    return asyncio.run(upload())


def _upload_with_floor(users_per_operation: int, file: Path, service: sink.Sink) -> int:
    async def upload() -> int:
        accepted = 0
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=service.require_trust())) as client:
            with file.open(encoding="utf-8", newline="") as text:
                reader = csv.reader(text)
                next(reader)
                for body in join_emails(reader, users_per_operation):
                    async with client.post(service.users_url, data=body, headers=_JSON) as response:
                        accepted += (await response.json())["data"]["success_count"]
        return accepted

    return asyncio.run(upload())


_JSON = {"Content-Type": "application/json"}
