"""Whose turn it is at a bucket: in which order flows go, what bulk leaves, and what a reservation holds up."""

from typing import Any

import pytest

from svc_async.governor.fair_queue import Bucket, Flow
from svc_async.governor.windows import NEVER, SECOND, Demand, Window

MINUTE = 60 * SECOND


def make_bucket(limit: int = 50, *, used: int = 0, cold: bool = False) -> Bucket[str]:
    window = Window(limit, MINUTE, documented=True)
    if not cold:
        window.concurrency.cold, window.concurrency.allowed = False, 1_000
    for _ in range(used):
        window.take(1, 0)
        window.settle(1, 0)
    return Bucket("limit", "app", window)


def make_flow(*buckets: Bucket[str], waiting: str, bulk: bool = False) -> Flow[str]:
    flow: Flow[str] = Flow(buckets, bulk)
    for waiter in waiting:
        flow.join(waiter, NEVER)
    return flow


def serve_all(bucket: Bucket[str], now: int = 1) -> str:
    served = ""
    while flow := bucket.next_flow(now):
        served += flow.serve()
        bucket.window.take(1, now)
    return served


def test_flows_take_turns_and_each_is_first_in_first_out() -> None:
    bucket = make_bucket()
    for waiting in ("abcd", "12", "x"):
        make_flow(bucket, waiting=waiting)

    assert serve_all(bucket) == "a1xb2cd"


def test_after_nine_interactive_requests_in_a_row_bulk_is_first_once() -> None:
    bucket = make_bucket()
    make_flow(bucket, waiting="abcdefghijklmnopqrstuvwxy")
    make_flow(bucket, waiting="123", bulk=True)

    assert serve_all(bucket) == "abcdefghi1jklmnopqr2stuvwxy3"


def test_interactive_requests_without_bulk_waiting_do_not_count() -> None:
    bucket = make_bucket()
    make_flow(bucket, waiting="abcdefghijkl")
    for _ in range(8):
        flow = bucket.next_flow(1)
        assert flow is not None
        flow.serve()

    make_flow(bucket, waiting="1", bulk=True)

    assert serve_all(bucket) == "ijkl1"


def test_a_bulk_request_begins_a_new_row() -> None:
    bucket = make_bucket()
    bulk = make_flow(bucket, waiting="12", bulk=True)
    make_flow(bucket, waiting="abcdefghij")
    for _ in range(5):
        flow = bucket.next_flow(1)
        assert flow is not None
        flow.serve()
    assert bucket.interactive_streak == 5

    bulk.serve()

    assert bucket.interactive_streak == 0
    assert serve_all(bucket) == "fghij2"


@pytest.mark.parametrize(("limit", "used", "goes"), [(40, 37, "1"), (40, 38, ""), (1, 0, "1"), (2, 0, "1"), (2, 1, "")])
def test_bulk_leaves_the_reserve(limit: int, used: int, goes: str) -> None:
    bucket = make_bucket(limit, used=used)
    flow = make_flow(bucket, waiting="1", bulk=True)

    assert flow.may_go(1) is bool(goes)
    assert serve_all(bucket) == goes


def test_in_its_turn_bulk_may_take_the_reserve() -> None:
    bucket = make_bucket(40, used=39)
    make_flow(bucket, waiting="a")
    make_flow(bucket, waiting="1", bulk=True)
    assert (bucket.cost(bulk=True), bucket.cost(bulk=False)) == (3, 1)
    bucket.interactive_streak = 9

    assert (bucket.cost(bulk=True), bucket.cost(bulk=False)) == (1, 1)
    assert serve_all(bucket) == "1"


def test_a_flow_that_another_bucket_keeps_closed_is_skipped() -> None:
    free, closed = make_bucket(), make_bucket(1, used=1)
    make_flow(free, closed, waiting="h")
    make_flow(free, waiting="ab")

    assert serve_all(free) == "ab"


