"""The file of a journal: whose it is, who may use it, what it contains."""

import asyncio
import sqlite3
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import attrs
import pytest

from svc_async.batch.journal.file import FORMAT, JournalFile
from svc_async.batch.journal.journal import JournalUnwritable
from svc_async.batch.journal.records import JournalChanges, JournalRecords
from svc_async.errors import BatchError, Hint, UnusableFile
from svc_async.sandbox import VirtualClock
from svc_async.store.records import Changes, Records
from tests.support.errors import because, has
from tests.support.fake_service import FakeService, adds_up, make_error, make_members
from tests.support.journaled_uploads import (
    find_expected,
    make_repeated_rows,
    read_values,
    upload,
)
from tests.support.journals import FULL_DISK, Death, make_journal
from tests.support.tasks import wait_until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "job.journal"


async def test_journals_of_other_versions_and_other_files_are_refused(tmp_path: Path) -> None:
    service = FakeService()
    path = tmp_path / "newer"
    await upload(service, make_members(3), path)
    for version in (FORMAT.version + 1, FORMAT.version - 1):
        database = sqlite3.connect(path)
        database.execute(f"PRAGMA user_version={version}")
        database.close()
        with pytest.raises(UnusableFile, check=has(path=str(path), hint=None)):
            await upload(service, make_members(3), path)
    other = tmp_path / "other"
    database = sqlite3.connect(other)
    database.execute("CREATE TABLE mine (x)")
    database.commit()
    database.close()
    with pytest.raises(UnusableFile, check=has(path=str(other), hint=Hint.GIVE_A_JOURNAL)):
        await upload(service, make_members(3), other)
    text = tmp_path / "text"
    text.write_text("a customer file, long enough to be no database" * 100)
    with pytest.raises(UnusableFile, check=has(path=str(text), hint=Hint.GIVE_A_JOURNAL)):
        await upload(service, make_members(3), text)
    with pytest.raises(UnusableFile, check=has(hint=Hint.CREATE_THE_FOLDER)):
        await upload(service, make_members(3), tmp_path / "no" / "folder")


_OTHER = """
import asyncio, sys
from svc_async.batch.journal.file import JournalFile

async def hold():
    await JournalFile(sys.argv[1]).open(lambda records: (None, {}))
    print("locked", flush=True)
    sys.stdin.read()

asyncio.run(hold())
"""


@pytest.mark.long("it starts another interpreter; tests/store does so for any file")
async def test_a_journal_in_use_by_another_process_is_refused(path: Path) -> None:
    service = FakeService()
    service.script[1] = make_error(403)
    with pytest.raises(BatchError):
        await upload(service, make_members(3), path)
    pipe = asyncio.subprocess.PIPE
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", _OTHER, str(path), stdin=pipe, stdout=pipe)
    assert other.stdout is not None
    await other.stdout.readline()
    with pytest.raises(UnusableFile, check=has(path=str(path), repeatable=True)):
        await upload(service, make_members(3), path)
    await other.communicate(b"")
    assert (await upload(service, make_members(3), path)).accepted == 3


@pytest.mark.usefixtures("impatient")
async def test_a_journal_whose_lock_was_deleted_is_not_used_twice(path: Path) -> None:
    clock = VirtualClock(mode="manual")
    service = FakeService(clock=clock, latency=5)
    task = asyncio.create_task(upload(service, make_members(3), path))
    await wait_until(lambda: len(service.bodies) > 0)
    for _ in range(2):
        Path(f"{path}-lock").unlink(missing_ok=True)
        with pytest.raises(UnusableFile, check=has(path=str(path), repeatable=True)):
            await upload(FakeService(), make_members(3), path)
    await clock.advance(seconds=5)
    assert (await task).accepted == 3


@pytest.mark.usefixtures("impatient")
async def test_two_jobs_of_one_process_do_not_share_a_journal(path: Path) -> None:
    clock = VirtualClock(mode="manual")
    service = FakeService(clock=clock, latency=5)
    task = asyncio.create_task(upload(service, make_members(3), path))
    await wait_until(lambda: service.in_flight == 1)
    with pytest.raises(UnusableFile, check=has(path=str(path), repeatable=True)):
        await upload(FakeService(), make_members(3), path)
    await clock.advance(seconds=5)
    assert (await task).accepted == 3


@pytest.mark.parametrize("spooled", [False, pytest.param(True, marks=pytest.mark.long)])
async def test_a_full_disk_stops_the_job_clearly_and_it_can_be_resumed(path: Path, *, spooled: bool) -> None:
    service = FakeService()
    rows = make_repeated_rows(1_000, keys=900)
    given, journal = iter(rows) if spooled else rows, make_journal(path, *FULL_DISK)
    check = has(path=str(path)) if spooled else because(JournalUnwritable)
    with pytest.raises(UnusableFile if spooled else BatchError, check=check) as caught:
        await upload(service, given, journal, operations=800, concurrency=1)
    assert not isinstance(caught.value, BatchError) or adds_up(caught.value.report)
    assert service.bodies == []
    report = await upload(service, rows, path, operations=800)
    assert (report.read, report.pending) == (1_000, 0)
    assert read_values(service) == find_expected(rows)


def read_folder(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in folder.iterdir())


async def test_no_identifier_and_no_token_is_in_the_journal(path: Path, tmp_path: Path) -> None:
    service = FakeService()
    service.script[2] = make_error(403)
    rows = [{"email": f"someone{n}@example.org", "partner_user_id": f"partner-{n}"} for n in range(100)]
    with pytest.raises(BatchError):
        await upload(service, rows, path, concurrency=1)
    written = read_folder(tmp_path)
    for word in (b"example.org", b"partner-", sha256(b"someone1@example.org").hexdigest().encode()):
        assert word not in written


@pytest.mark.parametrize("counts", [(200, 1_000), pytest.param((400, 3_000), marks=pytest.mark.long)])
async def test_the_size_does_not_grow_with_the_rows(tmp_path: Path, counts: Sequence[int]) -> None:
    sizes: list[int] = []
    for count in counts:
        path = tmp_path / str(count)
        await upload(FakeService(), make_members(count), path, users_per_operation=10, concurrency=4)
        sizes.append(path.stat().st_size)
    assert sizes[1] <= sizes[0] * 1.2


async def test_a_body_that_would_be_encoded_differently_stops_the_job(path: Path) -> None:
    service = FakeService()
    with pytest.raises(BatchError):
        await upload(service, make_members(3), path, death=Death(2))

    def change_digest(records: Records) -> tuple[None, Changes]:
        (intent,) = JournalRecords.of(records).load_intents()
        changes = JournalChanges(records)
        changes.put_intent(attrs.evolve(intent, digest=sha256(b"another body").hexdigest()))
        return None, changes.take()

    _, store = await JournalFile(path).open(change_digest)
    await store.close()
    with pytest.raises(UnusableFile, check=has(path=str(path), hint=None)):
        await upload(service, make_members(3), path)
    assert len(service.bodies) == 1
