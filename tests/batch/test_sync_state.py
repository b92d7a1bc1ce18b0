import itertools
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_async import InvalidArgument, UnusableFile
from svc_async.batch.sync.plan import Entries, Part, Plan
from svc_async.batch.sync.state import SyncState
from svc_async.batch.sync.statements import FORMAT
from tests.support.files import limit_memory

NOW = datetime(2030, 1, 1, tzinfo=UTC)
YEAR = timedelta(days=365)
List = Mapping[int, int]


async def list_rows(rows: List, *, invalid: int = 0) -> AsyncIterator[Entries]:
    """Yield rows two at a time; the positions of invalid rows come last."""
    pairs = list(rows.items())
    for first in range(0, len(pairs), 2):
        part = pairs[first : first + 2]
        keys, contents = [key for key, _ in part], [content for _, content in part]
        yield Entries(
            range(first, first + len(part)), keys, [b"%d" % key for key in keys], contents, size=10 * len(part)
        )
    yield Entries((), (), (), (), invalid_rows=range(len(pairs), len(pairs) + invalid))


async def make_plan(state: SyncState, rows: List, *, now: datetime = NOW, **settings: Any) -> Plan:
    return await state.compare(list_rows(rows), now=now, soon=now + timedelta(days=30), **settings)


async def sync(state: SyncState, rows: List, *, now: datetime = NOW) -> Plan:
    """Run a whole sync; every row is accepted."""
    plan = await make_plan(state, rows, now=now)
    state.begin(expires=now + YEAR)
    state.record_accepted("removals", [number for number, _, _ in state.removals()])
    state.record_accepted("upserts", range(sum(1 for _ in state.upserts(list(rows)))))
    await state.settle()
    return plan


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state"


async def test_only_what_changed_is_in_the_plan(path: Path) -> None:
    with SyncState(path, target="a") as state:
        first = await sync(state, {1: 10, 2: 20, 3: 30, 2**64 - 1: 5})
        assert (first.additions, first.upserts, first.all_removals) == (4, 4, 0)
        second = await make_plan(state, {4: 40, 2: 21, 1: 10, 2**64 - 1: 5})
        assert (second.present, second.listed, second.unchanged) == (4, 4, 2)
        assert (second.additions, second.changes, second.refreshes, second.removals) == (1, 1, 0, 1)
        assert second.removal_share == 0.25
        state.begin()
        assert list(state.upserts("abcd")) == ["a", "b"]
        assert list(state.removals()) == [(0, b"3", None)]
        assert [state.find_position(number) for number in range(2)] == [0, 1]


