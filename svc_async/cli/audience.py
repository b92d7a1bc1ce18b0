"""Sends a file of people to an audience, or takes them out of it."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from datetime import datetime
from pathlib import Path

import attrs
from rich.text import Text

from svc_async.ads.custom_audiences import BatchCounts, BatchOperationType
from svc_async.batch.audience_users import AudienceUsers
from svc_async.batch.report import Report
from svc_async.batch.uploader import Receipts
from svc_async.cli.consoles import complain, people, results
from svc_async.cli.exits import Exit, exit_of, explain
from svc_async.cli.failures import FailureList
from svc_async.cli.options import JobOptions
from svc_async.cli.progress import Display, clock_time, display_of
from svc_async.cli.running import Interrupted, until_stopped
from svc_async.cli.sessions import session_of
from svc_async.clock import Clock, SystemClock
from svc_async.errors import BatchError, InvalidArgument, SvcError
from svc_async.jobs.sources.opening import STANDARD_INPUT, open_source
from svc_async.jobs.sources.source import Source
from svc_async.session import Session

__all__ = ["run"]

_LISTED = 5
"""Reasons that are printed."""


def run(
    file: Path,
    action: BatchOperationType,
    options: JobOptions,
    *,
    effective_at: str | None = None,
    expires_at: str | None = None,
) -> int:
    """Do the whole job and give the exit code."""
    job = _Job(
        file,
        action,
        options,
        effective_at=_moment("effective_at", effective_at),
        expires_at=_moment("expires_at", expires_at),
    )
    # Standard input is read here, since waiting for it would keep an event loop from hearing of a signal.
    with closing(_source(file, options)) as source:
        return asyncio.run(job.run(source))


def _source(file: Path, options: JobOptions) -> Source:
    return open_source(file, format=options.format, mapping=_mapping(options.map), encoding=options.encoding)


@attrs.frozen(kw_only=True)
class _Outcome:
    """How a job ended."""

    report: Report
    seconds: float
    error: BatchError | None = None
    interrupted: bool = False

    @property
    def exit(self) -> Exit:
        if self.interrupted:
            return Exit.INTERRUPTED
        if self.error is not None:
            cause = self.error.__cause__
            return exit_of(cause) if isinstance(cause, SvcError) else Exit.FAILURE
        return Exit.SOME_FAILED if self.report.failed else Exit.DONE

    @property
    def speed(self) -> float:
        report = self.report
        return (report.accepted + report.coalesced + report.failed) / self.seconds if self.seconds else 0.0


@attrs.frozen
class _Job:
    """One file on its way."""

    file: Path
    action: BatchOperationType
    options: JobOptions
    effective_at: datetime | None = attrs.field(kw_only=True)
    expires_at: datetime | None = attrs.field(kw_only=True)
    clock: Clock = attrs.field(kw_only=True, factory=SystemClock)

    async def run(self, source: Source) -> int:
        path = self.options.failures or self.file.with_name(f"{_title(self.file)}.failures.csv")
        if path.resolve() == self.file.resolve():
            raise InvalidArgument("failures", "must not be the file itself")
        async with _opened(self.options) as (session, users):
            with FailureList(path, source) as failures:
                outcome = await self._send(session, users, source, failures)
        self._tell(outcome, source, failures)
        return outcome.exit

    async def _send(self, session: Session, users: AudienceUsers, source: Source, failures: FailureList) -> _Outcome:
        began = self.clock.monotonic()
        error: BatchError | None = None
        interrupted = False
        with display_of(source, console=people(), clock=self.clock, quiet=self.options.json) as display:
            receipts = self._receipts(users, source, failures, display)
            try:
                await until_stopped(_sent(session, users, source, receipts))
            except BatchError as early:
                error = early
            except Interrupted:
                interrupted = True
        seconds = self.clock.monotonic() - began
        return _Outcome(report=receipts.report, seconds=seconds, error=error, interrupted=interrupted)

    def _receipts(
        self, users: AudienceUsers, source: Source, failures: FailureList, display: Display
    ) -> Receipts[BatchCounts]:
        options = self.options
        return users.stream(
            source.rows(),
            operation_type=self.action,
            effective_at=self.effective_at,
            expires_at=self.expires_at,
            phone_region=options.phone_region,
            concurrency=options.concurrency,
            users_per_operation=options.users_per_operation,
            ordering=options.ordering,
            quarantine=options.quarantine,
            progress=display.show,
            on_failure=failures.add,
        )

    def _tell(self, outcome: _Outcome, source: Source, failures: FailureList) -> None:
        if self.options.json:
            results().print(_as_json(self.file, outcome, failures))
        else:
            _print_report(self.file, outcome, failures)
        if outcome.error is not None:
            complain(explain(outcome.error))
        if (outcome.interrupted or outcome.error is not None) and not self.options.json:
            people().print(_still_to_do(outcome.report, source))


async def _sent(session: Session, users: AudienceUsers, source: Source, receipts: Receipts[BatchCounts]) -> None:
    """See that the file is sound and the account is there, then send the file to its end."""
    await source.check()
    # A wrong host, credential or account shows at once here, and not after the patience of a batch.
    # Unspecified: that whoever may change an account's audiences may read the account.
    await session.accounts.get(users.account_id)
    async with receipts:
        async for _ in receipts:
            pass


@asynccontextmanager
async def _opened(options: JobOptions) -> AsyncGenerator[tuple[Session, AudienceUsers]]:
    """Open the session and bind the audience."""
    if options.sandbox:
        from svc_async.sandbox import Sandbox  # noqa: PLC0415 - a server is not loaded by those who need none

        if options.profile:
            raise InvalidArgument("profile", "must not be given with --sandbox, which brings credentials")
        async with Sandbox() as sandbox, Session.sandbox(sandbox) as session:
            account = session.account(sandbox.account_id if options.account is None else options.account)
            audience_id = sandbox.audience_id if options.audience is None else options.audience
            yield session, account.custom_audience(audience_id).users
        return
    if options.account is None:
        raise InvalidArgument("account_id", "must be given; `svc-async accounts list` shows yours")
    if options.audience is None:
        raise InvalidArgument("custom_audience_id", "must be given")
    async with session_of(options.profile) as session:
        yield session, session.account(options.account).custom_audience(options.audience).users


def _title(file: Path) -> str:
    """Call the file by its name."""
    return "stdin" if str(file) == STANDARD_INPUT else file.name


def _mapping(pairs: Sequence[str]) -> Mapping[str, str]:
    mapping: dict[str, str] = {}
    for pair in pairs:
        column, equals, key = pair.rpartition("=")
        if not equals or not column:
            raise InvalidArgument("map", "must be COLUMN=KEY, such as --map Mail=email")
        mapping[column] = key.strip()
    return mapping


def _moment(name: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(name, "must be a time in ISO 8601, such as 2030-12-31T23:59:59Z") from None
    if moment.tzinfo is None:
        raise InvalidArgument(name, "must say its time zone: add Z for UTC, or an offset such as +02:00")
    return moment


def _as_json(file: Path, outcome: _Outcome, failures: FailureList) -> str:
    return json.dumps(
        {
            "file": str(file),
            **outcome.report.as_dict(),
            "failures_file": str(failures.path) if failures.count else None,
            "seconds": round(outcome.seconds, 3),
            "rows_per_second": round(outcome.speed, 1),
            "interrupted": outcome.interrupted,
            "error": explain(outcome.error) if outcome.error else None,
        }
    )


def _print_report(file: Path, outcome: _Outcome, failures: FailureList) -> None:
    report, out = outcome.report, results()
    requests = f"{report.requests:,} request{'' if report.requests == 1 else 's'}"
    out.print(
        Text.assemble(
            (_title(file), "bold"),
            f": {report.read:,} rows read in {clock_time(outcome.seconds)}",
            (f" ({outcome.speed:,.0f} rows/s, {requests})", "dim"),
        )
    )
    for number, style, what in _rows(report):
        out.print(Text.assemble((f"{number:>13,} ", style), what))
        if what == "failed":
            _print_reasons(failures)


def _rows(report: Report) -> list[tuple[int, str, str]]:
    rows = [(report.accepted, "bold green", "accepted")]
    if report.coalesced:
        rows.append((report.coalesced, "cyan", "repeated: an equal row travelled in the same request"))
    if report.failed:
        rows.append((report.failed, "bold red", "failed"))
    if report.pending:
        rows.append((report.pending, "bold yellow", "pending: read and without an outcome"))
    if report.in_doubt:
        rows.append((report.in_doubt, "yellow", "  of these in doubt: sent, and maybe applied"))
    return rows


def _print_reasons(failures: FailureList) -> None:
    out = results()
    for reason, count in failures.reasons.most_common(_LISTED):
        out.print(Text.assemble((f"{count:>17,} ", "red"), (reason, "dim")))
    out.print(Text.assemble(" " * 14, ("listed in ", "dim"), str(failures.path)))


def _still_to_do(report: Report, source: Source) -> str:
    line = source.line(report.read)
    place = f"row {report.read + 1:,}" if line is None else f"line {line:,}"
    unread = "" if source.exhausted else f", and the file from {place} on"
    pending = f"Still to do: {report.pending:,} rows that were read{unread}. "
    return f"{pending}Run the same command again to finish: rows that are in already are not added twice."
