"""Bytes that can be read again: a regular file or a spooled stream, compressed or not.

The compression is detected from the first bytes, not from a name. Bytes are decompressed while they are read, so memory
use stays constant.
"""

import asyncio
import os
import re
import sys
import tempfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from hashlib import sha256
from importlib import import_module
from io import BufferedReader, RawIOBase
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from svc_async.errors import Hint, UnusableFile

if TYPE_CHECKING:
    from bz2 import BZ2Decompressor
    from lzma import LZMADecompressor

__all__ = [
    "MAX_RATIO",
    "ROW_WORK",
    "ByteReader",
    "FileInput",
    "Input",
    "SpooledInput",
    "TemporaryInput",
    "bound_work",
    "compute_digest",
    "open_input",
    "unusable",
]

_MAX_WINDOW = 134_217_728
"""Bytes of memory that decompressing may use; the largest preset of xz, -9, needs half of them."""
_COMPRESSED_BLOCK = 16_384
_MAX_SILENCE = 4_194_304
"""Compressed bytes without any content; a block of bzip2, which is decompressed as a whole, has 900,000."""
_MAX_EMPTY_MEMBERS = 10_000


class _GzipDecompressor:
    """A member of gzip; zlib parses its header and verifies its checksum."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        plain = self._stream.decompress(self._stream.unconsumed_tail + data, max_length)
        self.needs_input = not self._stream.unconsumed_tail and len(plain) < max_length
        return plain


class _DecompressedReader(RawIOBase):
    """Reads a file of one or more members, between which there may be padding."""

    def __init__(self, raw: BinaryIO, magic: bytes, start: "Callable[[], _Decompressor]") -> None:
        self._raw = raw
        self._magic = magic
        self._start = start
        self._rest = b""
        self._member: _Decompressor | None = None
        self._silence = 0
        self._is_empty = True
        self._empty_members = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        plain = b""
        while not plain:
            member = self._member = self._member or self._start_member()
            if member is None:
                return 0
            block, self._rest = self._rest or (self._raw.read(_COMPRESSED_BLOCK) if member.needs_input else b""), b""
            if member.needs_input and not block:
                raise EOFError
            self._silence += len(block)
            plain = member.decompress(block, len(buffer))
            self._count(member, plain)
        buffer[: len(plain)] = plain
        return len(plain)

    def _count(self, member: "_Decompressor", plain: bytes) -> None:
        if plain:
            self._silence, self._is_empty = 0, False
        elif self._silence > _MAX_SILENCE:
            raise zlib.error("more data without content than any file has")
        if member.eof:
            self._rest, self._member = member.unused_data, None
            self._empty_members += self._is_empty
            if self._empty_members > _MAX_EMPTY_MEMBERS:
                raise zlib.error("more members without content than any file has")

    def _start_member(self) -> "_Decompressor | None":
        """Start the next member; return None if there is no more."""
        while not (rest := self._rest.lstrip(b"\0")):
            self._rest = self._raw.read(_COMPRESSED_BLOCK)
            if not self._rest:
                return None
        self._rest = rest if len(rest) >= len(self._magic) else rest + self._raw.read(_COMPRESSED_BLOCK)
        if not self._rest.startswith(self._magic):
            raise zlib.error("neither another member nor padding")
        self._is_empty = True
        return self._start()


if TYPE_CHECKING:
    _Decompressor = _GzipDecompressor | BZ2Decompressor | LZMADecompressor
    """Decompresses one member."""


def _open_gzip(raw: BinaryIO) -> Any:
    return BufferedReader(_DecompressedReader(raw, _GZIP, _GzipDecompressor))


def _open_bzip2(raw: BinaryIO) -> Any:
    return BufferedReader(_DecompressedReader(raw, _BZIP2, import_module("bz2").BZ2Decompressor))


def _open_xz(raw: BinaryIO) -> Any:
    lzma = import_module("lzma")
    return BufferedReader(
        _DecompressedReader(raw, _XZ, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_WINDOW))
    )


def _open_zstd(raw: BinaryIO) -> Any:
    """Open Zstandard with Python 3.14, or with the extra `feeds`; both refuse a window of more than 128 MiB."""
    try:
        zstd = import_module("compression.zstd")
    except ImportError:
        arrow = import_module("pyarrow")
        return arrow.CompressedInputStream(arrow.PythonFile(raw, mode="r"), "zstd")
    return BufferedReader(_DecompressedReader(raw, _ZSTD, zstd.ZstdDecompressor))


_GZIP, _BZIP2, _XZ, _ZSTD = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"
_OPENERS: Mapping[bytes, tuple[Callable[[BinaryIO], Any], str]] = MappingProxyType(
    {
        _GZIP: (_open_gzip, ""),
        _BZIP2: (_open_bzip2, "bzip2, without which this Python was built"),
        _XZ: (_open_xz, "xz, without which this Python was built"),
        _ZSTD: (
            _open_zstd,
            'Zstandard, which needs Python 3.14 or the extra "feeds": pip install "svc-async[feeds]"',
        ),
    }
)
"""Openers by the first bytes of a file, and why one may be missing, which raises ImportError.

