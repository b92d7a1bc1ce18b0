"""Bytes that can be read again: a regular file, or what standard input gave, compressed or not.

What bytes are compressed with is told from how they begin, not from a name. They are decompressed on the way, so that
memory stays flat.
"""

import asyncio
import bz2
import gzip
import lzma
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from importlib import import_module
from io import BufferedReader, RawIOBase
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, BinaryIO, Protocol, Self, TypeVar

from svc_async.errors import InvalidArgument

__all__ = ["Bytes", "FileInput", "Input", "SpooledInput", "as_input", "digest_of", "refused"]

T = TypeVar("T")

_BLOCK = 1_048_576
_XZ_MEMORY = 134_217_728
"""Bytes that decompressing xz may take; the largest preset, -9, takes half of them."""


class Input(Protocol):
    """Bytes that can be read again."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    @property
    def size(self) -> int:
        """How many bytes it has, as they are stored."""
        ...

    def opened(self) -> BinaryIO:
        """Give the stored bytes from the start, seekable."""
        ...

    def check_unchanged(self) -> None:
        """Make sure that it is what it was when it was first looked at.

        Raises:
            InvalidArgument: it has changed.
        """
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


def refused(name: str, what: str) -> InvalidArgument:
    """Say what is wrong with an input."""
    return InvalidArgument("file", f"{name} {what}")


def as_input(source: str | Path | Input) -> Input:
    """Take a path for the file that is there."""
    return FileInput(Path(source)) if isinstance(source, str | Path) else source


class FileInput:
    """A regular file that does not change while it is read.

    Args:
        path: the file.

    Attributes:
        path: the file.
        size: its bytes.

    Raises:
        InvalidArgument: it is not there, empty, or no regular file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = self._size()
        self._state = _state(path.stat())

    @property
    def name(self) -> str:
        """Its path."""
        return str(self.path)

    def opened(self) -> BinaryIO:
        """Open it anew.

        Raises:
            InvalidArgument: it cannot be read, or has changed.
        """
        self.check_unchanged()
        try:
            return self.path.open("rb")
        except OSError as error:
            raise refused(self.name, f"cannot be read: {error.strerror}") from None

    def check_unchanged(self) -> None:
        """Compare size and time with what they were.

        Raises:
            InvalidArgument: they differ, or the file is gone.
        """
        try:
            unchanged = _state(self.path.stat()) == self._state
        except OSError as error:
            raise refused(self.name, f"cannot be read: {error.strerror}") from None
        if not unchanged:
            raise refused(self.name, "was changed while it was in use; start again with a file that stays as it is")

    def close(self) -> None:
        """Nothing is held."""

    def _size(self) -> int:
        if self.path.is_dir():
            raise refused(self.name, "is a folder")
        if not self.path.exists():
            raise refused(self.name, "does not exist")
        if not self.path.is_file():
            raise refused(self.name, "must be a regular file, which can be read twice")
        size = self.path.stat().st_size
        if not size:
            raise refused(self.name, "is empty")
        return size


def _state(stat: os.stat_result) -> tuple[int, int, int]:
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


class SpooledInput:
    """A stream, written to a file without a name, which nobody else can open and which is gone when the job is.

    Args:
        stream: what is read to its end.
        name: what people call it.

    Attributes:
        name: what people call it.
        size: its bytes.

    Raises:
        InvalidArgument: it is empty, or there is no room for it.
    """

    def __init__(self, stream: BinaryIO, *, name: str = "standard input") -> None:
        self.name = name
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the input
        try:
            self.size = self._filled(stream)
        except BaseException:
            self.close()
            raise

    def opened(self) -> BinaryIO:
        """Give the bytes from the start; several readers do not disturb one another."""
        return BufferedReader(_Share(self._file))

    def check_unchanged(self) -> None:
        """Nobody else can change it."""

    def close(self) -> None:
        """Delete it."""
        self._file.close()

    def _filled(self, stream: BinaryIO) -> int:
        size = 0
        try:
            while block := stream.read(_BLOCK):
                size += self._file.write(block)
            self._file.flush()
        except OSError as error:
            raise refused(self.name, f"cannot be kept in {tempfile.gettempdir()}: {error.strerror}") from None
        if not size:
            raise refused(self.name, "is empty")
        return size


class _Share(RawIOBase):
    """Reads a file from a place of its own."""

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


