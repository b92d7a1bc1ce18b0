"""The rows of a shard: divided by key, kept on the disks of workers, and put together in the same order in each run."""

import tempfile
import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from pickle import PickleBuffer
from typing import Any, SupportsIndex

import attrs
import msgspec
import numpy as np
from dask import config

from svc_async.batch.packing.positions import PositionRun, Positions
from svc_async.cluster.plan import SourcePlan
from svc_async.sources.product_attributes import UnparsedRow
from svc_async.sources.source import ReplayableRows
from svc_async.sync.pages.spill import Blobs
from svc_async.users.encoding import EncodedSlices, EncodedUsers
from svc_async.users.packed import PLAIN, HashedUsers, PackedUsers, RowTemplate, TextUsers

__all__ = [
    "MAX_SHARDS",
    "CatalogRows",
    "Piece",
    "RefusedRows",
    "RowPlace",
    "ShardPart",
    "ShardRows",
    "UserRows",
    "divide_keys",
    "divide_users",
    "read_parts",
    "write_parts",
]

_FILE_SIZE = 67_108_864
"""Bytes after which another file is begun; a file is deleted when none of its pieces is left."""
_BUFFERS = 5
"""The protocol of pickle from which buffers are not copied."""


class _PieceFiles:
    """The files of this process, which any thread may use.

    They have no name, can be read by this user only, and vanish with the process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._file: Blobs | None = None
        self._size = 0

    def add(self, content: memoryview) -> tuple[Blobs, int]:
        """Write bytes; return the file and where they begin."""
        with self._lock:
            if self._file is None or self._size >= _FILE_SIZE:
                self._file = Blobs(Path(config.get("temporary-directory", None) or tempfile.gettempdir()))
                self._size = 0
            self._size += len(content)
            return self._file, self._file.add(content)

    def read(self, file: Blobs, start: int, size: int) -> bytes:
        """Return bytes that were written."""
        with self._lock:
            return file.read(start, size)


_FILES = _PieceFiles()


class Piece:
    """Rows of one fragment for one shard. On their way to another worker they are bytes.

    Args:
        content: the rows, as `parts.write_parts` writes them.

    Raises:
        OSError: the disk is full, or cannot be written.
    """

    __slots__ = ("_file", "_size", "_start")

    def __init__(self, content: bytes | PickleBuffer) -> None:
        with memoryview(content) as view:
            self._size = len(view)
            self._file, self._start = _FILES.add(view)

    def __len__(self) -> int:
        return self._size

    def __sizeof__(self) -> int:
        """Return the bytes of a message with it: Dask limits messages by this."""
        return self._size

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        content = self.read()
        return _receive, (content if int(protocol) < _BUFFERS else PickleBuffer(content),)

    def read(self) -> bytes:
        """Return the rows.

        Raises:
            OSError: they cannot be read.
        """
        return _FILES.read(self._file, self._start, self._size)


class _UnwrittenPiece(Piece):
    """A piece that has arrived and cannot be written: the task that needs it fails.

    An error on its arrival would have Dask send it again without end.
    """

    __slots__ = ("_error",)

    def __init__(self, error: tuple[Any, ...]) -> None:
        self._error = error
        self._size = 0

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return _UnwrittenPiece, (self._error,)

    def read(self) -> bytes:
        raise OSError(*self._error)


def _receive(content: bytes | PickleBuffer) -> Piece:
    try:
        return Piece(content)
    except OSError as error:
        return _UnwrittenPiece(error.args)


MAX_SHARDS = 10_000
_LANE_BITS = 32
"""Bits of a key that do not decide its shard, since the first of them decide its lane."""
_SHORT = 1 << 16
"""Rows within which two bytes are enough for a distance; four are enough within a fragment."""


def divide_keys(keys: Sequence[int], shards: int) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield each shard that keys belong to, and the indexes of these."""
    order, ends = _sort(np.array(keys, dtype=np.uint64), shards)
    for shard, start, end in _list_ranges(ends):
        yield shard, order[start:end].tolist()


