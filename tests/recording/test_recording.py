"""The file of a recording: whose it is, what it holds, where it ends, and that a damaged one is refused."""

import asyncio
import io
import json
import logging
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from svc_async import ApiError, InvalidArgument, Recording, Session, UnusableFile
from svc_async.errors import TransportError
from svc_async.sandbox import Fault, Sandbox
from tests.support.errors import has
from tests.support.tasks import wait_until

BEGINNING = b'{"svc_async_recording":1}\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "defect.jsonl"


def read(path: Path) -> list[dict[str, Any]]:
    beginning, *lines = path.read_text(encoding="ascii").splitlines()
    assert json.loads(beginning) == {"svc_async_recording": 1}
    return [json.loads(line) for line in lines]


async def call(sandbox: Sandbox, recording: Recording | None, times: int = 1) -> None:
    async with Session.sandbox(sandbox, record=recording) as session:
        for _ in range(times):
            await session.accounts.get(sandbox.account_id)


async def test_a_file_is_for_its_owner_only(sandbox: Sandbox, path: Path) -> None:
    await call(sandbox, Recording(path))

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_line_has_a_request_and_its_answer_in_the_words_of_the_wire(sandbox: Sandbox, path: Path) -> None:
    async with Session.sandbox(sandbox, record=Recording(path)) as session:
        await session.account(sandbox.account_id).cards.list(count=1, q="Autumn").first()

    (line,) = read(path)
    request, answer = line["request"], line["answer"]
    assert (request["method"], request["surface"], request["path"]) == ("GET", "ads", "/12/accounts/account_id-1/cards")
    assert request["query"] == "count=1&q=q-1"
    assert answer["status"] == 200
    assert answer["content"]["json"]["request"]["params"] == {"account_id": "account_id-1", "count": 1, "q": "q-1"}
    assert line["at"] == sandbox.clock.now().isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("called", "written"),
    [
        ("/2/users/by/username/ada", "/2/users/users-1/users-2/users-3"),
        ("/12/accounts/18ce54d4x5t/friends/42", "/12/accounts/account_id-1/friends/friends-1"),
        ("/12/line_items/placements", "/12/line_items/line_items-1"),
        ("/2/users", "/2/users"),
    ],
)
async def test_behind_the_kind_of_object_a_path_that_is_not_listed_may_have_names(
    sandbox: Sandbox, path: Path, called: str, written: str
) -> None:
    async with Session.sandbox(sandbox, record=Recording(path)) as session:
        with suppress(ApiError):
            await session.request("GET", called)

    assert [line["request"]["path"] for line in read(path)] == [written]


async def test_a_file_that_holds_something_is_left_as_it_is(sandbox: Sandbox, path: Path) -> None:
    path.write_text("notes")

    with pytest.raises(UnusableFile) as caught:
        await call(sandbox, Recording(path))

    assert (caught.value.parameter, path.read_text()) == ("path", "notes")
    assert sandbox.requests.total == 0


async def test_a_recording_goes_on_when_its_session_is_opened_again(sandbox: Sandbox, path: Path) -> None:
    recording = Recording(path)
    await call(sandbox, recording)
    await call(sandbox, recording)

    assert [line["position"] for line in read(path)] == [0, 1]
    with pytest.raises(UnusableFile):
        await call(sandbox, Recording(path))


async def test_two_sessions_may_have_the_same_recording(sandbox: Sandbox, path: Path) -> None:
    recording = Recording(path)
    async with Session.sandbox(sandbox, record=recording) as first:
        await call(sandbox, recording)
        await first.accounts.get(sandbox.account_id)

    assert [line["position"] for line in read(path)] == [0, 1]


async def test_others_go_on_while_something_is_being_written(sandbox: Sandbox, path: Path) -> None:
    recording = Recording(path)
    watchdog = threading.Timer(10, recording._lock.release)  # else the test would never end
    async with Session.sandbox(sandbox, record=recording) as session:
        with recording._lock:
            watchdog.start()
            calls = [asyncio.create_task(session.accounts.get(sandbox.account_id)) for _ in range(2)]
            await wait_until(lambda: sandbox.requests.total == len(calls))
            calls[1].cancel()
            assert recording.is_busy
        watchdog.cancel()
        ends = await asyncio.gather(*calls, return_exceptions=True)

    assert [isinstance(end, asyncio.CancelledError) for end in ends] == [False, True]
    assert {line["position"] for line in read(path)} == {0, 1}


