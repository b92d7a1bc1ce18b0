"""Journals that die or run out of space when a test says so."""

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Any

from svc_async.batch.journal.ledger import LedgerFactory, create_ledger

__all__ = ["FAST", "FULL_DISK", "Death", "create_ledgers"]

FAST = ("PRAGMA wal_autocheckpoint = 3", "PRAGMA synchronous = OFF")
"""Restarts the write-ahead log every few commits, and does not wait for the disk."""
FULL_DISK = ("PRAGMA max_page_count = 1",)
"""Leaves no page besides those in use."""

_OPENING = 2
"""Commits that open a journal: its tables, and the run."""

OnCommit = Callable[[sqlite3.Connection, int, Callable[[], sqlite3.Cursor]], sqlite3.Cursor]
"""Carries out a commit, given its number; 0 is the last one of those that open the journal."""


class Death:
    """Ends the writing of journals at one of their commits, before or after it.

    Attributes:
        commit: the number of the commit, from 1; may be set later.
        happened: whether the journal that was opened last is dead.
        create_ledger: creates ledgers in such journals.
    """

    def __init__(self, commit: int, *, after: bool = False) -> None:
        self.commit = commit
        self._after = after
        self.happened = False
        self.create_ledger = _create_ledgers(self._on_commit)

    def _on_commit(self, _: sqlite3.Connection, number: int, write: Callable[[], sqlite3.Cursor]) -> sqlite3.Cursor:
        self.happened = number >= self.commit
        if not self.happened:
            return write()
        if self._after and number == self.commit:
            write()
        raise sqlite3.OperationalError("killed")


def create_ledgers(*statements: str) -> LedgerFactory:
    """Return a function that creates ledgers in journals on which statements are executed once they are open."""

    def on_commit(connection: sqlite3.Connection, number: int, write: Callable[[], sqlite3.Cursor]) -> sqlite3.Cursor:
        cursor = write()
        for statement in statements if number == 0 else ():
            connection.execute(statement)
        return cursor

    return _create_ledgers(on_commit)


def _create_ledgers(on_commit: OnCommit) -> LedgerFactory:
    class Connection(sqlite3.Connection):
        commits = -_OPENING

        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            execute = super().execute
            if sql != "COMMIT":
                return execute(sql, parameters)
            self.commits += 1
            return on_commit(self, self.commits, lambda: execute(sql))

    return partial(create_ledger, factory=Connection)
