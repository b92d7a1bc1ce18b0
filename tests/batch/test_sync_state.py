import sqlite3
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_async import InvalidArgument
from svc_async.batch.sync.state import Entries, Plan, Snapshots, Way
from tests.support.files import limit_memory

NOW = datetime(2030, 1, 1, tzinfo=UTC)
YEAR = timedelta(days=365)
List = Mapping[int, int]


async def listed(rows: List, *, misfits: int = 0) -> AsyncIterator[Entries]:
    """Give rows two at a time; the positions of misfits come last."""
    pairs = list(rows.items())
    for first in range(0, len(pairs), 2):
        part = pairs[first : first + 2]
        keys, contents = [key for key, _ in part], [content for _, content in part]
        yield Entries(
            range(first, first + len(part)), keys, [b"%d" % key for key in keys], contents, size=10 * len(part)
        )
    yield Entries((), (), (), (), misfits=range(len(pairs), len(pairs) + misfits))


async def plan_of(state: Snapshots, rows: List, *, now: datetime = NOW, **settings: Any) -> Plan:
    return await state.compare(listed(rows), now=now, soon=now + timedelta(days=30), **settings)


async def sync(state: Snapshots, rows: List, *, now: datetime = NOW) -> Plan:
    """Do all of it, and have all of it accepted."""
    plan = await plan_of(state, rows, now=now)
    state.begin(expires=now + YEAR)
    state.accepted("leaving", [number for number, _, _ in state.leaving()])
    state.accepted("coming", range(sum(1 for _ in state.coming(list(rows)))))
    await state.settle()
    return plan


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state"


async def test_only_what_changed_is_in_the_plan(path: Path) -> None:
    with Snapshots(path, target="a") as state:
        first = await sync(state, {1: 10, 2: 20, 3: 30, 2**64 - 1: 5})
        assert (first.additions, first.coming, first.leaving) == (4, 4, 0)
        second = await plan_of(state, {4: 40, 2: 21, 1: 10, 2**64 - 1: 5})
        assert (second.held, second.listed, second.unchanged) == (4, 4, 2)
        assert (second.additions, second.changes, second.refreshes, second.removals) == (1, 1, 0, 1)
        assert second.removal_share == 0.25
        state.begin()
        assert list(state.coming("abcd")) == ["a", "b"]
        assert list(state.leaving()) == [(0, b"3", None)]
        assert [state.position(number) for number in range(2)] == [0, 1]


async def test_what_changed_is_removed_first_where_sending_only_adds(path: Path) -> None:
    with Snapshots(path, target="a") as state:
        await sync(state, {1: 10, 2: 20})
        plan = await plan_of(state, {1: 11, 2: 20}, replace=True)
        assert (plan.changes, plan.removals, plan.leaving, plan.removal_share) == (1, 0, 1, 0.0)


async def test_what_expires_soon_is_sent_again_and_what_has_expired_is_new(path: Path) -> None:
    with Snapshots(path, target="a") as state:
        await sync(state, {1: 10, 2: 20})
        assert (await plan_of(state, {1: 10, 2: 20}, now=NOW + YEAR - timedelta(days=31))).coming == 0
        soon = await plan_of(state, {1: 10}, now=NOW + YEAR - timedelta(days=29))
        assert (soon.refreshes, soon.additions, soon.removals) == (1, 0, 1)
        late = await plan_of(state, {1: 10}, now=NOW + YEAR)
        assert (late.held, late.refreshes, late.additions, late.removals) == (0, 0, 1, 0)


async def test_a_row_that_failed_is_not_there(path: Path) -> None:
    with Snapshots(path, target="a") as state:
        await plan_of(state, {1: 10, 2: 20, 3: 30})
        state.begin(expires=NOW + YEAR)
        state.accepted("coming", [0])
        state.failed("coming", [1])
        state.accepted("coming", [2])
        await state.settle()
        plan = await plan_of(state, {1: 10, 2: 20})
        assert (plan.held, plan.unchanged, plan.additions, plan.removals) == (2, 1, 1, 1)


