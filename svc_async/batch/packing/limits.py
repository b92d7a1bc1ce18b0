"""What one request may hold."""

import attrs

from svc_async.batch.packing.operations import (
    ARRAY,
    OperationFrame,
    OperationGroup,
    count_operations,
    measure_operations,
)
from svc_async.users.template import RowTemplate

__all__ = ["Limits"]


@attrs.frozen(kw_only=True)
class Limits:
    """What one request may hold.

    Attributes:
        operations: operations in a request.
        size: bytes of a body, by default those of audience users (contract CAU-02).
        per_operation: users in an operation.
        wrapper: the JSON around the operations of a body; it counts.
        distinct: whether a key must not occur twice in a request, even where no order is required.
    """

    operations: int
    size: int = 5_000_000
    per_operation: int = 1
    wrapper: OperationFrame = ARRAY
    distinct: bool = False

    @property
    def empty_size(self) -> int:
        """The bytes of a body without operations, less the comma that the last operation goes without."""
        return self.wrapper.size - 1

    def measure(self, group: OperationGroup, template: RowTemplate, rows: int, payload_size: int) -> tuple[int, int]:
        """Count the operations of rows, and their bytes with the comma or bracket that follows each operation."""
        operations = count_operations(rows, self.per_operation)
        return operations, measure_operations(template, group.overhead, operations, rows, payload_size)

    def allow_row(self, group: OperationGroup, template: RowTemplate, payload_size: int) -> bool:
        """Return whether a request can hold a row of which the user has this many bytes."""
        _, size = self.measure(group, template, 1, payload_size)
        return self.empty_size + size <= self.size

    def measure_fullness(self, operations: int, size: int) -> float:
        """Return the share of a request that this many operations and bytes fill."""
        return max(operations / self.operations, (size - self.empty_size) / (self.size - self.empty_size))

    def allow(self, operations: int, size: int) -> bool:
        """Return whether a request can have this many operations and bytes."""
        return operations <= self.operations and size <= self.size
