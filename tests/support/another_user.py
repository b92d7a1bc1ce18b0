"""Another user of this machine, who has no rights."""

import asyncio
import os
import sys
from pathlib import Path

__all__ = ["ANOTHER", "become_another", "run_as_another"]

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
    assert os.geteuid() == 0, "only root can start programs as another user"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        cwd=_ROOT,
        env={"PATH": os.environ["PATH"]},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()