async def test_a_change_that_failed_leaves_what_was_there(path: Path) -> None:
    with Snapshots(path, target="a") as state:
        await sync(state, {1: 10})
        await plan_of(state, {1: 11})
        state.begin(expires=NOW + YEAR)
        state.failed("coming", [0])
        await state.settle()
        assert (await plan_of(state, {1: 10})).unchanged == 1
        assert (await plan_of(state, {})).removals == 1


@pytest.mark.parametrize("settle", [True, False])
async def test_a_row_of_which_nothing_was_told_is_sent_again_or_removed(path: Path, *, settle: bool) -> None:
    with Snapshots(path, target="a") as state:
        await sync(state, {3: 30})
        await plan_of(state, {1: 10, 2: 20})
        state.begin(expires=NOW + YEAR)
        if settle:
            await state.settle()
    with Snapshots(path, target="a") as state:
        plan = await plan_of(state, {1: 10, 3: 30})
        assert (plan.held, plan.additions, plan.removals, plan.doubtful, plan.leaving) == (0, 2, 0, 1, 1)
        state.begin()
        assert [name for _, name, _ in state.leaving()] == [b"2"]


async def test_a_plan_that_was_not_begun_leaves_nothing(path: Path) -> None:
    with Snapshots(path, target="a") as state:
        await sync(state, {1: 10})
        await plan_of(state, {2: 20})
    with Snapshots(path, target="a") as state:
        plan = await plan_of(state, {1: 10})
        assert (plan.unchanged, plan.coming, plan.leaving) == (1, 0, 0)


async def test_of_rows_of_one_key_the_last_counts(path: Path) -> None:
    async def twice() -> AsyncIterator[Entries]:
        yield Entries([0, 1, 2], [1, 2, 1], [b"1", b"2", b"1"], [10, 20, 11])

    with Snapshots(path, target="a") as state:
        plan = await state.compare(twice(), now=NOW, soon=NOW)
        state.begin(expires=NOW + YEAR)
        assert (plan.listed, plan.additions) == (2, 2)
        assert list(state.coming("abc")) == ["b", "c"]
        state.accepted("coming", [0, 1])
        await state.settle()
        assert (await plan_of(state, {1: 11, 2: 20})).unchanged == 2


async def test_rows_without_a_key_come_with_what_is_sent(path: Path) -> None:
    with Snapshots(path, target="a") as state:
        plan = await state.compare(listed({1: 10}, misfits=2), now=NOW, soon=NOW)
        assert (plan.misfits, plan.coming, plan.listed) == (2, 3, 1)
        state.begin()
        assert list(state.coming("abc")) == ["a", "b", "c"]


async def test_the_services_keys_are_kept_over_changes(path: Path) -> None:
    with Snapshots(path, target="a") as state:
        await plan_of(state, {1: 10, 2: 20})
        state.begin()
        state.named({1: "one", 2: "two"})
        state.accepted("coming", [0, 1])
        await state.settle()
        await sync(state, {1: 11, 2: 20})
        await plan_of(state, {})
        state.begin()
        assert list(state.leaving()) == [(0, b"1", "one"), (1, b"2", "two")]


async def test_a_snapshot_that_removes_too_much_is_stopped(path: Path) -> None:
    with Snapshots(path, target="a") as state:
        await sync(state, dict.fromkeys(range(10), 1))
        plan = await plan_of(state, dict.fromkeys(range(7), 1))
        plan.check(0.3)
        with pytest.raises(InvalidArgument, match=r"3 of the 10 rows that are there \(30\.0%\) would be removed"):
            plan.check(0.29)
        assert (await plan_of(state, {})).removal_share == 1.0
        (await plan_of(state, {})).check(1)


# --- the file


async def test_a_file_is_about_one_list(path: Path) -> None:
    with Snapshots(path, target="a") as state:
        await sync(state, {1: 10})
    with pytest.raises(InvalidArgument, match="is about another list"):
        Snapshots(path, target="b")


def test_two_jobs_cannot_share_a_file(path: Path) -> None:
    with Snapshots(path, target="a"), pytest.raises(InvalidArgument, match="is in use by another job"):
        Snapshots(path, target="a")


