import asyncio
import shutil
from pathlib import Path

import pytest

from svc_async.sandbox import Fault, Sandbox
from tests.support.command import Call, Command, limit_files, read_shape


def write(here: Path) -> None:
    (here / "people.csv").write_text("email\n" + "".join(f"user{n}@example.org\n" for n in range(1_200)) + "nobody\n")


def test_a_page_for_people(call: Call, here: Path) -> None:
    write(here)
    ended = call("audience", "upload", "people.csv", "--sandbox", "--report", "report.html")
    page = (here / "report.html").read_text(encoding="utf-8")
    assert ended.code == 5
    assert "<title>Upload to an audience: people.csv</title>" in page
    assert '<th scope="row">Accepted</th><td class="n">1,200</td>' in page
    assert '<th scope="row">email must be an e-mail address</th><td class="n">1</td>' in page
    assert "nobody" not in page


def test_an_object_for_programs(call: Call, here: Path) -> None:
    write(here)
    ended = call("audience", "upload", "people.csv", "--sandbox", "--report", "report.json", "--json")
    printed, report = ended.result, read_shape((here / "report.json").read_text(encoding="utf-8"))["result"]
    assert {name: report[name] for name in printed} == printed
    assert report["reasons"] == {"email must be an e-mail address": 1}
    assert report["requests_per_minute_limit"] == 1_500
    assert report["timeline"][-1]["accepted"] == 1_200


async def test_a_job_that_ended_early_says_so(command: Command, sandbox: Sandbox, tmp_path: Path) -> None:
    write(tmp_path)
    sandbox.faults.on("POST", "*/custom_audiences/*/users").do(Fault.http(403))
    target = ("--account", sandbox.account_id, "--audience", sandbox.audience_id)
    ended = await command("audience", "upload", "people.csv", *target, "--report", "report.html")
    assert ended.code == 1
    assert "<strong>Not finished:</strong> HTTP 403" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", ["report", "nowhere/report.html", "people.html"])
def test_a_report_needs_a_place_and_a_form(call: Call, here: Path, path: str) -> None:
    write(here)
    (here / "people.csv").rename(here / "people.html")
    ended = call("audience", "upload", "people.html", "--sandbox", "--report", path, "--json")
    assert (ended.code, ended.error["parameter"]) == (2, "--report")
    assert (here / "people.html").read_text().startswith("email")


@pytest.mark.long("runs ten commands in processes of their own")
async def test_a_report_replaces_only_reports(command: Command, sandbox: Sandbox, tmp_path: Path) -> None:
    write(tmp_path)
    target = ("--account", sandbox.account_id, "--audience", sandbox.audience_id)
    upload = ("audience", "upload", "people.csv", *target, "--report")
    by_journal = ("job", "report", "job.journal", "--out")
    await command(*upload[:-1], "--journal", "job.journal")
    sandbox.requests.clear()
    for name, content in (("site.html", "<!doctype html>\n<title>Shop</title>"), ("a.json", "{}")):
        (tmp_path / name).write_text(content)
        refused = [await command(*arguments, name, "--json") for arguments in (upload, by_journal)]
        assert [(ended.code, ended.error["parameter"]) for ended in refused] == [(2, "--report"), (2, "--out")]
        assert (tmp_path / name).read_text() == content
        (tmp_path / name).write_text("")
    assert not sandbox.requests.count()
    repeated = ((upload, "site.html"), (by_journal, "site.html"), (upload, "site.html"), (upload, "a.json"))
    codes = [(await command(*arguments, name)).code for arguments, name in (*repeated, (by_journal, "a.json"))]
    assert codes == [5, 0, 5, 5, 0]


def test_a_report_says_where_it_is(call: Call, here: Path) -> None:
    write(here)
    ended = call("audience", "upload", "people.csv", "--sandbox", "--report", "report.html")
    assert ended.err.endswith("The report is in report.html.\n")
    assert (
        "report is in" not in call("audience", "upload", "people.csv", "--sandbox", "--report", "r.json", "--json").err
    )


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_the_report_of_a_journal_says_where_it_is(command: Command, sandbox: Sandbox, tmp_path: Path) -> None:
    write(tmp_path)
    target = ("--account", sandbox.account_id, "--audience", sandbox.audience_id)
    await command("audience", "upload", "people.csv", *target, "--journal", "job.journal")
    assert (await command("job", "report", "job.journal", "--out", "r.html")).err == "The report is in r.html.\n"
    as_json = await command("job", "report", "job.journal", "--out", "r.json", "--json")
    assert (as_json.result, as_json.err) == ({"report": "r.json"}, "")


