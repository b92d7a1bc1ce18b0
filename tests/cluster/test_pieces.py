"""Pieces are on disk: what another worker gets is what was written, and what nobody needs takes no space."""

import os
import pickle
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from dask.sizeof import sizeof
from distributed.protocol.serialize import deserialize_bytes, serialize_bytelist

from svc_async.cluster import parts as pieces_
from svc_async.cluster.parts import Piece
from tests.support.bounded_process import MIB, measure_peak


@pytest.mark.parametrize("content", [b"", b"a", bytes(range(256)) * 10_000], ids=["empty", "small", "large"])
def test_a_piece_is_what_was_written_wherever_it_is_sent(content: bytes) -> None:
    piece = Piece(content)
    sent = deserialize_bytes(b"".join(serialize_bytelist(piece)))
    pickled = [pickle.loads(pickle.dumps(piece, protocol)) for protocol in (4, 5)]
    for each in (piece, sent, *pickled):
        assert isinstance(each, Piece)
        assert (each.read(), len(each), bool(each)) == (content, len(content), bool(content))
        assert len(content) <= sizeof(each) < len(content) + 100


def test_threads_may_write_and_read_pieces_at_once() -> None:
    threads, start = 8, threading.Barrier(8)

    def use(number: int) -> bool:
        start.wait(10)
        contents = [bytes([number]) * (1_000 + index) for index in range(200)]
        pieces = [Piece(content) for content in contents]
        return [piece.read() for piece in pieces] == contents

    with ThreadPoolExecutor(threads) as pool:
        assert all(pool.map(use, range(threads)))


def fill_disk() -> list[object]:
    """Return what becomes of pieces while no more can be written than half of one, and then again."""
    import resource  # noqa: PLC0415 - not on Windows

    first, sent = Piece(b"a" * 1_000), pickle.dumps(Piece(b"b" * 1_000), 5)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_500, most))
    problems = []
    with pytest.raises(OSError, match=".") as caught:
        Piece(b"c" * 1_000)
    problems.append(caught.value.strerror)
    received = pickle.loads(sent)
    for piece in (received, pickle.loads(pickle.dumps(received, 5))):
        with pytest.raises(OSError, match=".") as caught:
            piece.read()
        problems.append(caught.value.strerror)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    later = Piece(b"d" * 1_000)
    return [problems, first.read() == b"a" * 1_000, later.read() == b"d" * 1_000]


@pytest.mark.skipif(sys.platform == "win32", reason="no limit for the size of files")
@pytest.mark.long("limits the files of a process")
def test_a_full_disk_fails_whoever_writes_or_needs_a_piece_and_nobody_else() -> None:
    peak = measure_peak(fill_disk)
    assert peak.value == [["File too large"] * 3, True, True]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="lists the open files of a process as Linux does")
def test_the_files_of_pieces_that_nobody_needs_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(pieces_, "_FILE_SIZE", 64_000)
    monkeypatch.setattr(pieces_, "_FILES", type(pieces_._FILES)())
    pieces = [Piece(bytes(1_000)) for _ in range(300)]
    assert len(list_files(tmp_path)) in {4, 5}
    assert all("(deleted)" in name for name in list_files(tmp_path))
    assert list(tmp_path.iterdir()) == []
    del pieces[1:]
    assert len(list_files(tmp_path)) <= 2
    assert pieces[0].read() == bytes(1_000)


def keep_pieces(count: int) -> int:
    """Write pieces of a MiB, and return how many of them are whole."""
    pieces = [Piece(bytes([number % 256]) * MIB) for number in range(count)]
    return sum(piece.read() == bytes([number % 256]) * MIB for number, piece in enumerate(pieces))


@pytest.mark.long("measures the memory of a process")
def test_pieces_take_no_memory() -> None:
    peak = measure_peak(keep_pieces, 200)
    assert peak.value == 200
    assert peak.bytes < 16 * MIB


def list_files(folder: Path) -> list[str]:
    links = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))  # noqa: PTH208 - as below
    names = [os.readlink(link) for link in links if os.path.lexists(link)]  # noqa: PTH115 - paths that do not exist
    return [name for name in names if name.startswith(f"{folder}/")]
