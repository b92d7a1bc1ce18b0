"""When the requests of a sync were sent, in the tables `sending` and `sent` of its state."""

import enum
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import attrs

from svc_async.batch.sender import LONGEST_WINDOW, SENDABLE, check_sendable
from svc_async.batch.sync.pages.tables import StateTables, TableWriter
from svc_async.batch.sync.plan import PARTS, STAGES, Part, Stage
from svc_async.batch.sync.sending import Allowance, ClockReading, SendingNote

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
        tables: the tables of the state.
    """

    def __init__(self, tables: StateTables) -> None:
        self._tables = tables
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
        if self._allowance is None or not self._allowance.covers(now):
            self._allowance = await self._write_note(now, self._allowance)
        self._allowance.sent += 1

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
            async with self._tables.transaction() as writer:
                await self._write_count(writer, last, last.sent)
                if not in_doubt:
                    await self._write_sending(writer, last.since.note, PartEnd.DONE if complete else PartEnd.STOPPED)

    async def read(self) -> list[Sending]:
        """Return the parts that were begun, in this order."""
        rows = await self._tables.select("sending")
        with self._report():
            return [
                Sending(STAGES[stage], PARTS[part], SendingNote(monotonic, boot), PartEnd(ended))
                for stage, part, monotonic, boot, ended in rows
            ]

    async def find_sent(self, governor: str) -> Mapping[Part, Sequence[datetime]]:
        """Return when the last requests were sent that a governor has not counted; see `SyncState`."""
        self._governor = governor
        rows = await self._tables.select("sent")
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
        except (LookupError, ValueError, OverflowError):
            raise self._tables.make_damage_error() from None

    async def _write_note(self, now: ClockReading, last: Allowance | None) -> Allowance:
        moment, moments = now.now.timestamp(), await self._read_moments()
        outdated = [number for number, each in moments.items() if not moment - LONGEST_WINDOW <= each <= moment]
        allowance = Allowance(max(moments, default=0) + 1, now) if last is None else last.renew(now)
        async with self._tables.transaction() as writer:
            if last is not None:
                await self._write_count(writer, last, last.sent)
            await writer.delete("sent", outdated)
            await self._write_count(writer, allowance, allowance.most)
            await self._write_sending(writer, now.note, PartEnd.NONE)
        for number in outdated:
            del moments[number]
        moments[allowance.number] = moment
        return allowance

    async def _read_moments(self) -> dict[int, float]:
        """Return when each note was written that is stored."""
        if self._moments is None:
            numbers, rows = await self._tables.list_numbers("sent"), await self._tables.select("sent")
            self._moments = {number: moment for number, (_, moment, _, _) in zip(numbers, rows, strict=True)}
        return self._moments

    async def _write_count(self, writer: TableWriter, allowance: Allowance, count: int) -> None:
        part, moment = PARTS.index(self._part), allowance.since.now.timestamp()
        await writer.put("sent", (allowance.number, part, moment, count, self._governor))

    async def _write_sending(self, writer: TableWriter, last: SendingNote, end: PartEnd) -> None:
        stage, part = STAGES.index(self._stage), PARTS.index(self._part)
        number = 1 + len(PARTS) * stage + part
        await writer.put("sending", (number, stage, part, last.monotonic, last.boot, int(end)))
