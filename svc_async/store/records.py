"""Records: values by kind and number, each with a checksum; and what keeps them for one process at a time.

Whichever bit is flipped where they are kept, reading finds it: in a record by the checksum, and a record that is gone
by the number of all of them, where all are read at once.
"""

import abc
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

import attrs
import msgspec

from svc_async.errors import Hint, SvcError

__all__ = [
    "COUNT",
    "MAX_BODY",
    "MAX_SIZE",
    "Begin",
    "Changes",
    "DamagedRecord",
    "Key",
    "PendingChanges",
    "RecordLocation",
    "RecordStore",
    "RecordWriter",
    "Records",
    "SharedSyncs",
    "check_all",
    "check_each",
    "check_record",
    "compute_checksum",
    "decode",
    "encode",
]

T = TypeVar("T")

Key = tuple[str, int]
"""Kind and number."""
Changes = Mapping[Key, bytes | None]
"""Bodies that are written together; None deletes a record."""
Row = tuple[str, int, bytes, int]
"""Kind, number, body and checksum, as they are stored."""

MAX_BODY = 67_108_864
"""Bytes of one body at most."""
MAX_SIZE = 134_217_728
"""Bytes of records that are read at once, at most."""
_MAX_RECORDS = 1_000_000
COUNT = "count"
"""The kind of the record that says how many others there are, of the kinds that are read with it."""
_MALFORMED = (ValueError, TypeError, LookupError, OverflowError, RecursionError, msgspec.MsgspecError)
"""What decoding a body raises whose checksum is right and whose content is not."""

encode = msgspec.msgpack.encode
"""Returns the body of a value."""


class DamagedRecord(ValueError):
    """What was read is not what was written."""


def decode(body: bytes, into: type[T]) -> T:
    """Return the value of a body.

    Raises:
        DamagedRecord: the body holds something else.
    """
    try:
        return msgspec.msgpack.decode(body, type=into)
    except _MALFORMED:
        raise DamagedRecord from None


def compute_checksum(kind: str, number: int, body: bytes) -> int:
    """Return the checksum of a record."""
    return zlib.crc32(body, zlib.crc32(f"{kind} {number}".encode()))


def check_record(kind: str, number: int, body: bytes, checksum: int) -> bytes:
    """Return the body of a record.

    Raises:
        DamagedRecord: the checksum is another one.
    """
    try:
        is_sound = checksum == compute_checksum(kind, number, body)
    except (TypeError, ValueError):  # SQLite stores any type in any column
        is_sound = False
    if not is_sound:
        raise DamagedRecord
    return body


def check_each(rows: Iterable[Row]) -> dict[Key, bytes]:
    """Return the bodies of some records.

    Raises:
        DamagedRecord: a checksum is another one, a record is there twice, or they are too many or too large.
    """
    bodies: dict[Key, bytes] = {}
    size = 0
    for kind, number, body, checksum in rows:
        if (kind, number) in bodies:  # the pages of a file refer to each other without an end
            raise DamagedRecord
        bodies[kind, number] = check_record(kind, number, body, checksum)
        size += len(body)
        if len(bodies) > _MAX_RECORDS or size > MAX_SIZE:
            raise DamagedRecord
    return bodies


def check_all(rows: Iterable[Row]) -> dict[Key, bytes]:
    """Return the bodies of all records that there are.

    Raises:
        DamagedRecord: a checksum is another one, or a record is missing.
    """
    bodies = check_each(rows)
    count = bodies.pop((COUNT, 0), None)
    if len(bodies) != (0 if count is None else decode(count, int)):
        raise DamagedRecord
    return bodies


@attrs.frozen
class Records:
    """The records of a location at one moment.

    Attributes:
        bodies: their bodies.
        make_damage_error: returns the error that is raised if one of them cannot be decoded.
    """

    bodies: Mapping[Key, bytes] = attrs.field(repr=False)
    make_damage_error: Callable[[], SvcError] = attrs.field(repr=False)

    def has(self, kind: str, number: int = 0) -> bool:
        """Return whether there is a record."""
        return (kind, number) in self.bodies

    def load(self, kind: str, number: int, into: type[T]) -> T:
        """Return the value of a record that must exist.

        Raises:
            SvcError: the record is missing, or the body holds something else.
        """
        try:
            return decode(self.bodies[kind, number], into)
        except (KeyError, DamagedRecord):
            raise self.make_damage_error() from None

    def load_all(self, kind: str, into: type[T]) -> Iterator[tuple[int, T]]:
        """Yield the numbers and values of a kind, by number.

        Raises:
            SvcError: a body holds something else.
        """
        for number in sorted(number for each, number in self.bodies if each == kind):
            yield number, self.load(kind, number, into)


