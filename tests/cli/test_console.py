"""How lines break on a terminal."""

import pytest

from svc_async.cli.output.console import show


@pytest.fixture(autouse=True)
def narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the output taken for a terminal of 30 columns."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "30")


def test_what_follows_a_break_is_indented_as_the_line_is(capsys: pytest.CaptureFixture[str]) -> None:
    show("  begun 2026-11-22 02:00:01 UTC, ", ("1 run", "bold"), ", last activity 7.4 s ago")
    lines = capsys.readouterr().out.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    assert lines == ["  begun 2026-11-22 02:00:01", "  UTC, 1 run, last activity", "  7.4 s ago"]


def test_a_line_with_a_path_that_does_not_fit_stays_whole(capsys: pytest.CaptureFixture[str]) -> None:
    line = "  listed in /home/ada/customers/2026/failures.csv"
    show(line)
    assert capsys.readouterr().out == f"{line}\n"


def test_an_empty_line_stays_one(capsys: pytest.CaptureFixture[str]) -> None:
    show("")
    show("   ")
    assert capsys.readouterr().out.replace(" ", "") == "\n\n"
