"""The pieces of an exchange, on the disk of the worker that has them, so that its memory does not grow with the rows.

Dask, too, writes results to disk when there are many, but again each time that one is used or moved. A piece is written
once by the worker that makes it and once by the one that it is sent to.
"""

import tempfile
import threading
from pathlib import Path
from pickle import PickleBuffer
from typing import Any, SupportsIndex

from dask import config

from svc_async.batch.sync.pages.spill import Blobs

__all__ = ["Piece"]

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
