"""The long run: `python -m tests.campaigns.crash --seed N --minutes M`.

It runs random schedules of the machine of a lane, kills the clients of jobs of every kind, compares what the service
then has with a model, and shows beside it what the controls break. The last line is JSON, and runs add up: append it to
a file with `--json FILE`, and print the sum of such files with `--add FILE...`.
"""

import argparse
import asyncio
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from svc_async.lists.audience_users import AudienceUsers
from svc_async.state import SharedState
from tests.campaigns.crash.bad_rows import count_problems, upload_bad_rows
from tests.campaigns.crash.batch_jobs import Database
from tests.campaigns.crash.campaign import KINDS, SHARED_KINDS, count_repeats, run_campaign, run_controls, run_job
from tests.campaigns.crash.figures import Figures, find_commit, read_figures
from tests.support.fake_service import FakeService
from tests.support.lane_model import run_schedules


def main(arguments: argparse.Namespace) -> bool:
    """Run what is asked for; return whether all is as it must be."""
    if arguments.add:
        return _print(read_figures(arguments.add))
    kinds = arguments.kinds or [kind for kind in KINDS if (kind in SHARED_KINDS) == arguments.cluster]
    needs_database = bool({*kinds, arguments.repeat.split(":")[0]} & {*SHARED_KINDS})
    with _open_database() if needs_database else nullcontext() as database:
        return _run(arguments, kinds, database)


def _run(arguments: argparse.Namespace, kinds: Sequence[str], database: Database | None) -> bool:
    if arguments.repeat:
        kind, seed = arguments.repeat.split(":")
        job, trial = run_job(kind, int(seed), database=database)
        figures = Figures()
        figures.add_trial(kind, int(seed), trial, job.service)
        return _print(figures)
    began = time.monotonic()
    run_schedules(arguments.schedules, first=arguments.seed)
    _say(f"{arguments.schedules} schedules of a lane: accounting, quarantine and bytes are right")
    good = asyncio.run(_upload_bad_rows(arguments.bad_rows, arguments.seed))
    figures = run_campaign(
        seed=arguments.seed,
        workers=arguments.workers,
        kinds=kinds,
        seconds=None if arguments.jobs else 60 * arguments.minutes,
        jobs=arguments.jobs,
        database=database,
    )
    if not arguments.cluster and (repeats := count_repeats(arguments.seed)):
        figures.damage["upload: rows that a calm service got twice"] = repeats
    if not arguments.jobs and not all(figures.kills[kind] for kind in kinds):
        figures.damage["a kind of which no client was killed"] += 1
    if not arguments.cluster and not arguments.jobs and not figures.totals["late effects that crossed"]:
        figures.damage["no late effect that crossed a later request"] += 1
    if not arguments.no_controls:
        figures.controls = dict(run_controls(arguments.seed, kinds=kinds, database=database))
    figures.commits, figures.seeds, figures.seconds = [find_commit()], [arguments.seed], time.monotonic() - began
    if arguments.json:
        with Path(arguments.json).open("a") as file:
            file.write(f"{figures.to_json()}\n")
    return _print(figures) and good


async def _upload_bad_rows(count: int, seed: int) -> bool:
    """Return whether each bad row failed by itself, with a documented code and without its value."""
    users = AudienceUsers(FakeService().pipeline, "a1", "c1")
    found = count_problems(*await upload_bad_rows(users, count, seed))
    _say(f"bad rows: {', '.join(f'{number} {what}' for what, number in found.items())}")
    return found == dict.fromkeys(found, 0) | {"rows": count, "failed": count}


@contextmanager
def _open_database() -> Iterator[Database]:
    """Start PostgreSQL, and create the tables in a schema of their own."""
    from tests.support.postgres import drop_schema, make_schema_name, start_postgres  # noqa: PLC0415 - seldom needed

    schema = make_schema_name()
    with start_postgres() as url:
        asyncio.run(_create_tables(url, schema))
        yield url, schema
        drop_schema(url, schema)


async def _create_tables(url: str, schema: str) -> None:
    async with SharedState.open(url, schema=schema):
        pass


def _print(figures: Figures) -> bool:
    _say(figures.describe())
    _say(figures.to_json())
    return figures.good


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.crash")
    parser.add_argument("--seed", type=int, default=1, help="decides everything that is random but the scheduler")
    parser.add_argument("--minutes", type=float, default=1.0, help="how long clients are killed, without --jobs")
    parser.add_argument("--jobs", type=int, help="run this many jobs in each worker, however long they take")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="jobs at a time")
    parser.add_argument("--kinds", nargs="+", choices=[*KINDS], help="the kinds of jobs")
    parser.add_argument(
        "--cluster", action="store_true", help="jobs with their state in PostgreSQL, where one replaces another"
    )
    parser.add_argument("--schedules", type=int, default=2_000, help="how many schedules of a lane to run")
    parser.add_argument("--bad-rows", type=int, default=20_000, help="how many bad rows to upload")
    parser.add_argument("--no-controls", action="store_true", help="leave the controls out")
    parser.add_argument("--json", metavar="FILE", help="append the figures to this file")
    parser.add_argument("--add", metavar="FILE", nargs="+", help="print the sum of such files, and run nothing")
    parser.add_argument("--repeat", metavar="KIND:SEED", default="", help="run one job")
    return parser.parse_args()


if __name__ == "__main__":
    logging.getLogger("svc_async").setLevel(logging.ERROR)  # most requests fail, and each repeat is a warning
    sys.exit(not main(_parse_arguments()))
