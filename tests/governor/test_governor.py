"""Waiting in turn: fairness, patience, cancellation and the gate of a 429."""

import asyncio
import random
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import attrs
import pytest

from svc_async.errors import InvalidArgument, WouldWaitTooLong
from svc_async.governor.governor import BucketState, Governor
from svc_async.governor.limits import LIMITS, Limit, Scope
from svc_async.governor.slot import Slot
from svc_async.governor.windows import Window
from svc_async.wire.route import Request, Surface
from tests.governor.virtual import EPOCH, VirtualTime, call, slot, told, users

QUARTER = 900.0
READS = "/12/accounts/{account_id}/cards"
LINE_ITEMS = "/12/accounts/{account_id}/line_items"
ACCOUNTS = call("GET", "/12/accounts")
TOTAL = (("with_total_count", "true"),)


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


def governed(time: VirtualTime, **requests: int) -> Governor:
    """Give a governor with some limits changed; in their names every dot is an underscore."""
    limits = tuple(attrs.evolve(row, requests=requests.pop(row.name.replace(".", "_"), row.requests)) for row in LIMITS)
    assert not requests
    return Governor(limits=limits, clock=time, rng=random.Random(5))


def cards(account: str = "a1", *, total: bool = False) -> Request[Any]:
    return call("GET", READS, query=TOTAL if total else (), account_id=account)


def line_items(account: str = "a1", *, total: bool = False) -> Request[Any]:
    return call("GET", LINE_ITEMS, query=TOTAL if total else (), account_id=account)


async def send(
    governor: Governor,
    request: Request[Any],
    headers: Mapping[str, str] | None = None,
    *,
    status: int = 200,
    done: list[Any] | None = None,
    name: object = None,
    **ways: Any,
) -> None:
    async with slot(governor, request, **ways) as granted:
        granted.mark_sent()
        granted.learn(status, headers or {})
        if done is not None:
            done.append(name)


def state(governor: Governor, name: str = "ads.reads.global") -> BucketState:
    return next(bucket for bucket in governor.snapshot() if bucket.name == name)


async def used_up(governor: Governor, request: Request[Any] = ACCOUNTS, number: int = 5) -> None:
    for _ in range(number):
        await send(governor, request)


async def held(governor: Governor, request: Request[Any] = ACCOUNTS, **ways: Any) -> Slot:
    """Take a slot and keep it in flight."""
    granted: Slot = await slot(governor, request, **ways).__aenter__()
    granted.mark_sent()
    return granted


async def test_uncontended_slot_makes_no_task_no_timer_and_no_pause(time: VirtualTime) -> None:
    governor = governed(time)
    entering = slot(governor, ACCOUNTS).__aenter__()
    with pytest.raises(StopIteration):
        entering.send(None)
    assert time.timers == 0


async def test_a_slot_is_entered_once(time: VirtualTime) -> None:
    granted = slot(governed(time), ACCOUNTS)
    async with granted:
        pass
    with pytest.raises(RuntimeError, match="once"):
        await granted.__aenter__()


async def test_small_limit_bursts_then_waits_for_the_window(time: VirtualTime) -> None:
    governor = governed(time)
    await used_up(governor)
    await time.run(send(governor, ACCOUNTS))
    assert time.monotonic() == 1_000 + QUARTER


async def test_one_probe_goes_first_and_its_answer_opens(time: VirtualTime) -> None:
    governor = governed(time)
    probe = await held(governor)
    waiters = [asyncio.ensure_future(send(governor, ACCOUNTS)) for _ in range(4)]
    await time.settle()
    assert state(governor).waiting == 4
    probe.learn(200, {})
    await time.run(*waiters)
    assert time.monotonic() == 1_000


async def test_left_before_it_began_the_grant_is_refunded(time: VirtualTime) -> None:
    governor = governed(time)
    for _ in range(20):
        async with slot(governor, ACCOUNTS):
            pass
    assert state(governor).used == 0


async def test_failure_before_it_began_wakes_the_next(time: VirtualTime) -> None:
    governor = governed(time)
    first = slot(governor, ACCOUNTS)
    await first.__aenter__()
    second = asyncio.ensure_future(send(governor, ACCOUNTS))
    await time.settle()
    assert not second.done()
    await first.__aexit__(ValueError, ValueError(), None)
    await time.settle()
    assert second.done()
    await second


