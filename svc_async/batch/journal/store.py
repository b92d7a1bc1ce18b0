"""Where the records of a journal are kept: in a file, or wherever else these protocols are implemented.

A `JournalLocation` names a journal that may not exist yet. Opening it takes it up for one run, and returns the
`JournalStore` that this run commits to. The journal decides what is recorded; a store keeps it, and makes sure that
only the run that has taken it up last can write.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Callable
from typing import Protocol, TypeVar

from svc_async.batch.journal.records import JournalRecords
from svc_async.errors import SvcError
from svc_async.store.records import Changes

__all__ = ["Begin", "JournalLocation", "JournalStore", "JournalUnwritable", "Spool"]

T = TypeVar("T")

Begin = Callable[[JournalRecords], tuple[T, Changes]]
"""Reads what earlier runs have recorded, and returns a result and the first records of this run."""


class JournalUnwritable(SvcError):
    """The journal cannot be written, so nothing more is sent."""


class Spool(Protocol):
    """Keeps the rows of a source that can be read only once, as records of bytes."""

    async def write(self, records: AsyncIterable[bytes]) -> None:
        """Store records in place of those that there are."""
        ...

    def read(self) -> AsyncGenerator[bytes, None]:
        """Yield the records that were stored; an error says that they are missing or damaged."""
        ...

    async def delete(self) -> None:
        """Delete the records, if there are any."""
        ...


class JournalStore(Protocol):
    """Keeps the records of a journal for one run.

    Changes are committed in the order in which they are given, several together where that saves time. After the first
    failure nothing more is written, and every call raises the error.
    """

    @property
    def is_locked(self) -> bool:
        """Whether nobody else can take up the journal before it is closed."""
        ...

    @property
    def silence(self) -> float:
        """Seconds that have certainly passed since an earlier run last confirmed; 0 if that is not known."""
        ...

    @property
    def spool(self) -> Spool:
        """Where the rows of the journal are kept, if its source can be read only once."""
        ...

    def submit(self, changes: Changes) -> None:
        """Commit changes soon, without waiting for it; no later commit succeeds if this one fails."""
        ...

    async def commit(self, changes: Changes, *, is_last: bool = False, confirms: bool = False) -> None:
        """Commit changes, and everything that was submitted before; a caller that is cancelled does not undo it.

        Args:
            changes: the records.
            is_last: whether nothing is left to do, so that the journal may be deleted at some time.
            confirms: whether requests may be sent for some seconds because of it.

        Raises:
            SvcError: they were not committed, or it is not known whether they were.
        """
        ...

    async def close(self) -> None:
        """Commit what was submitted, and let go of the journal, even if the caller is cancelled meanwhile."""
        ...


class JournalLocation(Protocol):
    """A place where one journal is kept: a value of `journal=`."""

    @property
    def name(self) -> str:
        """What messages call the journal."""
        ...

    async def open(self, begin: Begin[T]) -> tuple[T, JournalStore]:
        """Take up the journal for one run, or create it.

        Args:
            begin: called with the records, in this or in another thread. What it returns is committed before this
                method returns, so that whatever happens later, it is known that a run has begun; if it raises, nothing
                is changed.

        Raises:
            SvcError: the journal cannot be used, or it is damaged.
        """
        ...

    def make_error(self, problem: str) -> SvcError:
        """Return the error that says why the journal cannot be used."""
        ...