def divide_users(users: PackedUsers, rows: Positions, shards: int) -> Iterator[tuple[int, PackedUsers, Positions]]:
    """Yield each shard that users belong to, these users and their rows, in the order in which they were."""
    if not len(users):
        return
    if shards == 1:
        yield 0, users, rows
        return
    size = users.record_size if isinstance(users, HashedUsers) else 0
    if isinstance(users, HashedUsers) and size:
        order, ends = _sort(np.frombuffer(users.digests, dtype=np.uint64)[:: size // 8], shards)
        digests = np.frombuffer(users.digests, dtype=np.uint8).reshape(-1, size)[order]
        present = np.frombuffer(users.present, dtype=np.uint8)[order] if users.present else order[:0]
        parts: Iterator[PackedUsers] = (
            HashedUsers(digests[start:end].tobytes(), present[start:end].tobytes())
            for _, start, end in _list_ranges(ends)
        )
    else:
        order, ends = _sort(np.array(users.list_keys(), dtype=np.uint64), shards)
        parts = users.distribute([order[start:end].tolist() for _, start, end in _list_ranges(ends)])
    places = _list_rows(rows)[order]
    for (shard, start, end), part in zip(_list_ranges(ends), parts, strict=True):
        yield shard, part, _pack_rows(places[start:end])


def _sort(keys: Any, shards: int) -> tuple[Any, Sequence[int]]:
    """Return the indexes of keys by shard, those of one in their order, and where those of each shard end."""
    numbers = ((keys >> np.uint64(_LANE_BITS)) % np.uint64(shards)).astype(np.uint16)
    ends: list[int] = np.cumsum(np.bincount(numbers, minlength=shards)).tolist()
    return np.argsort(numbers, kind="stable"), ends


def _list_ranges(ends: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield the shards that have rows, with where these begin and end."""
    start = 0
    for shard, end in enumerate(ends):
        if end > start:
            yield shard, start, end
        start = end


def _list_rows(rows: Positions) -> Any:
    return np.concatenate(
        [
            np.arange(run.lowest, run.highest + 1)
            if isinstance(run.offsets, range)
            else np.asarray(run.offsets, dtype=np.int64) + run.start
            for run in rows.expand_runs()
        ]
    )


def _pack_rows(places: Any) -> Positions:
    """Pack rows in ascending order."""
    lowest, highest = int(places[0]), int(places[-1])
    typecode, kind = ("H", np.uint16) if highest - lowest < _SHORT else ("I", np.uint32)
    offsets = array(typecode, (places - lowest).astype(kind).tobytes())
    return Positions([PositionRun(lowest, offsets, lowest, highest)])


@attrs.frozen
class UserRows:
    """Users that can be sent.

    Attributes:
        template: the JSON that they have in common.
        users: the users.
        rows: the row of each in its file, counted from 1.
    """

    template: RowTemplate
    users: PackedUsers
    rows: Positions


@attrs.frozen
class CatalogRows:
    """Products, or keys of products.

    Attributes:
        packed: the products, packed: many of them as objects would take ten times the memory.
        rows: the row of each in its file, counted from 1.
    """

    packed: bytes
    rows: Positions

    @classmethod
    def pack(cls, products: Sequence[Any], rows: Positions) -> "CatalogRows":
        """Pack products."""
        return cls(msgspec.msgpack.encode(products), rows)

    def unpack(self) -> Sequence[Any]:
        """Return the products."""
        products: Sequence[Any] = msgspec.msgpack.decode(self.packed)
        return products


@attrs.frozen
class RefusedRows:
    """Rows that break a rule.

    Attributes:
        reasons: the rules, and the identifier that each is about.
        numbers: for each row, which of them it breaks.
        rows: the rows in their file, counted from 1.
        partly_valid: how many rows of the fragment have a valid identifier beside an invalid one.
    """

    reasons: Sequence[tuple[str, str | None]]
    numbers: Sequence[int]
    rows: Positions
    partly_valid: int = 0

    @classmethod
    def pack(cls, rows: Positions, reasons: Iterable[tuple[str, str | None]], partly_valid: int = 0) -> "RefusedRows":
        """Pack rows, given the reason of each."""
        known: dict[tuple[str, str | None], int] = {}
        numbers = [known.setdefault(reason, len(known)) for reason in reasons]
        return cls(list(known), numbers, rows, partly_valid)

    def list_reasons(self) -> Sequence[tuple[str, str | None]]:
        """Return the reason of each row."""
        return [self.reasons[number] for number in self.numbers]


ShardPart = UserRows | CatalogRows | RefusedRows


def write_parts(fragment: int, parts: Iterable[ShardPart]) -> bytes:
    """Return parts of a fragment as bytes, with its number; none are no bytes."""
    plain = [(type(part).__name__, *_to_plain(part)) for part in parts]
    return msgspec.msgpack.encode((fragment, plain)) if plain else b""


def read_parts(content: bytes, templates: dict[Any, RowTemplate]) -> tuple[int, Sequence[ShardPart]]:
    """Return the number of the fragment and the parts that were written.

    Args:
        content: their bytes; there must be some.
        templates: those that were read before; rows share operations only if their template is the same object.
    """
    fragment, parts = msgspec.msgpack.decode(content)
    return fragment, [_PARSERS[kind](templates, *plain) for kind, *plain in parts]


def _to_plain(part: ShardPart) -> tuple[Any, ...]:
    rows = part.rows.to_plain()
    if isinstance(part, UserRows):
        is_hashed = isinstance(part.users, HashedUsers)
        return rows, attrs.astuple(part.template), is_hashed, attrs.astuple(part.users)
    if isinstance(part, CatalogRows):
        return len(part.rows), rows, part.packed
    return rows, part.reasons, part.numbers, part.partly_valid


def _parse_users(
    templates: dict[Any, RowTemplate],
    rows: Any,
    template: Any,
    is_hashed: bool,  # noqa: FBT001 - as it is stored
    users: Any,
) -> UserRows:
    found = templates.setdefault(repr(template), RowTemplate(*template))
    packed = HashedUsers(*users) if is_hashed else TextUsers(*users)
    return UserRows(found, packed, _parse_rows(rows, len(packed)))


def _parse_products(_: object, count: int, rows: Any, packed: bytes) -> CatalogRows:
    return CatalogRows(packed, _parse_rows(rows, count))


def _parse_refused(_: object, rows: Any, reasons: Any, numbers: Any, partly_valid: int) -> RefusedRows:
    return RefusedRows([tuple(reason) for reason in reasons], numbers, _parse_rows(rows, len(numbers)), partly_valid)


def _parse_rows(plain: Any, count: int) -> Positions:
    return Positions.from_plain(plain, most=count)


_PARSERS: Mapping[str, Any] = {
    "CatalogRows": _parse_products,
    "RefusedRows": _parse_refused,
    "UserRows": _parse_users,
}


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
