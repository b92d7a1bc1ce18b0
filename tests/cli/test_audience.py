import csv
import gzip
import hashlib
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from svc_async import Session
from svc_async.sandbox import Fault, Sandbox
from tests.support.command import PROGRAM, Call, Command, Ended, environment_of, limit_requests
from tests.support.tiers import keep_short

LISTED = "audience-{}.upload.failures.csv"
USERS = "*/custom_audiences/*/users"
SMALL_REQUESTS = limit_requests(100)

MESSY = """E-Mail;Phone;Notes
 Ada@Example.ORG ;+44 20 7946-0958;likes maps
ada@example.org;+442079460958;again
broken.at.example.org;;typed badly
;+1 (212) 555-0101;
grace@example.org;12345;no country

;;
"late@example.org";;"two
lines"
bob@example.org;+4930123456;x;too;many
late@example.org;nonsense;
"""
SECRET_PARTS = ("ada@", "Ada@", "grace", "broken.at", "late@", "bob@", "7946", "555", "12345", "nonsense", "maps")


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    path = tmp_path / "customers.csv"
    path.write_text(MESSY, encoding="utf-8")
    return path


@pytest.fixture
def many(tmp_path: Path) -> Path:
    path = tmp_path / "many.csv"
    path.write_text("email\n" + "".join(f"user{number}@example.org\n" for number in range(240)), encoding="utf-8")
    return path


def target(sandbox: Sandbox) -> tuple[str, ...]:
    return "--account", sandbox.account_id, "--audience", sandbox.audience_id


def assert_nothing_private(ended: Ended, sandbox: Sandbox, *more: str) -> None:
    for output in (ended.out, ended.err, *more):
        assert not [part for part in SECRET_PARTS if part in output]
        assert not [secret for secret in environment_of(sandbox).values() if "://" not in secret and secret in output]


# --- the audiences of an account


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_an_audience_is_made_filled_listed_and_deleted(command: Command, sandbox: Sandbox, many: Path) -> None:
    account = ("--account", sandbox.account_id)
    created = await command("audience", "create", "Readers", *account, "--description", "of maps")
    audience = created.out.strip()
    assert (created.code, created.err) == (0, "")
    assert (await command("audience", "upload", many, *account, "--audience", audience)).code == 0

    listed = await command("audience", "list", *account)
    assert listed.out.splitlines()[0].split() == ["ID", "Name", "Size", "Targetable"]
    assert next(line for line in listed.out.splitlines() if audience in line).split()[1:3] == ["Readers", "no"]
    deleted = await command("audience", "delete", *account, "--audience", audience)
    assert (deleted.code, deleted.out) == (0, "")
    assert audience not in (await command("audience", "list", *account)).out


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_audiences_are_objects_for_programs(command: Command, sandbox: Sandbox) -> None:
    account = ("--account", sandbox.account_id, "--json")
    created = (await command("audience", "create", "Readers", *account)).result
    assert (created["name"], created["description"], created["targetable"]) == ("Readers", None, False)

    listed = (await command("audience", "list", *account)).result
    assert listed["unreadable"] == 0
    assert created["id"] in [each["id"] for each in listed["audiences"]]
    deleted = (await command("audience", "delete", "--audience", created["id"], *account)).result
    assert (deleted["id"], deleted["deleted"]) == (created["id"], True)


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_audiences_that_cannot_be_read_are_counted(command: Command, sandbox: Sandbox) -> None:
    sandbox.faults.on("GET", "*/custom_audiences").do(Fault.http(200, body=b'{"data": [{"id": "1"}, null]}'))
    account = ("--account", sandbox.account_id)
    ended = await command("audience", "list", *account, "--quiet")
    assert (ended.code, ended.out, ended.err) == (0, "", "2 audiences could not be read.\n")
    assert (await command("audience", "list", *account, "--json")).result == {"audiences": [], "unreadable": 2}


async def test_the_audience_to_delete_must_be_there(command: Command, sandbox: Sandbox) -> None:
    ended = await command("audience", "delete", "--account", sandbox.account_id, "--audience", "nowhere", "--json")
    assert (ended.code, ended.error["type"], ended.error["status"]) == (1, "NotFound", 404)


