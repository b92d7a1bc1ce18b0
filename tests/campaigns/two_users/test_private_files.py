"""What another user of the machine can do in a folder of theirs that one has files written to."""

import os
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from svc_async.errors import SvcError
from svc_async.private_files import ensure_private
from svc_async.webhooks import SqliteDedupe
from tests.support.another_user import ANOTHER, keep_running_as_another

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="another system cannot exchange two names at once")

_EXCHANGE = "tests.campaigns.two_users.exchange"


@asynccontextmanager
async def exchanging(prepare: Callable[[Path], None]) -> AsyncIterator[tuple[Path, Path]]:
    """Yield a private file, and one that another user exchanges for a link to it again and again."""
    with tempfile.TemporaryDirectory() as name:  # the folders of pytest are closed to others
        top = Path(name)
        top.chmod(0o755)
        precious, folder = top / "precious", top / "theirs"
        folder.mkdir()
        os.chown(folder, ANOTHER, ANOTHER)
        prepare(precious)
        precious.chmod(0o600)
        async with keep_running_as_another(_EXCHANGE, str(folder), str(precious)):
            yield precious, folder / "file"


def find_mode(path: Path) -> str:
    return oct(path.stat().st_mode & 0o7777)


async def test_a_race_with_a_link_changes_no_mode_of_another_file() -> None:
    done = 0
    async with exchanging(Path.touch) as (precious, file):
        for _ in range(20_000):
            with suppress(OSError):
                ensure_private(file)
                done += 1
        assert find_mode(precious) == "0o600"
    assert 0 < done < 20_000  # it met the file and the link


async def test_the_race_is_won_against_a_check_by_name() -> None:
    async with exchanging(Path.touch) as (precious, file):
        while find_mode(precious) == "0o600":
            if not file.is_symlink():
                file.chmod(0o640)


async def test_a_race_with_a_link_writes_no_table_into_another_database() -> None:
    def create(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA user_version = 7")

    async with exchanging(create) as (precious, file):
        for _ in range(300):
            with suppress(SvcError):
                async with SqliteDedupe(file):
                    pass
        with closing(sqlite3.connect(precious)) as connection:
            assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == []
        assert find_mode(precious) == "0o600"
