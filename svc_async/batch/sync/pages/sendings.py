"""When the requests of a sync were sent, in the tables `sending` and `sent` of its state."""

import enum
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import attrs

from svc_async.batch.sender import LONGEST_WINDOW
from svc_async.batch.sync.pages.database import CheckedDatabase
from svc_async.batch.sync.plan import PARTS, STAGES, Part, Stage
from svc_async.batch.sync.sending import VALIDITY, Allowance, ClockReading, SendingNote

__all__ = ["PartEnd", "Sending", "Sendings"]


class PartEnd(enum.IntEnum):
    """How a part of a plan ended that was begun."""

    NONE = 0
    """Nobody knows: the process may have been killed."""
    DONE = 1
    STOPPED = 2
    """Early, but with an answer to each request."""


@attrs.frozen
class Sending:
    """A part that was begun.

    Attributes:
        last: when a request was last sent.
        ended: the number of its `PartEnd`.
    """

    stage: Stage
    part: Part
    last: SendingNote
    ended: int


class Sendings:
    """When requests were sent: of a plan, the last ones; and all of the last minutes, for the rate limit.

    Args:
        database: the file with the tables.
    """

    def __init__(self, database: CheckedDatabase) -> None:
        self._database = database
        self._stage: Stage = "now"
        self._part: Part = "removals"
        self._allowance: Allowance | None = None
        self._governor = ""

    def start(self, part: Part, stage: Stage) -> None:
        """Turn to a part of the plan."""
        self._stage, self._part, self._allowance = stage, part, None

    def admit(self, now: ClockReading) -> None:
        """Note that a request is about to be sent."""
        if self._allowance is None or not self._allowance.covers(now):
            self._allowance = self._write_note(now, self._allowance)
        self._allowance.sent += 1

    def finish(self, *, in_doubt: bool, complete: bool) -> None:
        """Note that the part is over, and no request of it is under way."""
        last = self._allowance
        if last is not None:
            with self._database.short_transaction():
                self._write_count(last, last.sent)
                if not in_doubt:
                    self._write_sending(last.since.note, PartEnd.DONE if complete else PartEnd.STOPPED)

    def read(self) -> list[Sending]:
        """Return the parts that were begun, in this order."""
        rows = self._database.select("sending", "stage, part, monotonic, boot, ended")
        return [
            Sending(STAGES[stage], PARTS[part], SendingNote(monotonic, boot), ended)
            for stage, part, monotonic, boot, ended in rows
        ]

    def find_sent(self, governor: str) -> Mapping[Part, Sequence[datetime]]:
        """Return when the last requests were sent that a governor has not counted; see `SyncStore`."""
        self._governor = governor
        rows = self._database.select("sent", "part, moment, count, governor")
        found: dict[Part, list[datetime]] = {part: [] for part in PARTS}
        if rows and rows[-1][-1] != governor:
            for part, moment, count, _ in rows:
                found[PARTS[part]] += [datetime.fromtimestamp(moment + VALIDITY, UTC)] * count
        return found

    def _write_note(self, now: ClockReading, last: Allowance | None) -> Allowance:
        moment = now.now.timestamp()
        with self._database.short_transaction():
            if last is None:
                ((number,),) = self._database.query("SELECT coalesce(max(id), 0) FROM sent")
                allowance = Allowance(number + 1, now)
            else:
                self._write_count(last, last.sent)
                allowance = last.renew(now)
            self._database.delete("sent", f"WHERE moment NOT BETWEEN {moment - LONGEST_WINDOW} AND {moment}")
            self._write_count(allowance, allowance.most)
            self._write_sending(now.note, PartEnd.NONE)
        return allowance

    def _write_count(self, allowance: Allowance, count: int) -> None:
        part, moment = PARTS.index(self._part), allowance.since.now.timestamp()
        self._database.put("sent", allowance.number, part, moment, count, self._governor)

    def _write_sending(self, last: SendingNote, end: PartEnd) -> None:
        stage, part = STAGES.index(self._stage), PARTS.index(self._part)
        number = 1 + len(PARTS) * stage + part
        self._database.put("sending", number, stage, part, last.monotonic, last.boot, int(end))
