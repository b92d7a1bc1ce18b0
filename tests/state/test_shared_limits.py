"""Several processes share their limits: governors on one count, as far as one of them sees it."""

import asyncio
import copy
import random
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from svc_async.errors import WouldWaitTooLong
from svc_async.governor.governor import Governor
from svc_async.governor.limits import LIMITS, change_limit
from svc_async.sandbox.clock import VirtualTimer
from svc_async.state.limits.holding import Lease, LeaseRequest
from svc_async.state.limits.store import SharedWindows
from tests.support.clock import EPOCH, DrivenClock
from tests.support.counting_service import (
    CountingService,
    FixedWindows,
    SlidingWindow,
    WindowsFromFirstRequest,
    uneven_latency,
)
from tests.support.model_leases import ModelLeases
from tests.support.rate_limits import card_list, find_bucket, rate_limit_headers, request_slot, send, users_batch

MINUTE = 60.0
LIMIT = 120
AUDIENCE = "ads.audience_users"


@pytest.fixture
def clock() -> DrivenClock:
    return DrivenClock()


@pytest.fixture
def leases(clock: DrivenClock) -> ModelLeases:
    return ModelLeases(clock)


def make_governors(
    clock: DrivenClock, leases: ModelLeases, count: int, limit: int = LIMIT, headroom: float = 0.97
) -> list[Governor]:
    limits = change_limit(LIMITS, "ads.audience_users", requests=limit)
    return [
        Governor(
            limits=limits,
            clock=clock,
            rng=random.Random(seed),
            windows=SharedWindows(leases.open, leases.lease, clock=clock),
            headroom=headroom,
        )
        for seed in range(count)
    ]


async def keep_sending(service: CountingService, governor: Governor, until: float, *, bulk: bool = True) -> int:
    sent = 0
    while service.clock.monotonic() < until:
        sent += await service.answer(governor, users_batch(), bulk=bulk) == 200
    return sent


@pytest.mark.parametrize(
    ("kind", "minutes"),
    [
        (FixedWindows, 2),
        pytest.param(FixedWindows, 10, marks=pytest.mark.long),
        pytest.param(WindowsFromFirstRequest, 10, marks=pytest.mark.long),
        pytest.param(SlidingWindow, 10, marks=pytest.mark.long),
    ],
)
async def test_processes_keep_one_limit_together_and_fairly(
    clock: DrivenClock, leases: ModelLeases, kind: type[FixedWindows], minutes: int
) -> None:
    service = CountingService(clock, kind(LIMIT, MINUTE), uneven_latency(3, 0.2))
    governors = make_governors(clock, leases, 3)

    sent = await clock.run(
        *(keep_sending(service, governor, minutes * MINUTE) for governor in governors for _ in range(4)),
    )

    assert service.refused == 0
    assert service.worst_window(MINUTE) <= LIMIT
    assert sum(sent) >= 0.97 * 0.97 * LIMIT * minutes
    each = [sum(sent[start : start + 4]) for start in range(0, 12, 4)]
    assert min(each) > 0.9 * sum(each) / 3
    assert leases.asked <= sum(sent) * 1.02


async def test_a_429_closes_the_gate_everywhere_and_one_goes_first(clock: DrivenClock, leases: ModelLeases) -> None:
    first, second = make_governors(clock, leases, 2)
    await clock.run(send(first, users_batch()), send(second, users_batch()))
    await clock.run(send(first, users_batch(), rate_limit_headers(LIMIT, 0, 40), status=429))
    closed_at = clock.monotonic()
    left: list[tuple[float, float]] = []

    async def leave(governor: Governor) -> None:
        async with request_slot(governor, users_batch(), max_wait=None) as slot:
            slot.mark_sent()
            began = clock.monotonic()
            await clock.sleep(2.0)
            left.append((began, clock.monotonic()))
            slot.learn(200, {})

    await clock.run(*(leave(governor) for governor in (first, second) for _ in range(7)))

    assert left[0][0] >= closed_at + 40
    in_flight = [sum(began <= moment < ended for began, ended in left) for moment, _ in sorted(left)]
    assert in_flight[0] == 1
    rounds = [sum(began >= ended for began, _ in left) for _, ended in sorted(left)[:1]]
    assert rounds == [13], "one goes ahead of all others"
    assert max(in_flight[:3]) <= 2
    assert max(in_flight[:7]) <= 4


