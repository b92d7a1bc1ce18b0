"""Divides an amount of memory among the jobs of a session."""

from types import TracebackType
from typing import Self

import attrs

__all__ = ["MEMORY", "MemoryBudget", "MemoryShare"]

MEMORY = 48 * 2**20
"""Bytes of row data that the jobs of a session hold by default."""
_LEAST_PART = 4
"""A job may hold this part of an equal share even while others hold too much, so that it always proceeds."""


@attrs.frozen(eq=False)
class MemoryBudget:
    """Bytes of row data that all jobs of a session may hold together.

    Each of the jobs that run has an equal share. One that holds more when others begin reads nothing more until its
    requests were answered. While it holds more than twice its share, the others have less than theirs.

    Attributes:
        total: the bytes.
    """

    total: int = MEMORY
    _shares: "list[MemoryShare]" = attrs.field(factory=list, init=False, repr=False)

    def create_share(self) -> "MemoryShare":
        """Return the share of a job; it counts while it is entered."""
        return MemoryShare(self.total, self._shares)


@attrs.define(eq=False)
class MemoryShare:
    """The share of one job; a context manager for the time in which it runs.

    Attributes:
        held: the bytes that the job holds, kept up to date by the job.
    """

    _total: int
    _shares: "list[MemoryShare]" = attrs.field(repr=False)
    held: int = attrs.field(default=0, init=False)

    @property
    def allowance(self) -> int:
        """The bytes that the job may hold now."""
        equal = self._total // len(self._shares)
        excess = sum(max(0, share.held - 2 * equal) for share in self._shares if share is not self)
        return max(equal - excess, equal // _LEAST_PART)

    def __enter__(self) -> Self:
        self._shares.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shares.remove(self)
