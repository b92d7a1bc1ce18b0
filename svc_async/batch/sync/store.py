"""What a sync needs of the store that keeps the state of a list between runs, and the rows of a plan that it gives."""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

import attrs

from svc_async.batch.sync.plan import Entries, FindLinked, Part, Plan, Removal, Stage
from svc_async.batch.sync.sending import ClockReading

__all__ = ["OnPage", "Removals", "SelectedRows", "SyncStore", "ignore_page"]

T = TypeVar("T")

OnPage = Callable[[int, int], object]
"""Called as the pages of a state are worked on: how many are done, and of how many."""


def ignore_page(_done: int, _total: int) -> None:
    """Tell nobody."""


class SyncStore(Protocol):
    """The state of one list.

    A plan is stored before anything is sent, and only what the service accepted changes the state. Rows of a plan
    without a recorded outcome are in doubt: they are sent again if they are in the next snapshot, and removed if not.
    Every method raises SvcError if the state cannot be read or written, or if another process has taken it up. Outcomes
    are stored with the next `admit` or `finish`.
    """

    async def compare(
        self,
        snapshot: AsyncIterable[Entries],
        *,
        now: ClockReading,
        soon: datetime,
        quarantine: float = 0.0,
        replace: bool = False,
        find_linked: FindLinked | None = None,
        keep_unread: bool = False,
        on_settled: OnPage = ignore_page,
        on_compared: OnPage = ignore_page,
    ) -> Plan:
        """Return what a whole snapshot changes; nothing of it is stored until `begin`. Other tasks run between entries.

        What an earlier run left is settled first. If several rows have the same key, the last one counts.

        Args:
            snapshot: all that the list is to contain.
            now: rows that expired before are not on the list.
            soon: rows that expire before are sent again.
            quarantine: for how many seconds requests of an earlier run may still take effect.
            replace: whether a row that the list may have with another content is removed before it is sent, because
                sending only adds.
            find_linked: finds rows that the removal of others removes as well; None if there are none.
            keep_unread: whether nothing is removed if the snapshot has a row whose key cannot be read: it may be what
                would be removed.
            on_settled: called with each page to which outcomes of an earlier run are applied.
            on_compared: called with each page that is compared.
        """
        ...

    async def begin(self, *, expires: datetime | None = None, on_page: OnPage = ignore_page) -> None:
        """Store the plan: from now on its rows are in doubt until their outcome is recorded.

        Args:
            expires: when the rows that are sent will expire.
            on_page: called with each page that is written.
        """

    def removals(self, stage: Stage) -> AsyncIterator[Sequence[Removal]]:
        """Iterate over the rows to remove in a stage, some at a time; their numbers are consecutive."""
        ...

    def upserts(self, rows: Iterable[T], stage: Stage) -> Iterator[T]:
        """Select the rows to send in a stage from the rows of the snapshot, read again from its start."""
        ...

    def find_upserts(self, rows: range, stage: Stage) -> Sequence[int]:
        """Return which of some rows of the snapshot are sent in a stage, counted from the first of them."""
        ...

    def find_position(self, number: int) -> int:
        """Return the position in the snapshot of an upsert."""
        ...

    def is_change(self, position: int) -> bool:
        """Return whether the list has a row to send with another content; it may be asked until `begin`."""
        ...

    def find_rest(self, now: ClockReading, quarantine: float) -> float:
        """Return for how many seconds requests of earlier runs may still take effect."""
        ...

    def forget_late(self, now: ClockReading, quarantine: float) -> None:
        """Note that requests of earlier runs can take effect no more, if that is so."""

    async def find_sent(self, governor: str) -> Mapping[Part, Sequence[datetime]]:
        """Return when the last requests of each part were sent that a governor has not counted.

        They are never fewer than were sent, and no time is earlier than it was. What is admitted from now on is counted
        by this governor; if it also counted the last request, it has counted all.

        Args:
            governor: identifies it among those of all processes.
        """
        ...

    def start(self, part: Part, stage: Stage) -> None:
        """Turn to a part of the plan; it counts as begun with the first `admit`."""

    async def admit(self, read_clocks: Callable[[], ClockReading]) -> None:
        """Note that a request of the part is about to be sent; when it returns, that is stored.

        Args:
            read_clocks: returns the present moment.
        """

    def check_sendable(self, now: ClockReading) -> None:
        """Make sure that a request may be sent at this moment; call it directly before the bytes go out.

        Raises:
            NoLongerSendable: it was admitted too long ago, and another process may have taken up the state.
        """

    async def finish(self, *, in_doubt: bool, complete: bool) -> None:
        """Note that the part is over.

        Args:
            in_doubt: whether rows without a recorded outcome may have been sent.
            complete: whether all rows have a result.
        """

    def record_accepted(self, part: Part, numbers: Sequence[int]) -> None:
        """Record rows that the service accepted."""

    def record_failed(self, part: Part, numbers: Sequence[int]) -> None:
        """Record rows that certainly had no effect; on the list they are as before."""

    def record_unknown(self, part: Part, numbers: Sequence[int]) -> None:
        """Record rows that failed after they were sent, so that they may be on the list; they are in doubt."""

    def record_service_keys(self, service_keys: Mapping[bytes, str]) -> None:
        """Record the service's own keys of upserts, by their key."""

    async def settle(self, *, on_page: OnPage = ignore_page) -> None:
        """Apply the recorded outcomes to the state; rows of the plan without one are in doubt from now on.

        It is done completely or not at all; the next `compare` repeats it if it was not.

        Args:
            on_page: called with each page that is written.
        """


@attrs.frozen
class Removals:
    """The rows to remove in a stage, some at a time; they can be iterated again.

    Attributes:
        state: the state that lists them.
        stage: the stage.
        first: how many removals there are before.
    """

    state: SyncStore
    stage: Stage
    first: int

    def __aiter__(self) -> AsyncIterator[Sequence[Removal]]:
        return self.state.removals(self.stage)

    async def each(self) -> AsyncIterator[tuple[int, Removal]]:
        """Yield each of them with its position, which counts those of the stage."""
        async for removals in self:
            for removal in removals:
                yield removal.number - self.first, removal

    def record_missing(self, positions: Iterable[int]) -> None:
        """Record rows that need not be removed, because the list does not have them."""
        self.state.record_accepted("removals", [self.first + position for position in positions])


@attrs.frozen
class SelectedRows:
    """The rows to send in a stage.

    Attributes:
        state: the state that selects them.
        stage: the stage.
    """

    state: SyncStore
    stage: Stage

    def choose(self, rows: Iterable[T]) -> Iterator[T]:
        """Select them from the rows of the source, read again from its start."""
        return self.state.upserts(rows, self.stage)

    def find(self, rows: range) -> Sequence[int]:
        """Return which of some consecutive rows of the source are among them, counted from the first of these."""
        return self.state.find_upserts(rows, self.stage)