async def test_a_call_without_an_answer_is_recorded_with_how_it_failed(sandbox: Sandbox, path: Path) -> None:
    sandbox.faults.on("POST", "*").once().do(Fault.drop_connection())
    with pytest.raises(TransportError):
        async with Session.sandbox(sandbox, record=Recording(path)) as session:
            await session.account(sandbox.account_id).posts.create(as_user_id=756201191646691328, text="Hello")

    (line,) = read(path)
    assert (line["failure"], line.get("was_sent", True), "answer" in line) == ("TransportError", True, False)


@pytest.mark.long("waits for five attempts to connect")
async def test_a_call_that_was_not_sent_is_recorded_and_not_expected_again(sandbox: Sandbox, path: Path) -> None:
    async with Session.sandbox(sandbox, record=Recording(path)) as session:
        await sandbox.aclose()
        with pytest.raises(TransportError):
            await session.accounts.get(sandbox.account_id)

    assert {line["was_sent"] for line in read(path)} == {False}
    assert Sandbox.replay(path).differences == ()


BOUNDS = [("_MOST_BYTES", 3_000), ("_MOST_EXCHANGES", 1), ("MOST_VALUES", 8), ("_LONGEST_LINE", 10)]


@pytest.mark.parametrize("bound", BOUNDS)
async def test_a_full_recording_ends_with_one_warning_and_the_session_goes_on(
    sandbox: Sandbox,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    bound: tuple[str, int],
) -> None:
    monkeypatch.setattr(f"svc_async.recording.file.{bound[0]}", bound[1])

    await call(sandbox, Recording(path), times=4)

    assert [record.levelno for record in caplog.records if "recording" in record.getMessage()] == [logging.WARNING]
    assert len(read(path)) < 4
    assert path.stat().st_size <= 3_000
    assert sandbox.requests.total == 4


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
async def test_a_disk_that_is_full_ends_the_recording_and_not_the_session(
    sandbox: Sandbox, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recording = Recording(path)
    async with Session.sandbox(sandbox, record=recording) as session:
        await session.accounts.get(sandbox.account_id)
        assert recording._file is not None
        recording._file.close()
        recording._file = io.FileIO("/dev/full", "ab")
        await session.accounts.get(sandbox.account_id)

    assert [record.levelno for record in caplog.records if "recording" in record.getMessage()] == [logging.WARNING]
    assert len(read(path)) == 1


async def test_without_a_recording_nothing_is_imported_or_called(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("svc_async.engine.pipeline.Pipeline._record", None)
    await call(sandbox, None)


def damage(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    return lambda content: BEGINNING + change(content.removeprefix(BEGINNING))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: b"email\n" + content, "is not a recording"),
        (lambda content: content.replace(b":1}", b":2}", 1), "another version"),
        (damage(lambda lines: lines[:-1]), "line 2"),
        (damage(lambda lines: lines + b"\n"), "line 3"),
        (damage(lambda lines: lines.replace(b'"position":0', b'"position":"x"')), "line 2"),
        (damage(lambda lines: lines.replace(b'"position":0', b'"else":0')), "line 2"),
        (damage(lambda lines: lines.replace(b'"status":200', b'"status":1')), "line 2"),
        (damage(lambda lines: lines.replace(b'Z","request"', b'","request"')), "line 2"),
        (damage(lambda lines: lines + b"[" * 100_000 + b"\n"), "line 3"),
        (damage(lambda lines: lines + b"\xff\n"), "line 3"),
        (lambda _: b"", "is not a recording"),
    ],
)
async def test_a_damaged_file_is_refused_in_one_sentence(
    sandbox: Sandbox, path: Path, change: Callable[[bytes], bytes], words: str
) -> None:
    await call(sandbox, Recording(path))
    path.write_bytes(change(path.read_bytes()))

    with pytest.raises(UnusableFile) as caught:
        Sandbox.replay(path)

    assert caught.value.parameter == "path"
    assert words in caught.value.problem


@pytest.mark.parametrize("bound", ["_MOST_BYTES", "_MOST_EXCHANGES"])
async def test_a_file_that_is_larger_than_a_recording_is_refused(
    sandbox: Sandbox, path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    await call(sandbox, Recording(path), times=2)
    monkeypatch.setattr(f"svc_async.recording.file.{bound}", 1)

    with pytest.raises(UnusableFile, check=has(parameter="path")):
        Sandbox.replay(path)


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UnusableFile):
            Sandbox.replay(path)


@pytest.mark.parametrize("path", [None, 5, "", b"x"])
def test_a_path_is_a_path(path: Any) -> None:
    with pytest.raises(InvalidArgument):
        Recording(path)


def test_a_session_takes_a_recording_and_nothing_else(path: Path) -> None:
    with pytest.raises(InvalidArgument):
        Session.sandbox(record=str(path))  # type: ignore[arg-type]  # as a program without types may