`read` of what they return may raise EOFError, OSError, zlib.error or LZMAError.
"""
_MAX_MAGIC = max(map(len, _OPENERS))
_is_url = re.compile(r"\w+:/.*").fullmatch  # a path that a program made of a URL has one slash left
_BLOCK = 1_048_576
MAX_RATIO = 1_100
"""Times that a file may expand; gzip expands 1,032 times at most, files of people far less."""
ROW_WORK = 64
"""Bytes that a row or a value of a compressed file counts as, besides its content: it becomes an object."""
_CELL_WORK = 8
_ALWAYS_ALLOWED = 67_108_864
"""Bytes to which any file may expand."""


def bound_work(size: int) -> int:
    """Return the most bytes that a file of a size may become, with `ROW_WORK` for each row or value."""
    return max(_ALWAYS_ALLOWED, size * MAX_RATIO)


class Input(ABC):
    """Bytes that can be read again.

    Attributes:
        name: the name to show to users.
        size: its number of stored bytes.
        lines_before: how many lines come before it, if it is a part of a file, so that messages name the lines of the
            file.
    """

    name: str
    size: int
    lines_before: int = 0

    @abstractmethod
    def open(self) -> BinaryIO:
        """Return the stored bytes from the start, seekable.

        Raises:
            UnusableFile: they cannot be read, or have changed.
        """

    def check_unchanged(self) -> None:  # noqa: B027 - only some can change
        """Check that it is unchanged since it was first opened.

        Raises:
            UnusableFile: it has changed.
        """

    def close(self) -> None:  # noqa: B027 - only some hold something
        """Release it."""


def unusable(name: str, problem: str, hint: Hint | None = None) -> UnusableFile:
    """Return the error that says what is wrong with an input."""
    return UnusableFile("file", name, problem, hint=hint)


def open_input(source: str | Path | Input) -> Input:
    """Return the input at a path."""
    return FileInput(source) if isinstance(source, str | Path) else source


class FileInput(Input):
    """A regular file that does not change while it is read.

    Args:
        path: the file.

    Raises:
        UnusableFile: it does not exist, is empty, or is not a regular file.
    """

    def __init__(self, path: str | Path) -> None:
        self.name = str(path)
        self._path = Path(path)
        if not self.name:
            raise unusable("''", "is not a name of a file: the argument is empty")
        if self._path.is_dir():
            raise unusable(self.name, "is a folder")
        if not self._path.exists():
            if _is_url(self.name):
                raise unusable(self.name, "is a URL, which is not fetched", Hint.DOWNLOAD_IT)
            is_pattern = not {*"*?["}.isdisjoint(self.name)
            raise unusable(self.name, "does not exist", Hint.GIVE_ONE_FILE if is_pattern else None)
        if not self._path.is_file():
            raise unusable(self.name, "must be a regular file, which can be read twice")
        stat = self._path.stat()
        self.size = stat.st_size
        if not self.size:
            raise unusable(self.name, "is empty")
        self._version = _describe_version(stat)

    def open(self) -> BinaryIO:
        """Open it from the start.

        Raises:
            UnusableFile: it cannot be read, or has changed.
        """
        self.check_unchanged()
        try:
            return self._path.open("rb")
        except OSError as error:
            raise unusable(self.name, f"cannot be read: {error.strerror}") from None

    def check_unchanged(self) -> None:
        """Compare size, time and inode with the first ones.

        Raises:
            UnusableFile: they differ, or the file does not exist any more.
        """
        try:
            unchanged = _describe_version(self._path.stat()) == self._version
        except OSError as error:
            raise unusable(self.name, f"cannot be read: {error.strerror}") from None
        if not unchanged:
            raise unusable(self.name, "was changed while it was in use; start again with a file that does not change")


def _describe_version(stat: os.stat_result) -> tuple[int, int, int]:
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


class TemporaryInput(Input):
    """An anonymous temporary file, which is deleted when it is closed; no other process can change it.

    Args:
        name: the name to show to users.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.size = 0
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the input

    def open(self) -> BinaryIO:
        """Return the bytes from the start; several readers are independent of each other."""
        return BufferedReader(_SharedFileReader(self._file))

    def close(self) -> None:
        """Delete it."""
        self._file.close()


_MAX_SPOOL = 2**36  # 64 GiB


