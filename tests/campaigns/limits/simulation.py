"""Many processes that share one limit for hours of virtual time: on the model of the function, or on the function."""

import heapq
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from typing import TypeAlias
from uuid import UUID

import attrs

from svc_async.governor.windows import SECOND, Demand
from svc_async.state.limits.holding import Holding, Lease, LeaseRequest, SharedLimit
from tests.support.counting_service import SlidingWindow, WindowCount

__all__ = ["LeaseFunction", "Result", "Simulation", "simulate"]

LeaseFunction: TypeAlias = Callable[[LeaseRequest, int], Awaitable[Lease]]
"""Answers a request at a time."""

_EPOCH = 1_780_000_000 * SECOND
_ROUND_TRIP = SECOND // 500
_FAIR_SECONDS = 10.0
_FAIR_REQUESTS = 4


@attrs.frozen(kw_only=True)
class Simulation:
    """What is simulated.

    Attributes:
        processes: how many share the limit; each always wants more.
        seconds: of virtual time.
        limit: requests per period.
        period: in seconds.
        headroom: the share of the limit that is used on purpose.
        deaths: how many processes an hour end without a word; another takes the place of each.
        senders: how many requests each process may have in flight.
        latencies: of the answers, in seconds, one of them each.
        window: how the service counts, if not in a sliding window of this limit.
        seed: decides everything that is random.
    """

    processes: int
    seconds: float
    limit: int = 1_500
    period: float = 60.0
    headroom: float = 0.97
    deaths: float = 0.0
    senders: int = 4
    latencies: tuple[float, ...] = (0.02, 0.1, 0.4, 3.0)
    window: WindowCount | None = None
    seed: int = 1


@attrs.frozen(kw_only=True)
class Result:
    """What became of it.

    Attributes:
        simulation: what was simulated.
        sent: requests that arrived.
        refused: those over the limit of the service.
        used: the share of limit x headroom that was used.
        least_share: the least that a process got in a span of ten seconds or, if they are too many for that, in which
            each gets four; as a part of an equal share.
        leases: for each request.
    """

    simulation: Simulation
    sent: int
    refused: int
    used: float
    least_share: float
    leases: float

    def describe(self) -> str:
        """Return one line for people."""
        what = self.simulation
        return (
            f"{what.processes} processes, {what.seconds / 3600:g} virtual hours, {what.limit} in {what.period:g} s, "
            f"{what.deaths:g} deaths an hour: {self.sent} sent, {self.refused} refused, "
            f"{100 * self.used:.1f} % of limit x headroom, least share {self.least_share:.2f}, "
            f"{self.leases:.2f} leases a request"
        )


async def simulate(simulation: Simulation, lease: LeaseFunction) -> Result:
    """Simulate processes that hold leases of one bucket."""
    run = _Run(simulation, lease)
    return await run.run()


@attrs.define(eq=False)
class _Process:
    """One that sends as much as it may.

    Attributes:
        place: its number; another that takes its place has the same.
        holding: what it holds of the bucket.
        idle: how many of its senders wait.
        is_asking: a lease is on its way.
        timer: the latest timer; earlier ones are void.
    """

    place: int
    holding: Holding
    idle: int
    is_asking: bool = False
    is_alive: bool = True
    timer: int = 0


