"""Measures the use of the limit of 1,500 requests a minute, in virtual time, with the governor's default settings.

The service counts in fixed minutes, as the headers of its answers say, and answers 429 beyond the limit.
"""

import asyncio

import attrs

from benchmarks.fake_transport import Service, build_pipeline
from benchmarks.measure import Figure, Scale, at_least, at_most
from svc_async import Governor
from svc_async.ads.custom_audiences import USERS_BATCH
from svc_async.engine.pipeline import Pipeline
from svc_async.governor.governor import Priority
from svc_async.sandbox import VirtualClock
from svc_async.wire.route import Blocks

__all__ = ["MinuteCounter", "measure"]

_LIMIT = 1_500
_MINUTE = 60.0
_HEADROOM = 0.97
_SENDERS = 32
_LATENCIES = (0.05, 0.4, 1.0)


@attrs.define
class MinuteCounter:
    """Counts requests by the minute."""

    clock: VirtualClock
    minute: int = 0
    used: int = 0
    arrived: list[float] = attrs.field(factory=list)

    def respond(self) -> tuple[int, dict[str, str]]:
        """Count one request and return the status and headers of its answer."""
        now = self.clock.monotonic()
        self.arrived.append(now)
        minute = int(now // _MINUTE)
        if minute != self.minute:
            self.minute, self.used = minute, 0
        status = 200 if self.used < _LIMIT else 429
        self.used += status == 200
        return status, {
            "x-rate-limit-limit": str(_LIMIT),
            "x-rate-limit-remaining": str(_LIMIT - self.used),
            "x-rate-limit-reset": str(int(self.clock.now().timestamp() - now + (minute + 1) * _MINUTE)),
        }

    def count_before(self, end: float) -> int:
        """Count the requests that arrived before a time."""
        return sum(moment < end for moment in self.arrived)


def measure(scale: Scale) -> list[Figure]:
    """Measure the rate of 32 senders at three latencies."""
    minutes = scale.pick(2, 10)
    return [figure for latency in _LATENCIES for figure in asyncio.run(_measure_use(latency, minutes))]


async def _measure_use(latency: float, minutes: int) -> list[Figure]:
    clock = VirtualClock(mode="jump")
    counted = MinuteCounter(clock)
    service = Service(latency=latency, respond=counted.respond, clock=clock)
    sender = build_pipeline(service, governor=Governor(clock=clock), clock=clock).but(
        priority=Priority.BULK, max_wait=None
    )
    end = minutes * _MINUTE
    await asyncio.gather(*(_keep_sending(sender, end) for _ in range(_SENDERS)))
    share = counted.count_before(end) / (minutes * _LIMIT * _HEADROOM)
    job = f"use of limit x headroom, {1_000 * latency:g} ms latency, {minutes} minutes"
    return [
        Figure(job=job, value=100 * share, unit="%", target=at_least(99), notes={"requests": service.requests}),
        Figure(job=f"429 at {1_000 * latency:g} ms latency", value=service.refused, unit="", target=at_most(0)),
    ]


async def _keep_sending(sender: Pipeline, end: float) -> None:
    body = Blocks([b'[{"email"}]'], 11)
    request = USERS_BATCH(account_id="18ce54d4x5t", custom_audience_id="1nmth").with_body(body)
    while sender.clock.monotonic() < end:
        await sender.send(request)
