"""The long run: `python -m tests.crash [KILLS] [SEED] [--schedules N]`.

It runs random schedules of the machine of a lane, kills clients and compares the state of the service with a model, and
shows beside them what the controls break.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from svc_async.batch.lists.audience_users import AudienceUsers
from tests.crash.bad_rows import count_problems, upload_bad_rows
from tests.crash.trial import CONTROLS, Trial, run_job, run_while_late
from tests.support.fake_service import FakeService
from tests.support.lane_model import run_schedules

_KILLS_PER_JOB = 8


async def main(*, kills: int, seed: int, schedules: int) -> bool:
    """Run everything; return whether all is as it must be."""
    run_schedules(schedules, first=seed)
    sys.stdout.write(f"{schedules} schedules of a lane: accounting, quarantine and bytes are right\n")
    good = await _kill_clients(kills, seed)
    good &= await _run_controls(seed)
    return await _upload_bad_rows(1_000 * kills, seed) and good


async def _kill_clients(kills: int, seed: int) -> bool:
    trials: list[Trial] = []
    while sum(trial.kills for trial in trials) < kills:
        trials.append(await _run_trial(seed + len(trials)))
        _print_trials(trials)
    return not any(trial.damaged for trial in trials)


async def _run_controls(seed: int) -> bool:
    """Return whether every control does damage, and the protected job none."""
    good = True
    for without, how in CONTROLS.items():
        with tempfile.TemporaryDirectory() as folder:
            good &= _print_control(without, await run_job(Path(folder), seed, without=without, **how))
    with tempfile.TemporaryDirectory() as folder:
        good &= _print_control("wait", await run_while_late(Path(folder), late=4.0, without="wait"))
    with tempfile.TemporaryDirectory() as folder:
        good &= not (await run_while_late(Path(folder), late=4.0)).damaged
    return good


async def _upload_bad_rows(count: int, seed: int) -> bool:
    """Return whether each bad row failed by itself, with a documented code and without its value."""
    users = AudienceUsers(FakeService(), "a1", "c1")
    found = count_problems(*await upload_bad_rows(users, count, seed))
    sys.stdout.write(f"bad rows: {', '.join(f'{number} {what}' for what, number in found.items())}\n")
    return found == dict.fromkeys(found, 0) | {"rows": count, "failed": count}


async def _run_trial(seed: int) -> Trial:
    with tempfile.TemporaryDirectory() as folder:
        trial = await run_job(Path(folder), seed, kills=_KILLS_PER_JOB)
    if trial.damaged or not trial.report:
        sys.stdout.write(f"seed {seed}: {trial.lost} lost, {trial.wrong} wrong, report {trial.report}\n")
    return trial


def _print_trials(trials: list[Trial]) -> None:
    resent = sum(trial.resent for trial in trials) / len(trials)
    kills, lost, wrong = (sum(getattr(trial, name) for trial in trials) for name in ("kills", "lost", "wrong"))
    sys.stdout.write(
        f"{kills} kills in {len(trials)} jobs: {lost} lost, {wrong} wrong, {resent:.1%} of the rows resent\n"
    )
    sys.stdout.flush()


def _print_control(without: str, trial: Trial) -> bool:
    sys.stdout.write(f"without {without}: {trial.lost} lost, {trial.wrong} wrong\n")
    return trial.damaged


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crash")
    parser.add_argument("kills", type=int, nargs="?", default=1000, help="how many clients to kill")
    parser.add_argument("seed", type=int, nargs="?", default=1, help="the first seed")
    parser.add_argument("--schedules", type=int, default=20_000, help="how many schedules of a lane to run")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(not asyncio.run(main(**vars(_parse_arguments()))))
