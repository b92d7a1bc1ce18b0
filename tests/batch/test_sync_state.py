import itertools
import random
import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from svc_async import InvalidArgument, UnusableFile
from svc_async.batch.sync.pages.file import FORMAT
from svc_async.batch.sync.plan import Entries
from svc_async.batch.sync.sending import ClockReading
from svc_async.batch.sync.state import SyncState
from tests.support.files import limit_memory
from tests.support.sync_states import (
    HASHED,
    NAMED,
    NOW,
    YEAR,
    UnsyncedConnection,
    compare,
    key_of,
    make_entries,
    name_of,
    sync,
)

SENT_AT = ClockReading(NOW, 1_000.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.mark.parametrize("kind", [HASHED, NAMED])
async def test_only_what_changed_is_in_the_plan(path: Path, kind: int) -> None:
    with SyncState(path, target="a") as state:
        first = await sync(state, {1: 10, 2: 20, 3: 30, 2**63: 5}, kind=kind)
        assert (first.additions, first.upserts, first.all_removals) == (4, 4, 0)
        second = await compare(state, {4: 40, 2: 21, 1: 10, 2**63: 5}, kind=kind)
        assert (second.present, second.listed, second.unchanged) == (4, 4, 2)
        assert (second.additions, second.changes, second.refreshes, second.removals) == (1, 1, 0, 1)
        assert second.removal_share == 0.25
        await state.begin()
        assert list(state.upserts("abcd", "now")) == ["a", "b"]
        (removal,) = state.removals("now")
        assert (removal.number, name_of(removal), removal.service_key) == (0, 3, None)
        assert [state.find_position(number) for number in range(2)] == [0, 1]


async def test_no_row_is_lost_when_one_more_needs_another_page(path: Path) -> None:
    rows = dict.fromkeys(range(12_288), 1)
    with SyncState(path, target="a") as state:
        for more in range(3):
            plan = await sync(state, rows | {2**63 + number: 1 for number in range(more)})
            assert (plan.present, plan.upserts) == ((12_287 + more, 1) if more else (0, 12_288))


async def test_what_changed_is_removed_first_where_sending_only_adds(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await sync(state, {1: 10, 2: 20})
        plan = await compare(state, {1: 11, 2: 20}, replace=True)
        assert (plan.changes, plan.removals, plan.all_removals, plan.removal_share) == (1, 0, 1, 0.0)


async def test_what_expires_soon_is_sent_again_and_what_has_expired_is_new(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await sync(state, {1: 10, 2: 20})
        assert (await compare(state, {1: 10, 2: 20}, now=NOW + YEAR - timedelta(days=31))).upserts == 0
        soon = await compare(state, {1: 10}, now=NOW + YEAR - timedelta(days=29))
        assert (soon.refreshes, soon.additions, soon.removals) == (1, 0, 1)
        late = await compare(state, {1: 10}, now=NOW + YEAR)
        assert (late.present, late.refreshes, late.additions, late.removals) == (0, 0, 1, 0)


async def test_what_expires_in_the_course_of_a_day_is_sent_again_on_that_day(path: Path) -> None:
    hour = timedelta(hours=1)
    with SyncState(path, target="a") as state:
        await compare(state, {1: 10})
        await state.begin(expires=NOW + 10 * hour)
        state.record_accepted("upserts", [0])
        await state.settle()
        assert (await compare(state, {1: 10}, now=NOW + 11 * hour, soon=timedelta(0))).refreshes == 1
        assert (await compare(state, {}, now=NOW + 11 * hour, soon=timedelta(0))).removals == 1


async def test_who_expires_in_the_far_future_is_sent_again_when_days_run_out(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await compare(state, {1: 10})
        await state.begin(expires=NOW + timedelta(days=200 * 365))
        state.record_accepted("upserts", [0])
        await state.settle()
        assert (await compare(state, {1: 10})).unchanged == 1
        assert (await compare(state, {1: 10}, now=NOW + timedelta(days=119 * 365 + 170))).refreshes == 1


async def test_what_does_not_expire_is_never_sent_again(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await compare(state, {1: 10})
        await state.begin(expires=None)
        state.record_accepted("upserts", [0])
        await state.settle()
        assert (await compare(state, {1: 10}, now=NOW + 100 * YEAR)).unchanged == 1


async def test_a_row_that_failed_is_not_there(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await compare(state, {1: 10, 2: 20, 3: 30})
        await state.begin(expires=NOW + YEAR)
        state.record_accepted("upserts", [0])
        state.record_failed("upserts", [1])
        state.record_accepted("upserts", [2])
        await state.settle()
        plan = await compare(state, {1: 10, 2: 20})
        assert (plan.present, plan.unchanged, plan.additions, plan.removals) == (2, 1, 1, 1)


async def test_a_change_that_failed_leaves_what_was_there(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await sync(state, {1: 10})
        await compare(state, {1: 11})
        await state.begin(expires=NOW + YEAR)
        state.record_failed("upserts", [0])
        await state.settle()
        assert (await compare(state, {1: 10})).unchanged == 1
        assert (await compare(state, {})).removals == 1


@pytest.mark.parametrize("settle", [True, False])
async def test_a_row_without_an_outcome_is_sent_again_or_removed(path: Path, *, settle: bool) -> None:
    with SyncState(path, target="a") as state:
        await compare(state, {1: 10, 2: 20})
        await state.begin(expires=NOW + YEAR)
        state.start("upserts", "now")
        await state.admit(SENT_AT)
        if settle:
            await state.settle()
    with SyncState(path, target="a") as state:
        plan = await compare(state, {1: 10, 3: 30})
        assert (plan.present, plan.additions, plan.removals, plan.doubtful, plan.all_removals) == (0, 2, 0, 1, 1)
        await state.begin()
        assert [name_of(removal) for removal in state.removals("now")] == [2]


async def test_what_was_certainly_not_sent_is_as_before(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await sync(state, {1: 10, 2: 20, 3: 30})
        await compare(state, {1: 11, 2: 20, 4: 40}, now=NOW + YEAR - timedelta(days=29), replace=True)
        await state.begin(expires=NOW + 2 * YEAR)
    with SyncState(path, target="a") as state:
        plan = await compare(state, {1: 10, 2: 20, 3: 30, 4: 40})
        assert (plan.present, plan.unchanged, plan.additions) == (3, 3, 1)


async def test_a_part_that_was_not_begun_is_as_before(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await sync(state, {1: 10, 2: 20})
        await compare(state, {1: 11, 3: 30}, replace=True)
        await state.begin(expires=NOW + YEAR)
        state.start("removals", "now")
        await state.admit(SENT_AT)
    with SyncState(path, target="a") as state:
        plan = await compare(state, {1: 10, 2: 20, 3: 30}, replace=True)
        assert (plan.additions, plan.all_removals) == (3, 0)  # 1 and 2 were removed, or are there as they were


async def test_a_removal_in_doubt_counts_for_the_largest_share(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await sync(state, dict.fromkeys(range(10), 1))
        await compare(state, dict.fromkeys(range(7), 1))
        await state.begin(expires=NOW + YEAR)
        state.start("removals", "now")
        await state.admit(SENT_AT)
    with SyncState(path, target="a") as state:
        plan = await compare(state, {0: 1})
        assert (plan.present, plan.removals, plan.removal_share) == (10, 9, 0.9)


async def test_a_plan_that_was_not_begun_leaves_nothing(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await sync(state, {1: 10})
        await compare(state, {2: 20})
    with SyncState(path, target="a") as state:
        plan = await compare(state, {1: 10})
        assert (plan.unchanged, plan.upserts, plan.all_removals) == (1, 0, 0)


async def test_a_comparison_writes_nothing_and_leaves_no_file(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await sync(state, {1: 10})
        before = path.read_bytes()
        await compare(state, dict.fromkeys(range(5_000), 1))
        assert path.read_bytes() == before
        assert {file.name for file in path.parent.iterdir()} <= {"state", "state-journal"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_of_rows_of_one_key_the_last_counts(path: Path) -> None:
    with SyncState(path, target="a") as state:
        plan = await compare(state, [(1, 10), (2, 20), (1, 11)])
        await state.begin(expires=NOW + YEAR)
        assert (plan.listed, plan.additions) == (2, 2)
        assert list(state.upserts("abc", "now")) == ["b", "c"]
        state.record_accepted("upserts", [0, 1])
        await state.settle()
        assert (await compare(state, {1: 11, 2: 20})).unchanged == 2
        again = await compare(state, [(1, 11), (2, 20), (1, 10), (2, 21), (2, 20)])
        assert (again.listed, again.changes, again.unchanged) == (2, 1, 1)


async def test_rows_without_a_key_come_with_what_is_sent(path: Path) -> None:
    with SyncState(path, target="a") as state:
        plan = await compare(state, [(1, 10), None, None])
        assert (plan.invalid_rows, plan.upserts, plan.listed) == (2, 3, 1)
        await state.begin()
        assert list(state.upserts("abc", "now")) == ["a", "b", "c"]


async def test_the_services_keys_are_kept_over_changes(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await compare(state, {1: 10, 2: 20})
        await state.begin()
        state.record_service_keys({key_of(1): "one", key_of(2): "two"})
        state.record_accepted("upserts", [0, 1])
        await state.settle()
        await sync(state, {1: 11, 2: 20})
        await compare(state, {})
        await state.begin()
        assert {name_of(each): each.service_key for each in state.removals("now")} == {1: "one", 2: "two"}


async def test_a_snapshot_that_removes_too_much_is_stopped(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await sync(state, dict.fromkeys(range(10), 1))
        plan = await compare(state, dict.fromkeys(range(7), 1))
        plan.check(0.3)
        with pytest.raises(InvalidArgument, match=r"3 of the 10 rows on the list \(30\.0%\) would be removed"):
            plan.check(0.29)
        assert (await compare(state, {})).removal_share == 1.0
        (await compare(state, {})).check(1)


# --- the file


async def test_a_file_is_about_one_list(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await sync(state, {1: 10})
    with pytest.raises(
        UnusableFile, match="belongs to another list, or to one of another host; each needs its own file"
    ):
        SyncState(path, target="b")


def test_two_jobs_cannot_share_a_file(path: Path) -> None:
    with SyncState(path, target="a"), pytest.raises(UnusableFile, match="is locked by another job"):
        SyncState(path, target="a")


def test_a_file_of_something_else_is_left_alone(path: Path) -> None:
    path.write_text("my notes, which are long enough to be read as the first page of a file\n" * 40)
    with pytest.raises(UnusableFile, match="cannot be used: file is not a database"):
        SyncState(path, target="a")
    path.unlink()
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE mine (x)")
    database.close()
    with pytest.raises(UnusableFile, match="is not a sync state"):
        SyncState(path, target="a")


@pytest.mark.parametrize(("change", "rule"), [(1, "a newer version"), (-1, "an earlier version")])
def test_a_file_of_another_version_is_left_alone(path: Path, change: int, rule: str) -> None:
    SyncState(path, target="a").close()
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {FORMAT.version + change}")
    database.close()
    with pytest.raises(UnusableFile, match=f"was written by {rule} of this SDK"):
        SyncState(path, target="a")


def test_a_folder_that_is_not_there_is_said(path: Path) -> None:
    with pytest.raises(UnusableFile, match="cannot be used: "):
        SyncState(path / "nowhere", target="a")


class FullDisk(sqlite3.Connection):
    """Takes no page besides those in use, once the state is open."""

    begun = 0

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        self.begun += sql == "BEGIN IMMEDIATE"
        if self.begun == 2:
            super().execute("PRAGMA max_page_count = 1")
        return super().execute(sql, parameters)


async def test_a_full_disk_stops_clearly_and_loses_nothing(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await sync(state, {1: 10})

    with SyncState(path, target="a", factory=FullDisk) as state:
        await compare(state, dict.fromkeys(range(5_000), 1))
        with pytest.raises(UnusableFile, match="cannot be used: database or disk is full"):
            await state.begin(expires=NOW + YEAR)

    with SyncState(path, target="a") as state:
        assert (await compare(state, {1: 10})).unchanged == 1


async def test_damage_is_noticed_and_changes_no_plan(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await sync(state, {number: number for number in range(1, 200)})
        await compare(state, {number: number for number in range(100, 300)})
        await state.begin(expires=NOW + YEAR)
        state.start("removals", "now")
        await state.admit(SENT_AT)
        state.record_accepted("removals", [3, 1, 7])
    whole, snapshot = path.read_bytes(), {number: number for number in range(150, 250)}
    with SyncState(path, target="a") as state:
        expected = await compare(state, snapshot)

    dice, noticed = random.Random(1), 0
    for _ in range(150):
        damaged = bytearray(whole)
        damaged[dice.randrange(100, len(whole))] ^= 1 << dice.randrange(8)
        path.write_bytes(damaged)
        try:
            with SyncState(path, target="a", factory=UnsyncedConnection) as state:
                assert await compare(state, snapshot) == expected
        except UnusableFile as error:
            noticed += 1
            assert str(path) in str(error)

    assert noticed > 30


async def test_a_damaged_page_is_said_with_what_to_do(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await sync(state, {1: 10})
    database = sqlite3.connect(path)
    database.execute("UPDATE page SET ids = zeroblob(24)")
    database.commit()
    database.close()

    with SyncState(path, target="a") as state, pytest.raises(UnusableFile) as caught:
        await compare(state, {1: 10})

    assert str(caught.value).endswith(
        "is damaged; without it, the next sync sends all rows and removes none: move the file away"
    )


def fail_at(number: int) -> type[sqlite3.Connection]:
    """Return a class of connections of which one statement fails."""
    statements = itertools.count(1)

    class Connection(UnsyncedConnection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if next(statements) == number:
                raise sqlite3.OperationalError("interrupted")
            return super().execute(sql, parameters)

    return Connection


async def test_a_sync_that_is_interrupted_at_any_statement_is_done_again(path: Path) -> None:
    for number in itertools.count(1):
        path.unlink(missing_ok=True)
        with SyncState(path, target="a", factory=UnsyncedConnection) as state:
            await sync(state, {1: 10, 2: 20})

        with suppress(UnusableFile), SyncState(path, target="a", factory=fail_at(number)) as state:
            await sync(state, {1: 11, 3: 30})
            break

        with SyncState(path, target="a") as state:
            plan = await compare(state, {1: 11, 3: 30})
            assert plan.unchanged + plan.changes + plan.additions == 2
            assert plan.removals + plan.doubtful <= 1

    assert number > 40


# --- many rows


async def test_pages_divide_as_the_list_grows_and_stay_equal(path: Path) -> None:
    with SyncState(path, target="a") as state:
        for count in (10, 20_000, 60_000, 50_000):
            await sync(state, dict.fromkeys(range(count), 1), slice_rows=512)
            assert (await compare(state, dict.fromkeys(range(count), 1), slice_rows=512)).unchanged == count
    database = sqlite3.connect(path)
    assert database.execute("SELECT count(*) FROM page").fetchone() == (8,)
    database.close()


async def test_a_row_takes_few_bytes_also_after_all_rows_changed(path: Path) -> None:
    rows = 50_000
    with SyncState(path, target="a") as state:
        for content in range(3):
            await sync(state, dict.fromkeys(range(rows), content), slice_rows=512, replace=True)
            assert path.stat().st_size / rows < 48


async def test_memory_is_flat(path: Path) -> None:
    async def many(count: int) -> AsyncIterator[Entries]:
        for first in range(0, count, 512):
            yield make_entries([(number, 1) for number in range(first, first + 512)], first=first)

    with SyncState(path, target="a") as state:
        for _ in range(2):
            with limit_memory(12):
                plan = await state.compare(many(51_200), now=SENT_AT, soon=NOW)
                await state.begin(expires=NOW + YEAR)
                assert sum(1 for _ in state.upserts(range(51_200), "now")) == plan.upserts
                for first in range(0, plan.upserts, 512):
                    state.record_accepted("upserts", range(first, first + 512))
                await state.settle()
        assert (await state.compare(many(51_200), now=SENT_AT, soon=NOW)).unchanged == 51_200