async def test_left_after_it_began_without_an_answer_it_counts(time: VirtualTime) -> None:
    governor = governed(time)
    async with slot(governor, ACCOUNTS) as granted:
        granted.mark_sent()
    assert state(governor).used == 1


# What goes wrong elsewhere


async def test_a_cancelled_waiter_does_not_hang_the_others(time: VirtualTime) -> None:
    governor = governed(time)
    await used_up(governor)
    done: list[Any] = []
    waiters = [asyncio.ensure_future(send(governor, ACCOUNTS, done=done, name=n)) for n in range(6)]
    await time.settle()
    waiters[0].cancel()
    waiters[3].cancel()
    await time.run(*waiters)
    assert done == [1, 2, 4, 5]
    assert state(governor).waiting == 0
    assert time.timers == 0


async def test_cancelled_in_the_tick_of_the_grant_it_passes_the_grant_on(time: VirtualTime) -> None:
    governor = governed(time)
    probe = await held(governor)
    done: list[Any] = []
    first, second = (asyncio.ensure_future(send(governor, ACCOUNTS, done=done, name=n)) for n in range(2))
    await time.settle()
    probe.mark_lost()  # lets one probe go
    first.cancel()  # and before it can run, it is cancelled
    await time.settle()
    assert first.cancelled()
    assert done == [1]
    await second


async def test_cancelled_and_granted_in_the_other_order(time: VirtualTime) -> None:
    governor = governed(time)
    probe = await held(governor)
    done: list[Any] = []
    first, second = (asyncio.ensure_future(send(governor, ACCOUNTS, done=done, name=n)) for n in range(2))
    await time.settle()
    first.cancel()
    probe.mark_lost()
    await time.settle()
    assert first.cancelled()
    assert done == [1]
    await second


@pytest.mark.parametrize("seed", range(8))
async def test_cancellation_fuzz_loses_no_slot_and_doubles_none(time: VirtualTime, seed: int) -> None:
    rng = random.Random(seed)
    governor = governed(time)
    out = {"now": 0, "most": 0, "sent": 0}
    victims: list[asyncio.Task[None]] = []

    async def work(request: Request[Any], *, bulk: bool) -> None:
        async with slot(governor, request, bulk=bulk) as granted:
            if rng.random() < 0.3:
                rng.choice(victims).cancel()  # in the very tick of a grant
            if rng.random() < 0.1:
                raise ValueError  # signing failed
            granted.mark_sent()
            out["now"] += 1
            out["most"] = max(out["most"], out["now"])
            out["sent"] += 1
            try:
                await time.sleep(rng.choice((0.0, 0.1, 1.0)))
                if rng.random() < 0.1:
                    granted.mark_lost()
                else:
                    granted.learn(rng.choice((200, 200, 200, 503, 429)), {})
            finally:
                out["now"] -= 1

    kinds = [ACCOUNTS, cards(total=True), cards(), line_items(total=True), users()]
    victims += [asyncio.ensure_future(work(rng.choice(kinds), bulk=rng.random() < 0.5)) for _ in range(120)]
    ends = await time.run(*victims)
    assert {type(end) for end in ends} <= {type(None), asyncio.CancelledError, ValueError}
    assert out["sent"] > 40
    for bucket in governor.snapshot():
        assert bucket.waiting == 0
    assert governor._scheduler._flows == {}
    assert time.timers == 0
    windows = [bucket.window for bucket in governor._buckets]
    assert all(isinstance(window, Window) and window.in_flight == 0 for window in windows)


async def test_a_heavy_request_does_not_starve(time: VirtualTime) -> None:
    governor = governed(time, ads_total_count=10)
    done: list[Any] = []
    end = time.monotonic() + 3 * QUARTER

    async def saturate(request: Request[Any], name: str, *, after: float = 0.0) -> None:
        await time.sleep(after)
        while time.monotonic() < end:
            await send(governor, request, done=done, name=name)

    async def heavy() -> float:
        await time.sleep(10.0)
        for _ in range(2):
            await send(governor, cards(total=True), done=done, name="heavy")
        return time.monotonic()

    # Lighter requests saturate both of its buckets, and these never open at the same moment.
    light = [saturate(cards(), "reads") for _ in range(4)]
    light += [saturate(line_items(total=True), "totals", after=7.3) for _ in range(4)]
    *_, ended = await time.run(*light, heavy())
    assert ended < end, "it went among the others, not after them"
    assert done.count("totals") > 10


