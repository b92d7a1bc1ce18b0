"""How much of the limit of 1,500 requests a minute is used, in virtual time, with the governor's own settings.

The service counts in fixed minutes, as the headers of its answers say, and answers 429 to what is beyond.
"""

import asyncio
from collections.abc import Iterator

import attrs

from benchmarks import virtual
from benchmarks.data import emails
from benchmarks.fake_transport import Service, pipeline
from benchmarks.measure import Figure, Scale, at_least, at_most
from svc_async import Governor, Rows
from svc_async.ads.custom_audiences import USERS_BATCH
from svc_async.batch.lists.audience_users import AudienceUsers
from svc_async.engine.pipeline import Pipeline
from svc_async.governor.slot import Priority
from svc_async.wire.route import Blocks

__all__ = ["measure"]

_LIMIT = 1_500
_MINUTE = 60.0
_HEADROOM = 0.97
_LANES = 32
_LATENCIES = (0.05, 0.4, 1.0)
_OPERATIONS = 2_500


@attrs.define
class _Minutes:
    """Counts requests by the minute."""

    minute: int = 0
    used: int = 0
    arrived: list[float] = attrs.field(factory=list)

    def judge(self) -> tuple[int, dict[str, str]]:
        """Take one request."""
        now = asyncio.get_running_loop().time()
        self.arrived.append(now)
        minute = int(now // _MINUTE)
        if minute != self.minute:
            self.minute, self.used = minute, 0
        status = 200 if self.used < _LIMIT else 429
        self.used += status == 200
        return status, {
            "x-rate-limit-limit": str(_LIMIT),
            "x-rate-limit-remaining": str(_LIMIT - self.used),
            "x-rate-limit-reset": str(int(virtual.EPOCH.timestamp() + (minute + 1) * _MINUTE)),
        }

    def before(self, end: float) -> int:
        """Count the requests that arrived before a time."""
        return sum(moment < end for moment in self.arrived)


def measure(scale: Scale) -> list[Figure]:
    """Measure the rate of 32 lanes at three latencies, and how full the requests of a job are."""
    minutes = scale.pick(2, 10)
    return [
        *(figure for latency in _LATENCIES for figure in virtual.run(_use(latency, minutes))),
        *virtual.run(_fill(scale.pick(200_000, 1_000_000))),
    ]


async def _use(latency: float, minutes: int) -> list[Figure]:
    counted = _Minutes()
    service = Service(latency=latency, judge=counted.judge)
    clock = virtual.VirtualClock()
    lane = pipeline(service, governor=Governor(clock=clock), clock=clock).but(priority=Priority.BULK, max_wait=None)
    end = minutes * _MINUTE
    await asyncio.gather(*(_keep_sending(lane, end) for _ in range(_LANES)))
    share = counted.before(end) / (minutes * _LIMIT * _HEADROOM)
    job = f"use of limit x headroom, {1_000 * latency:g} ms latency, {minutes} minutes"
    return [
        Figure(job=job, value=100 * share, unit="%", target=at_least(99), notes={"requests": service.requests}),
        Figure(job=f"429 at {1_000 * latency:g} ms latency", value=service.refused, unit="", target=at_most(0)),
    ]


async def _keep_sending(lane: Pipeline, end: float) -> None:
    body = Blocks([b'[{"email"}]'], 11)
    request = USERS_BATCH(account_id="18ce54d4x5t", custom_audience_id="1nmth").with_body(body)
    while lane.clock.monotonic() < end:
        await lane.send(request)


async def _fill(rows: int) -> list[Figure]:
    service = Service(latency=0.4, judge=_Minutes().judge)
    clock = virtual.VirtualClock()
    users = AudienceUsers(pipeline(service, governor=Governor(clock=clock), clock=clock), "18ce54d4x5t", "1nmth")
    report = await users.upload(Rows(("email",), _rows(rows)), users_per_operation=1)
    assert report.accepted == service.rows == rows
    share = rows / (service.requests * _OPERATIONS)
    return [
        Figure(
            job=f"how full the requests of {rows:,} rows are",
            value=100 * share,
            unit="%",
            target=at_least(99),
            notes={"requests": service.requests, "least": -(-rows // _OPERATIONS), "429": service.refused},
        )
    ]


def _rows(count: int) -> Iterator[tuple[str]]:
    return ((email,) for email in emails(count))
