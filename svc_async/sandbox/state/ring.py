"""A log that keeps its latest entries only."""

from collections.abc import Iterator
from typing import Generic, TypeVar, overload

__all__ = ["Ring"]

T = TypeVar("T")


class Ring(Generic[T]):
    """The latest `size` entries of a log, as a sequence.

    Attributes:
        total: how many entries there were so far; the next one has this number.
        begin: the number of the first entry since `clear()`.
    """

    def __init__(self, size: int) -> None:
        self._size = max(size, 1)
        self._entries: list[T] = []
        self.begin = 0
        self.total = 0

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        numbers = range(self._first, self.total)[index]
        if isinstance(numbers, int):
            return self._entries[self._find_place(numbers)]
        return [self._entries[self._find_place(number)] for number in numbers]

    def __iter__(self) -> Iterator[T]:
        """Iterate without a copy; entries that are added or dropped meanwhile are taken into account."""
        number = self._first
        while (number := max(number, self._first)) < self.total:
            yield self._entries[self._find_place(number)]
            number += 1

    def append(self, entry: T) -> None:
        """Add an entry, in the place of the oldest one if there is no room."""
        if len(self._entries) < self._size:
            self._entries.append(entry)
        else:
            self._entries[self._find_place(self.total)] = entry
        self.total += 1

    def replace(self, number: int, entry: T) -> None:
        """Replace the entry with this number, unless it was dropped."""
        if number >= self._first:
            self._entries[self._find_place(number)] = entry

    def clear(self) -> None:
        """Drop all entries; numbers continue, so that no later entry is taken for one of them."""
        self._entries.clear()
        self.begin = self.total

    def _find_place(self, number: int) -> int:
        return (number - self.begin) % self._size

    @property
    def _first(self) -> int:
        return self.total - len(self._entries)
