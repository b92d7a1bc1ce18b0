"""A sandbox, and the command beside it."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from svc_async.cli.app import run
from svc_async.sandbox import Sandbox
from tests.support.command import Call, Command, Ended, environment_of, homes
from tests.support.postgres import create_database


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
async def command(sandbox: Sandbox, tmp_path: Path) -> Command:
    return Command(tmp_path, environment_of(sandbox))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty working folder, without credentials in the environment."""
    for name in list(os.environ):
        if name.startswith("SVC_"):
            monkeypatch.delenv(name)
    for name, folder in homes(tmp_path).items():
        monkeypatch.setenv(name, folder)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def call(here: Path, capfd: pytest.CaptureFixture[str]) -> Call:
    """Return a function that runs the command in this process."""
    del here

    def call(*arguments: str | Path) -> Ended:
        code = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Ended(code, out, err)

    return call


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[str]:
    """The URL of a new database, since commands work on one schema."""
    async with create_database(postgres_url) as url:
        yield url
