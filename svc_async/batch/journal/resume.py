"""What a job that is taken up again must know: what earlier runs have settled, and what they left in doubt."""

import asyncio
import itertools
from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing
from hashlib import sha256
from typing import Any

import attrs

from svc_async.batch.journal.journal import Journal
from svc_async.batch.ledger import Intent, JournalCheckpoint
from svc_async.batch.packing.batch import Batch, rebuild
from svc_async.batch.packing.limits import Limits
from svc_async.batch.packing.operations import OperationGroup
from svc_async.batch.packing.rows import EncodedRows
from svc_async.batch.report import Failure
from svc_async.batch.source import RowSource
from svc_async.errors import InvalidArgument
from svc_async.wire.route import Blocks, Request

__all__ = ["SettledRows", "SourceDigest", "SourceReplay", "digest_of"]


@attrs.define
class SettledRows:
    """What earlier runs have settled: rows up to a position of their lane, except those left behind."""

    settled_up_to: Mapping[int, int] = attrs.field(factory=dict)
    unsettled: dict[int, set[int]] = attrs.field(factory=dict)
    lane_of: Mapping[int, int] = attrs.field(factory=dict)
    _highest: int = -1
    _taken: list[tuple[int, int]] = attrs.field(factory=list)

    async def load(self, journal: Journal) -> None:
        """Take over what the journal holds, when nothing is in doubt any more."""
        self.settled_up_to, behind = await journal.unsettled()
        for position in behind:
            self.unsettled.setdefault(self.lane_of[position], set()).add(position)
        self._highest = max(self.settled_up_to.values(), default=-1)
        await journal.regroup(self.unsettled)

    def open_places(self, rows: EncodedRows, lanes: int) -> Sequence[int] | None:
        """Give the places of rows that are not settled; None if that is all of them."""
        if not rows.positions or rows.positions[0] > self._highest:
            return None
        return [
            place
            for place, (key, position) in enumerate(zip(rows.keys, rows.positions, strict=True))
            if self._is_open(key % lanes, position)
        ]

    def _is_open(self, lane: int, position: int) -> bool:
        if position > self.settled_up_to.get(lane, -1):
            return True
        if position not in self.unsettled.get(lane, ()):
            return False
        self._taken.append((lane, position))
        return True

    @property
    def in_hand(self) -> bool:
        """Whether rows that were left behind are on their way to the packers: nothing may be written down then."""
        return bool(self._taken)

    def forget(self) -> None:
        """Leave the rows that were taken to the packers, which hold them now."""
        for lane, position in self._taken:
            self.unsettled[lane].remove(position)
        self._taken.clear()


class SourceDigest:
    """Follows the reading of a source, so that it can be compared with another.

    Attributes:
        rows: how many were read.
        ended: whether there are no more.
        invalid_rows: how many of them break a rule.
    """

    def __init__(self) -> None:
        self._hash = sha256()
        self.rows = 0
        self.ended = False
        self.invalid_rows = 0

    def follow(self, count: int, rows: EncodedRows, failures: Sequence[Failure]) -> None:
        """Take note of some rows."""
        self.rows += count
        frame = f"{rows.group!r}\t{rows.template.before}\t{[failure.position for failure in failures] or ''}\n"
        self._hash.update(frame.encode())
        self._hash.update("\n".join(rows.users).encode())

    @property
    def checkpoint(self) -> JournalCheckpoint:
        """Where it is."""
        return JournalCheckpoint(self.rows, self._hash.copy().hexdigest(), self.ended, self.invalid_rows)


class SourceReplay:
    """Reads a source as far as an earlier run had come, and gathers what that run left in doubt."""

    def __init__(self, journal: Journal, limits: Limits) -> None:
        self._journal = journal
        self._limits = limits
        self._wanted = frozenset(itertools.chain.from_iterable(intent.positions for intent in journal.intents))
        self._rows: dict[int, tuple[OperationGroup, str]] = {}
        self.lane_of: dict[int, int] = {}

    async def read(self, source: RowSource) -> None:
        """Read it.

        Raises:
            InvalidArgument: it is not the same.
        """
        checkpoint = self._journal.checkpoint
        _, behind = await self._journal.unsettled()
        left = {*behind, *itertools.chain.from_iterable(intent.after.unsettled for intent in self._journal.intents)}
        reading = SourceDigest()
        async with aclosing(source.read()) as slices:
            async for part in slices:
                reading.follow(part.count, part.rows, part.failures)
                self._gather(part.rows, left)
                await asyncio.sleep(0)
                if reading.rows >= checkpoint.rows and not checkpoint.ended:
                    break
            else:
                reading.ended = True
        if reading.checkpoint != checkpoint:
            raise InvalidArgument(
                "journal", "is of a job whose source was another one, or has changed since; a new job needs a new file"
            )

    def _gather(self, rows: EncodedRows, left: Collection[int]) -> None:
        for place, position in enumerate(rows.positions):
            if position in self._wanted:
                user = f"{rows.template.before}{rows.users[place]}{rows.template.after}"
                self._rows[position] = rows.group, user
            if position in left:
                self.lane_of[position] = rows.keys[place] % self._journal.lanes

    def batch(self, intent: Intent) -> Batch:
        """Build again what was in doubt."""
        rows = [(position, *self._rows[position]) for position in intent.positions]
        return rebuild(intent.layout, rows, wrapper=self._limits.wrapper, built=intent.pinned)


def digest_of(request: Request[Any]) -> str:
    """Give the SHA-256 of the body, in hexadecimal digits."""
    body = request.body
    whole = sha256()
    for block in body.blocks if isinstance(body, Blocks) else [body or b""]:
        whole.update(block)
    return whole.hexdigest()
