"""What the caller of a job on a cluster hears of a shard: of requests that are sent again, and of its error."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest

from svc_async._version import __version__
from svc_async.batch.report import Progress, Report, Wait
from svc_async.batch.settings import Observers
from svc_async.cluster.job import ShardTask, WorkerSettings
from svc_async.cluster.parts import ShardRows
from svc_async.cluster.runner import _ShardTotals
from svc_async.cluster.worker.shard import _Shard
from svc_async.engine.origin import SessionOrigin
from svc_async.errors import BatchError, InvalidArgument, SvcError
from svc_async.sandbox import VirtualClock
from tests.support.plans import describe


async def test_a_wait_of_a_shard_is_counted_down_while_others_announce() -> None:
    clock, heard = VirtualClock(), list[Progress]()
    totals = _ShardTotals(Observers(progress=heard.append), parts=[range(2)], now=clock.monotonic)

    def announce(shard: int, **progress: Any) -> tuple[Any, ...]:
        # Its worker has another clock, which is 1,000 seconds ahead.
        told = Progress(at=clock.monotonic() + 1_000, **progress)
        totals.add({"shard": shard, "progress": attrs.asdict(told)})
        return heard[-1].waiting, heard[-1].resend_in, heard[-1].resend_after

    wait = Wait(until=clock.monotonic() + 1_060, requests=2, after="HTTP 503", attempts=1)
    assert announce(0, wait=wait) == (2, 60, "HTTP 503")
    await clock.advance(seconds=45)
    assert announce(1, accepted=5) == (2, 15, "HTTP 503")
    await clock.advance(seconds=45)
    assert announce(1, accepted=9) == (0, None, None)


def make_shard(announce: Callable[[str, Any], None]) -> _Shard:
    settings = WorkerSettings(SessionOrigin(), "s", __version__)
    task = ShardTask(name="job", run=1, number=0, settings=settings, topic="t")
    return _Shard(task, describe("people.csv"), ShardRows([], []), announce)


async def test_a_wait_of_a_shard_is_announced_at_once() -> None:
    heard: list[Any] = []
    shard = make_shard(lambda _, message: heard.append(message["progress"]["wait"]))
    waits = [None, Wait(until=9.0, requests=1), Wait(until=9.0, requests=2), None]
    for wait in waits:
        shard._on_progress(Progress(wait=wait))
    assert heard == [wait and attrs.asdict(wait) for wait in waits]


async def test_a_shard_whose_worker_has_no_state_ends_with_that_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SVC_STATE_URL", raising=False)
    outcome = await make_shard(lambda *_: None).send()
    assert isinstance(outcome.error, InvalidArgument)
    assert (outcome.number, outcome.error.parameter, outcome.report.accepted) == (0, "SVC_STATE_URL", 0)


@pytest.mark.parametrize(
    ("cause", "report"),
    [
        (InvalidArgument("SVC_TOKEN", "is missing"), Report(read=3, accepted=1)),
        (ValueError("secret"), Report(read=3, accepted=1)),
        (None, None),
    ],
)
async def test_what_ended_a_shard_early_is_its_error_with_what_was_sent(
    monkeypatch: pytest.MonkeyPatch, cause: Exception | None, report: Report | None
) -> None:
    ended = BatchError("3 rows were not accepted", report=report)

    @asynccontextmanager
    async def end_early(_settings: WorkerSettings) -> AsyncGenerator[None]:
        raise ended from cause
        yield

    monkeypatch.setattr("svc_async.cluster.worker.shard.share_session", end_early)
    shard = make_shard(lambda *_: None)
    shard._on_progress(Progress(read=2, accepted=2))

    outcome = await shard.send()

    assert outcome.error is (cause if isinstance(cause, SvcError) else ended)
    assert (outcome.report.read, outcome.report.accepted) == ((3, 1) if report else (2, 2))
