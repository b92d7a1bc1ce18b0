import bz2
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from svc_async import UnusableFile
from svc_async.sources.blocks.files import ByteReader, FileInput, SpooledInput
from svc_async.sources.csv_source import CsvSource
from tests.support.errors import has
from tests.support.files import Write, count_rows, iter_rows, limit_memory, read_rows

CONTENT = b"email\n" + b"".join(b"user%d@example.org\n" % number for number in range(20_000))
COMPRESSED = [
    pytest.param(gzip.compress, id="gz"),
    pytest.param(bz2.compress, id="bz2"),
    pytest.param(partial(lzma.compress, preset=0), id="xz"),
]
Compress = Callable[[bytes], bytes]


@pytest.mark.parametrize("compress", COMPRESSED)
def test_compressed_files_are_recognised_by_their_content(write: Write, compress: Compress) -> None:
    source = CsvSource(write(compress(CONTENT), "customers"))
    rows = read_rows(source)

    assert len(rows) == 20_000
    assert rows[-1] == ("user19999@example.org",)
    assert source.bytes_read == source.size == len(compress(CONTENT))
    assert source.find_line(19_999) == 20_001


@pytest.mark.parametrize("compress", COMPRESSED)
async def test_a_truncated_compressed_file_is_found_before_anything_is_sent(write: Write, compress: Compress) -> None:
    path = write(compress(CONTENT)[:-40])
    with pytest.raises(UnusableFile):
        await CsvSource(path).check()


@pytest.mark.parametrize("compress", COMPRESSED)
def test_a_damaged_compressed_file_is_refused(write: Write, compress: Compress) -> None:
    content = bytearray(compress(CONTENT))
    content[len(content) // 2 :] = b"\xff" * (len(content) // 2)
    with pytest.raises(UnusableFile):
        read_rows(CsvSource(write(bytes(content))))


def test_the_library_for_zstandard_is_named_if_it_is_missing(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("svc_async.sources.blocks.files.import_module", missing)
    with pytest.raises(UnusableFile, match='the extra "feeds"'):
        CsvSource(write(b"\x28\xb5\x2f\xfd\x00"))


def test_zstandard_is_read_with_the_extra(write: Write) -> None:
    packed = pa.compress(CONTENT, "zstd", asbytes=True)
    assert len(read_rows(CsvSource(write(packed)))) == 20_000
    with pytest.raises(UnusableFile):
        read_rows(CsvSource(write(packed[:-40], "cut.csv")))


@pytest.mark.long("a file that is large beside the memory")
def test_a_file_that_expands_much_does_not_fill_the_memory(write: Write) -> None:
    path = write(gzip.compress(b"email\n" + b"a@example.org\n" * 300_000))
    source = CsvSource(path)
    rows = source.rows().rows

    with limit_memory(2):
        assert count_rows(rows) == 300_000


async def test_a_file_that_changes_while_it_is_read_ends_the_job(write: Write) -> None:
    path = write(CONTENT)
    source = CsvSource(path)
    rows = iter_rows(source)
    next(rows)
    path.write_bytes(CONTENT + b"one@example.org\n")
    with pytest.raises(UnusableFile):
        list(rows)
    with pytest.raises(UnusableFile):
        await source.check()


async def test_a_fingerprint_is_of_the_content_and_its_meaning_and_not_of_times_and_names(write: Write) -> None:
    first = CsvSource(write("email,phone\na@b.c,1\n"))
    copy = write("email,phone\na@b.c,1\n", "copy.csv")
    os.utime(copy, (1, 1))
    assert await first.fingerprint() == await CsvSource(copy).fingerprint()
    others = [
        CsvSource(write("email,phone\na@b.c,2\n", "other.csv")),
        CsvSource(copy, mapping={"phone": "-"}),
        CsvSource(copy, mapping={"phone": "handle"}),
        CsvSource(copy, encoding="cp1252"),
    ]
    assert len({await source.fingerprint() for source in [first, *others]}) == 5


def test_a_stream_can_be_read_again_by_several_readers() -> None:
    spooled = SpooledInput(io.BytesIO(CONTENT))
    assert (spooled.name, spooled.size) == ("standard input", len(CONTENT))

    with ByteReader(spooled) as one, ByteReader(spooled) as other:
        assert one.read(5) == other.read(5) == b"email"
        assert one.read(len(CONTENT)) == CONTENT[5:]
        assert other.read(len(CONTENT)) == CONTENT[5:]

    assert len(read_rows(CsvSource(spooled))) == 20_000
    spooled.close()


def test_a_stream_may_be_compressed() -> None:
    spooled = SpooledInput(io.BytesIO(gzip.compress(CONTENT)))
    assert len(read_rows(CsvSource(spooled))) == 20_000
    spooled.close()


def test_an_empty_stream_is_refused() -> None:
    with pytest.raises(UnusableFile, check=has(path="standard input")):
        SpooledInput(io.BytesIO())


def test_a_full_disk_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, _: Any) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", Full)
    with pytest.raises(UnusableFile, check=has(path="standard input")):
        SpooledInput(io.BytesIO(b"email\n"))


def test_a_file_that_was_deleted_is_reported(write: Write) -> None:
    path = write(CONTENT)
    file = FileInput(Path(path))
    path.unlink()
    with pytest.raises(UnusableFile, check=has(path=str(path))):
        file.open()


def test_xz_may_have_several_streams_and_padding(write: Write) -> None:
    packed = lzma.compress(b"email\n") + b"\0" * 8 + lzma.compress(b"") + lzma.compress(b"a@b.c\n") + b"\0" * 4
    with ByteReader(FileInput(write(packed, "x"))) as plain:
        assert plain.read(100) + plain.read(100) == b"email\na@b.c\n"


def test_xz_that_requires_gigabytes_of_memory_is_refused(write: Write) -> None:
    greedy = bytearray(lzma.compress(b"email\n"))
    greedy[16] = 38  # half of 4 GiB as the size of the dictionary, which follows the number of the filter
    greedy[20:24] = zlib.crc32(greedy[12:20]).to_bytes(4, "little")

    with (
        ByteReader(FileInput(write(bytes(greedy), "x"))) as plain,
        pytest.raises(UnusableFile),
    ):
        plain.read(100)


class Endless(io.RawIOBase):
    """A stream without an end, such as /dev/zero in a pipe."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return len(buffer)


def test_a_stream_is_spooled_up_to_a_size() -> None:
    spooled = SpooledInput(io.BytesIO(CONTENT), max_bytes=len(CONTENT))
    assert spooled.size == len(CONTENT)
    spooled.close()
    with pytest.raises(UnusableFile, check=has(path="standard input")):
        SpooledInput(io.BufferedReader(Endless()), max_bytes=1_000_000)
