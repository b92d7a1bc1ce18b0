"""Environments that lack what others have: parts of the standard library, a home folder, a name of the user."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from svc_async import InvalidArgument, UnusableFile, profiles
from svc_async.batch.journal.file import FORMAT as JOURNAL
from svc_async.errors import Hint
from svc_async.private_files import needs_home, user_folder
from svc_async.sources.detect import open_source
from svc_async.store.database_url import DatabaseUrl
from svc_async.sync.state import FORMAT as STATE
from svc_async.webhooks import SqliteInbox
from tests.support.files import COMPRESSIONS

_UPLOAD = """
import asyncio, importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in {"_bz2", "_ctypes", "_curses", "_lzma", "_sqlite3", "_uuid", "pyexpat", "readline"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in ("_bz2", "_lzma", "_sqlite3", "bz2", "lzma", "sqlite3", "shutil"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Missing())

from svc_async import Session
from svc_async.sandbox import Sandbox
from svc_async.sources.detect import open_source
from svc_async.sync.state import open_sync_state
from svc_async.webhooks import WebhookReceiver

async def main():
    async with Sandbox() as sandbox, Session.sandbox(sandbox) as session:
        audience = session.account(sandbox.account_id).custom_audience(sandbox.audience_id)
        print((await audience.users.upload([{"email": f"u{n}@example.org"} for n in range(30)])).accepted)

asyncio.run(main())
"""


@pytest.mark.long("starts an interpreter")
def test_an_upload_of_a_list_needs_no_optional_part_of_the_standard_library() -> None:
    done = subprocess.run([sys.executable, "-c", _UPLOAD], capture_output=True, text=True, check=False)

    assert (done.stdout.strip(), done.stderr) == ("30", "")


def test_files_of_sqlite_are_refused_before_anything_is_created(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    monkeypatch.setitem(sys.modules, "sqlite3", None)

    for open_ in (lambda: JOURNAL.check_path(path), lambda: STATE.check_path(path), lambda: SqliteInbox(path)):
        with pytest.raises(UnusableFile, match="built without SQLite") as refused:
            open_()
        assert refused.value.path == str(path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("module", "suffix", "name"), [("bz2", "bz2", "bzip2"), ("lzma", "xz", "xz")])
def test_a_compression_that_python_lacks_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str, suffix: str, name: str
) -> None:
    path = tmp_path / f"people.csv.{suffix}"
    path.write_bytes(COMPRESSIONS[suffix](b"email\na@example.org\n"))
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(UnusableFile) as refused:
        open_source(path)

    assert refused.value.problem == f"is compressed with {name}, without which this Python was built"


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a user that is in no list of users, as containers are run on some platforms."""
    for name in list(os.environ):
        if name.startswith(("SVC_", "XDG_", "PG")) or name in {"HOME", "LOGNAME", "USER", "LNAME", "USERNAME"}:
            monkeypatch.delenv(name)

    def find(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", find)


@pytest.mark.usefixtures("nobody")
def test_what_asks_for_a_folder_of_a_user_without_one_says_so() -> None:
    for ask, variable in (
        (lambda: profiles.from_profile("shop"), "XDG_CONFIG_HOME"),
        (lambda: profiles.write("shop", {}), "XDG_CONFIG_HOME"),
        (lambda: user_folder("state"), "XDG_STATE_HOME"),
    ):
        with pytest.raises(UnusableFile, match=variable):
            ask()
    with pytest.raises(UnusableFile, match="set HOME"), needs_home():
        Path.home()


@pytest.mark.usefixtures("nobody")
def test_a_user_without_a_home_folder_has_no_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not profiles.is_stored("default")
    assert profiles.find_state_url() is None
    with pytest.raises(InvalidArgument) as incomplete:
        profiles.find()
    assert (incomplete.value.parameter, incomplete.value.hint) == ("credentials", Hint.SET_CREDENTIALS)
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")
    assert profiles.default_path() == Path("/nowhere/svc_async/profiles.toml")


@pytest.mark.usefixtures("nobody")
def test_a_database_needs_the_name_of_a_user() -> None:
    urls = ("postgresql:///db", "postgresql://host/db", "postgresql://me@host/db", "postgresql:///db?user=me")

    problems = [DatabaseUrl.parse(url).find_local_problem() for url in urls]

    assert [problem is not None and "user" in problem for problem in problems] == [True, True, False, False]
    assert "sslrootcert" in str(DatabaseUrl.parse("postgresql://me@host/db?sslmode=verify-full").find_local_problem())
