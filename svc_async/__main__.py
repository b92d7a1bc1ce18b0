"""The command `svc-async`, also `python -m svc_async`."""

import io
import os
import sys
from importlib.util import find_spec

_REQUIRED = ("cyclopts", "rich")


def main() -> int:
    """Run the command line and return the exit code."""
    if any(find_spec(name) is None for name in _REQUIRED):
        sys.stderr.write('svc-async: the command needs the extra "cli"; run: pip install cyclopts rich\n')
        return 2
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # like stderr: a name that it cannot encode stops no job
    try:
        from svc_async.cli.app import run  # noqa: PLC0415 - the extra may be missing

        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
