"""The function `lease` and its model in Python do the same, whatever happens."""

from svc_async.state import SharedState
from tests.support.lease_histories import make_history, run_histories


async def test_the_function_and_the_model_are_equal_over_random_histories(postgres_url: str, schema: str) -> None:
    async with SharedState.open(postgres_url, schema=schema) as state:
        for first in range(0, 150, 50):
            histories = [make_history(seed, 30) for seed in range(first, first + 50)]
            assert await run_histories(state.database, histories) == 50 * 30