class SpooledInput(TemporaryInput):
    """A stream that is copied to a temporary file.

    Args:
        stream: read to its end.
        name: the name to show to users.
        max_bytes: the most bytes that it may have.

    Raises:
        UnusableFile: it is empty or too long, or the disk is full.
    """

    def __init__(self, stream: BinaryIO, *, name: str = "standard input", max_bytes: int = _MAX_SPOOL) -> None:
        super().__init__(name)
        with ExitStack() as undo:
            undo.callback(self.close)
            try:
                while block := stream.read(_BLOCK):
                    self.size += len(block)
                    if self.size > max_bytes:
                        raise unusable(name, f"has more than {max_bytes:,} bytes; split it, or compress it")
                    self._file.write(block)
                self._file.flush()
            except OSError as error:
                raise unusable(name, f"cannot be spooled to {tempfile.gettempdir()}: {error.strerror}") from None
            if not self.size:
                raise unusable(name, "is empty")
            undo.pop_all()


class _SharedFileReader(RawIOBase):
    """Reads a shared file from a position of its own."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._file.seek(self._at)
        self._at = self._file.seek(offset, whence)
        return self._at

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self._at)
        count: int = self._file.readinto(buffer)
        self._at += count
        return count


class ByteReader:
    """Reads an input from the start, decompressed.

    Attributes:
        stored: how many stored bytes have been read.

    Raises:
        UnusableFile: the input cannot be read.
    """

    def __init__(self, source: Input) -> None:
        self.stored = 0
        self._work = 0
        self._input = source
        self._checks_each_block = isinstance(source, FileInput)  # for others it may be a request to a storage
        self._raw: Any = source.open()
        try:
            first = self._guard(lambda: self._raw.read(_MAX_MAGIC))
            self._raw.seek(0)
            self._plain = self._raw
            for magic, (open_, missing) in _OPENERS.items():
                if first.startswith(magic):
                    try:
                        self._plain = open_(self._raw)
                    except ImportError:
                        raise unusable(source.name, f"is compressed with {missing}") from None
        except BaseException:
            self._raw.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._raw.close()

    @property
    def is_compressed(self) -> bool:
        """Whether the stored bytes are compressed."""
        return self._plain is not self._raw

    def read(self, size: int) -> bytes:
        """Return the next bytes; none at the end.

        Raises:
            UnusableFile: they are truncated or damaged, or the file was changed.
        """
        block = self._guard(lambda: self._plain.read(size))
        self.stored = self._raw.tell()
        if self.is_compressed:
            lines, tags = max(block.count(b"\n"), block.count(b"\r")), block.count(b"<")
            cells = max(map(block.count, (b",", b";", b"\t", b"|")))
            self._work += len(block) + (lines + tags) * ROW_WORK + cells * _CELL_WORK
            if self._work > bound_work(self._input.size):
                raise unusable(self._input.name, f"expands more than {MAX_RATIO:,} times when it is decompressed")
        if not block or self._checks_each_block:  # no row of a changed file is sent, and none comes into a journal
            self._input.check_unchanged()
        return block

    def skip(self, size: int) -> None:
        """Read bytes and drop them.

        Raises:
            UnusableFile: as for `read`.
        """
        while size and (block := self.read(min(size, _BLOCK))):
            size -= len(block)

    def _guard(self, read: Callable[[], bytes]) -> bytes:
        name = self._input.name
        try:
            return read()
        except EOFError:
            raise unusable(name, "is truncated: its compressed data has no end") from None
        except _find_lzma_error() as error:
            if "limit" in str(error):
                raise unusable(name, f"needs more than {_MAX_WINDOW >> 20} MiB of memory; use xz -9") from None
            raise unusable(name, "is damaged: it cannot be decompressed") from None
        except zlib.error:
            raise unusable(name, "is damaged: it cannot be decompressed") from None
        except OSError as error:
            problem = f"cannot be read: {error.strerror}" if error.errno else "is damaged or truncated"
            raise unusable(name, problem) from None


def _find_lzma_error() -> type[Exception] | tuple[()]:
    """Return what lzma raises; nothing if it is not loaded."""
    return getattr(sys.modules.get("lzma"), "LZMAError", ())


async def compute_digest(source: Input, *settings: object) -> str:
    """Return a digest of all stored bytes, and of the settings that decide what they mean.

    The whole content is read, because the modification time changes with a copy and may not change with a restored
    file; `check` reads it all anyway, and SHA-256 processes about 1.5 GB per second.
    """
    digest = sha256(repr(settings).encode())
    with source.open() as raw:
        while block := raw.read(_BLOCK):
            digest.update(block)
            await asyncio.sleep(0)
    source.check_unchanged()
    return digest.hexdigest()
