"""Where batches are sent, and what the answers mean for their rows; no I/O."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import attrs

from svc_async.batch.packing.batch import Batch, Limits, OperationGroup
from svc_async.errors import ErrorDetail
from svc_async.wire.dialect import Dialect
from svc_async.wire.route import Request

__all__ = ["Destination", "Verdict", "describe_dialect"]

T = TypeVar("T")


@attrs.frozen
class Verdict:
    """What an answer means for the rows of a batch, by their index in it; rows in neither field are accepted.

    Attributes:
        refused: the rows that were refused.
        unknown: the rows that the answer does not mention; their operations hold one row each.
    """

    refused: Mapping[int, ErrorDetail] = attrs.field(factory=dict)
    unknown: Collection[int] = ()


def describe_dialect(dialect: Dialect | None) -> Mapping[str, str]:
    """Return what a journal keeps of the words of a job: with other ones, other bytes would be sent."""
    return {} if dialect is None else {"dialect": dialect.digest}


class Destination(Protocol[T]):
    """Where batches are sent, and what the answers mean."""

    @property
    def about(self) -> Mapping[str, Any]:
        """What identifies the job in a journal, as values for JSON: the host, the list, what changes its rows."""
        ...

    @property
    def limits(self) -> Limits:
        """What one request may hold."""
        ...

    @property
    def empty(self) -> Request[T]:
        """The request without a body."""
        ...

    def parse_group(self, plain: Any) -> OperationGroup:
        """Parse a group from its plain values."""
        ...

    def build_request(self, batch: Batch) -> Request[T]:
        """Return the request that carries a batch."""
        ...

    def evaluate(self, answer: T, batch: Batch) -> Verdict | None:
        """Return what the answer means for the rows; None if it counts other rows than were sent."""
        ...

    def name_rows(self, batch: Batch) -> Sequence[str | None]:
        """Return what failures call the rows, in their order: the ids of products; nothing where rows have no names."""
        ...

    def redact(self, reason: ErrorDetail, row: str) -> ErrorDetail:
        """Remove from the service's message what it repeats of a row, given in JSON."""
        ...