@pytest.mark.parametrize("arguments", [("list",), ("create", "Readers"), ("delete", "--account", "a")])
def test_what_a_call_is_about_must_be_given(call: Call, arguments: tuple[str, ...]) -> None:
    ended = call("audience", *arguments, "--json")
    assert (ended.code, ended.error["type"]) == (2, "UsageError")
    assert ("--audience" if "--account" in arguments else "--account") in ended.error["message"]


# --- uploads and removals


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_a_messy_file_becomes_an_audience(command: Command, sandbox: Sandbox, messy: Path) -> None:
    ended = await command("audience", "upload", messy, *target(sandbox), "--map", "notes=-")
    assert ended.code == 5
    # What people see; the other tests read --json.
    first, *others = [" ".join(line.split()).partition(":")[0] for line in ended.out.splitlines()]
    assert first == "customers.csv"
    assert others[:3] == ["3 accepted", "1 coalesced", "5 failed"]
    assert f"listed in {messy}.{LISTED.format(sandbox.audience_id)}" in others
    assert sandbox.audience(sandbox.audience_id).users == [
        {"email": [sha256("ada@example.org")], "phone_number": [sha256("+442079460958")]},
        {"phone_number": [sha256("+12125550101")]},
        {"email": [sha256("late@example.org")]},
    ]


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_failures_are_listed_by_line_and_reason_and_never_by_value(
    command: Command, sandbox: Sandbox, messy: Path, tmp_path: Path
) -> None:
    listed = tmp_path / "failed.csv"
    ended = await command("audience", "upload", messy, *target(sandbox), "--map", "*=-", "--failures-file", listed)
    content = listed.read_text(encoding="utf-8")
    with listed.open(encoding="utf-8", newline="") as file:
        rows = [(row["position"], row["line"], row["field"], row["code"]) for row in csv.DictReader(file)]
    assert sorted(rows) == [
        ("2", "4", "email", "INVALID_ROW"),
        ("4", "6", "phone_number", "INVALID_ROW"),
        ("5", "8", "", "INVALID_ROW"),
        ("7", "11", "", "INVALID_ROW"),
        ("8", "12", "phone_number", "INVALID_ROW"),
    ]
    assert_nothing_private(ended, sandbox, content)


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_json_is_one_object_and_all_that_is_said(command: Command, sandbox: Sandbox, messy: Path) -> None:
    ended = await command("audience", "upload", messy, *target(sandbox), "--map", "*=-", "--json")
    report = ended.result
    assert ended.code == 5
    assert ended.err == ""
    assert ended.out.count("\n") == 1
    assert (report["read"], report["accepted"], report["coalesced"], report["failed"]) == (9, 3, 1, 5)
    assert report["pending"] == report["in_doubt"] == 0
    assert report["requests"] == 1
    assert report["file"] == str(messy)
    assert report["failures_file"] == f"{messy}.{LISTED.format(sandbox.audience_id)}"
    assert report["interrupted"] is False
    assert ended.error is None
    assert report["seconds"] > 0
    assert report["rows_per_second"] > 0
    assert [failure["position"] for failure in report["failures"]] == [2, 4, 5, 7, 8]
    assert_nothing_private(ended, sandbox)


async def test_a_file_without_failures_ends_well_and_leaves_no_list(
    command: Command, sandbox: Sandbox, many: Path
) -> None:
    (many.parent / f"many.csv.{LISTED.format(sandbox.audience_id)}").write_text(
        "position,line,field,reason,code,file\n1,3,,of last time,X,\n"
    )
    ended = await command("audience", "upload", str(many), *target(sandbox), "--concurrency", "4")
    assert ended.code == 0
    assert len(sandbox.audience(sandbox.audience_id).users) == 240
    assert [path.name for path in many.parent.iterdir()] == ["many.csv"]


