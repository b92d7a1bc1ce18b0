"""The shares of an amount of memory: who may hold how much."""

from contextlib import ExitStack

from svc_async.engine.memory import MemoryBudget


def test_jobs_have_equal_shares_and_give_them_back() -> None:
    budget = MemoryBudget(1_200)
    with budget.create_share() as first:
        assert first.allowance == 1_200
        with ExitStack() as others:
            shares = [others.enter_context(budget.create_share()) for _ in range(3)]
            assert {share.allowance for share in (first, *shares)} == {300}
        assert first.allowance == 1_200


def test_a_job_has_less_while_another_holds_twice_its_share_but_always_proceeds() -> None:
    budget = MemoryBudget(1_200)
    with budget.create_share() as first, budget.create_share(), budget.create_share() as third:
        assert third.held == 0
        first.held = 800
        assert (first.allowance, third.allowance) == (400, 400)
        first.held = 1_000
        assert third.allowance == 200
        first.held = 1_200
        assert third.allowance == 100


def test_by_default_jobs_may_hold_48_mebibytes() -> None:
    budget = MemoryBudget()
    with budget.create_share() as share:
        assert share.allowance == 50_331_648
        assert repr(budget) == "MemoryBudget(total=50331648)"
        assert repr(share) == "MemoryShare(_total=50331648, held=0)"
