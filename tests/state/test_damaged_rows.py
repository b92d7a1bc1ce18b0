"""Rows that are damaged, tables of somebody else, and servers that refuse: one clear error, which shows no row."""

import traceback
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from svc_async.clock import SystemClock
from svc_async.cluster.job import read_outcome
from svc_async.errors import Hint, StateUnavailable, UnusableState
from svc_async.state import SharedState
from svc_async.state.events import SharedEvents
from svc_async.state.jobs import JobStore
from svc_async.sync.state import open_sync_state
from svc_async.webhooks.stores.inbox import StoredEvent
from tests.support.errors import has
from tests.support.fake_service import FakeService
from tests.support.journaled_uploads import make_repeated_rows, upload
from tests.support.sync_states import key_of, sync

Use = Callable[[SharedState], Awaitable[Any]]


@pytest.fixture
async def shared(postgres_url: str, schema: str) -> AsyncIterator[SharedState]:
    async with SharedState.open(postgres_url, schema=schema) as state:
        yield state


async def use_journal(state: SharedState) -> None:
    await state.journal("job").find()
    await upload(FakeService(), make_repeated_rows(8), state.journal("job"))


async def use_sync(state: SharedState) -> None:
    async with open_sync_state(state, "list") as opened:
        await sync(opened, {1: 10, 2: 20})


async def use_events(state: SharedState) -> None:
    async with SharedEvents(state) as events:
        await events.load()
        await events.store([StoredEvent(key="a", body=b"{}", key_id="k", received_at=SystemClock().now())])


async def use_job(state: SharedState) -> None:
    await JobStore(state.database).find_plan("job")
    await JobStore(state.database).take_up("job", about={"list": "a"}, plan={"parts": []}, shards=[1])
    assert [each async for each in JobStore(state.database).list_reports("job")] == []


async def check(state: SharedState) -> None:
    await state.check()
    await state.prune(older_than=timedelta(days=3_650))


USES: dict[str, Use] = {"journal": use_journal, "sync": use_sync, "events": use_events, "job": use_job, "check": check}
DAMAGES = [
    ("journal", "UPDATE stores SET active_at = 'infinity'"),
    ("check", "DROP TABLE limit_holders CASCADE"),
    ("sync", "DROP TABLE records"),
    ("events", "UPDATE event_inbox SET key = '\\xff'"),
    ("job", "DELETE FROM records WHERE kind = 'plan'"),
]
MORE_DAMAGES = [
    ("journal", "UPDATE stores SET confirmed_at = '-infinity'"),
    ("journal", "UPDATE stores SET epoch = 9223372036854775807"),
    ("journal", "ALTER TABLE records RENAME body TO blob"),
    ("check", "UPDATE stores SET active_at = 'infinity'"),
    ("sync", "UPDATE stores SET epoch = 9223372036854775807"),
    ("events", "UPDATE event_inbox SET received_at = '294000-01-01'"),
    ("events", "DROP FUNCTION take_events"),
    ("job", "UPDATE records SET body = '\\xa0' WHERE kind = 'about'"),
    ("job", "UPDATE stores SET epoch = 9223372036854775807"),
    ("job", "INSERT INTO records SELECT id, 'report', 0, '1', 0 FROM stores"),
]


@pytest.mark.parametrize(
    ("name", "statement"), [*DAMAGES, *(pytest.param(*each, marks=pytest.mark.long) for each in MORE_DAMAGES)]
)
async def test_damage_is_one_error_that_says_what_to_do(shared: SharedState, name: str, statement: str) -> None:
    await USES["journal" if name == "check" else name](shared)
    await shared.database.execute(statement)

    with pytest.raises(UnusableState) as caught:
        await USES[name](shared)
    assert caught.value.hint in {Hint.RESTORE_THE_DATABASE, Hint.READ_THE_LOG, Hint.RENAME_THE_JOB, Hint.SEND_AGAIN}


@pytest.mark.parametrize(
    "plain", [None, [], {"read": "1"}, {"failures": None}, {"failures": [{"position": 1}]}, {"failure_blocks": 1}]
)
def test_what_is_no_report_is_refused(plain: Any) -> None:
    with pytest.raises(ValueError, match="no report"):
        read_outcome(0, plain)


@pytest.mark.parametrize("block", ["", "!", "eJw=", "eJyLBgAAXwBe", b64encode(zlib.compress(b"[[1]]")).decode()])
def test_what_is_no_block_of_failures_is_refused(block: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says, the job is damaged
        list(read_outcome(0, {"failure_blocks": [block]}).list_failures())


@pytest.mark.long("unpacks 64 MiB")
def test_a_block_of_failures_is_unpacked_up_to_64_mebibytes() -> None:
    block = b64encode(zlib.compress(b"[" + b" " * 2**26 + b"]", 1)).decode()
    with pytest.raises(ValueError):  # noqa: PT011 - likewise
        list(read_outcome(0, {"failure_blocks": [block]}).list_failures())


async def test_an_error_of_the_server_shows_no_row(shared: SharedState) -> None:
    await shared.database.execute("ALTER TABLE records ADD CHECK (octet_length(body) < 5)")
    with pytest.raises(UnusableState, check=has(hint=Hint.READ_THE_LOG)) as caught:
        await use_sync(shared)

    context = caught.value.__context__
    shown = "".join(traceback.format_exception(caught.value)) + f"{context} {context!r}"
    assert key_of(1).hex() not in shown
    assert "Failing row" not in shown


@pytest.mark.parametrize(
    "name", ["journal", *(pytest.param(each, marks=pytest.mark.long) for each in ("sync", "events", "job"))]
)
async def test_a_server_that_takes_no_writes_is_unavailable(
    shared: SharedState, postgres_url: str, schema: str, name: str
) -> None:
    await USES[name](shared)
    url = f"{postgres_url}{'&' if '?' in postgres_url else '?'}options=-cdefault_transaction_read_only%3Don"
    with pytest.raises(StateUnavailable):
        async with SharedState.open(url, schema=schema, migrate=False) as state:
            await USES[name](state)


async def test_what_is_locked_for_too_long_is_unavailable(shared: SharedState, postgres_url: str, schema: str) -> None:
    url = f"{postgres_url}{'&' if '?' in postgres_url else '?'}options=-clock_timeout%3D1"
    async with SharedState.open(url, schema=schema) as state, shared.database.transaction() as connection:
        await connection.execute("LOCK TABLE stores, event_receivers")
        for name in ("journal", "sync", "events", "job"):
            with pytest.raises(StateUnavailable):
                await USES[name](state)
