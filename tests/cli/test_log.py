"""How the messages of the library are printed."""

import logging

import pytest

from svc_async.cli.output.log import print_log

PATH = "POST /12/accounts/{account_id}/custom_audiences/{custom_audience_id}/users"
WARNING = f"{PATH}: TransportError: connection refused; repeated in 0 s"


def warn(capsys: pytest.CaptureFixture[str]) -> str:
    with print_log(verbose=False, quiet=False):
        logging.getLogger("svc_async.http").warning("%s", WARNING)
    return capsys.readouterr().err


def test_a_warning_of_an_outage_is_one_line_of_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"FORCE_COLOR": "1", "NO_COLOR": "1", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    assert warn(capsys) == "warning: POST …/users: TransportError: connection refused; repeated in 0 s\n"
    monkeypatch.setenv("COLUMNS", "200")
    assert warn(capsys) == f"warning: {WARNING}\n"


def test_elsewhere_than_on_a_terminal_a_warning_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert warn(capsys) == f"warning: {WARNING}\n"
