"""When the requests of a sync were sent: the records `sending` and `sent` of its state."""

import enum
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import attrs

from svc_async.batch.ledger import LONGEST_WINDOW, SENDABLE, check_sendable
from svc_async.batch.plan import PARTS, STAGES, Part, Stage
from svc_async.store.records import Key, RecordLocation, RecordStore, encode
from svc_async.sync.sending import Allowance, ClockReading, SendingNote

__all__ = ["PartEnd", "Sending", "Sendings"]


_MOST_SENT = 10_000
"""Requests of one note; more than any limit admits in the time of a note."""


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
        ended: how it ended.
    """

    stage: Stage
    part: Part
    last: SendingNote
    ended: PartEnd


class Sendings:
    """When requests were sent: of a plan, the last ones; and all of the last minutes, for the rate limit.

    Args:
        store: the records of the state.
        location: where they are.
    """

    def __init__(self, store: RecordStore, location: RecordLocation) -> None:
        self._store = store
        self._location = location
        self._stage: Stage = "now"
        self._part: Part = "removals"
        self._allowance: Allowance | None = None
        self._governor = ""
        self._moments: dict[int, float] | None = None

    def start(self, part: Part, stage: Stage) -> None:
        """Turn to a part of the plan."""
        self._stage, self._part, self._allowance = stage, part, None

    async def admit(self, now: ClockReading) -> None:
        """Note that a request is about to be sent."""
        last = self._allowance
        if last is None or not last.covers(now):
            if self._moments is None:
                self._moments = {number: moment for number, (_, moment, _, _) in await self._read_sent()}
            moment, moments = now.now.timestamp(), self._moments
            outdated = [number for number, each in moments.items() if not moment - LONGEST_WINDOW <= each <= moment]
            changes: dict[Key, bytes | None] = {} if last is None else self._describe_count(last, last.sent)
            changes |= dict.fromkeys(("sent", number) for number in outdated)
            last = Allowance(max(moments, default=0) + 1, now) if last is None else last.renew(now)
            changes |= self._describe_count(last, last.most)
            await self._store.commit(changes | self._describe_sending(now.note, PartEnd.NONE))
            for number in outdated:
                del moments[number]
            moments[last.number] = moment
            self._allowance = last
        last.sent += 1

    def check_sendable(self, now: ClockReading) -> None:
        """Make sure that the last note is not too old for a request to go out.

        Raises:
            NoLongerSendable: it is.
        """
        if self._allowance is not None:
            check_sendable(self._allowance.since.boottime, now.boottime)

    async def finish(self, *, in_doubt: bool, complete: bool) -> None:
        """Note that the part is over, and no request of it is under way."""
        last = self._allowance
        if last is not None:
            changes = self._describe_count(last, last.sent)
            if not in_doubt:
                changes |= self._describe_sending(last.since.note, PartEnd.DONE if complete else PartEnd.STOPPED)
            await self._store.commit(changes)

    async def read(self) -> list[Sending]:
        """Return the parts that were begun, in this order."""
        found = await self._store.read("sending", tuple[int, int, float, str | None, int])
        with self._report():
            return [
                Sending(STAGES[stage], PARTS[part], SendingNote(monotonic, boot), PartEnd(ended))
                for _, (stage, part, monotonic, boot, ended) in found
            ]

    async def find_sent(self, governor: str) -> Mapping[Part, Sequence[datetime]]:
        """Return when the last requests were sent that a governor has not counted; see `SyncState`."""
        self._governor = governor
        rows = [row for _, row in await self._read_sent()]
        found: dict[Part, list[datetime]] = {part: [] for part in PARTS}
        if rows and rows[-1][-1] != governor:
            with self._report():
                for part, moment, count, _ in rows:
                    found[PARTS[part]] += [datetime.fromtimestamp(moment + SENDABLE, UTC)] * min(count, _MOST_SENT)
        return found

    @contextmanager
    def _report(self) -> Generator[None]:
        """Report that what was read cannot be used."""
        try:
            yield
        except (LookupError, ValueError, OverflowError, OSError):  # OSError: a time that the system cannot represent
            raise self._location.make_damage_error() from None

    async def _read_sent(self) -> Sequence[tuple[int, tuple[int, float, int, str]]]:
        return await self._store.read("sent", tuple[int, float, int, str])

    def _describe_count(self, allowance: Allowance, count: int) -> dict[Key, bytes | None]:
        part, moment = PARTS.index(self._part), allowance.since.now.timestamp()
        return {("sent", allowance.number): encode((part, moment, count, self._governor))}

    def _describe_sending(self, last: SendingNote, end: PartEnd) -> dict[Key, bytes | None]:
        stage, part = STAGES.index(self._stage), PARTS.index(self._part)
        number = 1 + len(PARTS) * stage + part
        return {("sending", number): encode((stage, part, last.monotonic, last.boot, int(end)))}
