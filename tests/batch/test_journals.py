"""A folder of journals: one for each run of a job that repeats."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from svc_async import Journals
from svc_async.batch.journal.file import JournalFile
from svc_async.batch.journal.record import JournalRecord
from svc_async.batch.report import Report
from svc_async.errors import BatchError, Hint, InvalidArgument, UnusableFile
from svc_async.sandbox import VirtualClock
from tests.support.errors import has
from tests.support.fake_service import FakeService, make_error, make_members
from tests.support.journaled_uploads import create_users
from tests.support.journals import write_note
from tests.support.tasks import wait_until

ABOUT = {"host": "https://ads.example", "destination": "a list"}
NIGHT = datetime(2026, 11, 22, 23, 59, 59, tzinfo=UTC)


@pytest.fixture
def journals(tmp_path: Path) -> Journals:
    return Journals(tmp_path / "jobs" / "nightly")


async def run(service: FakeService, journals: Journals, count: int = 10, audience: str = "c1") -> Report:
    users = create_users(service, audience, operations=2)
    return await users.upload(make_members(count), users_per_operation=1, concurrency=1, journal=journals)


def list_journals(journals: Journals) -> list[Path]:
    return sorted(journals.folder.glob("*.journal"))


async def test_each_run_has_a_journal_with_its_date(service: FakeService, journals: Journals) -> None:
    for count in (10, 10, 7):
        report = await run(service, journals, count)
        assert report.accepted == count

    found = list_journals(journals)
    date = service.clock.now().date()
    assert [path.name.split("-", 2)[2] for path in found] == [f"{number:06}-{date}.journal" for number in (1, 2, 3)]
    assert [JournalRecord.read(path).report.accepted for path in found] == [10, 10, 7]
    assert journals.folder.stat().st_mode & 0o777 == 0o700


async def test_an_unfinished_run_is_resumed(service: FakeService, journals: Journals) -> None:
    service.script[3] = make_error(403)
    with pytest.raises(BatchError):
        await run(service, journals)

    report = await run(service, journals)

    (path,) = list_journals(journals)
    assert (report.accepted, len(service.users), JournalRecord.read(path).runs) == (10, 10, 2)


async def test_an_unfinished_run_with_other_rows_is_named_and_nothing_is_sent(
    service: FakeService, journals: Journals
) -> None:
    service.script[3] = make_error(403)
    with pytest.raises(BatchError):
        await run(service, journals)
    (path,) = list_journals(journals)

    with pytest.raises(UnusableFile, check=has(path=str(path), hint=Hint.GIVE_ITS_SOURCE)):
        await run(service, journals, 8)

    assert (len(service.bodies), list_journals(journals)) == (3, [path])
    path.unlink()
    assert (await run(service, journals, 8)).accepted == 8


@pytest.mark.usefixtures("impatient")
async def test_a_run_that_overlaps_with_the_one_before_is_refused(journals: Journals) -> None:
    clock = VirtualClock(mode="manual")
    service = FakeService(clock=clock, latency=5)
    first = asyncio.create_task(run(service, journals, 2))
    await wait_until(lambda: service.in_flight == 1)

    with pytest.raises(UnusableFile, check=has(parameter="journal", repeatable=True)):
        await run(FakeService(), journals, 2)

    await clock.advance(seconds=5)
    assert (await first).accepted == 2


async def test_jobs_of_different_lists_and_names_share_a_folder(service: FakeService, journals: Journals) -> None:
    service.script[1] = make_error(403)
    with pytest.raises(BatchError):
        await run(service, journals)

    for other in (Journals(journals.folder, name="other"), journals):
        report = await run(service, other, 6, audience="c1" if other is not journals else "c2")
        assert report.accepted == 6

    assert [JournalRecord.read(path).finished for path in list_journals(journals)].count(False) == 1


async def test_a_journal_that_was_described_and_not_begun_is_used(journals: Journals) -> None:
    path = journals.find(ABOUT, NIGHT)
    await write_note(JournalFile(path), {"what": "it"})

    assert journals.find(ABOUT, NIGHT) == path


def test_runs_are_counted_so_that_a_clock_that_is_set_back_changes_nothing(journals: Journals) -> None:
    first = journals.find(ABOUT, NIGHT)
    prefix = first.name.removesuffix("000001-2026-11-22.journal")
    for name in ("000041-2026-11-20.journal", "000009-2026-11-22.journal", "notes.journal", "x-2026-11-22.journal"):
        (journals.folder / f"{prefix}{name}").touch()

    found = journals.find(ABOUT, NIGHT)

    assert found.name == f"{prefix}000041-2026-11-20.journal"  # it is empty, so its run has not begun


async def test_the_run_after_a_finished_one_has_the_next_number(service: FakeService, journals: Journals) -> None:
    await run(service, journals)
    (path,) = list_journals(journals)
    path.rename(path.with_name(path.name.replace("-000001-", "-000999-")))

    await run(service, journals)

    assert [path.name.split("-")[2] for path in list_journals(journals)] == ["000999", "001000"]


def test_a_folder_that_cannot_be_used_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(UnusableFile, check=has(parameter="journal", path=str(tmp_path / "file"))):
        Journals(tmp_path / "file").find(ABOUT, NIGHT)


@pytest.mark.parametrize("name", ["", "a/b", "..", "ä", "a b"])
def test_a_name_that_is_no_part_of_a_file_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="name")):
        Journals("folder", name=name)
