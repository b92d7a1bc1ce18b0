"""Creates and opens files that only their owner can read, because they may hold secrets or personal data.

    open_private       the `opener` of `open`, for every mode: `open(path, "a", encoding="utf-8", opener=open_private)`
    create_private     a new file; an existing one is an error
    replace_private    new content, written beside the file and put in its place at once
    check_replaceable  likewise, before the content is known: the file stays as it is
    ensure_private     for a library that opens the file itself, such as SQLite
    create_missing     likewise, before it is known what a file holds: the mode of one that exists is not changed
    create_folder      a folder that only this user can open, with those above it
    report_os_error    what its errors mean to somebody who has named the file

A file is created with mode 0600, whatever the umask. One that exists loses the permissions of all users; those of its
group are an administrator's choice and stay. Where a file may turn out to be somebody else's, `create_missing` or
`check_trusted` comes first, and its mode is changed once it is recognised: a file that is refused stays as it was.
Symbolic links are not followed. A file is refused if somebody may have put it there to read or to redirect what is
written: a hard link, a pipe, a device, or a file that belongs neither to this user, to root, nor to the owner of the
folder.

Every function raises OSError, whose `strerror` says why; `report_os_error` makes it an `UnusableFile`.
"""

import errno
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal

from svc_async.errors import UnusableFile

__all__ = [
    "check_private",
    "check_replaceable",
    "check_trusted",
    "create_folder",
    "create_missing",
    "create_private",
    "ensure_private",
    "is_exposed",
    "needs_home",
    "open_private",
    "replace_private",
    "report_os_error",
    "user_folder",
    "write_private",
]

_MODE = 0o600
_TRIED = bytes(65_536)
"""What `check_replaceable` writes: about as much as a report has."""
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)  # Windows has none
_creating = threading.Lock()

_Rule = tuple[Callable[[Path, os.stat_result], bool], int, str]

_SPECIAL: Sequence[_Rule] = (
    (lambda _, found: stat.S_ISLNK(found.st_mode), errno.ELOOP, "it is a symbolic link"),
    (lambda _, found: not stat.S_ISREG(found.st_mode), errno.EINVAL, "it is not a regular file"),
)
_IN_PLACE: Sequence[_Rule] = (
    *_SPECIAL,
    (lambda _, found: found.st_nlink > 1, errno.EMLINK, "it is a hard link to another file"),
    (lambda path, found: not _is_trusted(path, found), errno.EPERM, "it belongs to another user"),
)


def user_folder(kind: Literal["config", "state"]) -> Path:
    """Return where this user's files are by default: `svc_async` in the folder of settings, or of what else is kept.

    Raises:
        UnusableFile: this user has no home folder.
    """
    from platformdirs import user_config_path, user_state_path  # noqa: PLC0415 - not imported with the session

    with needs_home(f"XDG_{kind.upper()}_HOME"):
        # Some versions leave the ~ where it is if there is no home folder.
        return (user_config_path if kind == "config" else user_state_path)("svc_async", appauthor=False).expanduser()


@contextmanager
def needs_home(alternative: str = "") -> Generator[None]:
    """Report within the block that this user has no home folder, as in a container whose user is in no list of users.

    Args:
        alternative: the variable that would do in its place, besides `HOME`.

    Raises:
        UnusableFile: instead of the RuntimeError of pathlib and of platformdirs.
    """
    try:
        yield
    except RuntimeError:
        ways = f"{alternative} or HOME" if alternative else "HOME"
        raise UnusableFile("folder", "~", f"cannot be found: this user has no home folder; set {ways}") from None


@contextmanager
def report_os_error(parameter: str, path: str | Path, problem: str) -> Generator[None]:
    """Report an OSError within the block as a problem of a file.

    Args:
        parameter: what the file is called in messages.
        path: the file.
        problem: what cannot be done with it; the reason of the system follows.

    Raises:
        UnusableFile: instead of the OSError.
    """
    try:
        yield
    except OSError as error:
        raise UnusableFile(parameter, path, f"{problem}: {error.strerror}") from None


