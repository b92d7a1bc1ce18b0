"""The scripts that the documentation has people run every night: what they do, and whom they write to."""

import asyncio
import fcntl
import os
import re
import sys
from pathlib import Path

import attrs
import pytest

from svc_async.sandbox import Fault, Sandbox
from tests.support.command import ROOT, Ended, environment_of, homes

SCRIPT = re.compile(r"^```sh\n(#!/usr/bin/env bash\n.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = {"how-to-run-every-night.md": "customers", "how-to-manage-do-not-reach-lists.md": "opt-outs"}
"""The pages, and the folders below /srv in which their scripts work."""
LIST_USERS = "*/do_not_reach_lists/*/users"
NIGHT = pytest.mark.long("the script starts the command in an interpreter")


def read_script(page: str) -> str:
    """Return the program of a page; the ids in it are those of the sandbox."""
    (script,) = SCRIPT.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
    return str(script)


@attrs.frozen
class Night:
    """A machine on which a script runs, with what it calls in place of `mail` and `curl`."""

    folder: Path
    name: str

    @property
    def work(self) -> Path:
        return self.folder / self.name

    def list_sent(self, program: str) -> list[str]:
        """Return the arguments and the input of each call of a program."""
        return [path.read_text() for path in sorted(self.folder.glob(f"{program}.*"))]

    async def run(self) -> Ended:
        process = await asyncio.create_subprocess_exec(
            "bash",
            str(self.folder / "script"),
            env={**homes(self.folder), "PATH": f"{self.folder / 'bin'}:{os.defpath}"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return Ended(process.returncode or 0, out.decode(), err.decode())


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)


def prepare(sandbox: Sandbox, folder: Path, page: str) -> Night:
    name = PAGES[page]
    write_program(folder / "bin" / "mail", f'{{ echo "$@"; cat; }} > {folder}/mail.$$')
    write_program(folder / "bin" / "curl", f'echo "$@" > {folder}/curl.$$')
    write_program(folder / "bin" / "svc-async", f'PYTHONPATH={ROOT} exec {sys.executable} -m svc_async "$@"')
    (folder / "script").write_text(
        read_script(page)
        .replace("/srv/venv/bin/svc-async", str(folder / "bin" / "svc-async"))
        .replace(f"/srv/{name}", str(folder / name))
    )
    variables = environment_of(sandbox).items()
    profile = folder / "svc_async" / "profiles.toml"
    profile.parent.mkdir()
    settings = [f'{name.removeprefix("SVC_").lower()} = "{value}"' for name, value in variables]
    profile.write_text("\n".join(["[nightly]", *settings]))
    profile.chmod(0o600)
    (folder / name).mkdir()
    return Night(folder, name)


@pytest.fixture
async def customers(sandbox: Sandbox, tmp_path: Path) -> Night:
    return prepare(sandbox, tmp_path, "how-to-run-every-night.md")


@pytest.fixture
async def opt_outs(sandbox: Sandbox, tmp_path: Path) -> Night:
    return prepare(sandbox, tmp_path, "how-to-manage-do-not-reach-lists.md")


@NIGHT
async def test_a_good_night_is_reported_to_the_monitor_only(customers: Night) -> None:
    (customers.work / "export.csv").write_text("email\na@example.org\n")
    assert await customers.run() == Ended(0, "", "")
    assert customers.list_sent("mail") == []
    (ping,) = customers.list_sent("curl")
    assert ping.endswith("https://monitor.example/ping/sync-customers\n")


@NIGHT
async def test_a_night_maps_the_columns_that_the_script_names(customers: Night, sandbox: Sandbox) -> None:
    script = customers.folder / "script"
    line, example = re.findall(r"^(map=\(\)).* such as (map=\(.*\))$", script.read_text(), re.MULTILINE)[0]
    script.write_text(script.read_text().replace(line, example, 1))
    (customers.work / "export.csv").write_text("E-mail private,Customer\na@example.org,Ada\n")
    assert await customers.run() == Ended(0, "", "")
    assert len(sandbox.audience("1nmth").users) == 1


@NIGHT
async def test_the_mail_of_a_night_with_failures_has_the_counts_and_where_they_are_listed(customers: Night) -> None:
    (customers.work / "export.csv").write_text("email\na@example.org\nnobody\n")
    assert (await customers.run()).code == 5
    (mail,) = customers.list_sent("mail")
    subject, counts, failures = mail.splitlines()
    assert subject == "-s customers: some rows failed ads-ops@example.org"
    assert counts == "1 accepted, 1 failed, 0 pending"
    path = Path(failures.removeprefix("failures: "))
    assert path.is_relative_to(customers.work)
    assert "1,3,email,must be an e-mail address" in path.read_text()
    assert customers.list_sent("curl") == []


@NIGHT
async def test_the_mail_of_a_night_that_failed_has_the_error(customers: Night, sandbox: Sandbox) -> None:
    (customers.work / "export.csv").write_text("email\na@example.org\n")
    sandbox.faults.on("*", "*").do(Fault.http(401))
    assert (await customers.run()).code == 1
    (mail,) = customers.list_sent("mail")
    assert mail.startswith("-s customers: the sync failed (1) ads-ops@example.org\n")
    assert "HTTP 401" in mail


@pytest.mark.parametrize("page", PAGES)
async def test_a_run_that_overlaps_leaves_the_files_of_the_other(sandbox: Sandbox, tmp_path: Path, page: str) -> None:
    night = prepare(sandbox, tmp_path, page)
    (night.work / "last.log").write_text("of the other run")
    with (night.work / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ended = await night.run()
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.endswith(": the run before has not ended\n")
    assert (night.work / "last.log").read_text() == "of the other run"
    assert night.list_sent("mail") == night.list_sent("curl") == []


@NIGHT
async def test_withdrawn_opt_outs_are_removed_once_before_all_others_are_renewed(
    opt_outs: Night, sandbox: Sandbox
) -> None:
    (opt_outs.work / "opt-outs.csv").write_text("email\na@example.org\nb@example.org\n")
    (opt_outs.work / "withdrawn.csv").write_text("email\nc@example.org\n")
    for _ in range(2):
        assert await opt_outs.run() == Ended(0, "", "")
    assert sandbox.requests.count(LIST_USERS) == 3
    assert not (opt_outs.work / "withdrawn.csv").exists()
    assert opt_outs.list_sent("mail") == []


@NIGHT
async def test_who_could_not_be_taken_off_the_list_is_tried_again(opt_outs: Night, sandbox: Sandbox) -> None:
    (opt_outs.work / "opt-outs.csv").write_text("email,phone\na@example.org,12\nnobody,\n")
    (opt_outs.work / "withdrawn.csv").write_text("email\nc@example.org\n")
    sandbox.faults.on("POST", LIST_USERS).once().do(Fault.http(401))
    assert (await opt_outs.run()).code == 5
    (mail,) = opt_outs.list_sent("mail")
    assert mail.startswith("-s opt-outs: not all were sent (5) ads-ops@example.org\n")
    assert "HTTP 401" in mail
    assert "1 accepted" in mail
    assert "listed in opt-outs.csv.do-not-reach-list-dnr7k1.upload.failures.csv" in mail
    assert (opt_outs.work / "withdrawn.csv").exists()
