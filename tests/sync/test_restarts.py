"""A sync that is started again knows what was sent before, so that restarts exceed no rate limit."""

import asyncio
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

from svc_async import Rows, Session
from svc_async.batch.packing.batch import Limits
from svc_async.governor.governor import Governor, Priority
from svc_async.governor.limits import LIMITS, change_limit
from svc_async.lists.audience_users import AudienceUsers
from svc_async.sandbox import Sandbox, VirtualClock
from svc_async.sync.sending import ClockReading
from svc_async.sync.state import SyncState
from tests.support.fake_catalog import product
from tests.support.fake_service import FakeService
from tests.support.rate_limits import find_bucket
from tests.support.sync_states import OpenState
from tests.support.tasks import wait_until

LIMIT, MINUTE = 30, 60.0
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@attrs.define
class Process(FakeService):
    """One process, with a governor of its own; the service counts the requests of all processes."""

    arrived: list[float] = attrs.field(factory=list)
    refused: int = 0
    governor: Governor = attrs.field(init=False)
    slots: dict[int, Any] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        limits = change_limit(LIMITS, "ads.audience_users", requests=LIMIT)
        self.governor = Governor(limits=limits, clock=self.clock, rng=random.Random(1))
        self.governor_id = self.governor.id

    def restore(self, request: Any, sent_at: Any) -> None:
        self.governor.restore(request, user="ann", sent_at=sent_at)

    def but(self, *, at_sending: Any = None, **others: Any) -> Any:
        def begin(request: Any) -> None:
            at_sending(request)
            self.arrive(request)

        return super().but(at_sending=begin, **others)

    async def send_with_answer(self, request: Any) -> Any:
        async with self.governor.slot(request, user="ann", priority=Priority.BULK, max_wait=None) as slot:
            self.slots[id(request)] = slot
            answer = await super().send_with_answer(request)
            slot.learn(200, {})
            return answer

    def arrive(self, request: Any) -> None:
        """Count a request when its bytes are written, as the pipeline does."""
        self.slots[id(request)].mark_sent()
        now = self.clock.monotonic()
        self.refused += sum(moment > now - MINUTE for moment in self.arrived) >= LIMIT
        self.arrived.append(now)

    async def sync(self, state: Path, count: int) -> None:
        users = AudienceUsers(self.pipeline, "a1", "c1", limits=Limits(operations=1))
        rows = Rows(("partner_user_id",), [(f"p{number}",) for number in range(count)])
        await users.sync(rows, state=state, max_removal_share=1, users_per_operation=1, quarantine=0.0)

    @property
    def used(self) -> int:
        return find_bucket(self.governor, "ads.audience_users").used


async def admit(state: SyncState, seconds: float) -> None:
    await state.admit(lambda: ClockReading(NOON + timedelta(seconds=seconds), seconds))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.mark.long("a window has to be filled by processes that follow each other")
@pytest.mark.parametrize("restarts", [6, pytest.param(12, marks=pytest.mark.long)])
async def test_processes_that_are_ended_in_one_window_exceed_no_limit(path: Path, restarts: int) -> None:
    clock, arrived = VirtualClock(mode="jump"), list[float]()
    for restart in range(restarts):
        process = Process(clock=clock, arrived=arrived, latency=0.5)
        before = len(arrived)
        task = asyncio.ensure_future(process.sync(path, 0 if restart % 3 == 2 else 50))
        await wait_until(lambda before=before: len(arrived) >= before + 7)  # type: ignore[misc]  # the default
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert process.refused == 0


async def test_a_process_that_syncs_again_does_not_count_its_requests_twice(path: Path) -> None:
    process = Process()
    for count in (3, 5, 4):
        await process.sync(path, count)
    assert process.used == len(process.bodies) == 6

    later = Process(clock=process.clock, arrived=process.arrived)
    for count in (5, 6):
        await later.sync(path, count)
    assert later.used == len(process.bodies) + len(later.bodies) == 8


async def test_both_kinds_of_requests_of_a_catalog_are_counted(tmp_path: Path) -> None:
    async with Sandbox() as sandbox:
        async with Session.sandbox(sandbox) as session:
            catalog = await session.product_catalogs.create(name="Shop")
        used = []
        for name in "abc":
            governor = Governor(clock=sandbox.clock)
            async with Session.sandbox(sandbox, governor=governor) as session:
                products = session.product_catalog(catalog.id).products
                await products.sync([product(name)], state=tmp_path / "state", max_removal_share=1)
            found = {bucket.name: bucket.used for bucket in governor.snapshot()}
            used.append((found["ads.products.put"], found.get("ads.products.delete", 0)))
    assert used == [(1, 0), (2, 1), (3, 2)]


async def test_a_killed_process_has_noted_all_that_it_sent_and_at_most_about_twice_as_much(
    open_state: OpenState,
) -> None:
    async with open_state() as state:
        await state.find_sent("first")
        state.start("upserts", "now")
        for sent in range(1, 100):
            await admit(state, sent / 40)
            noted = (await state.find_sent("second"))["upserts"]
            await state.find_sent("first")
            assert sent <= len(noted) <= 2 * sent + 1
    async with open_state() as state:
        assert await state.find_sent("first") == {"removals": [], "upserts": []}
        state.start("removals", "now")
        await admit(state, 3_600.0)
        assert {part: len(moments) for part, moments in (await state.find_sent("second")).items()} == {
            "removals": 1,
            "upserts": 0,
        }
