"""The command `svc-async`, also `python -m svc_async`."""

import os
import sys

_NEEDED = {"cyclopts", "rich"}


def main() -> int:
    """Run the command line and give the exit code."""
    try:
        from svc_async.cli.app import run  # noqa: PLC0415 - the extra may be missing
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        sys.stderr.write('svc-async: the command needs the extra "cli"; run: pip install "svc-async[cli]"\n')
        return 2
    except KeyboardInterrupt:
        return 130
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
