"""Ledgers that commit slowly, that are taken over, or that outlive the process."""

import asyncio
from array import array
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest

from svc_async.batch.destination import Destination, Verdict
from svc_async.batch.journal.file import JournalFile
from svc_async.batch.journal.journal import Job, Journal
from svc_async.batch.journal.ledger import JournalLedger, JournalPath
from svc_async.batch.lane import Lane
from svc_async.batch.lane_events import Answered, Sealed, Settle, Written
from svc_async.batch.ledger import Intent, JournalCheckpoint, Ledger, describe_lanes
from svc_async.batch.lists.audience_users import AudienceUsers
from svc_async.batch.packing.batch import Batch
from svc_async.batch.packing.limits import Limits
from svc_async.batch.packing.operations import OperationGroup
from svc_async.batch.recovery import RecoveryPolicy
from svc_async.batch.report import Progress
from svc_async.batch.settings import BatchSettings
from svc_async.batch.source import RowSource, Slice
from svc_async.clock import Clock
from svc_async.engine.retry import RetryBudget
from svc_async.errors import BatchError, ErrorDetail, SvcError
from svc_async.sandbox import VirtualClock
from svc_async.wire.route import Request, Route
from tests.support.fake_service import LOST, FakeService, adds_up, make_error, make_members
from tests.support.journaled_uploads import create_users, find_expected, make_repeated_rows, read_values, upload
from tests.support.journals import Death
from tests.support.lane_model import seal_rows


def test_lanes_are_described_by_a_position_and_the_rows_up_to_it_that_are_not_settled() -> None:
    state = describe_lanes([3], 10, [array("q", [11, 12]), array("q", [9, 11]), {4}, ()])

    assert (state.lanes, state.settled_up_to, [*state.unsettled]) == ([3], 10, [9, 4])


@attrs.define(eq=False, slots=False)
class SlowLedger(Ledger):
    """Takes its time for every commit; the lane that waits for it must command nothing else.

    Attributes:
        commits: what was committed for each lane.
    """

    commits: dict[Lane, list[str]] = attrs.field(factory=dict)
    _busy: set[Lane] = attrs.field(factory=set)

    async def intend(self, *given: object) -> None:
        await self._commit("intend", given[0])

    async def release(self, *given: object) -> None:
        await self._commit("release", given[0])

    async def settle(self, *given: object) -> None:
        await self._commit("settle", given[0])

    async def _commit(self, name: str, lane: object) -> None:
        assert isinstance(lane, Lane)
        assert lane not in self._busy
        self._busy.add(lane)
        for _turn in range(20):
            await asyncio.sleep(0)
        self._busy.remove(lane)
        self.commits.setdefault(lane, []).append(name)


def create_users_with(service: FakeService, ledger: Ledger) -> AudienceUsers:
    """Return users whose next job has this ledger."""

    def create_ledger(
        journal: JournalPath | None,
        *,
        destination: Destination[Any],
        settings: BatchSettings,
        lanes: int,
        clock: Clock,
    ) -> Ledger:
        del journal, destination, settings, lanes, clock
        return ledger

    return create_users(service, create_ledger=create_ledger)


async def test_a_lane_continues_only_when_a_slow_ledger_has_recorded_what_it_asked_for() -> None:
    service = FakeService(latency=1, script={2: make_error(503), 3: LOST, 5: make_error(400)})
    rows = make_repeated_rows(90)
    ledger = SlowLedger(3)
    seen: list[Progress] = []

    report = await create_users_with(service, ledger).upload(rows, users_per_operation=1, progress=seen.append)

    assert (report.accepted + report.coalesced, report.pending) == (90, 0)
    assert service.svc_ids == find_expected(rows)
    assert all(map(adds_up, seen))
    assert {commits[0] for commits in ledger.commits.values()} == {"intend"}
    assert {commits[-1] for commits in ledger.commits.values()} == {"settle"}
    assert {name for commits in ledger.commits.values() for name in commits} == {"intend", "release", "settle"}


class TakenOver(SvcError):
    """Another process works on the job."""


@attrs.define(eq=False, slots=False)
class FencedLedger(Ledger):
    """Is taken over by another process after some intents."""

    left: list[int] = attrs.field(factory=lambda: [3])

    async def intend(self, *_: object) -> None:
        self.left[0] -= 1
        if self.left[0] < 0:
            raise TakenOver("another process has taken over the job")


