import json
from pathlib import Path

import pytest

from svc_async.cli.commands import demo
from tests.support.command import Call


@pytest.fixture(autouse=True)
def short_quarantine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_QUARANTINE", 0.001)


def test_the_demo_shows_that_the_sandbox_holds_what_the_file_says(call: Call) -> None:
    ended = call("demo", "--rows", "2000")
    assert ended.code == 0
    assert "The sandbox holds exactly what the file says: yes" in ended.out
    assert "503 and lost answer" in ended.out
    assert "usually 120 s" in ended.err
    assert "@" not in ended.out + ended.err


def test_the_demo_as_one_object(call: Call) -> None:
    ended = call("demo", "--rows", "2000", "--json")
    story = json.loads(ended.out)
    assert ended.code == 0
    assert ended.err == ""
    assert story["rows"] == 2000 == story["accepted"] + story["coalesced"] + story["failed"]
    assert story["faults_survived"] == ["503", "lost answer"]
    assert story["equal"] is True
    assert len(story["failed_by_reason"]) == 3


def test_the_demo_fails_if_the_sandbox_holds_something_else(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    held = demo._held
    monkeypatch.setattr(demo, "_held", lambda *arguments: set(list(held(*arguments))[1:]))
    ended = call("demo", "--rows", "300")
    assert ended.code == 1
    assert "The sandbox holds exactly what the file says: NO" in ended.out


@pytest.mark.parametrize("rows", [1, 7])
def test_the_demo_of_a_few_rows(call: Call, rows: int) -> None:
    assert call("demo", "--rows", str(rows), "--json").code == 0


def test_a_demo_without_rows_is_refused(call: Call) -> None:
    ended = call("demo", "--rows", "0")
    assert ended.code == 2
    assert "--rows must be at least 1" in ended.err


def test_the_file_of_a_seed_is_always_the_same_and_messy(tmp_path: Path) -> None:
    first, again, other = (tmp_path / name for name in ("first.csv", "again.csv", "other.csv"))
    for path, seed in ((first, 1), (again, 1), (other, 2)):
        demo.MessyFile(rows=2_000, seed=seed).write(path)
    text = first.read_text(encoding="utf-8")
    assert text == again.read_text(encoding="utf-8")
    assert text != other.read_text(encoding="utf-8")
    lines = text.splitlines()[1:]
    assert len(lines) == 2_000
    assert len(set(lines)) < 2_000
    assert any(line.isupper() or ".EXAMPLE" in line for line in lines)
    assert any(line.endswith(",,") for line in lines)
    assert any(" at " in line for line in lines)
