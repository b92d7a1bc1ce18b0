"""A compressed file takes no more memory and time than its bytes are worth."""

import bz2
import gzip
import lzma
import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import mkdtemp

import pytest

from svc_async.errors import UnusableFile
from svc_async.sources.blocks.files import ByteReader, FileInput
from tests.support.bounded_process import MIB, check_linear, measure_peaks

HEAD = b"\x1f\x8b\x08%c\0\0\0\0\0\xff"
BODY = zlib.compress(b"email\na@example.org\n", wbits=-15)
TAIL = struct.pack("<II", zlib.crc32(b"email\na@example.org\n"), 20)


def name_file(size: int) -> bytes:
    """Return a file of gzip whose header has a file name of this length."""
    return HEAD % 8 + b"n" * size + b"\0" + BODY + TAIL


def read(path: str) -> str:
    """Read a file to its end, and return what is wrong with it."""
    try:
        with ByteReader(FileInput(Path(path))) as file:
            while file.read(65_536):
                pass
    except UnusableFile as error:
        return error.problem
    return ""


def store(content: bytes) -> str:
    path = Path(mkdtemp()) / "file"
    path.write_bytes(content)
    return str(path)


def read_members(size: int) -> Callable[[], object]:
    path = store(gzip.compress(b"x") * size)
    return lambda: read(path)


BOMBS: Mapping[str, tuple[Callable[[], bytes], str]] = {
    "gzip with a long name": (lambda: name_file(64 * MIB), "is damaged: it cannot be decompressed"),
    "gzip of empty members": (lambda: gzip.compress(b"") * 400_000, "is damaged: it cannot be decompressed"),
    "bzip2 of empty streams": (lambda: bz2.compress(b"") * 400_000, "is damaged: it cannot be decompressed"),
    "xz of empty streams": (lambda: lzma.compress(b"") * 200_000, "is damaged: it cannot be decompressed"),
    "xz with padding": (lambda: lzma.compress(b"x") + b"\0" * 64 * MIB, ""),
}


def test_hostile_files_are_refused_in_bounded_memory(tmp_path: Path) -> None:
    for name, (create, _) in BOMBS.items():
        (tmp_path / name).write_bytes(create())
    peaks = measure_peaks(read, {name: [str(tmp_path / name)] for name in BOMBS})
    assert {name: peak.value for name, peak in peaks.items()} == {name: problem for name, (_, problem) in BOMBS.items()}
    assert {name: peak.bytes for name, peak in peaks.items() if peak.bytes > 16 * MIB} == {}


def test_members_are_read_in_time_in_proportion_to_their_number() -> None:
    check_linear(read_members)


def test_a_file_that_expands_without_measure_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svc_async.sources.blocks.files._ALWAYS_ALLOWED", MIB)
    path = tmp_path / "blank lines"
    path.write_bytes(bz2.compress(b"\n" * 10 * MIB))
    assert read(str(path)) == "expands more than 1,100 times when it is decompressed"


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_members_and_padding_are_one_content(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "members"
    path.write_bytes(compress(b"a,b\n") + compress(b"") + b"\0" * 7 + compress(b"1,2\n") + b"\0" * 40_000)
    with ByteReader(FileInput(path)) as file:
        assert file.read(100) == b"a,b\n1,2\n"
        assert file.stored == path.stat().st_size


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_what_follows_that_is_no_member_is_damage(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "members"
    path.write_bytes(compress(b"a,b\n") + b"email\n")
    assert read(str(path)) == "is damaged: it cannot be decompressed"