async def test_leases_that_nobody_uses_go_back(clock: DrivenClock, leases: ModelLeases) -> None:
    (governor,) = make_governors(clock, leases, 1)
    async with governor:
        await clock.run(send(governor, users_batch()))
        waiters = [asyncio.ensure_future(send(governor, users_batch())) for _ in range(20)]
        await clock.settle()
        for waiter in waiters:
            waiter.cancel()
        await clock.advance(seconds=3)
        (bucket,) = leases.model.buckets.values()

        assert sum(bucket.granted.counts) == 1
        assert [holder.outstanding for holder in bucket.holders.values()] == [0]


async def test_a_governor_that_is_left_gives_back_what_it_holds(clock: DrivenClock, leases: ModelLeases) -> None:
    (governor,) = make_governors(clock, leases, 1)
    async with governor:
        await clock.run(send(governor, users_batch()))
        slot = await clock.run(request_slot(governor, users_batch()).__aenter__())
        slot[0].mark_sent()
        closing = asyncio.ensure_future(governor.__aexit__(None, None, None))
        await clock.run(closing)
    (bucket,) = leases.model.buckets.values()

    assert [(holder.outstanding, holder.answered) for holder in bucket.holders.values()] == [(0, 2)]


async def test_a_governor_that_is_left_reports_its_limits_in_turn_and_only_those_with_news(
    clock: DrivenClock, leases: ModelLeases
) -> None:
    (governor,) = make_governors(clock, leases, 1)
    async with governor:
        for account in range(20):
            await clock.run(send(governor, users_batch(f"a{account}")))
        await clock.advance(seconds=3)  # leases that were not used go back
        for account in range(10):
            slot = await clock.run(request_slot(governor, users_batch(f"a{account}")).__aenter__())
            slot[0].mark_sent()
        leases.asked = leases.most_at_once = 0
        await clock.run(governor.__aexit__(None, None, None))

    assert 10 <= leases.asked < 20
    assert leases.most_at_once == 2
    counts = [holder.outstanding for bucket in leases.model.buckets.values() for holder in bucket.holders.values()]
    assert counts == [0] * 20


async def test_what_fails_while_a_governor_is_left_is_not_tried_again(clock: DrivenClock, leases: ModelLeases) -> None:
    (governor,) = make_governors(clock, leases, 1)
    async with governor:
        await clock.run(send(governor, users_batch()))
        await clock.advance(seconds=3)
        leases.is_reachable = False
        waiter = asyncio.ensure_future(send(governor, users_batch()))
        await clock.settle()
        await clock.run(governor.__aexit__(None, None, None))
        waiter.cancel()
        asked = leases.asked
        await clock.advance(seconds=60)

    assert leases.asked == asked


async def test_what_a_killed_process_had_in_flight_counts_as_answered_after_five_seconds(
    clock: DrivenClock, leases: ModelLeases
) -> None:
    killed = ModelLeases(clock, leases.model)
    (alive,) = make_governors(clock, leases, 1)
    (dead,) = make_governors(clock, killed, 1)
    await clock.run(send(alive, users_batch()))
    await clock.run(*(request_slot(dead, users_batch()).__aenter__() for _ in range(3)))
    killed.is_alive = False

    await clock.advance(seconds=4)
    await clock.run(send(alive, users_batch()))
    assert find_bucket(alive, AUDIENCE).used == 1 + 1 + 3
    (bucket,) = leases.model.buckets.values()
    assert sorted(holder.outstanding for holder in bucket.holders.values()) == [1, 3]

    await clock.advance(seconds=2)
    await clock.run(send(alive, users_batch()))
    assert sorted(holder.outstanding for holder in bucket.holders.values()) == [0, 1]
    assert find_bucket(alive, AUDIENCE).used == 1 + 1 + 1 + 3

    await clock.advance(seconds=70)
    await clock.run(send(alive, users_batch()))
    assert find_bucket(alive, AUDIENCE).used == 1


