"""Journals in SQLite files: one, or a folder with one for each run of a job that repeats.

In a folder, a run is finished when its report is complete. While the last run of a job is not, the next call resumes
it; its source and settings must be the same, and if they are not, the error names its journal. Once it is finished, the
next call begins a new run with a new journal. Two calls at a time are refused like two jobs with one journal.
"""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from svc_async.batch.journal.records import KINDS, JobState
from svc_async.errors import Hint, InvalidArgument, UnusableFile
from svc_async.private_files import create_folder
from svc_async.store.file import FileFormat, FileLocation

if TYPE_CHECKING:
    import sqlite3

__all__ = ["FORMAT", "JournalFile", "Journals"]

FORMAT = FileFormat(
    kind="a journal",
    parameter="journal",
    application_id=0x73766A6C,
    version=7,
    in_memory=Hint.LEAVE_THE_JOURNAL_OUT,
    restore=Hint.SEND_AGAIN,
    give=Hint.GIVE_A_JOURNAL,
)
_IDENTITY_DIGITS = 12
_is_run = re.compile(r"\d{6}-\d{4}-\d{2}-\d{2}\.journal").fullmatch


@attrs.frozen
class JournalFile(FileLocation):
    """A file that holds a journal; its folder exists.

    Attributes:
        path: the file.
        most_spooled: see `JournalLocation`.
    """

    most_spooled = inf
    path: Path = attrs.field(converter=Path)
    _factory: "type[sqlite3.Connection] | None" = attrs.field(default=None, repr=False)
    file_format: FileFormat = attrs.field(default=FORMAT, init=False, repr=False)


def _to_path(value: str | Path) -> Path:
    if not isinstance(value, str | Path):
        raise InvalidArgument("folder", "must be a path")
    return Path(value)


def _check_name(_: object, field: "attrs.Attribute[str]", value: object) -> None:
    if not isinstance(value, str) or not value.replace("-", "").replace("_", "").isalnum() or not value.isascii():
        raise InvalidArgument(field.name, "must consist of ASCII letters, digits, - and _")


@attrs.frozen
class Journals:
    """A folder with a journal for each run of a job: the value of `journal=` for a job that repeats.

    The journals of different lists, hosts and kinds of jobs have different names, so they may share a folder. Those of
    finished runs may be deleted.

    Attributes:
        folder: the folder; it is created if it does not exist, for this user only.
        name: distinguishes jobs that send different rows to one list.

    Raises:
        InvalidArgument: the folder is no path, or the name has other characters than letters, digits, - and _.
    """

    folder: Path = attrs.field(converter=_to_path)
    name: str = attrs.field(default="job", validator=_check_name)

    def find(self, about: Mapping[str, Any], now: datetime) -> Path:
        """Return the journal of the last run if it is not finished, else the path for a new one.

        Args:
            about: what identifies the job, apart from settings that may differ between its runs.
            now: when the run begins.

        Raises:
            UnusableFile: the folder cannot be created, or the last journal cannot be read.
        """
        identity = sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:_IDENTITY_DIGITS]
        prefix = f"{self.name}-{identity}-"
        try:
            create_folder(self.folder)
            names = [path.name for path in self.folder.iterdir()]
        except FileExistsError:
            raise UnusableFile("journal", self.folder, "cannot be used: it is a file; give a folder") from None
        except OSError as error:
            raise UnusableFile("journal", self.folder, f"cannot be used: {error.strerror}") from None
        runs = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
        # The number comes first: the date would be that of another day if the clock is set.
        last = max(filter(_is_run, runs), default=None)
        if last is not None:
            records = JournalFile(path := self.folder / f"{prefix}{last}").read(kinds=KINDS)
            if not records.has("job") or not records.load("job", 0, JobState).finished:
                return path
        number = 1 if last is None else int(last.split("-")[0]) + 1
        return self.folder / f"{prefix}{number:06}-{now:%Y-%m-%d}.journal"
