"""Jobs with a journal: killed, run again, looked at while they run and afterwards."""

import asyncio
import csv
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
import pytest

from svc_async import Session
from svc_async.batch.job import SourceSpec, TargetSpec, from_plain
from svc_async.batch.journal.file import JournalFile
from svc_async.batch.journal.record import JournalRecord
from svc_async.sandbox import Fault, Sandbox
from tests.support.command import (
    Call,
    Command,
    Running,
    environment_of,
    limit_files,
    limit_requests,
    read_shape,
)
from tests.support.journals import write_note
from tests.support.tiers import keep_short

USERS = "*/custom_audiences/*/users"
SMALL_REQUESTS = limit_requests(100)
FEW = ("--users-per-operation", "1", "--concurrency", "1", "--quarantine", "0")


@pytest.fixture
async def command(command: Command) -> Command:
    """Return the command with requests of 100 operations, not 2,500."""
    return attrs.evolve(command, program=SMALL_REQUESTS)


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    rows = [f"user{number}@example.org" for number in range(240)]
    path.write_text("\n".join(["email", *rows[:40], "nobody", *rows[40:], "nowhere"]) + "\n", encoding="utf-8")
    return path


def upload(
    sandbox: Sandbox, file: str | Path = "people.csv", journal: Sequence[str] = ("--journal", "job.journal")
) -> tuple[str, ...]:
    target = ("--account", sandbox.account_id, "--audience", sandbox.audience_id)
    return ("audience", "upload", str(file), *target, *journal, *FEW)


def count_members(sandbox: Sandbox) -> int:
    return len(sandbox.audience(sandbox.audience_id).users)


def hang(sandbox: Sandbox, number: int) -> None:
    """Let a request have no answer; it has no effect either."""
    sandbox.faults.on("POST", USERS).nth(number).do(Fault.hang())


async def kill(running: Running, sandbox: Sandbox, requests: int) -> None:
    await sandbox.requests.wait(count=requests, route=USERS)
    running.send(signal.SIGKILL)
    assert (await running.wait()).code == -signal.SIGKILL