@pytest.mark.long("virtual minutes with and without the database")
async def test_without_the_database_each_keeps_to_its_share_and_returns_by_itself(
    clock: DrivenClock, leases: ModelLeases, caplog: pytest.LogCaptureFixture
) -> None:
    service = CountingService(clock, SlidingWindow(LIMIT, MINUTE), uneven_latency(3, 0.2))
    governors = make_governors(clock, leases, 2)

    async def cut() -> tuple[list[bool], list[bool]]:
        await clock.sleep(3 * MINUTE)
        leases.is_reachable = False
        await clock.sleep(3 * MINUTE)
        during = [find_bucket(governor, AUDIENCE).is_degraded for governor in governors]
        leases.is_reachable = True
        await clock.sleep(3)
        return during, [find_bucket(governor, AUDIENCE).is_degraded for governor in governors]

    cutting = asyncio.ensure_future(cut())
    sent = await clock.run(*(keep_sending(service, each, 9 * MINUTE) for each in governors for _ in range(4)))

    assert cutting.result() == ([True, True], [False, False])
    assert service.refused == 0
    assert service.worst_window(MINUTE) <= LIMIT
    assert sum(sent) >= 0.93 * 0.97 * LIMIT * 9
    messages = [record.getMessage() for record in caplog.records if "keeps to its share" in record.getMessage()]
    assert len(messages) == 2, "once a process"


@pytest.mark.long("several crashes, and a minute between the requests that count")
@pytest.mark.parametrize(("seconds_lost", "seconds_away"), [(0.9, 0.0), (5.0, 1.0)])
async def test_a_crash_that_loses_the_latest_leases_exceeds_no_limit(
    clock: DrivenClock, leases: ModelLeases, seconds_lost: float, seconds_away: float
) -> None:
    service = CountingService(clock, SlidingWindow(600, MINUTE), uneven_latency(3, 0.2))
    governors = make_governors(clock, leases, 2, limit=600, headroom=1.0)

    async def crash_often() -> None:
        for _ in range(5):
            await clock.sleep(20.0)
            committed = copy.deepcopy(leases.model)
            await clock.sleep(seconds_lost)
            leases.is_reachable, leases.model = seconds_away == 0, committed
            await clock.sleep(seconds_away)
            leases.is_reachable = True

    await clock.run(crash_often(), *(keep_sending(service, each, 2.5 * MINUTE) for each in governors for _ in range(4)))

    assert service.refused == 0
    assert service.worst_window(MINUTE) >= 590


async def test_a_database_that_does_not_answer_fails_no_call(clock: DrivenClock, leases: ModelLeases) -> None:
    (governor,) = make_governors(clock, leases, 1)
    leases.is_alive = False

    await clock.run(send(governor, users_batch()))

    assert clock.monotonic() == pytest.approx(2.0, abs=0.01)
    assert find_bucket(governor, AUDIENCE).is_degraded


class BusyLeases(ModelLeases):
    """Takes half a second for each lease, and grants two at a time."""

    def __init__(self, clock: DrivenClock) -> None:
        super().__init__(clock)
        self.connections = asyncio.Semaphore(2)

    async def lease(self, request: LeaseRequest) -> Lease:
        async with self.connections:
            await self.clock.sleep(0.5)
            return await super().lease(request)


async def test_leases_that_wait_for_each_other_are_no_sign_that_the_database_is_away(clock: DrivenClock) -> None:
    (governor,) = make_governors(clock, BusyLeases(clock), 1)

    await clock.run(*(send(governor, users_batch(f"a{number}")) for number in range(20)))

    assert clock.monotonic() >= 5.0
    assert not any(bucket.is_degraded for bucket in governor.snapshot())


