"""Runs the command as people do: in a process of its own."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import attrs

from svc_async.sandbox import Sandbox
from tests.support.forked_command import ROOT, Forked, fork

__all__ = ["PROGRAM", "ROOT", "Call", "Command", "Ended", "Running", "environment_of", "homes"]

PROGRAM = ("-m", "svc_async")
"""Starts the command in an interpreter of its own."""


@attrs.frozen
class Ended:
    """Exit code and output of a run of the command."""

    code: int
    out: str
    err: str


class Call(Protocol):
    """Runs the command in this process."""

    def __call__(self, *arguments: str | Path) -> Ended: ...


@attrs.frozen
class Running:
    """A running command."""

    process: asyncio.subprocess.Process | Forked

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await self.process.stdout.readline()).decode()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def wait(self, given: bytes | None = None) -> Ended:
        out, err = await self.process.communicate(given)
        return Ended(self.process.returncode or 0, (out or b"").decode(), err.decode())


def homes(folder: Path) -> dict[str, str]:
    """Return the variables that place profiles and state in a folder."""
    return {"XDG_CONFIG_HOME": str(folder), "XDG_STATE_HOME": str(folder)}


@attrs.frozen
class Command:
    """Starts the command in a forked process; with `program`, in an interpreter of its own."""

    folder: Path
    environ: Mapping[str, str]

    async def start(
        self, *arguments: str | Path | int, program: tuple[str, ...] = (), stdout: int = asyncio.subprocess.PIPE
    ) -> Running:
        environ = {**os.environ, "PYTHONPATH": str(ROOT), **homes(self.folder), **self.environ}
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
        return await (await self.start(*arguments, program=program)).wait()


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
