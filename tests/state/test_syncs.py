"""States of lists in PostgreSQL: one process takes over from another, and what goes wrong in a database."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from svc_async.errors import Hint, StateUnavailable, TakenUpElsewhere, UnusableState
from svc_async.state import SharedState
from svc_async.state.maintenance import list_syncs
from svc_async.store.records import RecordStore
from svc_async.sync.sending import ClockReading
from svc_async.sync.state import SyncState, open_sync_state
from tests.support.errors import has
from tests.support.sync_states import NOW, YEAR, compare, list_removals, sync

AT = ClockReading(NOW, 1_000.0)


@pytest.fixture
async def shared(postgres_url: str, schema: str) -> AsyncIterator[SharedState]:
    async with SharedState.open(postgres_url, schema=schema) as state:
        yield state


async def compare_rows(state: SyncState) -> None:
    await compare(state, {1: 11, 3: 30})


async def begin(state: SyncState) -> None:
    await state.begin(expires=NOW + YEAR)


async def admit(state: SyncState) -> None:
    state.start("upserts", "now")
    await state.admit(lambda: AT)


async def finish(state: SyncState) -> None:
    await state.finish(in_doubt=False, complete=True)


STEPS: list[Callable[[SyncState], Awaitable[Any]]] = [
    compare_rows,
    begin,
    list_removals,
    admit,
    finish,
    SyncState.settle,
]


@pytest.mark.parametrize(
    "replaced",
    [
        pytest.param(number, marks=() if step is admit else pytest.mark.long)  # what was admitted is sent
        for number, step in enumerate(STEPS)
    ],
)
async def test_a_sync_that_was_replaced_can_do_no_further_step(shared: SharedState, replaced: int) -> None:
    async with open_sync_state(shared, "a") as first:
        await sync(first, {1: 10, 2: 20})
        for step in STEPS[:replaced]:
            await step(first)
        first.record_accepted("upserts", [0])
        async with open_sync_state(shared, "a") as second:
            with pytest.raises(TakenUpElsewhere, check=has(name="the sync a")):
                await STEPS[replaced](first)
            await sync(second, {1: 10, 4: 40})
            with pytest.raises(TakenUpElsewhere):
                await STEPS[replaced](first)
            assert (await compare(second, {1: 10, 4: 40})).unchanged == 2


async def test_lists_do_not_share_their_states(shared: SharedState) -> None:
    async with open_sync_state(shared, "a") as first, open_sync_state(shared, "b") as second:
        await sync(first, {1: 10})
        assert (await compare(second, {1: 10})).additions == 1
        assert (await compare(first, {1: 10})).unchanged == 1


@asynccontextmanager
async def take_up(shared: SharedState) -> AsyncIterator[RecordStore]:
    _, store = await shared.open_sync_tables("a").open(lambda _: (None, {}), kinds=())
    try:
        yield store
    finally:
        await store.close()


async def test_a_process_that_stands_still_within_a_transaction_delays_nobody(shared: SharedState) -> None:
    async def stand_still() -> None:
        async with take_up(shared) as first, first.transaction() as writer:
            await writer.put("selection", 0, b"x")
            async with open_sync_state(shared, "a") as second:
                assert (await compare(second, {1: 10})).additions == 1

    with pytest.raises(TakenUpElsewhere):
        await stand_still()
    async with take_up(shared) as third:
        assert await third.list_numbers("selection") == []


@pytest.mark.parametrize("count", [3, pytest.param(25, marks=pytest.mark.long)])
async def test_a_sync_that_is_cancelled_at_any_moment_is_done_again(shared: SharedState, count: int) -> None:
    async def run(snapshot: dict[int, int]) -> None:
        async with open_sync_state(shared, "a") as state:
            await sync(state, snapshot)

    dice, ended = random.Random(1), 0
    for _ in range(count):
        await run({1: 10, 2: 20})
        task = asyncio.ensure_future(run({1: 11, 3: 30}))
        for _ in range(dice.randrange(1, 300)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        ended += not task.cancelled()
        async with open_sync_state(shared, "a") as state:
            plan = await compare(state, {1: 11, 3: 30})
            assert plan.unchanged + plan.changes + plan.additions == 2
            assert plan.removals + plan.doubtful <= 1
    assert ended < count


async def test_a_damaged_row_is_noticed(shared: SharedState) -> None:
    async with open_sync_state(shared, "a") as state:
        await sync(state, {1: 10})
    await shared.database.execute(
        "UPDATE records SET body = set_byte(body, 9, get_byte(body, 9) # 1) WHERE kind = 'page'"
    )
    with pytest.raises(UnusableState, check=has(parameter="state", name="a", hint=Hint.RESTORE_THE_DATABASE)):
        async with open_sync_state(shared, "a") as state:
            await compare(state, {1: 10})


async def test_a_row_that_is_missing_is_noticed(shared: SharedState) -> None:
    async with open_sync_state(shared, "a") as state:
        await sync(state, {1: 10})
    await shared.database.execute("DELETE FROM records WHERE kind = 'mark'")
    with pytest.raises(UnusableState, check=has(hint=Hint.RESTORE_THE_DATABASE)):
        async with open_sync_state(shared, "a") as state:
            await compare(state, {1: 10})


@pytest.mark.parametrize(("replaced", "error"), [(False, StateUnavailable), (True, TakenUpElsewhere)])
async def test_a_connection_that_is_lost_while_a_plan_is_stored_loses_nothing(
    shared: SharedState, *, replaced: bool, error: type[Exception]
) -> None:
    async def lose_connection() -> None:
        async with take_up(shared) as store, store.transaction() as writer:
            await writer.put("selection", 0, b"x")
            if replaced:
                async with take_up(shared):
                    pass
            await shared.database.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE relation = 'records'::regclass"
            )
            await writer.put("selection", 1, b"y")

    with pytest.raises(error):
        await lose_connection()
    async with open_sync_state(shared, "a") as state:
        assert (await compare(state, {1: 10})).additions == 1


async def test_states_are_listed_with_their_size_and_their_last_use(shared: SharedState) -> None:
    before = datetime.now(UTC) - timedelta(minutes=1)
    for rows, target in ((300, "b"), (2, "a"), (3, "a")):
        async with open_sync_state(shared, target) as state:
            await sync(state, dict.fromkeys(range(rows), 1))
    first, second = await list_syncs(shared.database)
    assert (first.target, first.rows, first.epoch) == ("a", 3, 2)
    assert (second.target, second.rows, second.epoch) == ("b", 300, 1)
    assert 300 * 43 < second.size < 300 * 44
    assert before < second.used_at <= first.used_at
    report = await shared.check()
    assert [*report.syncs] == [first, second]
    assert report.to_dict()["syncs"][0]["used_at"] == first.used_at.isoformat()
    await shared.prune(older_than=timedelta(0))
    assert len(await list_syncs(shared.database)) == 2
