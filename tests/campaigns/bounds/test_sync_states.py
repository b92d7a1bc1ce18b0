"""The state of a sync takes bounded memory and time, whatever its rows hold that a checksum fits."""

import asyncio
import sqlite3
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from svc_async.errors import Hint, UnusableFile
from svc_async.store.records import compute_checksum, encode
from svc_async.sync.sending import ClockReading
from svc_async.sync.state import FORMAT
from tests.support.bounded_process import MIB, measure_peak, measure_peaks
from tests.support.sync_states import NOW, YEAR, UnsyncedConnection, compare, key_of, open_file, sync

ODD: Sequence[Any] = (
    None,
    b"",
    b"\0",
    b"\xff" * 7,
    b"\xff" * 4_096,
    "x",
    -1,
    7,
    10**6,
    2**62,
    -(2**63),
    1.5,
    float("inf"),
)
DAMAGED = Hint.SYNC_ANEW.name
"""What to do with a state that is damaged, and with no other."""

KINDS = {
    "about": 6,
    "page": 4,
    "mark": 2,
    "plan": 8,
    "selection": 1,
    "outcome": 5,
    "sending": 5,
    "sent": 4,
    "service_key": 2,
}
"""How many values a record of each kind has."""


async def prepare(path: Path) -> None:
    """Leave a state with records of every kind."""
    async with open_file(path) as state:
        await sync(state, {number: number for number in range(1, 50)})
        await compare(state, {number: number for number in range(25, 80)})
        await state.begin(expires=NOW + YEAR)
        state.start("removals", "now")
        await state.admit(lambda: ClockReading(NOW, 1_000.0))
        state.record_accepted("removals", [3, 1, 7])
        state.record_service_keys({b"k" * 16: "one"})


async def use(path: Path) -> str:
    """Return what to do about a state that is refused."""
    try:
        async with open_file(path, factory=UnsyncedConnection) as state:
            await state.find_sent("another governor")
            await sync(state, {number: number for number in range(30, 60)})
    except UnusableFile as error:
        return error.hint.name if error.hint else "of another list"
    return "used"


def change_columns(path: str) -> list[str]:
    """Set each value of each record to odd values, with the right checksum; return what became of it."""
    base, told = Path(path), set[str]()
    asyncio.run(prepare(base))
    whole = base.read_bytes()
    for kind, columns in KINDS.items():
        for index in range(columns):
            for value in ODD:
                base.write_bytes(whole)
                set_column(base, kind, index, value)
                told.add(asyncio.run(use(base)))
    return sorted(told)


def set_column(path: Path, kind: str, index: int, value: Any) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        found = database.execute("SELECT number, body FROM records WHERE kind = ?", (kind,)).fetchall()
        assert found
        for number, body in found:
            row = msgspec.msgpack.decode(body)
            if isinstance(row, list):
                row[index] = value
            put(database, kind, number, row if isinstance(row, list) else value)


def put(database: sqlite3.Connection, kind: str, number: int, value: object) -> None:
    row = kind, number, encode(value), compute_checksum(kind, number, encode(value))
    database.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)", row)


def test_a_value_that_no_sync_has_written_is_damage(tmp_path: Path) -> None:
    (peak,) = measure_peaks(change_columns, {"": [str(tmp_path / "state")]}).values()
    assert {*peak.value} <= {DAMAGED, "of another list", "used"}
    assert DAMAGED in peak.value
    assert peak.bytes < 32 * MIB


def create_bombs() -> dict[str, tuple[str, int, object]]:
    """Return records that claim or unpack to more than there is."""
    places = [b"\xff" * 4 * MIB, b"\1" * MIB]
    return {
        "a selection that grows": ("selection", 0, zlib.compress(bytes(500 * MIB), 9)),
        "outcomes of more rows than there are": ("outcome", 1, (0, 1, 0, 2**60, b"")),
        "unknown outcomes of more rows than there are": ("outcome", 1, (0, 3, 0, 2**60, b"")),
        "requests without number": ("sent", 1, (0, 1.0, 2**60, "g")),
        "pages without number": ("about", 1, ("a", 2**40, 0, 0, None, None)),
        "names without end": ("page", 1, (b"", b"", b"\xff\xff\xff\xff" * MIB, b"")),
        "a large row": ("page", 1, (bytes(65 * MIB), b"", b"", b"")),
        "places of a page that is small": ("plan", 1, (*places * 2, bytes(2 * MIB), bytes(8 * MIB), b"", b"")),
    }


def read_bomb(path: str) -> str:
    return asyncio.run(use(Path(path)))


def test_no_state_takes_more_than_its_bounds(tmp_path: Path) -> None:
    bombs = create_bombs()
    for name, record in bombs.items():
        asyncio.run(prepare(tmp_path / name))
        with closing(sqlite3.connect(tmp_path / name)) as database, database:
            put(database, *record)
    (tmp_path / "view").write_bytes(b"")
    with closing(sqlite3.connect(tmp_path / "view")) as database:
        endless = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)"
        database.executescript(
            f"CREATE VIEW records AS {endless} SELECT n AS number, 'a' AS kind FROM r;"  # noqa: S608 - our own names
            f"PRAGMA application_id = {FORMAT.application_id}; PRAGMA user_version = {FORMAT.version}"
        )
    names = [*bombs, "view"]
    peaks = measure_peaks(read_bomb, {name: [str(tmp_path / name)] for name in names})
    told = {name: peak.value for name, peak in peaks.items() if peak.value != DAMAGED}
    counted = {"requests without number": "used"}  # up to a number
    assert told == counted
    assert {name: peak for name, peak in peaks.items() if peak.bytes > 192 * MIB or peak.seconds > 5} == {}


async def send_products(path: Path, count: int) -> None:
    """Leave a state of which all rows were sent, and the service's own key of each is recorded."""
    async with open_file(path, factory=UnsyncedConnection) as state:
        await compare(state, dict.fromkeys(range(count), 1), slice_rows=512)
        await state.begin(expires=NOW + YEAR)
        state.start("upserts", "now")
        for first in range(0, count, 25):
            numbers = range(first, first + 25)
            state.record_service_keys({key_of(number): f"service-{number}" for number in numbers})
            state.record_accepted("upserts", numbers)
            await state.admit(lambda: ClockReading(NOW, 1_000.0))
        await state.finish(in_doubt=False, complete=True)


async def settle_products(path: str) -> int:
    async with open_file(Path(path), factory=UnsyncedConnection) as state:
        await state.settle()
        return (await compare(state, {})).removals


def test_the_keys_of_the_service_take_no_memory_for_each_product(tmp_path: Path) -> None:
    count = 300_000
    asyncio.run(send_products(tmp_path / "state", count))
    peak = measure_peak(settle_products, str(tmp_path / "state"))
    assert peak.value == count
    assert peak.bytes < 48 * MIB
