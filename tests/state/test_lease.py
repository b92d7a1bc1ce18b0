"""The function `lease` and its model in Python do the same, whatever happens."""

from uuid import UUID

import pytest

from svc_async.state import SharedState
from svc_async.state.limits.holding import LeaseReport, LeaseRequest, SharedLimit
from tests.support.lease_histories import History, make_history, run_histories
from tests.support.lease_model import SECOND, LeaseModel


@pytest.mark.parametrize("count", [5, pytest.param(150, marks=pytest.mark.long)])
async def test_the_function_and_the_model_are_equal_over_random_histories(
    postgres_url: str, schema: str, count: int
) -> None:
    histories = [make_history(seed, 30) for seed in range(count)]
    async with SharedState.open(postgres_url, schema=schema) as state:
        assert await run_histories(state.database, histories) == count * 30


async def test_what_a_stopped_process_sends_later_counts_as_long_as_the_service_counts_it(
    postgres_url: str, schema: str
) -> None:
    limit = SharedLimit(bucket=UUID(int=1), name="ads.audience_users", limit=20, period=60 * SECOND)

    def ask(number: int, bulk: int, **report: int | list[int]) -> LeaseRequest:
        return LeaseRequest(limit=limit, process=UUID(int=number), bulk=bulk, report=LeaseReport(**report))  # type: ignore[arg-type] # as written below

    times_and_requests = [
        (1, ask(1, 5)),  # holds a lease of one request and is stopped
        (10, ask(2, 0)),  # another finds out that it missed its heartbeat
        (30, ask(1, 5)),  # it is continued, and gives back what it did not use
        (31, ask(1, 0, answered=1, ages=[0], counts=[1], succeeded=1)),  # it sends what it was granted then
        (80, ask(2, 0)),  # what was counted for it has left, what it sent has not
        (100, ask(2, 0)),
    ]
    model = LeaseModel()
    requests = [(request, (1_780_000_000 + time) * SECOND) for time, request in times_and_requests]
    leases = [model.lease(request, at) for request, at in requests]
    assert [(lease.granted, lease.used) for lease in leases] == [(1, 1), (0, 1), (1, 2), (0, 2), (0, 1), (0, 0)]
    async with SharedState.open(postgres_url, schema=schema) as state:
        assert await run_histories(state.database, [History(requests, leases)]) == len(requests)
