"""Runs the command as people do: in a process of its own."""

import asyncio
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import attrs
from cyclopts import App

from svc_async.__main__ import main
from svc_async.cli.output.console import JSON_VERSION
from svc_async.lists.user_list import USER_LIMITS
from svc_async.sandbox import Sandbox
from tests.support.forked_command import ROOT, Forked, fork

__all__ = [
    "PROGRAM",
    "ROOT",
    "Call",
    "Command",
    "Ended",
    "Running",
    "environment_of",
    "homes",
    "limit_files",
    "limit_requests",
    "list_commands",
    "read_shape",
]

PROGRAM = ("-m", "svc_async")
"""Starts the command in an interpreter of its own."""


@attrs.frozen
class Ended:
    """Exit code and output of a run of the command."""

    code: int
    out: str
    err: str

    @property
    def end(self) -> dict[str, Any]:
        """What `--json` printed at the end: in the shape that all commands have."""
        end: dict[str, Any] = read_shape(self.out.splitlines()[-1])
        assert end["exit_code"] == self.code
        return end

    @property
    def result(self) -> Any:
        """The result of a command that printed one object."""
        assert self.out.count("\n") == 1
        return self.end["result"]

    @property
    def error(self) -> Any:
        """The error of a command that printed one object."""
        assert self.out.count("\n") == 1
        return self.end["error"]


def read_shape(line: str) -> dict[str, Any]:
    """Read a line that `--json` printed, and check its shape."""
    assert line.isascii()
    shape: dict[str, Any] = json.loads(line)
    assert list(shape) == ["version", "command", "result", "error", "exit_code"]
    assert shape["version"] == JSON_VERSION
    assert shape["error"] is None or {"type", "message"} <= shape["error"].keys()
    return shape


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

    async def note(self) -> str:
        """Read a line of what is no result: standard error."""
        assert self.process.stderr is not None
        return (await self.process.stderr.readline()).decode()

    async def item(self) -> Any:
        """Read what a command that follows something has printed with `--json`."""
        shape = read_shape(await self.line())
        assert (shape["error"], shape["exit_code"]) == (None, None)
        return shape["result"]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def wait(self, given: bytes | None = None) -> Ended:
        out, err = await self.process.communicate(given)
        return Ended(self.process.returncode or 0, (out or b"").decode(), err.decode())


def list_commands(group: App, *names: str) -> Sequence[str]:
    """Return the names of all commands of a group, such as `job status`."""
    found: list[str] = []
    for name in group:
        if not name.startswith("-"):
            inner = group[name]
            found += list_commands(inner, *names, name) if inner.default_command is None else [" ".join((*names, name))]
    return found


def limit_files(size: int) -> Callable[[], int]:
    """Return the command in a process where no file exceeds some bytes: the disk seems to be full."""
    return partial(_run_limited, size)


def limit_requests(operations: int) -> Callable[[], int]:
    """Return the command in a process where requests have few operations, so that few rows need several."""
    return partial(_run_with_small_requests, operations)


def _run_with_small_requests(operations: int) -> int:
    object.__setattr__(USER_LIMITS, "operations", operations)
    return main()


def _run_limited(size: int) -> int:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return main()


def homes(folder: Path) -> dict[str, str]:
    """Return the variables that place profiles and state in a folder."""
    return {"XDG_CONFIG_HOME": str(folder), "XDG_STATE_HOME": str(folder)}


@attrs.frozen
class Command:
    """Starts the command.

    Attributes:
        folder: where it works, and where profiles and state are.
        environ: variables of its environment, beside those of this process.
        program: what it runs, if a call names nothing else.
    """

    folder: Path
    environ: Mapping[str, str]
    program: Callable[[], int] = main

    async def start(
        self,
        *arguments: str | Path | int,
        program: Callable[[], int] | tuple[str, ...] | None = None,
        stdout: int | None = None,
    ) -> Running:
        """Start a function in a forked process, or, which takes ten times as long, a program in a new interpreter."""
        environ = {**os.environ, "PYTHONPATH": str(ROOT), **homes(self.folder), **self.environ}
        words = [str(argument) for argument in arguments]
        program = program or self.program
        if not isinstance(program, tuple):
            return Running(await fork(words, self.folder, environ, program=program, stdout=stdout))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *program,
            *words,
            cwd=self.folder,
            env=environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        return Running(process)

    async def __call__(
        self, *arguments: str | Path, program: Callable[[], int] | tuple[str, ...] | None = None
    ) -> Ended:
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