class PendingChanges:
    """Collects the changes of the next commit, and counts the records, for whoever reads all of them at once.

    Args:
        records: those that there are.
    """

    def __init__(self, records: Records) -> None:
        self._keys = {*records.bodies}
        self._changes: dict[Key, bytes | None] = {}
        self._stored_count = len(self._keys)

    def has(self, kind: str, number: int = 0) -> bool:
        """Return whether there is a record."""
        return (kind, number) in self._keys

    def put(self, kind: str, number: int, value: Any) -> None:
        """Insert or replace a record."""
        self._keys.add((kind, number))
        self._changes[kind, number] = encode(value)

    def delete(self, kind: str, number: int = 0) -> None:
        """Delete a record, if there is one."""
        if self.has(kind, number):
            self._keys.remove((kind, number))
            self._changes[kind, number] = None

    def delete_all(self, kind: str) -> None:
        """Delete the records of a kind."""
        for number in [number for each, number in self._keys if each == kind]:
            self.delete(kind, number)

    def take(self) -> Changes:
        """Return what was collected, and how many records there are then."""
        if len(self._keys) != self._stored_count:
            self._stored_count = len(self._keys)
            self._changes[COUNT, 0] = encode(self._stored_count)
        changes, self._changes = self._changes, {}
        return changes


Begin = Callable[[Records], tuple[T, Changes]]
"""Reads what is there, in this or in another thread, and returns a result and the first changes of this process."""


class RecordWriter(Protocol):
    """Writes records within a transaction."""

    async def put(self, kind: str, number: int, value: Any) -> None:
        """Insert or replace a record."""
        ...

    async def delete(self, kind: str, numbers: Iterable[int] | None = None) -> None:
        """Delete records of a kind by their numbers, or all of them."""
        ...


class RecordStore(Protocol):
    """The records that this process has taken up.

    Every method raises SvcError if they cannot be read or written, or if another process has taken them up. Changes are
    committed in the order in which they are given, several together where that saves time. After the first commit that
    fails nothing more is committed, and every later one raises the same error.
    """

    @property
    def is_locked(self) -> bool:
        """Whether nobody else can take up the records before they are closed."""
        ...

    @property
    def silence(self) -> float:
        """Seconds that have certainly passed since an earlier process last confirmed; 0 if that is not known."""
        ...

    async def read(self, kind: str, into: type[T], numbers: range | None = None) -> Sequence[tuple[int, T]]:
        """Return the numbers and values of the records of a kind, or of those with certain numbers, by number."""
        ...

    async def list_numbers(self, kind: str) -> Sequence[int]:
        """Return the numbers of the records of a kind, ascending."""
        ...

    def submit(self, changes: Changes) -> None:
        """Commit changes soon, without waiting for it; no later commit succeeds if this one fails."""
        ...

    async def commit(self, changes: Changes, *, is_last: bool = False, confirms: bool = False) -> None:
        """Commit changes, and everything that was submitted before; a caller that is cancelled does not undo it.

        Args:
            changes: the bodies.
            is_last: whether nothing is left to do, so that the records may be deleted at some time.
            confirms: whether requests may be sent for some seconds because of it.
        """
        ...

    def transaction(self) -> AbstractAsyncContextManager[RecordWriter]:
        """Commit what the block writes, or nothing of it, however much it is; nothing else is written meanwhile."""
        ...

    async def shrink(self) -> None:
        """Return the space that is no longer used."""
        ...

    async def close(self) -> None:
        """Commit what was submitted, and let go of the records, even if the caller is cancelled meanwhile."""
        ...


class RecordLocation(Protocol):
    """Where the records of one journal, sync state or job are kept; there may be none yet."""

    @property
    def name(self) -> str:
        """What messages call them."""
        ...

    async def open(self, begin: Begin[T], *, kinds: Collection[str] | None = None) -> tuple[T, RecordStore]:
        """Take up the records for this process, or create them.

        Args:
            begin: called with the records. What it returns is committed before this method returns, so that whatever
                happens later, it is known that this process has begun; if it raises, nothing is changed.
            kinds: the kinds that `begin` needs; by default, all records are read. They are counted if `COUNT` is among
                them.

        Raises:
            SvcError: they cannot be used, or they are damaged.
        """
        ...

    def make_error(self, problem: str, hint: Hint | None = None) -> SvcError:
        """Return the error that says why the records cannot be used."""
        ...

    def make_damage_error(self) -> SvcError:
        """Return the error that says that the records are damaged, and what to do."""
        ...


class SharedSyncs(abc.ABC):
    """The states of any number of lists between two syncs."""

    @abc.abstractmethod
    def open_sync_tables(self, target: str) -> RecordLocation:
        """Return where the state of a list is kept.

        Args:
            target: the list and its host.
        """
