"""The main job on a messy file: a customer file becomes an audience on an embedded sandbox, in spite of two faults.

The file is written by `MessyFile`, from values that stand in `demo_values.json` and a seed. The values were drawn once
from Faker (`first_name`, `last_name`, `domain_word` under `.example`, `phone_number` where it is valid in E.164) for
ten locales: cs_CZ, de_DE, en_GB, es_ES, fr_FR, it_IT, pl_PL, pt_BR, sv_SE, tr_TR, each with the seed 7.

What the sandbox must hold in the end is computed by `_expected` from the file alone: it shares nothing with the
uploader, so that neither can hide a mistake of the other.
"""

import asyncio
import csv
import hashlib
import json
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import attrs
from rich.panel import Panel
from rich.text import Text

from svc_async.batch.report import Report
from svc_async.cli.console import stderr, stdout
from svc_async.cli.exit_codes import Exit
from svc_async.cli.progress import clock_time, display_of
from svc_async.cli.signals import Interrupted, until_stopped
from svc_async.cli.upload_command import requests_per_minute
from svc_async.errors import InvalidArgument
from svc_async.sandbox import Fault, Sandbox
from svc_async.session import Session
from svc_async.sources.columns import IGNORED
from svc_async.sources.csv_source import CsvSource

__all__ = ["MessyFile", "run"]

_QUARANTINE = 0.5
"""Seconds; a job for the platform waits 120."""
_ROUTE = "*/custom_audiences/*/users"

Holding = set[tuple[str, str, str]]
"""For each identifier of each person: the hash of the person's first one, the kind, and its own hash."""


def run(*, rows: int, seed: int, as_json: bool) -> int:
    """Run the demo and give the exit code: 0 if the sandbox holds exactly what it should."""
    if rows < 1:
        raise InvalidArgument("--rows", "must be at least 1")
    try:
        story = asyncio.run(until_stopped(_tell(rows, seed, quiet=as_json)))
    except Interrupted:
        return Exit.INTERRUPTED
    stdout().print(json.dumps(story.as_dict()) if as_json else _panel(story), soft_wrap=as_json)
    return Exit.DONE if story.equal else Exit.FAILURE


@attrs.frozen(kw_only=True)
class _Expectation:
    """What an upload of a file must lead to."""

    held: Holding
    sendable: int


@attrs.frozen(kw_only=True)
class _Upload:
    """What the uploader says of its work."""

    report: Report
    reasons: Mapping[str, int]
    seconds: float

    @property
    def speed(self) -> float:
        return self.report.read / self.seconds


@attrs.frozen(kw_only=True)
class _Story:
    """What happened, and what came of it."""

    file_size: int
    upload: _Upload
    faults: Sequence[str]
    expected: _Expectation
    held: Holding

    @property
    def equal(self) -> bool:
        """Whether the sandbox holds exactly what it should, and the report says so."""
        report, expected = self.upload.report, self.expected
        return self.held == expected.held and report.accepted + report.coalesced == expected.sendable

    def as_dict(self) -> Mapping[str, object]:
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
            "quarantine": _QUARANTINE,
            "seconds": round(self.upload.seconds, 3),
            "rows_per_second": round(self.upload.speed, 1),
            "people_expected": _people(self.expected.held),
            "people_held": _people(self.held),
            "equal": self.equal,
        }


async def _tell(rows: int, seed: int, *, quiet: bool) -> _Story:
    say = _silence if quiet else stderr().print
    with tempfile.TemporaryDirectory(prefix="svc-demo-") as folder:
        path = Path(folder) / "customers.csv"
        say(f"Writing a customer file of {rows:,} messy rows: invented people of ten countries ...")
        MessyFile(rows=rows, seed=seed).write(path)
        await asyncio.sleep(0)
        async with Sandbox() as sandbox:
            say(f"A sandbox of the platform is open at {sandbox.base_url}.")
            say("It will break on purpose: once it answers 503, once it takes rows over and loses the answer.")
            sandbox.faults.on("POST", _ROUTE).nth(1).do(Fault.http(503))
            sandbox.faults.on("POST", _ROUTE).nth(2).do(Fault.drop_connection(), stage="after")
            say(f"(After a lost answer rows rest {_QUARANTINE:g} s here, so that you need not wait; usually 120 s.)")
            audience_id = sandbox.add_audience()
            upload = await _upload(path, sandbox, audience_id, quiet=quiet)
            say("All is sent. Computing from the file alone who must be in the audience ...")
            return _Story(
                file_size=path.stat().st_size,
                upload=upload,
                faults=_struck(sandbox),
                expected=_expected(path),
                held=_held(sandbox, audience_id),
            )


