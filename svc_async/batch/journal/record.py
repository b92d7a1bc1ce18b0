"""Reads the journal of a job, also while the job runs.

A job locks its journal against every other connection, readers included, so that no two jobs work on one file. Its
contents can be read nevertheless, without that lock and without weakening it: the file and its write-ahead log are
copied, and the copy is read. The log contains every commit since it was restarted, so a copy of both is consistent
unless the log was restarted in between, which its header shows.
"""

import sqlite3
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs

from svc_async.batch.journal.records import Records, check_size
from svc_async.batch.journal.schema import FORMAT
from svc_async.batch.journal.state import JobState
from svc_async.batch.report import Failure, Report
from svc_async.errors import UnusableFile
from svc_async.private_files import create_private

__all__ = ["Doubt", "JournalRecord", "Moment"]

_LOG_HEADER = 32
"""Bytes of the header of a write-ahead log; it changes whenever the log is restarted."""
_ATTEMPTS = 100


@attrs.frozen
class Moment:
    """The progress of a job at one moment.

    Attributes:
        seconds: of work until then, without the pauses between runs.
        accepted: rows that the service confirmed.
        requests: how many requests were sent, repeats included.
    """

    seconds: float
    accepted: int
    requests: int


@attrs.frozen
class Doubt:
    """A request without a conclusive answer so far.

    Attributes:
        rows: how many rows it carries.
        sent_at: when it was sent.
    """

    rows: int
    sent_at: datetime


@attrs.frozen(kw_only=True)
class JournalRecord:
    """The contents of a journal.

    Attributes:
        path: the file.
        note: what was stored with `annotate`; empty if nothing was.
        running: whether a job uses the journal now.
        begun_at: when the job began; None if it has not.
        active_at: when the journal was last written.
        worked: seconds that its runs took until then.
        runs: how many runs there were.
        finished: whether nothing is left to do.
        source_ended: whether the source was read to its end.
        spooled: whether all rows of a source that can be read only once were spooled.
        report: the result of the rows. It lists the first 10,000 failures and, for a job that is not finished, only
            rows that were sent: rows that break a rule are counted, and reported when the job is resumed.
        doubts: requests that were sent and are not settled.
        timeline: the course of the job.
    """

    path: Path
    note: Mapping[str, Any]
    running: bool
    begun_at: datetime | None = None
    active_at: datetime | None = None
    worked: float = 0.0
    runs: int = 0
    finished: bool = False
    source_ended: bool = False
    spooled: bool = False
    report: Report = attrs.field(factory=Report)
    doubts: Sequence[Doubt] = ()
    timeline: Sequence[Moment] = ()

    @classmethod
    def read(cls, path: str | Path) -> "JournalRecord":
        """Read a journal; nothing in it is changed, and a running job is not disturbed.

        Args:
            path: the file.

        Raises:
            UnusableFile: the file does not exist, or is not a journal that can be read.
        """
        path = Path(path)
        if not path.is_file():
            raise UnusableFile(FORMAT.parameter, path, "does not exist")
        try:
            with _open(path) as (connection, running):
                connection.execute("BEGIN")
                if FORMAT.is_empty(path, connection):
                    return cls(path=path, note={}, running=running)
                return _read_record(path, Records.open(path, connection), running)
        except (ValueError, TypeError, OverflowError):  # SQLite quotes what is damaged; or a record is malformed
            raise FORMAT.make_damage_error(path) from None
        except (sqlite3.Error, OSError) as error:
            if getattr(error, "sqlite_errorname", "").startswith("SQLITE_CORRUPT"):
                raise FORMAT.make_damage_error(path) from None
            raise UnusableFile(FORMAT.parameter, path, f"cannot be read: {error}") from None


def _read_record(path: Path, records: Records, running: bool) -> JournalRecord:  # noqa: FBT001 - private
    record = JournalRecord(path=path, note=records.load_note(), running=running)
    if not records.has("job"):
        return record
    state = records.load("job", 0, JobState)
    doubts = sorted(_find_doubts(records), key=lambda doubt: doubt.sent_at)
    failures = [Failure(number, *rest) for number, rest in records.load_all("failure", tuple[str, str, str | None])]
    return attrs.evolve(
        record,
        begun_at=_to_datetime(state.began_at),
        active_at=_to_datetime(state.active_at),
        worked=state.worked,
        runs=state.runs,
        finished=state.report is not None,
        source_ended=state.checkpoint.ended,
        spooled=bool(state.spool_digest),
        report=_build_report(state, doubts, failures),
        doubts=tuple(doubts),
        timeline=tuple(
            Moment(min((slot + 1) * state.slot_width, state.worked), accepted, requests)
            for slot, (accepted, requests) in records.load_all("slot", tuple[int, int])
        ),
    )


def _find_doubts(records: Records) -> Iterator[Doubt]:
    sent = dict(records.load_all("sent", float))
    for intent in records.load_intents():
        if intent.sent_at is not None:
            yield Doubt(len(intent.positions), _to_datetime(sent.get(intent.sender, intent.sent_at)))


def _build_report(state: JobState, doubts: Sequence[Doubt], failures: Sequence[Failure]) -> Report:
    if state.report is not None:
        return Report(**state.report, failures=tuple(failures))
    failed = state.failed + state.checkpoint.invalid_rows
    return Report(
        read=state.checkpoint.rows,
        accepted=state.accepted,
        coalesced=state.coalesced,
        failed=failed,
        pending=state.checkpoint.rows - state.accepted - state.coalesced - failed,
        in_doubt=sum(doubt.rows for doubt in doubts),
        requests=state.requests,
        failures=tuple(failures),
    )


def _to_datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@contextmanager
def _open(path: Path) -> Generator[tuple[sqlite3.Connection, bool]]:
    """Open a journal, or a copy of it if a job has locked it; yield the connection and whether it is locked."""
    with closing(sqlite3.connect(_build_uri(path, "rw"), uri=True, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("SELECT count(*) FROM sqlite_schema")
        except sqlite3.OperationalError as error:
            running = error.sqlite_errorname.startswith("SQLITE_BUSY")
        else:
            yield connection, False
            return
    # Works without permission to write to the folder, too.
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "journal"
        _copy(path, copy)
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            yield connection, running


def _copy(path: Path, copy: Path) -> None:
    for _ in range(_ATTEMPTS):
        header = _read_log(path)[:_LOG_HEADER]
        pages = _read_pages(path)
        log = _read_log(path)
        if pages is not None and _read_log(path)[:_LOG_HEADER] == header == log[:_LOG_HEADER]:
            break
    else:
        raise OSError("it changes all the time")
    for name, content in ((copy, pages), (f"{copy}-wal", log)):
        with create_private(name) as file:
            file.write(content)


def _read_pages(path: Path) -> bytes | None:
    """Return the contents of the file; None if it was written to meanwhile.

    SQLite reads it, because opening and closing the file otherwise would release the lock of a job in this process.
    """
    size = path.stat().st_size
    if not size:  # it is being created
        return b""
    check_size(size)
    try:
        with closing(sqlite3.connect(_build_uri(path, "ro", immutable=1), uri=True)) as connection:
            return connection.serialize()
    except sqlite3.OperationalError:
        return None


def _read_log(path: Path) -> bytes:
    log = Path(f"{path}-wal")
    try:
        check_size(log.stat().st_size)
        return log.read_bytes()
    except FileNotFoundError:
        return b""


def _build_uri(path: Path, mode: str, immutable: int = 0) -> str:
    return f"{path.absolute().as_uri()}?mode={mode}&immutable={immutable}"
