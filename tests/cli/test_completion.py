"""Completion as shells do it, from the script that the command prints."""

import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path
from typing import Literal

import pytest
from cyclopts import App

from svc_async.cli.exit_codes import Exit
from tests.support.command import Call

BASH = shutil.which("bash") or ""
_COMPLETE_IN_BASH = """source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_svc_async
printf '%s\\n' "${COMPREPLY[@]}"
"""


_SCRIPTS: dict[tuple[str, str | None], str] = {}
_generate = App.generate_completion


@pytest.fixture(autouse=True)
def generated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each script generated once: that takes longer than everything that is tested about it."""

    def generate(app: App, *, shell: Literal["bash", "zsh", "fish"], prog_name: str | None = None) -> str:
        if (shell, prog_name) not in _SCRIPTS:
            _SCRIPTS[shell, prog_name] = _generate(app, shell=shell, prog_name=prog_name)
        return _SCRIPTS[shell, prog_name]

    monkeypatch.setattr(App, "generate_completion", generate)


def complete_in_bash(script: Path, *typed: str) -> list[str]:
    """Return what is proposed for the last word."""
    ended = subprocess.run(
        [BASH, "--norc", "--noprofile", "-c", _COMPLETE_IN_BASH, "bash", str(script), "svc-async", *typed],
        capture_output=True,
        encoding="utf-8",
        cwd=script.parent,
        check=True,
    )
    assert ended.stderr == ""
    return list(filter(None, ended.stdout.splitlines()))


@pytest.fixture
def bash(call: Call, here: Path) -> Path:
    if not BASH:
        pytest.skip("bash is not installed")
    script = here / "svc-async.bash"
    script.write_text(call("completion", "bash").out, encoding="utf-8")
    return script


TYPED = [
    (["au"], ["audience", "auth"]),
    (["audience", ""], ["create", "delete", "list", "upload", "remove", "sync"]),
    (["audience", "upload", "--jo"], ["--journal", "--journals", "--job"]),
    (["audience", "upload", "--ordering", ""], ["key", "none"]),
    (["-v", "job", "sta"], ["status"]),
    (["job", "list", "--verb"], ["--verbose"]),
    (["completion", ""], ["bash", "zsh", "fish"]),
]


@pytest.mark.long("the script of a shell is generated")
@pytest.mark.parametrize(("typed", "proposed"), TYPED, ids=[" ".join(typed) for typed, _ in TYPED])
def test_bash_completes_commands_options_and_choices(bash: Path, typed: list[str], proposed: list[str]) -> None:
    assert sorted(complete_in_bash(bash, *typed)) == sorted(proposed)


WITH_FILES = (
    *("audience upload", "audience remove", "audience sync", "do-not-reach upload", "do-not-reach remove"),
    *("catalog upload", "catalog delete", "catalog sync"),
    *("dialect check", "webhook sign", "webhook verify", "job status", "job resume", "job watch", "job report"),
)


@pytest.mark.long("the script of a shell is generated")
def test_bash_proposes_files_for_every_command_that_takes_one(bash: Path) -> None:
    (bash.parent / "customers.csv").touch()
    proposed = {command: complete_in_bash(bash, *command.split(), "cust") for command in WITH_FILES}
    assert proposed == {command: ["customers.csv"] for command in WITH_FILES}
    assert complete_in_bash(bash, "webhook", "check", "cust") == []


@pytest.mark.long("the script of a shell is generated")
@pytest.mark.parametrize("typed", ["my", "my\\ cu", '"my cu', "'my cu"])
def test_bash_keeps_names_of_files_with_blanks_whole(bash: Path, typed: str) -> None:
    for name in ("my customers.csv", "my customers (2).csv", "others.csv"):
        (bash.parent / name).touch()
    proposed = complete_in_bash(bash, "audience", "upload", typed)
    assert sorted(proposed) == ["my\\ customers.csv", "my\\ customers\\ \\(2\\).csv"]


@pytest.mark.long("the scripts of two shells are generated")
def test_zsh_and_fish_propose_files_for_every_command_that_takes_one(call: Call) -> None:
    arguments = re.findall(r"^ *'1:(?! ).*' ", call("completion", "zsh").out, re.MULTILINE)
    assert sum(argument.endswith(":_files' ") for argument in arguments) == len(WITH_FILES)
    fish = call("completion", "fish").out
    assert not [command for command in WITH_FILES if f"using_command {command}' -f" in fish]


@pytest.mark.long("the script of a shell is generated")
def test_fish_proposes_no_files_where_a_command_follows(call: Call) -> None:
    script = call("completion", "fish").out
    assert "complete -c svc-async -n '__fish_use_subcommand' -f\n" in script
    assert "complete -c svc-async -n '__fish_svc-async_using_command audience' -f\n" in script
    assert "using_command completion' -f" not in script


@pytest.mark.long("the script of a shell is generated")
def test_where_it_cannot_be_installed_is_said(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "file").touch()
    monkeypatch.setenv("HOME", str(here / "file"))
    assert call("completion", "bash", "--install", "--json").error["type"] == "UnusableFile"

    def find(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", find)
    ended = call("completion", "bash", "--install", "--json")
    assert (ended.error["type"], ended.code) == ("UnusableFile", Exit.USAGE)


@pytest.mark.long("the script of each shell is generated twice")
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


COMPINIT = {
    "": False,
    "autoload -Uz compinit": False,
    "# compinit": False,
    "autoload -Uz compinit && compinit": True,
    "  compinit -i": True,
    "source $ZSH/oh-my-zsh.sh": True,
}
"""Lines of ~/.zshrc, and whether they run it."""


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
def test_compinit_is_asked_for_only_where_it_does_not_run(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.setenv("HOME", str(here))
    monkeypatch.setitem(_SCRIPTS, ("zsh", None), "# the script")
    for line, runs in COMPINIT.items():
        with subtests.test(line):
            (here / ".zshrc").write_text(f"PS1=x\n{line}\n")
            ended = call("completion", "zsh", "--install")
            assert ended.code == 0
            assert ("compinit loads it: ~/.zshrc must run" in ended.err) is not runs