async def _upload(path: Path, sandbox: Sandbox, audience_id: str, *, quiet: bool) -> _Upload:
    source = CsvSource(path, mapping={"Name": IGNORED})
    reasons: Counter[str] = Counter()
    async with Session.sandbox(sandbox) as session:
        users = session.account(sandbox.account_id).custom_audience(audience_id).users
        began = sandbox.clock.monotonic()
        with display_of(
            source, console=stderr(), clock=sandbox.clock, limit=requests_per_minute("ads.audience_users"), quiet=quiet
        ) as display:
            await source.check()
            report = await users.upload(
                source.rows(),
                quarantine=_QUARANTINE,
                retry_delays=(0, _QUARANTINE, _QUARANTINE),
                progress=display.show,
                on_failure=lambda failure: reasons.update([failure.reason]),
            )
        seconds = sandbox.clock.monotonic() - began
    return _Upload(report=report, reasons=dict(reasons.most_common()), seconds=seconds)


def _struck(sandbox: Sandbox) -> list[str]:
    words = {"http(503)": "503", "drop_connection": "lost answer"}
    return [words[injection.fault.name] for injection in sandbox.faults.armed if injection.struck]


def _held(sandbox: Sandbox, audience_id: str) -> Holding:
    return {
        ((user.get("email") or user["phone_number"])[0], kind, value)
        for user in sandbox.audience(audience_id).users
        for kind, values in user.items()
        for value in values
    }


def _people(held: Holding) -> int:
    return len({person for person, _, _ in held})


_is_email = re.compile(r"[^\s@]+@[^\s@.]+(\.[^\s@.]+)+").fullmatch
_is_phone = re.compile(r"\+[1-9]\d{6,14}").fullmatch


def _expected(path: Path) -> _Expectation:
    """Compute from the file who must be in the audience; these are the independent few lines."""
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


_WRITTEN_EMAILS: Sequence[Callable[[str], str]] = (
    str,
    str,
    str,
    str.upper,
    str.title,
    lambda email: f" {email}",
    lambda email: f"{email}  ",
    lambda email: f"\t{email.title()} ",
)
_BROKEN_EMAILS: Sequence[Callable[[str], str]] = (
    lambda email: email.replace("@", " at "),
    lambda email: email.replace("@", "@@"),
    lambda email: email.partition("@")[0],
    lambda email: email.removesuffix(".example"),
    lambda email: email.replace(".", " .", 1),
    lambda _: "n/a",
)
_WRITTEN_PHONES: Sequence[Callable[[str], str]] = (
    str,
    lambda phone: f"{phone[:3]} {phone[3:6]} {phone[6:]}",
    lambda phone: f"{phone[:3]} ({phone[3:5]}) {phone[5:]}",
    lambda phone: f"{phone[:3]}-{phone[3:7]}-{phone[7:]}",
    lambda phone: f" {phone[:3]} {phone[3:5]}.{phone[5:8]}.{phone[8:]} ",
)
_BROKEN_PHONES: Sequence[Callable[[str], str]] = (
    lambda phone: phone.removeprefix("+"),
    lambda phone: f"0{phone[3:]}",
    lambda phone: phone[:5],
    lambda _: "unknown",
)


