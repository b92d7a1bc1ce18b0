"""What remembers and what keeps."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from svc_async.errors import InvalidArgument
from svc_async.sandbox import VirtualClock
from svc_async.webhooks import DedupeStore, MemoryDedupe, SqliteDedupe, SqliteInbox
from svc_async.webhooks.inbox import Kept

NOW = datetime(2026, 6, 10, 12, tzinfo=UTC)

Open = Callable[..., Any]


@pytest.fixture(params=["memory", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    @asynccontextmanager
    async def opened(**settings: Any) -> AsyncIterator[DedupeStore]:
        if request.param == "memory":
            yield MemoryDedupe(**settings)
        else:
            async with SqliteDedupe(tmp_path / "events.db", **settings) as store:
                yield store

    return opened


async def test_an_event_is_claimed_once_until_it_is_released(opened: Open) -> None:
    async with opened() as store:
        assert [await store.claim(key) for key in ("a", "a", "b")] == [True, False, True]
        await store.release("a")
        assert [await store.claim("a"), await store.claim("a")] == [True, False]


async def test_what_is_committed_stays_even_if_it_is_released_later(opened: Open) -> None:
    async with opened() as store:
        await store.claim("a")
        await store.commit("a")
        await store.release("a")
        assert not await store.claim("a")


async def test_a_handled_event_is_remembered_for_longer_than_a_replay_goes_back(opened: Open) -> None:
    clock = VirtualClock()
    async with opened(clock=clock) as store:
        await store.claim("a")
        await store.commit("a")
        await clock.advance(hours=24, minutes=59)
        assert not await store.claim("a")
        await clock.advance(minutes=1)
        assert await store.claim("a")


async def test_how_long_is_a_setting(opened: Open) -> None:
    clock = VirtualClock()
    async with opened(clock=clock, ttl=timedelta(seconds=1)) as store:
        await store.commit("a")
        await clock.advance(seconds=1)
        assert await store.claim("a")


async def test_only_one_of_many_claims_at_a_time(opened: Open) -> None:
    async with opened() as store:
        assert sum(await asyncio.gather(*(store.claim("a") for _ in range(100)))) == 1


@pytest.mark.parametrize("store", [MemoryDedupe, lambda **settings: SqliteDedupe("unused", **settings)])
def test_remembering_for_no_time_is_refused(store: Callable[..., object]) -> None:
    with pytest.raises(InvalidArgument, match="ttl must be longer than nothing"):
        store(ttl=timedelta())


async def test_memory_is_bounded_and_forgets_the_oldest() -> None:
    with pytest.raises(InvalidArgument, match="maxsize must be at least 1"):
        MemoryDedupe(maxsize=0)
    store = MemoryDedupe(maxsize=2)
    for key in ("a", "b", "a", "c"):
        await store.commit(key)
    assert [await store.claim(key) for key in ("a", "b", "c")] == [False, True, False]


async def test_claims_do_not_count_against_the_bound_of_memory() -> None:
    store = MemoryDedupe(maxsize=1)
    assert [await store.claim(key) for key in ("a", "b", "c")] == [True] * 3
    assert not await store.claim("a")


async def test_a_file_remembers_what_was_handled_and_frees_what_was_only_claimed(tmp_path: Path) -> None:
    async with SqliteDedupe(tmp_path / "events.db") as store:
        await store.claim("handled")
        await store.commit("handled")
        await store.claim("begun")
    async with SqliteDedupe(tmp_path / "events.db") as store:
        assert [await store.claim("handled"), await store.claim("begun")] == [False, True]


async def test_owners_that_share_a_file_keep_their_claims_until_a_lease_ends(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with AsyncExitStack() as stack:
        one, two = [
            await stack.enter_async_context(
                SqliteDedupe(tmp_path / "events.db", owner=owner, clock=clock, lease=timedelta(minutes=5))
            )
            for owner in ("one", "two")
        ]
        assert await one.claim("a")
        assert not await two.claim("a")
        async with SqliteDedupe(tmp_path / "events.db", owner="two", clock=clock) as again:
            assert not await again.claim("a")
        await clock.advance(minutes=5)
        assert await two.claim("a")
        await one.commit("b")
        assert not await two.claim("b")


async def test_a_file_that_is_no_database_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "events.db").write_bytes(b"something else, which is long enough" * 100)
    with pytest.raises(sqlite3.DatabaseError):
        await SqliteDedupe(tmp_path / "events.db").__aenter__()
    with pytest.raises(sqlite3.OperationalError):
        await SqliteInbox(tmp_path / "no" / "inbox.db").__aenter__()


async def test_a_file_with_other_tables_is_an_error_at_the_start_and_is_closed(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "events.db")) as connection:
        connection.execute("CREATE TABLE svc_events (key TEXT, expires_at REAL)")
    with pytest.raises(sqlite3.OperationalError, match="no such column"):
        await SqliteDedupe(tmp_path / "events.db").__aenter__()
    assert "svc-async-sqlite_0" not in {thread.name for thread in threading.enumerate()}


async def test_a_key_that_cannot_be_written_is_told_to_whoever_waits(tmp_path: Path) -> None:
    async with SqliteDedupe(tmp_path / "events.db") as store:
        outcomes = await asyncio.gather(store.claim("\ud800"), store.claim("a"), return_exceptions=True)
    assert isinstance(outcomes[0], UnicodeEncodeError)
    assert outcomes[1] is True


async def test_a_store_that_is_closed_says_so(tmp_path: Path) -> None:
    store = SqliteDedupe(tmp_path / "events.db")
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        await store.claim("a")
    async with store:
        assert await store.claim("a")
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        await store.claim("b")


def kept(key: str, body: bytes = b"{}") -> Kept:
    return Kept(key=key, body=body, key_id="now", received_at=NOW)


def modes(folder: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in folder.iterdir()}


async def test_what_people_wrote_is_kept_for_the_eyes_of_this_user_only(tmp_path: Path) -> None:
    async with SqliteInbox(tmp_path / "inbox.db") as inbox:
        await inbox.keep([kept("a")])
        assert modes(tmp_path) == {0o600}


async def test_an_inbox_keeps_events_in_their_order_until_they_are_done(tmp_path: Path) -> None:
    async with SqliteInbox(tmp_path / "inbox.db") as inbox:
        await inbox.keep([kept("b", b"\x00\xff"), kept("a")])
        await inbox.keep([kept("c"), kept("a", b"another")])
    async with SqliteInbox(tmp_path / "inbox.db") as inbox:
        assert [*await inbox.kept()] == [kept("b", b"\x00\xff"), kept("a"), kept("c")]
        await inbox.done("a")
        await inbox.done("a")
        assert [each.key for each in await inbox.kept()] == ["b", "c"]


async def test_work_that_fails_spoils_no_other_that_shares_its_transaction(tmp_path: Path) -> None:
    async with SqliteInbox(tmp_path / "inbox.db") as inbox:
        bad: Any = Kept(key="bad", body=b"", key_id=None, received_at=NOW)  # type: ignore[arg-type]  # breaks the table's rule
        outcomes = await asyncio.gather(
            inbox.keep([kept("1")]), inbox.keep([kept("2"), bad]), inbox.keep([kept("3")]), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [type(None), sqlite3.IntegrityError, type(None)]
        assert [each.key for each in await inbox.kept()] == ["1", "3"]


async def test_work_whose_caller_goes_away_is_done_all_the_same(tmp_path: Path) -> None:
    async with SqliteInbox(tmp_path / "inbox.db") as inbox:
        keeping = asyncio.create_task(inbox.keep([kept("1")]))
        await asyncio.sleep(0)
        keeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await keeping
        assert [each.key for each in await inbox.kept()] == ["1"]
