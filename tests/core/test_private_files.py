import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from svc_async.private_files import (
    create_private,
    ensure_private,
    is_exposed,
    open_private,
    replace_private,
    write_private,
)
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
    return path.stat().st_mode & 0o777


@pytest.mark.usefixtures("umask_of_zero")
@pytest.mark.parametrize("write", WRITERS)
def test_a_new_file_is_for_its_owner_only(tmp_path: Path, write: Write) -> None:
    write(tmp_path / "file")

    assert mode_of(tmp_path / "file") == 0o600


@pytest.mark.usefixtures("umask_of_zero")
def test_a_file_is_private_before_it_has_its_name(tmp_path: Path) -> None:
    with replace_private(tmp_path / "file"):
        assert [mode_of(path) for path in tmp_path.iterdir()] == [0o600]


@pytest.mark.parametrize(("before", "after"), [(0o644, 0o640), (0o666, 0o660), (0o606, 0o600), (0o660, 0o660)])
@pytest.mark.parametrize("write", IN_PLACE)
def test_an_existing_file_is_withdrawn_from_all_but_its_group(
    tmp_path: Path, write: Write, before: int, after: int
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(before)

    write(tmp_path / "file")

    assert mode_of(tmp_path / "file") == after


def test_a_replaced_file_is_private_whatever_it_was(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(0o666)

    write_private(tmp_path / "file", b"x")

    assert mode_of(tmp_path / "file") == 0o600


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
