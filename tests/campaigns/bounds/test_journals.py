"""A journal takes no more memory and time than is stated, whatever its records, tables and values hold."""

import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from svc_async.batch.journal.file import FORMAT
from svc_async.batch.journal.record import JournalRecord
from svc_async.batch.packing.positions import Positions
from svc_async.errors import Hint, UnusableFile
from tests.support.bounded_process import MIB, measure_peaks

Row = tuple[str, int, bytes]
HEADER = f"PRAGMA application_id = {FORMAT.application_id}; PRAGMA user_version = {FORMAT.version}"
JOB = {"about": {}, "lanes": 1, "began_at": 0.0, "slot_width": 1.0}
ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)"
VIEW = "CREATE VIEW records AS " + ENDLESS + " SELECT 'a' AS kind, n AS number, x'00' AS body, 1 AS checksum FROM r"  # noqa: S608 - constants
COLUMN = FORMAT.tables.replace("BLOB NOT NULL", "BLOB AS (zeroblob(900000000))")


def record(kind: str, value: object, number: int = 0) -> Row:
    return kind, number, msgspec.msgpack.encode(value)


def intent(**changed: object) -> Row:
    positions = Positions.pack(range(1)).to_plain()
    blocks = {"layout": [{"per_operation": 1, "rows": 1, "is_text": False}], "positions": positions, "superseded": []}
    times = {"pinned": datetime(2026, 1, 1, tzinfo=UTC), "sent_at": 0.0, "digest": ""}
    lanes = {"lanes": [0], "settled_up_to": 0, "unsettled": positions}
    return record("intent", [*{**lanes, **blocks, **times, **changed}.values()])


RECORDS: dict[str, Callable[[], Iterator[Row]]] = {
    "a nested note": lambda: iter([record("note", "[" * 100_000)]),
    "a note that is no object": lambda: iter([record("note", "[1]")]),
    "a note that is not JSON": lambda: iter([record("note", "{")]),
    "a long note": lambda: iter([record("note", json.dumps({"spec": "x" * 70 * MIB}))]),
    "no MessagePack": lambda: iter([("note", 0, b"\xc1")]),
    "nested MessagePack": lambda: iter([("note", 0, b"\x91" * 100_000)]),
    "an incomplete job": lambda: iter([record("job", {"lanes": 1})]),
    "a time that no calendar has": lambda: iter([record("job", {**JOB, "began_at": 1e300})]),
    "counts that are text": lambda: iter([record("job", {**JOB, "counts": {"read": "1"}})]),
    "an intent that is a number": lambda: iter([record("job", JOB), record("intent", 1)]),
    "an intent at no time": lambda: iter([record("job", JOB), intent(pinned="x")]),
    "many positions": lambda: iter([record("job", JOB), intent(positions=[(0, 1 << 60, "", b"")])]),
    "other positions": lambda: iter([record("job", JOB), intent(positions=[(0, 0, "d", b"\0" * 8)])]),
    "no positions": lambda: iter([record("job", JOB), intent(positions=b"\0" * MIB)]),
    "a large file": lambda: (record("failure", "x" * MIB, number) for number in range(257)),
}
DAMAGED = Hint.SEND_AGAIN.name
"""What to do with a journal that is damaged, and with no other."""
SCHEMAS = {"a view without an end": VIEW, "a column that is computed": COLUMN}


def write(path: str, records: Iterator[Row] | None, tables: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(f"{tables}; {HEADER}")
    count = 0
    for count, (kind, number, body) in enumerate(records or (), 1):  # noqa: B007 - counts
        insert(connection, kind, number, body)
    if records is not None:
        insert(connection, "count", 0, msgspec.msgpack.encode(count))
    connection.commit()
    connection.close()


def insert(connection: sqlite3.Connection, kind: str, number: int, body: bytes) -> None:
    checksum = zlib.crc32(body, zlib.crc32(f"{kind} {number}".encode()))
    connection.execute("INSERT INTO records VALUES (?, ?, ?, ?)", (kind, number, body, checksum))


def read(path: str) -> str:
    try:
        return repr(JournalRecord.read(path))[:200]
    except UnusableFile as error:
        return error.hint.name if error.hint else "refused"


def test_no_journal_takes_more_than_its_bounds(tmp_path: Path) -> None:
    for name, create in RECORDS.items():
        write(str(tmp_path / name), create(), FORMAT.tables)
    for name, tables in SCHEMAS.items():
        write(str(tmp_path / name), None, tables)
    names = sorted(path.name for path in tmp_path.iterdir())
    peaks = measure_peaks(read, {name: [str(tmp_path / name)] for name in names})
    assert {name: peak.value for name, peak in peaks.items()} == dict.fromkeys([*RECORDS, *SCHEMAS], DAMAGED)
    assert {name: peak for name, peak in peaks.items() if peak.bytes > 192 * MIB or peak.seconds > 5} == {}


def read_in_use(path: str) -> str:
    """Read a journal that a job has open, whose file or log is as large as a disk."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("UPDATE records SET number = number")
    grown = f"{path}-wal" if path.endswith("log") else path
    os.truncate(grown, 2**34)
    told = read(path)
    os.truncate(grown, 0)
    return told


def test_a_journal_in_use_is_read_up_to_its_last_commit(tmp_path: Path) -> None:
    for name in ("log", "file"):
        write(str(tmp_path / name), iter([record("job", JOB)]), FORMAT.tables)
    peaks = measure_peaks(read_in_use, {name: [str(tmp_path / name)] for name in ("log", "file")})
    # What follows the last commit is not read.
    assert [peak.value.partition("(")[0] for peak in peaks.values()] == ["JournalRecord"] * 2
    assert max(peak.bytes for peak in peaks.values()) < 64 * MIB
