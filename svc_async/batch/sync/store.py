"""What a sync needs of the store that keeps the state of a list between runs."""

from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from svc_async.batch.sync.plan import Entries, Part, Plan

__all__ = ["SyncStore"]

T = TypeVar("T")


class SyncStore(Protocol):
    """The state of one list.

    A plan is stored before anything is sent, and only what the service accepted changes the state. Rows of a plan
    without a recorded outcome are in doubt: they are sent again if they are in the next snapshot, and removed if not.
    """

    async def compare(
        self, snapshot: AsyncIterable[Entries], *, now: datetime, soon: datetime, replace: bool = False
    ) -> Plan:
        """Return what a whole snapshot changes; nothing of it is stored until `begin`.

        What an earlier run left is settled first. If several rows have the same key, the last one counts.

        Args:
            snapshot: all that the list is to contain.
            now: rows that expired before are not on the list.
            soon: rows that expire before are sent again.
            replace: whether a row with another content is removed before it is sent, because sending only adds.

        Raises:
            UnusableFile: the state cannot be written.
        """
        ...

    def begin(self, *, expires: datetime | None = None) -> None:
        """Store the plan: from now on its rows are in doubt until their outcome is recorded.

        Args:
            expires: when the rows that are sent will expire.
        """

    def removals(self) -> Iterator[tuple[int, bytes, str | None]]:
        """Iterate over the rows to remove: number, name and the service's key, if it is known."""
        ...

    def upserts(self, rows: Iterable[T]) -> Iterator[T]:
        """Select the rows to send from the rows of the snapshot, read again from its start."""
        ...

    def find_position(self, number: int) -> int:
        """Return the position in the snapshot of an upsert."""
        ...

    def record_accepted(self, part: Part, numbers: Sequence[int]) -> None:
        """Record rows that the service accepted."""

    def record_failed(self, part: Part, numbers: Sequence[int]) -> None:
        """Record rows that certainly had no effect; on the list they are as before."""

    def record_service_keys(self, service_keys: Mapping[int, str]) -> None:
        """Record the service's own keys of upserts, by their key."""

    async def settle(self) -> None:
        """Apply the recorded outcomes to the state; rows of the plan without one are in doubt from now on.

        It is done completely or not at all; the next `compare` repeats it if it was not.
        """
