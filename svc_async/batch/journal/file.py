"""A journal in a SQLite file, with its spool beside it."""

import sqlite3
from pathlib import Path
from typing import TypeVar

import attrs

from svc_async.batch.journal.records import JournalRecords
from svc_async.batch.journal.spool import FileSpool
from svc_async.batch.journal.store import Begin, JournalStore, JournalUnwritable
from svc_async.errors import UnusableFile
from svc_async.store.file import FileFormat, FileLocation, FileStore
from svc_async.store.records import Changes

__all__ = ["FORMAT", "JournalFile"]

T = TypeVar("T")

FORMAT = FileFormat(
    kind="a journal",
    parameter="journal",
    application_id=0x73766A6C,
    version=5,
    in_memory="leave journal= out for a job that cannot be resumed",
    advice="delete it after the quarantine and run the job again: what the service has already is sent once more",
)


@attrs.frozen
class JournalFile:
    """A file that holds a journal; its folder exists.

    Attributes:
        path: the file.
    """

    path: Path = attrs.field(converter=Path)
    _factory: type[sqlite3.Connection] = attrs.field(default=sqlite3.Connection, repr=False)

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    async def open(self, begin: Begin[T]) -> tuple[T, JournalStore]:
        """Lock the file for one run, or create it.

        Raises:
            UnusableFile: the file is locked, damaged, holds something else, or cannot be opened.
        """
        result, store = await self._location.open(
            lambda found: begin(JournalRecords(found.bodies, found.make_damage_error))
        )
        return result, _OpenJournal(store, FileSpool(Path(f"{self.path}.rows")))

    def make_error(self, problem: str) -> UnusableFile:
        """Return the error that says why the file cannot be used."""
        return self._location.make_error(problem)

    def read(self) -> tuple[JournalRecords, bool]:
        """Return the records, and whether a job uses the file; nothing in it is changed, and no job is disturbed.

        Raises:
            UnusableFile: the file does not exist, or is not a journal that can be read.
        """
        is_running = self._location.is_in_use
        found = self._location.read()
        return JournalRecords(found.bodies, found.make_damage_error), is_running

    @property
    def _location(self) -> FileLocation:
        return FileLocation(self.path, FORMAT, self._factory)


@attrs.frozen
class _OpenJournal:
    _store: FileStore
    spool: FileSpool
    is_locked = True
    silence = 0.0

    def submit(self, changes: Changes) -> None:
        self._store.submit(changes)

    async def commit(self, changes: Changes, *, is_last: bool = False, confirms: bool = False) -> None:
        try:
            await self._store.commit(changes, is_last=is_last, confirms=confirms)
        except UnusableFile as error:
            raise JournalUnwritable(f"the {error}") from error

    async def close(self) -> None:
        await self._store.close()
