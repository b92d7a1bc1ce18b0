"""The records of a journal. They grow with the lanes of a job and with the size of a request, never with the rows."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from svc_async.batch.journal.codec import decode_intent
from svc_async.batch.ledger import Intent
from svc_async.batch.report import Failure
from svc_async.store import records

__all__ = ["JournalChanges", "JournalRecords"]

_MALFORMED = (ValueError, TypeError, LookupError, OverflowError, RecursionError, msgspec.MsgspecError)
"""What decoding a record raises whose checksum is right and whose content is not."""


class _StoredFailure(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A failure without its position; one that was stored before failures of the service had an id lacks it."""

    reason: str
    code: str
    attribute: str | None
    id: str | None = None


class JournalRecords(records.Records):
    """The records of a journal at one moment."""

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


class JournalChanges(records.PendingChanges):
    """Collects the changes of the next commit."""

    def put_failure(self, failure: Failure) -> None:
        """Insert or replace a failure."""
        self.put("failure", failure.position, (failure.reason, failure.code, failure.attribute, failure.id))

    def put_note(self, note: Mapping[str, Any]) -> None:
        """Insert or replace the note; it is JSON in ASCII, since names of files may hold bytes that are not UTF-8."""
        self.put("note", 0, json.dumps(note))
