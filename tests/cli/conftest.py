"""The command as people run it: a process of its own, against a sandbox of the test."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import attrs
import pytest

from svc_async.cli.app import run
from svc_async.sandbox import Sandbox
from tests.cli.forked import ROOT, Forked, fork

PROGRAM = ("-m", "svc_async")
"""The command in an interpreter of its own, from its first line on."""


@attrs.frozen
class Ended:
    """What a run of the command left behind."""

    code: int
    out: str
    err: str


@attrs.frozen
class Running:
    """A command that was started."""

    process: asyncio.subprocess.Process | Forked

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await self.process.stdout.readline()).decode()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self, given: bytes | None = None) -> Ended:
        out, err = await self.process.communicate(given)
        return Ended(self.process.returncode or 0, (out or b"").decode(), err.decode())


def _homes(folder: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(folder), "XDG_STATE_HOME": str(folder)}


@attrs.frozen
class Command:
    """Starts the command in a process of its own, with `program` in an interpreter of its own too."""

    folder: Path
    environ: Mapping[str, str]

    async def start(
        self, *arguments: str | Path | int, program: tuple[str, ...] = (), stdout: int = asyncio.subprocess.PIPE
    ) -> Running:
        environ = {**os.environ, "PYTHONPATH": str(ROOT), **_homes(self.folder), **self.environ}
        if not program and stdout == asyncio.subprocess.PIPE:
            return Running(await fork(list(map(str, arguments)), self.folder, environ))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *(program or PROGRAM),
            *map(str, arguments),
            cwd=self.folder,
            env=environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=stdout,
            stderr=asyncio.subprocess.PIPE,
        )
        return Running(process)

    async def __call__(self, *arguments: str | Path, program: tuple[str, ...] = ()) -> Ended:
        return await (await self.start(*arguments, program=program)).ended()


def environment_of(sandbox: Sandbox) -> dict[str, str]:
    credentials = sandbox.credentials
    return {
        "SVC_BASE_URL": sandbox.base_url,
        "SVC_ADS_URL": sandbox.ads_url,
        "SVC_CONSUMER_KEY": credentials["consumer_key"],
        "SVC_CONSUMER_SECRET": credentials["consumer_secret"],
        "SVC_ACCESS_TOKEN": credentials["token"],
        "SVC_ACCESS_TOKEN_SECRET": credentials["token_secret"],
    }


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
async def command(sandbox: Sandbox, tmp_path: Path) -> Command:
    return Command(tmp_path, environment_of(sandbox))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without credentials around it."""
    for name in list(os.environ):
        if name.startswith("SVC_"):
            monkeypatch.delenv(name)
    for name, folder in _homes(tmp_path).items():
        monkeypatch.setenv(name, folder)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def call(here: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """The command in this process, for what needs no sandbox of the test."""
    del here

    def call(*arguments: str | Path) -> Ended:
        code = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Ended(code, out, err)

    return call
