"""Journals that die or run out of space when a test says so."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import attrs
import pytest

from svc_async.batch.journal.journal import Journal

__all__ = ["FAST", "FULL_DISK", "Death", "die_at", "prepare_journals"]

FAST = ("PRAGMA wal_autocheckpoint = 3", "PRAGMA synchronous = OFF")
"""Restarts the write-ahead log every few commits, and does not wait for the disk."""
FULL_DISK = ("PRAGMA max_page_count = 1",)
"""Leaves no page besides those in use."""

_OPENING = 2
"""Commits that open a journal: its tables, and the run."""

OnCommit = Callable[[sqlite3.Connection, int, Callable[[], sqlite3.Cursor]], sqlite3.Cursor]
"""Carries out a commit, given its number; 0 is the last one of those that open the journal."""


@attrs.define
class Death:
    """Ends the writing of a journal at one of its commits, before or after it."""

    commit: int
    after: bool
    happened: bool = False

    def __call__(self, _: sqlite3.Connection, number: int, write: Callable[[], sqlite3.Cursor]) -> sqlite3.Cursor:
        self.happened = number >= self.commit
        if not self.happened:
            return write()
        if self.after and number == self.commit:
            write()
        raise sqlite3.OperationalError("killed")


@contextmanager
def die_at(commit: int, *, after: bool = False) -> Iterator[Death]:
    """Let journals that are opened within the block die at a commit, before or after it."""
    death = Death(commit, after)
    with _open_journals(death):
        yield death


@contextmanager
def prepare_journals(statements: Sequence[str]) -> Iterator[None]:
    """Execute statements on journals that are opened within the block, once they are open."""

    def on_commit(connection: sqlite3.Connection, number: int, write: Callable[[], sqlite3.Cursor]) -> sqlite3.Cursor:
        cursor = write()
        for statement in statements if number == 0 else ():
            connection.execute(statement)
        return cursor

    with _open_journals(on_commit):
        yield


@contextmanager
def _open_journals(on_commit: OnCommit) -> Iterator[None]:
    class Connection(sqlite3.Connection):
        commits = -_OPENING

        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            execute = super().execute
            if sql != "COMMIT":
                return execute(sql, parameters)
            self.commits += 1
            return on_commit(self, self.commits, lambda: execute(sql))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "open", partial(Journal.open, factory=Connection))
        yield
