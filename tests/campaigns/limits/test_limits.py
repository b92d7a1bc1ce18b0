"""Many processes share one limit: the long runs of `nox -s limits`, cut short."""

import attrs
import pytest

from svc_async.state import SharedState
from tests.campaigns.limits.controls import CONTROLS, lease_by_model
from tests.campaigns.limits.function import lease_by_function
from tests.campaigns.limits.simulation import Simulation, simulate
from tests.support.counting_service import FixedWindows

UNEVEN = Simulation(processes=8, seconds=300, limit=100, headroom=1.0, latencies=(0.01, 0.2, 5.0, 20.0))
"""A small limit, and answers that take up to a third of its period."""


@pytest.mark.parametrize(("processes", "limit"), [(5, 250), pytest.param(20, 1_500, marks=pytest.mark.long)])
async def test_processes_keep_a_limit_and_share_it(processes: int, limit: int) -> None:
    result = await simulate(Simulation(processes=processes, seconds=240, limit=limit), lease_by_model())

    assert result.refused == 0
    assert result.used >= 0.95
    assert result.least_share >= 0.5
    assert result.leases <= 1.2


async def test_processes_that_die_leave_their_part_to_the_others() -> None:
    result = await simulate(Simulation(processes=6, seconds=240, limit=300, deaths=720), lease_by_model())

    assert result.refused == 0
    assert result.used >= 0.9


async def test_the_function_does_as_the_model(postgres_url: str, schema: str) -> None:
    simulation = Simulation(processes=4, seconds=10, deaths=600)
    async with SharedState.open(postgres_url, schema=schema) as state, state.database.connect() as connection:
        found = await simulate(simulation, lease_by_function(connection))

    assert found.sent > 100
    assert found == await simulate(simulation, lease_by_model())


async def test_answers_that_take_long_do_not_exceed_the_limit() -> None:
    result = await simulate(UNEVEN, lease_by_model())

    assert result.refused == 0
    assert result.sent > 300


@pytest.mark.parametrize(
    "name", ["requests in flight are not counted", pytest.param("answers are not counted", marks=pytest.mark.long)]
)
async def test_without_one_of_the_counts_the_limit_is_exceeded(name: str) -> None:
    assert (await simulate(UNEVEN, lease_by_model(CONTROLS[name]))).refused > 0


async def test_without_the_gate_a_lower_limit_refuses_many_more() -> None:
    lower = attrs.evolve(UNEVEN, latencies=(0.05,), window=FixedWindows(60, 60.0))
    refused = (await simulate(lower, lease_by_model())).refused
    lower = attrs.evolve(lower, window=FixedWindows(60, 60.0))
    without = (await simulate(lower, lease_by_model(CONTROLS["no gate after a 429"]))).refused

    assert without > 3 * refused