def create_folder(path: Path) -> None:
    """Create a folder that only this user can open, with those above it, unless it exists."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def open_private(path: str | Path, flags: int) -> int:
    """Open a file and return its descriptor; pass this function to `open` as its `opener`."""
    path = Path(path)
    _find(path, _IN_PLACE)  # before opening, which would wait for the other end of a pipe
    descriptor = os.open(path, flags & ~os.O_TRUNC | _NOFOLLOW, _MODE)
    try:
        found = os.fstat(descriptor)
        _refuse(path, found, _IN_PLACE)
        _withdraw_from_others(descriptor, found)
        if flags & os.O_TRUNC:  # not before it is known whose file it is
            os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def create_private(path: str | Path) -> BinaryIO:
    """Create a file; FileExistsError if anything has this name."""
    return open(path, "xb", opener=open_private)


@contextmanager
def replace_private(path: str | Path, *, temporary: str | Path | None = None) -> Generator[BinaryIO]:
    """Yield a temporary file that takes the place of the file when the block ends; after an error it is deleted.

    Args:
        path: the file.
        temporary: the temporary file, if no other process can write it at the same time: one that was left there by a
            process that was killed is overwritten. By default it has a new name beside the file.
    """
    path = Path(path)
    _find(path, _SPECIAL)
    if temporary is None:
        descriptor, temporary = _create_beside(path)
    else:
        descriptor = open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _create_beside(path: Path) -> tuple[int, str]:
    """Create a temporary file, with mode 0600, and return its descriptor and its name."""
    return tempfile.mkstemp(dir=path.parent, prefix=".svc-async.")


def check_replaceable(path: str | Path) -> None:
    """Check that `replace_private` can write a file: write beside it, and delete that."""
    path = Path(path)
    _find(path, _SPECIAL)
    descriptor, temporary = _create_beside(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_TRIED)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Let a new name in a folder survive the loss of power, where the system and the permissions allow it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_private(path: str | Path, content: bytes) -> None:
    """Replace a file by new content."""
    with replace_private(path) as file:
        file.write(content)


def ensure_private(path: str | Path) -> None:
    """Create an empty file, or withdraw the one that exists from all users, without opening it."""
    create_missing(path)
    check_private(path)


def create_missing(path: str | Path) -> None:
    """Create an empty file, or check whose the one that exists is, without opening it; its mode stays.

    Closing any descriptor of a file would release all locks that the process holds on it, also those of SQLite.
    """
    path = Path(path)
    with _creating:  # another thread locks the file only after the descriptor of its creation is closed
        if _find(path, _IN_PLACE) is None:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW, _MODE))


def check_trusted(path: str | Path) -> None:
    """Check whose a file is, if it exists, without opening it or changing its mode."""
    _find(Path(path), _IN_PLACE)


def check_private(path: str | Path) -> None:
    """Withdraw a file from all users, if it exists, without opening it."""
    if found := _find(Path(path), _IN_PLACE):
        _withdraw_from_others(Path(path), found)


def is_exposed(path: str | Path) -> bool:
    """Return whether all users of the machine can read or write a file."""
    return os.name == "posix" and bool(Path(path).stat().st_mode & (stat.S_IROTH | stat.S_IWOTH))


def _find(path: Path, rules: Sequence[_Rule]) -> os.stat_result | None:
    """Return what is known of a file, if it exists and may be used."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    _refuse(path, found, rules)
    return found


def _refuse(path: Path, found: os.stat_result, rules: Sequence[_Rule]) -> None:
    for applies, code, reason in rules:
        if applies(path, found):
            raise OSError(code, reason, str(path))


def _is_trusted(path: Path, found: os.stat_result) -> bool:
    """Return whether a file belongs to this user, to root, or to the owner of the folder, who can replace it anyway."""
    return os.name != "posix" or found.st_uid in {os.geteuid(), 0, path.parent.stat().st_uid}


def _withdraw_from_others(file: Path | int, found: os.stat_result) -> None:
    if os.name != "posix" or not found.st_mode & stat.S_IRWXO:
        return
    try:
        os.chmod(file, stat.S_IMODE(found.st_mode) & ~stat.S_IRWXO)  # noqa: PTH101 - it may be a descriptor
    except PermissionError:
        raise OSError(errno.EPERM, "all users can open it, and its mode cannot be changed") from None