async def test_users_are_removed_again(command: Command, sandbox: Sandbox, tmp_path: Path) -> None:
    async with Session.sandbox(sandbox) as session:
        audience = session.account(sandbox.account_id).custom_audience(sandbox.audience_id)
        await audience.users.upload({"email": f"user{number}@example.org"} for number in range(60))
    gone = tmp_path / "gone.csv"
    gone.write_text("email\nUSER7@example.org\nuser8@example.org\n", encoding="utf-8")
    ended = await command("audience", "remove", gone, *target(sandbox), "--json")
    assert ended.code == 0
    left = {user["email"][0] for user in sandbox.audience(sandbox.audience_id).users}
    assert len(left) == 58
    assert sha256("user7@example.org") not in left


async def test_settings_reach_the_service(command: Command, sandbox: Sandbox, many: Path) -> None:
    ended = await command(
        *("audience", "upload", str(many), *target(sandbox), "--json"),
        *("--effective-at", "2030-01-01T00:00:00+01:00", "--expires-at", "2031-01-01T00:00:00Z"),
        *("--users-per-operation", "1", "--concurrency", "1", "--ordering", "none"),
        program=SMALL_REQUESTS,
    )
    assert ended.result["requests"] == 3
    member = sandbox.audience(sandbox.audience_id).members[0]
    assert member.effective_at.isoformat() == "2029-12-31T23:00:00+00:00"
    assert member.expires_at.isoformat() == "2031-01-01T00:00:00+00:00"


async def test_national_numbers_are_understood_with_a_region(
    command: Command, sandbox: Sandbox, tmp_path: Path
) -> None:
    path = tmp_path / "phones.csv"
    path.write_text("phone\n030 1234567\n", encoding="utf-8")
    ended = await command("audience", "upload", path, *target(sandbox), "--phone-region", "DE")
    assert ended.code == 0
    assert sandbox.audience(sandbox.audience_id).users == [{"phone_number": [sha256("+49301234567")]}]


async def test_a_fault_on_the_way_is_survived(command: Command, sandbox: Sandbox, many: Path) -> None:
    sandbox.faults.on("POST", USERS).nth(1).do(Fault.http(503))
    sandbox.faults.on("POST", USERS).nth(3).do(Fault.drop_connection(), stage="after")
    few = ("--quarantine", "0", "--users-per-operation", "1")
    ended = await command("audience", "upload", many, *target(sandbox), *few, program=SMALL_REQUESTS)
    assert ended.code == 0
    assert not sandbox.faults.unused()
    assert len(sandbox.audience(sandbox.audience_id).users) == 240


def test_anybody_can_try_it_on_a_sandbox(call: Call, here: Path) -> None:
    (here / "customers.csv").write_text("email\na@example.org\n", encoding="utf-8")
    ended = call("audience", "upload", "customers.csv", "--sandbox", "--json")
    assert (ended.code, ended.result["accepted"]) == (0, 1)


LINES = '{"E-Mail": "a@example.org", "note": "n"}\n{"phone": "+4930123456"}\n'


@pytest.mark.parametrize(
    "content", ["E-Mail,phone,note\na@example.org,,n\n,+4930123456,\n", LINES], ids=["csv", "jsonl"]
)
@pytest.mark.parametrize("pack", [bytes, pytest.param(gzip.compress, marks=pytest.mark.long)], ids=["plain", "gz"])
async def test_a_file_may_come_from_standard_input_in_any_format(
    command: Command, sandbox: Sandbox, content: str, pack: Callable[[bytes], bytes]
) -> None:
    running = await command.start("audience", "upload", "-", *target(sandbox), "--map", "note=-", "--json")
    ended = await running.wait(pack(content.encode()))
    assert ended.code == 0
    assert ended.result["file"] == "-"
    users = sandbox.audience(sandbox.audience_id).users
    assert len(users) == 2
    assert {"email": [sha256("a@example.org")]} in users
    assert {"phone_number": [sha256("+4930123456")]} in users


def test_an_option_in_the_place_of_the_file_is_no_file(call: Call, here: Path) -> None:
    del here
    ended = call("audience", "upload", "--nonsense", "customers.csv")
    assert ended.code == 2
    assert "--nonsense" in ended.err


