"""Finds files that others could open, at any time, under a umask that withholds nothing."""

import json
import os
import stat
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import attrs

from svc_async.cli.app import run

__all__ = ["Findings", "run_watched", "watch"]

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


def run_watched(report: Path, commands: Iterable[Sequence[str]]) -> int:
    """Run commands one after the other, and write what was found below the working folder to a file."""
    with watch(Path.cwd()) as findings:
        codes = [run(arguments) for arguments in commands]
    report.write_text(json.dumps([codes, sorted(findings.seen), findings.exposed]), encoding="utf-8")
    return 0