class _Xz(RawIOBase):
    """Decompresses xz within bounded memory: a file decides how much it takes, and may ask for gigabytes."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._rest = b""
        self._stream: lzma.LZMADecompressor | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        plain = b""
        while not plain:
            stream = self._stream = self._stream or self._next_stream()
            if stream is None:
                return 0
            block, self._rest = self._rest or (self._raw.read(_BLOCK) if stream.needs_input else b""), b""
            if stream.needs_input and not block:
                raise EOFError
            plain = stream.decompress(block, len(buffer))
            if stream.eof:
                self._rest, self._stream = stream.unused_data, None
        buffer[: len(plain)] = plain
        return len(plain)

    def _next_stream(self) -> lzma.LZMADecompressor | None:
        """Begin the next stream, before which there may be padding; None if there is no more."""
        while not (rest := self._rest.lstrip(b"\0")):
            self._rest = self._raw.read(_BLOCK)
            if not self._rest:
                return None
        self._rest = rest
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)


def _zstd(raw: BinaryIO) -> BinaryIO:
    """Open Zstandard with Python 3.14, or with the extra `feeds`."""
    for module, opening in _ZSTD.items():
        try:
            library = import_module(module)
        except ImportError:
            continue
        opened: BinaryIO = opening(library, raw)
        return opened
    raise InvalidArgument(
        "file", 'is compressed with Zstandard, which needs Python 3.14 or the extra "feeds": '
        'pip install "svc-async[feeds]"'
    )  # fmt: skip


_ZSTD: Mapping[str, Callable[[Any, BinaryIO], Any]] = MappingProxyType(
    {
        "compression.zstd": lambda zstd, raw: zstd.ZstdFile(raw),
        "pyarrow": lambda arrow, raw: arrow.CompressedInputStream(arrow.PythonFile(raw, mode="r"), "zstd"),
    }
)
_DECOMPRESSED: Mapping[bytes, Callable[[BinaryIO], Any]] = MappingProxyType(
    {
        b"\x1f\x8b": lambda raw: gzip.GzipFile(fileobj=raw),
        b"BZh": bz2.BZ2File,
        b"\xfd7zXZ\0": lambda raw: BufferedReader(_Xz(raw)),
        b"\x28\xb5\x2f\xfd": _zstd,
    }
)
_LONGEST_MARK = max(map(len, _DECOMPRESSED))


class Bytes:
    """The bytes of an input from the start, decompressed.

    Attributes:
        stored: how many stored bytes have been taken.

    Raises:
        InvalidArgument: the input cannot be read.
    """

    def __init__(self, source: Input) -> None:
        self.stored = 0
        self._input = source
        self._raw = source.opened()
        try:
            self._plain = self._opened()
        except BaseException:
            self._raw.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._raw.close()

    def read(self, size: int) -> bytes:
        """Give the next bytes; at the end none.

        Raises:
            InvalidArgument: they are cut short or damaged, or the file was changed.
        """
        block = self._sound(lambda: self._plain.read(size))
        self.stored = self._raw.tell()
        if not block:
            self._input.check_unchanged()
        return block

    def _opened(self) -> Any:
        first = self._sound(lambda: self._raw.read(_LONGEST_MARK))
        self._raw.seek(0)
        for mark, decompressed in _DECOMPRESSED.items():
            if first.startswith(mark):
                return decompressed(self._raw)
        return self._raw

    def _sound(self, read: Callable[[], bytes]) -> bytes:
        try:
            return read()
        except EOFError:
            raise refused(self._input.name, "is cut short: its compressed data has no end") from None
        except lzma.LZMAError as error:
            if "limit" in str(error):
                raise refused(
                    self._input.name, f"needs more than {_XZ_MEMORY >> 20} MiB of memory; use xz -9"
                ) from None
            raise refused(self._input.name, "is damaged: it cannot be decompressed") from None
        except zlib.error:
            raise refused(self._input.name, "is damaged: it cannot be decompressed") from None
        except OSError as error:
            what = f"cannot be read: {error.strerror}" if error.errno else "is damaged or cut short"
            raise refused(self._input.name, what) from None


def _blocks(source: Input) -> Iterator[bytes]:
    with source.opened() as raw:
        while block := raw.read(_BLOCK):
            yield block
    source.check_unchanged()


async def digest_of(source: Input, *settings: object) -> str:
    """Give a digest of all stored bytes, and of the settings that decide what they mean.

    The whole content is read, since a time changes when nothing else does (a copy), and stays when something did (a
    restored file); reading is what `check` does anyway, and SHA-256 takes a second for a gigabyte and a half.
    """
    digest = sha256(repr(settings).encode())
    for block in _blocks(source):
        digest.update(block)
        await asyncio.sleep(0)
    return digest.hexdigest()
