"""The records of a journal: values by kind and number, each with a checksum, and the number of all records.

Whatever bit of the file is flipped, `open` finds it: in a record by the checksum, between records by SQLite's check of
the whole file, and a record that is gone by their number.
"""

import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from svc_async.batch.journal.codec import decode_intent
from svc_async.batch.journal.schema import FORMAT
from svc_async.batch.ledger import Intent

__all__ = ["Kind", "Records", "check_size"]

T = TypeVar("T")

Kind = Literal["failure", "intent", "job", "lane", "note", "second", "sent", "slot", "unsettled"]
_COUNT = "count"
_INTACT = "ok"
_MAX_FILE = 268_435_456
"""Bytes; a journal grows with the lanes and requests of a job, never with its rows."""
_MAX_VALUE = 67_108_864
_MAX_RECORDS = 1_000_000
_MALFORMED = (ValueError, TypeError, LookupError, OverflowError, RecursionError, msgspec.MsgspecError)
"""What decoding a record raises whose checksum is right and whose content is not."""


class Records:
    """The records of an open file; what is written belongs to the transaction of the caller."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._keys: set[tuple[str, int]] = set()
        self._stored_count = 0

    @classmethod
    def open(cls, path: Path, connection: sqlite3.Connection) -> "Records":
        """Check all records of a file.

        Raises:
            UnusableFile: the file is damaged.
        """
        records = cls(path, connection)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE)
        try:
            records._check()
        except (sqlite3.DatabaseError, TypeError, ValueError) as error:
            if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                raise
            raise FORMAT.make_damage_error(path) from None
        return records

    def _check(self) -> None:
        check_size(self._measure())
        (state,) = self._connection.execute("PRAGMA integrity_check(1)").fetchone()
        if state != _INTACT:
            raise ValueError(state)
        for kind, number, body, checksum in self._connection.execute(
            "SELECT kind, number, body, checksum FROM records"
        ):
            if checksum != _compute_checksum(kind, number, body):
                raise ValueError("a record differs from its checksum")
            self._keys.add((kind, number))
            if len(self._keys) > _MAX_RECORDS:
                raise ValueError("too many records")
        if self._keys:
            if (_COUNT, 0) not in self._keys:
                raise ValueError("the count is missing")
            self._keys.remove((_COUNT, 0))
            self._stored_count = self._load(_COUNT, 0, int)
        if len(self._keys) != self._stored_count:
            raise ValueError("a record is missing")

    def _measure(self) -> int:
        pages, size = (self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        return int(pages) * int(size)

    def has(self, kind: Kind, number: int = 0) -> bool:
        """Return whether there is a record."""
        return (kind, number) in self._keys

    def count(self, kind: Kind) -> int:
        """Return how many records of a kind there are."""
        return sum(each == kind for each, _ in self._keys)

    def load(self, kind: Kind, number: int, into: type[T]) -> T:
        """Return the value of a record that exists."""
        return self._load(kind, number, into)

    def _load(self, kind: str, number: int, into: type[T]) -> T:
        statement = "SELECT body FROM records WHERE kind = ? AND number = ?"
        (body,) = self._connection.execute(statement, (kind, number)).fetchone()
        return self._decode(body, into)

    def load_all(self, kind: Kind, into: type[T]) -> Iterator[tuple[int, T]]:
        """Yield the numbers and values of a kind, by number."""
        statement = "SELECT number, body FROM records WHERE kind = ? ORDER BY number"
        for number, body in self._connection.execute(statement, (kind,)):
            yield number, self._decode(body, into)

    def load_intents(self) -> Iterator[Intent]:
        """Yield the intents, by sender."""
        for _, blob in self.load_all("intent", bytes):
            try:
                yield decode_intent(blob)
            except _MALFORMED:
                raise FORMAT.make_damage_error(self._path) from None

    def _decode(self, body: bytes, into: type[T]) -> T:
        try:
            return msgspec.msgpack.decode(body, type=into)
        except _MALFORMED:
            raise FORMAT.make_damage_error(self._path) from None

    def put(self, kind: Kind, number: int, value: Any) -> None:
        """Insert or replace a record."""
        self._keys.add((kind, number))
        self._write(kind, number, value)

    def load_note(self) -> dict[str, Any]:
        """Return the note, or an empty one."""
        try:
            note: object = json.loads(self.load("note", 0, str)) if self.has("note") else {}
        except _MALFORMED:
            raise FORMAT.make_damage_error(self._path) from None
        if not isinstance(note, dict):
            raise FORMAT.make_damage_error(self._path)
        return note

    def put_note(self, note: Mapping[str, Any]) -> None:
        """Insert or replace the note; it is JSON in ASCII, since names of files may hold bytes that are not UTF-8."""
        self.put("note", 0, json.dumps(note))

    def delete(self, kind: Kind, number: int = 0) -> None:
        """Delete a record, if there is one."""
        if self.has(kind, number):
            self._keys.remove((kind, number))
            self._connection.execute("DELETE FROM records WHERE kind = ? AND number = ?", (kind, number))

    def delete_all(self, kind: Kind) -> None:
        """Delete the records of a kind."""
        self._keys = {key for key in self._keys if key[0] != kind}
        self._connection.execute("DELETE FROM records WHERE kind = ?", (kind,))

    def write_count(self) -> None:
        """Write how many records there are; to be called before each commit."""
        if len(self._keys) != self._stored_count:
            self._stored_count = len(self._keys)
            self._write(_COUNT, 0, self._stored_count)

    def _write(self, kind: str, number: int, value: Any) -> None:
        body = msgspec.msgpack.encode(value)
        self._connection.execute(
            "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)",
            (kind, number, body, _compute_checksum(kind, number, body)),
        )


def check_size(size: int) -> None:
    """Check the bytes of a file.

    Raises:
        ValueError: no journal has as many.
    """
    if size > _MAX_FILE:
        raise ValueError("too large")


def _compute_checksum(kind: str, number: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(f"{kind} {number}".encode()))
