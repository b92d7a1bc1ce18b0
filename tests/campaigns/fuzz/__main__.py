"""The long run: `python -m tests.campaigns.fuzz [--minutes M] [--seed N] [--target NAME ...]`.

It reads inputs that are made of those of `corpus`, each target in processes of its own, and keeps those that executed
something new. What takes too much, raises an error that is not one of the library, or ends the process is printed, and
kept in `--keep`. Atheris chooses what to change where it is installed; elsewhere chance does.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.campaigns.fuzz.oracle import find_faults
from tests.campaigns.fuzz.targets import TARGETS

_ROOT = Path(__file__).parents[3]


def main() -> int:
    """Run what is asked for; return 1 if there was a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.fuzz")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**31)
    parser.add_argument("--target", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--keep", type=Path, default=Path("fuzz"))
    arguments = parser.parse_args()
    _say(f"seed {arguments.seed}")
    seconds = arguments.minutes * 60 / len(arguments.target)
    return int(sum(_run(target, seconds, arguments.seed, arguments.keep) for target in arguments.target) > 0)


def _run(target: str, seconds: float, seed: int, keep: Path) -> int:
    """Read inputs of a target for some seconds; return how many were faults."""
    faults, rounds, start = 0, 0, time.monotonic()
    with TemporaryDirectory() as folder:
        found, made = Path(folder, "found"), Path(folder, "made")
        made.mkdir()
        while (left := start + seconds - time.monotonic()) > 1 and not faults:
            found.mkdir()
            work = [target, str(seed + rounds), str(int(left)), str(found), str(made)]
            ended = subprocess.run(
                [sys.executable, "-m", "tests.campaigns.fuzz.worker", *work],
                cwd=_ROOT,
                env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "PYTHONPATH": str(_ROOT)},
                capture_output=True,
                text=True,
                check=False,
            )
            inputs = [*found.iterdir()]
            if ended.returncode and not inputs:
                raise SystemExit(f"{target}: {ended.stderr[-2_000:]}")
            for name, fault in find_faults(target, inputs).items() if inputs else ():
                keep.mkdir(exist_ok=True)
                kept = Path(shutil.copy(found / name, keep / f"{target}-{name}"))
                _say(f"{target}: {kept} ({kept.stat().st_size:,} bytes): {fault}")
                faults += 1
            shutil.rmtree(found)
            rounds += 1
        took, new = time.monotonic() - start, len([*made.iterdir()])
        _say(f"{target}: {faults} faults in {took:.0f} s; {new} inputs executed something new")
    return faults


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - the progress of the run


if __name__ == "__main__":
    sys.exit(main())