async def test_nothing_is_sent_when_a_ledger_refuses_the_intent() -> None:
    service = FakeService(latency=1)
    users = create_users_with(service, FencedLedger(2))

    with pytest.raises(BatchError, match="another process has taken over the job") as caught:
        await users.upload(make_members(60), users_per_operation=1)

    assert isinstance(caught.value.__cause__, TakenOver)
    report = caught.value.report
    assert len(service.bodies) == report.requests == 3
    assert adds_up(report)
    assert (report.accepted, report.in_doubt) == (len(service.users), 0)


@pytest.fixture
def intents(monkeypatch: pytest.MonkeyPatch) -> list[Intent]:
    """Every intent that a journal commits."""
    committed: list[Intent] = []
    intend = Journal.intend

    async def intend_and_keep(journal: Journal, intent: Intent, checkpoint: JournalCheckpoint) -> None:
        committed.append(intent)
        await intend(journal, intent, checkpoint)

    monkeypatch.setattr(Journal, "intend", intend_and_keep)
    return committed


async def test_rows_that_are_sent_are_settled_with_their_batch_however_they_were_left(
    tmp_path: Path, intents: list[Intent]
) -> None:
    rows = make_repeated_rows(90, keys=9)
    for commit in range(1, 40):
        service, path, death = FakeService(), tmp_path / f"{commit}", Death(commit)
        with suppress(BatchError):
            create_ledger = death.create_ledger
            await upload(service, rows, path, concurrency=2, users_per_operation=25, create_ledger=create_ledger)
        if not death.happened:
            break

        report = await upload(service, rows, path, users_per_operation=1)

        assert (report.read, report.pending) == (90, 0)
        assert read_values(service) == find_expected(rows)
    assert all({*intent.positions}.isdisjoint(intent.after.unsettled) for intent in intents)


@attrs.frozen
class Nowhere:
    """A destination that nothing is sent to."""

    about: Mapping[str, Any] = attrs.field(factory=lambda: {"host": "nowhere", "destination": "nothing"})
    limits: Limits = attrs.field(factory=lambda: Limits(operations=4, size=1_000))

    @property
    def empty(self) -> Request[None]:
        return Route("POST", "/nowhere", None)()

    def parse_group(self, plain: Any) -> OperationGroup:
        raise NotImplementedError

    def build_request(self, batch: Batch) -> Request[None]:
        return self.empty.with_body(batch.write_body())

    def evaluate(self, _: None, __: Batch) -> Verdict:
        return Verdict()

    def name_rows(self, _: Batch) -> Sequence[str | None]:
        return ()

    def redact(self, reason: ErrorDetail, _: str) -> ErrorDetail:
        return reason


async def read_nothing() -> AsyncGenerator[Slice, None]:
    return
    yield  # makes it a generator


async def test_a_lane_that_sends_for_others_begins_with_what_they_have_settled(tmp_path: Path) -> None:
    path, nowhere, clock = tmp_path / "journal", Nowhere(), VirtualClock()
    budget = RetryBudget(most=0, earned=1.0)
    policy = RecoveryPolicy(
        limits=nowhere.limits, retry_delays=(), quarantine=0.0, redact=nowhere.redact, budget=budget
    )

    settings = BatchSettings(concurrency=2)
    async with JournalLedger(JournalFile(path), destination=nowhere, settings=settings, lanes=2, clock=clock) as ledger:
        await ledger.resume(RowSource(read_nothing, replayable=True))
        for lane, position in ((Lane(0, (0,), policy), 10), (Lane(2, (0, 1), policy), 3)):
            lane.handle(Sealed(seal_rows([(position, 1, 0)], nowhere.limits)))
            await ledger.intend(lane, ())
            lane.handle(Written())
            settle = lane.handle(Answered(Verdict()))
            assert isinstance(settle, Settle)
            await ledger.settle(lane, settle, ())

    async with await Journal.open(
        JournalFile(path), Job(about={**nowhere.about, "ordered": True}, lanes=2), clock=clock
    ) as journal:
        settled_up_to, unsettled = journal.find_settled()
    assert (settled_up_to, [*unsettled]) == ({0: 10, 1: 10}, [])