def test_a_name_is_printed_as_it_is(call: Call, here: Path) -> None:
    write(here)
    (here / "people.csv").rename(here / ":smile: [red].csv")
    assert call("audience", "upload", ":smile: [red].csv", "--sandbox").out.startswith(":smile: [red].csv: 1,201 rows")


USERS = "*/custom_audiences/*/users"


@pytest.mark.parametrize("operation", ["upload", pytest.param("sync", marks=pytest.mark.long)])
async def test_a_report_that_cannot_be_written_is_refused_before_anything_is_sent(
    command: Command, sandbox: Sandbox, tmp_path: Path, operation: str
) -> None:
    write(tmp_path)
    target = ("--account", sandbox.account_id, "--audience", sandbox.audience_id)
    earlier = '{"version": 1, "command": "audience upload", "result": null}'
    (tmp_path / "earlier.json").write_text(earlier)
    full = limit_files(8_192)
    for name in ("earlier.json", "new.html"):
        ended = await command("audience", operation, "people.csv", *target, "--report", name, "--json", program=full)
        assert (ended.code, ended.error["sent"]) == (2, "no")
        assert ended.error["message"] == f"--report cannot be written to {name}: File too large"
    assert not sandbox.requests.count(route=USERS)
    assert (tmp_path / "earlier.json").read_text() == earlier
    assert not (tmp_path / "new.html").exists()


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_the_report_of_a_journal_that_cannot_be_written(
    command: Command, sandbox: Sandbox, tmp_path: Path
) -> None:
    write(tmp_path)
    target = ("--account", sandbox.account_id, "--audience", sandbox.audience_id)
    await command("audience", "upload", "people.csv", *target, "--journal", "job.journal")
    (tmp_path / "r.html").symlink_to("mine.html")
    ended = await command("job", "report", "job.journal", "--out", "r.html", "--json")
    assert (ended.code, ended.error["parameter"]) == (2, "--out")


def test_the_check_of_a_report_leaves_nothing_behind(call: Call, here: Path) -> None:
    write(here)
    target = ("--account", "a1", "--audience", "b1")
    ended = call("audience", "upload", "people.csv", *target, "--report", "r.html")
    assert ended.code == 2
    assert [each.name for each in here.iterdir() if each.is_file()] == ["people.csv"]


@pytest.mark.long("the folder goes while a request waits for a second")
@pytest.mark.parametrize("journal", [(), ("--journal", "job.journal")])
async def test_a_report_that_is_lost_in_the_end_leaves_the_result(
    command: Command, sandbox: Sandbox, tmp_path: Path, journal: tuple[str, ...]
) -> None:
    (tmp_path / "people.csv").write_text("email\na@example.org\n")
    (tmp_path / "reports").mkdir()
    sandbox.faults.on("POST", USERS).do(Fault.latency(1.0))
    target = ("--account", sandbox.account_id, "--audience", sandbox.audience_id)
    running = await command.start(
        "audience", "upload", "people.csv", *target, *journal, "--report", "reports/r.html", "--json"
    )
    await sandbox.requests.wait(count=1, route=USERS)
    await asyncio.to_thread(shutil.rmtree, tmp_path / "reports")
    ended = await running.wait()
    assert (ended.code, ended.result["accepted"]) == (1, 1)
    error = ended.error
    message = error.pop("message")
    assert error == {"type": "UnusableFile", "sent": "yes", "repeatable": False}
    assert ended.err == f"svc-async: {message}\n"
    assert ("svc-async job report job.journal" in message) is bool(journal)
    if journal:
        again = await command("job", "report", "job.journal", "--out", "r.html")
        assert (again.code, (tmp_path / "r.html").exists()) == (0, True)
