import asyncio
import random
import signal
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import attrs
import pytest

from svc_async.sandbox import Fault, Sandbox
from svc_async.state import SharedState
from tests.support.command import Call, Command, limit_requests
from tests.support.tiers import keep_short

USERS = "*/custom_audiences/*/users"


@pytest.fixture
def people(tmp_path: Path) -> Callable[[range], Path]:
    def people(numbers: range) -> Path:
        path = tmp_path / "people.csv"
        path.write_text("email\n" + "".join(f"user{number}@example.org\n" for number in numbers), encoding="utf-8")
        return path

    return people


def target(sandbox: Sandbox) -> tuple[str, ...]:
    return "--account", sandbox.account_id, "--audience", sandbox.audience_id


def count_members(sandbox: Sandbox) -> int:
    return len(sandbox.audience(sandbox.audience_id).users)


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_the_second_sync_sends_what_changed(
    command: Command, sandbox: Sandbox, people: Callable[[range], Path], tmp_path: Path
) -> None:
    sync = ("audience", "sync", str(tmp_path / "people.csv"), *target(sandbox))
    people(range(1_000))
    assert (await command(*sync, "--json")).result["accepted"] == 1_000
    people(range(100, 1_050))
    dry = await command(*sync, "--dry-run", "--json")
    assert dry.code == 0
    names = ("additions", "removals", "unchanged", "present", "least_requests")
    assert [dry.result[name] for name in names] == [50, 100, 900, 1_000, 2]
    assert count_members(sandbox) == 1_000
    second = await command(*sync, "--json")
    report = second.result
    assert second.code == 0
    assert (report["read"], report["accepted"], report["additions"], report["removals"]) == (150, 150, 50, 100)
    assert count_members(sandbox) == 950
    assert [path.name for path in (tmp_path / "svc_async").iterdir()] == [
        path.name for path in (tmp_path / "svc_async").glob("*.sqlite")
    ]


@pytest.mark.parametrize(
    ("options", "locked"),
    keep_short(
        1,
        [
            (("", ""), "failures file people.csv.audience-1nmth.sync.failures.csv"),
            (("--failures-file f.csv", "--failures-file f.csv"), "failures file f.csv"),
            (("--state s.sqlite", "--state s.sqlite --failures-file f.csv"), "state {folder}/s.sqlite"),
            (("", "--failures-file f.csv"), "state {folder}/svc_async/"),
        ],
    ),
    ids=["failures", "failures by name", "state by name", "state"],
)
@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_a_second_sync_at_the_same_time_ends_with_code_1(
    command: Command,
    sandbox: Sandbox,
    people: Callable[[range], Path],
    options: tuple[str, str],
    locked: str,
) -> None:
    folder = people(range(10)).parent
    sync = ("audience", "sync", "people.csv", *target(sandbox))
    sandbox.faults.on("POST", USERS).nth(1).do(Fault.hang())
    first, second = options
    running = await command.start(*sync, *first.split())
    await sandbox.requests.wait(count=1, route=USERS)

    refused = await command(*sync, *second.split(), "--json")

    assert (refused.code, refused.result) == (1, None)
    assert refused.error["message"].startswith(locked.format(folder=folder))
    assert (refused.error["type"], refused.error["sent"], refused.error["repeatable"]) == ("UnusableFile", "no", True)
    running.send(signal.SIGINT)
    await running.wait()


async def test_a_dry_run_as_json_is_one_object(
    command: Command, sandbox: Sandbox, people: Callable[[range], Path], tmp_path: Path
) -> None:
    ended = await command(
        *("audience", "sync", str(people(range(7))), *target(sandbox)),
        *("--dry-run", "--json", "--state", str(tmp_path / "state"), "--users-per-operation", "1"),
    )
    assert ended.result == {
        "dry_run": True, "additions": 7, "changes": 0, "refreshes": 0, "linked": 0, "removals": 0, "unchanged": 0,
        "repeated": 0, "invalid_rows": 0, "present": 0, "least_requests": 1, "least_minutes": 0.001,
        "removal_share": 0.0,
    }  # fmt: skip  # as it is typed
    assert not sandbox.requests.count(USERS)
    assert (tmp_path / "state").exists()


