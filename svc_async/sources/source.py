"""What a job needs to know about where its rows come from."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import attrs

from svc_async.users.encoding import Rows

__all__ = ["Feed", "Origin", "Replay", "Source", "UnparsedRow"]

T = TypeVar("T")


@attrs.frozen
class Replay(Generic[T]):
    """Rows that begin anew each time they are asked for."""

    _begin: Callable[[], Iterator[T]]

    def __iter__(self) -> Iterator[T]:
        return self._begin()


class Origin(Protocol):
    """Rows or products that can be read again, each at the same position every time."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    @property
    def ignored(self) -> Sequence[str]:
        """The names of the columns that are left out."""
        ...

    @property
    def size(self) -> int:
        """How much there is to read, in units of its own; at least 1."""
        ...

    @property
    def bytes_read(self) -> int:
        """How much of it has been read, in the same units."""
        ...

    @property
    def exhausted(self) -> bool:
        """Whether the last row has been given."""
        ...

    async def check(self) -> None:
        """Look through all of it for what would stop a job half-way, before anything is sent.

        Raises:
            InvalidArgument: names the line or row and the rule that it breaks, never the value.
        """
        ...

    async def fingerprint(self) -> str:
        """Give a digest of the content and of what decides its meaning: equal for equal rows at equal positions."""
        ...

    def line(self, position: int) -> int | None:
        """Give the line on which a row begins that has been given, counted from 1; None where there are no lines."""
        ...

    def close(self) -> None:
        """Let go of what is held."""
        ...


class Source(Origin, Protocol):
    """Rows of people."""

    @property
    def columns(self) -> Sequence[str]:
        """The service's keys that there may be values of."""
        ...

    def rows(self) -> Rows:
        """Give the rows from the start, for an uploader; positions count them from 0."""
        ...


class Feed(Origin, Protocol):
    """Products of a merchant."""

    def products(self) -> Iterable[Mapping[str, Any]]:
        """Give the products from the start, for an uploader; positions count them from 0."""
        ...


class UnparsedRow(dict[str, Any]):
    """A row that its source could not take for a product; it fails, for this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason
