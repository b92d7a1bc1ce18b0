"""Measures a small GET, signed, governed and typed, against aiohttp alone; the server is another process."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

import aiohttp

from benchmarks import sink
from benchmarks.fake_transport import CREDENTIALS, lift_limits
from benchmarks.measure import Figure, Pairs, Scale, at_most
from svc_async import Endpoints, Governor, Session

__all__ = ["measure"]


def measure(scale: Scale) -> list[Figure]:
    """Measure `session.accounts.get` against `session.get(url)` and `response.json()`."""
    with sink.run_sink() as service:
        return asyncio.run(_measure(service.url, scale))


async def _measure(url: str, scale: Scale) -> list[Figure]:
    times = scale.pick(50, 1_000)
    endpoints = Endpoints(base_url=url, ads_url=url)
    async with (
        Session(CREDENTIALS, endpoints=endpoints, governor=Governor(limits=lift_limits())) as session,
        aiohttp.ClientSession() as client,
    ):

        async def ours() -> None:
            account = await session.accounts.get(sink.ACCOUNT_ID)
            assert account.id == sink.ACCOUNT_ID

        async def floor() -> None:
            async with client.get(f"{url}/12/accounts/{sink.ACCOUNT_ID}") as response:
                account = (await response.json())["data"]
            assert account["id"] == sink.ACCOUNT_ID

        pairs = await _measure_pairs(ours, floor, times, scale.pairs)
    return [
        pairs.report_cost(
            "small GET, signed and typed",
            at_most(1.5),
            floor="aiohttp, response.json()",
            notes={"microseconds": 1e6 * statistics.median(pairs.ours) / times},
        )
    ]


async def _measure_pairs(
    ours: Callable[[], Awaitable[None]], floor: Callable[[], Awaitable[None]], times: int, pairs: int
) -> Pairs:
    costs: tuple[list[float], list[float]] = ([], [])
    for index in range(pairs + 1):
        for which in (0, 1) if index % 2 else (1, 0):
            costs[which].append(await _measure_cost((ours, floor)[which], times))
    return Pairs(costs[0][1:], costs[1][1:])


async def _measure_cost(call: Callable[[], Awaitable[None]], times: int) -> float:
    started = time.process_time()
    for _ in range(times):
        await call()
    return time.process_time() - started
