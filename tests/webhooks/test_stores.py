"""Dedupe stores and the inbox, in memory and in files."""

import asyncio
import random
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from svc_async.errors import Hint, InvalidArgument, UnusableFile, WrongState
from svc_async.sandbox import VirtualClock
from svc_async.webhooks import Claim, DedupeStore, MemoryDedupe, SqliteDedupe, SqliteInbox
from svc_async.webhooks.stores.inbox import StoredEvent
from tests.support.errors import has
from tests.support.event_stores import MemoryInbox, open_shared_events

NOW = datetime(2026, 6, 10, 12, tzinfo=UTC)

OpenStore = Callable[..., Any]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    """Return what opens a dedupe store of each kind."""
    if request.param == "memory":
        return make_memory_dedupe
    if request.param == "sqlite":
        return partial(SqliteDedupe, tmp_path / "events.db")
    return partial(open_shared_events, request.getfixturevalue("postgres_url"), request.getfixturevalue("schema"))


@asynccontextmanager
async def make_memory_dedupe(**settings: Any) -> AsyncIterator[DedupeStore]:
    yield MemoryDedupe(**settings)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def open_inbox(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    """Return what opens the same inbox, of each kind, again and again."""
    if request.param == "memory":
        inbox = MemoryInbox()
        return lambda: nullcontext(inbox)
    if request.param == "sqlite":
        return partial(SqliteInbox, tmp_path / "inbox.db")
    return partial(open_shared_events, request.getfixturevalue("postgres_url"), request.getfixturevalue("schema"))


async def test_an_event_is_claimed_once_until_it_is_released(open_store: OpenStore) -> None:
    async with open_store() as store:
        assert [await store.claim(key) for key in ("a", "a", "b")] == [Claim.TAKEN, Claim.HELD, Claim.TAKEN]
        await store.release("a")
        assert [await store.claim("a"), await store.claim("a")] == [Claim.TAKEN, Claim.HELD]


async def test_what_is_committed_stays_even_if_it_is_released_later(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.claim("a")
        await store.commit("a")
        await store.release("a")
        assert await store.claim("a") is not Claim.TAKEN


async def test_a_handled_event_is_remembered_for_longer_than_a_replay_goes_back(open_store: OpenStore) -> None:
    clock = VirtualClock()
    async with open_store(clock=clock) as store:
        await store.claim("a")
        await store.commit("a")
        await clock.advance(hours=24, minutes=59)
        assert await store.claim("a") is not Claim.TAKEN
        await clock.advance(minutes=1)
        assert await store.claim("a") is Claim.TAKEN


async def test_how_long_is_a_setting(open_store: OpenStore) -> None:
    clock = VirtualClock()
    async with open_store(clock=clock, ttl=timedelta(seconds=1)) as store:
        await store.commit("a")
        await clock.advance(seconds=1)
        assert await store.claim("a") is Claim.TAKEN


async def test_a_claim_holds_until_its_event_is_handled(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.claim("a")
        assert await store.confirm("a")
        await store.commit("a")
        assert not await store.confirm("a")


async def test_only_one_of_many_claims_at_a_time(open_store: OpenStore) -> None:
    async with open_store() as store:
        assert (await asyncio.gather(*(store.claim("a") for _ in range(100)))).count(Claim.TAKEN) == 1


@pytest.mark.parametrize(
    "path", ["", ":memory:", "./:memory:", Path(":memory:"), "file::memory:?cache=shared", 5, None]
)
@pytest.mark.parametrize("make", [SqliteInbox, SqliteDedupe])
def test_a_store_in_sqlite_is_a_file(
    make: Callable[[Any], object], path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hint = Hint.KEEP_EVENTS_IN_MEMORY if "memory" in str(path) else None
    with pytest.raises(InvalidArgument, check=has(parameter="path", hint=hint)):
        make(path)
    assert [*tmp_path.iterdir()] == []


async def test_memory_is_bounded_and_forgets_the_oldest() -> None:
    store = MemoryDedupe(maxsize=2)
    for key in ("a", "b", "a", "c"):
        await store.commit(key)
    assert [await store.claim(key) for key in ("a", "b", "c")] == [Claim.HANDLED, Claim.TAKEN, Claim.HANDLED]


async def test_claims_do_not_count_against_the_bound_of_memory() -> None:
    store = MemoryDedupe(maxsize=1)
    assert [await store.claim(key) for key in ("a", "b", "c")] == [Claim.TAKEN] * 3
    assert await store.claim("a") is not Claim.TAKEN


async def test_a_file_remembers_what_was_handled_and_frees_what_was_only_claimed(tmp_path: Path) -> None:
    async with SqliteDedupe(tmp_path / "events.db") as store:
        await store.claim("handled")
        await store.commit("handled")
        await store.claim("begun")
    async with SqliteDedupe(tmp_path / "events.db") as store:
        assert [await store.claim("handled"), await store.claim("begun")] == [Claim.HANDLED, Claim.TAKEN]


async def test_owners_that_share_a_file_keep_their_claims_until_a_lease_ends(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with AsyncExitStack() as stack:
        one, two = [
            await stack.enter_async_context(
                SqliteDedupe(tmp_path / "events.db", owner=owner, clock=clock, lease=timedelta(minutes=5))
            )
            for owner in ("one", "two")
        ]
        assert await one.claim("a") is Claim.TAKEN
        assert await two.claim("a") is not Claim.TAKEN
        async with SqliteDedupe(tmp_path / "events.db", owner="two", clock=clock) as again:
            assert await again.claim("a") is not Claim.TAKEN
        await clock.advance(minutes=5)
        assert await one.confirm("a"), "nobody has claimed it since its lease ended"
        await clock.advance(minutes=5)
        assert await two.claim("a") is Claim.TAKEN
        assert not await one.confirm("a")
        await one.commit("b")
        assert await two.claim("b") is not Claim.TAKEN


async def test_a_file_that_is_no_database_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "events.db").write_bytes(b"something else, which is long enough" * 100)
    with pytest.raises(UnusableFile, check=has(path=str(tmp_path / "events.db"))):
        await SqliteDedupe(tmp_path / "events.db").__aenter__()
    with pytest.raises(UnusableFile, check=has(path=str(tmp_path / "no" / "inbox.db"))):
        await SqliteInbox(tmp_path / "no" / "inbox.db").__aenter__()


async def test_a_file_with_other_tables_is_an_error_at_the_start_and_is_closed(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "events.db")) as connection:
        connection.execute("CREATE TABLE svc_events (key TEXT, expires_at REAL)")
    with pytest.raises(UnusableFile, check=has(path=str(tmp_path / "events.db"))):
        await SqliteDedupe(tmp_path / "events.db").__aenter__()
    assert "svc-async sqlite" not in {thread.name for thread in threading.enumerate()}


async def test_a_key_that_cannot_be_written_is_an_error_of_its_caller(tmp_path: Path) -> None:
    async with SqliteDedupe(tmp_path / "events.db") as store:
        outcomes = await asyncio.gather(store.claim("\ud800"), store.claim("a"), return_exceptions=True)
    assert isinstance(outcomes[0], UnicodeEncodeError)
    assert outcomes[1] is Claim.TAKEN


async def test_an_event_whose_release_failed_can_be_claimed_again(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    refuse = "CREATE TRIGGER no BEFORE DELETE ON svc_events BEGIN SELECT RAISE(ABORT, 'no'); END"
    async with SqliteDedupe(path) as store:
        assert await store.claim("a") is Claim.TAKEN
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(refuse)
            with pytest.raises(sqlite3.IntegrityError):
                await store.release("a")
            connection.execute("DROP TRIGGER no")
        assert [await store.claim("a") for _ in "12"] == [Claim.TAKEN, Claim.HELD]
        await store.release("a")
        assert [await store.claim("a") for _ in "12"] == [Claim.TAKEN, Claim.HELD]


async def test_a_store_that_is_closed_says_so(tmp_path: Path) -> None:
    store = SqliteDedupe(tmp_path / "events.db")
    with pytest.raises(WrongState):
        await store.claim("a")
    async with store:
        assert await store.claim("a") is Claim.TAKEN
    with pytest.raises(WrongState):
        await store.claim("b")


def make_stored(key: str, body: bytes = b"{}") -> StoredEvent:
    return StoredEvent(key=key, body=body, key_id="now", received_at=NOW)


def read_modes(folder: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in folder.iterdir()}


async def test_files_with_messages_can_be_read_by_this_user_only(tmp_path: Path) -> None:
    async with SqliteInbox(tmp_path / "inbox.db") as inbox:
        await inbox.store([make_stored("a")])
        assert read_modes(tmp_path) == {0o600}


async def test_an_inbox_keeps_events_in_their_order_until_they_are_done(open_inbox: OpenStore) -> None:
    async with open_inbox() as inbox:
        await inbox.store([make_stored("b", b"\x00\xff"), make_stored("a")])
        await inbox.store([make_stored("c"), make_stored("a", b"another")])
    async with open_inbox() as inbox:
        assert [*await inbox.load()] == [make_stored("b", b"\x00\xff"), make_stored("a"), make_stored("c")]
        await inbox.remove("a")
        await inbox.remove("a")
    async with open_inbox() as inbox:
        assert [each.key for each in await inbox.load()] == ["b", "c"]


async def test_an_inbox_stores_all_events_or_none(open_inbox: OpenStore) -> None:
    bad: Any = StoredEvent(key="bad", body=b"", key_id=None, received_at=NOW)  # type: ignore[arg-type]  # breaks the table's rule
    async with open_inbox() as inbox:
        with suppress(Exception):
            await inbox.store([make_stored("a"), bad])
        await inbox.store([make_stored("b")])
    async with open_inbox() as inbox:
        assert [each.key for each in await inbox.load()] in (["b"], ["a", "bad", "b"])


@pytest.mark.long("40 MiB are stored")
async def test_a_file_returns_a_bounded_part_of_its_events_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "inbox.db"
    async with SqliteInbox(path) as inbox:
        await inbox.store([make_stored(f"small {number}") for number in range(2_500)])
        for number in range(5):
            await inbox.store([make_stored(f"large {number}", bytes(2**23))])
        assert [*await inbox.load()] == []  # this receiver has them
    async with SqliteInbox(path) as inbox:
        await inbox.store([make_stored("new")])
        parts = [[each.key for each in await inbox.load()] for _ in range(3)]
        assert inbox.load_interval == 1
        parts.append([each.key for each in await inbox.load()])
        assert inbox.load_interval > 60
        assert [*await inbox.load()] == []
    assert [len(part) for part in parts] == [1_000, 1_000, 502, 3]
    names = [f"small {number}" for number in range(2_500)] + [f"large {number}" for number in range(5)]
    assert [*chain.from_iterable(parts)] == names


@pytest.mark.parametrize("damages", [12, pytest.param(100, marks=pytest.mark.long)])
async def test_damage_of_a_file_is_noticed_and_changes_no_event(tmp_path: Path, damages: int) -> None:
    path = tmp_path / "inbox.db"
    stored = [make_stored(f"event {number}", b"body %d" % number) for number in range(40)]
    async with SqliteInbox(path) as inbox, SqliteDedupe(path) as dedupe:
        await inbox.store(stored)
        for each in stored:
            await dedupe.commit(each.key)
    whole, dice, noticed = path.read_bytes(), random.Random(1), 0
    written = [place for place, byte in enumerate(whole) if byte and place >= 100]
    for _ in range(damages):
        damaged = bytearray(whole)
        damaged[dice.choice(written)] ^= 1 << dice.randrange(8)
        for beside in tmp_path.glob("inbox.db-*"):
            beside.unlink()
        path.write_bytes(damaged)
        try:
            async with SqliteInbox(path) as inbox, SqliteDedupe(path) as dedupe:
                assert [*await inbox.load()] == stored
                await inbox.remove(stored[0].key)
                await dedupe.claim(stored[0].key)
        except UnusableFile as error:
            noticed += 1
            assert "event" not in error.problem.partition(";")[0]
    assert noticed > damages // 5


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE svc_bodies SET body = 'text'",
        "DELETE FROM svc_bodies",
        "UPDATE svc_inbox SET received_at = 1e300",
        "UPDATE svc_inbox SET key = CAST(x'ff' AS TEXT)",
        "UPDATE svc_inbox SET key_id = 'other'",
        "UPDATE svc_inbox SET attempts = 0",
    ],
)
async def test_an_event_that_is_damaged_is_refused(tmp_path: Path, statement: str) -> None:
    async with SqliteInbox(tmp_path / "inbox.db") as inbox:
        await inbox.store([make_stored("a")])
    with closing(sqlite3.connect(tmp_path / "inbox.db")) as database, database:
        database.execute(statement)
    async with SqliteInbox(tmp_path / "inbox.db") as inbox:
        with pytest.raises(UnusableFile, check=has(hint=Hint.RESTORE_OR_DELETE)):
            await inbox.load()


async def test_the_events_of_a_delivery_share_its_body(open_inbox: OpenStore) -> None:
    async with open_inbox() as inbox:
        await inbox.store([make_stored(key, b"1") for key in ("a", "b")])
    async with open_inbox() as inbox:
        first, second = await inbox.load()
        assert first.body is second.body


async def test_any_key_that_an_event_may_have_is_stored(open_inbox: OpenStore) -> None:
    stored = [make_stored(key) for key in ("\x00", "\x1fshop\x1f1", "k" * 100_000, "\U0001f600")]
    async with open_inbox() as inbox:
        await inbox.store(stored)
    async with open_inbox() as inbox:
        assert [*await inbox.load()] == stored


def count_bodies(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM svc_bodies").fetchone()[0])


async def test_the_body_of_a_delivery_is_stored_once_as_long_as_one_of_its_events(tmp_path: Path) -> None:
    async with SqliteInbox(tmp_path / "inbox.db") as inbox:
        await inbox.store([make_stored("a", b"1"), make_stored("b", b"1"), make_stored("c", b"2")])
        await inbox.store([make_stored("a", b"3"), make_stored("d", b"1")])
        assert await inbox._run(count_bodies) == 3
    async with SqliteInbox(tmp_path / "inbox.db") as inbox:
        first, second, *_ = await inbox.load()
        assert first.body is second.body
        counts = []
        for key in ("a", "b", "b", "c", "d"):
            await inbox.remove(key)
            counts.append(await inbox._run(count_bodies))
        assert counts == [3, 2, 2, 1, 0]


async def test_one_file_may_be_inbox_and_dedupe_store(tmp_path: Path) -> None:
    async with SqliteInbox(tmp_path / "events.db") as inbox, SqliteDedupe(tmp_path / "events.db") as dedupe:
        await asyncio.gather(inbox.store([make_stored("a")]), dedupe.claim("a"))
    async with SqliteDedupe(tmp_path / "events.db") as dedupe, SqliteInbox(tmp_path / "events.db") as inbox:
        assert [each.key for each in await inbox.load()] == ["a"]
        await dedupe.commit("a")
        assert await dedupe.claim("a") is not Claim.TAKEN


async def test_work_that_fails_spoils_no_other_that_shares_its_transaction(tmp_path: Path) -> None:
    async with SqliteInbox(tmp_path / "inbox.db") as inbox:
        bad: Any = StoredEvent(key="bad", body=b"", key_id=None, received_at=NOW)  # type: ignore[arg-type]  # breaks the table's rule
        outcomes = await asyncio.gather(
            inbox.store([make_stored("1")]),
            inbox.store([make_stored("2"), bad]),
            inbox.store([make_stored("3")]),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes] == [dict, sqlite3.IntegrityError, dict]
    async with SqliteInbox(tmp_path / "inbox.db") as inbox:
        assert [each.key for each in await inbox.load()] == ["1", "3"]


async def test_work_whose_caller_goes_away_is_done_all_the_same(tmp_path: Path) -> None:
    async with SqliteInbox(tmp_path / "inbox.db") as inbox:
        storing = asyncio.create_task(inbox.store([make_stored("1")]))
        await asyncio.sleep(0)
        storing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await storing
    async with SqliteInbox(tmp_path / "inbox.db") as inbox:
        assert [each.key for each in await inbox.load()] == ["1"]


def read_pragmas(connection: sqlite3.Connection) -> dict[str, int]:
    names = ("application_id", "user_version", "synchronous")
    return {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names}


async def test_a_file_is_marked_as_a_store_of_events_and_survives_what_it_promises(tmp_path: Path) -> None:
    for store, synchronous in ((SqliteInbox(tmp_path / "a"), 2), (SqliteDedupe(tmp_path / "b"), 1)):
        async with store:
            found = await store._run(read_pragmas)
            assert found == {"application_id": 0x73766577, "user_version": 4, "synchronous": synchronous}


async def test_a_claim_of_another_owner_is_respected_for_an_hour_by_default(tmp_path: Path) -> None:
    clock = VirtualClock()
    first = SqliteDedupe(tmp_path / "events.db", clock=clock)
    async with first, SqliteDedupe(tmp_path / "events.db", owner="other", clock=clock) as other:
        assert await first.claim("a") is Claim.TAKEN
        await clock.advance(minutes=59, seconds=59)
        assert await other.claim("a") is not Claim.TAKEN
        await clock.advance(seconds=1)
        assert await other.claim("a") is Claim.TAKEN


async def test_what_was_released_is_not_confirmed_once_another_owner_has_it(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    async with SqliteDedupe(path) as first, SqliteDedupe(path, owner="other") as other:
        await first.claim("a")
        await first.release("a")
        assert await other.claim("a") is Claim.TAKEN
        assert not await first.confirm("a")


async def test_the_default_owner_releases_its_own_claims_only(tmp_path: Path) -> None:
    async with SqliteDedupe(tmp_path / "events.db", owner="other") as other:
        assert await other.claim("theirs") is Claim.TAKEN
        async with SqliteDedupe(tmp_path / "events.db") as first:
            assert await first.claim("ours") is Claim.TAKEN
        async with SqliteDedupe(tmp_path / "events.db", owner="receiver") as second:
            assert [await second.claim(key) for key in ("ours", "theirs")] == [Claim.TAKEN, Claim.ELSEWHERE]


async def test_a_store_that_was_left_open_is_closed_when_it_is_opened_again(tmp_path: Path) -> None:
    store = SqliteInbox(tmp_path / "inbox.db")
    await store.__aenter__()
    async with store:
        await store.store([make_stored("a")])
        assert [thread.name for thread in threading.enumerate()].count("svc-async sqlite") == 1
    assert "svc-async sqlite" not in {thread.name for thread in threading.enumerate()}


async def test_memory_holds_as_many_events_as_it_may() -> None:
    store = MemoryDedupe(maxsize=1)
    await store.commit("a")
    assert await store.claim("a") is not Claim.TAKEN
    await store.commit("b")
    assert await store.claim("a") is Claim.TAKEN


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_file_that_another_process_has_locked_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_new: bool
) -> None:
    path = tmp_path / "inbox"
    if not is_new:
        async with SqliteInbox(path):
            pass
    monkeypatch.setattr("svc_async.store.file._WAIT", 0.01)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(UnusableFile, check=has(path=str(path), repeatable=True)):
            async with SqliteInbox(path):
                pass
        other.execute("ROLLBACK")
        async with SqliteInbox(path) as inbox:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(UnusableFile, check=has(path=str(path), repeatable=True)):
                await inbox.store([make_stored("a")])
            other.execute("ROLLBACK")
            await inbox.store([make_stored("a")])
