"""The task that sends a shard: the uploader as it is, with a journal of its own in the shared state."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import attrs
from distributed import get_worker
from distributed.worker import secede

from svc_async.batch.job import Job, JobNote
from svc_async.batch.report import KEPT_FAILURES, Failure, Progress, Report
from svc_async.batch.settings import SyncObservers
from svc_async.cluster.failures import FailureBlocks
from svc_async.cluster.job import ShardOutcome, ShardTask, read_outcome, write_outcome
from svc_async.cluster.parts import Piece, ShardRows
from svc_async.cluster.plan import SourcePlan
from svc_async.cluster.worker.sessions import run_in_loop, share_session
from svc_async.engine.memory import MEMORY
from svc_async.errors import BatchError, StateUnavailable, SvcError, TakenUpElsewhere
from svc_async.jobs.run import run
from svc_async.printable import clean
from svc_async.session import Session
from svc_async.sources.product_attributes import UnparsedRow
from svc_async.sources.source import Source
from svc_async.state.jobs import JobStore, make_damage_error
from svc_async.users.tables import Rows

__all__ = ["RowMemory", "follow_run", "send_shard"]


class RowMemory:
    """Admits shards to a process as long as their rows fit into its memory, or it sends no other one.

    The jobs of a session have equal shares of its memory, and a small share makes small requests. So only some shards
    are sent at once, but more if each of them has all of its rows in its share: those of many accounts wait for the
    limits of these, not for each other.

    Args:
        size: bytes of rows.
        shards: how many shards there are at once, whatever their size.
        small_shards: how many there are at most.
    """

    def __init__(self, *, size: int, shards: int, small_shards: int) -> None:
        self._size = size
        self._shards = shards
        self._small_shards = small_shards
        self._held: list[int] = []
        self._changed = threading.Condition()

    @contextmanager
    def hold(self, size: int) -> Generator[None]:
        """Wait until the rows of a shard fit, and hold memory for them."""
        with self._changed:
            self._changed.wait_for(lambda: self._fits(size))
            self._held.append(size)
        try:
            yield
        finally:
            with self._changed:
                self._held.remove(size)
                self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        held = [*self._held, size]
        most = max(self._shards, min(self._small_shards, self._size // max(1, *held)))
        return len(held) == 1 or (len(held) <= most and sum(held) <= self._size)


ROW_MEMORY = RowMemory(size=MEMORY, shards=32, small_shards=256)
"""That of this process: as much as the jobs of its session may hold, so that each of them can fill its requests."""


_WATCH_PAUSE = 1.0
"""Seconds between two looks."""


@attrs.define
class _SentShards:
    """The shards of a run that this process sends.

    Attributes:
        has_ended: whether another run has begun, or this one was stopped.
        tasks: those that send them.
        task: the one that looks.
    """

    has_ended: bool = False
    tasks: "set[asyncio.Task[Any] | None]" = attrs.field(factory=set)
    task: "asyncio.Task[None] | None" = None

    async def look(self, store: JobStore, job: str, run: int) -> None:
        """Look again and again, and cancel all tasks when the run has ended."""
        while not self.has_ended:
            await asyncio.sleep(_WATCH_PAUSE)
            try:
                await store.check_run(job, run)
            except StateUnavailable:
                pass
            except SvcError:
                self.has_ended = True
        for task in self.tasks:
            if task is not None:
                task.cancel()


_runs: dict[tuple[JobStore, str, int], _SentShards] = {}


@asynccontextmanager
async def follow_run(store: JobStore, job: str, run: int) -> AsyncGenerator[None]:
    """Cancel the block when another run of the job has begun, or this one was stopped; do not begin it after that.

    Raises:
        TakenUpElsewhere: that happened.
        UnusableState: there is no such job in the shared state of this process.
        StateUnavailable: the database cannot be reached.
    """
    await store.check_run(job, run)  # a shard that begins takes up its journal, maybe from a worker of a later run
    key = store, job, run
    shards = _runs.setdefault(key, _SentShards())
    if shards.task is None:
        shards.task = asyncio.create_task(shards.look(*key))
    task = asyncio.current_task()
    shards.tasks.add(task)
    if shards.has_ended and task is not None:
        task.cancel()
    try:
        yield
    except asyncio.CancelledError:
        if not shards.has_ended or task is None:
            raise
        task.uncancel()
        raise TakenUpElsewhere(f"the job {clean(job)}") from None
    finally:
        shards.tasks.discard(task)
        if not shards.tasks:
            shards.task.cancel()
            _runs.pop(key, None)


_PAUSE = 1.0
"""Seconds between two announcements of the progress of a shard."""


def send_shard(pieces: Sequence[Piece], plan: SourcePlan, task: ShardTask) -> ShardOutcome:
    """Send the rows of a shard, and return what became of them; an error is a part of that.

    A shard that is finished gives its report from its journal. While it sends, its thread leaves the thread pool of the
    worker, so that the worker sends several shards at once. One that must wait for memory keeps its thread: so the
    worker does not load the rows of further ones.

    Args:
        pieces: its rows, as `exchange` returns them.
        plan: the plan of the source.
        task: what to do with them.
    """
    announce = get_worker().log_event
    with ROW_MEMORY.hold(sum(map(len, pieces))):
        secede()
        rows = ShardRows.read((piece.read() for piece in pieces), plan)
        try:
            return run_in_loop(lambda: _Shard(task, plan.job, rows, announce).send())
        finally:
            rows.clear()  # what sent them is in reference cycles, which Python may keep while it sends other shards


@attrs.define
class _Shard:
    """One shard, while it is sent."""

    task: ShardTask
    job: Job
    rows: ShardRows
    announce: Callable[[str, Any], None]
    _last: Progress = attrs.field(factory=Progress, init=False)
    _failures: list[Failure] = attrs.field(factory=list[Failure], init=False)
    _all_failures: FailureBlocks = attrs.field(factory=FailureBlocks, init=False)
    _next: float = attrs.field(default=0.0, init=False)

    async def send(self) -> ShardOutcome:
        try:
            async with share_session(self.task.settings) as session:
                return await self._send(session)
        except BatchError as error:
            report = error.report if isinstance(error.report, Report) else self._report
            cause = error.__cause__
            return self._conclude(report, cause if isinstance(cause, SvcError) else error)
        except SvcError as error:
            return self._conclude(self._report, error)

    async def _send(self, session: Session) -> ShardOutcome:
        task, state = self.task, session.state
        if state is None:
            raise StateUnavailable("the shared state", "the worker's session has none")
        store = JobStore(state.database)
        job = attrs.evolve(
            self.job,
            note=JobNote(cluster_job=task.name),
            journal=state.journal(task.name).shard(task.number),
            observers=SyncObservers(progress=self._on_progress, on_failure=self._on_failure),
        )
        async with follow_run(store, task.name, task.run):
            report = await run(job, session, source=_ShardSource(self.rows, task, job))
        outcome = self._conclude(report.total)
        stored = await store.finish_shard(task.name, task.number, write_outcome(outcome))
        try:
            return outcome if stored is None else read_outcome(task.number, stored)
        except ValueError:
            raise make_damage_error(task.name) from None

    def _on_failure(self, failure: Failure) -> None:
        if len(self._failures) < KEPT_FAILURES:
            self._failures.append(failure)
        self._all_failures.add(self._locate(failure))

    def _on_progress(self, progress: Progress) -> None:
        waits = progress.waiting != self._last.waiting  # announced at once, since nothing may follow for minutes
        self._last = progress
        now = asyncio.get_running_loop().time()
        if waits or now >= self._next:
            self._next = now + _PAUSE
            self._announce()

    def _announce(self) -> None:
        progress = attrs.evolve(self._last, phase_total=len(self.rows))
        self.announce(self.task.topic, {"shard": self.task.number, "progress": attrs.asdict(progress)})

    @property
    def _report(self) -> Report:
        return Report.from_progress(self._last, self._failures)

    def _conclude(self, report: Report, error: SvcError | None = None) -> ShardOutcome:
        self._announce()
        failures = tuple(self._locate(failure) for failure in report.failures)
        return ShardOutcome(
            number=self.task.number,
            report=attrs.evolve(report, failures=failures),
            failures=self._all_failures.pack() if self._all_failures.count > len(failures) else (),
            error=error,
        )

    def _locate(self, failure: Failure) -> Failure:
        place = self.rows.locate(failure.position)
        return attrs.evolve(failure, position=place.row, file=place.path)


@attrs.frozen
class _KeyRows:
    """Product keys as the rows of a table, which can be read again."""

    keys: Iterable[Any]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for key in self.keys:
            yield key if isinstance(key, UnparsedRow) else {"product_key": key}


class _ShardSource(Source):
    """The rows of a shard as the source of a job; they were checked when they were read."""

    def __init__(self, rows: ShardRows, task: ShardTask, job: Job) -> None:
        self.name = job.file.path
        self._rows = rows
        self._task = task
        self._job = job

    async def fingerprint(self) -> str:
        return f"{self._task.name}/{self._task.number}"

    def find_line(self, position: int) -> int | None:
        return self._rows.locate(position).row

    def rows(self) -> Rows:
        members: Any = self._rows.members
        return members  # type: ignore[no-any-return]  # encoded slices, which a list takes in place of rows

    def products(self) -> Iterable[Mapping[str, Any]]:
        if self._job.operation == "remove":
            return _KeyRows(self._rows.products)
        return self._rows.products
