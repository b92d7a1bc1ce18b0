"""Completion as shells do it, from the script that the command prints."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import Call

BASH = shutil.which("bash") or ""
_COMPLETE_IN_BASH = """source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_svc_async
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def bash(call: Call, here: Path) -> Path:
    if not BASH:
        pytest.skip("bash is not installed")
    script = here / "svc-async.bash"
    script.write_text(call("completion", "bash").out, encoding="utf-8")
    return script


@pytest.mark.parametrize(
    ("typed", "proposed"),
    [
        (["au"], ["audience", "auth"]),
        (["audience", ""], ["upload", "remove", "sync"]),
        (["audience", "upload", "--jo"], ["--journal", "--journals", "--job"]),
        (["audience", "upload", "--ordering", ""], ["key", "none"]),
        (["-v", "job", "sta"], ["status"]),
        (["job", "list", "--verb"], ["--verbose"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
    ],
    ids=" ".join,
)
def test_bash_completes_commands_options_and_choices(bash: Path, typed: list[str], proposed: list[str]) -> None:
    ended = subprocess.run(
        [BASH, "--norc", "--noprofile", "-c", _COMPLETE_IN_BASH, "bash", str(bash), "svc-async", *typed],
        capture_output=True,
        encoding="utf-8",
        cwd=bash.parent,
        check=True,
    )
    assert ended.stderr == ""
    assert sorted(ended.stdout.split()) == sorted(proposed)


def test_fish_proposes_no_files_where_a_command_follows(call: Call) -> None:
    script = call("completion", "fish").out
    assert "complete -c svc-async -n '__fish_use_subcommand' -f\n" in script
    assert "complete -c svc-async -n '__fish_svc-async_using_command audience' -f\n" in script
    assert "using_command completion' -f" not in script


@pytest.mark.parametrize(("shell", "place"), [("bash", ".bashrc"), ("zsh", ".zshrc"), ("fish", "")])
def test_it_is_installed_for_one_user(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch, shell: str, place: str
) -> None:
    monkeypatch.setenv("HOME", str(here))
    installed = Path(call("completion", shell, "--install", "--json").result["path"])
    assert here in installed.parents
    assert ("-n '__fish_use_subcommand' -f" in installed.read_text(encoding="utf-8")) is (shell == "fish")
    assert installed.read_text(encoding="utf-8") == call("completion", shell).out
    if place:
        wanted = installed if shell == "bash" else installed.parent
        assert str(wanted) in (here / place).read_text(encoding="utf-8")
    assert not any(os.access(path, os.X_OK) for path in here.rglob("*svc-async*") if path.is_file())