async def test_failures_of_standard_input_are_listed_where_the_command_runs(
    command: Command, sandbox: Sandbox, tmp_path: Path
) -> None:
    running = await command.start("audience", "remove", "-", *target(sandbox))
    ended = await running.wait(b"email\nann\n")
    assert ended.code == 5
    assert "0,2,email,must be" in (tmp_path / f"stdin.audience-{sandbox.audience_id}.remove.failures.csv").read_text()


def test_rows_without_lines_are_listed_by_position(call: Call, here: Path) -> None:
    parquet.write_table(pa.table({"email": ["a@example.org", "b"]}), here / "x")
    ended = call("audience", "upload", "x", "--sandbox", "--format", "parquet")
    assert ended.code == 5
    assert "1,,email,must be" in (here / "x.audience-sandbox.upload.failures.csv").read_text()


def test_an_empty_file_with_a_header_is_done_at_once(call: Call, here: Path) -> None:
    (here / "customers.csv").write_text("email\n", encoding="utf-8")
    ended = call("audience", "upload", "customers.csv", "--sandbox", "--json")
    assert ended.code == 0
    assert ended.result["read"] == 0


PARTLY_VALID = "email,phone\na@example.org,+4930123456\nn/a,+4930123457\nnobody,+4930123458\nnobody,n/a\n"


@pytest.mark.parametrize(
    ("options", "accepted", "partly_valid"),
    keep_short(
        1,
        [
            ((), 1, 2),
            (("--empty", "n/a,-"), 2, 1),
            (("--bad-identifiers", "drop"), 3, 2),
            (("--bad-identifiers", "drop", "--empty", "n/a"), 3, 1),
        ],
    ),
)
def test_rows_with_a_valid_identifier_can_be_sent_with_it(
    call: Call, here: Path, options: tuple[str, ...], accepted: int, partly_valid: int
) -> None:
    (here / "customers.csv").write_text(PARTLY_VALID)
    report = call("audience", "upload", "customers.csv", "--sandbox", "--json", *options).result
    assert (report["accepted"], report["partly_valid"]) == (accepted, partly_valid)


def test_the_columns_of_a_file_without_a_header_can_be_named(call: Call, here: Path) -> None:
    (here / "customers.csv").write_text("a@example.org;+4930123456\nb@example.org;\n")
    refused = call("audience", "upload", "customers.csv", "--sandbox", "--json")
    assert refused.error["hint"] == "NAME_THE_COLUMNS"
    ended = call("audience", "upload", "customers.csv", "--sandbox", "--columns", "E-Mail,phone", "--json")
    assert ended.result["accepted"] == 2


@pytest.mark.parametrize(
    ("first", "columns", "warned"),
    keep_short(
        2,
        [
            ("email,phone", "email,phone", True),
            ("b@example.org,phone", "email,phone", False),
            ("Mail,Tel", "mail,tel", True),
            ("E-Mail,", "mail,tel", True),
            (",", "email,phone", False),
        ],
    ),
)
def test_a_header_is_noticed_where_columns_are_named(
    call: Call, here: Path, first: str, columns: str, warned: bool
) -> None:
    (here / "customers.csv").write_text(f"{first}\na@example.org,+4930123456\n")
    mapping = ("--map", "mail=email", "--map", "tel=phone") if columns == "mail,tel" else ()
    ended = call("audience", "upload", "customers.csv", "--sandbox", "--columns", columns, *mapping)
    assert ("warning: line 1 of customers.csv" in ended.err) is warned


def test_a_column_is_mapped_to_any_common_name(call: Call, here: Path) -> None:
    (here / "customers.csv").write_text("Telefon,Kunde\n+4930123456,7\n")
    options = ("--map", "Telefon=phone", "--map", "Kunde=-")
    assert call("audience", "upload", "customers.csv", "--sandbox", "--json", *options).result["accepted"] == 1


# --- interrupted


