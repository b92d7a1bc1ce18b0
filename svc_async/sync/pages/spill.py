"""Rows on disk, by the page or bucket that they belong to, so that memory stays flat whatever their number.

The files have no name, can be read by this user only, and vanish with the process.
"""

import tempfile
import weakref
from array import array
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import IO, Self

from svc_async.errors import UnusableFile
from svc_async.sync.entries import Entries, has_name
from svc_async.sync.pages.compare import RECORD_SIZE, encode_records
from svc_async.sync.pages.page import KEY_SIZE, REST_SIZE, count_pages, find_page, split_columns, unpack_numbers

__all__ = ["Blobs", "ServiceKeys", "Spill", "report_unwritable"]

_MIN_BUCKETS = 256
_KEPT_ROWS = 32_768
"""Rows that are kept in memory before they are written."""
_ROWS_A_LIST = 32
"""Records of a bucket that are joined at once: more of them would not fit into the cache of the processor."""
_BYTES = 2**8
_LOCATION = Struct("<QQ")


@contextmanager
def report_unwritable(folder: Path) -> Generator[None]:
    """Report that temporary files cannot be written to a folder."""
    try:
        yield
    except OSError as error:
        raise UnusableFile("state", folder, f"cannot hold temporary files: {error.strerror}") from None


class Blobs:
    """Bytes in a file without a name.

    Args:
        folder: the folder of the file.
    """

    def __init__(self, folder: Path) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - `close` closes it
        self._end = 0
        self._finalizer = weakref.finalize(self, self._file.close)

    def close(self) -> None:
        """Close the file, which deletes it; garbage collection does so at the latest."""
        self._finalizer()

    def add(self, *contents: bytes | bytearray | memoryview) -> int:
        """Write bytes at the end, and return where they begin."""
        start = self._file.seek(self._end)  # an earlier call may have failed in the middle
        for content in contents:
            left = memoryview(content)
            while left:
                left = left[self._file.write(left) :]
            self._end += len(content)
        return start

    def read(self, start: int, size: int) -> bytes:
        """Return bytes that were written."""
        self._file.seek(start)
        return self._file.read(size)


