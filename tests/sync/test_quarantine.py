"""What a sync does about requests of an earlier run that may still take effect."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest

from svc_async import BatchError, Rows
from svc_async.batch.ledger import SENDABLE, NoLongerSendable
from svc_async.batch.packing.batch import Limits
from svc_async.batch.report import Failure
from svc_async.clock import SystemClock, find_boot
from svc_async.lists.audience_users import AudienceUsers
from svc_async.lists.user_list import USER_LIMITS
from svc_async.sync.pages import compare
from svc_async.sync.pages.marks import DOUBT, Action, Decision, decide
from svc_async.sync.sending import VALIDITY, Allowance, ClockReading, SendingNote, find_rest
from svc_async.sync.state import SyncState
from tests.support.fake_service import FakeService, make_error
from tests.support.sync_states import OpenState
from tests.support.tasks import wait_until

QUARANTINE = 120.0
ONE, TWO = ("p1",), ("p2",)


@attrs.define
class Nights:
    """Syncs of one audience, with a service of its own each night; the clock of a night begins at 0."""

    state: Path
    columns: Sequence[str] = ("partner_user_id",)
    waits: list[float] = attrs.field(factory=list)

    async def sync(self, *rows: tuple[str | None, ...], service: FakeService | None = None) -> FakeService:
        service = service or FakeService()
        await self.start(service, rows)
        return service

    async def end_while_sending(self, *rows: tuple[str | None, ...], request: int = 1) -> None:
        """Cancel a sync, twice, while its n-th request is under way."""
        service = FakeService(latency=1_000.0)
        for number in range(1, request):
            service.script[number] = None  # type: ignore[assignment]  # None is success
        task = asyncio.ensure_future(self.start(service, rows))
        await wait_until(lambda: len(service.bodies) >= request or task.done())
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def sync_until_refused(self, *rows: tuple[str | None, ...], service: FakeService, limits: Limits) -> None:
        """Send one request after the other until one is refused."""
        with pytest.raises(BatchError):
            await self.start(service, rows, limits, concurrency=1)

    async def start(
        self,
        service: FakeService,
        rows: Sequence[tuple[str | None, ...]],
        limits: Limits = USER_LIMITS,
        **settings: Any,
    ) -> Any:
        users = AudienceUsers(service.pipeline, "a1", "c1", limits=limits)
        return await users.sync(
            Rows(self.columns, list(rows)), state=self.state, max_removal_share=1, on_wait=self.waits.append, **settings
        )


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path / "state")


def describe(service: FakeService) -> list[tuple[str, list[str], float]]:
    """Return the type, the people and the time of each request."""
    return [
        (operation["operation_type"], sorted(user["partner_user_id"][0] for user in operation["params"]["users"]), time)
        for operation, time in zip(service.accepted, service.times, strict=True)
    ]


async def test_a_removal_waits_for_an_addition_that_may_still_take_effect(nights: Nights) -> None:
    await nights.end_while_sending(ONE)
    assert describe(await nights.sync(TWO)) == [("Update", ["p2"], 0.0), ("Delete", ["p1"], QUARANTINE)]
    assert nights.waits == [QUARANTINE]
    assert describe(await nights.sync(TWO)) == []


@pytest.mark.long("three nights, one of which ends while it sends")
async def test_the_positions_of_removals_that_wait_follow_those_that_did_not(nights: Nights) -> None:
    await nights.sync(ONE, TWO)
    await nights.end_while_sending(ONE, TWO, ("p3",))
    service = FakeService()
    service.script[3] = make_error(400)
    failures = list[Failure]()
    await nights.start(service, [("p4",)], on_removal_failure=failures.append, concurrency=1)
    assert nights.waits == [QUARANTINE]
    assert [failure.position for failure in failures] == [2]


async def test_the_same_addition_need_not_wait(nights: Nights) -> None:
    await nights.end_while_sending(ONE)
    assert describe(await nights.sync(ONE)) == [("Update", ["p1"], 0.0)]
    assert nights.waits == []


async def test_additions_need_not_wait_for_additions_that_share_identifiers(nights: Nights) -> None:
    nights.columns = ("partner_user_id", "email")
    await nights.end_while_sending(("p1", "a@example.org"))
    service = await nights.sync(("p1", "a@example.org"), ("p2", "a@example.org"))
    assert describe(service) == [("Update", ["p1", "p2"], 0.0)]
    assert nights.waits == []


@pytest.mark.long("three nights, one of which ends while it sends")
async def test_an_addition_that_was_repeated_may_still_take_effect(nights: Nights) -> None:
    await nights.end_while_sending(ONE)
    await nights.sync(ONE)
    assert describe(await nights.sync()) == [("Delete", ["p1"], QUARANTINE)]


@pytest.mark.long("three nights, one of which ends while it sends")
async def test_an_addition_waits_for_a_removal_that_may_still_take_effect(nights: Nights) -> None:
    await nights.sync(ONE)
    await nights.end_while_sending()
    assert describe(await nights.sync(ONE, TWO)) == [("Update", ["p2"], 0.0), ("Update", ["p1"], QUARANTINE)]


@pytest.mark.long("three nights, one of which ends while it sends")
async def test_what_may_have_the_identifier_that_is_removed_waits(nights: Nights) -> None:
    nights.columns = ("partner_user_id", "email")
    await nights.sync(("p1", None))
    await nights.end_while_sending()
    assert describe(await nights.sync(("p2", "a@example.org"))) == [
        ("Delete", ["p1"], QUARANTINE),
        ("Update", ["p2"], QUARANTINE),
    ]


async def test_who_changed_is_removed_when_nothing_can_add_the_former_identifiers(nights: Nights) -> None:
    nights.columns = ("partner_user_id", "email")
    await nights.end_while_sending(("p1", "a@example.org"))
    service = await nights.sync(("p1", "b@example.org"))
    assert describe(service) == [("Delete", ["p1"], QUARANTINE), ("Update", ["p1"], QUARANTINE)]


async def test_after_a_sync_that_waited_nothing_waits_again(nights: Nights) -> None:
    await nights.end_while_sending(ONE, TWO)
    await nights.sync(ONE)
    assert nights.waits == [QUARANTINE]
    assert describe(await nights.sync()) == [("Delete", ["p1"], 0.0)]


async def test_a_sync_that_ended_with_an_answer_to_each_request_leaves_nothing_to_wait_for(nights: Nights) -> None:
    await nights.sync(ONE)
    assert describe(await nights.sync(TWO)) == [("Delete", ["p1"], 0.0), ("Update", ["p2"], 0.0)]
    assert nights.waits == []


@pytest.mark.parametrize(
    "too_large",
    [0, pytest.param(10_000, marks=pytest.mark.long)],  # so many failures are recorded at once
)
async def test_who_was_not_sent_before_a_refusal_leaves_nothing_to_wait_for(nights: Nights, too_large: int) -> None:
    service = FakeService(script={3: make_error(403)})
    people = [*((f"{number}{'p' * 2_000}",) for number in range(too_large)), *((f"p{number}",) for number in range(80))]
    await nights.sync_until_refused(*people, service=service, limits=Limits(operations=1, size=2_000))
    assert len(service.bodies) == 3
    await nights.sync(ONE)
    assert nights.waits == []


async def test_an_addition_that_was_refused_leaves_nothing_to_wait_for(nights: Nights) -> None:
    await nights.sync(ONE, service=FakeService(always=make_error(400)))
    assert describe(await nights.sync()) == [("Delete", ["p1"], 0.0)]


# --- clocks

DAY = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("sent", "opened", "now", "rest"),
    [
        (None, (0.0, "a"), (0.0, "a"), 0.0),
        ((100.0, "a"), (110.0, "a"), (110.0, "a"), 120.0),
        ((100.0, "a"), (121.0, "a"), (121.0, "a"), 110.0),
        ((100.0, "a"), (110.0, "a"), (231.0, "a"), 0.0),
        ((100.0, "a"), (50.0, "a"), (50.0, "a"), 120.0),  # no clock says so; but it never becomes more than this
        ((100.0, "a"), (9_000.0, "b"), (9_000.0, "b"), 120.0),  # the machine was restarted
        ((100.0, "a"), (9_000.0, "b"), (9_050.0, "b"), 70.0),
        ((100.0, None), (9_000.0, None), (9_000.0, None), 120.0),  # it is not known whether it was
    ],
)
def test_no_clock_shortens_the_wait(
    sent: tuple[float, str | None] | None, opened: tuple[float, str | None], now: tuple[float, str | None], rest: float
) -> None:
    found = find_rest(
        ClockReading(DAY, *now),
        QUARANTINE,
        sent=None if sent is None else SendingNote(*sent),
        grace=11.0,
        opened=ClockReading(DAY, *opened),
    )
    assert found == rest


def test_without_a_quarantine_nothing_waits() -> None:
    now = ClockReading(DAY, 0.0, "a")
    assert find_rest(now, 0.0, sent=now.note, grace=11.0, opened=now) == 0.0


def test_a_note_holds_for_a_second() -> None:
    allowance = Allowance(1, ClockReading(DAY, 100.0))
    assert allowance.covers(ClockReading(DAY, 100.0 + VALIDITY / 2))
    assert not allowance.covers(ClockReading(DAY, 100.0 + VALIDITY))
    assert not allowance.covers(ClockReading(DAY, 99.0))


def test_a_suspended_machine_does_not_make_a_note_last_longer() -> None:
    allowance = Allowance(1, ClockReading(DAY, 100.0, boottime=100.0))
    assert not allowance.covers(ClockReading(DAY, 100.1, boottime=3_700.0))


async def test_a_request_goes_out_at_most_ten_seconds_after_the_note(open_state: OpenState) -> None:
    at = ClockReading(DAY, 100.0)
    async with open_state() as state:
        state.start("upserts", "now")
        await state.admit(lambda: at)
        state.check_sendable(at.after(SENDABLE - 0.1))
        with pytest.raises(NoLongerSendable):
            state.check_sendable(at.after(SENDABLE))
        await state.admit(lambda: at.after(SENDABLE))
        state.check_sendable(at.after(SENDABLE))


def test_a_clock_that_counts_otherwise_does_not_say_since_when() -> None:
    class Other(SystemClock):
        def monotonic(self) -> float:
            return 0.0

    assert find_boot(SystemClock()) == find_boot(SystemClock())
    assert find_boot(Other()) is None


# --- controls: what happens without the protection


@pytest.mark.long("a control: it removes the protection to see the damage")
async def test_without_the_wait_a_late_addition_comes_after_the_removal(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SyncState, "find_rest", lambda *_: 0.0)
    await nights.end_while_sending(ONE)
    assert describe(await nights.sync()) == [("Delete", ["p1"], 0.0)]  # the addition may take effect until QUARANTINE


async def test_without_removal_of_who_is_in_doubt_former_identifiers_stay(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decide_without_removal(flags: int, *others: Any, **keywords: Any) -> Decision:
        decision = decide(flags, *others, **keywords)
        return attrs.evolve(decision, action=decision.action & Action.UPSERT) if flags & DOUBT else decision

    monkeypatch.setattr(compare, "decide", decide_without_removal)
    nights.columns = ("partner_user_id", "email")
    await nights.end_while_sending(("p1", "a@example.org"))
    assert describe(await nights.sync(("p1", "b@example.org"))) == [("Update", ["p1"], QUARANTINE)]