def read_list(path: Path) -> Sequence[tuple[str, ...]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = [(row["position"], row["line"], row["code"]) for row in csv.DictReader(file)]
    return sorted(rows, key=lambda row: int(row[0]))


# --- the same command again


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_a_killed_upload_resumes_and_then_reports_that_it_is_finished(
    command: Command, sandbox: Sandbox, people: Path, tmp_path: Path
) -> None:
    hang(sandbox, 2)
    await kill(await command.start(*upload(sandbox)), sandbox, 2)
    again = await command(*upload(sandbox), "--json")
    report = again.result
    assert again.code == 5
    assert (report["read"], report["accepted"], report["failed"], report["pending"]) == (242, 240, 2, 0)
    assert report["requests"] == 4
    assert report["journal"] == "job.journal"
    assert count_members(sandbox) == 240
    assert read_list(Path(f"{people}.audience-{sandbox.audience_id}.upload.failures.csv")) == [
        ("40", "42", "INVALID_ROW"),
        ("241", "243", "INVALID_ROW"),
    ]
    requests = sandbox.requests.count(USERS)
    once_more = await command(*upload(sandbox), "--json")
    assert once_more.code == 5
    assert (once_more.result["accepted"], once_more.result["finished_before"]) == (240, True)
    assert sandbox.requests.count(USERS) == requests
    assert read_list(Path(f"{people}.audience-{sandbox.audience_id}.upload.failures.csv")) == [
        ("40", "42", "INVALID_ROW"),
        ("241", "243", "INVALID_ROW"),
    ]
    assert not JournalRecord.read(tmp_path / "job.journal").spool_begun


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_a_signal_says_how_to_go_on(command: Command, sandbox: Sandbox, people: Path) -> None:
    del people
    hang(sandbox, 2)
    running = await command.start(*upload(sandbox))
    await sandbox.requests.wait(count=2, route=USERS)
    running.send(signal.SIGTERM)
    ended = await running.wait()
    assert ended.code == 130
    assert "svc-async job resume job.journal" in ended.err
    resumed = await command("job", "resume", "job.journal", "--json")
    assert resumed.result["accepted"] == 240
    assert count_members(sandbox) == 240


@pytest.mark.long("interrupts a job twice, and looks at it each time")
async def test_an_interrupted_resume_reports_what_the_journal_knows(
    command: Command, sandbox: Sandbox, people: Path
) -> None:
    del people
    reports = []
    for options in (), ("--json",):
        sandbox.faults.on("POST", USERS).do(Fault.hang())
        requests = sandbox.requests.count(USERS)
        running = await command.start(*upload(sandbox), *options)
        await sandbox.requests.wait(count=requests + 1, route=USERS)
        running.send(signal.SIGINT)
        ended = await running.wait()
        assert ended.code == 130
        reports.append((await command("job", "status", "job.journal", "--json")).result)

    counts = ("read", "accepted", "failed", "pending")
    assert reports[0]["failed"] > 0
    assert [ended.result[name] for name in counts] == [report[name] for report in reports[1:] for name in counts]
    assert [reports[0][name] for name in counts] == [reports[1][name] for name in counts]


@pytest.mark.long("each case ends a job early, looks at it and resumes it")
@pytest.mark.parametrize("end", ["signal", "refusal"])
async def test_the_summary_of_a_job_that_ends_early_has_the_counts_of_its_status(
    command: Command, sandbox: Sandbox, tmp_path: Path, end: str
) -> None:
    """Rows were read and not sent, some of them are invalid, and others repeated, when the job ends."""
    rows = [f"user{number // 2}@example.org" if number % 40 else "nobody" for number in range(480)]
    (tmp_path / "people.csv").write_text("\n".join(["email", *rows, ""]), encoding="utf-8")
    fault = Fault.hang() if end == "signal" else Fault.http(401)
    sandbox.faults.on("POST", USERS).nth(2).do(fault)
    running = await command.start(*upload(sandbox), "--json")
    if end == "signal":
        await sandbox.requests.wait(count=2, route=USERS)
        running.send(signal.SIGINT)
    ended = (await running.wait()).result
    status = (await command("job", "status", "job.journal", "--json")).result

    counts = ("read", "accepted", "coalesced", "failed", "pending", "in_doubt", "requests")
    assert ended["accepted"] > 0 < ended["failed"]
    assert {name: ended[name] for name in counts} == {name: status[name] for name in counts}
    assert len(ended["failures"]) == ended["failed"]
    sandbox.faults.clear()
    resumed = (await command("job", "resume", "job.journal", "--json")).result
    assert (resumed["accepted"] + resumed["coalesced"], resumed["failed"]) == (468, 12)


@pytest.mark.long("10,000 rows fill a journal")
async def test_the_counts_of_a_job_whose_journal_cannot_be_written_agree(
    command: Command, sandbox: Sandbox, tmp_path: Path
) -> None:
    rows = [f"{'nobody' if number % 2 else f'user{number}@example.org'},+4930{number:07}" for number in range(10_000)]
    (tmp_path / "people.csv").write_text("\n".join(["email,phone_number", *rows, ""]))
    ids = ("--account", sandbox.account_id, "--audience", sandbox.audience_id)
    options = ("--journal", "job.journal", "--json")
    ended = await command("audience", "upload", "people.csv", *ids, *options, program=limit_files(20_000))
    assert (ended.code, ended.error["type"], ended.error["sent"]) == (1, "JournalUnwritable", "no")
    report = ended.result
    assert report["partly_valid"] == report["failed"] > 0
    assert report["failures"]
    assert report["read"] == report["failed"] + report["pending"]


@pytest.mark.long("kills two jobs, and runs a third")
async def test_refusals_of_earlier_runs_stay_listed(command: Command, sandbox: Sandbox, people: Path) -> None:
    """The list of an earlier run is gone on with; what it lacks, and the journal knows, is listed."""
    sandbox.faults.on("POST", USERS).nth(1).do(Fault.operation_errors({7: "no such person"}))
    hang(sandbox, 3)
    await kill(await command.start(*upload(sandbox)), sandbox, 3)
    failures = Path(f"{people}.audience-{sandbox.audience_id}.upload.failures.csv")
    being_written = Path(f"{failures}.new")
    before = being_written.read_bytes()
    hang(sandbox, 4)
    await kill(await command.start(*upload(sandbox)), sandbox, 4)
    assert before.splitlines()[0] in being_written.read_bytes()
    assert [row for row in read_list(being_written) if row[2] != "INVALID_ROW"] == [("7", "9", "INVALID_PARAMETER")]
    failures.unlink(missing_ok=True)  # there is none where the first kill came before the commit of the refusal
    being_written.unlink()
    ended = await command(*upload(sandbox), "--json")
    assert ended.result["failed"] == 3
    assert read_list(failures) == [
        ("7", "9", "INVALID_PARAMETER"), ("40", "42", "INVALID_ROW"), ("241", "243", "INVALID_ROW"),
    ]  # fmt: skip  # one row of a table a line
    assert Counter(ended.result["failures"][0])["position"] == 7


@pytest.mark.long("kills a job, and runs three more")
async def test_a_changed_file_is_refused_and_nothing_is_sent(command: Command, sandbox: Sandbox, people: Path) -> None:
    hang(sandbox, 2)
    await kill(await command.start(*upload(sandbox)), sandbox, 2)
    failures = Path(f"{people}.audience-{sandbox.audience_id}.upload.failures.csv.new")
    before = failures.read_bytes()
    text = people.read_text()
    people.write_text(text + "late@example.org\n")
    ended = await command(*upload(sandbox), "--json")
    assert (ended.code, ended.error["type"], ended.error["parameter"]) == (2, "UnusableFile", "journal")
    assert len(ended.err.splitlines()) == 1
    assert sandbox.requests.count(USERS) == 2
    assert failures.read_bytes() == before
    people.write_text(text)
    assert (await command(*upload(sandbox))).code == 5
    people.write_text(text + "late@example.org\n")
    assert (await command(*upload(sandbox))).code == 2


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_a_journal_of_another_job_is_refused(command: Command, sandbox: Sandbox, people: Path) -> None:
    del people
    assert (await command(*upload(sandbox))).code == 5
    _, _, *rest = upload(sandbox)
    ended = await command("audience", "remove", *rest, "--json")
    assert (ended.code, ended.error["type"], ended.error["parameter"]) == (2, "UnusableFile", "journal")
    assert count_members(sandbox) == 240


@pytest.mark.long("kills a job, and runs three commands beside it")
async def test_a_journal_in_use_is_refused_and_can_be_looked_at(
    command: Command, sandbox: Sandbox, people: Path
) -> None:
    del people
    hang(sandbox, 2)
    running = await command.start(*upload(sandbox))
    await sandbox.requests.wait(count=2, route=USERS)
    ended = await command(*upload(sandbox), "--json")
    assert (ended.code, ended.error["parameter"], ended.error["repeatable"]) == (1, "journal", True)
    status = (await command("job", "status", "job.journal", "--json")).result
    assert status["state"] == "running"
    assert (status["read"], status["accepted"], status["in_doubt"]) == (242, 100, 100)
    assert status["doubts"][0]["rows"] == 100
    assert status["ids"] == {"account": sandbox.account_id, "audience": sandbox.audience_id}
    running.send(signal.SIGKILL)
    await running.wait()
    status_text = await command("job", "status", "job.journal")
    assert status_text.code == 0
    assert "svc-async job resume job.journal" in status_text.out
    for secret in environment_of(sandbox).values():
        assert secret not in status_text.out


@pytest.mark.long("kills a job, and runs three more")
async def test_standard_input_is_spooled_and_not_read_again(
    command: Command, sandbox: Sandbox, people: Path, tmp_path: Path
) -> None:
    hang(sandbox, 2)
    running = await command.start(*upload(sandbox, "-"))
    ending = asyncio.create_task(running.wait(people.read_bytes()))
    await sandbox.requests.wait(count=2, route=USERS)
    running.send(signal.SIGKILL)
    assert (await ending).code == -signal.SIGKILL
    assert JournalRecord.read(tmp_path / "job.journal").spooled
    other = await (await command.start(*upload(sandbox, "-"), "--json")).wait(b"email\nother@example.org\n")
    assert (other.code, other.error["parameter"]) == (2, "journal")
    resumed = await command("job", "resume", "job.journal", "--json")
    report = resumed.result
    assert (resumed.code, report["read"], report["accepted"], report["failed"]) == (5, 242, 240, 2)
    assert count_members(sandbox) == 240
    assert JournalFile(tmp_path / "job.journal").read(kinds=("row",)).bodies == {}
    again = await (await command.start(*upload(sandbox, "-"), "--json")).wait(people.read_bytes())
    assert again.result["accepted"] == 240


@pytest.mark.long("kills a job, and resumes it")
async def test_a_job_is_resumed_from_another_folder_and_with_its_options(
    sandbox: Sandbox, people: Path, tmp_path: Path
) -> None:
    people.write_text(people.read_text().replace("email", "Mail;x").replace(".org\n", ".org;\n"))
    here = Command(tmp_path, environment_of(sandbox), SMALL_REQUESTS)
    there = attrs.evolve(here, folder=tmp_path / "there")
    there.folder.mkdir()
    options = (
        "--map",
        "Mail=email",
        "--map",
        "*=-",
        "--failures-file",
        "failed.csv",
        "--expires-at",
        "2030-01-01T00:00:00Z",
    )
    hang(sandbox, 2)
    await kill(await here.start(*upload(sandbox), *options), sandbox, 2)
    moved = there.folder / "moved.journal"
    for path in tmp_path.glob("job.journal*"):
        path.rename(moved.with_name(path.name.replace("job.journal", "moved.journal")))
    resumed = await there("job", "resume", "moved.journal", "--json")
    report = resumed.result
    assert (resumed.code, report["accepted"], report["failures_file"]) == (5, 240, str(tmp_path / "failed.csv"))
    assert all(each.expires_at.year == 2030 for each in sandbox.audience(sandbox.audience_id).members)


@pytest.mark.long("runs three jobs in processes of their own")
async def test_products_and_do_not_reach_lists_keep_journals_too(
    command: Command, sandbox: Sandbox, tmp_path: Path
) -> None:
    async with Session.sandbox(sandbox) as session:
        catalog = (await session.product_catalogs.create(name="Shop")).id
    shop = "https://shop.example.org"
    row = f"T,D,in_stock,new,9.90 EUR,{shop}/1,{shop}/1.png,B,1"
    header = "id,title,description,availability,condition,price,link,image_link,brand,inventory"
    (tmp_path / "feed.csv").write_text("\n".join([header, *(f"p{number},{row}" for number in range(60)), ""]))
    sent = ("catalog", "upload", "feed.csv", "--catalog", catalog, "--journal", "up.journal", "--json")
    assert (await command(*sent)).result["accepted"] == 60
    again = (await command(*sent)).result
    assert (again["accepted"], again["requests"]) == (60, 3)
    async with Session.sandbox(sandbox) as session:
        keys = [each.product_key async for each in session.product_catalog(catalog).products.list()]
    gone = "\n".join(["product_key", *map(str, keys), ""])
    deleted = await command.start("catalog", "delete", "-", "--catalog", catalog, "--journal", "del.journal", "--json")
    assert (await deleted.wait(gone.encode())).result["accepted"] == 60


# --- reports


@pytest.mark.long("kills a job, resumes it, and reports on it five times")
async def test_a_report_of_a_job_that_stopped_and_of_one_that_is_finished(
    command: Command, sandbox: Sandbox, people: Path, tmp_path: Path
) -> None:
    del people
    hang(sandbox, 2)
    await kill(await command.start(*upload(sandbox)), sandbox, 2)
    assert (await command("job", "report", "job.journal", "--out", "early.html")).code == 0
    early = (tmp_path / "early.html").read_text(encoding="utf-8")
    assert "<strong>Not finished:</strong> the job is stopped" in early
    assert '<th scope="row">Accepted</th><td class="n">100</td>' in early
    assert f"<dt>Audience</dt><dd>{sandbox.audience_id}</dd>" in early
    assert f"<dt>Host</dt><dd>127.0.0.1:{urlsplit(sandbox.ads_url).port}</dd>" in early
    assert "1,500 a minute" in early
    assert (await command("job", "resume", "job.journal")).code == 5
    report = (await command("job", "report", "job.journal")).result
    assert (report["state"], report["read"], report["accepted"], report["runs"]) == ("finished", 242, 240, 2)
    assert report["reasons"] == {"email must be an e-mail address": 2}
    assert report["timeline"][-1]["accepted"] == 240
    assert report["timeline"][-1]["requests"] == report["requests"] == 4
    assert (await command("job", "report", "job.journal", "--out", "report.json")).code == 0
    assert read_shape((tmp_path / "report.json").read_text(encoding="utf-8"))["result"] == report
    for path in ("report.txt", "none/report.html"):
        refused = await command("job", "report", "job.journal", "--out", path, "--json")
        assert (refused.code, refused.error["parameter"]) == (2, "--out")


# --- refused before anything


@pytest.mark.parametrize(
    ("arguments", "parameter"),
    keep_short(
        1,
        [
            (("--journal", "people.csv"), "journal"),
            (("--journal", "nowhere/job.journal"), "journal"),
            (("--journal", "job.journal", "--sandbox"), "--journal"),
        ],
    ),
)
async def test_a_journal_that_cannot_be_kept_is_one_line_and_exit_2(
    command: Command, sandbox: Sandbox, people: Path, arguments: tuple[str, ...], parameter: str
) -> None:
    del people
    target = ("--account", sandbox.account_id, "--audience", sandbox.audience_id)
    ended = await command("audience", "upload", "people.csv", *target, *arguments, "--json")
    assert (ended.code, ended.error["parameter"]) == (2, parameter)
    assert len(ended.err.splitlines()) == 1
    assert not sandbox.requests.count(USERS)


def test_a_sync_has_no_journal(call: Call, here: Path) -> None:
    (here / "people.csv").write_text("email\na@example.org\n")
    assert call("audience", "sync", "people.csv", "--sandbox", "--journal", "x", "--json").error["type"] == "UsageError"


@pytest.mark.parametrize("what", ["status", "resume", "report"])
def test_what_is_no_journal_is_one_line_and_exit_2(call: Call, here: Path, what: str) -> None:
    (here / "nights").mkdir()
    for name in ("nothing.journal", "nights"):
        ended = call("job", what, name, "--json")
        assert (ended.code, ended.err.count("\n"), ended.error["parameter"]) == (2, 1, "journal")
        assert ended.error.get("hint") == (None if (name, what) == ("nights", "status") else "GIVE_A_JOURNAL")


@pytest.mark.parametrize("what", ["status", "resume", "report"])
def test_a_file_of_another_kind_is_no_journal(call: Call, here: Path, what: str) -> None:
    (here / "people.csv").write_text("email\na@example.org\n")
    ended = call("job", what, "people.csv")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert ended.err.startswith(
        "svc-async: journal people.csv is not a journal; give the path of a journal, such as FILE.journal, or --job "
    )


UNREADABLE = "describes its job in a way that this version cannot read"


@pytest.mark.parametrize(
    ("note", "problem"),
    keep_short(
        1,
        [
            ({}, "was not begun by a command; make the same call again"),
            (
                {"command": ["audience", "upload", "people.csv"], "what": "Upload to an audience"},
                f"{UNREADABLE}: job must be one that `to_plain` has encoded",
            ),
            (
                {"format": 1, "job": "upload"},
                f"{UNREADABLE}: job is of format 1, but this version runs format 2",
            ),
        ],
    ),
)
async def test_a_job_that_this_version_cannot_resume_is_one_line_and_exit_2(
    command: Command, tmp_path: Path, note: dict[str, Any], problem: str
) -> None:
    await write_note(JournalFile(tmp_path / "job.journal"), note)

    ended = await command("job", "resume", "job.journal")

    assert (ended.code, ended.out, ended.err) == (2, "", f"svc-async: journal job.journal {problem}\n")


@pytest.mark.long("runs two commands in processes of their own")
async def test_the_journal_of_a_command_describes_its_job(
    command: Command, sandbox: Sandbox, people: Path, tmp_path: Path
) -> None:
    await command(*upload(sandbox), "--map", "*=-", "--phone-region", "DE")

    status = (await command("job", "status", "job.journal", "--json")).result

    job = from_plain(status["spec"])
    assert job.target == TargetSpec(kind="audience", account_id=sandbox.account_id, list_id=sandbox.audience_id)
    assert job.source == SourceSpec(path=str(people), mapping={"*": "-"}, fingerprint=job.file.fingerprint)
    assert (job.reading.phone_region, job.settings.concurrency, job.settings.quarantine) == ("DE", 1, 0)
    content = (tmp_path / "job.journal").read_bytes()
    secrets = {name: value for name, value in environment_of(sandbox).items() if not name.endswith("_URL")}
    assert not [name for name, secret in secrets.items() if secret.encode() in content]


# --- jobs that repeat


@pytest.mark.long("kills a job, and runs three more")
async def test_a_folder_keeps_a_journal_of_each_run(command: Command, sandbox: Sandbox, people: Path) -> None:
    repeated = upload(sandbox, journal=("--journals", "nightly"))
    hang(sandbox, 2)
    await kill(await command.start(*repeated), sandbox, 2)
    for count in (1, 2):
        ended = await command(*repeated, "--json")
        assert ended.code == 5
        assert ended.result["finished_before"] is False
        assert len([*(people.parent / "nightly").glob("*.journal")]) == count
    people.write_text("email\nnew@example.org\n")
    assert (await command(*repeated, "--json")).result["accepted"] == 1


@pytest.mark.long("runs three jobs in processes of their own")
async def test_a_finished_job_says_that_it_sent_nothing(command: Command, sandbox: Sandbox, people: Path) -> None:
    assert (await command(*upload(sandbox))).code == 5
    requests = sandbox.requests.count(USERS)
    again = await command(*upload(sandbox), "--json")
    assert again.result["finished_before"] is True
    assert "--journals FOLDER" in again.err
    people.write_text("email\nnew@example.org\n")
    refused = await command(*upload(sandbox))
    assert refused.code == 2
    assert sandbox.requests.count(USERS) == requests


async def test_a_folder_is_no_journal(command: Command, sandbox: Sandbox, people: Path) -> None:
    (people.parent / "nightly").mkdir()
    ended = await command(*upload(sandbox, journal=("--journal", "nightly")), "--json")
    assert (ended.code, ended.error["parameter"]) == (2, "journal")
    ended = await command(*upload(sandbox), "--journals", "nightly", "--json")
    assert (ended.code, ended.error["parameter"]) == (2, "--journals")
