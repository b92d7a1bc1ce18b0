"""A small model of a family beside the real one: after the same calls, both show the same."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule

from svc_async import NotFound, Session
from svc_async.ads.line_item_curated_categories import LineItemCuratedCategories, LineItemCuratedCategory
from svc_async.sandbox import Sandbox, SandboxConfig, VirtualClock
from svc_async.wire.envelope import Page

T = TypeVar("T")
Record = LineItemCuratedCategory

LINE_ITEMS = st.sampled_from(["9cqi0", "9cqi1", "9cqi2", "nothing"])
CATEGORIES = st.sampled_from(["9ddrgesiap6o", "9ddrgesiap7p", "nothing"])
MAYBE = st.booleans()


class Family(RuleBasedStateMachine):
    """Curated categories of line items: `alive` and `gone` are all that the model knows, in the order of creation."""

    known = Bundle("known")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.alive: dict[str, Record] = {}
        self.gone: dict[str, Record] = {}
        self.walk: AsyncIterator[Page[Record]] | None = None
        self.runner.run(self._open())

    async def _open(self) -> None:
        self.clock = VirtualClock()
        config = SandboxConfig(rate_limits=False, empty_page_before_last=True)
        self.sandbox = Sandbox(clock=self.clock, config=config)
        await self.sandbox.start()
        self.session = await Session.sandbox(self.sandbox).__aenter__()

    def teardown(self) -> None:
        with self.runner:
            self.runner.run(self.session.__aexit__(None, None, None))
            self.runner.run(self.sandbox.aclose())

    @property
    def service(self) -> LineItemCuratedCategories:
        return self.session.account(self.sandbox.account_id).line_item_curated_categories

    def do(self, call: Callable[[], Awaitable[T]], *, found: bool = True) -> T | None:
        """Make a call, which must find what it is about if that is there."""

        async def make() -> T:
            return await call()

        if found:
            return self.runner.run(make())
        with pytest.raises(NotFound):
            self.runner.run(make())
        return None

    @initialize(target=known)
    def seeded(self) -> object:
        self.alive = {record.id: record for record in self.runner.run(self.service.list().collect())}
        return multiple(*self.alive)

    @rule(target=known, line_item=LINE_ITEMS, category=CATEGORIES)
    def create(self, line_item: str, category: str) -> object:
        possible = "nothing" not in {line_item, category}
        made = self.do(
            lambda: self.service.create(line_item_id=line_item, curated_category_id=category), found=possible
        )
        if made is None:
            return multiple()
        assert (made.line_item_id, made.curated_category_id, made.deleted) == (line_item, category, False)
        assert made.id not in self.alive | self.gone
        self.alive[made.id] = made
        return made.id

    @rule(which=known, line_item=LINE_ITEMS)
    def update(self, which: str, line_item: str) -> None:
        possible = which in self.alive and line_item != "nothing"
        changed = self.do(lambda: self.service.update(which, line_item_id=line_item), found=possible)
        if changed is not None:
            before = self.alive[which]
            assert (changed.id, changed.line_item_id) == (which, line_item)
            assert changed.curated_category_id == before.curated_category_id
            self.alive[which] = changed

    @rule(which=known)
    def delete(self, which: str) -> None:
        deleted = self.do(lambda: self.service.delete(which), found=which in self.alive)
        if deleted is not None:
            assert deleted.deleted
            del self.alive[which]
            self.gone[which] = deleted

    @rule(which=known, with_deleted=MAYBE)
    def get(self, which: str, with_deleted: bool) -> None:
        visible = self.alive | (self.gone if with_deleted else {})
        found = self.do(lambda: self.service.get(which, with_deleted=with_deleted), found=which in visible)
        assert found == visible.get(which)

    @rule(count=st.integers(1, 5), with_deleted=MAYBE)
    def list_all(self, count: int, with_deleted: bool) -> None:
        listed = self.runner.run(self.service.list(count=count, with_deleted=with_deleted).collect())
        visible = self.alive | (self.gone if with_deleted else {})
        assert {record.id: record for record in listed} == visible
        assert len(listed) == len(visible)

    @rule(with_deleted=MAYBE)
    def count(self, with_deleted: bool) -> None:
        total = self.runner.run(self.service.list(with_deleted=with_deleted).total_count())
        assert total == len(self.alive) + (len(self.gone) if with_deleted else 0)

    @precondition(lambda self: self.walk is None)
    @rule(count=st.integers(1, 3))
    def begin_a_walk(self, count: int) -> None:
        self.walk = self.service.list(count=count).pages()
        self.at_start = set(self.alive)
        self.walked: list[str] = []

    @precondition(lambda self: self.walk is not None)
    @rule()
    def turn_a_page(self) -> None:
        assert self.walk is not None
        page = self.runner.run(anext(self.walk, None))
        if page is not None:
            self.walked += [record.id for record in page.items]
            return
        self.walk = None
        assert len(self.walked) == len(set(self.walked)), "paging repeats nothing while others write"
        assert set(self.walked) >= self.at_start & set(self.alive), "and skips nothing"

    @invariant()
    def time_passes(self) -> None:
        self.runner.run(self.clock.advance(seconds=1))


class FamilyAtLength(Family):
    """The same, often enough for rare orders of calls."""


RULES = pytest.mark.rule("GEN-07", "GEN-09", "GEN-14", "LICC-02", "LICC-03", "LICC-04", "LICC-05")
TestFamily = RULES(Family.TestCase)
TestFamily.settings = settings(max_examples=2, stateful_step_count=30)
TestFamilyAtLength = pytest.mark.long("rare orders of calls need many runs")(RULES(FamilyAtLength.TestCase))
TestFamilyAtLength.settings = settings(max_examples=25, stateful_step_count=30)
