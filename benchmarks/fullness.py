"""Measures how well a job fills its requests, and so how many users a second the limit admits, in virtual time."""

import asyncio
from itertools import islice

import attrs

from benchmarks.data import make_emails
from benchmarks.encode_rows import count_users
from benchmarks.fake_transport import Service, build_pipeline
from benchmarks.limit_use import MinuteCounter
from benchmarks.measure import Figure, Scale, at_least, at_most
from svc_async import Columns, Governor
from svc_async.batch.settings import JobSizes
from svc_async.lists.audience_users import AudienceUsers
from svc_async.sandbox import VirtualClock

__all__ = ["measure"]

_LATENCY = 0.4
_USERS = count_users(5_000_000)
"""The users of a full request; it has fewer than 2,500 operations, so its bytes decide."""
_SLICE = JobSizes(slice_rows=4_096)
"""For the pace: the virtual clock goes on after some turns of the event loop, as if reading had taken its time."""
_BATCH = 10_000


@attrs.frozen
class _Run:
    """What a job took.

    Attributes:
        rows: how many rows it had.
        requests: how many requests it sent.
        arrived: when each arrived, and how many users it held.
    """

    rows: int
    requests: int
    arrived: list[tuple[float, int]]

    @property
    def fewest(self) -> int:
        """The fewest requests that hold the rows."""
        return -(-self.rows // _USERS)

    @property
    def pace(self) -> float:
        """Users a second, without the burst at the beginning and the last requests."""
        start, end = (len(self.arrived) * share // 10 for share in (5, 9))
        users = sum(users for _, users in self.arrived[start:end])
        return users / (self.arrived[end][0] - self.arrived[start][0])


def measure(scale: Scale) -> list[Figure]:
    """Measure jobs at the default settings, against a service that counts in fixed minutes and takes 400 ms."""
    short = asyncio.run(_upload(scale.pick(150_000, 1_000_000), JobSizes()))
    long = asyncio.run(_upload(scale.pick(2_000_000, 10_000_000), _SLICE))
    return [
        Figure(
            job=f"requests beyond the fewest, {short.rows:,} rows",
            value=short.requests - short.fewest,
            unit="",
            target=at_most(1),
            notes={"requests": short.requests, "fewest": short.fewest},
        ),
        Figure(
            job=f"requests used over the fewest, {long.rows:,} rows",
            value=long.requests * _USERS / long.rows,
            target=at_most(1.03),
            floor=f"{_USERS:,} users a request",
        ),
        Figure(
            job="users/s at 1,500 requests a minute and 400 ms",
            value=long.pace / 1e6,
            unit="M users/s",
            target=at_least(1.4),
        ),
    ]


async def _upload(rows: int, sizes: JobSizes) -> _Run:
    clock = VirtualClock(mode="jump")
    service = Service(latency=_LATENCY, respond=MinuteCounter(clock).respond, clock=clock)
    pipeline = build_pipeline(service, governor=Governor(clock=clock), clock=clock)
    users = AudienceUsers(pipeline, "18ce54d4x5t", "1nmth", sizes=sizes)
    emails = make_emails(rows)
    batches = ([list(islice(emails, _BATCH))] for _ in range(0, rows, _BATCH))
    report = await users.upload(Columns(("email",), batches))
    assert report.accepted == service.rows == rows
    return _Run(rows, service.requests, service.arrived)