@pytest.mark.long("runs three syncs in processes of their own")
async def test_rows_that_repeat_a_key_are_counted(command: Command, sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("email\n" + "a@example.org\nb@example.org\nno mail\n" * 3)
    sync = ("audience", "sync", "people.csv", *target(sandbox))
    planned = await command(*sync, "--dry-run", "--json")
    ended = await command(*sync)
    again = await command(*sync, "--json")
    assert (planned.result["additions"], planned.result["invalid_rows"], planned.result["repeated"]) == (2, 3, 4)
    assert ended.code == 5
    names = ("unchanged", "invalid_rows", "repeated", "coalesced")
    assert [again.result[name] for name in names] == [2, 3, 4, 0]


@pytest.mark.long("runs four syncs in processes of their own")
async def test_removals_do_not_dilute_the_share_of_failures(
    command: Command, sandbox: Sandbox, people: Callable[[range], Path], tmp_path: Path
) -> None:
    sync = ("audience", "sync", str(tmp_path / "people.csv"), *target(sandbox), "--max-removal-share", "1")
    people(range(1_000))
    await command(*sync)
    with people(range(90)).open("a") as file:
        file.write("no mail\n" * 10)
    runs = [await command(*sync, "--max-failure-share", share, "--json") for share in ("0.02", "0.02", "0.1")]
    assert [ended.code for ended in runs] == [5, 5, 0]
    assert (runs[0].result["removals"], runs[0].result["failed"]) == (910, 10)


@pytest.mark.long("runs two syncs in processes of their own")
async def test_the_speed_of_a_sync_is_that_of_the_rows_that_it_compares(
    command: Command, sandbox: Sandbox, people: Callable[[range], Path], tmp_path: Path
) -> None:
    sync = ("audience", "sync", str(tmp_path / "people.csv"), *target(sandbox), "--json")
    people(range(100))
    await command(*sync)
    second = (await command(*sync)).result
    assert (second["read"], second["unchanged"]) == (0, 100)
    assert second["rows_per_second"] == pytest.approx(100 / second["seconds"], rel=0.1)


@pytest.mark.long("runs six syncs in processes of their own")
async def test_a_file_that_was_cut_short_removes_nobody(
    command: Command, sandbox: Sandbox, people: Callable[[range], Path], tmp_path: Path
) -> None:
    sync = ("audience", "sync", str(tmp_path / "people.csv"), *target(sandbox))
    people(range(100))
    await command(*sync)
    people(range(79))
    dry, dry_json = await command(*sync, "--dry-run"), await command(*sync, "--dry-run", "--json")
    stopped, stopped_json = await command(*sync), await command(*sync, "--json")
    assert stopped.code == dry.code == 2
    assert dry_json.error["parameter"] == "--max-removal-share"
    assert dry_json.error == stopped_json.error
    assert (dry_json.error["type"], dry_json.error["sent"]) == ("InvalidArgument", "no")
    assert (dry_json.result["removals"], dry_json.result["removal_share"]) == (21, 0.21)
    assert dry.err.splitlines()[-1] == dry_json.err.splitlines()[-1] == stopped.err.splitlines()[-1]
    assert "21 of the 100 rows" in stopped.err
    assert count_members(sandbox) == 100
    assert (await command(*sync, "--max-removal-share", "0.21")).code == 0
    assert count_members(sandbox) == 79


@pytest.mark.long("kills a sync between two others")
async def test_a_sync_that_was_killed_is_taken_up_again(
    command: Command, sandbox: Sandbox, people: Callable[[range], Path], tmp_path: Path
) -> None:
    sync = ("audience", "sync", str(tmp_path / "people.csv"), *target(sandbox), "--max-removal-share", "1")
    people(range(100))
    await command(*sync)
    people(range(50, 150))
    sandbox.faults.on("POST", USERS).nth(2).do(Fault.hang(), stage="after")
    running = await command.start(*sync)
    await sandbox.requests.wait(count=3, route=USERS)
    running.send(signal.SIGKILL)
    assert (await running.wait()).code == -signal.SIGKILL
    people(range(60, 150))
    ended = await command(*sync)
    assert ended.code == 0
    assert count_members(sandbox) == 90


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_a_folder_of_states_that_cannot_be_created_is_named(
    command: Command, sandbox: Sandbox, people: Callable[[range], Path], tmp_path: Path
) -> None:
    (tmp_path / "svc_async").write_text("no folder")
    sync = ("audience", "sync", str(people(range(3))), *target(sandbox))
    ended = await command(*sync, "--json")
    assert (ended.code, ended.error["type"], ended.error["parameter"]) == (2, "UnusableFile", "--state")
    assert (await command(*sync, "--state", str(tmp_path / "state"))).code == 0


async def test_a_state_is_no_journal(
    command: Command, sandbox: Sandbox, people: Callable[[range], Path], tmp_path: Path
) -> None:
    await command("audience", "sync", str(people(range(3))), *target(sandbox), "--state", str(tmp_path / "a.sqlite"))
    ended = await command("job", "status", str(tmp_path / "a.sqlite"), "--json")
    assert (ended.code, ended.error["hint"]) == (2, "GIVE_A_JOURNAL")


@pytest.mark.long("runs three syncs in processes of their own")
async def test_removals_that_fail_are_listed_without_a_position(
    command: Command, sandbox: Sandbox, people: Callable[[range], Path], tmp_path: Path
) -> None:
    sync = ("audience", "sync", str(tmp_path / "people.csv"), *target(sandbox), "--max-removal-share", "1")
    people(range(3))
    await command(*sync)
    people(range(1, 3))
    sandbox.faults.on("POST", USERS).nth(1).do(Fault.http(400))
    ended = await command(*sync)
    assert ended.code == 5
    assert (
        ",,,could not be removed: "
        in (tmp_path / f"people.csv.audience-{sandbox.audience_id}.sync.failures.csv").read_text()
    )
    assert (await command(*sync)).code == 0
    assert count_members(sandbox) == 2


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        (("--max-removal-share", "1.1"), "--max-removal-share"),
        (("--refresh-days", "-1"), "--refresh-days"),
        (("--refresh-days", "36501"), "--refresh-days"),
        (("--refresh-days", "9999999999"), "--refresh-days"),
        (("--state", "people.csv"), "--state"),
    ],
)
def test_wrong_settings_are_one_line_and_exit_2(
    call: Call, here: Path, options: tuple[str, ...], parameter: str
) -> None:
    (here / "people.csv").write_text("email\n" + "a@example.org\n" * 100)
    ended = call("audience", "sync", "people.csv", "--sandbox", *options, "--json")
    assert (ended.code, ended.error["parameter"]) == (2, parameter)
    assert len(ended.err.splitlines()) == 1
    assert (here / "people.csv").read_text().startswith("email\n")


