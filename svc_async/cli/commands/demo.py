"""`svc-async demo`: a messy customer file becomes an audience on an embedded sandbox, in spite of two faults.

`_compute_expected` computes from the file alone what the sandbox must hold in the end. It shares no code with the
uploader, so that neither can hide a mistake of the other.
"""

import asyncio
import csv
import hashlib
import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from textwrap import fill
from typing import Annotated

import attrs
from cyclopts import Parameter
from rich.panel import Panel
from rich.text import Text

from svc_async.batch.report import Report
from svc_async.cli.exit_codes import Exit
from svc_async.cli.messy_file import MessyFile
from svc_async.cli.options import JsonFlag
from svc_async.cli.output.console import format_duration, say, show_json, stderr, stdout
from svc_async.cli.output.log import hide_warnings
from svc_async.cli.output.progress import Display, choose_form
from svc_async.cli.signals import run_coroutine
from svc_async.errors import InvalidArgument
from svc_async.jobs.limits import find_job_limit
from svc_async.sandbox import Fault, Sandbox
from svc_async.session import Session
from svc_async.sources.columns import IGNORED
from svc_async.sources.csv_source import CsvSource

__all__ = ["DemoResult", "demo", "print_result", "run_demo"]

_ROUTE = "*/custom_audiences/*/users"
_FAULTS = {"http(503)": "503", "drop_connection": "lost answer"}
_FRAME = 6
"""Columns of a panel that its border and padding take."""

Holding = set[tuple[str, str, str]]
"""For each identifier of each person: the hash of the person's first one, the kind, and its own hash."""


def demo(
    *,
    rows: int = 200_000,
    seed: int = 7,
    as_json: JsonFlag = False,
    quarantine: Annotated[float, Parameter(show=False)] = 0.5,
) -> int:
    """Upload a generated file to a sandbox, and compare the audience with the file.

    Args:
        rows: Rows of the file.
        seed: Decides the content of the rows.
        as_json: Print only JSON.
        quarantine: Seconds before a request is sent again whose answer was lost; short, for a demo.
    """
    if rows < 1:
        raise InvalidArgument("--rows", "must be at least 1")
    with hide_warnings() if as_json else nullcontext():
        result = run_coroutine(run_demo(rows, seed, quarantine=quarantine, quiet=as_json))
    return print_result(result, as_json=as_json)


def print_result(result: "DemoResult", *, as_json: bool) -> int:
    """Print the result of a demo and return the exit code: 0 if the sandbox holds exactly what it should."""
    if as_json:
        show_json(result.as_dict())
    else:
        console = stdout()
        console.print(_panel(result, console.width - _FRAME), soft_wrap=False)
    return Exit.DONE if result.equal else Exit.FAILURE


@attrs.frozen(kw_only=True)
class _Expectation:
    """What an upload of the file must lead to."""

    held: Holding
    sendable: int


@attrs.frozen(kw_only=True)
class _UploadResult:
    """The uploader's report."""

    report: Report
    reasons: Mapping[str, int]
    seconds: float

    @property
    def speed(self) -> float:
        return self.report.read / self.seconds


@attrs.frozen(kw_only=True)
class DemoResult:
    """The run of a demo, and what the sandbox holds afterwards."""

    file_size: int
    upload: _UploadResult
    faults: Sequence[str]
    quarantine: float
    expected: _Expectation
    held: Holding

    @property
    def equal(self) -> bool:
        """Whether the sandbox holds exactly what it should, and the report says so."""
        report, expected = self.upload.report, self.expected
        return self.held == expected.held and report.accepted + report.coalesced == expected.sendable

    def as_dict(self) -> Mapping[str, object]:
        """Return plain values, ready for JSON."""
        report = self.upload.report
        return {
            "rows": report.read,
            "file_size": self.file_size,
            "accepted": report.accepted,
            "coalesced": report.coalesced,
            "failed": report.failed,
            "pending": report.pending,
            "failed_by_reason": dict(self.upload.reasons),
            "requests": report.requests,
            "faults_survived": list(self.faults),
            "quarantine": self.quarantine,
            "seconds": round(self.upload.seconds, 3),
            "rows_per_second": round(self.upload.speed, 1),
            "people_expected": _count_people(self.expected.held),
            "people_held": _count_people(self.held),
            "equal": self.equal,
        }


