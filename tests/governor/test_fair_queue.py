"""Waiting in turn: what goes first, and what is never held up."""

import asyncio
import random
from functools import partial
from typing import Any

import pytest

from svc_async.governor.governor import Governor
from svc_async.governor.limits import Limit, Scope
from svc_async.wire.route import Request
from tests.support.clock import DrivenClock
from tests.support.rate_limits import (
    ACCOUNTS,
    card_list,
    line_item_list,
    make_governor,
    rate_limit_headers,
    send,
    users_batch,
)

QUARTER = 900.0


@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.parametrize("reads", [30, 100, *(pytest.param(reads, marks=pytest.mark.long) for reads in (800, 2_000))])
async def test_a_heavy_request_does_not_starve(clock: DrivenClock, reads: int, *, bulk: bool) -> None:
    governor = make_governor(clock, ads_total_count=10, ads_reads_account=reads)
    done: list[str] = []
    end = 5 * QUARTER

    async def saturate(request: Request[Any], name: str, *, after: float = 0.0) -> None:
        await clock.sleep(after)
        while clock.monotonic() < end:
            await send(governor, request, on_answer=partial(done.append, name), bulk=bulk)

    async def send_heavy() -> None:
        await clock.sleep(10.0)
        for _ in range(2):
            entered = clock.monotonic()
            await send(governor, card_list(total=True), bulk=bulk)
            assert clock.monotonic() - entered <= 2 * QUARTER, "one period to have its turn in each of its buckets"
        done.append("heavy")

    # Lighter requests saturate both of its buckets, and these never open at the same moment.
    light = [saturate(card_list(), "reads") for _ in range(4)]
    light += [saturate(line_item_list(total=True), "totals", after=7.3) for _ in range(4)]
    await clock.run(*light, send_heavy())

    assert "heavy" in done
    assert done.count("totals") > 30, "the others had nearly all of the limit"


async def test_a_free_key_never_waits_behind_a_busy_one(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    for account in ("busy", "free"):
        await send(governor, users_batch(account))
    await send(governor, users_batch("busy"), rate_limit_headers(1_500, 0, 50))
    busy = [asyncio.ensure_future(send(governor, users_batch("busy"))) for _ in range(50)]
    await clock.settle()

    await clock.run(*(send(governor, users_batch("free")) for _ in range(5)))

    assert clock.monotonic() < 1
    assert not any(waiter.done() for waiter in busy)
    await clock.run(*busy)


async def test_a_flow_closed_elsewhere_is_skipped(clock: DrivenClock) -> None:
    governor = make_governor(clock, ads_total_count=1)
    await send(governor, card_list(total=True))
    heavy = asyncio.ensure_future(send(governor, card_list(total=True)))
    await clock.settle()

    await clock.run(*(send(governor, card_list()) for _ in range(5)))

    assert clock.monotonic() < 3
    assert not heavy.done()
    await clock.run(heavy)
    assert clock.monotonic() >= QUARTER


async def test_accounts_take_turns_and_each_is_first_in_first_out(clock: DrivenClock) -> None:
    row = Limit("all", 100, 60.0, Scope.USER, frozenset({"GET"}), ".*", documented=True)
    governor = Governor(limits=(row,), clock=clock, rng=random.Random(5))
    await send(governor, card_list())
    done: list[tuple[str, int]] = []

    await clock.run(
        *(
            send(governor, card_list(account), on_answer=partial(done.append, (account, number)))
            for account, count in (("x", 30), ("y", 3))
            for number in range(count)
        )
    )

    assert [number for account, number in done if account == "x"] == list(range(30))
    assert [number for account, number in done if account == "y"] == list(range(3))
    assert all(done.index(("y", number)) <= 8 for number in range(3))


async def test_interactive_goes_first_and_bulk_has_its_minimum(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    await send(governor, users_batch())
    done: list[str] = []

    await clock.run(
        *(send(governor, users_batch(), on_answer=partial(done.append, "bulk"), bulk=True) for _ in range(100)),
        *(send(governor, users_batch(), on_answer=partial(done.append, "interactive")) for _ in range(100)),
    )

    mixed = done[20 : done.index("interactive") + 100]
    assert mixed.count("bulk") <= 0.2 * len(mixed)
    assert "bulk" in mixed[:30]


async def test_bulk_leaves_a_reserve_of_a_small_limit(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    done: list[None] = []
    bulk = [
        asyncio.ensure_future(send(governor, ACCOUNTS, on_answer=partial(done.append, None), bulk=True))
        for _ in range(10)
    ]
    await clock.settle()
    assert len(done) == 4

    await clock.run(send(governor, ACCOUNTS, max_wait=0))

    await clock.run(*bulk)