@pytest.mark.parametrize(("opens_in", "is_reserved"), [(0, False), (1, True), (SECOND, True), (SECOND + 1, False)])
def test_the_slowest_bucket_is_reserved_for_up_to_a_second(opens_in: int, is_reserved: bool) -> None:
    slow, fast = make_bucket(5), make_bucket(50)
    fast.window.gate.close(10 + opens_in, is_stated=True)  # type: ignore[attr-defined]  # a local window
    make_flow(slow, fast, waiting="h")
    light = make_flow(slow, waiting="l")

    flow = slow.next_flow(10)

    if opens_in == 0:
        assert flow is not None
        assert flow.first() == "h"
    else:
        assert (flow is None) is is_reserved
        assert light.may_go(10) is not is_reserved
        assert light.may_go(10 + opens_in)
        assert slow.next_check_at(10) == (10 + opens_in if is_reserved else NEVER)


def test_a_fast_bucket_is_not_reserved() -> None:
    slow, fast = make_bucket(5), make_bucket(50)
    slow.window.gate.close(11, is_stated=True)  # type: ignore[attr-defined]  # a local window
    make_flow(slow, fast, waiting="h")
    make_flow(fast, waiting="l")

    assert serve_all(fast, 10) == "l"


def test_a_reservation_ends_when_the_bucket_is_looked_at_again() -> None:
    slow, fast = make_bucket(5), make_bucket(50)
    fast.window.gate.close(11, is_stated=True)  # type: ignore[attr-defined]  # a local window
    heavy = make_flow(slow, fast, waiting="h")
    light = make_flow(slow, waiting="l")
    assert slow.next_flow(10) is None
    assert not light.may_go(10)

    heavy.leave("h")
    slow.window.gate.close(20, is_stated=True)  # type: ignore[attr-defined]  # a local window

    assert slow.next_flow(10) is None
    assert slow.next_check_at(10) == 20


def make_skipped(limit: int, *, waiting: str = "h", bulk: bool = False) -> tuple[Bucket[str], Bucket[str], Flow[str]]:
    """Return a bucket, a faster one that is closed for a minute, and a flow that takes both."""
    slow, fast = make_bucket(limit), make_bucket(50, used=50)
    return slow, fast, make_flow(slow, fast, waiting=waiting, bulk=bulk)


def open_and_serve(fast: Bucket[str]) -> str:
    """Return what the faster bucket serves when it opens."""
    flow = fast.next_flow(MINUTE)
    return "" if flow is None else flow.serve()


@pytest.mark.parametrize(("limit", "goes"), [(1, ""), (2, "l"), (4, "lmn")])
def test_the_slowest_bucket_keeps_one_request_for_a_flow_that_is_skipped(limit: int, goes: str) -> None:
    slow, fast, _ = make_skipped(limit, waiting="hi")
    make_flow(slow, waiting="lmnopq")

    assert serve_all(slow) == goes
    assert open_and_serve(fast) == "h"


def test_nothing_is_kept_for_a_flow_that_was_served_or_left() -> None:
    slow, fast, heavy = make_skipped(3, waiting="hij")
    light = make_flow(slow, waiting="l")
    slow.window.take(2, 1)
    assert slow.next_flow(1) is None
    assert not light.may_go(1)

    assert open_and_serve(fast) == "h"
    assert light.may_go(1)
    assert slow.next_flow(1) is light, "its turn comes after that of the others"
    fast.window.take(49, MINUTE)
    light.serve()
    late = make_flow(slow, waiting="m")
    assert slow.next_flow(1) is None
    for waiter in "ij":
        heavy.leave(waiter)

    assert slow.next_flow(1) is late


def test_bulk_leaves_what_is_kept_and_the_reserve_and_takes_what_is_kept_for_it_without_the_reserve() -> None:
    slow, _, heavy = make_skipped(40, bulk=True)
    light = make_flow(slow, waiting="1", bulk=True)
    slow.window.take(36, 1)
    assert slow.next_flow(1) is light
    assert slow.admits(heavy, 1)

    slow.window.take(1, 1)
    assert slow.next_flow(1) is None
    assert slow.next_check_at(1) == 1 + MINUTE, "with the reserve, and with what is kept"
    slow.window.take(2, 1)
    assert slow.admits(heavy, 1)
    assert not slow.admits(make_flow(slow, waiting="a"), 1)


