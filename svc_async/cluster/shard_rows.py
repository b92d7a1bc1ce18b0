"""The rows of a shard, as the source of a job: the same in each run, whatever the order in which they arrived."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any

import attrs

from svc_async.cluster.parts import CatalogRows, RefusedRows, ShardPart, UserRows, read_parts
from svc_async.cluster.plan import SourcePlan
from svc_async.sources.source import ReplayableRows, UnparsedRow
from svc_async.users.encoding import EncodedSlices, EncodedUsers
from svc_async.users.packed import HashedUsers
from svc_async.users.template import PLAIN

__all__ = ["RowPlace", "ShardRows"]


@attrs.frozen
class RowPlace:
    """Where a row of a shard comes from.

    Attributes:
        path: the path or URL of the file.
        row: the line of a text file on which it begins, else the number of the row, counted from 1.
    """

    path: str
    row: int


@attrs.frozen
class ShardRows:
    """The rows of a shard, in the order of the source; those without a key come before the others of their slices.

    Attributes:
        parts: the rows, each with the file that they come from.
    """

    parts: list[tuple[str, ShardPart]]
    _ends: list[int]

    @classmethod
    def read(cls, contents: Iterable[bytes], plan: SourcePlan) -> "ShardRows":
        """Return the rows that `encode_fragment` wrote for one shard, of all fragments and in any order.

        Args:
            contents: the rows of each fragment; no bytes if it has none.
            plan: the plan that they were made by.
        """
        templates: dict[Any, Any] = {}
        fragments = sorted((read_parts(each, templates) for each in contents if each), key=itemgetter(0))
        parts = [(plan.fragments[number].file.source.path, part) for number, parts in fragments for part in parts]
        return cls(parts, list(accumulate(len(part.rows) for _, part in parts)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @property
    def members(self) -> EncodedSlices:
        """The users, for an uploader; they can be read again."""
        return EncodedSlices(_EncodedParts(self))

    @property
    def products(self) -> Iterable[Any]:
        """The products or their keys, for an uploader; they can be read again."""
        return ReplayableRows(lambda: (_list_products(part) for _, part in self.parts))

    def clear(self) -> None:
        """Remove all rows."""
        self.parts.clear()
        self._ends.clear()

    def locate(self, position: int) -> RowPlace:
        """Return where the row at a position comes from."""
        index = bisect_right(self._ends, position)
        path, part = self.parts[index]
        return RowPlace(path, part.rows[position - (self._ends[index] - len(part.rows))])


@attrs.frozen
class _EncodedParts:
    """The users of a shard, which can be iterated again."""

    shard: ShardRows

    def __iter__(self) -> Iterator[EncodedUsers]:
        for _, part in self.shard.parts:
            if isinstance(part, UserRows):
                yield EncodedUsers(part.template, part.users, range(len(part.users)), {})
            elif isinstance(part, RefusedRows):
                yield _refuse_users(part)


def _refuse_users(part: RefusedRows) -> EncodedUsers:
    reasons = part.list_reasons()
    return EncodedUsers(
        template=PLAIN,
        users=HashedUsers(b""),
        indexes=(),
        invalid={index: reason for index, (reason, _) in enumerate(reasons)},
        attributes={index: attribute for index, (_, attribute) in enumerate(reasons) if attribute is not None},
        partly_valid=part.partly_valid,
    )


def _list_products(part: ShardPart) -> Sequence[Any]:
    if isinstance(part, CatalogRows):
        return part.unpack()
    return [UnparsedRow(reason) for reason, _ in part.list_reasons()] if isinstance(part, RefusedRows) else ()