class _Run:
    """The queue of what happens, in the order of time."""

    def __init__(self, simulation: Simulation, lease: LeaseFunction) -> None:
        self.what = simulation
        self.lease = lease
        self.rng = random.Random(simulation.seed)
        self.window = simulation.window or SlidingWindow(simulation.limit, simulation.period)
        self.shared = SharedLimit(
            bucket=UUID(int=simulation.seed),
            name="simulated",
            limit=simulation.limit,
            period=round(simulation.period * SECOND),
            headroom=round(simulation.headroom * 1_000_000),
        )
        self.now = 0
        self.order = count()
        self.queue: list[tuple[int, int, Callable[[], Awaitable[None]]]] = []
        self.sent = self.refused = self.asked = 0
        share = simulation.limit * simulation.headroom / simulation.period / simulation.processes
        self.span = round(max(_FAIR_SECONDS, _FAIR_REQUESTS / share) * SECOND)
        self.share = max(_FAIR_SECONDS * share, _FAIR_REQUESTS)
        self.counts: Counter[int] = Counter()
        self.span_ends = 3 * self.span  # not while they start
        self.least = 1.0
        self.calm_from = 0

    async def run(self) -> Result:
        self.processes = [self._make_process(place) for place in range(self.what.processes)]
        for process in self.processes:
            self._call(self.rng.randrange(SECOND), partial(self._look_at, process))
        if self.what.deaths:
            self._call(self._draw_life(), self._kill_one)
        end = round(self.what.seconds * SECOND)
        while self.queue and self.queue[0][0] <= end:
            self.now, _, happen = heapq.heappop(self.queue)
            if self.now >= self.span_ends:
                self._end_span()
            await happen()
        return Result(
            simulation=self.what,
            sent=self.sent,
            refused=self.refused,
            used=self.sent / (self.what.limit * self.what.headroom * self.what.seconds / self.what.period),
            least_share=self.least,
            leases=self.asked / max(1, self.sent),
        )

    def _call(self, ticks: int, happen: Callable[[], Awaitable[None]]) -> None:
        heapq.heappush(self.queue, (self.now + ticks, next(self.order), happen))

    def _make_process(self, place: int) -> _Process:
        holding = Holding(self.shared, process=UUID(int=self.rng.getrandbits(128)))
        return _Process(place, holding, self.what.senders)

    async def _look_at(self, process: _Process) -> None:
        holding = process.holding
        if process.is_asking or not process.is_alive:
            return
        while process.idle and holding.known.closed_until <= self.now and holding.count_leased(self.now):
            self._send(process)
        if process.idle and self.now >= holding.ask_at:
            await self._ask(process, process.idle)
        elif holding.needs_report(self.now):
            await self._ask(process, None)
        else:
            process.timer = timer = next(self.order)
            due = min(holding.next_report_at(self.now), self.now + 60 * SECOND)

            async def look() -> None:
                if process.timer == timer:
                    await self._look_at(process)

            self._call(max(1, due - self.now), look)

    async def _ask(self, process: _Process, wanted: int | None) -> None:
        process.is_asking = True
        self.asked += 1
        request = process.holding.make_request(None if wanted is None else Demand(0, wanted), self.now)
        lease = await self.lease(request, _EPOCH + self.now)

        async def receive() -> None:
            process.is_asking = False
            process.holding.apply(lease, self.now)
            await self._look_at(process)

        self._call(_ROUND_TRIP, receive)

    def _send(self, process: _Process) -> None:
        process.idle -= 1
        process.holding.take(1, self.now, is_leased=True)
        latency = self.rng.choice(self.what.latencies)
        sent_at = self.now
        self.counts[process.place] += 1

        async def arrive() -> None:
            seconds = self.now / SECOND
            self.sent += 1
            is_accepted = self.window.used(seconds) < self.window.limit
            if is_accepted:
                self.window.add(seconds)
            self.refused += not is_accepted
            self._call(round(latency * SECOND / 2), partial(self._answer, process, sent_at, is_accepted=is_accepted))

        self._call(round(latency * SECOND / 2), arrive)

    async def _answer(self, process: _Process, sent_at: int, *, is_accepted: bool) -> None:
        holding = process.holding
        process.idle += 1
        holding.in_flight -= 1
        holding.usage.add_answer(1, self.now, None)
        if not is_accepted:
            holding.note_refusal(sent_at, 0, self.now, self.rng.randrange(SECOND))
        elif sent_at >= holding.generation_since:
            holding.usage.succeeded += 1
        await self._look_at(process)

    async def _kill_one(self) -> None:
        self.calm_from = self.now + 2 * self.span
        place = self.rng.randrange(len(self.processes))
        self.processes[place].is_alive = False
        self.processes[place] = fresh = self._make_process(place)
        self._call(self._draw_life(), self._kill_one)
        await self._look_at(fresh)

    def _draw_life(self) -> int:
        return round(self.rng.expovariate(self.what.deaths / 3600) * SECOND)

    def _end_span(self) -> None:
        """Note the least share of a span, unless a process died in it or before."""
        while self.now >= self.span_ends:
            self.span_ends += self.span
        if self.calm_from <= self.now - self.span:
            least = min(self.counts[place] for place in range(self.what.processes))
            self.least = min(self.least, least / self.share)
        self.counts.clear()
