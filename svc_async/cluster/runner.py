"""Runs a job on a cluster of Dask workers, from its plan to its report.

    plan      files → fragments, committed under the name of the job in the shared state
    encode    a task a fragment: rows → users or products as they are sent
    exchange  the rows of one key are brought together in one shard
    send      a task a shard: the uploader, with the journal JOB/NNNN and the limits of the shared state
    report    the sum of the shards

Dask places the work and runs a task again when its worker is lost. It holds no truth: what was sent is in the journals,
which are fenced, and a shard that is finished gives its report from there.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import attrs
import msgspec
from dask.delayed import delayed
from distributed import as_completed, wait

from svc_async._version import __version__
from svc_async.batch.job import Job
from svc_async.batch.report import KEPT_FAILURES, JobPhase, Progress, Report, first_failures
from svc_async.batch.settings import Observers
from svc_async.cluster.clients import ClusterFailed, check_call, check_workers, describe_error, release
from svc_async.cluster.encode import choose_shards, encode_each, exchange
from svc_async.cluster.job import JobPart, ShardOutcome, ShardTask, WorkerSettings, read_outcome
from svc_async.cluster.plan import Fragment, SourcePlan
from svc_async.cluster.planning import plan_in_thread
from svc_async.cluster.worker.shard import send_shard
from svc_async.engine.origin import SessionOrigin
from svc_async.errors import BatchError, InvalidArgument, Sent, SvcError, UnusableFile, UnusableState
from svc_async.state.jobs import JobRun, JobStore, make_damage_error
from svc_async.state.journals import StateJournal

__all__ = ["run_jobs"]

_MOST_SHARDS = 4_096
_RETRIES = 3
"""How often Dask repeats a task that failed: a fragment on a storage that was away for a moment."""
_STOP_TIMEOUT = 15.0
"""Seconds for which a cancelled job waits for its shards to end in good order."""
_READ_TIMEOUT = 15.0
"""Seconds for which a job that ends early reads the journals of its shards."""


async def run_jobs(
    jobs: Sequence[Job],
    *,
    cluster: object,
    journal: object,
    origin: SessionOrigin | None,
    shards: int | None = None,
    observers: Observers | None = None,
) -> Sequence[Report]:
    """Run several uploads or removals as one job on a cluster, and return the report of each.

    Args:
        jobs: the uploads and removals, such as one for each of many accounts, with files that every worker can read.
        cluster: a `distributed.Client` that was made with `asynchronous=True`.
        journal: names the job in the shared state: `state.journal(name)`.
        origin: where the workers find the settings of their session.
        shards: into how many shards each of them is divided; by default, as its rows need.
        observers: functions that are called as the job proceeds, except `on_receipt`.

    Raises:
        InvalidArgument: an argument cannot be used; nothing was sent.
        UnusableFile: the source cannot be read, or has changed since the job began; nothing was sent.
        UnusableState: the name of the job belongs to another one; nothing was sent.
        StateUnavailable: the shared state cannot be reached.
        BatchError: the job could not be finished; the call resumes it when it is repeated.
    """
    observers = observers or Observers()
    name, origin = check_call(cluster, journal, origin, shards, observers)
    if not jobs:
        raise InvalidArgument("jobs", "must contain at least one job")
    for job in jobs:
        job.target.check()
    run = _ClusterRun(client=cluster, journal=name, origin=origin, watch=_ShardTotals(observers))
    return await run.run([job.detach() for job in jobs], shards)


@attrs.define
class _ShardTotals:
    """The progress and the results of the shards of a job.

    Attributes:
        observers: whom to tell.
        parts: the numbers of the shards of each part of the job.
        outcomes: what became of the shards that have ended; of the failures of a part, the first 10,000 and some more.
        journaled: what the journals say of others, once the job has ended early.
        now: returns the monotonic time.
    """

    observers: Observers
    parts: Sequence[range] = ()
    now: Callable[[], float] = time.monotonic
    outcomes: dict[int, ShardOutcome] = attrs.field(factory=dict[int, ShardOutcome])
    journaled: dict[int, Report] = attrs.field(factory=dict[int, Report])
    _kept: int = attrs.field(default=0, init=False)
    _encoded: set[tuple[str, int]] = attrs.field(factory=set[tuple[str, int]], init=False)
    _fragments: int = attrs.field(default=0, init=False)
    _latest: dict[int, Progress] = attrs.field(factory=dict[int, Progress], init=False)
    _began: float = attrs.field(default=attrs.Factory(lambda self: self.now(), takes_self=True), init=False)
    _phase: JobPhase = attrs.field(default="planning", init=False)

    def begin(self, phase: JobPhase) -> None:
        """Announce a phase: planning, encoding, exchanging or sending."""
        self._phase = phase
        self._notify()

    def expect(self, parts: Sequence[JobPart]) -> None:
        """Expect the fragments of parts of the job to be encoded."""
        self._fragments = len({_name(each) for part in parts for each in part.plan.fragments})
        self.begin("encoding")

    def add(self, message: Mapping[str, Any]) -> None:
        """Take what a task announces; what comes after the end of a shard is old."""
        if "fragment" in message:
            self._encoded.add(tuple(message["fragment"]))
            if len(self._encoded) == self._fragments:
                self._leave_encoding()
            return
        shard = message["shard"]
        if shard in self.outcomes:
            return
        self._leave_encoding()  # what another worker announces may arrive late
        told, now = msgspec.convert(message["progress"], Progress), self.now()
        # Each process has a monotonic clock of its own.
        wait = told.wait and attrs.evolve(told.wait, until=now + told.wait.until - told.at)
        self._latest[shard] = attrs.evolve(told, wait=wait, at=now)
        self._phase = "sending"
        self._notify()

    def _leave_encoding(self) -> None:
        if self._phase == "encoding":
            self.begin("exchanging")

    def finish(self, outcome: ShardOutcome) -> None:
        """Take what became of a shard."""
        self.outcomes[outcome.number] = attrs.evolve(outcome, failures=())
        report = outcome.report
        last = self._latest.get(outcome.number, Progress())
        counted = Progress(rate_limited=last.rate_limited, seconds=last.seconds, phase_total=report.read)
        self._latest[outcome.number] = counted + report
        if self.observers.on_failure is not None:
            for failure in outcome.list_failures():
                self.observers.on_failure(failure)
        self._kept += len(report.failures)
        if self._kept > 2 * KEPT_FAILURES * len(self.parts):
            self._drop_failures()
        self._notify()

    def _drop_failures(self) -> None:
        """Drop the failures that no report lists."""
        self._kept = 0
        for numbers in self.parts:
            ended = [self.outcomes[each] for each in numbers if each in self.outcomes]
            listed = {id(each) for each in first_failures(chain.from_iterable(one.report.failures for one in ended))}
            self._kept += len(listed)
            for outcome in ended:
                if failures := outcome.report.failures:
                    report = attrs.evolve(
                        outcome.report, failures=tuple(each for each in failures if id(each) in listed)
                    )
                    self.outcomes[outcome.number] = attrs.evolve(outcome, report=report)

    def sum_reports(self, numbers: Iterable[int]) -> Report:
        """Return the sum of the reports of some shards."""
        known = {**self.journaled, **{number: outcome.report for number, outcome in self.outcomes.items()}}
        return sum((known[each] for each in numbers if each in known), Report())

    def _notify(self) -> None:
        observer: Callable[[Progress], object] | None = self.observers.progress
        if observer is not None:
            now = self.now()
            total = sum((each.count_down(now) for each in self._latest.values()), Progress())
            told = attrs.evolve(total, seconds=now - self._began, at=now, phase=self._phase, phase_total=None)
            observer(told if self._phase != "sending" else self._add_share(told))

    def _add_share(self, now: Progress) -> Progress:
        """Return the progress with how much is sent; shards that have not begun count as the others on average."""
        rows = [each.phase_total for each in self._latest.values() if each.phase_total is not None]
        total = round(sum(rows) / len(rows) * sum(map(len, self.parts))) if rows else None
        return attrs.evolve(now, phase_done=now.settled, phase_total=total)


@attrs.define(kw_only=True)
class _ClusterRun:
    """One run of a job."""

    client: Any
    journal: StateJournal
    origin: SessionOrigin
    watch: _ShardTotals
    errors: list[SvcError] = attrs.field(factory=list[SvcError], init=False)

    async def run(self, jobs: Sequence[Job], shards: int | None) -> Sequence[Report]:
        self.watch.begin("planning")
        workers = await check_workers(self.client)
        plans = await asyncio.gather(*(_make_plan(job) for job in jobs))
        parts = _divide(plans, shards, workers)
        taken = await self._take_up(parts)
        parts = _number(parts, taken.shards)
        self.watch.parts = [part.numbers for part in parts]
        await self._take_reports()
        await self._work(parts, taken.number)
        if self.errors:
            await self._read_journals(parts)
            self._raise_errors(parts)
        return [self.watch.sum_reports(part.numbers) for part in parts]

    @property
    def _store(self) -> JobStore:
        return JobStore(self.journal.database)

    async def _take_up(self, parts: Sequence[JobPart]) -> JobRun:
        stored = await self._store.find_plan(self.journal.name)
        plans = [] if stored is None else stored.get("parts")
        if not isinstance(plans, list):
            raise make_damage_error(self.journal.name)
        if len(plans) == len(parts):
            for part, plain in zip(parts, plans, strict=True):
                part.plan.check_same_source(SourcePlan.from_plain(plain, part.plan.job))
        abouts = [part.about for part in parts]
        return await self._store.take_up(
            self.journal.name,
            about={name: [about[name] for about in abouts] for name in abouts[0]},
            plan={"parts": [part.plan.to_plain() for part in parts]},
            shards=[part.shards for part in parts],
        )

    async def _take_reports(self) -> None:
        async for number, report in self._store.list_reports(self.journal.name):
            try:
                self.watch.finish(read_outcome(number, report))
            except ValueError:
                raise make_damage_error(self.journal.name) from None

    async def _work(self, parts: Sequence[JobPart], run: int) -> None:
        topic = f"svc-async {self.journal.name} {run}"
        parts = [part for part in parts if any(number not in self.watch.outcomes for number in part.numbers)]
        if not parts:
            return
        tasks = [task for part in parts for task in self._build_tasks(part, run, topic)]
        self.watch.expect(parts)
        self.client.subscribe_topic(topic, lambda event: self.watch.add(event[1]))
        futures = self.client.compute(tasks, retries=_RETRIES)
        try:
            async for future in as_completed(futures):
                await self._collect(future)
        except asyncio.CancelledError:
            await self._stop(run, futures)
            raise
        finally:
            self.client.unsubscribe_topic(topic)
            await release(self.client, futures)

    async def _stop(self, run: int, futures: Sequence[Any]) -> None:
        """Have the shards stop, and wait until they have ended in good order, so that nothing is in doubt."""
        with suppress(SvcError, TimeoutError):
            async with asyncio.timeout(_STOP_TIMEOUT):
                await self._store.stop(self.journal.name, run)
                await wait(futures)

    def _build_tasks(self, part: JobPart, run: int, topic: str) -> Sequence[Any]:
        """Return the tasks of the shards that are not finished; what only others need is left out of the graph."""
        rows = (
            exchange(part.plan, shards=part.shards, topic=topic)
            if part.is_exchanged
            else encode_each(part.plan, topic=topic)
        )
        send = delayed(send_shard, pure=False)
        plan = delayed(part.plan, pure=False)  # one for all of its shards
        worker = WorkerSettings(self.origin, self.journal.database.schema, __version__)
        return [
            send(
                contents,
                plan,
                ShardTask(name=self.journal.name, run=run, number=number, settings=worker, topic=topic),
            )
            for number, contents in zip(part.numbers, rows, strict=True)
            if number not in self.watch.outcomes
        ]

    async def _collect(self, future: Any) -> None:
        if future.status == "finished":
            outcome: ShardOutcome = await future
            if outcome.error is not None:
                self.errors.append(outcome.error)
            self.watch.finish(outcome)
        elif future.status == "error":
            self.errors.append(describe_error(await future.exception()))
        else:
            self.errors.append(ClusterFailed("the scheduler of the cluster is gone; run the job again to resume it"))

    async def _read_journals(self, parts: Sequence[JobPart]) -> None:
        """Find out what the shards have sent that reported nothing, as far as the database answers; some may go on."""

        async def read(number: int) -> None:
            with suppress(SvcError):
                if (found := await self.journal.shard(number).find()) is not None:
                    # Failures without their files: the shard that finishes lists them.
                    self.watch.journaled[number] = attrs.evolve(found.report, failures=())

        silent = [number for part in parts for number in part.numbers if number not in self.watch.outcomes]
        with suppress(TimeoutError):
            async with asyncio.timeout(_READ_TIMEOUT):
                await asyncio.gather(*map(read, silent))

    def _raise_errors(self, parts: Sequence[JobPart]) -> None:
        report = sum((self.watch.sum_reports(part.numbers) for part in parts), Report())
        shards = sum(part.shards for part in parts)
        counts = f"rows: {report.read} read, {report.accepted} accepted, {report.pending} pending"
        message = f"the job ended early in {len(self.errors)} of {shards} shards: {self.errors[0]}; {counts}"
        is_known = all(number in self.watch.outcomes for part in parts for number in part.numbers)
        # A shard that has reported nothing may have sent requests.
        sent = report.find_sent() if is_known else Sent.MAYBE
        raise BatchError(message, report=report, sent=sent) from self.errors[0]


async def _make_plan(job: Job) -> SourcePlan:
    plan = await plan_in_thread(job)
    for path in (file.source.path for file in plan.files):
        try:
            path.encode()
        except UnicodeEncodeError:
            rule = "has a name that is not UTF-8, which the messages of a cluster cannot carry: rename it"
            raise UnusableFile("source", path, rule) from None
    return plan


def _name(fragment: Fragment) -> tuple[str, int]:
    return fragment.file.source.path, fragment.number


def _divide(plans: Sequence[SourcePlan], shards: int | None, workers: int) -> Sequence[JobPart]:
    """Divide each source into shards."""
    parts = [JobPart(plan=plan, first=0, shards=1) for plan in plans]
    counts = [
        min(_MOST_SHARDS, shards or choose_shards(part.plan, workers))
        if part.is_exchanged
        else len(part.plan.fragments)
        for part in parts
    ]
    return _number(parts, counts)


def _number(parts: Sequence[JobPart], counts: Sequence[int]) -> Sequence[JobPart]:
    """Return the parts with these numbers of shards, which are numbered over the whole job."""
    if len(parts) != len(counts):
        problem = "has other parts than when it was begun; a new job needs a new name"
        raise UnusableState("of this name", problem, parameter="job")
    firsts = [sum(counts[:index]) for index in range(len(counts))]
    return [
        attrs.evolve(part, first=first, shards=count) for part, first, count in zip(parts, firsts, counts, strict=True)
    ]