def test_anybody_can_try_it_on_a_sandbox(call: Call, here: Path) -> None:
    (here / "people.csv").write_text("email\na@example.org\n")
    ended = call("audience", "sync", "people.csv", "--sandbox", "--json")
    assert (ended.code, ended.result["accepted"]) == (0, 1)
    assert [path.name for path in here.iterdir()] == ["people.csv"]


@pytest.mark.long("kills three syncs, and runs a fourth")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 6))])
async def test_a_sync_that_is_killed_again_and_again_ends_with_the_list_of_the_file(
    command: Command, sandbox: Sandbox, people: Callable[[range], Path], tmp_path: Path, seed: int
) -> None:
    """Killed with SIGKILL at seeded requests, before or after their effect; the file changes in between."""
    dice = random.Random(seed)
    command = attrs.evolve(command, program=limit_requests(100))
    sync = ("audience", "sync", str(tmp_path / "people.csv"), *target(sandbox), "--max-removal-share", "1")
    settings = ("--users-per-operation", "1", "--concurrency", str(dice.choice([1, 3])), "--quarantine", "0")
    sent = 0
    for _ in range(3):
        first = dice.randrange(80)
        people(range(first, first + dice.choice([120, 240])))
        sent += dice.randrange(1, 4)
        sandbox.faults.on("POST", USERS).nth(sent).do(Fault.hang(), stage=dice.choice(["before", "after"]))
        running = await command.start(*sync, *settings)
        reached = asyncio.create_task(sandbox.requests.wait(count=sent, route=USERS))
        ended = asyncio.create_task(running.wait())
        await asyncio.wait([reached, ended], return_when=asyncio.FIRST_COMPLETED)
        if reached.done():
            running.send(signal.SIGKILL)
        else:
            reached.cancel()
        assert (await ended).code in {0, -signal.SIGKILL}
        sent = sandbox.requests.count(USERS)
        sandbox.faults.clear()
    last = people(range(60, 184))
    assert (await command(*sync, *settings)).code == 0
    found = sorted(user["email"][0] for user in sandbox.audience(sandbox.audience_id).users)
    assert found == sorted(sha256(line.encode()).hexdigest() for line in last.read_text().splitlines()[1:])


@pytest.mark.long("interrupts the second of two syncs")
async def test_the_report_of_an_interrupted_sync_counts_its_removals_too(
    command: Command, sandbox: Sandbox, people: Callable[[range], Path], tmp_path: Path
) -> None:
    sync = ("audience", "sync", str(tmp_path / "people.csv"), *target(sandbox), "--max-removal-share", "1", "--json")
    people(range(100))
    await command(*sync)
    people(range(40, 200))
    sandbox.faults.on("POST", USERS).nth(2).do(Fault.hang())
    running = await command.start(*sync)
    await sandbox.requests.wait(count=3, route=USERS)
    running.send(signal.SIGINT)
    ended = await running.wait()
    report = ended.result
    assert ended.code == 130
    assert (report["read"], report["accepted"], report["pending"], report["in_doubt"]) == (140, 40, 100, 100)
    assert report["requests"] == 2


