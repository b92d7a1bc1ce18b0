"""The file of a recording: written while a session makes calls, and read by the sandbox that answers from it."""

import errno
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from io import FileIO
from itertools import count
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final

import msgspec

from svc_async.errors import UnusableFile
from svc_async.private_files import create_missing, open_private, report_os_error
from svc_async.recording.exchanges import BegunRequest, RecordedAnswer, RecordedExchange, RecordedRequest
from svc_async.recording.hiding import MOST_VALUES, Numbering
from svc_async.value_rules import ValueRule
from svc_async.wire.route import Blocks

__all__ = ["Recording", "read_recording"]

_FORMAT: Final = 1
_BEGINNING: Final = b'{"svc_async_recording":%d}\n' % _FORMAT
_MOST_BYTES: Final = 2**28
_MOST_EXCHANGES: Final = 100_000
_LONGEST_LINE: Final = 2**23
_PATH = ValueRule(lambda path: isinstance(path, str | os.PathLike) and bool(os.fspath(path)), "the path of a file")
_log = logging.getLogger("svc_async")


class Recording:
    """Writes what a session sends and is answered to a file: `Session(record=Recording(path))`.

    Secrets and personal values are replaced by `kind-N`, such as `email-1`, in the order of their first appearance.
    A body of a request above 64 KiB is kept as its length, its counts and its first operation, an answer above 4 MiB
    likewise; of a stream, its opening only. The file, which must be new or empty, has mode 0600. At 256 MiB, 100,000
    requests or 1,048,576 replaced values, or if it cannot be written, the recording ends with a warning of the log, and
    the session goes on. Several sessions may have the same one; `Sandbox.replay(path)` answers from it.

    Args:
        path: the file.

    Raises:
        InvalidArgument: it is not a path.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        _PATH.check("path", path)
        self._path = Path(path)
        self._numbering = Numbering()
        self._lock = Lock()
        self._file: FileIO | None = None
        self._positions = count()
        self._sessions = self._begun = self._size = 0
        self._is_over = False

    def __repr__(self) -> str:
        return f"<Recording, {self._begun} requests>"

    @property
    def is_busy(self) -> bool:
        """Whether something is being written, so that another writer would wait."""
        return self._lock.locked()

    def open(self) -> None:
        """Open the file, for one more session.

        Raises:
            UnusableFile: it holds something that this recording has not written, or cannot be opened.
        """
        with self._lock:
            if not self._sessions:
                with report_os_error("path", self._path, "cannot be written"):
                    create_missing(self._path)
                    if self._path.stat().st_size != self._size:
                        raise UnusableFile("path", self._path, "holds something already: record into a new file")
                    self._file = open(self._path, "ab", buffering=0, opener=open_private)  # noqa: SIM115 - until `close`
                    if not self._size:
                        self._append(_BEGINNING)
            self._sessions += 1

    def close(self) -> None:
        """Close the file, if this was the last session that uses it."""
        with self._lock:
            self._sessions -= 1
            if not self._sessions and self._file is not None:
                self._file.close()
                self._file = None

    def begin(
        self,
        *,
        at: datetime,
        method: str,
        surface: str,
        path: str,
        scope: Mapping[str, str],
        hidden_segments: int,
        headers: Mapping[str, str],
        body: bytes | Blocks | None,
    ) -> BegunRequest | None:
        """Return a request that begins, with its position; None if the recording is over."""
        if self._is_over:
            return None
        position = next(self._positions)  # without the lock, which is held as long as something is written
        self._begun = position + 1
        return BegunRequest(
            position=position,
            at=at,
            method=method,
            surface=surface,
            path=path,
            scope=scope,
            hidden_segments=hidden_segments,
            headers=headers,
            body=body,
        )

    def write_answer(
        self,
        begun: BegunRequest,
        *,
        status: int,
        headers: Mapping[str, str],
        body: bytes,
        is_stream: bool = False,
        is_cut: bool = False,
    ) -> None:
        """Write a request and its answer."""
        with self._lock:
            request = RecordedRequest.of(begun, self._numbering)
            answer = RecordedAnswer.of(status, headers, body, self._numbering, is_stream=is_stream, is_cut=is_cut)
            self._write(RecordedExchange(position=begun.position, at=begun.at, request=request, answer=answer))

    def write_failure(self, begun: BegunRequest, failure: str, *, was_sent: bool) -> None:
        """Write a request without an answer."""
        with self._lock:
            request = RecordedRequest.of(begun, self._numbering)
            self._write(
                RecordedExchange(
                    position=begun.position, at=begun.at, request=request, failure=failure, was_sent=was_sent
                )
            )

    def _write(self, exchange: RecordedExchange) -> None:
        if self._file is None or self._is_over:  # meanwhile
            return
        digits = dict(self._numbering.take_digits())
        line = msgspec.json.encode(msgspec.structs.replace(exchange, digits=digits)) + b"\n"
        is_full = (
            self._size + len(line) > _MOST_BYTES
            or len(line) > _LONGEST_LINE
            or exchange.position >= _MOST_EXCHANGES
            or len(self._numbering) > MOST_VALUES
        )
        try:
            if not is_full:
                self._append(line)
                return
            reason = "it has reached its largest size"
        except OSError as error:
            reason = str(error.strerror)
        self._is_over = True
        _log.warning("the recording ends after %d requests: %s", exchange.position, reason)

    def _append(self, line: bytes) -> None:
        assert self._file is not None  # noqa: S101 - it is open
        if self._file.write(line) != len(line):
            self._file.truncate(self._size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size += len(line)


def read_recording(path: str | os.PathLike[str]) -> Sequence[RecordedExchange]:
    """Return the exchanges of a recording in the order in which their requests were begun.

    Raises:
        UnusableFile: it cannot be read, or is something else; of a damaged one, the line is named.
    """
    with report_os_error("path", Path(path), "cannot be read"):
        if not Path(path).is_file():
            raise UnusableFile("path", str(path), "is not a file")
        with open(path, "rb") as file:  # noqa: PTH123 - as bytes
            exchanges = [*_read_lines(file, path)]
    return sorted(exchanges, key=lambda exchange: exchange.position)


def _read_lines(file: BinaryIO, path: str | os.PathLike[str]) -> Iterator[RecordedExchange]:
    beginning = file.readline(len(_BEGINNING) * 2)
    if beginning != _BEGINNING:
        is_other = beginning.startswith(_BEGINNING.partition(b":")[0])
        problem = "is a recording of another version of svc_async" if is_other else "is not a recording"
        raise UnusableFile("path", str(path), problem)
    decoder = msgspec.json.Decoder(RecordedExchange)
    size, number = len(beginning), 1
    while line := file.readline(_LONGEST_LINE + 1):
        size, number = size + len(line), number + 1
        if size > _MOST_BYTES or number > _MOST_EXCHANGES + 1:
            raise UnusableFile("path", str(path), "is larger than a recording can be")
        try:
            if not line.endswith(b"\n"):
                raise ValueError  # noqa: TRY301 - cut off, or longer than any line that was written
            yield decoder.decode(line)
        except (ValueError, RecursionError):
            raise UnusableFile("path", str(path), f"is damaged in line {number}") from None
