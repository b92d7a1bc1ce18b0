"""Workers know whether the run of a job that they work for is the last one."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from svc_async.cluster.worker.shard import follow_run
from svc_async.errors import TakenUpElsewhere
from svc_async.state import SharedState
from svc_async.state.jobs import JobStore
from tests.support.errors import has


@pytest.fixture
async def store(postgres_url: str, schema: str) -> AsyncIterator[JobStore]:
    async with SharedState.open(postgres_url, schema=schema) as state:
        yield JobStore(state.database)


async def begin(store: JobStore) -> int:
    return (await store.take_up("job", about={}, plan={}, shards=[1])).number


async def test_a_shard_of_a_run_that_is_not_the_last_one_does_not_begin(store: JobStore) -> None:
    first, last = await begin(store), await begin(store)
    with pytest.raises(TakenUpElsewhere, check=has(name="the job job")):
        async with follow_run(store, "job", first):
            pytest.fail("its journal would be taken from the last one")
    async with follow_run(store, "job", last):
        pass


async def test_names_of_files_and_reasons_are_kept_whatever_their_characters_are(store: JobStore) -> None:
    odd = {"files": ["a\0b\udcff.csv"], "failures": [{"reason": "cut \ud83d, and\0NUL"}]}
    await store.take_up("job", about=odd, plan=odd, shards=[1])
    await store.finish_shard("job", 0, odd)
    again = await store.take_up("job", about=odd, plan=odd, shards=[1])
    assert (again.plan, [each async for each in store.list_reports("job")]) == (odd, [(0, odd)])


async def test_the_first_report_of_a_shard_stays_and_is_returned(store: JobStore) -> None:
    await begin(store)
    assert await store.finish_shard("job", 0, {"read": 1}) is None
    assert await store.finish_shard("job", 0, {"read": 2}) == {"read": 1}
    assert [each async for each in store.list_reports("job")] == [(0, {"read": 1})]


async def test_a_shard_ends_when_another_run_begins(store: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svc_async.cluster.worker.shard._WATCH_PAUSE", 0)

    async def work(run: int) -> None:
        async with follow_run(store, "job", run):
            await begin(store)
            await asyncio.Event().wait()

    with pytest.raises(TakenUpElsewhere):
        await work(await begin(store))
