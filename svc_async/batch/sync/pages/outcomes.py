"""What became of rows, until it is stored: results come while other tasks run, and are stored in groups."""

from array import array
from collections.abc import Mapping, Sequence

from svc_async.batch.sync.pages.marks import RowOutcome
from svc_async.batch.sync.pages.page import pack_numbers, pack_texts
from svc_async.batch.sync.plan import PARTS, Part
from svc_async.store.records import Changes, encode

__all__ = ["OutcomeQueue"]


class OutcomeQueue:
    """Outcomes and keys that wait to be stored.

    A row whose outcome is lost with the process is in doubt, which is never wrong.
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, int], bytes] = {}
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
        self._waiting = {}
        self._last = dict.fromkeys(self._last, 0)

    def collect(self) -> Changes:
        """Return what waits; `drop` it when it is committed."""
        return {**self._waiting}

    def drop(self, stored: Changes) -> None:
        """Drop what is stored."""
        for key in stored:
            self._waiting.pop(key, None)

    def _append(self, kind: str, *columns: object) -> None:
        self._last[kind] += 1
        self._waiting[kind, self._last[kind]] = encode(columns)
