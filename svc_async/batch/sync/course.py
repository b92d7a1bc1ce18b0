"""Announces what a sync does, phase by phase; no I/O."""

from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import Any

import attrs

from svc_async.batch.report import JobPhase, Progress, Wait
from svc_async.batch.sync.plan import Entries, Plan
from svc_async.batch.sync.state import OnPage
from svc_async.clock import Clock

__all__ = ["SyncCourse"]


@attrs.define
class SyncCourse:
    """How far a sync is.

    Attributes:
        observer: whom to tell.
        clock: the time.
        read: how many rows of the source were read.
    """

    observer: Callable[[Progress], object]
    clock: Clock
    read: int = attrs.field(default=0, init=False)
    _rows: int | None = attrs.field(default=None, init=False)
    _sent: Progress = attrs.field(factory=Progress, init=False)
    _began: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._began = self.clock.monotonic()

    def begin_sending(self, plan: Plan) -> None:
        """Note how many rows are to be removed and sent."""
        self._rows = plan.upserts + plan.all_removals

    def announce_sent(self, progress: Progress) -> None:
        """Announce what has become of all rows that were sent so far."""
        self._sent = progress
        self._announce(phase="sending", phase_done=progress.settled, phase_total=self._rows)

    def announce_wait(self, seconds: float) -> None:
        """Announce that nothing is sent for some seconds."""
        self._announce(phase="waiting", wait=Wait(until=self.clock.monotonic() + seconds))

    def count_pages(self, phase: JobPhase) -> OnPage:
        """Return what announces each page of the state in a phase."""
        return lambda done, total: self._announce(phase=phase, phase_done=done, phase_total=total)

    async def count_rows(self, snapshot: AsyncIterable[Entries]) -> AsyncIterator[Entries]:
        """Yield rows of the source as they are read, and announce how many there were."""
        self._announce(phase="reading")
        async for entries in snapshot:
            yield entries
            self.read += len(entries.positions) + len(entries.invalid_rows)
            self._announce(phase="reading", phase_done=self.read)

    def _announce(self, **changes: Any) -> None:
        now = self.clock.monotonic()
        self.observer(attrs.evolve(self._sent, seconds=now - self._began, at=now, **changes))
