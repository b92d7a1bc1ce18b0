"""The records of a journal. They grow with the lanes of a job and with the size of a request, never with the rows."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import attrs
import msgspec

from svc_async.batch.ledger import Intent
from svc_async.batch.packing.batch import Layout
from svc_async.batch.packing.positions import PlainRun, Positions
from svc_async.batch.report import Failure
from svc_async.counts import Counts
from svc_async.store import records

__all__ = ["KINDS", "JobState", "JournalChanges", "JournalCheckpoint", "JournalRecords", "OrderlyEnd"]

_MALFORMED = (ValueError, TypeError, LookupError, OverflowError, RecursionError, msgspec.MsgspecError)
"""What decoding a record raises whose checksum is right and whose content is not."""


KINDS = ("count", "failure", "intent", "job", "lane", "note", "second", "slot", "unsettled")
"""The kinds of records of a journal, apart from rows."""
_PlainPositions = list[PlainRun]
_MOST_POSITIONS = 1 << 23
"""Of one record: many times those of a request."""
_PACKED = ("unsettled", "positions", "superseded")
"""The fields of an intent that are positions."""


class _StoredIntent(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The fields of an intent, without its sender, with positions as plain values."""

    lanes: list[int]
    settled_up_to: int
    unsettled: _PlainPositions
    layout: Layout
    positions: _PlainPositions
    superseded: _PlainPositions
    pinned: datetime
    sent_at: float | None
    digest: str


@attrs.frozen
class JournalCheckpoint:
    """How far a source was read.

    Attributes:
        rows: how many rows.
        digest: of their hashed contents.
        ended: whether there were no more.
        invalid_rows: how many rows break a rule.
    """

    rows: int = 0
    digest: str = ""
    ended: bool = False
    invalid_rows: int = attrs.field(default=0, eq=False)


@attrs.frozen
class OrderlyEnd:
    """When a run ended in good order, by the monotonic clock of the machine; a run that is killed has none.

    The wall clock proves nothing, since it may have been set meanwhile.

    Attributes:
        boot: identifies the start from which the clock counts; None if it is not known.
        at: the monotonic time.
    """

    boot: str | None
    at: float

    def measure_time_since(self, now: float, boot: str | None) -> float:
        """Return how many seconds have passed for certain."""
        return max(0.0, now - self.at) if boot is not None and self.boot == boot else 0.0


@attrs.define(kw_only=True)
class JobState:
    """What a journal keeps of a job as a whole.

    Attributes:
        about: what identifies the job.
        lanes: how many lanes the rows are assigned to.
        counts: the rows that all runs have settled, and the requests, as far as can be known; once the job is finished,
            what its report says.
        checkpoint: how far the source was read.
        spool_begun: whether rows were spooled, all or some.
        spool_digest: the digest of the rows, if all were spooled.
        finished: whether nothing is left to do.
        runs: how many runs there were.
        began_at: when the job began, in seconds since the epoch.
        active_at: when the journal was last written.
        worked: seconds that its runs took.
        slot_width: seconds of a slot of the timeline.
        end: when the last run ended, if in good order.
    """

    about: dict[str, Any]
    lanes: int
    began_at: float
    slot_width: float
    counts: Counts = attrs.field(factory=Counts)
    checkpoint: JournalCheckpoint = attrs.field(factory=JournalCheckpoint)
    spool_begun: bool = False
    spool_digest: str = ""
    finished: bool = False
    runs: int = 0
    active_at: float = 0.0
    worked: float = 0.0
    end: OrderlyEnd | None = None

    def count_rows(self, *, in_doubt: int) -> Counts:
        """Return what became of the rows that were read, with those that break a rule among the failed."""
        if self.finished:
            return self.counts
        settled = self.counts + Counts(failed=self.checkpoint.invalid_rows)
        read = max(self.checkpoint.rows, settled.settled)
        return settled + Counts(read=read, pending=read - settled.settled, in_doubt=in_doubt)


class JournalRecords(records.Records):
    """The records of a journal at one moment."""

    @classmethod
    def of(cls, found: records.Records) -> "JournalRecords":
        """Return what was found where a journal is kept."""
        return cls(found.bodies, found.make_damage_error)

    def load_intents(self) -> Iterator[Intent]:
        """Yield the intents, by sender."""
        for sender, stored in self.load_all("intent", _StoredIntent):
            fields = msgspec.structs.asdict(stored)
            fields.update({name: self._unpack(fields[name]) for name in _PACKED})
            yield Intent(sender=sender, **fields)

    def load_unsettled(self) -> Iterator[tuple[int, Positions]]:
        """Yield the senders that have left rows unsettled, and the positions of these."""
        for sender, plain in self.load_all("unsettled", _PlainPositions):
            yield sender, self._unpack(plain)

    def load_failures(self) -> Sequence[Failure]:
        """Return the failures, by position."""
        stored = self.load_all("failure", tuple[str, str, str | None, str | None])
        return [Failure(number, reason, code, attribute, id=id_) for number, (reason, code, attribute, id_) in stored]

    def load_note(self) -> dict[str, Any]:
        """Return the note, or an empty one."""
        try:
            note: object = json.loads(self.load("note", 0, str)) if self.has("note") else {}
        except _MALFORMED:
            raise self.make_damage_error() from None
        if not isinstance(note, dict):
            raise self.make_damage_error()
        return note

    def _unpack(self, plain: Iterable[PlainRun]) -> Positions:
        try:
            return Positions.from_plain(plain, most=_MOST_POSITIONS)
        except _MALFORMED:
            raise self.make_damage_error() from None


class JournalChanges(records.PendingChanges):
    """Collects the changes of the next commit."""

    def put_intent(self, intent: Intent) -> None:
        """Insert or replace the intent of a sender."""
        fields = attrs.asdict(intent, recurse=False)
        sender = fields.pop("sender")
        self.put("intent", sender, _StoredIntent(**fields | {name: fields[name].to_plain() for name in _PACKED}))

    def put_failure(self, failure: Failure) -> None:
        """Insert or replace a failure."""
        self.put("failure", failure.position, (failure.reason, failure.code, failure.attribute, failure.id))

    def put_note(self, note: Mapping[str, Any]) -> None:
        """Insert or replace the note; it is JSON in ASCII, since names of files may hold bytes that are not UTF-8."""
        self.put("note", 0, json.dumps(note))
