"""The long run: `python -m tests.crash [KILLS] [SEED]` kills clients and shows what came of it, beside the controls."""

import asyncio
import sys
import tempfile
from pathlib import Path

from svc_async.batch.lists.audience_users import AudienceUsers
from tests.crash.bad_rows import summary, upload_bad_rows
from tests.crash.test_crash import CONTROLS
from tests.crash.trial import Trial, killed_while_late, run
from tests.support.fake_service import FakeService

_KILLS_A_JOB = 8


async def main(kills: int, seed: int) -> bool:
    """Kill so many clients; answers whether all is as it must be."""
    trials: list[Trial] = []
    while sum(trial.kills for trial in trials) < kills:
        trials.append(await _trial(seed + len(trials)))
        _say(trials)
    good = not any(trial.damaged for trial in trials)
    for without, how in CONTROLS.items():
        with tempfile.TemporaryDirectory() as folder:
            good &= _show(without, await run(Path(folder), seed, without=without, **how))
    with tempfile.TemporaryDirectory() as folder:
        good &= _show("wait", await killed_while_late(Path(folder), late=4.0, without="wait"))
    with tempfile.TemporaryDirectory() as folder:
        good &= not (await killed_while_late(Path(folder), late=4.0)).damaged
    return good and await _bad(1_000 * kills, seed)


async def _bad(count: int, seed: int) -> bool:
    """Upload bad rows; answers whether each failed by itself, typed and unseen."""
    users = AudienceUsers(FakeService(), "a1", "c1")
    found = summary(*await upload_bad_rows(users, count, seed))
    sys.stdout.write(f"bad rows: {', '.join(f'{number} {what}' for what, number in found.items())}\n")
    return found == dict.fromkeys(found, 0) | {"rows": count, "failed": count}


async def _trial(seed: int) -> Trial:
    with tempfile.TemporaryDirectory() as folder:
        trial = await run(Path(folder), seed, kills=_KILLS_A_JOB)
    if trial.damaged or not trial.report:
        sys.stdout.write(f"seed {seed}: {trial.lost} lost, {trial.wrong} wrong, report {trial.report}\n")
    return trial


def _say(trials: list[Trial]) -> None:
    again = sum(trial.again for trial in trials) / len(trials)
    kills, lost, wrong = (sum(getattr(trial, name) for trial in trials) for name in ("kills", "lost", "wrong"))
    sys.stdout.write(
        f"{kills} kills in {len(trials)} jobs: {lost} lost, {wrong} wrong, {again:.1%} of the rows sent again\n"
    )
    sys.stdout.flush()


def _show(without: str, trial: Trial) -> bool:
    sys.stdout.write(f"without {without}: {trial.lost} lost, {trial.wrong} wrong\n")
    return trial.damaged


if __name__ == "__main__":
    wanted, first = [*map(int, sys.argv[1:]), *(1000, 1)[len(sys.argv) - 1 :]]
    sys.exit(not asyncio.run(main(wanted, first)))
