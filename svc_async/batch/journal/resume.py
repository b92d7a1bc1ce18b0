"""What a resumed job must know: what earlier runs settled, and what they left in doubt."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from hashlib import sha256

import attrs

from svc_async.batch.journal.journal import Journal
from svc_async.batch.ledger import Intent, JournalCheckpoint
from svc_async.batch.packing.batch import Batch, rebuild
from svc_async.batch.packing.limits import Limits
from svc_async.batch.packing.partitioner import find_partitions
from svc_async.batch.packing.rows import PackedRows, select_rows
from svc_async.batch.report import Failure
from svc_async.batch.source import RowSource, Slice
from svc_async.errors import SvcError
from svc_async.users.encoding import SLICE_ROWS

__all__ = ["RemainingRows", "SettledRows", "SourceDigest", "SourceReplay", "digest_source", "make_source_error"]


@attrs.define
class SettledRows:
    """Which rows earlier runs settled: those up to a position of their lane, except the unsettled ones."""

    settled_up_to: Mapping[int, int] = attrs.field(factory=dict)
    unsettled: dict[int, set[int]] = attrs.field(factory=dict)
    _highest: int = -1
    _taken: list[tuple[int, int]] = attrs.field(factory=list)

    async def load(self, journal: Journal, lane_of: Mapping[int, int]) -> None:
        """Read what the journal holds, when nothing is in doubt any more.

        Args:
            journal: the journal.
            lane_of: the lane of each unsettled position.
        """
        self.settled_up_to, unsettled = journal.find_settled()
        for position in unsettled:
            self.unsettled.setdefault(lane_of[position], set()).add(position)
        self._highest = max(self.settled_up_to.values(), default=-1)
        await journal.assign_unsettled(self.unsettled)

    def find_open(self, rows: PackedRows, lanes: int) -> Sequence[int] | None:
        """Return the indexes of rows that are not settled; None if that is all of them."""
        if not rows.positions or rows.positions.lowest > self._highest:
            return None
        places = zip(find_partitions(rows.users, lanes), rows.positions, strict=True)
        return [index for index, (lane, position) in enumerate(places) if self._is_open(lane, position)]

    def _is_open(self, lane: int, position: int) -> bool:
        if position > self.settled_up_to.get(lane, -1):
            return True
        if position not in self.unsettled.get(lane, ()):
            return False
        self._taken.append((lane, position))
        return True

    @property
    def in_transit(self) -> bool:
        """Whether rows that were left unsettled have been read, and may not be in a packer yet."""
        return bool(self._taken)

    def arrive(self) -> None:
        """Leave the rows that were read to the packers, which hold them now."""
        for lane, position in self._taken:
            self.unsettled[lane].remove(position)
        self._taken.clear()


class SourceDigest:
    """A running digest of a source, by which it is recognised when it is read again.

    Attributes:
        rows: how many rows were read.
        ended: whether there are no more.
        invalid_rows: how many of them break a rule.
    """

    def __init__(self) -> None:
        self._hash = sha256()
        self.rows = 0
        self.ended = False
        self.invalid_rows = 0

    def update(self, part: Slice) -> None:
        """Add some rows."""
        rows, failed = part.rows, [failure.position for failure in part.failures]
        self.rows += part.count
        frame = f"{rows.group.to_plain()!r}\t{rows.template.before}\t{failed or ''}\n"
        self._hash.update(frame.encode())
        for content in rows.users.contents:
            self._hash.update(content)

    @property
    def checkpoint(self) -> JournalCheckpoint:
        """How far the source was read."""
        return JournalCheckpoint(self.rows, self._hash.copy().hexdigest(), self.ended, self.invalid_rows)


async def digest_source(source: RowSource) -> JournalCheckpoint:
    """Read a source to its end, and return its digest."""
    digest = SourceDigest()
    async with aclosing(source.read()) as slices:
        async for part in slices:
            digest.update(part)
            await asyncio.sleep(0)
    digest.ended = True
    return digest.checkpoint


class SourceReplay:
    """Reads a source again as far as an earlier run did, and collects what that run left in doubt.

    Attributes:
        lane_of: the lane of each unsettled position.
    """

    def __init__(self, journal: Journal, limits: Limits) -> None:
        self._journal = journal
        self._limits = limits
        self._wanted = frozenset(itertools.chain.from_iterable(intent.positions for intent in journal.intents))
        self._rows: dict[int, tuple[PackedRows, int]] = {}
        self.lane_of: dict[int, int] = {}

    async def read(self, source: RowSource) -> None:
        """Read the source.

        Raises:
            SvcError: the journal belongs to another source.
        """
        checkpoint = self._journal.checkpoint
        _, unsettled = self._journal.find_settled()
        left = {*unsettled, *itertools.chain.from_iterable(intent.after.unsettled for intent in self._journal.intents)}
        digest = SourceDigest()
        async with aclosing(source.read()) as slices:
            async for part in slices:
                digest.update(part)
                self._collect(part.rows, left)
                await asyncio.sleep(0)
                if digest.rows >= checkpoint.rows and not checkpoint.ended:
                    break
            else:
                digest.ended = True
        if digest.checkpoint != checkpoint:
            raise make_source_error(self._journal)

    def _collect(self, rows: PackedRows, left: Collection[int]) -> None:
        wanted = [index for index, position in enumerate(rows.positions) if position in self._wanted]
        kept = rows.select(wanted)
        self._rows.update((position, (kept, index)) for index, position in enumerate(kept.positions))
        lanes = zip(rows.positions, find_partitions(rows.users, self._journal.lanes), strict=True)
        self.lane_of.update((position, lane) for position, lane in lanes if position in left)

    def rebuild(self, intent: Intent) -> Batch:
        """Build the batch of an intent again."""
        positions = iter(intent.positions)
        blocks = [(each, self._merge(itertools.islice(positions, each.rows))) for each in intent.layout]
        return rebuild(blocks, wrapper=self._limits.wrapper, built=intent.pinned)

    def _merge(self, positions: Iterable[int]) -> PackedRows:
        return PackedRows.merge([*select_rows(self._rows[position] for position in positions)])


def make_source_error(journal: Journal) -> SvcError:
    """Return the error of a journal whose job had another source."""
    if journal.report is None:
        belongs = "belongs to an unfinished job with another source, or it has changed"
        advice = "resume it with its own source, or delete it to give up what it left; a new job needs a new journal"
    else:
        belongs = "belongs to a finished job with another source, or it has changed"
        advice = "a new job needs a new journal: journal=Journals(folder) names one for each run"
    return journal.location.make_error(f"{belongs}; {advice}")


_OTHER_ROWS = (
    "belongs to a job whose source gave other rows when it was read a second time: it has changed meanwhile, or its "
    "rows can be read only once; make the same call with the same rows, or with an iterator of them, such as "
    "(row for row in rows), which the journal stores before anything is sent"
)


async def _hold_back_short(slices: AsyncIterable[Slice]) -> AsyncGenerator[Slice, None]:
    """Yield slices, a short one only when the next one or the end is reached: a failure may have cut it off."""
    short: Slice | None = None
    async for part in slices:
        if short is not None:
            yield short
        short = part if part.count < SLICE_ROWS else None
        if short is None:
            yield part
    if short is not None:
        yield short


class RemainingRows:
    """Reads what is left of a source, and follows how far it was read.

    Attributes:
        settled: which rows earlier runs settled.
        is_sound: whether the source has not failed; one that was changed may have given other rows before it did.
    """

    def __init__(self, limits: Limits, journal: Journal) -> None:
        self._limits = limits
        self._journal = journal
        self._digest = SourceDigest()
        self.settled = SettledRows()
        self.is_sound = True

    @property
    def checkpoint(self) -> JournalCheckpoint:
        """How far the source was read."""
        return self._digest.checkpoint

    async def read(self, source: RowSource) -> AsyncGenerator[Slice, None]:
        """Yield the slices of a source without the rows that are settled.

        Rows that a source returned in a slice that its failure cut off are left to the next run, which reads them in
        another slice, with another digest.
        """
        try:
            async with aclosing(source.read()) as slices, aclosing(_hold_back_short(slices)) as kept:
                async for part in kept:
                    yield self._select(part)
            self._digest.ended = True
            self._check_again()
        except Exception:
            self.is_sound = False
            raise

    def _select(self, part: Slice) -> Slice:
        again = max(0, min(self._journal.checkpoint.rows - self._digest.rows, part.count))
        self._digest.update(part)
        rows, too_large_rows = self._fit(part.rows)
        failures = [*part.failures, *too_large_rows]
        invalid_again = max(0, min(self._journal.checkpoint.invalid_rows - self._digest.invalid_rows, len(failures)))
        self._digest.invalid_rows += len(failures)
        part = attrs.evolve(part, rows=rows, failures=failures, again=again, invalid_again=invalid_again)
        if again:
            self._check_again()
        indexes = self.settled.find_open(rows, self._journal.lanes)
        if indexes is None:
            return part
        settled = len(rows) - len(indexes)
        return attrs.evolve(part, count=part.count - settled, rows=rows.select(indexes), again=again - settled)

    def _check_again(self) -> None:
        """Make sure that the rows which an earlier run read are the same also when they are read again.

        Raises:
            UnusableFile: they are not.
        """
        read, known = self._digest.checkpoint, self._journal.checkpoint
        ended_early = read.ended and read.rows < known.rows
        if known.rows and (ended_early or (read.rows == known.rows and read.digest != known.digest)):
            self._digest = SourceDigest()  # what was read is not recorded
            raise self._journal.location.make_error(_OTHER_ROWS)

    def _fit(self, rows: PackedRows) -> tuple[PackedRows, Iterable[Failure]]:
        """Return the rows that fit into a request, and failures for the others.

        A row of a lane counts as settled when the lane has passed it, so packers would find these rows in one run only.
        """
        allow_row = self._limits.allow_row
        if allow_row(rows.group, rows.template, rows.users.measure_longest(rows.template)):
            return rows, ()
        fits = [allow_row(rows.group, rows.template, len(user)) for user in rows.write_each()]
        too_large = rows.select([index for index, fitting in enumerate(fits) if not fitting])
        failures = [Failure.too_large(position) for position in too_large.positions]
        return rows.select([index for index, fitting in enumerate(fits) if fitting]), failures
