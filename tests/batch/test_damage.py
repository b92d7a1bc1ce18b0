"""A journal with a flipped bit is reported as damaged, or does what it would have done."""

import random
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from svc_async.batch.journal.file import JournalFile
from svc_async.batch.journal.journal import JournalLocation
from svc_async.batch.journal.record import JournalRecord
from svc_async.batch.report import Report
from svc_async.errors import BatchError, ErrorDetail, Hint, UnusableFile, UnusableState
from tests.support.errors import has
from tests.support.fake_service import LOST, FakeService, adds_up, make_error
from tests.support.journaled_uploads import find_expected, make_repeated_rows, read_values, upload
from tests.support.journals import execute, read_record

ROWS = make_repeated_rows(60, keys=30)
DAMAGED = has(hint=Hint.SEND_AGAIN)


def create_service() -> FakeService:
    """Return a service that refuses a row, loses an answer, and then ends the job."""
    service = FakeService()
    bad = make_error(400, operation_errors={0: (ErrorDetail(code="BAD", message="no"),)})
    service.script = {2: bad, 4: LOST, 7: make_error(403)}
    return service


async def run(service: FakeService, path: Path, rows: Any = None) -> Report:
    return await upload(service, ROWS if rows is None else rows, path, concurrency=3, quarantine=10)


async def prepare(path: Path, *, finished: bool, spooled: bool = False) -> tuple[FakeService, Report | None]:
    service = create_service()
    with pytest.raises(BatchError):
        await run(service, path, iter(ROWS) if spooled else ROWS)
    service.script = {}
    report = await run(service, path, iter([]) if spooled else ROWS) if finished else None
    return service, report


def flip(content: bytes, dice: random.Random) -> bytes:
    changed = bytearray(content)
    changed[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    return bytes(changed)


async def count_damaged(
    path: Path, count: int, seed: int, use: Callable[[], Awaitable[None]], reset: Callable[[], None]
) -> int:
    """Flip a bit some times, use the file, and return how often it was reported."""
    content, dice, found = path.read_bytes(), random.Random(seed), 0
    for _ in range(count):
        reset()
        path.write_bytes(flip(content, dice))
        try:
            await use()
        except UnusableFile as error:
            found += 1
            assert (error.parameter, error.path) == ("journal", str(path))
    return found


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize(
    ("seed", "flips"), [(0, 3), *(pytest.param(seed, 25, marks=pytest.mark.long) for seed in range(3))]
)
async def test_a_flipped_bit_in_a_journal_is_reported_or_changes_nothing(
    tmp_path: Path, seed: int, flips: int, *, finished: bool
) -> None:
    path = tmp_path / "job.journal"
    service, report = await prepare(path, finished=finished)
    applied, sent = [*service.accepted], len(service.bodies)

    def reset() -> None:
        service.accepted, service.bodies = [*applied], service.bodies[:sent]
        for beside in tmp_path.glob("job.journal-*"):
            beside.unlink()

    async def use() -> None:
        record = JournalRecord.read(path)
        assert adds_up(record.report)
        found = await run(service, path)
        assert (found.read, found.pending, found.failed) == (60, 0, 1)
        assert report is None or found == report
        expected = find_expected(ROWS)
        values = read_values(service)
        assert sum(values.get(key) != value for key, value in expected.items()) <= 1  # that of the row that failed

    found = await count_damaged(path, flips, seed, use, reset)

    assert found > 0 or flips < 25, "most of the file is in use"


@pytest.mark.long("opens twenty damaged journals")
async def test_a_flipped_bit_in_a_spooled_row_is_always_reported(tmp_path: Path) -> None:
    path, dice = tmp_path / "job.journal", random.Random(1)
    service, _ = await prepare(path, finished=False, spooled=True)
    journal, sent = path.read_bytes(), len(service.bodies)
    rows = [*JournalFile(path).read(kinds=("row",)).bodies.values()]

    for _ in range(20):
        body, damaged = dice.choice(rows), bytearray(journal)
        damaged[journal.index(body) + dice.randrange(len(body))] ^= 1 << dice.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(UnusableFile, check=DAMAGED):
            await run(service, path, iter([]))
    assert len(service.bodies) == sent


async def test_a_journal_that_is_cut_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "job.journal"
    service, _ = await prepare(path, finished=False, spooled=True)
    whole = path.read_bytes()
    for length in (len(whole) - 1, len(whole) - 4_096, len(whole) // 2):
        path.write_bytes(whole[:length])
        with pytest.raises(UnusableFile, check=DAMAGED):
            await run(service, path, iter([]))


async def test_the_rows_of_another_job_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]
    service = create_service()
    for path, rows in zip(paths, (ROWS, ROWS[::-1]), strict=True):
        service.script = {1 + len(service.bodies): make_error(403)}
        with pytest.raises(BatchError):
            await run(service, path, iter(rows))
    with closing(sqlite3.connect(paths[0])) as database, database:
        database.execute("ATTACH ? AS other", (str(paths[1]),))
        database.execute("INSERT OR REPLACE INTO records SELECT * FROM other.records WHERE kind = 'row'")
    service.script = {}

    with pytest.raises(UnusableFile, check=has(path=str(paths[0]), hint=Hint.GIVE_ITS_SOURCE)):
        await run(service, paths[0], iter([]))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE records SET checksum = 0 WHERE kind = 'job'",
        "UPDATE records SET number = 500 WHERE kind = 'lane' AND number = 1",
        "DELETE FROM records WHERE kind = 'lane' AND number = 0",
        "DELETE FROM records WHERE kind = 'count'",
    ],
)
async def test_damaged_records_are_refused(journal: JournalLocation, statement: str) -> None:
    service = FakeService(script={9: make_error(403)})
    with pytest.raises(BatchError):
        await upload(service, ROWS, journal, concurrency=2)
    await execute(journal, statement)

    with pytest.raises((UnusableFile, UnusableState), check=DAMAGED):
        await upload(service, ROWS, journal)
    with pytest.raises((UnusableFile, UnusableState), check=DAMAGED):
        await read_record(journal)


async def test_a_record_that_is_gone_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "job.journal"
    service, _ = await prepare(path, finished=False)
    whole = path.read_bytes()
    for kind in ("intent", "lane", "failure", "slot", "second", "count", "job"):
        path.write_bytes(whole)
        with closing(sqlite3.connect(path)) as database, database:
            deleted = database.execute(
                "DELETE FROM records WHERE kind = ? AND number = (SELECT max(number) FROM records WHERE kind = ?)",
                (kind, kind),
            )
            assert deleted.rowcount == 1
        with pytest.raises(UnusableFile, check=DAMAGED):
            await run(service, path)
        with pytest.raises(UnusableFile, check=DAMAGED):
            JournalRecord.read(path)