def test_a_bucket_is_checked_for_what_is_kept_and_then_for_the_others() -> None:
    slow, _, _ = make_skipped(4, bulk=True)
    make_flow(slow, waiting="1", bulk=True)
    slow.next_flow(1)
    for now in (1, 2, 3, 4):
        slow.window.take(1, now)
        slow.window.settle(1, now)

    assert slow.next_check_at(10) == MINUTE + 1, "the one that is kept"
    assert slow.next_check_at(MINUTE + 1) == MINUTE + 2, "an interactive one"
    assert slow.next_check_at(MINUTE + 2) == MINUTE + 3, "bulk, which leaves a reserve"


def test_a_bucket_keeps_nothing_that_is_no_longer_the_slowest() -> None:
    slow, fast, _ = make_skipped(3)
    light = make_flow(slow, waiting="l")
    slow.window.take(2, 1)
    assert slow.next_flow(1) is None

    fast.window.limit = 2  # type: ignore[misc]  # a local window

    assert slow.next_flow(1) is light


def test_a_fast_bucket_keeps_nothing() -> None:
    slow, fast = make_bucket(5, used=5), make_bucket(50, used=49)
    make_flow(slow, fast, waiting="h")
    make_flow(fast, waiting="l")

    assert serve_all(fast, 10) == "l"


def test_a_closed_bucket_serves_nobody() -> None:
    bucket = make_bucket(1, used=1)
    assert bucket.next_flow(MINUTE - 1) is None
    make_flow(bucket, waiting="a")

    assert bucket.next_flow(MINUTE - 1) is None
    assert serve_all(bucket, MINUTE) == "a"


def test_a_bucket_is_checked_at_the_next_deadline_or_when_it_opens_for_interactive_or_bulk() -> None:
    bucket = make_bucket(2, used=1)
    bucket.window.take(1, 9)
    bucket.window.settle(1, 9)
    bulk: Flow[str] = Flow((bucket,), True)

    assert bucket.next_check_at(10) == MINUTE
    bulk.join("1", NEVER)
    assert bucket.next_check_at(10) == MINUTE
    assert bucket.next_check_at(MINUTE) == MINUTE + 9, "for bulk, with the reserve"
    bulk.join("2", 50)
    assert (bucket.next_deadline, bucket.next_check_at(10)) == (50, 50)
    bulk.join("3", 70)
    assert bucket.next_deadline == 50


def count(bucket: Bucket[Any]) -> tuple[Demand, bool, bool]:
    return bucket.count_waiting(), bucket.has_waiters, bucket.needs_attention


def test_what_waits_is_counted_by_priority() -> None:
    bucket = make_bucket()
    assert count(bucket) == (Demand(interactive=0, bulk=0), False, False)

    interactive = make_flow(bucket, waiting="ab")
    assert count(bucket) == (Demand(interactive=2, bulk=0), True, True)
    bulk = make_flow(bucket, waiting="123", bulk=True)
    assert count(bucket) == (Demand(interactive=2, bulk=3), True, True)

    interactive.leave("a")
    interactive.leave("b")
    assert count(bucket) == (Demand(interactive=0, bulk=3), True, True)
    for waiter in "213":
        bulk.leave(waiter)
    assert count(bucket) == (Demand(interactive=0, bulk=0), False, False)
    bucket.wake_at = 5
    assert bucket.needs_attention, "a timer is set"


def test_a_flow_opens_when_all_its_buckets_do_and_after_those_ahead() -> None:
    first, second = make_bucket(2, used=2), make_bucket(3)
    for now in (5, 7, 9):
        second.window.take(1, now)
        second.window.settle(1, now)
    flow = make_flow(first, second, waiting="a")
    bulk = make_flow(second, waiting="1", bulk=True)

    assert flow.opens_at(10) == MINUTE + 5
    assert bulk.opens_at(10) == MINUTE + 7, "with the reserve"
    assert [flow.firm_opens_at(10, ahead=ahead) for ahead in (0, 1, 2)] == [MINUTE + 5, MINUTE + 7, 2 * MINUTE]
    assert flow.slowest is first
    assert flow.find_firm_turn(10, ahead=0) == (MINUTE + 5, second)
    assert make_flow(first, make_bucket(2), waiting="a").find_firm_turn(10, ahead=0) == (MINUTE, first)
