"""Which open batches share requests at the end of a source."""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async.batch.packing.packer import group_tails


def count_requests(tails: dict[int, float], groups: list[list[int]]) -> int:
    return sum(ceil(sum(tails[number] for number in group) - 1e-9) for group in groups)


def test_nothing_needs_no_request() -> None:
    assert group_tails({}) == []


def test_batches_that_fit_into_one_request_share_it() -> None:
    assert group_tails({0: 0.2, 1: 0.3, 2: 0.5, 3: 0.9}) == [[3], [2, 1, 0]]


@pytest.mark.parametrize(("share", "members", "requests"), [(0.35, 2, 6), (0.51, 3, 8), (0.67, 4, 9), (0.9, 1, 12)])
def test_groups_are_small_where_that_costs_at_most_one_request(share: float, members: int, requests: int) -> None:
    tails = dict.fromkeys(range(12), share)

    groups = group_tails(tails)

    assert count_requests(tails, groups) == requests
    assert max(map(len, groups)) == members


@pytest.mark.usefixtures("examples")
@given(st.lists(st.floats(0.0001, 1.0), max_size=40))
def test_every_batch_is_in_one_group_and_at_most_one_request_is_wasted(shares: list[float]) -> None:
    tails = dict(enumerate(shares))

    groups = group_tails(tails)

    assert sorted(number for group in groups for number in group) == list(tails)
    assert count_requests(tails, groups) <= ceil(sum(shares)) + 1
