"""The command `svc-async`, also `python -m svc_async`."""

import io
import os
import sys
from importlib.util import find_spec
from pathlib import Path

_REQUIRED = ("cyclopts", "rich", "tomlkit")


def main() -> int:
    """Run the command line and return the exit code."""
    if any(find_spec(name) is None for name in _REQUIRED):
        sys.stderr.write('svc-async: the command needs the extra "cli": pip install "svc-async[cli]"\n')
        return 2
    _replace_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # like stderr: a name that it cannot encode stops no job
    try:
        from svc_async.cli.app import run  # noqa: PLC0415 - the extra may be missing

        code = run(sys.argv[1:])
        sys.stdout.flush()
    except OSError as error:  # of the output: everything else is handled where it happens
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # which only says that its reader has seen enough
            sys.stderr.write(f"svc-async: I/O error: {error.strerror}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _replace_closed_streams() -> None:
    """Discard what is written to a stream that was closed before the command began, such as by `>&-`."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - open until the end
            setattr(sys, name, nowhere)


if __name__ == "__main__":
    sys.exit(main())