class Buckets:
    """Bytes in a file without a name, by the bucket that they belong to.

    Args:
        folder: the folder of the file.
        count: how many buckets there are.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self.count = count
        self._blobs = Blobs(folder)
        self._chunks: list[array[int]] = []

    def close(self) -> None:
        """Close the file, which deletes it."""
        self._blobs.close()

    def add(self, contents: Sequence[bytes | bytearray]) -> None:
        """Write bytes of each bucket, which come after those that were added before."""
        start = self._blobs.add(*contents)
        self._chunks.append(array("Q", accumulate(map(len, contents), initial=start)))

    def read(self, index: int, pages: int) -> bytes:
        """Return the bytes of the buckets that a page has, of which there are as many or fewer."""
        parts: list[bytes] = []
        for chunk in self._chunks:
            for bucket in range(index, self.count, pages):
                start, end = chunk[bucket], chunk[bucket + 1]
                if end > start:
                    parts.append(self._blobs.read(start, end - start))
        return b"".join(parts)


class Spill:
    """The records of a snapshot.

    Args:
        folder: the folder of the files.
        rows: how many rows the state has, which tells how many the snapshot may have.
    """

    def __init__(self, folder: Path, *, rows: int) -> None:
        self.buckets = max(_MIN_BUCKETS, count_pages(rows))
        self._records = Buckets(folder, self.buckets)
        self._names = Blobs(folder)
        self._joined_rows = _ROWS_A_LIST * self.buckets
        self._kept_rows = max(_KEPT_ROWS, self._joined_rows)
        self._kept = self._listed = 0
        self._lists: list[list[bytes]] = [[] for _ in range(self.buckets)]
        self._joined: list[list[bytes]] = []
        # The table of two bytes would take most of the processor's cache.
        heads = _BYTES if self.buckets <= _BYTES else _BYTES**2
        self._table: Sequence[Callable[[bytes], None]] = [each.append for each in self._lists] * (heads // self.buckets)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files, which deletes them."""
        self._records.close()
        self._names.close()

    def add(self, entries: Entries) -> None:
        """Add rows of the snapshot, which come after those that were added before."""
        if not entries.positions:
            return
        rests = entries.rests
        if entries.names:  # which are written apart; the record says where
            bounds = accumulate(map(len, entries.names), initial=self._names.add(b"".join(entries.names)))
            rests = bytearray(rests or bytes(REST_SIZE * len(entries.names)))
            for row, (first, end) in enumerate(pairwise(bounds)):
                if has_name(entries.kinds[row]):
                    rests[REST_SIZE * row : REST_SIZE * (row + 1)] = _LOCATION.pack(first, end - first)
        records, table = encode_records(entries, rests), self._table
        heads: Sequence[int] = (  # the first byte of each key, or as a number the first two
            records[::RECORD_SIZE]
            if self.buckets <= _BYTES
            else unpack_numbers("H", memoryview(records).cast("H")[:: RECORD_SIZE // 2].tobytes())
        )
        for head, record in zip(heads, split_columns(records, f"{RECORD_SIZE}s"), strict=True):
            table[head](record)
        self._listed += len(entries.positions)
        if self._listed >= self._joined_rows:
            self._join()
        if self._kept >= self._kept_rows:
            self.flush()

    def _join(self) -> None:
        """Join the records of each bucket."""
        self._joined.append([b"".join(rows) for rows in self._lists])
        for rows in self._lists:
            rows.clear()
        self._kept, self._listed = self._kept + self._listed, 0

    def flush(self) -> None:
        """Write what is kept in memory."""
        self._join()
        self._records.add(list(map(b"".join, zip(*self._joined, strict=True))))
        self._joined, self._kept = [], 0

    def read(self, index: int, pages: int) -> bytes:
        """Return the records of a page, in the order in which they were added; `flush` first."""
        return self._records.read(index, pages)

    def read_name(self, rest: bytes) -> bytes:
        """Return the name of a row, given what its record has in place of the rest of a hash."""
        return self._names.read(*_LOCATION.unpack(rest))


_KEPT_BYTES = 2**22
"""Bytes that are kept in memory before they are written."""
_HEAD = Struct(f"<{KEY_SIZE}sI")


class ServiceKeys:
    """The service's own keys; those that do not fit into memory are in a file without a name.

    Args:
        folder: the folder of the file.
        pages: how many pages the state has.
    """

    def __init__(self, folder: Path, pages: int) -> None:
        self._folder = folder
        self._pages = pages
        self._buckets: Buckets | None = None
        self._waiting = [bytearray() for _ in range(pages)]
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._buckets is not None:
            self._buckets.close()

    def add(self, keys: Iterable[bytes], service_keys: Iterable[bytes]) -> None:
        """Add the service's keys of rows; the last of a row counts.

        Raises:
            ValueError: there are not as many of the one as of the other.
            OSError: the file cannot be written.
        """
        for key, service_key in zip(keys, service_keys, strict=True):
            packed = _HEAD.pack(key, len(service_key)) + service_key
            self._waiting[find_page(key, self._pages)] += packed
            self._size += len(packed)
        if self._size >= _KEPT_BYTES:
            self._buckets = self._buckets or Buckets(self._folder, self._pages)
            self._buckets.add(self._waiting)
            self._waiting = [bytearray() for _ in range(self._pages)]
            self._size = 0

    def read(self, index: int) -> Mapping[bytes, bytes]:
        """Return the service's keys of the rows of a page, by the key of the row."""
        written = b"" if self._buckets is None else self._buckets.read(index, self._pages)
        packed = written + self._waiting[index]
        found: dict[bytes, bytes] = {}
        start = 0
        while start < len(packed):
            key, size = _HEAD.unpack_from(packed, start)
            start += _HEAD.size + size
            found[key] = packed[start - size : start]
        return found
