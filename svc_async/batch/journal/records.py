"""The records of a journal: values by kind and number, each with a checksum, and the number of all records.

Whichever bit is flipped where they are kept, reading finds it: in a record by the checksum, and a record that is gone
by their number. They grow with the lanes of a job and with the size of a request, never with the number of rows.
"""

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import attrs
import msgspec

from svc_async.batch.journal.codec import decode_intent
from svc_async.batch.ledger import Intent
from svc_async.batch.report import Failure
from svc_async.errors import SvcError

__all__ = ["MAX_SIZE", "Changes", "Key", "Kind", "PendingChanges", "Records", "check_rows", "compute_checksum"]

T = TypeVar("T")

Kind = Literal["count", "failure", "intent", "job", "lane", "note", "second", "slot", "unsettled"]
Key = tuple[str, int]
"""Kind and number."""
Changes = Mapping[Key, bytes | None]
"""Records that are written together; None deletes one."""

MAX_SIZE = 134_217_728
"""Bytes of all records at most."""
_MAX_RECORDS = 1_000_000
_COUNT: Key = ("count", 0)
_MALFORMED = (ValueError, TypeError, LookupError, OverflowError, RecursionError, msgspec.MsgspecError)
"""What decoding a record raises whose checksum is right and whose content is not."""


class _StoredFailure(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A failure without its position; one that was stored before failures of the service had an id lacks it."""

    reason: str
    code: str
    attribute: str | None
    id: str | None = None


def check_rows(rows: Iterable[tuple[str, int, bytes, int]]) -> Mapping[Key, bytes]:
    """Return the bodies of all records, given their kinds, numbers, bodies and checksums.

    Raises:
        ValueError: they are damaged.
    """
    bodies: dict[Key, bytes] = {}
    for kind, number, body, checksum in rows:
        if checksum != compute_checksum(kind, number, body):
            raise ValueError("a record differs from its checksum")
        bodies[kind, number] = body
        if len(bodies) > _MAX_RECORDS:
            raise ValueError("too many records")
    count = bodies.pop(_COUNT, None)
    try:
        number = 0 if count is None else msgspec.msgpack.decode(count, type=int)
    except msgspec.MsgspecError:
        raise ValueError("the count is malformed") from None
    if len(bodies) != number:
        raise ValueError("a record is missing")
    return bodies


def compute_checksum(kind: str, number: int, body: bytes) -> int:
    """Return the checksum of a record."""
    return zlib.crc32(body, zlib.crc32(f"{kind} {number}".encode()))


@attrs.frozen
class Records:
    """The records of a journal at one moment.

    Attributes:
        bodies: their encoded values.
        make_damage_error: returns the error that is raised if one of them cannot be decoded.
    """

    bodies: Mapping[Key, bytes] = attrs.field(repr=False)
    make_damage_error: Callable[[], SvcError] = attrs.field(repr=False)

    def has(self, kind: Kind, number: int = 0) -> bool:
        """Return whether there is a record."""
        return (kind, number) in self.bodies

    def load(self, kind: Kind, number: int, into: type[T]) -> T:
        """Return the value of a record that exists."""
        return self._decode(self.bodies[kind, number], into)

    def load_all(self, kind: Kind, into: type[T]) -> Iterator[tuple[int, T]]:
        """Yield the numbers and values of a kind, by number."""
        for number in sorted(number for each, number in self.bodies if each == kind):
            yield number, self._decode(self.bodies[kind, number], into)

    def load_intents(self) -> Iterator[Intent]:
        """Yield the intents, by sender."""
        for _, blob in self.load_all("intent", bytes):
            try:
                yield decode_intent(blob)
            except _MALFORMED:
                raise self.make_damage_error() from None

    def load_failures(self) -> Sequence[Failure]:
        """Return the failures, by position."""
        stored = self.load_all("failure", _StoredFailure)
        return [Failure(number, each.reason, each.code, each.attribute, id=each.id) for number, each in stored]

    def load_note(self) -> dict[str, Any]:
        """Return the note, or an empty one."""
        try:
            note: object = json.loads(self.load("note", 0, str)) if self.has("note") else {}
        except _MALFORMED:
            raise self.make_damage_error() from None
        if not isinstance(note, dict):
            raise self.make_damage_error()
        return note

    def _decode(self, body: bytes, into: type[T]) -> T:
        try:
            return msgspec.msgpack.decode(body, type=into)
        except _MALFORMED:
            raise self.make_damage_error() from None


class PendingChanges:
    """Collects the changes of the next commit, and counts the records.

    Args:
        records: those that there are.
    """

    def __init__(self, records: Records) -> None:
        self._keys = {*records.bodies}
        self._changes: dict[Key, bytes | None] = {}
        self._stored_count = len(self._keys)

    def has(self, kind: Kind, number: int = 0) -> bool:
        """Return whether there is a record."""
        return (kind, number) in self._keys

    def put(self, kind: Kind, number: int, value: Any) -> None:
        """Insert or replace a record."""
        self._keys.add((kind, number))
        self._changes[kind, number] = msgspec.msgpack.encode(value)

    def put_failure(self, failure: Failure) -> None:
        """Insert or replace a failure."""
        self.put("failure", failure.position, (failure.reason, failure.code, failure.attribute, failure.id))

    def put_note(self, note: Mapping[str, Any]) -> None:
        """Insert or replace the note; it is JSON in ASCII, since names of files may hold bytes that are not UTF-8."""
        self.put("note", 0, json.dumps(note))

    def delete(self, kind: Kind, number: int = 0) -> None:
        """Delete a record, if there is one."""
        if self.has(kind, number):
            self._keys.remove((kind, number))
            self._changes[kind, number] = None

    def delete_all(self, kind: Kind) -> None:
        """Delete the records of a kind."""
        for each, number in [key for key in self._keys if key[0] == kind]:
            self._keys.remove((each, number))
            self._changes[each, number] = None

    def take(self) -> Changes:
        """Return what was collected, and how many records there are then."""
        if len(self._keys) != self._stored_count:
            self._stored_count = len(self._keys)
            self._changes[_COUNT] = msgspec.msgpack.encode(self._stored_count)
        changes, self._changes = self._changes, {}
        return changes
