"""The long runs: `python -m tests.campaigns.limits [--histories N] [--seconds S] [--hours H] [--only PART...]`.

They compare the function with its model over random histories, share limits between simulated processes for virtual
hours and between real ones for minutes, run a job for many accounts on a cluster, and show what the controls break.
The bars are in docs/reliability.md.
"""

import argparse
import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping

from svc_async.state import SharedState
from tests.campaigns.limits.accounts import AccountsRun, run_accounts
from tests.campaigns.limits.controls import CONTROLS, lease_by_model
from tests.campaigns.limits.function import lease_by_function
from tests.campaigns.limits.processes import Run, WindowKind, run_processes
from tests.campaigns.limits.simulation import Simulation, simulate
from tests.support.lease_histories import make_history, run_histories
from tests.support.postgres import start_postgres

_KINDS: tuple[WindowKind, ...] = ("fixed", "first-request", "sliding")
_HISTORIES_AT_ONCE = 25
_LENGTH = 30
_HOUR = 3_600.0
_SLOW_ANSWERS = (0.01, 0.2, 5.0, 20.0)


async def main(arguments: argparse.Namespace) -> bool:
    """Run what is asked for; return whether every bar is reached."""
    reached = [await _PARTS[name](arguments) for name in arguments.only]
    return all(reached)


async def _compare(arguments: argparse.Namespace) -> bool:
    """Compare the function with its model."""
    leases = 0
    with start_postgres() as url:
        async with SharedState.open(url, schema="histories") as state:
            for first in range(arguments.seed, arguments.seed + arguments.histories, _HISTORIES_AT_ONCE):
                histories = [make_history(seed, _LENGTH) for seed in range(first, first + _HISTORIES_AT_ONCE)]
                leases += await run_histories(state.database, histories)
                await state.database.execute("DELETE FROM limit_buckets")
    _say(f"{arguments.histories} random histories, {leases} leases: the function and its model are equal")
    return True


async def _simulate(arguments: argparse.Namespace) -> bool:
    """Simulate many processes for hours, on the model and on the function."""
    many = await simulate(Simulation(processes=200, seconds=arguments.hours * _HOUR, deaths=12), lease_by_model())
    _say(f"on the model: {many.describe()}")
    with start_postgres() as url:
        async with SharedState.open(url, schema="simulation") as state, state.database.connect() as connection:
            hour = Simulation(processes=20, seconds=arguments.hours / 24 * _HOUR, deaths=12)
            real = await simulate(hour, lease_by_function(connection))
    _say(f"on the function: {real.describe()}")
    return not many.refused and not real.refused and min(many.least_share, real.least_share) >= 0.5


async def _show_controls(arguments: argparse.Namespace) -> bool:
    """Show what happens without one of the rules: the limit is exceeded."""
    uneven = Simulation(
        processes=8, seconds=_HOUR, limit=100, headroom=1.0, latencies=_SLOW_ANSWERS, seed=arguments.seed
    )
    right = await simulate(uneven, lease_by_model())
    _say(f"slow answers: {right.refused} of {right.sent} refused")
    exceeds = []
    for name in list(CONTROLS)[:2]:
        wrong = await simulate(uneven, lease_by_model(CONTROLS[name]))
        exceeds.append(wrong.refused > 0)
        _say(f"control, {name}: {wrong.refused} of {wrong.sent} refused")
    return not right.refused and all(exceeds)


async def _run_processes(arguments: argparse.Namespace) -> bool:
    """Share a limit of the sandbox between real processes, at rest and while they and the database are killed."""
    good = True
    for run in _list_runs(arguments.seconds):
        result = await run_processes(run)
        _say(result.describe())
        good = good and result.good
    return good


def _list_runs(seconds: float) -> Iterator[Run]:
    for is_disturbed in (False, True):
        for kind in _KINDS:
            yield Run(kind=kind, seconds=seconds, disturbed=is_disturbed)


async def _run_accounts(arguments: argparse.Namespace) -> bool:
    """Send to many accounts in one job, each of which has a limit of its own."""
    logging.getLogger("distributed").setLevel(logging.ERROR)
    result = await run_accounts(AccountsRun(accounts=arguments.accounts))
    _say(result.describe())
    return result.good


_PARTS: Mapping[str, Callable[[argparse.Namespace], Awaitable[bool]]] = {
    "histories": _compare,
    "simulation": _simulate,
    "controls": _show_controls,
    "processes": _run_processes,
    "accounts": _run_accounts,
}


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.limits")
    parser.add_argument("--seed", type=int, default=1, help="decides everything that is random but the scheduler")
    parser.add_argument("--histories", type=int, default=10_000, help="how many random histories to compare")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long real processes share a limit")
    parser.add_argument("--hours", type=float, default=24.0, help="virtual hours of 200 processes; of 20, a 24th of it")
    parser.add_argument("--accounts", type=int, default=200, help="accounts of one job on a cluster")
    parser.add_argument("--only", nargs="+", choices=[*_PARTS], default=[*_PARTS], help="the parts to run")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main(_parse_arguments())) else 1)
