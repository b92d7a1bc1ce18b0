"""What the journal of a job tells, also while the job runs.

A job locks its journal against everybody else, readers included, so that no two jobs ever work on one file. What it
holds can be read all the same, without that lock and without weakening it: the file and its write-ahead log are copied,
and the copy is read. The log has all that was committed since it was begun anew, so a copy of both is whole as long as
the log was not begun anew in between, which its header tells.
"""

import json
import sqlite3
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs

from svc_async.batch.journal.journal import check_format, intent_of
from svc_async.batch.ledger import Intent
from svc_async.batch.report import Failure, Report
from svc_async.errors import InvalidArgument

__all__ = ["Doubt", "JournalRecord", "Moment"]

_HEADER = 32
"""Bytes of the header of a write-ahead log, which is another one each time that the log is begun anew."""
_TRIES = 100


@attrs.frozen
class Moment:
    """How far a job was.

    Attributes:
        seconds: of work until then, pauses between runs left out.
        accepted: rows that the service had confirmed.
        requests: how many times a request had been sent.
    """

    seconds: float
    accepted: int
    requests: int


@attrs.frozen
class Doubt:
    """A request without a clear answer so far.

    Attributes:
        rows: how many rows it carries.
        sent_at: when it was sent.
    """

    rows: int
    sent_at: datetime


@attrs.frozen(kw_only=True)
class JournalRecord:
    """What a journal tells.

    Attributes:
        path: the file.
        note: what was put into it with `annotate`; empty if nothing was.
        running: whether a job works on it now.
        begun_at: when the job began; None if it has not.
        active_at: when something was written last.
        worked: seconds that its runs took until then.
        runs: how many runs there were.
        finished: whether nothing is left to do.
        source_ended: whether the source was read to its end.
        put_aside: whether rows that can be read only once were put aside, all of them.
        report: what has become of the rows. Failures are the first 10,000, and of a job that is not finished only those
            that were sent: rows that break a rule are counted, and told again when it goes on.
        doubts: what was sent and not settled.
        timeline: how the job went on.
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
    put_aside: bool = False
    report: Report = attrs.field(factory=Report)
    doubts: Sequence[Doubt] = ()
    timeline: Sequence[Moment] = ()

    @classmethod
    def read(cls, path: str | Path) -> "JournalRecord":
        """Read a journal; nothing in it is changed, and a job that runs is not disturbed.

        Args:
            path: the file.

        Raises:
            InvalidArgument: it is not there, or is no journal that can be read.
        """
        path = Path(path)
        if not path.is_file():
            raise InvalidArgument("journal", f"{path} does not exist")
        try:
            with _opened(path) as (database, running):
                database.execute("BEGIN")
                is_empty = check_format(path, database.execute)
                return cls(path=path, note={}, running=running) if is_empty else _record(path, database, running)
        except (sqlite3.Error, OSError) as error:
            raise InvalidArgument("journal", f"{path} cannot be read: {error}") from None


def _record(path: Path, database: sqlite3.Connection, running: bool) -> JournalRecord:  # noqa: FBT001 - private
    database.row_factory = sqlite3.Row
    note = database.execute("SELECT note FROM note").fetchone()
    record = JournalRecord(path=path, note=json.loads(note["note"]) if note else {}, running=running)
    job = database.execute("SELECT * FROM job").fetchone()
    if job is None:
        return record
    blobs = database.execute("SELECT intent FROM intents ORDER BY line")
    doubts = tuple(sorted(_doubts(intent_of(row["intent"]) for row in blobs), key=lambda doubt: doubt.sent_at))
    failures = [Failure(*row) for row in database.execute("SELECT * FROM failures ORDER BY position")]
    samples = database.execute("SELECT slot, accepted, requests FROM timeline ORDER BY slot")
    return attrs.evolve(
        record,
        begun_at=_moment(job["begun"]),
        active_at=_moment(job["active"]),
        worked=job["worked"],
        runs=job["runs"],
        finished=job["report"] is not None,
        source_ended=bool(job["ended"]),
        put_aside=bool(job["aside"]),
        report=_report(job, doubts, failures),
        doubts=doubts,
        timeline=tuple(
            Moment(min((slot + 1) * job["pause"], job["worked"]), accepted, requests)
            for slot, accepted, requests in samples
        ),
    )


def _doubts(intents: Iterable[Intent]) -> Iterator[Doubt]:
    for intent in intents:
        if intent.sent_at is not None:
            yield Doubt(len(intent.positions), _moment(intent.sent_at))


def _report(job: sqlite3.Row, doubts: Sequence[Doubt], failures: Sequence[Failure]) -> Report:
    if job["report"] is not None:
        return Report(**json.loads(job["report"]), failures=tuple(failures))
    failed = job["failed"] + job["misfits"]
    return Report(
        read=job["rows_read"],
        accepted=job["accepted"],
        coalesced=job["coalesced"],
        failed=failed,
        pending=job["rows_read"] - job["accepted"] - job["coalesced"] - failed,
        in_doubt=sum(doubt.rows for doubt in doubts),
        requests=job["requests"],
        failures=tuple(failures),
    )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@contextmanager
def _opened(path: Path) -> Generator[tuple[sqlite3.Connection, bool]]:
    """Open a journal, or a copy of it if a job has locked it; answers which."""
    with closing(sqlite3.connect(_address(path, "rw"), uri=True, timeout=0, isolation_level=None)) as database:
        try:
            database.execute("SELECT count(*) FROM sqlite_schema")
        except sqlite3.OperationalError as error:
            running = error.sqlite_errorname.startswith("SQLITE_BUSY")
        else:
            yield database, False
            return
    # Also where the folder may not be written to.
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "journal"
        _copy(path, copy)
        with closing(sqlite3.connect(copy, isolation_level=None)) as database:
            yield database, running


def _copy(path: Path, copy: Path) -> None:
    for _ in range(_TRIES):
        header = _log(path)[:_HEADER]
        pages = _pages(path)
        log = _log(path)
        if pages is not None and _log(path)[:_HEADER] == header == log[:_HEADER]:
            break
    else:
        raise OSError("it changes all the time")
    copy.write_bytes(pages)
    copy.with_name(f"{copy.name}-wal").write_bytes(log)


def _pages(path: Path) -> bytes | None:
    """Read the file; None if it was written to meanwhile.

    SQLite reads it, since closing it otherwise would release the lock of a job in this process.
    """
    if not path.stat().st_size:  # it is just being made
        return b""
    try:
        with closing(sqlite3.connect(_address(path, "ro", immutable=1), uri=True)) as database:
            return database.serialize()
    except sqlite3.OperationalError:
        return None


def _log(path: Path) -> bytes:
    try:
        return Path(f"{path}-wal").read_bytes()
    except FileNotFoundError:
        return b""


def _address(path: Path, mode: str, immutable: int = 0) -> str:
    return f"{path.absolute().as_uri()}?mode={mode}&immutable={immutable}"
