"""The task that sends a shard: the uploader as it is, with a journal of its own in the shared state."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
from distributed import get_worker
from distributed.worker import secede

from svc_async.batch.job import Job, JobNote
from svc_async.batch.report import KEPT_FAILURES, Failure, Progress, Report
from svc_async.batch.sync.settings import SyncObservers
from svc_async.cluster.failures import FailureBlocks
from svc_async.cluster.job import ShardOutcome, ShardTask, read_outcome, write_outcome
from svc_async.cluster.pieces import Piece
from svc_async.cluster.plan import SourcePlan
from svc_async.cluster.shard_rows import ShardRows
from svc_async.cluster.worker.row_memory import ROW_MEMORY
from svc_async.cluster.worker.run_watch import follow_run
from svc_async.cluster.worker.sessions import run_in_loop, share_session
from svc_async.errors import BatchError, StateUnavailable, SvcError
from svc_async.jobs.run import run
from svc_async.session import Session
from svc_async.sources.source import UnparsedRow
from svc_async.state.jobs import JobStore, make_damage_error
from svc_async.users.tables import Rows

__all__ = ["send_shard"]

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


@attrs.define
class _ShardSource:
    """The rows of a shard as the source of a job; they were checked when they were read."""

    _rows: ShardRows
    _task: ShardTask
    _job: Job
    columns: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    size: int = 1
    bytes_read: int = 1
    exhausted: bool = True

    @property
    def name(self) -> str:
        return self._job.file.path

    async def check(self) -> None:
        """Accept them."""

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

    def close(self) -> None:
        """Do nothing: they are in memory."""
