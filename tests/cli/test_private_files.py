"""What may hold something of a person, or a secret, is for its owner only from the first byte."""

import json
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from svc_async import profiles
from svc_async.sandbox import Sandbox
from svc_async.webhooks import Ack, SigningKey, SqliteDedupe, SqliteInbox, WebhookReceiver
from svc_async.webhooks.testing import build_delivery
from tests.support.command import Command, Running
from tests.support.deliveries import KEY, delivery
from tests.support.event_samples import activity
from tests.support.file_watch import run_watched, watch
from tests.support.receivers import create_sender
from tests.support.tiers import keep_short

ROWS = "email\n" + "".join(f"user{number}@example.org\n" for number in range(30)) + "nobody\n"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Return the folder in which commands run; what was found of them is written beside it."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "people.csv").write_text(ROWS)
    return folder


async def start(work: Path, command: Command, *commands: tuple[str, ...]) -> Running:
    watched = Command(work, {**command.environ, "TMPDIR": str(work)})
    return await watched.start(program=partial(run_watched, work.parent / "found.json", commands))


def read_findings(work: Path) -> Any:
    return json.loads((work.parent / "found.json").read_text(encoding="utf-8"))


@pytest.mark.long("watches the files of four jobs")
async def test_the_files_of_jobs(work: Path, command: Command, sandbox: Sandbox) -> None:
    target = ("--account", sandbox.account_id, "--audience", sandbox.audience_id)
    written = ("--journal", "upload.journal", "--failures-file", "failures.csv", "--report", "report.html")
    running = await start(
        work,
        command,
        ("audience", "upload", "-", *target, *written),
        ("job", "report", "upload.journal", "--out", "report.json"),
        ("audience", "sync", "people.csv", *target, "--state", "state.sqlite"),
        ("audience", "sync", "people.csv", *target),
        ("drift", "--accepted", "drift.toml", "--accept", "--out", "drift.html"),
    )
    ended = await running.wait(ROWS.encode())
    codes, seen, exposed = read_findings(work)
    assert codes == [5, 0, 5, 5, 0], ended.err
    assert exposed == {}
    named = {"upload.journal", "upload.journal-wal", "report.html", "report.json", "drift.toml", "drift.html"}
    assert {*named, "failures.csv.new", "failures.csv", "state.sqlite", "svc_async"} <= {*seen}


@pytest.mark.parametrize("mode", [0o664, *(pytest.param(mode, marks=pytest.mark.long) for mode in (0o444, 0o666))])
@pytest.mark.parametrize("option", keep_short(1, [("--journal",), ("--failures-file",), ("--state",)]))
async def test_a_file_that_is_refused_keeps_its_mode(
    work: Path, command: Command, sandbox: Sandbox, option: str, mode: int
) -> None:
    shared = work / "shared.csv"
    shared.write_text(ROWS)
    shared.chmod(mode)
    operation = "sync" if option == "--state" else "upload"
    target = ("--account", sandbox.account_id, "--audience", sandbox.audience_id)
    ended = await command("audience", operation, work / "people.csv", *target, option, shared)
    assert ended.code == 2
    assert (shared.stat().st_mode & 0o777, shared.read_text()) == (mode, ROWS)


@pytest.mark.long("runs two syncs in processes of their own")
async def test_a_list_of_failures_and_a_state_are_withdrawn_from_other_users(
    work: Path, command: Command, sandbox: Sandbox
) -> None:
    target = ("--account", sandbox.account_id, "--audience", sandbox.audience_id)
    run = ("audience", "sync", work / "people.csv", *target, "--state", work / "state", "--failures-file", work / "bad")
    for _ in range(2):
        assert (await command(*run)).code == 5
        modes = [(work / name).stat().st_mode & 0o777 for name in ("state", "bad")]
        (work / "state").chmod(0o666)
        (work / "bad").chmod(0o666)
    assert modes == [0o600 | 0o060] * 2


async def test_saved_deliveries(work: Path, command: Command, sandbox: Sandbox) -> None:
    listen = ("webhook", "listen", "--port", "0", "--json", "--save-dir", "saved")
    running = await start(work, command, listen)
    port = int((await running.item())["listening"].rstrip("/").rpartition(":")[2])
    request = build_delivery({"data": activity("dm.received")}, SigningKey(sandbox.credentials["consumer_secret"]))
    assert (await create_sender(port)(*request)).status == 200
    await running.line()
    running.send(signal.SIGTERM)
    await running.wait()
    (saved,) = (work / "saved").iterdir()
    codes, seen, exposed = read_findings(work)
    assert (codes, exposed) == ([0], {})
    assert {"saved", saved.name} <= {*seen}


async def test_stored_events(tmp_path: Path) -> None:
    inbox, dedupe = SqliteInbox(tmp_path / "inbox.db"), SqliteDedupe(tmp_path / "events.db")
    with watch(tmp_path) as findings:
        receiver = WebhookReceiver(keys=[KEY], ack=Ack.durable(inbox), dedupe=dedupe)
        async with receiver:
            assert (await receiver.handle(*delivery())).status == 200
    assert findings.exposed == {}
    assert findings.seen >= {f"{name}.db{suffix}" for name in ("inbox", "events") for suffix in ("", "-wal", "-shm")}


def test_profiles(tmp_path: Path) -> None:
    with watch(tmp_path) as findings:
        for name in ("one", "two"):
            profiles.write(name, {"bearer_token": "secret"}, path=tmp_path / "svc_async" / "profiles.toml")
    assert findings.exposed == {}
    assert findings.seen >= {"svc_async", "profiles.toml"}


def test_the_watch_finds_what_can_be_opened_for_a_moment_only(tmp_path: Path) -> None:
    with watch(tmp_path) as findings:
        (tmp_path / "file").write_text("x")
        (tmp_path / "file").unlink()
    assert findings.exposed == {"file": "0o666"}
