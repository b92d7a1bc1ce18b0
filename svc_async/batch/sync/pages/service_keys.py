"""The service's own keys of rows on disk, by the page that a row belongs to, while a plan is settled."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import Self

from svc_async.batch.sync.pages.page import KEY_SIZE, find_page
from svc_async.batch.sync.pages.spill import Buckets

__all__ = ["ServiceKeys"]

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
