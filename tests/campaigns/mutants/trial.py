"""Runs the tests of a package against one mutant, in a copy of the project."""

import compileall
import enum
import gc
import json
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import TextIO

import attrs
import pytest
from coverage import CoverageData

from tests.campaigns.mutants.places import Mutant

ROOT = Path(__file__).parents[3]
_COPIED = ("svc_async", "tests", "docs", "README.md", "pyproject.toml", "CHANGELOG.md", "CONTRIBUTING.md", "noxfile.py")
_FASTER = (
    *("-q", "--no-header", "-p", "no:randomly", "-p", "no:cacheprovider"),
    *("-W", "ignore::coverage.exceptions.CoverageWarning", "-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
_TEST_SECONDS = 10.0
_TIMES_SLOWER = 20
"""A test never ends that takes longer than this, and so many times longer than it took when it was measured."""
_RUN_SECONDS = 900.0
_RUN_MEMORY = 3 << 30
"""Bytes that a run may take: a mutant may collect rows without an end."""
_SLOW_SECONDS = 0.5
"""Coverage makes a test several times slower. So one that takes longer than this without it is not measured: it counts
as if it executed every line, and is run last."""
_FIRST = 20
"""So many tests are run first, by themselves: most mutants end there, and few modules need to be imported for them."""
_MEASURING_SECONDS = 1_200.0
"""So long may a test take while it is measured."""
_LONG = ("-m", "long")
_MEASURED, _WRITTEN = "measured.jsonl", "written.jsonl"
_FAILED = 9
"""How a process ends whose tests fail; one that was ended from outside has another number."""

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(
    ["pytest", "pytest_asyncio", "hypothesis", "aiohttp", "authlib", "cattrs", "msgspec", "tenacity"]
)


class Verdict(enum.Enum):
    """What the tests say of a mutant."""

    NOTICED = enum.auto()
    TIMED_OUT = enum.auto()
    """Noticed, since a test never ended: to be looked at, where the machine may have been slow."""
    SURVIVED = enum.auto()


@attrs.frozen
class Reach:
    """Which tests execute which lines of a package.

    Attributes:
        tests: of each module (a path from the root) and line the tests that execute it.
        slow: tests that may execute any line.
        all_tests: every test, those first that execute the fewest lines.
    """

    tests: dict[str, dict[int, frozenset[str]]]
    slow: frozenset[str]
    all_tests: tuple[str, ...]

    def find_tests(self, mutant: Mutant) -> Sequence[str]:
        """Return the tests that execute the place, the most specific ones first; all, for code that runs on import."""
        lines = self.tests.get(mutant.module, {})
        found = set(self.slow)
        for line in range(mutant.first_line, mutant.last_line + 1):
            found |= lines.get(line, frozenset())
        if "" in found or not mutant.scope:
            return self.all_tests
        return [test for test in self.all_tests if test in found]


def copy_project(folder: Path) -> Path:
    """Copy what the tests need, and return the copy.

    Its bytecode is checked by the hash of the source: a mutant may have the size and the time of its original.
    """
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    compileall.compile_dir(folder / "svc_async", quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    return folder


def copy_again(project: Path, folder: Path) -> Path:
    """Copy a copy, with its bytecode, so that tests can run in both at a time."""
    return Path(shutil.copytree(project, folder, dirs_exist_ok=True))


def measure_reach(project: Path, package: str, tests: Sequence[str], *, jobs: int) -> Reach:
    """Run the tests of a package twice, and return which lines each of them executes."""
    seconds = _time_tests(project, tests)
    slow = frozenset(test for test, taken in seconds.items() if taken > _SLOW_SECONDS)
    reach = _measure_lines(project, package, [*tests, *(f"--deselect={test}" for test in slow), f"-n{jobs}"])
    # Tests that only look at constants execute no line.
    count = Counter(test for lines in reach.values() for found in lines.values() for test in found)
    all_tests = sorted(seconds, key=lambda test: (test in slow and seconds[test], count[test], test))
    return Reach(reach, slow, tuple(all_tests))


def _time_tests(project: Path, tests: Sequence[str]) -> Mapping[str, float]:
    """Return how long each test takes; this also writes the bytecode of the tests, which later runs only read."""
    (project / _MEASURED).unlink(missing_ok=True)
    if _run(project, tests) is not Verdict.SURVIVED:
        raise SystemExit(f"the tests fail without any change: {(project / _WRITTEN).read_text()[-3000:]}")
    written = (project / _WRITTEN).rename(project / _MEASURED)
    return _read_seconds(written)


def _read_seconds(file: Path) -> Mapping[str, float]:
    """Return the seconds of each test; none if they are not measured yet."""
    return dict(map(json.loads, file.read_text().splitlines())) if file.exists() else {}


def _measure_lines(project: Path, package: str, arguments: Sequence[str]) -> dict[str, dict[int, frozenset[str]]]:
    """Return of each module and line the tests that execute it."""
    file = project / f"coverage-{package}"
    options = (f"--cov=svc_async/{package}", "--cov-context=test", "--cov-report=", f"--timeout={_MEASURING_SECONDS}")
    command = [sys.executable, "-m", "pytest", *options, *_FASTER, *arguments]
    environment = os.environ | {"PYTHONPATH": str(project), "COVERAGE_FILE": str(file)}
    ended = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"the tests of {package} fail with coverage:\n{ended.stdout[-3000:]}{ended.stderr[-3000:]}")
    data = CoverageData(str(file))
    data.read()
    return {
        Path(name).relative_to(project.resolve()).as_posix(): {
            line: frozenset(context.partition("|")[0] for context in found)
            for line, found in data.contexts_by_lineno(name).items()
        }
        for name in data.measured_files()
    }


def check_long(project: Path, folders: Sequence[str]) -> None:
    """Check that the long tests pass without any change, before they judge one."""
    if _run(project, [*_LONG, *folders]) is not Verdict.SURVIVED:
        raise SystemExit(f"the long tests fail without any change: {(project / _WRITTEN).read_text()[-3000:]}")


def try_mutant(project: Path, mutant: Mutant, tests: Sequence[str], folders: Sequence[str]) -> Verdict:
    """Return what tests say of a mutant: the given ones, and where they notice nothing the long ones of folders."""
    path = project / mutant.module
    source = path.read_bytes()
    path.write_bytes(mutant.apply(source))
    try:
        for part in filter(None, (tests[:_FIRST], tests[_FIRST:], [*_LONG, *folders])):
            verdict = _run(project, part)
            if verdict is not Verdict.SURVIVED:
                return verdict
        return Verdict.SURVIVED
    finally:
        path.write_bytes(source)


def _run(project: Path, tests: Sequence[str]) -> Verdict:
    """Run tests on the copy until one fails, in a process that has imported all libraries already."""
    listed = project / "tests.txt"
    listed.write_text("\n".join(tests))
    process = _processes.Process(target=_run_in_copy, args=(project, listed))
    process.start()
    process.join(_RUN_SECONDS)
    process.kill()
    process.join()
    return {0: Verdict.SURVIVED, _FAILED: Verdict.NOTICED}.get(process.exitcode or 0, Verdict.TIMED_OUT)


def _run_in_copy(project: Path, listed: Path) -> None:
    """Run pytest on the copy."""
    resource.setrlimit(resource.RLIMIT_DATA, (_RUN_MEMORY, _RUN_MEMORY))
    measured = _read_seconds(project / _MEASURED)
    os.chdir(project)
    os.environ["PYTHONPATH"] = str(project)
    sys.path.insert(0, str(project))
    if measured:
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        sys.dont_write_bytecode = True
    gc.freeze()  # pytest collects garbage at its end: not among what all runs share
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    with (project / _WRITTEN).open("w") as file:
        arguments = ("-x", "--tb=short", *_FASTER, "--timeout-method=thread", f"@{listed}")
        code = pytest.main([*arguments], plugins=[_Observer(file, measured)])
        sys.exit(0 if code in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED} else _FAILED)


@attrs.frozen(eq=False)
class _Observer:
    """A plugin of pytest that writes how long each test takes, and ends the process with the first that fails.

    Attributes:
        file: where it writes.
        measured: how long they took when they were measured, if they were.
    """

    file: TextIO
    measured: Mapping[str, float]

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            taken = self.measured.get(item.nodeid)  # long ones are not measured
            limit = _MEASURING_SECONDS if taken is None else _TEST_SECONDS + _TIMES_SLOWER * taken
            item.add_marker(pytest.mark.timeout(limit))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.file.write(f"{report.nodeid}: {report.longreprtext}")
            self.file.flush()
            os._exit(_FAILED)  # tearing it down may never end, and pytest-timeout has stopped its clock
        if report.when == "call":
            self.file.write(json.dumps([report.nodeid, report.duration]) + "\n")
