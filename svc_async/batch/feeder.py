"""Reads a source and keeps the lanes supplied with batches, within the job's share of the memory.

    source → Slice → Partitioner → Packer of a lane → Batch → queue of the lane

Rows that were read wait in open batches and in sealed ones. When they fill the memory, reading pauses until requests
are answered; the fullest open batch is sealed early only if less than half of the memory is on its way. When the source
has ended, the open batches of several lanes share requests.
"""

import asyncio
import itertools
from array import array
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence
from contextlib import aclosing

from svc_async.batch.lane import Command, Lane, Phase, Resumed, Sealed, count_pending
from svc_async.batch.ledger import Intent, Ledger, Resumption
from svc_async.batch.packing.batch import Batch
from svc_async.batch.packing.packer import Packer, Partitioner, group_tails
from svc_async.batch.recovery import RecoveryPolicy
from svc_async.batch.report import Failure, Wait
from svc_async.batch.settings import BatchSettings, JobSizes
from svc_async.batch.source import RowSource, Slice
from svc_async.clock import Clock
from svc_async.counts import Counts
from svc_async.engine.memory import MemoryShare
from svc_async.errors import SvcError

__all__ = ["Feeder"]

_SLICES_PER_PROGRESS = 16


class Feeder:
    """The lanes of a job, and what supplies them.

    Attributes:
        lanes: the lanes; those that send tails come last.
        wait: until when nothing is sent after a kill; None if nothing waits for that.
        stopped: whether nothing more is read or intended.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        settings: BatchSettings,
        sizes: JobSizes,
        memory: MemoryShare,
        policy: RecoveryPolicy,
        clock: Clock,
        execute: Callable[[Lane, Command], None],
        on_failures: Callable[[Sequence[Failure]], None],
        on_progress: Callable[[], None],
    ) -> None:
        """Prepare for one run.

        Args:
            ledger: counts the rows.
            settings: how the job sends.
            sizes: the amounts in which it works.
            memory: how much it may hold.
            policy: how its lanes recover.
            clock: the time.
            execute: starts to execute the commands of a lane that was idle.
            on_failures: called with rows that cannot be sent.
            on_progress: called now and then.
        """
        self._ledger = ledger
        self._settings = settings
        self._sizes = sizes
        self._memory = memory
        self._policy = policy
        self._clock = clock
        self._execute = execute
        self._on_failures = on_failures
        self._on_progress = on_progress
        self._keyed = settings.ordered or ledger.keyed
        self.lanes: list[Lane] = []
        self.wait: Wait | None = None
        self._packers: Sequence[Packer] = ()
        self._partitioner = Partitioner((), flush_at=sizes.partition_rows)
        self._changed = asyncio.Event()
        self.stopped = False

    def create_lanes(self) -> None:
        """Create as many lanes as the ledger says."""
        count, limits = self._ledger.lanes, self._policy.limits
        self.lanes = [Lane(number, (number,), self._policy) for number in range(count)]
        repeats = self._settings.ordered or limits.distinct
        self._packers = [Packer(limits, repeats=repeats) for _ in range(count if self._keyed else 1)]
        self._partitioner = Partitioner(self._packers, flush_at=self._sizes.partition_rows)

    @property
    def pending(self) -> int:
        """How many rows were read and are not settled."""
        unsealed = self._partitioner.rows + sum(packer.rows for packer in self._packers)
        return unsealed + count_pending(self.lanes)

    def list_packed(self, lane: Lane) -> Iterator[Collection[int]]:
        """Yield the positions of the rows of a lane that are in open batches, and of those that they superseded."""
        for member in lane.members:
            yield from self._packers[member].outstanding

    def wake(self) -> None:
        """Note that a lane has changed."""
        self._changed.set()

    def stop(self) -> None:
        """Read nothing more."""
        self.stopped = True
        self.wake()

    async def resend(self, resumption: Resumption) -> None:
        """Send what earlier runs left unsettled, and return when it is settled."""
        wait = self._policy.quarantine + resumption.grace
        rest = max(0.0, wait - resumption.age)
        lanes = [
            self._resume(intent, batch, pause=rest if resumption.killed or intent.sent_at is not None else 0.0)
            for intent, batch in resumption.unsettled
        ]
        if resumption.killed and not lanes:
            self.wait = Wait(until=self._clock.monotonic() + rest)
            self._on_progress()
            await self._clock.sleep(rest)
            self.wait = None
        while any(lane.phase.is_busy for lane in lanes):
            await self._wait_for_change()

    def _resume(self, intent: Intent, batch: Batch, *, pause: float) -> Lane:
        lane = self._add_lane(intent.sender, intent.lanes)
        self._ledger.accounting.resend(
            batch.rows, superseded=len(intent.superseded), in_doubt=intent.sent_at is not None
        )
        command = lane.handle(
            Resumed(
                batch=batch,
                superseded=array("q", intent.superseded),
                in_doubt=intent.sent_at is not None,
                pause=pause,
            )
        )
        if command is not None:
            self._execute(lane, command)
        return lane

    def _add_lane(self, number: int, members: Sequence[int]) -> Lane:
        self.lanes.append(Lane(number, members, self._policy))
        return self.lanes[-1]

    async def feed(self, source: RowSource) -> Exception | None:
        """Read a source to its end and give its rows to the lanes; return the exception that ended it early."""
        async with aclosing(source.read()) as slices:
            failure = await self._read(slices)
        if not self.stopped:
            await self._flush()
            await self._send_tails()
        return failure

    async def _read(self, slices: AsyncGenerator[Slice, None]) -> Exception | None:
        for number in itertools.count(1):
            if self.stopped:
                break
            try:
                part = await anext(slices)
            except StopAsyncIteration:
                break
            except SvcError as error:
                return error.with_traceback(None)  # its frames hold rows
            except Exception as error:  # noqa: BLE001 - whatever a source may raise; what came before it is finished
                return error
            self._ledger.accounting.counts += Counts(
                read=part.count - part.again,
                pending=part.invalid_again - part.again,
                failed=-part.invalid_again,  # `on_failures` counts them anew
                partly_valid=part.partly_valid,
            )
            is_time_to_flush = self._partitioner.add(part.rows)
            if part.failures:
                self._on_failures(part.failures)
            if number % _SLICES_PER_PROGRESS == 0:
                self._on_progress()
            await asyncio.sleep(0)
            if is_time_to_flush:
                await self._flush()
                await self._make_room()
        return None

    async def _flush(self) -> None:
        for index, batches in self._partitioner.flush(self._clock.now()):
            self._enqueue(self._lane_of(index), batches)
            self._count(self._packers[index])
            if batches and not self._ledger.in_transit:
                await asyncio.sleep(0)  # sealing a full request takes milliseconds
        self._ledger.arrive()

    def _lane_of(self, packer: int) -> Lane:
        """Return the lane of a packer; without keys there is one packer, and any lane may send its batches."""
        if self._keyed:
            return self.lanes[packer]
        return min(self.lanes, key=lambda lane: len(lane.queue))

    def _count(self, packer: Packer) -> None:
        """Count the rows that a packer has left out."""
        if not packer.coalesced and not packer.too_large:
            return
        self._ledger.accounting.counts += Counts(coalesced=packer.coalesced)
        too_large, packer.coalesced, packer.too_large = packer.too_large, 0, []
        self._on_failures([Failure.too_large(position) for position in too_large])

    def _enqueue(self, lane: Lane, batches: Sequence[Batch]) -> None:
        command = lane.handle(Sealed(batches)) if batches else None
        if command is not None:
            self._execute(lane, command)

    async def _make_room(self) -> None:
        """Wait until more may be read."""
        self._measure()
        while not self.stopped:
            queued = sum(len(lane.queue) for lane in self.lanes if lane.phase is not Phase.WAITING)
            if self._memory.held <= self._memory.allowance and queued <= 2 * self._ledger.lanes:
                return
            if self._seal_early():
                self._measure()
            else:
                await self._wait_for_change()

    def _measure(self) -> None:
        """Measure what the job holds."""
        sealed = sum(batch.held for lane in self.lanes for batch in lane.queue)
        self._memory.held = sealed + sum(packer.held for packer in self._packers)

    def _seal_early(self) -> bool:
        """Seal the fullest open batch if the memory is full, and neither answers nor lanes that wait will empty it."""
        allowance = self._memory.allowance
        on_their_way = sum(batch.held for lane in self.lanes if lane.phase is not Phase.WAITING for batch in lane.queue)
        open_batches = [index for index in range(len(self._packers)) if self._lane_of(index).phase is not Phase.WAITING]
        unsealed = sum(self._packers[index].held for index in open_batches)
        held_back = self._memory.held - on_their_way - unsealed
        if self._memory.held <= allowance or max(on_their_way, held_back) > allowance / 2:
            return False
        fullest = max(open_batches, key=lambda index: self._packers[index].held)
        self._enqueue(self._lane_of(fullest), self._packers[fullest].flush(self._clock.now()))
        self._count(self._packers[fullest])
        return True

    async def _send_tails(self) -> None:
        """Send what is left in the open batches; lanes share requests, once those before were answered.

        A lane that waits keeps its tail back, since older rows of the same keys are still to be sent.
        """
        numbers = itertools.count(self._ledger.lanes)
        tails = {index: packer.fullness for index, packer in enumerate(self._packers) if packer.rows}
        groups: list[list[int]] = []
        while tails and not self.stopped:
            able = {index: share for index, share in tails.items() if self._lane_of(index).phase is not Phase.WAITING}
            planned = groups or group_tails(able)
            groups = [group for group in ([each for each in group if each in able] for group in planned) if group]
            ready = [group for group in groups if not any(self._lane_of(index).phase.is_busy for index in group)]
            for group in ready:
                groups.remove(group)
                tails = {index: share for index, share in tails.items() if index not in group}
                lane, now = self._add_lane(next(numbers), group), self._clock.now()
                packer, *others = (self._packers[member] for member in group)
                batches = [batch for other in others for batch in packer.take_over(other, now)]
                self._enqueue(lane, batches + packer.flush(now))
                self._count(packer)
            if not ready:
                await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
        self._measure()
