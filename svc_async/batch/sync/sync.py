"""Makes a list hold what a whole snapshot lists, by sending only what changed.

    check the source → compare → plan → removals → additions, changes and refreshes → settle

Removals go first: the service removes whoever has an identifier, and somebody who is added may share it.
"""

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

import attrs

from svc_async.batch.report import Failure, Progress, Receipt, Report
from svc_async.batch.settings import Observers
from svc_async.batch.sync.state import Entries, Plan, Snapshots, Way
from svc_async.clock import Clock, SystemClock
from svc_async.errors import BatchError

__all__ = ["Sync", "Target"]

_NOT_SENT = frozenset({"INVALID_ROW", "TOO_LARGE"})
_KEPT_BACK = 10_000
"""Failed rows of which the file is told at once."""


class Target(Protocol):
    """The list that is made equal to a snapshot."""

    @property
    def replaces(self) -> bool:
        """Whether a row with another content is removed before it is sent."""
        ...

    def entries(self) -> AsyncIterable[Entries]:
        """Read the snapshot from its start."""
        ...

    def rows(self) -> Iterable[Any]:
        """Read the rows of the snapshot from its start."""
        ...

    async def remove(self, leaving: Snapshots, observers: Observers) -> Report:
        """Remove the rows that leave."""
        ...

    async def send(
        self,
        coming: Iterable[Any],
        observers: Observers,
        *,
        expires_at: datetime | None,
        named: Callable[[Mapping[int, str]], None],
    ) -> Report:
        """Send rows, which leave at a time; `named` is told the service's own keys of them."""
        ...


@attrs.define(kw_only=True)
class Sync:
    """One run of a diff sync: make a `plan`, then `apply` it.

    Attributes:
        target: the list and its snapshot.
        snapshots: what the list held last time.
        lifetime: how long rows stay that are sent; None for ever.
        refresh_within: rows that expire so soon are sent again.
        clock: where time comes from.
        removed: what became of the removals; at any time.
        sent: what became of the rows that were sent; at any time.
    """

    target: Target
    snapshots: Snapshots
    # Unspecified: how long the service keeps a member at most; its default is 13 months (contract CAU-06c), 395 days.
    lifetime: timedelta | None = timedelta(days=395)
    refresh_within: timedelta = timedelta(days=30)
    clock: Clock = attrs.field(factory=SystemClock)
    removed: Report = attrs.field(factory=Report, init=False)
    sent: Report = attrs.field(factory=Report, init=False)

    async def plan(self) -> Plan:
        """Compare the snapshot with what is there; nothing is sent, and nothing stays in the file.

        Raises:
            InvalidArgument: the snapshot or the file cannot be used.
        """
        now = self.clock.now()
        return await self.snapshots.compare(
            self.target.entries(), now=now, soon=now + self.refresh_within, replace=self.target.replaces
        )

    async def apply(
        self,
        plan: Plan,
        *,
        max_removal_share: float = 0.2,
        observers: Observers | None = None,
        on_removal_failure: Callable[[Failure], object] | None = None,
    ) -> None:
        """Do what the plan says.

        Args:
            plan: the plan that was made last.
            max_removal_share: the largest share of what is there that may be removed; 1 for any.
            observers: told of what happens.
            on_removal_failure: told of each removal that failed; they are counted from 0.

        Raises:
            InvalidArgument: too much would be removed; nothing was sent.
            BatchError: a part could not be finished; run it again, and it goes on.
        """
        plan.check(max_removal_share)
        observers = observers or Observers()
        expires_at = None if self.lifetime is None else self.clock.now() + self.lifetime
        self.snapshots.begin(expires=expires_at)
        removal = attrs.evolve(observers, on_failure=on_removal_failure)
        await self._do("leaving", plan.leaving, removal, self._remove)
        await self._do("coming", plan.coming, observers, lambda told: self._send(told, expires_at))
        await self.snapshots.settle()

    async def _remove(self, observers: Observers) -> Report:
        return await self.target.remove(self.snapshots, observers)

    async def _send(self, observers: Observers, expires_at: datetime | None) -> Report:
        coming = self.snapshots.coming(self.target.rows())
        return await self.target.send(coming, observers, expires_at=expires_at, named=self.snapshots.named)

    async def _do(
        self, way: Way, rows: int, observers: Observers, work: Callable[[Observers], Awaitable[Report]]
    ) -> None:
        if not rows:
            return
        record = _Record(self.snapshots, way, observers)
        try:
            self._keep(way, await work(record.observed))
        except BatchError as error:
            self._keep(way, error.report if isinstance(error.report, Report) else record.report)
            raise
        except BaseException:
            self._keep(way, record.report)
            raise
        finally:
            record.flush()

    def _keep(self, way: Way, report: Report) -> None:
        if way == "leaving":
            self.removed = report
        else:
            self.sent = report


@attrs.define
class _Record:
    """Tells the file and the observers what becomes of rows."""

    snapshots: Snapshots
    way: Way
    observers: Observers
    last: Progress = attrs.field(factory=Progress)
    failures: list[int] = attrs.field(factory=list[int])

    @property
    def observed(self) -> Observers:
        return Observers(progress=self.progress, on_receipt=self.receipt, on_failure=self.failure)

    @property
    def report(self) -> Report:
        """What is known when the job was cut off."""
        last = self.last
        return Report(
            read=last.read, accepted=last.accepted, coalesced=last.coalesced, failed=last.failed,
            pending=last.pending, in_doubt=last.in_doubt, requests=last.requests,
        )  # fmt: skip

    def progress(self, progress: Progress) -> None:
        self.last = progress
        _tell(self.observers.progress, progress)

    def receipt(self, receipt: Receipt) -> None:
        self.snapshots.accepted(self.way, receipt.positions)
        _tell(self.observers.on_receipt, receipt)

    def failure(self, failure: Failure) -> None:
        # A row that was sent may have been applied before it was refused: nothing is told of it, so it is in doubt.
        if failure.code in _NOT_SENT:
            self.failures.append(failure.position)
        if len(self.failures) >= _KEPT_BACK:
            self.flush()
        place = self.snapshots.position(failure.position) if self.way == "coming" else failure.position
        _tell(self.observers.on_failure, attrs.evolve(failure, position=place))

    def flush(self) -> None:
        self.snapshots.failed(self.way, self.failures)
        self.failures = []


def _tell(observer: Callable[[Any], object] | None, news: object) -> None:
    if observer is not None:
        observer(news)