@pytest.mark.parametrize(
    "program", [SMALL_REQUESTS, pytest.param(PROGRAM, marks=pytest.mark.long)], ids=["forked", "alone"]
)
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
async def test_a_signal_ends_the_job_with_its_report(
    command: Command,
    sandbox: Sandbox,
    many: Path,
    program: Callable[[], int] | tuple[str, ...],
    number: signal.Signals,
) -> None:
    size = 100 if program is SMALL_REQUESTS else 2_500
    rows = size * 12 // 5
    many.write_text("email\n" + "".join(f"user{number}@example.org\n" for number in range(rows)))
    sandbox.faults.on("POST", USERS).nth(2).do(Fault.hang())
    few = ("--concurrency", "1", "--users-per-operation", "1")
    running = await command.start("audience", "upload", many, *target(sandbox), "--json", *few, program=program)
    await sandbox.requests.wait(count=2, route=USERS)
    running.send(number)
    ended = await running.wait()
    report = ended.result
    assert ended.code == 130
    assert report["interrupted"] is True
    assert {**ended.error, "message": None} == {
        "type": "Interrupted",
        "message": None,
        "sent": "maybe",
        "repeatable": True,
    }
    assert (report["read"], report["accepted"], report["pending"], report["in_doubt"]) == (
        rows,
        size,
        rows - size,
        size,
    )
    assert len(sandbox.audience(sandbox.audience_id).users) == size
    assert "Traceback" not in ended.err


async def test_an_interrupted_job_prints_what_is_still_to_do(command: Command, sandbox: Sandbox, many: Path) -> None:
    sandbox.faults.on("POST", USERS).nth(2).do(Fault.hang())
    running = await command.start(
        *("audience", "upload", str(many), *target(sandbox), "--concurrency", "1", "--users-per-operation", "1"),
        program=SMALL_REQUESTS,
    )
    await sandbox.requests.wait(count=2, route=USERS)
    running.send(signal.SIGINT)
    ended = await running.wait()
    assert ended.code == 130
    assert [line.split()[:1] for line in ended.out.splitlines()[1:]] == [["100"], ["140"], ["100"]]
    assert "140 rows that were read" in ended.err


@pytest.mark.parametrize("journal", [pytest.param((), marks=pytest.mark.long), ("--journal", "job.journal")])
async def test_a_wrong_id_is_to_be_replaced_and_not_tried_again(
    command: Command, sandbox: Sandbox, many: Path, journal: tuple[str, ...]
) -> None:
    wrong = ("--account", sandbox.account_id, "--audience", "nope", *journal)
    ended = await command("audience", "upload", str(many), *wrong)
    assert ended.code == 1
    assert "--audience" in ended.err
    assert ("journal" in ended.err) == bool(journal)
    assert "same command" not in ended.err
    assert "resume" not in ended.err


async def test_an_interrupted_job_prints_the_first_line_that_was_not_read(
    command: Command, sandbox: Sandbox, tmp_path: Path
) -> None:
    path = tmp_path / "endless.csv"
    with path.open("w", encoding="utf-8") as file:
        file.write("email\n" + "".join(f"user{number}@example.org\n" for number in range(40_000)))
    sandbox.faults.on("POST", USERS).do(Fault.hang())
    running = await command.start(
        *("audience", "upload", str(path), *target(sandbox), "--concurrency", "1", "--users-per-operation", "1")
    )
    await sandbox.requests.wait(count=1, route=USERS)
    running.send(signal.SIGINT)
    ended = await running.wait()
    found = re.search(r"Still to do: ([\d,]+) rows that were read, and the file from line ([\d,]+) on\.", ended.err)
    assert ended.code == 130
    assert found is not None
    pending, line = (int(number.replace(",", "")) for number in found.groups())
    assert line == pending + 2


@pytest.mark.parametrize("operation", ["upload", pytest.param("sync", marks=pytest.mark.long)])
def test_a_file_without_rows_is_noted_in_the_summary(call: Call, here: Path, operation: str) -> None:
    (here / "empty.csv").write_text("email\n", encoding="utf-8")
    (here / "full.csv").write_text("email\na@example.org\n", encoding="utf-8")
    empty, full = (call("audience", operation, name, "--sandbox") for name in ("empty.csv", "full.csv"))
    assert (empty.code, full.code) == (0, 0)
    assert ("no rows" in empty.out, "no rows" in full.out) == (True, False)


