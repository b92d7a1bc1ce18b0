"""Finds files that others could open, at any time, under a umask that withholds nothing.

`python -m tests.support.file_watch REPORT COMMANDS` runs commands, a list of lists of arguments in JSON, and writes to
the file REPORT what it found below the working folder.
"""

import json
import os
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import FrameType

import attrs

__all__ = ["Findings", "watch"]

_CALLS = frozenset({"open", "execute", "executemany", "mkdir", "replace", "rename"})
"""Functions in C, after which there may be another file. SQLite creates its own within `execute`."""


@attrs.frozen
class Findings:
    """What was found below a folder.

    Attributes:
        seen: the names of the files and folders that were there at any time.
        exposed: the modes of those that others could open.
    """

    seen: set[str] = attrs.field(factory=set[str])
    exposed: dict[str, str] = attrs.field(factory=dict[str, str])


@contextmanager
def watch(folder: Path) -> Iterator[Findings]:
    """Yield what is found below a folder within the block, without the files that are there already.

    The folder is searched each time one of the functions above has returned, in any thread that is started within the
    block.
    """
    findings = Findings()
    known = {path for path, _ in _list(folder)}

    def look(_: FrameType, event: str, function: object) -> None:
        if event == "c_return" and getattr(function, "__name__", "") in _CALLS:
            new = {Path(path).name: mode for path, mode in _list(folder) if path not in known}
            findings.seen.update(new)
            findings.exposed.update({name: oct(mode) for name, mode in new.items() if mode & 0o077})

    umask = os.umask(0)
    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield findings
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        os.umask(umask)


def _list(folder: Path) -> Iterator[tuple[str, int]]:
    try:
        entries = [*os.scandir(folder)]
    except FileNotFoundError:
        return
    for entry in entries:
        try:
            mode = entry.stat(follow_symlinks=False).st_mode
        except FileNotFoundError:  # it was deleted meanwhile
            continue
        yield entry.path, stat.S_IMODE(mode)
        if stat.S_ISDIR(mode):
            yield from _list(Path(entry.path))


def _main(report: str, given: str) -> int:
    from svc_async.cli import commands  # noqa: PLC0415 - the tests import this module without the command
    from svc_async.cli.app import run  # noqa: PLC0415 - likewise

    for each in iter_modules(commands.__path__):  # not while every call is looked at
        import_module(f"{commands.__name__}.{each.name}")
    with watch(Path.cwd()) as findings:
        codes = [run(arguments) for arguments in json.loads(given)]
    Path(report).write_text(json.dumps([codes, sorted(findings.seen), findings.exposed]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
