from pathlib import Path

import attrs
import pytest

from svc_async.cli.commands.demo import print_result, run_demo
from svc_async.cli.messy_file import MessyFile
from tests.support.command import Call

QUICKLY = ("--quarantine", "0.001")


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
def test_the_demo_shows_that_the_sandbox_holds_what_the_file_says(call: Call) -> None:
    ended = call("demo", "--rows", "2000", *QUICKLY)
    assert (ended.code, ended.out != "") == (0, True)
    assert "@" not in ended.out + ended.err


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
def test_the_demo_as_one_object(call: Call) -> None:
    ended = call("demo", "--rows", "2000", "--json", *QUICKLY)
    result = ended.result
    assert ended.code == 0
    assert ended.err == ""
    assert result["rows"] == 2000 == result["accepted"] + result["coalesced"] + result["failed"]
    assert result["faults_survived"] == ["503", "lost answer"]
    assert result["equal"] is True
    assert len(result["failed_by_reason"]) == 4


async def test_the_demo_fails_if_the_sandbox_holds_something_else(capfd: pytest.CaptureFixture[str]) -> None:
    result = await run_demo(300, 7, quarantine=0.001, quiet=True)
    assert result.equal

    code = print_result(attrs.evolve(result, held=set(list(result.held)[1:])), as_json=False)

    assert code == 1
    assert "The sandbox holds exactly what the file says: NO" in capfd.readouterr().out


@pytest.mark.parametrize("rows", [1, 7])
def test_the_demo_of_a_few_rows(call: Call, rows: int) -> None:
    assert call("demo", "--rows", str(rows), "--json", *QUICKLY).code == 0


def test_a_demo_without_rows_is_refused(call: Call) -> None:
    ended = call("demo", "--rows", "0", "--json")
    assert (ended.code, ended.error["parameter"]) == (2, "--rows")


def test_the_file_of_a_seed_is_always_the_same_and_messy(tmp_path: Path) -> None:
    first, again, other = (tmp_path / name for name in ("first.csv", "again.csv", "other.csv"))
    for path, seed in ((first, 1), (again, 1), (other, 2)):
        MessyFile(rows=2_000, seed=seed).write(path)
    text = first.read_text(encoding="utf-8")
    assert text == again.read_text(encoding="utf-8")
    assert text != other.read_text(encoding="utf-8")
    lines = text.splitlines()[1:]
    assert len(lines) == 2_000
    assert len(set(lines)) < 2_000
    assert any(line.isupper() or ".EXAMPLE" in line for line in lines)
    assert any(line.endswith(",,") for line in lines)
    assert any(" at " in line for line in lines)