async def run_demo(rows: int, seed: int, *, quarantine: float, quiet: bool) -> DemoResult:
    """Upload a file of some rows to a sandbox of its own."""

    def tell(message: str) -> None:
        if not quiet:
            say(message)

    with tempfile.TemporaryDirectory(prefix="svc-demo-") as folder:
        path = Path(folder) / "customers.csv"
        tell(f"Writing a customer file of {rows:,} messy rows: invented people of ten countries ...")
        MessyFile(rows=rows, seed=seed).write(path)
        await asyncio.sleep(0)
        async with Sandbox() as sandbox:
            tell(f"A sandbox of the platform is open at {sandbox.base_url}.")
            tell("It injects two faults: one answer is 503, and one request is applied but its answer is lost.")
            sandbox.faults.on("POST", _ROUTE).nth(1).do(Fault.http(503))
            sandbox.faults.on("POST", _ROUTE).nth(2).do(Fault.drop_connection(), stage="after")
            tell(f"(The quarantine after a lost answer is {quarantine:g} s here; the default is 120 s.)")
            audience_id = sandbox.add_audience()
            upload = await _upload(path, sandbox, audience_id, quarantine=quarantine, quiet=quiet)
            tell("Everything is sent. Computing from the file alone who must be in the audience ...")
            return DemoResult(
                file_size=path.stat().st_size,
                upload=upload,
                faults=[_FAULTS[each.fault.name] for each in sandbox.faults.armed if each.struck],
                quarantine=quarantine,
                expected=_compute_expected(path),
                held=_read_audience(sandbox, audience_id),
            )


async def _upload(path: Path, sandbox: Sandbox, audience_id: str, *, quarantine: float, quiet: bool) -> _UploadResult:
    source = CsvSource(path, mapping={"Name": IGNORED})
    reasons: Counter[str] = Counter()
    async with Session.sandbox(sandbox) as session:
        users = session.account(sandbox.account_id).custom_audience(audience_id).users
        began = sandbox.clock.monotonic()
        console, limit = stderr(), find_job_limit("audience", "upload")
        form = choose_form(console, as_json=quiet)
        with Display(source, form=form, console=console, clock=sandbox.clock, limit=limit) as display:
            display.begin("checking")
            await source.check()
            report = await users.upload(
                source.rows(),
                quarantine=quarantine,
                retry_delays=(0, quarantine, quarantine),
                progress=display.show,
                on_failure=lambda failure: reasons.update([failure.reason]),
            )
        seconds = sandbox.clock.monotonic() - began
    return _UploadResult(report=report, reasons=dict(reasons.most_common()), seconds=seconds)


def _read_audience(sandbox: Sandbox, audience_id: str) -> Holding:
    return {
        ((user.get("email") or user["phone_number"])[0], kind, value)
        for user in sandbox.audience(audience_id).users
        for kind, values in user.items()
        for value in values
    }


def _count_people(held: Holding) -> int:
    return len({person for person, _, _ in held})


_is_email = re.compile(r"[^\s@]+@[^\s@.]+(\.[^\s@.]+)+").fullmatch
_is_phone = re.compile(r"\+[1-9]\d{6,14}").fullmatch


def _compute_expected(path: Path) -> _Expectation:
    """Compute from the file who must be in the audience, independently of the uploader."""
    held: set[tuple[str, str, str]] = set()
    sendable = 0
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        next(rows)
        for _, email, phone in rows:
            email, phone = email.strip().lower(), re.sub(r"[ ().-]", "", phone)  # noqa: PLW2901 - in its normal form
            if (email and not _is_email(email)) or (phone and not _is_phone(phone)) or not (email or phone):
                continue
            sendable += 1
            values = {"email": email, "phone_number": phone}
            hashes = {kind: hashlib.sha256(value.encode()).hexdigest() for kind, value in values.items() if value}
            person = next(iter(hashes.values()))
            held.update((person, kind, value) for kind, value in hashes.items())
    return _Expectation(held=held, sendable=sendable)


def _panel(result: DemoResult, width: int) -> Panel:
    upload, report = result.upload, result.upload.report
    text = Text()

    def line(name: str, value: object, style: str = "bold") -> None:
        shown = f"{value:,}" if isinstance(value, int) else str(value)
        text.append(f"{name:<22}", "dim").append(f"{shown:>12}", style).append("\n")

    line("rows read", report.read)
    line("accepted", report.accepted, "bold green")
    line("coalesced", report.coalesced, "bold cyan")
    line("failed", report.failed, "bold red")
    for reason, count in upload.reasons.items():
        number = f"  {count:>7,}  "
        rule = fill(number + reason.partition(";")[0], width, subsequent_indent=" " * len(number))
        text.append(f"{rule}\n", "dim")
    line("requests", report.requests)
    line("faults survived", " and ".join(result.faults), "bold yellow")
    line("time", format_duration(upload.seconds))
    line("rows a second", round(upload.speed))
    line("people in the audience", _count_people(result.held))
    verdict = ("yes", "bold green") if result.equal else ("NO", "bold red")
    text.append("\nThe sandbox holds exactly what the file says: ").append(*verdict)
    text.append(
        f"\n({_count_people(result.expected.held):,} people, computed independently with csv and hashlib)", "dim"
    )
    return Panel(
        text,
        title="A customer file became an audience",
        title_align="left",
        border_style="green" if result.equal else "red",
        expand=False,
        padding=(1, 2),
    )