async def test_a_free_key_never_waits_behind_a_busy_one(time: VirtualTime) -> None:
    governor = governed(time)
    for account in ("busy", "free"):
        await send(governor, users(account))
    await send(governor, users("busy"), told(1_500, 0, 50))
    busy = [asyncio.ensure_future(send(governor, users("busy"))) for _ in range(50)]
    await time.settle()
    await time.run(*(send(governor, users("free")) for _ in range(5)))
    assert time.monotonic() < 1_001
    assert not any(waiter.done() for waiter in busy)
    await time.run(*busy)


async def test_a_line_closed_elsewhere_is_passed_over(time: VirtualTime) -> None:
    governor = governed(time, ads_total_count=1)
    await send(governor, cards(total=True))
    heavy = asyncio.ensure_future(send(governor, cards(total=True)))
    await time.settle()
    await time.run(*(send(governor, cards()) for _ in range(5)))
    assert time.monotonic() < 1_003
    assert not heavy.done()
    await time.run(heavy)
    assert time.monotonic() >= 1_000 + QUARTER


async def test_accounts_take_turns_and_each_is_first_in_first_out(time: VirtualTime) -> None:
    row = Limit("all", 100, 60.0, Scope.USER, frozenset({"GET"}), ".*")
    governor = Governor(limits=(row,), clock=time, rng=random.Random(5))
    await send(governor, cards())
    done: list[Any] = []
    work = [send(governor, cards(a), done=done, name=(a, n)) for a, many in (("x", 30), ("y", 3)) for n in range(many)]
    await time.run(*work)
    assert [n for a, n in done if a == "x"] == list(range(30))
    assert [n for a, n in done if a == "y"] == list(range(3))
    assert all(done.index(("y", n)) <= 8 for n in range(3))


async def test_interactive_goes_first_and_bulk_has_its_minimum(time: VirtualTime) -> None:
    governor = governed(time)
    await send(governor, users())
    done: list[Any] = []
    bulk = [send(governor, users(), done=done, name="bulk", bulk=True) for _ in range(100)]
    interactive = [send(governor, users(), done=done, name="interactive") for _ in range(100)]
    await time.run(*bulk, *interactive)
    mixed = done[20 : done.index("interactive") + 100]
    assert mixed.count("bulk") <= 0.2 * len(mixed)
    assert "bulk" in mixed[:30]


async def test_bulk_leaves_a_reserve_of_a_small_limit(time: VirtualTime) -> None:
    governor = governed(time)
    done: list[Any] = []
    bulk = [asyncio.ensure_future(send(governor, ACCOUNTS, done=done, bulk=True)) for _ in range(10)]
    await time.settle()
    assert len(done) == 4
    await time.run(send(governor, ACCOUNTS, max_wait=0))
    await time.run(*bulk)


# The gate of a 429


async def gate(time: VirtualTime, headers: Mapping[str, str]) -> float:
    """Refuse a request and tell how long the next one waits."""
    governor = governed(time)
    await send(governor, users(), headers, status=429)
    start = time.monotonic()
    await time.run(send(governor, users()))
    return time.monotonic() - start


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        (told(1_500, 0, 40), 40, 42.1),
        (told(1_500, 0, 40, retry_after="50"), 50, 51.1),
        (told(1_500, 0, 40, retry_after="5"), 40, 42.1),
        (told(retry_after="5"), 5, 6.1),
        (told(1_500, 0, -40), 1, 2.1),
        (told(1_500, 0, "soon"), 1, 2.1),
        (told(), 1, 2.1),
    ],
    ids=["reset", "retry-after later", "reset later", "retry-after", "reset in the past", "malformed", "absent"],
)
async def test_the_gate_of_a_429(time: VirtualTime, headers: Mapping[str, str], least: float, most: float) -> None:
    assert least <= await gate(time, headers) <= most


async def test_429_twice_in_a_row_closes_longer(time: VirtualTime) -> None:
    governor = governed(time)
    waits = []
    for _ in range(4):
        start = time.monotonic()
        await time.run(send(governor, users(), status=429))
        waits.append(time.monotonic() - start)
    assert waits[0] == 0
    assert 1 <= waits[1] <= 2
    assert 2 <= waits[2] <= 3
    assert 4 <= waits[3] <= 5


