import errno
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from svc_async.errors import UnusableFile
from svc_async.private_files import (
    check_private,
    check_replaceable,
    create_private,
    ensure_private,
    is_exposed,
    open_private,
    replace_private,
    write_private,
)
from svc_async.webhooks import SqliteDedupe
from tests.support.errors import has

Write = Callable[[Path], None]


def _append(path: Path) -> None:
    with open(path, "a", opener=open_private) as file:
        file.write("x")


def _truncate(path: Path) -> None:
    with open(path, "wb", opener=open_private) as file:
        file.write(b"x")


def _create(path: Path) -> None:
    with create_private(path) as file:
        file.write(b"x")


def _replace(path: Path) -> None:
    write_private(path, b"x")


WRITERS = [_append, _truncate, _create, _replace, ensure_private]
IN_PLACE = [_append, _truncate, ensure_private]


@pytest.fixture
def umask_of_zero() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.mark.usefixtures("umask_of_zero")
@pytest.mark.parametrize("write", WRITERS)
def test_a_new_file_is_for_its_owner_only(tmp_path: Path, write: Write) -> None:
    write(tmp_path / "file")

    assert mode_of(tmp_path / "file") == 0o600


@pytest.mark.usefixtures("umask_of_zero")
def test_a_file_is_private_before_it_has_its_name(tmp_path: Path) -> None:
    with replace_private(tmp_path / "file"):
        assert [mode_of(path) for path in tmp_path.iterdir()] == [0o600]


