"""Trials of every kind, for some time, in several processes; and the controls."""

import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, islice
from pathlib import Path

import attrs

from tests.campaigns.crash.batch_jobs import (
    BatchJob,
    Database,
    Options,
    create_products_job,
    create_removal_job,
    create_upload_job,
)
from tests.campaigns.crash.controls import CONTROLS, Control
from tests.campaigns.crash.figures import Figures, read_figures
from tests.campaigns.crash.holdings import Audience
from tests.campaigns.crash.sync_jobs import (
    create_audience_sync_job,
    create_catalog_sync_job,
    create_sync_beside_removals_job,
)
from tests.campaigns.crash.trial import Job, Setting, Trial, find_folder, run_trial

__all__ = ["KINDS", "SHARED_KINDS", "count_repeats", "run_campaign", "run_controls", "run_job"]

KINDS: Mapping[str, Callable[[int, Path, Options], Job]] = {
    "upload": create_upload_job,
    "removal": create_removal_job,
    "products": create_products_job,
    "sync": create_audience_sync_job,
    "catalog sync": create_catalog_sync_job,
    "sync beside removals": create_sync_beside_removals_job,
    "shared upload": create_upload_job,
    "shared removal": create_removal_job,
    "shared products": create_products_job,
    "shared sync": create_audience_sync_job,
    "shared sync beside removals": create_sync_beside_removals_job,
    "shared catalog sync": create_catalog_sync_job,
}
SHARED_KINDS = [kind for kind in KINDS if kind.startswith("shared ")]
"""Jobs whose state is in PostgreSQL, where a client that was stopped may be replaced by another one."""
_SHARED_SETTING = Setting(stops=0.4)
_JOBS_OF_A_RUN = 1_000_000
_TRIES = 60


def run_job(
    kind: str,
    seed: int,
    options: Options | None = None,
    setting: Setting | None = None,
    *,
    database: Database | None = None,
) -> tuple[Job, Trial]:
    """Run one job; the database is for kinds that need one."""
    is_shared = kind in SHARED_KINDS
    options = attrs.evolve(options or Options(), database=database if is_shared else None)
    with tempfile.TemporaryDirectory(dir=find_folder()) as folder:
        job = KINDS[kind](seed, Path(folder), options)
        return job, run_trial(job, setting or (_SHARED_SETTING if is_shared else Setting()), seed)


def run_campaign(
    *,
    seed: int,
    seconds: float | None,
    workers: int,
    kinds: Sequence[str] = tuple(KINDS),
    jobs: int | None = None,
    database: Database | None = None,
) -> Figures:
    """Run jobs for some time, or some jobs in each worker, and return what came of them."""
    until = None if seconds is None else time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.json" for number in range(workers)]
        pids = [
            _fork(partial(_work, seeds, until, _rotate(kinds, number * len(kinds) // workers), path, database))
            for number, (seeds, path) in enumerate(zip(_share_seeds(seed, workers, jobs), paths, strict=True))
        ]
        failed = [os.waitpid(pid, 0)[1] for pid in pids]
        figures = read_figures([str(path) for path in paths if path.exists()])
    if any(failed):
        figures.damage["a worker failed"] += 1
    return figures


def _fork(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - there is nobody to raise it to
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def _rotate(kinds: Sequence[str], by: int) -> Sequence[str]:
    return [*kinds[by:], *kinds[:by]]


def _share_seeds(seed: int, workers: int, jobs: int | None) -> Iterator[Iterable[int]]:
    """Yield the seeds of the jobs of each worker."""
    for number in range(workers):
        yield islice(count(seed * _JOBS_OF_A_RUN + number, workers), jobs)


def _work(
    seeds: Iterable[int], until: float | None, kinds: Sequence[str], path: Path, database: Database | None
) -> None:
    """Run jobs, always of the kind with the fewest kills so far."""
    figures = Figures()
    for job_seed in seeds:
        if until is not None and time.monotonic() >= until:
            break
        kind = min(kinds, key=lambda name: (figures.kills[name], figures.jobs[name]))
        job, trial = run_job(kind, job_seed, database=database)
        figures.add_trial(kind, job_seed, trial, job.service)
        if trial.damage:
            sys.stdout.write(f"{figures.examples[-1]}\n")
            sys.stdout.flush()
    path.write_text(figures.to_json())


def run_controls(
    seed: int, *, kinds: Sequence[str] = tuple(KINDS), database: Database | None = None
) -> Mapping[str, Mapping[str, int]]:
    """Run jobs of these kinds without each protection until one does damage, and the same with it; count them."""
    chosen = {name: control for name, control in CONTROLS.items() if control.kind in kinds}
    return {name: _run_control(control, seed, database) for name, control in chosen.items()}


def _run_control(control: Control, seed: int, database: Database | None) -> Mapping[str, int]:
    counts: Counter[str] = Counter({"with damage": 0, "with damage though protected": 0})
    for number in range(_TRIES):
        if counts["with damage"]:
            break
        _, trial = run_job(control.kind, seed + number, control.options, control.setting, database=database)
        setting = attrs.evolve(control.setting, prepare=lambda: None)
        options = control.protected or control.options
        _, protected = run_job(control.kind, seed + number, options, setting, database=database)
        counts["jobs"] += 1
        counts["with damage"] += trial.damage.is_visible or (control.spoils and bool(trial.damage.other))
        if protected.damage:
            counts["with damage though protected"] += 1
            sys.stdout.write(f"{control.kind}:{seed + number}, a control with its protection: {protected.damage}\n")
        counts["refused"] += len(trial.damage.other) if control.spoils else 0
        for what in ("lost", "wrong", "extra"):
            counts[what] += len(getattr(trial.damage, what))
    return counts


def count_repeats(seed: int) -> int:
    """Return how many rows a service got more than once although it failed in no way."""
    setting = Setting(kills=0, jumps=False, cancels=False)
    job, _ = run_job("upload", seed, Options(share=0.0, limits=False), setting)
    audience = job.service.holdings
    assert isinstance(audience, Audience)
    assert isinstance(job, BatchJob)
    accepted: int = sum(report["accepted"] for _, report in job.reports)
    return audience.users - accepted
