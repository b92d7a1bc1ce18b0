"""The users of a snapshot on disk, encoded, so that their source is read only once."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from svc_async.batch.sync.pages.spill import Blobs
from svc_async.users.encoding import EncodedUsers
from svc_async.users.packed import HashedUsers, PackedUsers, TextUsers
from svc_async.users.template import RowTemplate
from svc_async.users.user_columns import UserColumns

__all__ = ["UserSpill"]


class UserSpill:
    """The users of a snapshot, in their order, in a file without a name.

    Args:
        folder: the folder of the file.
    """

    def __init__(self, folder: Path) -> None:
        self._blobs = Blobs(folder)
        self._ends = array("Q", [0])
        self._rows = array("Q", [0])
        self._templates: list[RowTemplate] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._blobs.close()

    def add(self, users: UserColumns) -> None:
        """Add a slice, which comes after those that were added before."""
        written = msgspec.msgpack.encode(
            (
                self._number(users.template),
                *_list_contents(users.pack()),
                None if isinstance(users.indexes, range) else users.indexes,
                users.invalid,
                dict(users.attributes),
                users.partly_valid,
            )
        )
        self._blobs.add(written)
        self._ends.append(self._ends[-1] + len(written))
        self._rows.append(self._rows[-1] + len(users.indexes) + len(users.invalid))

    def read(self, select: Callable[[range], Sequence[int]]) -> Iterator[EncodedUsers]:
        """Yield each slice of which rows are selected, with these rows only.

        Args:
            select: returns which of some consecutive rows are selected, counted from the first of them.
        """
        for number in range(len(self._ends) - 1):
            rows = range(self._rows[number], self._rows[number + 1])
            selected = select(rows)
            if selected:
                start, end = self._ends[number], self._ends[number + 1]
                yield self._decode(self._blobs.read(start, end - start), len(rows), selected)

    def _number(self, template: RowTemplate) -> int:
        if template not in self._templates:
            self._templates.append(template)
        return self._templates.index(template)

    def _decode(self, written: bytes, count: int, selected: Sequence[int]) -> EncodedUsers:
        number, first, second, indexes, invalid, attributes, partly_valid = msgspec.msgpack.decode(written)
        users = TextUsers(first, second) if isinstance(second, str) else HashedUsers(first, second)
        indexes = range(count) if indexes is None else indexes
        if len(selected) < count:
            ranks = dict(zip(selected, range(count), strict=False))
            places = [place for place, index in enumerate(indexes) if index in ranks] if invalid else selected
            (users,) = users.distribute([places])
            indexes = _renumber(indexes, ranks) if invalid else range(len(selected))
            invalid = {ranks[index]: rule for index, rule in invalid.items() if index in ranks}
            attributes = {ranks[index]: name for index, name in attributes.items() if index in ranks}
            partly_valid = _renumber(partly_valid, ranks)
        return EncodedUsers(self._templates[number], users, indexes, invalid, attributes, len(partly_valid))


def _list_contents(users: PackedUsers) -> tuple[bytes, bytes | str]:
    return (users.digests, users.present) if isinstance(users, HashedUsers) else (users.keys, users.text)


def _renumber(indexes: Iterable[int], ranks: Mapping[int, int]) -> Sequence[int]:
    """Return the ranks of those indexes that have one."""
    return [ranks[index] for index in indexes if index in ranks]