@pytest.mark.parametrize(("request_", "limit"), [(ACCOUNTS, 60), (users(), 1_500)], ids=["small limit", "even pace"])
async def test_waiters_leave_in_turn_after_a_429(time: VirtualTime, request_: Request[Any], limit: int) -> None:
    governor = governed(time, ads_reads_global=60)
    await send(governor, request_)
    await send(governor, request_, told(limit, 0, 30), status=429)
    left: list[tuple[int, float]] = []

    async def leave(name: int) -> None:
        async with slot(governor, request_, bulk=True) as granted:
            granted.mark_sent()
            left.append((name, time.monotonic()))
            await time.sleep(0.2)
            granted.learn(200, {})

    await time.run(*(leave(name) for name in range(20)))
    moments = [moment for _, moment in left]
    assert [name for name, _ in left] == list(range(20)), "first in, first out"
    assert moments[0] >= 1_030
    assert max(moments.count(moment) for moment in moments) <= 8, "1, 2, 4, 8"
    assert moments[0] < moments[1], "one goes ahead"


async def test_a_429_closes_the_bucket_and_not_its_neighbour(time: VirtualTime) -> None:
    governor = governed(time)
    await send(governor, users("a1"), told(1_500, 0, 40), status=429)
    await time.run(send(governor, users("a2")), send(governor, cards("a1")))
    assert time.monotonic() == 1_000


async def test_of_two_buckets_the_one_whose_limit_is_told_is_closed(time: VirtualTime) -> None:
    governor = governed(time)
    await send(governor, cards(total=True), told(200, 0, 40), status=429)
    assert state(governor, "ads.total_count").closed_until is not None
    assert state(governor, "ads.reads.account").closed_until is None


async def test_of_two_buckets_one_heeds_the_headers(time: VirtualTime) -> None:
    governor = governed(time)
    await send(governor, cards(total=True), told(200, 7, 40))
    assert [(bucket.limit, bucket.remaining) for bucket in governor.snapshot()] == [(2_000, None), (200, 7)]


async def test_a_429_that_names_no_limit_closes_all_its_buckets(time: VirtualTime) -> None:
    governor = governed(time)
    await send(governor, cards(total=True), status=429)
    assert all(bucket.closed_until for bucket in governor.snapshot())


# Patience


async def test_a_wait_that_is_known_to_be_too_long_is_refused_at_once(time: VirtualTime) -> None:
    governor = governed(time)
    await used_up(governor)
    with pytest.raises(WouldWaitTooLong, match=r"ads\.reads\.global.*max_wait=60 s") as caught:
        await send(governor, ACCOUNTS, max_wait=60.0)
    assert caught.value.limit == "ads.reads.global"
    assert caught.value.until == EPOCH + timedelta(seconds=QUARTER)
    assert time.monotonic() == 1_000
    assert state(governor).waiting == 0


async def test_those_ahead_in_line_count_for_patience(time: VirtualTime) -> None:
    governor = governed(time)
    await send(governor, users())
    line = [asyncio.ensure_future(send(governor, users())) for _ in range(300)]
    await time.settle()
    with pytest.raises(WouldWaitTooLong):
        await send(governor, users(), max_wait=5.0)
    await time.run(send(governor, users(), max_wait=60.0))
    for waiter in line:
        await waiter


async def test_a_gate_that_closes_while_one_waits_ends_its_patience(time: VirtualTime) -> None:
    governor = governed(time)
    probe = await held(governor, users())
    patient = asyncio.ensure_future(send(governor, users(), max_wait=None))
    impatient = asyncio.ensure_future(send(governor, users(), max_wait=10.0))
    await time.settle()
    probe.learn(429, told(1_500, 0, 40))
    await time.settle()
    with pytest.raises(WouldWaitTooLong) as caught:
        await impatient
    assert caught.value.until >= EPOCH + timedelta(seconds=40)
    assert time.monotonic() == 1_000
    await time.run(patient)


async def test_patience_ends_when_an_answer_does_not_come(time: VirtualTime) -> None:
    governor = governed(time)
    probe = await held(governor)
    with_patience = asyncio.ensure_future(send(governor, ACCOUNTS, max_wait=10.0))
    await time.advance(9.9)
    assert not with_patience.done()
    await time.advance(0.2)
    with pytest.raises(WouldWaitTooLong):
        await with_patience
    probe.learn(200, {})


async def test_no_patience_at_all_takes_what_is_free(time: VirtualTime) -> None:
    governor = governed(time)
    await send(governor, ACCOUNTS, max_wait=0)
    probe = await held(governor)
    await send(governor, ACCOUNTS, max_wait=0)
    probe.learn(200, {})


