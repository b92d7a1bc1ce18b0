"""Measurements that need a process of their own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["run_python"]

_ROOT = Path(__file__).parents[1]


def run_python(*arguments: str) -> Any:
    """Run this Python with these arguments and read the JSON that it prints."""
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, *arguments], cwd=_ROOT, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    return json.loads(done.stdout)
