"""Another user of this machine, who has no rights."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

__all__ = ["ANOTHER", "become_another", "keep_running_as_another", "run_as_another"]

ANOTHER = 65_534
"""The number of the user and the group that own no files."""
_ROOT = Path(__file__).parents[2]


def become_another() -> None:
    """Give up the rights of root for good. A program does it after its imports, which its files may not be open to."""
    os.setgroups([])
    os.setgid(ANOTHER)
    os.setuid(ANOTHER)


async def run_as_another(module: str, *arguments: str) -> str:
    """Run a program that becomes the other user; return what it prints."""
    process = await _start(module, arguments)
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


@asynccontextmanager
async def keep_running_as_another(module: str, *arguments: str) -> AsyncIterator[None]:
    """Run a program that becomes the other user, from when it prints a line until the block ends."""
    process = await _start(module, arguments)
    assert process.stdout is not None
    try:
        assert await process.stdout.readline(), "it has ended"
        yield
        assert process.returncode is None, "it has ended"
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _start(module: str, arguments: Sequence[str]) -> asyncio.subprocess.Process:
    assert os.geteuid() == 0, "only root can start programs as another user"
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        cwd=_ROOT,
        env={"PATH": os.environ["PATH"]},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