async def test_what_changed_is_removed_first_where_sending_only_adds(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await sync(state, {1: 10, 2: 20})
        plan = await make_plan(state, {1: 11, 2: 20}, replace=True)
        assert (plan.changes, plan.removals, plan.all_removals, plan.removal_share) == (1, 0, 1, 0.0)


async def test_what_expires_soon_is_sent_again_and_what_has_expired_is_new(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await sync(state, {1: 10, 2: 20})
        assert (await make_plan(state, {1: 10, 2: 20}, now=NOW + YEAR - timedelta(days=31))).upserts == 0
        soon = await make_plan(state, {1: 10}, now=NOW + YEAR - timedelta(days=29))
        assert (soon.refreshes, soon.additions, soon.removals) == (1, 0, 1)
        late = await make_plan(state, {1: 10}, now=NOW + YEAR)
        assert (late.present, late.refreshes, late.additions, late.removals) == (0, 0, 1, 0)


async def test_a_row_that_failed_is_not_there(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await make_plan(state, {1: 10, 2: 20, 3: 30})
        state.begin(expires=NOW + YEAR)
        state.record_accepted("upserts", [0])
        state.record_failed("upserts", [1])
        state.record_accepted("upserts", [2])
        await state.settle()
        plan = await make_plan(state, {1: 10, 2: 20})
        assert (plan.present, plan.unchanged, plan.additions, plan.removals) == (2, 1, 1, 1)


async def test_a_change_that_failed_leaves_what_was_there(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await sync(state, {1: 10})
        await make_plan(state, {1: 11})
        state.begin(expires=NOW + YEAR)
        state.record_failed("upserts", [0])
        await state.settle()
        assert (await make_plan(state, {1: 10})).unchanged == 1
        assert (await make_plan(state, {})).removals == 1


@pytest.mark.parametrize("settle", [True, False])
async def test_a_row_without_an_outcome_is_sent_again_or_removed(path: Path, *, settle: bool) -> None:
    with SyncState(path, target="a") as state:
        await sync(state, {3: 30})
        await make_plan(state, {1: 10, 2: 20})
        state.begin(expires=NOW + YEAR)
        if settle:
            await state.settle()
    with SyncState(path, target="a") as state:
        plan = await make_plan(state, {1: 10, 3: 30})
        assert (plan.present, plan.additions, plan.removals, plan.doubtful, plan.all_removals) == (0, 2, 0, 1, 1)
        state.begin()
        assert [name for _, name, _ in state.removals()] == [b"2"]


async def test_a_plan_that_was_not_begun_leaves_nothing(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await sync(state, {1: 10})
        await make_plan(state, {2: 20})
    with SyncState(path, target="a") as state:
        plan = await make_plan(state, {1: 10})
        assert (plan.unchanged, plan.upserts, plan.all_removals) == (1, 0, 0)


async def test_of_rows_of_one_key_the_last_counts(path: Path) -> None:
    async def twice() -> AsyncIterator[Entries]:
        yield Entries([0, 1, 2], [1, 2, 1], [b"1", b"2", b"1"], [10, 20, 11])

    with SyncState(path, target="a") as state:
        plan = await state.compare(twice(), now=NOW, soon=NOW)
        state.begin(expires=NOW + YEAR)
        assert (plan.listed, plan.additions) == (2, 2)
        assert list(state.upserts("abc")) == ["b", "c"]
        state.record_accepted("upserts", [0, 1])
        await state.settle()
        assert (await make_plan(state, {1: 11, 2: 20})).unchanged == 2


async def test_rows_without_a_key_come_with_what_is_sent(path: Path) -> None:
    with SyncState(path, target="a") as state:
        plan = await state.compare(list_rows({1: 10}, invalid=2), now=NOW, soon=NOW)
        assert (plan.invalid_rows, plan.upserts, plan.listed) == (2, 3, 1)
        state.begin()
        assert list(state.upserts("abc")) == ["a", "b", "c"]


async def test_the_services_keys_are_kept_over_changes(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await make_plan(state, {1: 10, 2: 20})
        state.begin()
        state.record_service_keys({1: "one", 2: "two"})
        state.record_accepted("upserts", [0, 1])
        await state.settle()
        await sync(state, {1: 11, 2: 20})
        await make_plan(state, {})
        state.begin()
        assert list(state.removals()) == [(0, b"1", "one"), (1, b"2", "two")]


async def test_a_snapshot_that_removes_too_much_is_stopped(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await sync(state, dict.fromkeys(range(10), 1))
        plan = await make_plan(state, dict.fromkeys(range(7), 1))
        plan.check(0.3)
        with pytest.raises(InvalidArgument, match=r"3 of the 10 rows on the list \(30\.0%\) would be removed"):
            plan.check(0.29)
        assert (await make_plan(state, {})).removal_share == 1.0
        (await make_plan(state, {})).check(1)


# --- the file


async def test_a_file_is_about_one_list(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await sync(state, {1: 10})
    with pytest.raises(UnusableFile, match="belongs to another list; each list needs its own file"):
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


def test_a_file_of_a_newer_version_is_left_alone(path: Path) -> None:
    SyncState(path, target="a").close()
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {FORMAT.version + 1}")
    database.close()
    with pytest.raises(UnusableFile, match="was written by a newer version of this SDK"):
        SyncState(path, target="a")


def test_a_folder_that_is_not_there_is_said(path: Path) -> None:
    with pytest.raises(UnusableFile, match="cannot be used: No such file or directory"):
        SyncState(path / "nowhere", target="a")


class FullDisk(sqlite3.Connection):
    """Takes no page besides those in use, once the state is open."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql == "BEGIN IMMEDIATE":
            super().execute("PRAGMA max_page_count = 1")
        return super().execute(sql, parameters)


async def test_a_full_disk_stops_clearly_and_loses_nothing(path: Path) -> None:
    with SyncState(path, target="a") as state:
        await sync(state, {1: 10})

    full = pytest.raises(UnusableFile, match="cannot be used: database or disk is full")
    with SyncState(path, target="a", factory=FullDisk) as state, full:
        await make_plan(state, dict.fromkeys(range(5_000), 1))

    with SyncState(path, target="a") as state:
        assert (await make_plan(state, {1: 10})).unchanged == 1


# --- whatever happens


ACCEPTED = "accepted"
OUTCOMES = st.sampled_from([ACCEPTED, "failed", "lost before", "lost after"])


@settings(max_examples=80)
@given(
    runs=st.lists(
        st.tuples(
            st.dictionaries(st.integers(0, 6), st.integers(0, 2), max_size=6),
            st.lists(OUTCOMES, min_size=14, max_size=14),
            st.booleans(),
            st.booleans(),
        ),
        max_size=5,
    ),
    last=st.dictionaries(st.integers(0, 6), st.integers(0, 2), max_size=6),
)
async def test_whatever_happened_before_a_clean_run_makes_the_list_equal_to_the_snapshot(
    tmp_path: Path, runs: list[tuple[dict[int, int], list[str], bool, bool]], last: dict[int, int]
) -> None:
    path = tmp_path / "model"
    path.unlink(missing_ok=True)
    service: dict[int, int] = {}
    for rows, outcomes, replace, settled in [*runs, (last, [ACCEPTED] * 14, True, True)]:
        fate = iter(outcomes)
        with SyncState(path, target="a") as state:
            await make_plan(state, rows, replace=replace)
            state.begin(expires=NOW + YEAR)
            for number, name, _ in list(state.removals()):
                if apply(state, "removals", number, next(fate)):
                    service.pop(int(name), None)
            for number, (key, content) in enumerate(list(state.upserts(list(rows.items())))):
                if apply(state, "upserts", number, next(fate)):
                    service[key] = content
            if settled:
                await state.settle()
    assert service == last


def apply(state: SyncState, part: Part, number: int, outcome: str) -> bool:
    """Record what the outcome of a row reveals, and return whether it had an effect."""
    if outcome == ACCEPTED:
        state.record_accepted(part, [number])
    if outcome == "failed":
        state.record_failed(part, [number])
    return outcome in {ACCEPTED, "lost after"}


def fail_at(number: int) -> type[sqlite3.Connection]:
    """Return a class of connections of which one statement fails."""
    statements = itertools.count(1)

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if next(statements) == number:
                raise sqlite3.OperationalError("interrupted")
            return super().execute(sql, parameters)

    return Connection


async def test_a_sync_that_is_interrupted_at_any_statement_is_done_again(path: Path) -> None:
    for number in itertools.count(1):
        path.unlink(missing_ok=True)
        with SyncState(path, target="a") as state:
            await sync(state, {1: 10, 2: 20})

        with suppress(UnusableFile), SyncState(path, target="a", factory=fail_at(number)) as state:
            await sync(state, {1: 11, 3: 30})
            return

        with SyncState(path, target="a") as state:
            plan = await make_plan(state, {1: 11, 3: 30})
            assert plan.unchanged + plan.changes + plan.additions == 2
            assert plan.removals + plan.doubtful <= 1


async def test_memory_is_flat(path: Path) -> None:
    async def many(count: int) -> AsyncIterator[Entries]:
        for first in range(0, count, 512):
            keys = [(number * 0x9E3779B97F4A7C15) % 2**64 for number in range(first, first + 512)]
            yield Entries(range(first, first + 512), keys, [b"E" + bytes(32)] * 512, keys)

    with limit_memory(2), SyncState(path, target="a") as state:
        plan = await state.compare(many(25_600), now=NOW, soon=NOW)
        state.begin(expires=NOW + YEAR)
        assert sum(1 for _ in state.upserts(range(25_600))) == plan.additions == 25_600
        for first in range(0, 25_600, 512):
            state.record_accepted("upserts", range(first, first + 512))
        await state.settle()
        assert (await state.compare(many(25_600), now=NOW, soon=NOW)).unchanged == 25_600
