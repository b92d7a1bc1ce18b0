"""The long run: `python -m tests.campaigns.mutants [PACKAGE ...] [--count N] [--seeds N ...] [--ids FILE] [--jobs N]`.

It changes random places of each package, one at a time, and runs the tests of the same package. A change that no test
notices is printed at once, unless `equivalents.toml` says why it changes nothing. The tests that are marked `long` run
only where the others notice nothing.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.campaigns.mutants.equivalents import read_equivalents
from tests.campaigns.mutants.places import Mutant, find_mutants, sample
from tests.campaigns.mutants.trial import ROOT, Verdict, check_long, copy_again, copy_project, measure_reach, try_mutant
from tests.support.postgres import start_postgres

_CALLS = ("tests/conformance/test_client_rows.py", "tests/conformance/test_client_calls.py")
"""Operations are tested against the contract, all families at once."""
_TESTS: Mapping[str, Sequence[str]] = {
    "ads": ("tests/ads", *_CALLS),
    "handles": ("tests/ads", "tests/engine", *_CALLS),
    "lists": ("tests/lists", "tests/batch"),
    "monitoring": (
        "tests/monitoring",
        "tests/engine/test_http_log.py",
        "tests/engine/test_events_of_calls.py",
        "tests/cli/test_commands.py",
        "tests/batch/test_events_of_jobs.py",
        "tests/webhooks/test_what_is_reported.py",
        "tests/lint/test_configuration.py",
    ),
    "platform": ("tests/platform", *_CALLS),
    "profiles": ("tests/engine", "tests/cli"),
    "state": ("tests/state", "tests/webhooks/test_shared_events.py"),
    "store": ("tests/store", "tests/state"),
    "telemetry": ("tests/monitoring",),
    "users": ("tests/users", "tests/lists", "tests/sources"),
    "wiring": ("tests/engine",),
}
"""The tests of the packages that have others than the folder of their name."""
SEEDS = (11, 23, 47)
"""Fixed once, before the tests that they judge were written."""
_ALLOWED = 3
"""How many changes of a package may go unnoticed."""
_WORDS = {Verdict.NOTICED: "noticed", Verdict.TIMED_OUT: "timed out", Verdict.SURVIVED: "not noticed"}

Chooser = Callable[[Sequence[Mutant]], Sequence[Mutant]]


def list_packages() -> Sequence[str]:
    """Return the names of all packages of the project."""
    return sorted(path.parent.name for path in (ROOT / "svc_async").glob("*/__init__.py"))


def find_tests(package: str) -> Sequence[str]:
    """Return the folders and files of the tests of a package."""
    return _TESTS.get(package, (f"tests/{package}",))


def main(packages: Sequence[str], choose: Chooser, *, jobs: int) -> bool:
    """Try the chosen mutants of every package; return whether few enough survive."""
    equivalent = read_equivalents()
    with tempfile.TemporaryDirectory() as folder, start_postgres() as url:
        os.environ["SVC_TEST_POSTGRES"] = url  # a run that ends with its first failing test stops no server
        project = copy_project(Path(folder, "0").resolve())
        results = [_try_package(package, choose, project, jobs, equivalent) for package in packages]
        return all(results)


def seed_of_commit() -> int:
    """Return the date of the last commit as a number, so that the sample changes with the days."""
    command = ["git", "log", "-1", "--format=%cs"]
    date = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return int(date.stdout.replace("-", ""))


def _choose_samples(count: int, seeds: Sequence[int]) -> Chooser:
    """Return a function that chooses `count` mutants for each seed."""

    def choose(mutants: Sequence[Mutant]) -> Sequence[Mutant]:
        return [*{mutant.id: mutant for seed in seeds for mutant in sample(mutants, count=count, seed=seed)}.values()]

    return choose


def _choose_listed(file: Path) -> Chooser:
    """Return a function that chooses the mutants whose ids are lines of a file; what is around an id does not count."""
    text = file.read_text(encoding="utf-8")
    return lambda mutants: [mutant for mutant in mutants if any(line.endswith(mutant.id) for line in text.splitlines())]


def _try_package(package: str, choose: Chooser, first: Path, jobs: int, equivalent: Mapping[str, str]) -> bool:
    chosen = choose(list(find_mutants(ROOT, ROOT / "svc_async" / package)))
    folders = find_tests(package)
    reach = measure_reach(first, package, folders, jobs=jobs)
    check_long(first, folders)
    _print(f"{package}: {len(chosen)} mutants, {len(reach.all_tests)} tests, {len(reach.slow)} of them slow")
    free: SimpleQueue[Path] = SimpleQueue()
    free.put(first)
    for number in range(1, jobs):
        free.put(copy_again(first, first.with_name(str(number))))

    def try_one(mutant: Mutant) -> str:
        project, tests = free.get(), reach.find_tests(mutant)
        try:
            verdict = try_mutant(project, mutant, tests, folders)
        finally:
            free.put(project)
        if verdict is Verdict.SURVIVED and mutant.id in equivalent:
            return "equivalent"
        if verdict is not Verdict.NOTICED:
            _print(f"  {_WORDS[verdict]}, line {mutant.first_line}, judged by {len(tests)} tests: {mutant.id}")
        return _WORDS[verdict]

    with ThreadPoolExecutor(jobs) as pool:
        counts = Counter(pool.map(try_one, chosen))
    words = ", ".join(f"{counts[word]} {word}" for word in ("noticed", "timed out", "equivalent", "not noticed"))
    _print(f"{package}: {len(chosen)} mutants, {words}")
    return counts["not noticed"] <= _ALLOWED


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.mutants", description=__doc__)
    parser.add_argument(
        "packages",
        nargs="*",
        metavar="PACKAGE",
        help="packages of svc_async (default: all)",
    )
    parser.add_argument("--count", type=int, default=36, help="mutants of a package for each seed")
    parser.add_argument(
        "--seeds", type=int, nargs="+", help="default: three fixed ones and the date of the last commit"
    )
    parser.add_argument("--ids", type=Path, metavar="FILE", help="try those that an earlier run printed into this file")
    parser.add_argument("--jobs", type=int, default=2, help="how many run at a time")
    given = parser.parse_args()
    packages = list_packages()
    for name in given.packages:
        if name not in packages:
            parser.error(f"{name} is not a package of svc_async; there are {', '.join(packages)}")
    chooser = (
        _choose_listed(given.ids)
        if given.ids
        else _choose_samples(given.count, given.seeds or (*SEEDS, seed_of_commit()))
    )
    raise SystemExit(not main(given.packages or packages, chooser, jobs=given.jobs))
