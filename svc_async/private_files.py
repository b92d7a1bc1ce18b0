"""Creates and opens files that only their owner can read, because they may hold secrets or personal data.

    open_private       the `opener` of `open`, for every mode: `open(path, "a", encoding="utf-8", opener=open_private)`
    open_trusted       likewise, before it is known what a file holds: its mode is not changed
    create_private     a new file; an existing one is an error
    replace_private    new content, written beside the file and put in its place at once
    check_replaceable  likewise, before the content is known: the file stays as it is
    ensure_private     for a library that opens the file itself, such as SQLite
    create_missing     likewise, before it is known what a file holds: the mode of one that exists is not changed
    open_by_name       has such a library open it, and checks that it was this file
    create_folder      a folder that only this user can open, with those above it
    report_os_error    what its errors mean to somebody who has named the file

A file is created with mode 0600, whatever the umask. One that exists loses the permissions of all users; those of its
group are an administrator's choice and stay. Where a file may turn out to be somebody else's, `create_missing` or
`check_trusted` comes first, and its mode is changed once it is recognised: a file that is refused stays as it was.
Symbolic links are not followed. A file is refused if somebody may have put it there to read or to redirect what is
written: a hard link, a pipe, a device, or a file that belongs neither to this user, to root, nor to the owner of the
folder. So is every file in a folder in which all users may replace those of others.

Somebody who may rename files can give the name to another one between a check and what follows it. So a file is
checked, and its mode changed, through one descriptor (on Linux; elsewhere by name, without following links).

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
from typing import BinaryIO, Literal, NamedTuple, Protocol, TypeVar

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
    "keep_group",
    "needs_home",
    "open_by_name",
    "open_private",
    "open_trusted",
    "replace_private",
    "report_os_error",
    "user_folder",
    "write_private",
]

_MODE = 0o600
_KEPT = 0o770
"""The permissions that a file keeps when it is withdrawn from all users."""
_TRIED = bytes(65_536)
"""What `check_replaceable` writes: about as much as a report has."""
_SAFELY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # Windows has neither
"""How a file is opened: a link is not followed, and the other end of a pipe is not waited for."""
_PATH = getattr(os, "O_PATH", 0)
"""How a file is held without being opened. Only Linux has this."""
_DESCRIPTORS = Path("/proc/self/fd")
_ATTEMPTS = 10
"""Times that a library may open a file, while other threads open others."""
_creating = threading.Lock()
_opening = threading.Lock()


class _Closable(Protocol):
    def close(self) -> object: ...


_Opened = TypeVar("_Opened", bound=_Closable)

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


def open_trusted(path: str | Path, flags: int) -> int:
    """Open a file that may be used and return its descriptor; its mode stays."""
    path = Path(path)
    _find(path, _IN_PLACE)  # which says what is wrong
    descriptor = os.open(path, flags | _SAFELY, _MODE)
    try:
        _refuse(path, os.fstat(descriptor), _IN_PLACE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_private(path: str | Path, flags: int) -> int:
    """Open a file and return its descriptor; pass this function to `open` as its `opener`."""
    descriptor = open_trusted(path, flags & ~os.O_TRUNC)
    try:
        _withdraw_from_others(descriptor, os.fstat(descriptor))
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
            keep_group(descriptor, path)
            yield file
            file.flush()
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def keep_group(descriptor: int, path: str | Path) -> None:
    """Set group and permissions of a new file to those of the file whose place it takes, if that may be used."""
    path = Path(path)
    found = _find(path, _SPECIAL)
    if os.name != "posix" or found is None or not _is_trusted(path, found):
        return
    with suppress(PermissionError):
        os.fchown(descriptor, -1, found.st_gid)
    if os.fstat(descriptor).st_gid == found.st_gid:
        os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & stat.S_IRWXG | _MODE)


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
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY, _MODE))


def check_trusted(path: str | Path) -> None:
    """Check whose a file is, if it exists, without opening it or changing its mode."""
    _find(Path(path), _IN_PLACE)


def check_private(path: str | Path) -> None:
    """Withdraw a file from all users, if it exists, without opening it."""
    with _hold(Path(path), _IN_PLACE) as held:
        if held is not None:
            _withdraw_from_others(held.path, held.status)


def open_by_name(path: str | Path, open_: Callable[[], _Opened]) -> _Opened:
    """Have a library open a file that exists, and check that it was one that may be used; its mode stays.

    Args:
        path: the file.
        open_: opens it, and changes nothing.
    """
    path = Path(path)
    for _ in range(_ATTEMPTS):
        with _opening, _hold(path, _IN_PLACE) as held:
            if held is None:
                break
            before = _list_files()
            opened = open_()
            if _is_open(held, path, before):
                return opened
            opened.close()
    raise OSError(errno.EPERM, "another file has taken its name meanwhile", str(path))


def _list_files() -> set[tuple[int, int, int]]:
    """Return the descriptors of this process that are of regular files, with device and number, if the system can."""
    files = set()
    for name in os.listdir(_DESCRIPTORS) if _DESCRIPTORS.is_dir() else ():  # noqa: PTH208 - names
        with suppress(OSError):  # this descriptor, or one that another thread has closed
            found = os.fstat(int(name))
            if stat.S_ISREG(found.st_mode):
                files.add((int(name), found.st_dev, found.st_ino))
    return files


def _is_open(held: "_Held", path: Path, before: set[tuple[int, int, int]]) -> bool:
    """Return whether this process has opened a file since it had certain descriptors.

    SQLite takes one that it has kept of the same file, if there is one, in place of a new one.
    """
    if not before:
        return os.path.samestat(held.status, path.lstat())
    opened = _list_files() - before or {each for each in before if each[0] != held.descriptor}
    return any(each[1:] == (held.status.st_dev, held.status.st_ino) for each in opened)


def is_exposed(path: str | Path) -> bool:
    """Return whether all users of the machine can read or write a file."""
    return os.name == "posix" and bool(Path(path).stat().st_mode & (stat.S_IROTH | stat.S_IWOTH))


class _Held(NamedTuple):
    """A file that may be used.

    Attributes:
        status: what is known of it.
        path: leads to it, on Linux whatever has its name meanwhile.
        descriptor: holds it on Linux; elsewhere -1.
    """

    status: os.stat_result
    path: Path
    descriptor: int


@contextmanager
def _hold(path: Path, rules: Sequence[_Rule]) -> "Generator[_Held | None]":
    """Hold a file that may be used within the block, if it exists, without opening it.

    Closing a descriptor that opens a file would release all locks that the process holds on it, also those of SQLite.
    """
    _check_folder(path)
    descriptor = -1
    try:
        try:
            descriptor = os.open(path, _PATH | _SAFELY) if _PATH else -1
            status = os.fstat(descriptor) if _PATH else path.lstat()
        except FileNotFoundError:
            status = None
        if status is None:
            yield None
        else:
            _refuse(path, status, rules)
            yield _Held(status, _DESCRIPTORS / str(descriptor) if _PATH else path, descriptor)
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _find(path: Path, rules: Sequence[_Rule]) -> os.stat_result | None:
    """Return what is known of a file, if it exists and may be used."""
    with _hold(path, rules) as held:
        return held and held.status


def _check_folder(path: Path) -> None:
    """Check that nobody else but the owner of the folder of a file can replace it."""
    mode = path.parent.stat().st_mode
    if os.name == "posix" and mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        reason = "all users can replace files in its folder: take that away with chmod o-w, or use a folder in it"
        raise OSError(errno.EPERM, reason, str(path))


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
    follows = bool(_PATH) or isinstance(file, int)  # what leads to the descriptor is a link
    try:
        os.chmod(file, stat.S_IMODE(found.st_mode) & _KEPT, follow_symlinks=follows)  # noqa: PTH101 - see above
    except OSError:
        raise OSError(errno.EPERM, "all users can open it, and its mode cannot be changed") from None