class StandingClock(DrivenClock):
    """The clock of a process that stands still: what was due meanwhile runs at once when it goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.due: list[tuple[float, Callable[[], object]]] = []

    def monotonic(self) -> float:
        return self.seconds

    def call_later(self, seconds: float, callback: Callable[[], object], *, moves_time: bool = True) -> VirtualTimer:
        self.due.append((self.seconds + seconds, callback))
        return super().call_later(1_000_000, callback, moves_time=moves_time)

    def stand_still(self, seconds: float) -> None:
        self.seconds += seconds
        due, self.due = self.due, [each for each in self.due if each[0] > self.seconds]
        for when, callback in due:
            if when <= self.seconds:
                callback()


async def test_a_process_that_stood_still_waits_for_the_answer_that_it_has_not_read() -> None:
    clock = StandingClock()
    leases = ModelLeases(clock, is_alive=False)
    (governor,) = make_governors(clock, leases, 1)
    waiting = asyncio.ensure_future(send(governor, users_batch()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    clock.stand_still(60.0)
    assert not find_bucket(governor, AUDIENCE).is_degraded
    for _ in range(7):
        clock.stand_still(0.25)
    assert find_bucket(governor, AUDIENCE).is_degraded

    await asyncio.gather(waiting)


async def test_a_share_counts_what_was_used_before(clock: DrivenClock, leases: ModelLeases) -> None:
    service = CountingService(clock, SlidingWindow(60, MINUTE))
    first, second = make_governors(clock, leases, 2, limit=60)
    await clock.run(send(second, users_batch()))
    await clock.run(*(service.answer(first, users_batch()) for _ in range(50)))
    await clock.run(send(second, users_batch()))
    leases.is_reachable = False

    end = clock.monotonic() + 30
    await clock.run(*(keep_sending(service, each, end) for each in (first, second) for _ in range(4)))

    assert service.refused == 0
    assert service.worst_window(MINUTE) <= 60


@pytest.mark.long("forty lanes send for two virtual minutes")
async def test_interactive_requests_go_before_bulk_of_another_process(clock: DrivenClock, leases: ModelLeases) -> None:
    service = CountingService(clock, FixedWindows(LIMIT, MINUTE))
    busy, other, other2 = make_governors(clock, leases, 3)
    waits: list[float] = []

    async def ask_now_and_then() -> None:
        for _ in range(15):
            await clock.sleep(7.0)
            began = clock.monotonic()
            await service.answer(other, users_batch())
            waits.append(clock.monotonic() - began)

    bulk = [keep_sending(service, each, 2 * MINUTE) for each in (busy, other2) for _ in range(20)]
    await clock.run(ask_now_and_then(), *bulk)

    step = MINUTE / (0.97 * LIMIT)
    assert max(waits[5:]) <= 2 * step + 0.1, "not behind forty that wait"
    assert service.refused == 0


@pytest.mark.parametrize("minutes", [2, pytest.param(10, marks=pytest.mark.long)])
async def test_bulk_gets_one_turn_in_ten_beside_interactive_requests(
    clock: DrivenClock, leases: ModelLeases, minutes: int
) -> None:
    service = CountingService(clock, FixedWindows(LIMIT, MINUTE))
    urgent, bulk = make_governors(clock, leases, 2)

    sent = await clock.run(
        *(keep_sending(service, urgent, minutes * MINUTE, bulk=False) for _ in range(8)),
        *(keep_sending(service, bulk, minutes * MINUTE) for _ in range(8)),
    )

    assert 0.07 < sum(sent[8:]) / sum(sent) < 0.13


async def test_a_request_that_would_wait_too_long_is_refused_at_once(clock: DrivenClock, leases: ModelLeases) -> None:
    first, second = make_governors(clock, leases, 2, limit=5)
    await clock.run(send(first, users_batch()))
    await clock.run(*(send(first, users_batch()) for _ in range(4)))
    with pytest.raises(WouldWaitTooLong):
        await clock.run(send(second, users_batch(), max_wait=10.0))
    assert clock.monotonic() < 15

    with pytest.raises(WouldWaitTooLong):
        await clock.run(send(second, users_batch(), max_wait=1.0))


async def test_who_waits_for_the_turns_of_others_is_told_of_the_limit(clock: DrivenClock, leases: ModelLeases) -> None:
    limits = change_limit(LIMITS, "ads.reads.account", requests=2_000)
    governors = [
        Governor(
            limits=limits, clock=clock, windows=SharedWindows(leases.open, leases.lease, clock=clock), max_wait=5.0
        )
        for _ in range(2)
    ]
    errors: list[WouldWaitTooLong] = []

    async def read(governor: Governor) -> None:
        while clock.monotonic() < 30:
            try:
                async with request_slot(governor, card_list(), max_wait=5.0) as slot:
                    slot.mark_sent()
                    await clock.sleep(0.01)
                    slot.learn(200, {})
            except WouldWaitTooLong as error:
                errors.append(error)
                await clock.sleep(max(error.retry_after or 0, 1.0))

    await clock.run(*(read(governor) for governor in governors for _ in range(12)))

    assert errors
    assert {error.limit for error in errors} == {"ads.reads.account"}
    assert min(error.retry_after or 0 for error in errors) > 0


@pytest.mark.parametrize("is_guess", [False, True])
async def test_those_who_wait_are_judged_by_their_places_after_the_first_answer(
    clock: DrivenClock, leases: ModelLeases, is_guess: bool
) -> None:
    limits = LIMITS if is_guess else change_limit(LIMITS, "ads.reads.account", requests=2_000)
    governor = Governor(
        limits=limits, clock=clock, windows=SharedWindows(leases.open, leases.lease, clock=clock), max_wait=60.0
    )
    rejected_at: list[float] = []
    turns: list[datetime] = []

    async def read(number: int) -> None:
        try:
            async with request_slot(governor, card_list(), max_wait=60.0) as slot:
                slot.mark_sent()
                await clock.sleep(0.1)
                slot.learn(200, rate_limit_headers(2_000, 1_999 - number, 900))
        except WouldWaitTooLong as error:
            rejected_at.append(clock.monotonic())
            turns.append(error.until)

    await clock.run(*map(read, range(300)))

    assert 130 <= len(turns) <= 150
    assert max(rejected_at) < 1
    assert turns == sorted(set(turns))
    assert turns[0] > EPOCH + timedelta(seconds=60)


@pytest.mark.long("needs a minute of 1,500 requests")
async def test_one_busy_process_needs_few_leases(clock: DrivenClock, leases: ModelLeases) -> None:
    service = CountingService(clock, FixedWindows(1_500, MINUTE), uneven_latency(3, 0.2))
    (governor,) = make_governors(clock, leases, 1, limit=1_500)

    sent = await clock.run(*(keep_sending(service, governor, MINUTE) for _ in range(32)))

    assert sum(sent) >= 0.97 * 0.97 * 1_500
    assert leases.asked <= 0.3 * sum(sent)


async def test_one_calm_process_needs_one_lease_a_request(clock: DrivenClock, leases: ModelLeases) -> None:
    (governor,) = make_governors(clock, leases, 1)

    for _ in range(20):
        await clock.run(send(governor, users_batch()))
        await clock.advance(seconds=10)

    assert leases.asked <= 20 + 1


async def test_a_request_without_an_answer_holds_up_other_processes_for_five_seconds(
    clock: DrivenClock, leases: ModelLeases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("svc_async.state.limits.store._CLOSE_SECONDS", 0.01)  # the time of the machine
    first, second = make_governors(clock, leases, 2)
    async with first, second:
        lost = await clock.run(request_slot(first, users_batch()).__aenter__())
        lost[0].mark_sent()
        began = clock.monotonic()
        await clock.run(*(send(second, users_batch()) for _ in range(5)))

        assert 5 <= clock.monotonic() - began < 7


async def test_a_share_is_paced_as_the_whole_limit_is(clock: DrivenClock, leases: ModelLeases) -> None:
    """2,000 in 15 minutes are paced evenly; half of them, of one of two processes, would not be by themselves."""
    governors = make_governors(clock, leases, 2)
    sent = list[float]()

    async def read(governor: Governor) -> None:
        async with request_slot(governor, card_list(), max_wait=None) as slot:
            slot.mark_sent()
            sent.append(clock.monotonic())
            slot.learn(200, rate_limit_headers(2_000, 2_000 - len(sent), 900))

    async with governors[0], governors[1]:
        reads = [asyncio.ensure_future(read(governor)) for governor in governors for _ in range(100)]
        await clock.advance(seconds=9)
        leases.is_reachable = False
        await clock.advance(seconds=21)
        assert 40 <= sum(9 < moment <= 30 for moment in sent) <= 50
        for each in reads:
            each.cancel()