@attrs.frozen(kw_only=True)
class MessyFile:
    """A customer file as one gets it: upper case, spaces, missing and broken values, repeats."""

    rows: int
    seed: int

    def write(self, path: Path) -> None:
        """Write it."""
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("Name", "E-Mail", "Phone Number"))
            writer.writerows(self._rows())

    def _rows(self) -> Iterator[tuple[str, str, str]]:
        dice = random.Random(self.seed)  # noqa: S311 - invents people, guards nothing
        known: list[tuple[str, str, str]] = []
        for name, email, phone in self._persons(dice):
            chance = dice.random()
            if known and chance < 0.06:  # noqa: PLR2004 - of all rows, these come again as they were
                yield known[int(dice.random() * len(known))]
                continue
            row = (name, self._email(email, dice), self._phone(phone, dice))
            if chance > 0.8:  # noqa: PLR2004 - and these may come again
                known.append(row)
            yield row
            if chance > 0.9998:  # noqa: PLR2004 - and these moved: another writing, another phone
                known.append((name.upper(), f" {email.upper()}", phone[:-1] + str((int(phone[-1]) + 1) % 10)))

    def _persons(self, dice: random.Random) -> Iterator[tuple[str, str, str]]:
        values: dict[str, list[str]] = json.loads(
            files("svc_async.cli.commands").joinpath("demo_values.json").read_bytes()
        )
        firsts, lasts, domains, phones = (
            dice.choices(values[name], k=self.rows) for name in ("first_names", "last_names", "domains", "phones")
        )
        for first, last, domain, phone in zip(firsts, lasts, domains, phones, strict=True):
            number = int(dice.random() * 100_000)
            local = f"{first}.{last}{number % 100 or ''}".lower()
            yield f"{first} {last}", f"{local}@{domain}", f"{phone[:-5]}{number:05}"

    def _email(self, email: str, dice: random.Random) -> str:
        chance = dice.random()
        if chance < 0.08:  # noqa: PLR2004 - missing
            return ""
        if chance < 0.10:  # noqa: PLR2004 - broken
            return _any(_BROKEN_EMAILS, dice)(email)
        return _any(_WRITTEN_EMAILS, dice)(email)

    def _phone(self, phone: str, dice: random.Random) -> str:
        chance = dice.random()
        if chance < 0.35:  # noqa: PLR2004 - missing
            return ""
        if chance < 0.36:  # noqa: PLR2004 - broken
            return _any(_BROKEN_PHONES, dice)(phone)
        return _any(_WRITTEN_PHONES, dice)(phone)


def _any(ways: Sequence[Callable[[str], str]], dice: random.Random) -> Callable[[str], str]:
    return ways[int(dice.random() * len(ways))]


def _silence(_: str) -> None:
    """Say nothing."""


def _panel(story: _Story) -> Panel:
    upload, report = story.upload, story.upload.report
    text = Text()

    def line(name: str, value: object, style: str = "bold") -> None:
        shown = f"{value:,}" if isinstance(value, int) else str(value)
        text.append(f"{name:<22}", "dim").append(f"{shown:>12}", style).append("\n")

    line("rows read", report.read)
    line("accepted", report.accepted, "bold green")
    line("repeated in a request", report.coalesced, "bold cyan")
    line("failed", report.failed, "bold red")
    for reason, count in upload.reasons.items():
        text.append(f"  {count:>7,}  {reason.partition(';')[0]}\n", "dim")
    line("requests", report.requests)
    line("faults survived", " and ".join(story.faults), "bold yellow")
    line("time", clock_time(upload.seconds))
    line("rows a second", round(upload.speed))
    line("people in the audience", _people(story.held))
    verdict = ("yes", "bold green") if story.equal else ("NO", "bold red")
    text.append("\nThe sandbox holds exactly what the file says: ").append(*verdict)
    text.append(f"\n({_people(story.expected.held):,} people, computed apart with csv and hashlib alone)", "dim")
    return Panel(
        text,
        title="A customer file became an audience",
        title_align="left",
        border_style="green" if story.equal else "red",
        expand=False,
        padding=(1, 2),
    )