def test_a_file_of_something_else_is_left_alone(path: Path) -> None:
    path.write_text("my notes, which are long enough to be read as the first page of a file\n" * 40)
    with pytest.raises(InvalidArgument, match="is no file of snapshots, or is damaged"):
        Snapshots(path, target="a")
    path.unlink()
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE mine (x)")
    database.close()
    with pytest.raises(InvalidArgument, match="is no file of snapshots"):
        Snapshots(path, target="a")


def test_a_file_of_a_newer_version_is_left_alone(path: Path) -> None:
    Snapshots(path, target="a").close()
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 2")
    database.close()
    with pytest.raises(InvalidArgument, match="is of a newer version"):
        Snapshots(path, target="a")


def test_a_folder_that_is_not_there_is_said(path: Path) -> None:
    with pytest.raises(InvalidArgument, match="cannot be used: unable to open database file"):
        Snapshots(path / "nowhere", target="a")


async def test_a_full_disk_stops_clearly_and_loses_nothing(path: Path) -> None:
    with Snapshots(path, target="a") as state:
        await sync(state, {1: 10})
        pages = state._database.execute("PRAGMA page_count").fetchone()[0]
        state._database.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(InvalidArgument, match="cannot be used: database or disk is full"):
            await plan_of(state, dict.fromkeys(range(5_000), 1))
    with Snapshots(path, target="a") as state:
        assert (await plan_of(state, {1: 10})).unchanged == 1


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
        with Snapshots(path, target="a") as state:
            await plan_of(state, rows, replace=replace)
            state.begin(expires=NOW + YEAR)
            for number, name, _ in list(state.leaving()):
                if is_applied(state, "leaving", number, next(fate)):
                    service.pop(int(name), None)
            for number, (key, content) in enumerate(list(state.coming(list(rows.items())))):
                if is_applied(state, "coming", number, next(fate)):
                    service[key] = content
            if settled:
                await state.settle()
    assert service == last


def is_applied(state: Snapshots, way: Way, number: int, outcome: str) -> bool:
    """Tell of a row what its outcome lets be known, and whether it had an effect."""
    if outcome == ACCEPTED:
        state.accepted(way, [number])
    if outcome == "failed":
        state.failed(way, [number])
    return outcome in {ACCEPTED, "lost after"}


@pytest.mark.parametrize("when", range(10))
async def test_a_comparison_or_settlement_that_is_cut_off_is_done_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, when: int
) -> None:
    run, left = Snapshots._run, when

    async def cut(self: Snapshots, statement: str, **values: object) -> None:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        await run(self, statement, **values)

    with Snapshots(path, target="a") as state:
        await sync(state, {1: 10, 2: 20})
    with Snapshots(path, target="a") as state, monkeypatch.context() as patch:
        patch.setattr(Snapshots, "_run", cut)
        with pytest.raises(KeyboardInterrupt):
            await sync(state, {1: 11, 3: 30})
    with Snapshots(path, target="a") as state:
        plan = await plan_of(state, {1: 11, 3: 30})
        assert plan.unchanged + plan.changes + plan.additions == 2
        assert plan.removals + plan.doubtful <= 1


async def test_memory_is_flat(path: Path) -> None:
    async def many(count: int) -> AsyncIterator[Entries]:
        for first in range(0, count, 512):
            keys = [(number * 0x9E3779B97F4A7C15) % 2**64 for number in range(first, first + 512)]
            yield Entries(range(first, first + 512), keys, [b"E" + bytes(32)] * 512, keys)

    with limit_memory(2), Snapshots(path, target="a") as state:
        plan = await state.compare(many(25_600), now=NOW, soon=NOW)
        state.begin(expires=NOW + YEAR)
        assert sum(1 for _ in state.coming(range(25_600))) == plan.additions == 25_600
        for first in range(0, 25_600, 512):
            state.accepted("coming", range(first, first + 512))
        await state.settle()
        assert (await state.compare(many(25_600), now=NOW, soon=NOW)).unchanged == 25_600