def test_products_are_not_refreshed(call: Call, here: Path) -> None:
    (here / "feed.csv").write_text("id\n")
    ended = call("catalog", "sync", "feed.csv", "--sandbox", "--refresh-days", "3")
    assert ended.code == 2
    assert "--refresh-days" in ended.err


@pytest.mark.parametrize("options", ["--json", pytest.param("--json --dry-run", marks=pytest.mark.long)])
def test_a_key_of_rows_that_differ_stops_a_sync(call: Call, here: Path, options: str) -> None:
    rows = "".join(f"unknown,{name}@example.org\n" for name in "abc")
    (here / "people.csv").write_text(f"partner_user_id,email\n{rows}")
    ended = call("audience", "sync", "people.csv", "--sandbox", *options.split())
    assert ended.code == 2
    assert ended.error["parameter"] == "partner_user_id"
    assert ended.error["hint"] == "LEAVE_OUT_THE_COLUMN"


def test_a_plan_says_what_cannot_be_sent(call: Call, here: Path) -> None:
    (here / "people.csv").write_text("email\na@example.org\nnobody\n")
    ended = call("audience", "sync", "people.csv", "--sandbox", "--dry-run")
    assert "plan: 1 row to send, 0 to remove, 1 that cannot be sent; 0 on the list; at least 1 request and" in ended.out
    assert "            1 addition\n" in ended.out
    assert "            0 removals\n" in ended.out
    assert "            1 invalid row\n" in ended.out
    ended = call("audience", "sync", "people.csv", "--sandbox")
    assert "people.csv: 2 rows compared in" in ended.out
    assert "            1 invalid row\n" in ended.out


# --- the state in a database


@pytest.fixture
async def state_url(postgres_url: str, sandbox: Sandbox) -> str:
    """A database that knows nothing of the sandbox, whose port another one may have had before."""
    async with SharedState.open(postgres_url) as shared:
        await shared.database.execute("DELETE FROM stores WHERE name LIKE '%' || $1", sandbox.ads_url)
    return postgres_url


@pytest.mark.parametrize("options", ["", pytest.param("--state s.sqlite", marks=pytest.mark.long)])
async def test_a_removal_is_noted_in_the_state_of_the_audience(
    command: Command, sandbox: Sandbox, people: Callable[[range], Path], options: str
) -> None:
    state = options.split()
    sync = ("audience", "sync", str(people(range(100))), *target(sandbox), *state, "--json")
    await command(*sync)
    removal = ("audience", "remove", str(people(range(2))), *target(sandbox), *state)
    assert (await command(*removal)).code == 0
    assert count_members(sandbox) == 98
    people(range(100))
    assert (await command(*sync)).result["additions"] == 2
    assert count_members(sandbox) == 100


@pytest.mark.long("runs two syncs in processes of their own, on a database")
async def test_the_state_may_be_in_a_database(
    command: Command, sandbox: Sandbox, people: Callable[[range], Path], tmp_path: Path, state_url: str
) -> None:
    sync = ("audience", "sync", str(people(range(100))), *target(sandbox), "--state-url", state_url)
    assert (await command(*sync)).code == 0
    people(range(10, 105))
    second = (await command(*sync, "--json")).result
    assert [second[name] for name in ("additions", "removals", "unchanged")] == [5, 10, 90]
    await command("audience", "remove", str(people(range(20, 22))), *target(sandbox), "--state-url", state_url)
    people(range(10, 105))
    assert (await command(*sync, "--json")).result["additions"] == 2
    assert not (tmp_path / "svc_async").exists()
    async with SharedState.open(state_url) as shared:
        name = f"audience {sandbox.account_id} {sandbox.audience_id} at {sandbox.ads_url}"
        assert await shared.has_sync(name)


@pytest.mark.long("runs four syncs in processes of their own, on a database")
async def test_a_state_in_a_file_is_not_left_behind(
    command: Command, sandbox: Sandbox, people: Callable[[range], Path], tmp_path: Path, state_url: str
) -> None:
    sync = ("audience", "sync", str(people(range(100))), *target(sandbox))
    assert (await command(*sync)).code == 0
    (path,) = (tmp_path / "svc_async").iterdir()
    ended = await command(*sync, "--state-url", state_url)
    assert (ended.code, ended.out) == (2, "")
    assert str(path) in ended.err
    kept = await command(*sync, "--state-url", state_url, "--state", str(path), "--json")
    assert kept.result["unchanged"] == 100
    path.unlink()
    assert (await command(*sync, "--state-url", state_url, "--json")).result["additions"] == 100
