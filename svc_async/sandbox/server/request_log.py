"""What was asked of the sandbox, in order."""

import asyncio
from collections.abc import Iterator, Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from typing import overload

import attrs

__all__ = ["Entry", "Journal"]


@attrs.frozen(kw_only=True)
class Entry:
    """One request and what became of it.

    Attributes:
        headers: names in lower case; signatures and tokens are taken out.
        size: bytes of the body.
        body: the body, if the sandbox keeps bodies.
        status: None while it is not answered, and for good if the answer was withheld.
        operation: the contract's id of the call; empty if there is no such call.
        fault: whether an injected fault had a hand in it.
    """

    number: int
    time: datetime
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    size: int = 0
    body: bytes | None = attrs.field(default=None, repr=False)
    status: int | None = None
    operation: str = ""
    basis: str = ""
    rule: str = ""
    fault: bool = False


class Journal:
    """The requests so far; an entry is there as soon as its request has arrived."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._waiting: list[asyncio.Future[None]] = []

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | list[Entry]:
        return self._entries[index]

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries))

    def matching(self, route: str = "*", *, method: str | None = None, answered: bool = False) -> list[Entry]:
        """Give the requests whose path fits a pattern such as `*/custom_audiences/*/users`."""
        return [
            entry
            for entry in self._entries
            if fnmatchcase(entry.path, route)
            and method in (None, entry.method)
            and (entry.status is not None or not answered)
        ]

    def count(self, route: str = "*", *, method: str | None = None, answered: bool = False) -> int:
        """Count the requests whose path fits a pattern."""
        return len(self.matching(route, method=method, answered=answered))

    async def wait(
        self, *, count: int = 1, route: str = "*", method: str | None = None, answered: bool = False
    ) -> list[Entry]:
        """Wait until so many requests have arrived, or were answered, and give them."""
        while len(found := self.matching(route, method=method, answered=answered)) < count:
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(changed)
            await changed
        return found

    def arrived(self, entry: Entry) -> None:
        """Take note of a request."""
        self._entries.append(entry)
        self._wake()

    def became(self, entry: Entry) -> None:
        """Take note of what became of it."""
        self._entries[entry.number] = entry
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
