"""Syncs of an audience by several processes: what the service gets, and how who was replaced ends."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import attrs
import pytest

from svc_async import BatchError, Rows
from svc_async.batch.job import StateLocation
from svc_async.batch.ledger import GRACE
from svc_async.batch.packing.batch import Limits
from svc_async.batch.plan import SyncReport
from svc_async.errors import StateUnavailable, TakenUpElsewhere
from svc_async.lists.audience_users import AudienceUsers
from svc_async.state import SharedState
from tests.support.fake_service import FakeService
from tests.support.tasks import wait_until

QUARANTINE = 120.0


@pytest.fixture
async def shared(postgres_url: str, schema: str) -> AsyncIterator[SharedState]:
    async with SharedState.open(postgres_url, schema=schema) as state:
        yield state


@attrs.define
class Process:
    """A process that syncs one user a request, one request at a time."""

    state: StateLocation
    service: FakeService = attrs.field(factory=FakeService)
    waits: list[float] = attrs.field(factory=list)

    def start(self, names: Sequence[str], **settings: Any) -> "asyncio.Task[SyncReport]":
        users = AudienceUsers(self.service.pipeline, "a1", "c1", limits=Limits(operations=1))
        rows = Rows(("partner_user_id",), [(name,) for name in names])
        settings = {"max_removal_share": 1, "users_per_operation": 1, "concurrency": 1, **settings}
        return asyncio.ensure_future(users.sync(rows, state=self.state, on_wait=self.waits.append, **settings))

    @property
    def sent(self) -> list[tuple[str, str]]:
        return [
            (operation["operation_type"], user["partner_user_id"][0])
            for operation in self.service.accepted
            for user in operation["params"]["users"]
        ]


@pytest.mark.long("runs three syncs with a database")
async def test_a_sync_that_begins_ends_another_one_of_the_same_list(shared: SharedState) -> None:
    first, second = Process(shared), Process(shared)
    first.service.latency = 5.0
    task = first.start(["p1", "p2", "p3"])
    await wait_until(lambda: len(first.service.bodies) == 1)

    report = await second.start(["p1", "p4"])

    assert report.complete
    with pytest.raises(BatchError) as caught:
        await task
    assert isinstance(caught.value.__cause__, TakenUpElsewhere)
    assert isinstance(caught.value.report, SyncReport)
    # Its clock leaps from one answer to the next, but a note covers at most twice as many as before.
    assert len(first.service.bodies) <= 2
    assert {name for kind, name in second.sent if kind == "Update"} == {"p1", "p4"}
    again = Process(shared)
    assert (await again.start(["p1", "p4"])).plan.unchanged == 2
    assert again.service.bodies == []


@pytest.mark.long("runs two syncs with a database")
async def test_who_takes_up_a_sync_waits_for_what_the_other_may_still_send(shared: SharedState) -> None:
    first, second = Process(shared), Process(shared)
    first.service.latency = 1_000.0
    task = first.start(["p1"])
    await wait_until(lambda: len(first.service.bodies) == 1)

    await second.start(["p2"])

    assert second.waits == [QUARANTINE + GRACE]
    assert second.sent == [("Update", "p2"), ("Delete", "p1")]
    assert second.service.times == [0.0, QUARANTINE + GRACE]
    with pytest.raises(BatchError) as caught:
        await task
    assert isinstance(caught.value.__cause__, TakenUpElsewhere)


async def test_a_dry_run_sends_nothing(shared: SharedState) -> None:
    process = Process(shared)
    assert (await process.start(["p1"], dry_run=True)).plan.additions == 1
    assert process.service.bodies == []


async def test_lists_of_other_accounts_have_states_of_their_own(shared: SharedState) -> None:
    first, second = Process(shared), Process(shared)
    await first.start(["p1"])
    users = AudienceUsers(second.service.pipeline, "a2", "c1")
    report = await users.sync(Rows(("partner_user_id",), [("p1",)]), state=shared)
    assert report.plan.additions == 1


@pytest.mark.long("a commit is tried for eight seconds; test_journals.py tells it of journals without a pause")
async def test_a_database_that_is_away_ends_the_sync_and_fails_no_row(postgres_url: str, schema: str) -> None:
    async with SharedState.open(postgres_url, schema=schema) as shared:
        process = Process(shared)
        process.service.latency = 5.0
        task = process.start(["p1", "p2", "p3"])
        await wait_until(lambda: len(process.service.bodies) == 1)
        await shared.database.close()
        with pytest.raises(BatchError) as caught:
            await task
        assert isinstance(caught.value.__cause__, StateUnavailable)
        assert isinstance(caught.value.report, SyncReport)
        assert caught.value.report.sent.failed == 0
        assert len(process.service.bodies) == 1
    async with SharedState.open(postgres_url, schema=schema) as shared:
        assert (await Process(shared).start(["p1", "p2", "p3"])).complete