async def test_endless_patience_may_be_infinite(time: VirtualTime) -> None:
    governor = governed(time)
    await used_up(governor)
    await time.run(send(governor, ACCOUNTS, max_wait=float("inf")))


async def test_one_that_gives_up_leaves_the_line_to_the_next(time: VirtualTime) -> None:
    governor = governed(time)
    probe = await held(governor)
    line = [asyncio.ensure_future(send(governor, ACCOUNTS, max_wait=wait)) for wait in (5.0, None)]
    await time.advance(6.0)
    assert [waiter.done() for waiter in line] == [True, False]
    probe.learn(200, {})
    await time.settle()
    assert line[1].done()
    with pytest.raises(WouldWaitTooLong):
        await line[0]


# What is told


async def test_503_lowers_the_concurrency_and_success_raises_it(time: VirtualTime) -> None:
    governor = governed(time)
    await send(governor, users())
    flying = []
    for _ in range(12):
        await time.advance(0.1)
        flying.append(await held(governor, users()))
    assert state(governor, "ads.audience_users").concurrency == 100
    for granted in flying:
        granted.learn(503, {})
    assert state(governor, "ads.audience_users").concurrency == 6
    for _ in range(60):
        await time.run(send(governor, users()))
    assert state(governor, "ads.audience_users").concurrency > 10


async def test_a_lost_answer_lowers_the_concurrency(time: VirtualTime) -> None:
    governor = governed(time)
    await send(governor, users())
    flying = [await held(governor, users()) for _ in range(8)]
    flying[0].mark_lost()
    assert state(governor, "ads.audience_users").concurrency == 4


async def test_an_answer_is_learned_once(time: VirtualTime) -> None:
    governor = governed(time)
    async with slot(governor, ACCOUNTS) as granted:
        granted.mark_sent()
        granted.learn(200, {})
        granted.learn(429, {})
        granted.mark_lost()
    assert state(governor).used == 1
    assert state(governor).closed_until is None


async def test_errors_teach_as_well(time: VirtualTime) -> None:
    governor = governed(time)
    await send(governor, ACCOUNTS, told(50, 20, 300), status=404)
    assert (state(governor).limit, state(governor).remaining) == (50, 20)


async def test_unknown_endpoint_is_learned_from_headers(time: VirtualTime) -> None:
    governor = governed(time)
    unknown = call("GET", "/2/users/me", surface=Surface.BASE)
    await time.run(*(send(governor, unknown, told(3, 3 - n, 100)) for n in range(1, 4)))
    assert state(governor, "GET /2/users/me").limit == 3
    await time.run(send(governor, unknown))
    assert time.monotonic() >= 1_100


async def test_snapshot_tells_every_bucket(time: VirtualTime) -> None:
    governor = governed(time)
    await used_up(governor)
    waiter = asyncio.ensure_future(send(governor, ACCOUNTS, told(5, 4, 900)))
    await time.settle()
    assert governor.snapshot() == (
        BucketState(
            name="ads.reads.global",
            scope="user ann",
            limit=5,
            used=5,
            remaining=None,
            waiting=1,
            opens_at=EPOCH + timedelta(seconds=QUARTER),
            closed_until=None,
            concurrency=100,
        ),
    )
    await time.run(waiter)
    assert state(governor).waiting == 0


async def test_many_accounts_do_not_pile_up(time: VirtualTime) -> None:
    governor = governed(time)
    for n in range(1_001):
        await send(governor, users(f"a{n}"))
    assert len(governor.snapshot()) == 1_001
    await time.advance(3_600.0)
    await send(governor, users("another"))
    await send(governor, users("a5"))
    assert [bucket.scope for bucket in governor.snapshot()] == ["account another", "account a5"]


@pytest.mark.parametrize("headroom", [0, -0.1, 1.01])
def test_headroom_is_a_part(headroom: float) -> None:
    with pytest.raises(InvalidArgument, match="headroom"):
        Governor(headroom=headroom)


async def test_a_governor_works_on_the_machines_clock() -> None:
    governor = Governor(limits=(Limit("all", 6_000, 1.0, Scope.APP, frozenset({"GET"}), ".*"),))
    await asyncio.gather(*(send(governor, ACCOUNTS) for _ in range(200)))
    assert governor.snapshot()[0].waiting == 0
