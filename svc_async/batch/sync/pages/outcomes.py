"""What became of rows, until it is stored: results come while other tasks run, and are stored in groups."""

from array import array
from collections.abc import Mapping, Sequence

from svc_async.batch.sync.pages.marks import RowOutcome
from svc_async.batch.sync.pages.page import pack_numbers, pack_texts
from svc_async.batch.sync.pages.tables import TableWriter
from svc_async.batch.sync.plan import PARTS, Part

__all__ = ["OutcomeQueue"]


class OutcomeQueue:
    """Outcomes and keys that wait to be stored.

    A row whose outcome is lost with the process is in doubt, which is never wrong.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[str, Sequence[object]]] = []
        self._last = {"outcome": 0, "service_key": 0}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, part: Part, outcome: RowOutcome, numbers: Sequence[int]) -> None:
        """Add the outcome of some rows of a part, by their numbers."""
        if numbers:
            first, last = min(numbers), max(numbers)
            is_range = last - first == len(numbers) - 1
            packed = b"" if is_range else pack_numbers(array("I", numbers))
            self._append("outcome", PARTS.index(part), int(outcome), first, len(numbers), packed)

    def add_service_keys(self, service_keys: Mapping[bytes, str]) -> None:
        """Add the service's own keys of rows, by their key."""
        known = {key: text.encode() for key, text in service_keys.items() if text}
        if known:
            self._append("service_key", b"".join(known), pack_texts([*known.values()]))

    def clear(self) -> None:
        """Begin again, since nothing is stored any more."""
        self._waiting = []
        self._last = dict.fromkeys(self._last, 0)

    async def write(self, writer: TableWriter) -> int:
        """Write what waits, and return how much that is; `drop` it when it is committed."""
        waiting = [*self._waiting]
        for table in self._last:
            await writer.put(table, *(row for name, row in waiting if name == table))
        return len(waiting)

    def drop(self, count: int) -> None:
        """Drop what is stored."""
        del self._waiting[:count]

    def _append(self, table: str, *columns: object) -> None:
        self._last[table] += 1
        self._waiting.append((table, (self._last[table], *columns)))
