"""The long run: `python -m tests.mutants [ROOM ...] [--count N] [--seeds N ...] [--jobs N]`.

It changes random places of each package, one at a time, and runs the tests of the same package. A change that no test
notices is printed, unless tests/mutants/equivalents.toml says why it changes nothing.
"""

import argparse
import itertools
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.equivalents import read_equivalents
from tests.mutants.places import Mutant, find_mutants, sample
from tests.mutants.trial import ROOT, Reach, copy_project, is_killed, measure_reach

TESTS: Mapping[str, Sequence[str]] = {
    "governor": ["tests/governor"],
    "webhooks": ["tests/webhooks"],
    "engine": ["tests/engine"],
    "wire": ["tests/wire"],
    "auth": ["tests/auth"],
    "streams": ["tests/streams"],
    "batch": ["tests/batch"],
    # Operations are tested against the contract, all families at once.
    "ads": ["tests/ads", "tests/conformance/test_client_rows.py", "tests/conformance/test_client_calls.py"],
}
"""The tests of each package."""
SEEDS = (11, 23, 47)
"""Fixed once, before the tests that they judge were written."""
_ALLOWED = 3
"""How many changes of a package may go unnoticed."""


def main(packages: Sequence[str], *, count: int, seeds: Sequence[int], jobs: int) -> bool:
    """Run the sample of every package; return whether few enough survive."""
    equivalent = read_equivalents()
    with tempfile.TemporaryDirectory() as folder:
        projects = [copy_project(Path(folder, str(number)).resolve()) for number in range(jobs)]
        results = [_try_package(package, count, seeds, projects, equivalent) for package in packages]
        return all(results)


def seed_of_commit() -> int:
    """Return the date of the last commit as a number, so that the sample changes with the days."""
    command = ["git", "log", "-1", "--format=%cs"]
    date = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return int(date.stdout.replace("-", ""))


def _try_package(
    package: str, count: int, seeds: Sequence[int], projects: Sequence[Path], equivalent: Mapping[str, str]
) -> bool:
    everything = list(find_mutants(ROOT, ROOT / "svc_async" / package))
    chosen = {mutant.id: mutant for seed in seeds for mutant in sample(everything, count=count, seed=seed)}
    reach = measure_reach(projects[0], package, TESTS[package])
    free: SimpleQueue[Path] = SimpleQueue()
    for project in projects:
        free.put(project)

    def survives(mutant: Mutant) -> bool:
        project = free.get()
        try:
            return not is_killed(project, mutant, reach.find_tests(mutant))
        finally:
            free.put(project)

    with ThreadPoolExecutor(len(projects)) as pool:
        alive = list(pool.map(survives, chosen.values()))
    survivors = list(itertools.compress(chosen.values(), alive))
    return _print_result(package, len(chosen), survivors, reach, equivalent)


def _print_result(
    package: str, count: int, survivors: Sequence[Mutant], reach: Reach, equivalent: Mapping[str, str]
) -> bool:
    unnoticed = [mutant for mutant in survivors if mutant.id not in equivalent]
    listed = len(survivors) - len(unnoticed)
    noticed = f"{count - len(survivors)} noticed, {listed} equivalent, {len(unnoticed)} not noticed"
    sys.stdout.write(f"{package}: {count} mutants, {noticed}\n")
    for mutant in unnoticed:
        sys.stdout.write(
            f"  line {mutant.first_line}, executed by {len(reach.find_tests(mutant))} tests: {mutant.id}\n"
        )
    sys.stdout.flush()
    return len(unnoticed) <= _ALLOWED


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument(
        "packages",
        nargs="*",
        default=[*TESTS],
        metavar="PACKAGE",
        help="packages of svc_async (default: all that have tests of their own)",
    )
    parser.add_argument("--count", type=int, default=36, help="mutants of a package for each seed")
    parser.add_argument(
        "--seeds", type=int, nargs="+", help="default: three fixed ones and the date of the last commit"
    )
    parser.add_argument("--jobs", type=int, default=2, help="how many run at a time")
    given = parser.parse_args()
    raise SystemExit(
        not main(given.packages, count=given.count, seeds=given.seeds or (*SEEDS, seed_of_commit()), jobs=given.jobs)
    )
