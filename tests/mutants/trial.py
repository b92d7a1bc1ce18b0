"""Runs the tests of a package against one mutant, in a copy of the project."""

import compileall
import gc
import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from py_compile import PycInvalidationMode

import attrs
import pytest
from coverage import CoverageData

from tests.mutants.places import Mutant

ROOT = Path(__file__).parents[2]
_COPIED = ("svc_async", "tests", "docs", "README.md", "pyproject.toml", "CHANGELOG.md", "CONTRIBUTING.md", "noxfile.py")
_FASTER = (
    *("-q", "--no-header", "-p", "no:randomly", "-p", "no:cacheprovider"),
    *("-W", "ignore::coverage.exceptions.CoverageWarning", "-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
_TEST_SECONDS = 20.0
"""A test that takes longer than this has noticed the mutant: the slowest takes a quarter of it."""
_RUN_SECONDS = 300.0

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(
    ["pytest", "pytest_asyncio", "hypothesis", "aiohttp", "authlib", "cattrs", "msgspec", "tenacity"]
)


@attrs.frozen
class Reach:
    """Which tests execute which lines of a package.

    Attributes:
        tests: of each module (a path from the root) and line the tests that execute it.
        all_tests: every test, those first that execute the fewest lines.
    """

    tests: dict[str, dict[int, frozenset[str]]]
    all_tests: tuple[str, ...]

    def find_tests(self, mutant: Mutant) -> Sequence[str]:
        """Return the tests that execute the place, the most specific ones first; all, for code that runs on import."""
        lines = self.tests.get(mutant.module, {})
        found: set[str] = set()
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


def measure_reach(project: Path, package: str, tests: Sequence[str]) -> Reach:
    """Run the tests of a package once, and return which lines each of them executes."""
    file = project / f"coverage-{package}"
    options = (f"--cov=svc_async/{package}", "--cov-context=test", "--cov-report=", "-rp", *_FASTER)
    command = [sys.executable, "-m", "pytest", *options, *tests]
    # It also writes the bytecode of the tests, which later runs only read.
    environment = os.environ | {"PYTHONPATH": str(project), "COVERAGE_FILE": str(file)}
    ended = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(
            f"the tests of {package} fail without any change:\n{ended.stdout[-3000:]}{ended.stderr[-3000:]}"
        )
    data = CoverageData(str(file))
    data.read()
    reach: dict[str, dict[int, frozenset[str]]] = {}
    # Tests that only look at constants execute no line.
    lines_of_test = {line[7:]: 0 for line in ended.stdout.splitlines() if line.startswith("PASSED ")}
    for name in data.measured_files():
        lines = {
            line: frozenset(c.partition("|")[0] for c in found) for line, found in data.contexts_by_lineno(name).items()
        }
        reach[Path(name).relative_to(project.resolve()).as_posix()] = lines
        for test in (test for found in lines.values() for test in found if test):
            lines_of_test[test] = lines_of_test.get(test, 0) + 1
    all_tests = tuple(sorted(lines_of_test, key=lambda test: (lines_of_test[test], test)))
    if not _passes(project, all_tests):
        raise SystemExit(f"the tests of {package} fail in a process that was forked")
    return Reach(reach, all_tests)


def is_killed(project: Path, mutant: Mutant, tests: Sequence[str]) -> bool:
    """Return whether a test fails with the mutant, or never ends."""
    if not tests:
        return False
    path = project / mutant.module
    source = path.read_bytes()
    path.write_bytes(mutant.apply(source))
    try:
        return not _passes(project, tests)
    finally:
        path.write_bytes(source)


def _passes(project: Path, tests: Sequence[str]) -> bool:
    """Return whether the tests pass on the copy, in a process that has imported all libraries already."""
    listed = project / "tests.txt"
    listed.write_text("\n".join(tests))
    arguments = ("-x", *_FASTER, f"--timeout={_TEST_SECONDS}", "--timeout-method=thread", f"@{listed}")
    process = _processes.Process(target=_run_in_copy, args=(project, arguments))
    process.start()
    process.join(_RUN_SECONDS)
    process.kill()
    process.join()
    return process.exitcode == 0


def _run_in_copy(project: Path, arguments: Sequence[str]) -> None:
    """Run pytest on the copy."""
    os.chdir(project)
    os.environ |= {"PYTHONPATH": str(project), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.path.insert(0, str(project))
    sys.dont_write_bytecode = True
    gc.freeze()  # pytest collects garbage at its end: not among what all runs share
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    sys.exit(pytest.main([*arguments]))