@pytest.mark.parametrize(
    ("before", "after"), [(0o644, 0o640), (0o666, 0o660), (0o606, 0o600), (0o660, 0o660), (0o4606, 0o600)]
)
@pytest.mark.parametrize("write", IN_PLACE)
def test_an_existing_file_is_withdrawn_from_all_but_its_group(
    tmp_path: Path, write: Write, before: int, after: int
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(before)

    write(tmp_path / "file")

    assert mode_of(tmp_path / "file") == after


@pytest.mark.parametrize(("before", "after"), [(0o644, 0o640), (0o666, 0o660), (0o606, 0o600), (0o400, 0o600)])
def test_a_replaced_file_keeps_its_group_and_what_that_may_do(tmp_path: Path, before: int, after: int) -> None:
    group = 65534 if os.geteuid() == 0 else os.getgid()
    (tmp_path / "file").touch()
    os.chown(tmp_path / "file", -1, group)
    (tmp_path / "file").chmod(before)

    write_private(tmp_path / "file", b"x")

    assert (mode_of(tmp_path / "file"), (tmp_path / "file").stat().st_gid) == (after, group)


def test_a_new_file_is_not_for_the_group_of_somebody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(0o660)
    monkeypatch.setattr("svc_async.private_files._is_trusted", lambda *_: False)

    write_private(tmp_path / "file", b"x")

    assert mode_of(tmp_path / "file") == 0o600


@pytest.mark.parametrize("write", [*WRITERS, check_replaceable])
def test_a_folder_in_which_all_users_may_replace_files_is_refused(tmp_path: Path, write: Write) -> None:
    for mode in (0o777, 0o703):
        tmp_path.chmod(mode)
        with pytest.raises(PermissionError):
            write(tmp_path / "file")
        assert [*tmp_path.iterdir()] == []
    for mode in (0o1777, 0o770):
        tmp_path.chmod(mode)
        write(tmp_path / f"file in {mode:o}")


class Swapped:
    """Puts a link to a file of the victim in the place of another one, as soon as that has been looked at."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.victim, self.link = folder / "file", folder / "victim", folder / "link"
        self.path.write_bytes(b"")
        self.path.chmod(0o666)
        self.victim.write_bytes(b"")
        self.victim.chmod(0o604)
        self.link.symlink_to(self.victim)
        self.before = self.path.stat().st_ino
        for name in ("lstat", "fstat"):
            monkeypatch.setattr(os, name, partial(self._look, getattr(os, name)))

    def _look(self, look: Callable[[Any], os.stat_result], file: Any) -> os.stat_result:
        found = look(file)
        if found.st_ino == self.before and self.link.is_symlink():
            self.path.rename(self.path.with_name("aside"))
            self.link.rename(self.path)
        return found


@pytest.mark.parametrize("write", [ensure_private, check_private, _append])
def test_the_file_that_was_checked_is_withdrawn_whatever_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    swapped = Swapped(tmp_path, monkeypatch)

    with suppress(OSError):
        write(swapped.path)

    assert swapped.path.is_symlink()
    assert (mode_of(swapped.victim), swapped.victim.read_bytes()) == (0o604, b"")


async def test_a_database_is_the_file_that_was_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite follows a link that has taken the name of the file for a moment."""
    path, victim, link = tmp_path / "dedupe.sqlite", tmp_path / "victim.sqlite", tmp_path / "link"
    path.write_bytes(b"")
    victim.write_bytes(b"")
    link.symlink_to(victim)
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def swap() -> None:
        path.rename(tmp_path / "aside")
        link.rename(path)
        (tmp_path / "aside").rename(link)

    def connect_elsewhere(*arguments: Any, **settings: Any) -> sqlite3.Connection:
        swap()
        try:
            return connect(*arguments, **settings)
        finally:
            swap()

    monkeypatch.setattr(sqlite3, "connect", connect_elsewhere)
    with pytest.raises(UnusableFile):
        async with SqliteDedupe(path):
            pass
    assert (victim.read_bytes(), path.read_bytes()) == (b"", b"")

    monkeypatch.setattr(sqlite3, "connect", connect)
    async with SqliteDedupe(path):
        for _ in range(3):  # SQLite opens the file once more, then takes the descriptor that it has kept
            async with SqliteDedupe(path):
                assert path.stat().st_size


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("exists", [True, False])
def test_a_symbolic_link_is_not_followed(tmp_path: Path, write: Write, *, exists: bool) -> None:
    target = tmp_path / "target"
    if exists:
        target.write_text("kept")
    (tmp_path / "file").symlink_to(target)

    with pytest.raises(OSError, check=has(errno=errno.ELOOP)):
        write(tmp_path / "file")

    assert target.exists() == exists
    assert not exists or target.read_text() == "kept"


@pytest.mark.parametrize("write", IN_PLACE)
def test_nothing_is_written_through_a_hard_link(tmp_path: Path, write: Write) -> None:
    (tmp_path / "target").write_text("kept")
    (tmp_path / "file").hardlink_to(tmp_path / "target")

    with pytest.raises(OSError, check=has(errno=errno.EMLINK)):
        write(tmp_path / "file")

    assert (tmp_path / "target").read_text() == "kept"


def test_replacing_a_hard_link_leaves_the_other_name_unchanged(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("kept")
    (tmp_path / "file").hardlink_to(tmp_path / "target")

    write_private(tmp_path / "file", b"x")

    assert ((tmp_path / "target").read_text(), (tmp_path / "file").read_text()) == ("kept", "x")


@pytest.mark.parametrize("write", WRITERS)
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, write: Write) -> None:
    os.mkfifo(tmp_path / "file")

    with pytest.raises(OSError, check=has(errno=errno.EINVAL)):
        write(tmp_path / "file")


@pytest.mark.parametrize("write", IN_PLACE)
def test_a_file_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch, write: Write) -> None:
    # A shared folder that belongs to root, such as /tmp.
    descriptor, path = tempfile.mkstemp()
    os.write(descriptor, b"kept")
    os.close(descriptor)
    if os.geteuid() == 0:
        os.chown(path, 65534, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 65534)

    with pytest.raises(OSError, check=has(errno=errno.EPERM)):
        write(Path(path))

    assert Path(path).read_bytes() == b"kept"
    Path(path).unlink()


def test_a_file_is_created_once(tmp_path: Path) -> None:
    create_private(tmp_path / "file").close()

    with pytest.raises(FileExistsError):
        create_private(tmp_path / "file")


def test_a_failed_replacement_leaves_the_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")

    with suppress(ZeroDivisionError), replace_private(tmp_path / "file") as file:
        file.write(b"half")
        raise ZeroDivisionError

    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "kept"


def test_a_file_is_opened_for_appending_and_for_new_content(tmp_path: Path) -> None:
    for write, content in ((_append, "x"), (_append, "xx"), (_truncate, "x")):
        write(tmp_path / "file")
        assert (tmp_path / "file").read_text() == content


@pytest.mark.parametrize(("mode", "exposed"), [(0o600, False), (0o640, False), (0o604, True), (0o602, True)])
def test_a_file_is_exposed_if_all_users_can_open_it(tmp_path: Path, mode: int, *, exposed: bool) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(mode)

    assert is_exposed(tmp_path / "file") == exposed


def test_the_new_name_of_a_replaced_file_is_written_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, bytes]] = []
    path = tmp_path / "file"

    def record(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, path.read_bytes() if path.exists() else b""))

    monkeypatch.setattr(os, "fsync", record)
    write_private(path, b"new")

    assert synced == [(path.stat().st_ino, b""), (tmp_path.stat().st_ino, b"new")]
