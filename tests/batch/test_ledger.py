"""The accounting, and ledgers that commit slowly, that are taken over, or that outlive the process."""

import asyncio
from array import array
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest

from svc_async.batch.destination import Verdict
from svc_async.batch.job import Job, TargetSpec
from svc_async.batch.journal.file import JournalFile
from svc_async.batch.journal.records import JournalChanges, JournalRecords
from svc_async.batch.lane import Answered, Intended, Lane, Sealed, Settle, Written
from svc_async.batch.ledger import GRACE, SENDABLE, Intent, Ledger, NoLongerSendable, check_sendable
from svc_async.batch.packing.batch import Limits
from svc_async.batch.recovery import RecoveryPolicy
from svc_async.batch.report import Progress, Report
from svc_async.batch.settings import BatchSettings, SyncObservers
from svc_async.errors import BatchError, Sent, SvcError
from svc_async.wire.outcome import RetryBudget
from tests.support.fake_service import LOST, FakeService, adds_up, make_error, make_members
from tests.support.journaled_uploads import create_users, find_expected, make_repeated_rows, read_values, upload
from tests.support.journals import Death, create_empty_job
from tests.support.lane_model import seal_rows


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


async def upload_with(ledger: Ledger, service: FakeService, rows: Any, **observers: Any) -> Report:
    """Upload rows, one user in each operation, with a ledger."""
    job = Job(
        target=TargetSpec(kind="audience", account_id="a1", list_id="c1"),
        settings=BatchSettings(users_per_operation=1, concurrency=3),
        observers=SyncObservers(**observers),
    )
    return (await create_users(service).run_job(job, rows, ledger=ledger)).total


async def test_a_lane_continues_only_when_a_slow_ledger_has_recorded_what_it_asked_for() -> None:
    service = FakeService(latency=1, script={2: make_error(503), 3: LOST, 5: make_error(400)})
    rows = make_repeated_rows(90)
    ledger = SlowLedger()
    seen: list[Progress] = []

    report = await upload_with(ledger, service, rows, progress=seen.append)

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
    with pytest.raises(BatchError) as caught:
        await upload_with(FencedLedger(), service, make_members(60))

    assert isinstance(caught.value.__cause__, TakenOver)
    report = caught.value.report
    assert len(service.bodies) == report.requests == 3
    assert adds_up(report)
    assert (report.accepted, report.in_doubt) == (len(service.users), 0)


@pytest.fixture
def intents(monkeypatch: pytest.MonkeyPatch) -> list[Intent]:
    """Every intent that a journal records."""
    recorded: list[Intent] = []
    put_intent = JournalChanges.put_intent

    def keep_and_put(changes: JournalChanges, intent: Intent) -> None:
        recorded.append(intent)
        put_intent(changes, intent)

    monkeypatch.setattr(JournalChanges, "put_intent", keep_and_put)
    return recorded


@pytest.mark.parametrize("commits", [(1, 3, 8, 999), pytest.param(range(1, 40), marks=pytest.mark.long)])
async def test_rows_that_are_sent_are_settled_with_their_batch_however_they_were_left(
    tmp_path: Path, intents: list[Intent], commits: Sequence[int]
) -> None:
    rows = make_repeated_rows(10 * len(commits), keys=9)
    for commit in commits:
        service, path, death = FakeService(), tmp_path / f"{commit}", Death(commit)
        with suppress(BatchError):
            await upload(service, rows, path, concurrency=2, users_per_operation=25, death=death)
        if not death.happened:
            break

        report = await upload(service, rows, path, users_per_operation=1)

        assert (report.read, report.pending) == (len(rows), 0)
        assert read_values(service) == find_expected(rows)
    assert intents
    assert all({*intent.positions}.isdisjoint(intent.unsettled) for intent in intents)


def create_lane(number: int, members: Sequence[int], position: int) -> Lane:
    """Return a lane that has one row to send."""
    limits = Limits(operations=4, size=1_000)
    policy = RecoveryPolicy(
        limits=limits,
        retry_delays=(),
        quarantine=0.0,
        redact=lambda reason, _: reason,
        budget=RetryBudget(most=0, earned=1.0),
    )
    lane = Lane(number, members, policy)
    lane.handle(Sealed(seal_rows([(position, 1, 0)], limits)))
    return lane


async def test_an_intent_states_a_position_and_the_rows_up_to_it_that_are_not_settled(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path / "journal")
    packed = [array("q", [11, 12]), array("q", [9, 11]), {4}, ()]
    async with create_empty_job(journal) as ledger:
        await ledger.intend(create_lane(1, (1,), position=10), packed)
        records = JournalRecords.of(journal.read())

    (intent,) = records.load_intents()
    assert ([*intent.lanes], intent.settled_up_to, [*intent.unsettled]) == ([1], 10, [9, 4])


async def test_a_lane_that_sends_for_others_begins_with_what_they_have_settled(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path / "journal")
    async with create_empty_job(journal) as ledger:
        for lane in (create_lane(0, (0,), position=10), create_lane(2, (0, 1), position=3)):
            await ledger.intend(lane, ())
            lane.handle(Intended())
            lane.handle(Written())
            settle = lane.handle(Answered(Verdict()))
            assert isinstance(settle, Settle)
            await ledger.settle(lane, settle, ())

    records = JournalRecords.of(journal.read())
    assert dict(records.load_all("lane", int)) == {0: 10, 1: 10}
    assert [*records.load_unsettled()] == []


# --- how long a recorded request may be sent


@pytest.mark.parametrize("waited", [0.0, 5.0, 9.99])
def test_what_was_committed_just_now_may_be_sent(waited: float) -> None:
    check_sendable(100.0, 100.0 + waited)


@pytest.mark.parametrize("waited", [SENDABLE, 3_600.0, -1.0])
def test_what_was_committed_too_long_ago_is_not_sent(waited: float) -> None:
    with pytest.raises(NoLongerSendable) as caught:
        check_sendable(100.0, 100.0 + waited)
    assert (caught.value.sent, caught.value.repeatable) == (Sent.NO, True)


def test_a_new_owner_waits_longer_than_a_request_may_be_sent() -> None:
    assert GRACE > SENDABLE
