"""Decompress gzip, bzip2, xz and Zstandard while they are read, in bounded memory and time.

What a compressed file may demand is limited: the memory of its window, the data that has no content (the name of a
file, comments, padding), its members without content, and how much it expands.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Mapping
from importlib import import_module
from io import BufferedReader, RawIOBase
from types import MappingProxyType
from typing import Any, BinaryIO, Protocol

__all__ = ["MAX_MAGIC", "MAX_WINDOW", "MissingLibrary", "open_decompressed"]

MAX_WINDOW = 134_217_728
"""Bytes of memory that decompressing may use; the largest preset of xz, -9, needs half of them."""
_BLOCK = 16_384
_MAX_SILENCE = 4_194_304
"""Compressed bytes without any content; a block of bzip2, which is decompressed as a whole, has 900,000."""
_MAX_EMPTY_MEMBERS = 10_000


class MissingLibrary(Exception):
    """No library is installed that decompresses Zstandard."""


class _Decompressor(Protocol):
    """Decompresses one member, as the classes of `bz2` and `lzma` do."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


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

    def __init__(self, raw: BinaryIO, magic: bytes, start: Callable[[], _Decompressor]) -> None:
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
            plain = member.decompress(self._take_block(member), len(buffer))
            self._count(member, plain)
        buffer[: len(plain)] = plain
        return len(plain)

    def _take_block(self, member: _Decompressor) -> bytes:
        """Return the next compressed bytes, if they are needed."""
        block, self._rest = self._rest or (self._raw.read(_BLOCK) if member.needs_input else b""), b""
        if member.needs_input and not block:
            raise EOFError
        self._silence += len(block)
        return block

    def _count(self, member: _Decompressor, plain: bytes) -> None:
        if plain:
            self._silence, self._is_empty = 0, False
        elif self._silence > _MAX_SILENCE:
            raise zlib.error("more data without content than any file has")
        if member.eof:
            self._rest, self._member = member.unused_data, None
            self._empty_members += self._is_empty
            if self._empty_members > _MAX_EMPTY_MEMBERS:
                raise zlib.error("more members without content than any file has")

    def _start_member(self) -> _Decompressor | None:
        """Start the next member; return None if there is no more."""
        while not (rest := self._rest.lstrip(b"\0")):
            self._rest = self._raw.read(_BLOCK)
            if not self._rest:
                return None
        self._rest = rest if len(rest) >= len(self._magic) else rest + self._raw.read(_BLOCK)
        if not self._rest.startswith(self._magic):
            raise zlib.error("neither another member nor padding")
        self._is_empty = True
        return self._start()


def _open_members(magic: bytes, start: Callable[[], _Decompressor]) -> Callable[[BinaryIO], Any]:
    return lambda raw: BufferedReader(_DecompressedReader(raw, magic, start))


def _open_zstd(raw: BinaryIO) -> Any:
    """Open Zstandard with Python 3.14, or with the extra `feeds`; both refuse a window of more than 128 MiB."""
    for module, open_with in _ZSTD_LIBRARIES.items():
        try:
            library = import_module(module)
        except ImportError:
            continue
        return open_with(library, raw)
    raise MissingLibrary


_GZIP, _BZIP2, _XZ, _ZSTD = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"
_ZSTD_LIBRARIES: Mapping[str, Callable[[Any, BinaryIO], Any]] = MappingProxyType(
    {
        "compression.zstd": lambda zstd, raw: _open_members(_ZSTD, zstd.ZstdDecompressor)(raw),
        "pyarrow": lambda arrow, raw: arrow.CompressedInputStream(arrow.PythonFile(raw, mode="r"), "zstd"),
    }
)
_OPENERS: Mapping[bytes, Callable[[BinaryIO], Any]] = MappingProxyType(
    {
        _GZIP: _open_members(_GZIP, _GzipDecompressor),
        _BZIP2: _open_members(_BZIP2, bz2.BZ2Decompressor),
        _XZ: _open_members(_XZ, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_WINDOW)),
        _ZSTD: _open_zstd,
    }
)
MAX_MAGIC = max(map(len, _OPENERS))
"""The most bytes by which a compression is recognised."""


def open_decompressed(raw: BinaryIO, first: bytes) -> Any:
    """Return a reader of the content of a file, whose `read` may raise EOFError, OSError, zlib.error and LZMAError.

    Args:
        raw: the file, from the start.
        first: its first bytes, by which its compression is recognised.

    Raises:
        MissingLibrary: no library for it is installed.
    """
    open_ = next((open_ for magic, open_ in _OPENERS.items() if first.startswith(magic)), None)
    return raw if open_ is None else open_(raw)