# --- refused by the service


async def test_wrong_credentials_show_before_anything_is_sent(command: Command, sandbox: Sandbox, many: Path) -> None:
    sandbox.invalidate(sandbox.credentials["token"])
    ended = await command("audience", "upload", str(many), *target(sandbox), "--json")
    assert ended.code == 1
    assert (ended.result, ended.error["type"], ended.error["status"]) == (None, "Unauthorized", 401)
    assert len(ended.err.splitlines()) == 1
    assert not sandbox.requests.count(USERS)
    assert_nothing_private(ended, sandbox)


def test_an_account_of_somebody_else_is_named_with_what_to_do(call: Call, here: Path) -> None:
    (here / "customers.csv").write_text("email\na@example.org\n", encoding="utf-8")
    ended = call("audience", "upload", "customers.csv", "--sandbox", "--account", "18ce55gze09", "--json")
    assert ended.code == 1
    assert (ended.error["type"], ended.error["status"]) == ("Forbidden", 403)
    assert "svc-async accounts list" in ended.error["message"]


def test_an_audience_that_is_not_there_leaves_a_report(call: Call, here: Path) -> None:
    (here / "customers.csv").write_text("email\na@example.org\n", encoding="utf-8")
    as_json = call("audience", "upload", "customers.csv", "--sandbox", "--audience", "nowhere", "--json")
    assert as_json.code == 1
    assert (as_json.error["type"], as_json.error["status"]) == ("NotFound", 404)
    assert as_json.error["codes"] == ["TAILORED_AUDIENCE_NOT_FOUND"]
    assert as_json.result["pending"] == 1


# --- refused before

GOOD = "email\na@example.org\n"
USAGE = [
    pytest.param((), None, ("file", None), id="no file"),
    pytest.param((), "", ("file", None), id="empty"),
    pytest.param((), "a@example.org\nb@example.org\n", ("file", "NAME_THE_COLUMNS"), id="no header"),
    pytest.param((), "Ann,Smith\n", ("file", "MAP_A_COLUMN"), id="nothing known"),
    pytest.param((), "email,First\na@example.org,Ann\n", ("file", "MAP_OR_IGNORE"), id="unknown column"),
    pytest.param((), b"email\nm\xfcller@example.org\n", ("file", "NAME_THE_ENCODING"), id="latin-1"),
    pytest.param((), b"email\na\0@example.org\n", ("file", "NAME_THE_ENCODING"), id="nul"),
    pytest.param((), b"\x7fELF\2\1\1" + bytes(9) + b"\3\xf6" + bytes(90), ("file", None), id="program"),
    pytest.param((), 'email\n"a@example.org\n', ("file", None), id="open quote"),
    pytest.param(("--map", "email"), GOOD, ("--map", None), id="map without key"),
    pytest.param(("--map", "email=mail"), GOOD, ("--map", None), id="map to no key"),
    pytest.param(("--map", "nope=-"), GOOD, ("--map", None), id="map of no column"),
    pytest.param(("--expires-at", "soon"), GOOD, ("--expires-at", None), id="no time"),
    pytest.param(("--expires-at", "2030-01-01T00:00:00"), GOOD, ("--expires-at", None), id="no zone"),
    pytest.param(("--expires-at", "2001-01-01T00:00:00Z"), GOOD, ("--expires-at", None), id="expired"),
    pytest.param(("--concurrency", "0"), GOOD, ("--concurrency", None), id="no concurrency"),
    pytest.param(("--concurrency", "999999999"), GOOD, ("--concurrency", None), id="concurrency"),
    pytest.param(("--quarantine", "inf"), GOOD, ("--quarantine", None), id="endless quarantine"),
    pytest.param(("--users-per-operation", "0"), GOOD, ("--users-per-operation", None), id="no users"),
    pytest.param(("--quarantine", "-1"), GOOD, ("--quarantine", None), id="quarantine"),
    pytest.param(("--phone-region", "de"), GOOD, ("--phone-region", None), id="region"),
    pytest.param(("--profile", "mine"), GOOD, ("--profile", None), id="profile"),
    pytest.param(("--failures-file", "customers.csv"), GOOD, ("--failures-file", None), id="over the file"),
    pytest.param(("--failures-file", "nowhere/f.csv"), GOOD, ("--failures-file", None), id="nowhere to list"),
    pytest.param(("--failures-file", "notes.txt"), GOOD, ("--failures-file", None), id="over another file"),
    pytest.param(("--account", "a/b"), GOOD, ("--account", None), id="slashed id"),
    pytest.param(("--audience", ""), GOOD, ("--audience", None), id="empty id"),
]
UNREADABLE = [
    pytest.param(("--concurrency", "x"), id="not a number"),
    pytest.param(("--ordering", "random"), id="ordering"),
    pytest.param(("--colour",), id="unknown option"),
]


