import asyncio
import tempfile
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from svc_async import InvalidArgument
from svc_async.errors import UnusableFile
from svc_async.sync.entries import Entries
from svc_async.sync.pages.page import find_page
from svc_async.sync.sending import ClockReading
from svc_async.sync.state import SyncState, check_shared
from tests.support.errors import has
from tests.support.files import limit_memory
from tests.support.sync_states import (
    HASHED,
    NAMED,
    NOW,
    YEAR,
    OpenState,
    Snapshot,
    compare,
    find_none,
    key_of,
    list_removals,
    make_entries,
    name_of,
    read_rows,
    sync,
)

SENT_AT = ClockReading(NOW, 1_000.0)
HOUR = timedelta(hours=1)

BOTH = pytest.mark.parametrize("open_state", ["open_state_file", "open_shared_state"], indirect=True)
"""Has a test open states in a file and in PostgreSQL, also if it is short."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state"


@BOTH
@pytest.mark.parametrize("kind", [HASHED, NAMED])
async def test_only_what_changed_is_in_the_plan(open_state: OpenState, kind: int) -> None:
    async with open_state() as state:
        first = await sync(state, {1: 10, 2: 20, 3: 30, 2**63: 5}, kind=kind)
        assert (first.additions, first.upserts, first.all_removals) == (4, 4, 0)
        second = await compare(state, {4: 40, 2: 21, 1: 10, 2**63: 5}, kind=kind)
        assert (second.present, second.listed, second.unchanged) == (4, 4, 2)
        assert (second.additions, second.changes, second.refreshes, second.removals) == (1, 1, 0, 1)
        assert second.removal_share == 0.25
        await state.begin()
        assert [*state.find_upserts(range(4), "now")] == [0, 1]
        (removal,) = await list_removals(state)
        assert (removal.number, name_of(removal), removal.service_key) == (0, 3, None)
        assert [state.find_position(number) for number in range(2)] == [0, 1]


async def test_no_row_is_lost_when_one_more_needs_another_page(open_state: OpenState, small_pages: int) -> None:
    rows = dict.fromkeys(range(small_pages), 1)
    async with open_state() as state:
        for more in range(3):
            plan = await sync(state, rows | {2**63 + number: 1 for number in range(more)})
            assert (plan.present, plan.upserts) == ((small_pages - 1 + more, 1) if more else (0, small_pages))


async def test_what_changed_is_removed_first_where_sending_only_adds(open_state: OpenState) -> None:
    async with open_state() as state:
        await sync(state, {1: 10, 2: 20})
        plan = await compare(state, {1: 11, 2: 20}, replace=True)
        assert (plan.changes, plan.removals, plan.all_removals, plan.removal_share) == (1, 0, 1, 0.0)


async def test_what_expires_soon_is_sent_again_and_what_has_expired_is_new(open_state: OpenState) -> None:
    async with open_state() as state:
        await sync(state, {1: 10, 2: 20})
        assert (await compare(state, {1: 10, 2: 20}, now=NOW + YEAR - timedelta(days=31))).upserts == 0
        soon = await compare(state, {1: 10}, now=NOW + YEAR - timedelta(days=29))
        assert (soon.refreshes, soon.additions, soon.removals) == (1, 0, 1)
        late = await compare(state, {1: 10}, now=NOW + YEAR)
        assert (late.present, late.refreshes, late.additions, late.removals) == (0, 0, 1, 0)


async def test_what_expires_in_the_course_of_a_day_is_sent_again_on_that_day(open_state: OpenState) -> None:
    async with open_state() as state:
        await compare(state, {1: 10})
        await state.begin(expires=NOW + 10 * HOUR)
        state.record_accepted("upserts", [0])
        await state.settle()
        assert (await compare(state, {1: 10}, now=NOW + 11 * HOUR, soon=timedelta(0))).refreshes == 1
        assert (await compare(state, {}, now=NOW + 11 * HOUR, soon=timedelta(0))).removals == 1


async def test_who_expires_in_the_far_future_is_sent_again_when_days_run_out(open_state: OpenState) -> None:
    async with open_state() as state:
        await compare(state, {1: 10})
        await state.begin(expires=NOW + timedelta(days=200 * 365))
        state.record_accepted("upserts", [0])
        await state.settle()
        assert (await compare(state, {1: 10})).unchanged == 1
        assert (await compare(state, {1: 10}, now=NOW + timedelta(days=119 * 365 + 170))).refreshes == 1


async def test_what_does_not_expire_is_never_sent_again(open_state: OpenState) -> None:
    async with open_state() as state:
        await compare(state, {1: 10})
        await state.begin(expires=None)
        state.record_accepted("upserts", [0])
        await state.settle()
        assert (await compare(state, {1: 10}, now=NOW + 100 * YEAR)).unchanged == 1


@pytest.mark.usefixtures("small_pages")
async def test_other_tasks_run_between_the_pages_that_are_settled(open_state: OpenState) -> None:
    turns: list[int] = [0]
    turns_at_pages: list[int] = []

    async def count_turns() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    async with open_state() as state:
        plan = await compare(state, dict.fromkeys((number << 47 for number in range(200)), 1))
        await state.begin(expires=NOW + YEAR)
        state.record_accepted("upserts", range(plan.upserts))
        counting = asyncio.ensure_future(count_turns())
        await state.settle(on_page=lambda *_: turns_at_pages.append(turns[0]))
        counting.cancel()

    assert len(set(turns_at_pages)) == len(turns_at_pages) > 1


async def test_a_row_that_failed_is_not_there(open_state: OpenState) -> None:
    async with open_state() as state:
        await compare(state, {1: 10, 2: 20, 3: 30})
        await state.begin(expires=NOW + YEAR)
        state.record_accepted("upserts", [0])
        state.record_failed("upserts", [1])
        state.record_accepted("upserts", [2])
        await state.settle()
        plan = await compare(state, {1: 10, 2: 20})
        assert (plan.present, plan.unchanged, plan.additions, plan.removals) == (2, 1, 1, 1)


@BOTH
async def test_a_change_that_failed_leaves_what_was_there(open_state: OpenState) -> None:
    async with open_state() as state:
        await sync(state, {1: 10})
        await compare(state, {1: 11})
        await state.begin(expires=NOW + YEAR)
        state.record_failed("upserts", [0])
        await state.settle()
        assert (await compare(state, {1: 10})).unchanged == 1
        assert (await compare(state, {})).removals == 1


async def test_a_change_that_was_refused_leaves_what_was_there_beside_others_that_were_not(
    open_state: OpenState,
) -> None:
    async with open_state() as state:
        await sync(state, {1: 10, 2: 20})
        await compare(state, {1: 11, 2: 21})
        await state.begin(expires=NOW + YEAR)
        state.start("upserts", "now")
        await state.admit(lambda: SENT_AT)
        state.record_accepted("upserts", [0])
        state.record_failed("upserts", [1])
        await state.finish(in_doubt=False, complete=True)
        await state.settle()
        assert (await compare(state, {1: 11, 2: 20})).unchanged == 2


@pytest.mark.parametrize("settle", [True, False])
async def test_a_row_without_an_outcome_is_sent_again_or_removed(open_state: OpenState, *, settle: bool) -> None:
    async with open_state() as state:
        await compare(state, {1: 10, 2: 20})
        await state.begin(expires=NOW + YEAR)
        state.start("upserts", "now")
        await state.admit(lambda: SENT_AT)
        if settle:
            await state.settle()
    async with open_state() as state:
        plan = await compare(state, {1: 10, 3: 30})
        assert (plan.present, plan.additions, plan.removals, plan.doubtful, plan.all_removals) == (0, 2, 0, 1, 1)
        await state.begin()
        assert [name_of(removal) for removal in await list_removals(state)] == [2]


async def test_what_was_certainly_not_sent_is_as_before_unless_it_was_to_be_removed(open_state: OpenState) -> None:
    async with open_state() as state:
        await sync(state, {1: 10, 2: 20, 3: 30})
        await compare(state, {1: 11, 2: 20, 4: 40}, now=NOW + YEAR - timedelta(days=29), replace=True)
        await state.begin(expires=NOW + 2 * YEAR)
    async with open_state() as state:
        plan = await compare(state, {1: 10, 2: 20, 3: 30, 4: 40})
        assert (plan.present, plan.unchanged, plan.additions) == (3, 1, 3)


async def test_a_part_that_was_not_begun_is_as_before(open_state: OpenState) -> None:
    async with open_state() as state:
        await sync(state, {1: 10, 2: 20})
        await compare(state, {1: 11, 3: 30}, replace=True)
        await state.begin(expires=NOW + YEAR)
        state.start("removals", "now")
        await state.admit(lambda: SENT_AT)
    async with open_state() as state:
        plan = await compare(state, {1: 10, 2: 20, 3: 30}, replace=True)
        assert (plan.additions, plan.all_removals) == (3, 0)  # 1 and 2 were removed, or are there as they were


async def test_a_removal_in_doubt_counts_for_the_largest_share(open_state: OpenState) -> None:
    async with open_state() as state:
        await sync(state, dict.fromkeys(range(10), 1))
        await compare(state, dict.fromkeys(range(7), 1))
        await state.begin(expires=NOW + YEAR)
        state.start("removals", "now")
        await state.admit(lambda: SENT_AT)
    async with open_state() as state:
        plan = await compare(state, {0: 1})
        assert (plan.present, plan.removals, plan.removal_share) == (10, 9, 0.9)


async def test_a_plan_that_was_not_begun_leaves_nothing(open_state: OpenState) -> None:
    async with open_state() as state:
        await sync(state, {1: 10})
        await compare(state, {2: 20})
    async with open_state() as state:
        plan = await compare(state, {1: 10})
        assert (plan.unchanged, plan.upserts, plan.all_removals) == (1, 0, 0)


async def test_of_rows_of_one_key_the_last_counts(open_state: OpenState) -> None:
    async with open_state() as state:
        plan = await compare(state, [(1, 10), (2, 20), (1, 11)])
        await state.begin(expires=NOW + YEAR)
        assert (plan.listed, plan.additions) == (2, 2)
        assert [*state.find_upserts(range(3), "now")] == [1, 2]
        state.record_accepted("upserts", [0, 1])
        await state.settle()
        assert (await compare(state, {1: 11, 2: 20})).unchanged == 2
        again = await compare(state, [(1, 11), (2, 20), (1, 10), (2, 21), (2, 20)])
        assert (again.listed, again.changes, again.unchanged) == (2, 1, 1)


async def test_rows_without_a_key_come_with_what_is_sent(open_state: OpenState) -> None:
    async with open_state() as state:
        plan = await compare(state, [(1, 10), None, None])
        assert (plan.invalid_rows, plan.upserts, plan.listed) == (2, 3, 1)
        await state.begin()
        assert [*state.find_upserts(range(3), "now")] == [0, 1, 2]


async def test_the_services_keys_are_kept_over_changes(open_state: OpenState) -> None:
    async with open_state() as state:
        await compare(state, {1: 10, 2: 20})
        await state.begin()
        state.record_service_keys({key_of(1): "one", key_of(2): "two"})
        state.record_accepted("upserts", [0, 1])
        await state.settle()
        await sync(state, {1: 11, 2: 20})
        await compare(state, {})
        await state.begin()
        assert {name_of(each): each.service_key for each in await list_removals(state)} == {1: "one", 2: "two"}


@pytest.mark.long("a settlement needs a file only for several megabytes")
async def test_a_settlement_that_cannot_write_temporary_files_says_so(
    open_shared_state: OpenState, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys = {name: f"{name}-{'x' * 100_000}" for name in range(60)}
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    async with open_shared_state() as state:
        await compare(state, dict.fromkeys(keys, 1), kind=NAMED)
        await state.begin()
        for name, service_key in keys.items():
            state.record_service_keys({key_of(name): service_key})
        state.record_accepted("upserts", range(len(keys)))
        folder.rmdir()
        with pytest.raises(UnusableFile, check=has(path=str(folder))):
            await state.settle()
        folder.mkdir()
        await compare(state, {}, kind=NAMED)
        await state.begin()
        assert {name_of(each): each.service_key for each in await list_removals(state)} == keys


async def test_a_snapshot_that_removes_too_much_is_stopped(open_state: OpenState) -> None:
    async with open_state() as state:
        await sync(state, dict.fromkeys(range(10), 1))
        plan = await compare(state, dict.fromkeys(range(7), 1))
        plan.check(0.3)
        with pytest.raises(InvalidArgument, check=has(parameter="max_removal_share")):
            plan.check(0.29)
        assert (await compare(state, {})).removal_share == 1.0
        (await compare(state, {})).check(1)


async def lose_upserts(state: SyncState, snapshot: Snapshot, sent: ClockReading) -> None:
    """Begin a sync whose only request stays without an answer."""
    await compare(state, snapshot)
    await state.begin(expires=NOW + YEAR)
    state.start("upserts", "now")
    await state.admit(lambda: sent)
    await state.settle()


async def test_a_request_that_took_effect_long_ago_delays_nothing_after_another_one(
    open_state: OpenState, small_pages: int
) -> None:
    rows = dict.fromkeys(range(small_pages + 1), 1)  # two pages: 0 is on one of them, 5 on the other
    assert [find_page(key_of(key), 2) for key in (0, 5)] == [0, 1]
    async with open_state() as state:
        await sync(state, {key: 1 for key in rows if key})
        await lose_upserts(state, rows, SENT_AT)
        await sync(state, rows, quarantine=120)  # 0 is there; its first request may still take effect
        await lose_upserts(state, rows | {5: 2}, ClockReading(NOW, 5_000.0, "a"))  # by then it has taken effect
    async with open_state() as state:
        removed = [await compare(state, {key: 1}, quarantine=120, monotonic=5_000.0, boot="a") for key in (5, 0)]
        assert [(plan.all_removals, plan.waiting_removals) for plan in removed] == [(small_pages, 0), (small_pages, 1)]


# --- many rows


def test_a_sync_on_a_cluster_is_refused_with_a_state_in_a_file(path: Path) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="state")):
        check_shared(path)


@pytest.mark.usefixtures("small_pages")
async def test_pages_are_announced_as_they_are_compared(open_state: OpenState) -> None:
    rows, pages = dict.fromkeys(range(200), 1), list[tuple[int, int]]()
    async with open_state() as state:
        await sync(state, rows)
        await state.compare(
            read_rows(rows),
            now=SENT_AT,
            soon=NOW,
            find_linked=find_none,
            on_compared=lambda *each: pages.append(each),
        )
    assert pages == [(number, len(pages)) for number in range(len(pages))]
    assert len(pages) > 1


@pytest.mark.long("memory shows in many rows")
async def test_memory_is_flat(open_state: OpenState) -> None:
    async def many(count: int) -> AsyncIterator[Entries]:
        for first in range(0, count, 512):
            yield make_entries([(number, 1) for number in range(first, first + 512)], first=first)

    async with open_state() as state:
        for _ in range(2):
            with limit_memory(12):
                plan = await state.compare(many(51_200), now=SENT_AT, soon=NOW, find_linked=find_none)
                await state.begin(expires=NOW + YEAR)
                assert (
                    sum(len(state.find_upserts(range(n, n + 512), "now")) for n in range(0, 51_200, 512))
                    == plan.upserts
                )
                for first in range(0, plan.upserts, 512):
                    state.record_accepted("upserts", range(first, first + 512))
                await state.settle()
        assert (await state.compare(many(51_200), now=SENT_AT, soon=NOW, find_linked=find_none)).unchanged == 51_200
