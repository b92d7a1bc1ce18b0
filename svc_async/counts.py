"""How many rows a job has read, and what has become of them: read = accepted + coalesced + failed + pending."""

from collections.abc import Mapping
from typing import Self

import attrs

__all__ = ["Counts"]


@attrs.frozen(kw_only=True)
class Counts:
    """Numbers of rows and requests, which are added and subtracted one by one.

    Attributes:
        read: rows read from the source; the sum of the next four.
        accepted: rows that the service confirmed.
        coalesced: rows left out because an equal one is in the same request.
        failed: rows that will not be accepted.
        pending: rows that were read and have no result.
        in_doubt: pending rows that were sent and may have been applied.
        requests: how many times a request was sent.
        partly_valid: rows that have a valid identifier beside an invalid one: with `bad_identifiers="fail"` they are
            among the failed, and `"drop"` would send them; with `"drop"` they were sent without the invalid ones.
    """

    read: int = 0
    accepted: int = 0
    coalesced: int = 0
    failed: int = 0
    pending: int = 0
    in_doubt: int = 0
    requests: int = 0
    partly_valid: int = 0

    @property
    def settled(self) -> int:
        """How many rows have a result."""
        return self.accepted + self.coalesced + self.failed

    @property
    def adds_up(self) -> bool:
        """Whether every row that was read has a result or is pending."""
        return self.read == self.settled + self.pending

    @property
    def counts(self) -> Mapping[str, int]:
        """The numbers by their names."""
        return {name: getattr(self, name) for name in _NAMES}

    def __add__(self, other: "Counts") -> Self:
        """Return the sums; whatever else a value has is kept from the first one."""
        return attrs.evolve(self, **{name: getattr(self, name) + getattr(other, name) for name in _NAMES})

    def __sub__(self, other: "Counts") -> Self:
        """Return the differences; whatever else a value has is kept from the first one."""
        return attrs.evolve(self, **{name: getattr(self, name) - getattr(other, name) for name in _NAMES})


_NAMES = tuple(field.name for field in attrs.fields(Counts))