@pytest.mark.parametrize(("options", "content", "told"), USAGE)
def test_wrong_input_is_one_line_and_exit_2(
    call: Call, here: Path, options: tuple[str, ...], content: str | bytes | None, told: tuple[str, str | None]
) -> None:
    if content is not None:
        (here / "customers.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    (here / "notes.txt").write_text("mine\n")
    ended = call("audience", "upload", "customers.csv", "--sandbox", *options, "--json")
    assert (ended.code, ended.result) == (2, None)
    assert (ended.error["parameter"], ended.error.get("hint")) == told
    assert ended.err == f"svc-async: {ended.error['message']}\n"
    assert not [part for part in ("example.org", "Ann", "Smith") if part in ended.err]
    assert (here / "notes.txt").read_text() == "mine\n"
    assert not [*here.glob("*.failures.csv*")]


@pytest.mark.parametrize("options", keep_short(1, UNREADABLE))
def test_an_option_that_cannot_be_parsed_is_named(call: Call, options: tuple[str, ...]) -> None:
    ended = call("audience", "upload", "customers.csv", "--sandbox", *options, "--json")
    assert (ended.code, ended.error["type"], len(ended.err.splitlines())) == (2, "UsageError", 1)
    assert options[0] in ended.err


@pytest.mark.parametrize("operation", ["upload", "remove"])
def test_a_folder_is_no_file(call: Call, here: Path, operation: str) -> None:
    for file in (here, ""):
        ended = call("audience", operation, file, "--sandbox", "--json")
        assert (ended.code, ended.error["parameter"]) == (2, "file")


@pytest.mark.parametrize(
    ("options", "parameter", "hint"),
    [
        ((), "--account", "LIST_ACCOUNTS"),
        (("--account", "a"), "--audience", "GIVE_AN_ID"),
        (("--account", "a", "--audience", "b"), "credentials", "SET_CREDENTIALS"),
    ],
)
def test_ids_and_credentials_must_be_given(
    call: Call, here: Path, options: tuple[str, ...], parameter: str, hint: str
) -> None:
    (here / "customers.csv").write_text(GOOD)
    ended = call("audience", "upload", "customers.csv", *options, "--json")
    assert (ended.code, ended.error["parameter"], ended.error["hint"]) == (2, parameter, hint)
    assert len(ended.err.splitlines()) == 1


def test_what_breaks_in_the_middle_leaves_a_report(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two wrongs that look right: an even number of quotes passes the quick check."""
    lines = ["email", *(f"user{number}@example.org" for number in range(2_000)), '"a"b', 'c"d', "e@example.org"]
    (here / "customers.csv").write_text("\n".join([*lines, '"x'[1:]]) + '\n"y"z\n', encoding="utf-8")
    monkeypatch.setattr("svc_async.sources.csv_source.CsvSource.check", _unchecked)
    ended = call("audience", "upload", "customers.csv", "--sandbox", "--json")
    report = ended.result
    assert ended.code == 1
    assert (ended.error["parameter"], ended.error["sent"]) == ("file", "yes")
    assert "line 2002" in ended.error["message"]
    assert report["accepted"] == report["read"] == 1_536
    assert report["pending"] == 0


async def _unchecked(_: object) -> None:
    """Find nothing."""
