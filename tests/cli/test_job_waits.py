"""What `job status` and the page of a job say of its waits."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs
import pytest

from svc_async import BatchError
from svc_async.batch.job import Job, JobNote, SourceSpec, TargetSpec, to_plain
from svc_async.batch.journal.file import JournalFile
from svc_async.batch.journal.record import JournalRecord
from svc_async.batch.settings import BatchSettings, Ordering
from svc_async.cli.job_page import JobWaits, describe_journal_page, describe_next, find_waits
from svc_async.jobs.html_report import report_page
from svc_async.sandbox import Fault, Sandbox, VirtualClock
from tests.support.command import Command, Running
from tests.support.errors import because
from tests.support.fake_service import LOST, FakeService, Outcome, make_error, make_members
from tests.support.journaled_uploads import create_users
from tests.support.journals import write_note
from tests.support.tasks import wait_until

QUARANTINE = 300.0
USERS = "*/custom_audiences/*/users"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "job.journal"


class BootClock(VirtualClock):
    """A clock that knows since when it counts."""

    def boot(self) -> str:
        return "this machine"


@asynccontextmanager
async def run_until_it_waits(
    path: Path, outcome: Outcome, *, cluster_job: str | None = None, ordering: Ordering = "key"
) -> AsyncIterator[VirtualClock]:
    """Run a job of the command until its request waits to be sent again; end it in good order afterwards."""
    clock = BootClock()
    settings = BatchSettings(quarantine=QUARANTINE, retry_delays=(600,), concurrency=1, ordering=ordering)
    target = TargetSpec(kind="audience", account_id="a1", list_id="c1")
    note = JobNote(cluster_job=cluster_job)
    job = Job(target=target, source=SourceSpec(path="people.csv"), settings=settings, note=note)
    await write_note(JournalFile(path), to_plain(job))
    waiting: list[int] = []
    users = create_users(FakeService(clock=clock, script={1: outcome}))
    upload = users.upload(
        make_members(3),
        journal=path,
        quarantine=QUARANTINE,
        retry_delays=(600,),
        concurrency=1,
        ordering=ordering,
        progress=lambda progress: waiting.append(progress.waiting),
    )
    task = asyncio.ensure_future(upload)
    await wait_until(lambda: any(waiting) or task.done())
    try:
        yield clock
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def render(record: JournalRecord, clock: VirtualClock) -> str:
    return report_page(describe_journal_page(record, clock))


async def test_a_request_that_was_turned_away_is_told_while_the_job_runs(path: Path) -> None:
    async with run_until_it_waits(path, make_error(503, headers={"retry-after": "5"})) as clock:
        await wait_until(lambda: JournalRecord.read(path).turned_away == 1)
        record = JournalRecord.read(path)
        assert (record.running, record.doubts) == (True, ())
        told = "1 request was turned away and is sent again after a delay."
        assert find_waits(record, clock).describe() == [told]
        assert told in render(record, clock)
    assert find_waits(JournalRecord.read(path), clock) == JobWaits(quarantine=0.0)


async def test_a_request_in_doubt_is_not_sent_again_before_its_quarantine(path: Path) -> None:
    async with run_until_it_waits(path, LOST) as clock:
        record = JournalRecord.read(path)
        earliest = clock.now() + timedelta(seconds=QUARANTINE)
        assert find_waits(record, clock) == JobWaits(resends_from=earliest)
        told = f"Requests without an answer are sent again at {earliest:%H:%M:%S} UTC at the earliest."
        assert told in render(record, clock)
        (resumed,) = find_waits(attrs.evolve(record, runs=2), clock).describe()
        assert resumed.startswith(told[:-1] + ", or a whole quarantine after the job was resumed")
        await clock.advance(seconds=QUARANTINE)
        assert find_waits(record, clock) == JobWaits()  # when it is sent again is not known any more


async def test_a_job_that_ended_in_good_order_waits_for_the_rest_of_the_quarantine(path: Path) -> None:
    async with run_until_it_waits(path, LOST) as clock:
        pass
    await clock.advance(seconds=100)
    record = JournalRecord.read(path)
    assert find_waits(record, clock) == JobWaits(quarantine=QUARANTINE - 100)
    assert "it first waits up to 3:20 for the quarantine. Resume it with:" in render(record, clock)
    assert find_waits(record, VirtualClock()) == JobWaits(quarantine=QUARANTINE), "on another machine"


async def test_a_job_that_was_killed_waits_for_the_whole_quarantine_and_in_a_shared_state_longer(path: Path) -> None:
    async with run_until_it_waits(path, LOST) as clock:
        pass
    killed = attrs.evolve(JournalRecord.read(path), end=None)
    await clock.advance(seconds=100)
    assert find_waits(killed, clock) == JobWaits(quarantine=QUARANTINE)
    assert find_waits(attrs.evolve(killed, owner="host process 1"), clock) == JobWaits(quarantine=QUARANTINE + 11)


@pytest.mark.parametrize(("cluster_job", "ordering"), [("job", "key"), (None, "none")])
async def test_a_shard_and_a_job_without_order_tell_no_quarantine(
    path: Path, cluster_job: str | None, ordering: Ordering
) -> None:
    async with run_until_it_waits(path, LOST, cluster_job=cluster_job, ordering=ordering) as clock:
        pass
    assert not find_waits(JournalRecord.read(path), clock).quarantine


def upload(sandbox: Sandbox) -> Sequence[str]:
    target = ("--account", sandbox.account_id, "--audience", sandbox.audience_id)
    more = ("--journal", "job.journal", "--quarantine", f"{QUARANTINE:g}", "--concurrency", "1")
    return ("audience", "upload", "people.csv", *target, *more)


@pytest.fixture
async def hanging(command: Command, sandbox: Sandbox, tmp_path: Path) -> Running:
    """A job whose only request has no answer."""
    (tmp_path / "people.csv").write_text("email\na@example.org\n")
    sandbox.faults.on("POST", USERS).nth(1).do(Fault.hang())
    running = await command.start(*upload(sandbox))
    await sandbox.requests.wait(count=1, route=USERS)
    return running


@pytest.mark.long("kills a job, and looks at it three times")
async def test_the_status_of_a_killed_job_tells_the_whole_quarantine(command: Command, hanging: Running) -> None:
    running = (await command("job", "status", "job.journal", "--json")).result
    hanging.send(signal.SIGKILL)
    await hanging.wait()
    stopped = (await command("job", "status", "job.journal", "--json")).result
    text = (await command("job", "status", "job.journal")).out

    assert datetime.fromisoformat(running["resends_from"]) > datetime.now(UTC)
    assert (running["turned_away"], running["quarantine"]) == (0, None)
    assert (stopped["turned_away"], stopped["resends_from"], stopped["quarantine"]) == (0, None, QUARANTINE)
    assert "When it is resumed, it first waits up to 5:00 for the quarantine.\nResume it with: " in text


async def test_a_job_that_ended_before_standard_input_was_spooled_needs_it_again(path: Path) -> None:
    target = TargetSpec(kind="audience", account_id="a1", list_id="c1")
    job = Job(target=target, source=SourceSpec(path="-", format="csv"))
    await write_note(JournalFile(path), to_plain(job))

    advice = describe_journal_page(JournalRecord.read(path), BootClock()).advice

    assert advice is not None
    assert advice.endswith(f"pass the same input again, as in: svc-async job resume {path} < FILE")


async def test_a_program_whose_rows_were_not_all_kept_passes_all_of_them_again(path: Path) -> None:
    def fail_midway() -> Iterator[Mapping[str, object]]:
        yield from make_members(3)
        raise ConnectionError

    users = create_users(FakeService(clock=BootClock()))
    with pytest.raises(BatchError, check=because(ConnectionError)):
        await users.upload(fail_midway(), journal=path)
    assert "before all of its rows were kept" in describe_next(JournalRecord.read(path))
    service = FakeService(clock=BootClock(), script={1: make_error(403)})
    with pytest.raises(BatchError):
        await create_users(service).upload(iter(make_members(3)), journal=path)
    assert describe_next(JournalRecord.read(path)).startswith("Make the same call again")
