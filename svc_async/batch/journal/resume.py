"""What a resumed job must know: what earlier runs settled, and what they left in doubt."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from hashlib import sha256

import attrs

from svc_async.batch.journal.records import JournalCheckpoint
from svc_async.batch.ledger import Intent
from svc_async.batch.packing.batch import Batch, Limits, PackedRows, rebuild, select_rows
from svc_async.batch.packing.packer import find_partitions
from svc_async.batch.report import Failure
from svc_async.batch.source import RowSource, Slice
from svc_async.errors import Hint, SvcError
from svc_async.users.encoding import SLICE_ROWS

__all__ = ["RemainingRows", "SettledRows", "SourceDigest", "SourceReplay", "digest_source"]


@attrs.define
class SettledRows:
    """Which rows earlier runs settled: those up to a position of their lane, except the unsettled ones.

    Attributes:
        settled_up_to: the position of each lane.
        unsettled: the unsettled positions of each lane.
    """

    settled_up_to: Mapping[int, int] = attrs.field(factory=dict)
    unsettled: Mapping[int, set[int]] = attrs.field(factory=dict)
    _taken: list[tuple[int, int]] = attrs.field(factory=list, init=False)
    _highest: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._highest = max(self.settled_up_to.values(), default=-1)

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

    Args:
        intents: what it left in doubt.
        unsettled: the positions of the other rows that it left unsettled.
        lanes: how many lanes the rows are distributed over.

    Attributes:
        lane_of: the lane of each unsettled position.
    """

    def __init__(self, intents: Sequence[Intent], unsettled: Iterable[int], *, lanes: int) -> None:
        self._wanted = frozenset(itertools.chain.from_iterable(intent.positions for intent in intents))
        self._left = {*unsettled, *itertools.chain.from_iterable(intent.unsettled for intent in intents)}
        self._lanes = lanes
        self._rows: dict[int, tuple[PackedRows, int]] = {}
        self.lane_of: dict[int, int] = {}

    async def read(self, source: RowSource, known: JournalCheckpoint) -> JournalCheckpoint:
        """Read a source as far as is known of it, and return how far that was; another one differs in its digest."""
        digest = SourceDigest()
        async with aclosing(source.read()) as slices:
            async for part in slices:
                digest.update(part)
                rows = part.rows
                kept = rows.select([index for index, each in enumerate(rows.positions) if each in self._wanted])
                self._rows.update((position, (kept, index)) for index, position in enumerate(kept.positions))
                lanes = zip(rows.positions, find_partitions(rows.users, self._lanes), strict=True)
                self.lane_of.update((position, lane) for position, lane in lanes if position in self._left)
                await asyncio.sleep(0)
                if digest.rows >= known.rows and not known.ended:
                    break
            else:
                digest.ended = True
        return digest.checkpoint

    def rebuild(self, intent: Intent, limits: Limits) -> Batch:
        """Build the batch of an intent again."""
        places = (self._rows[position] for position in intent.positions)
        blocks = [
            (each, PackedRows.merge([*select_rows(itertools.islice(places, each.rows))])) for each in intent.layout
        ]
        return rebuild(blocks, wrapper=limits.wrapper, built=intent.pinned)


_OTHER_ROWS = (
    "belongs to a job whose source gave other rows when it was read a second time: it has changed meanwhile, or its "
    "rows can be read only once"
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

    Args:
        limits: those of the destination.
        known: how far earlier runs read the source.
        lanes: how many lanes its rows are distributed over.
        make_error: returns the error that says what is wrong with the journal.

    Attributes:
        settled: which rows earlier runs settled.
        is_sound: whether the source has not failed; one that was changed may have given other rows before it did.
    """

    def __init__(
        self, limits: Limits, known: JournalCheckpoint, *, lanes: int, make_error: Callable[[str, Hint], SvcError]
    ) -> None:
        self._limits = limits
        self._known = known
        self._lanes = lanes
        self._make_error = make_error
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
        again = max(0, min(self._known.rows - self._digest.rows, part.count))
        self._digest.update(part)
        rows, too_large_rows = self._fit(part.rows)
        failures = [*part.failures, *too_large_rows]
        invalid_again = max(0, min(self._known.invalid_rows - self._digest.invalid_rows, len(failures)))
        self._digest.invalid_rows += len(failures)
        part = attrs.evolve(part, rows=rows, failures=failures, again=again, invalid_again=invalid_again)
        if again:
            self._check_again()
        indexes = self.settled.find_open(rows, self._lanes)
        if indexes is None:
            return part
        settled = len(rows) - len(indexes)
        return attrs.evolve(part, count=part.count - settled, rows=rows.select(indexes), again=again - settled)

    def _check_again(self) -> None:
        """Make sure that the rows which an earlier run read are the same also when they are read again.

        Raises:
            SvcError: they are not.
        """
        read, known = self._digest.checkpoint, self._known
        ended_early = read.ended and read.rows < known.rows
        if known.rows and (ended_early or (read.rows == known.rows and read.digest != known.digest)):
            self._digest = SourceDigest()  # what was read is not recorded
            raise self._make_error(_OTHER_ROWS, Hint.GIVE_THE_SAME_ROWS)

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
