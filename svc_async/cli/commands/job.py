"""`svc-async job`: inspect and resume jobs that keep a journal."""

import asyncio
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import attrs
from cyclopts import App, Parameter

from svc_async.batch.job import to_plain
from svc_async.batch.journal.record import JournalRecord
from svc_async.cli.exit_codes import Exit, Interrupted
from svc_async.cli.failures import describe_failures
from svc_async.cli.job_journal import UNKNOWN_JOB, describe_ids, read_noted_job, read_state_job
from svc_async.cli.job_page import (
    JobWaits,
    describe_journal_page,
    describe_next,
    describe_state,
    describe_title,
    find_limit,
    find_noted_job,
    find_waits,
    list_folder,
    list_reasons,
)
from svc_async.cli.options import Flag, JournalFlags, JsonFlag, RunFlags, StateUrl, absolute, check_port
from svc_async.cli.outcome import check_report, write_json_report, write_report
from svc_async.cli.output.console import Part, count, format_duration, say, show, show_item, show_json, show_list
from svc_async.cli.sessions import require_state, run_in
from svc_async.cli.upload_command import start
from svc_async.cli.watch import ReadJournal, follow, open_file, open_state
from svc_async.clock import SystemClock
from svc_async.errors import InvalidArgument
from svc_async.jobs.html_report import report_page
from svc_async.state import SharedState
from svc_async.state.journals import JournalSummary, list_journals

__all__ = ["app"]

app = App(name="job")


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class StateJournalOptions:
    """Which job of a shared state is meant, if its journal is not a file.

    Attributes:
        job: The name of the job in the shared state.
        state_url: The PostgreSQL database. [default: state_url of the profile, or SVC_STATE_URL]
        profile: Take state_url from this profile.
        embedded: Use the embedded PostgreSQL of this user, which --cluster local uses.
    """

    job: str | None = None
    state_url: StateUrl = attrs.field(default=None, repr=False)  # may contain a password
    profile: str | None = None
    embedded: Flag = False

    def read(self, path: Path | None) -> JournalRecord:
        """Return what the journal of the job says.

        Raises:
            InvalidArgument: the job is not named, or twice.
            UnusableFile: the file cannot be read.
            UnusableState: there is no such job in the shared state, or its journal is damaged.
        """
        self._check(path)
        if path is not None:
            return JournalRecord.read(path)
        record = read_state_job(self._require_state(), str(self.job))
        if record is None:
            raise InvalidArgument("--job", UNKNOWN_JOB)
        return record

    def open(self, path: Path | None) -> AbstractAsyncContextManager[ReadJournal]:
        """Return a context that yields what reads the journal of the job again and again.

        Raises:
            InvalidArgument: the job is not named, or twice.
        """
        self._check(path)
        return open_file(path) if path is not None else open_state(self._require_state(), str(self.job))

    def _require_state(self) -> SharedState:
        return require_state(self.state_url, self.profile, embedded=self.embedded)

    def _check(self, path: Path | None) -> None:
        if (path is None) == (self.job is None):
            raise InvalidArgument("--job", "names a job in the shared state: give either it or the path of a journal")


_STATE = StateJournalOptions()

_TO_LIST = "must name the shared state whose jobs are listed (`svc-async job status FILE` shows a journal in a file)"


_COLUMNS: Mapping[str, Callable[[JournalSummary], object]] = {
    "Job": lambda job: job.name,
    "State": lambda job: job.state,
    "Accepted": lambda job: job.accepted,
    "Active": lambda job: f"{job.active_at:%Y-%m-%d %H:%M:%S} UTC",
}
_IN_A_FOLDER: Mapping[str, Callable[[Mapping[str, Any]], object]] = {
    "Journal": lambda each: Path(each["journal"]).name,
    "State": lambda each: each["problem"] or each["state"],
    "Accepted": lambda each: each["accepted"],
}


@app.command(name="list")
def list_(
    *, state_url: StateUrl = None, profile: str | None = None, embedded: Flag = False, as_json: JsonFlag = False
) -> int:
    """List the jobs whose journals are in the shared state, beginning with the one that was active last.

    Args:
        state_url: The PostgreSQL database. [default: state_url of the profile, or SVC_STATE_URL]
        profile: Take state_url from this profile.
        embedded: Use the embedded PostgreSQL of this user, which --cluster local uses.
        as_json: Print only JSON.
    """
    state = require_state(state_url, profile, embedded=embedded, purpose=_TO_LIST)
    jobs = run_in(state, lambda state: list_journals(state.database))
    if as_json:
        names = ("state", "accepted", "owner")
        show_json(
            [
                {"job": job.name, **{name: getattr(job, name) for name in names}, "active_at": _iso(job.active_at)}
                for job in jobs
            ]
        )
    else:
        show_list(jobs, _COLUMNS, none="No journals are in this shared state.")
    return Exit.DONE


@app.command
def status(path: Path | None = None, /, *, state: StateJournalOptions = _STATE, as_json: JsonFlag = False) -> int:
    """Print how far a job is, what is in doubt and what to do next; also while it runs.

    Args:
        path: The job's journal, if it is a file; of a folder, all journals in it are listed.
        state: Where it is otherwise.
        as_json: Print only JSON.
    """
    if path is not None and path.is_dir() and state.job is None:
        journals = list_folder(path)
        if as_json:
            show_json(journals)
        else:
            show_list(journals, _IN_A_FOLDER)
        return Exit.DONE
    _show_status(state.read(path), as_json=as_json)
    return Exit.DONE


@app.command
def resume(path: Path | None = None, /, *, state: StateJournalOptions = _STATE, as_json: JsonFlag = False) -> int:
    """Resume a job that a command has begun, from any folder.

    Credentials come from the same profile, or from the environment. Rows that were read from standard input are kept
    in the journal, and not read again. A job whose journal is in the shared state is taken up: whoever has it
    ends. A report is written to the file that the first run has named; `svc-async job report` writes one at any time.

    Args:
        path: The job's journal, if it is a file.
        state: Where it is otherwise.
        as_json: Print only JSON.
    """
    record = state.read(path)
    job = read_noted_job(record)
    note = job.note
    if note.cluster_job is not None:
        raise InvalidArgument("--job", f"is resumed by its command: run the job {note.cluster_job} on a cluster again")
    options = RunFlags(
        profile=state.profile or note.profile,
        state_url=state.state_url,
        failures_file=Path(note.failures_file) if note.failures_file else None,
        report=Path(note.report) if note.report else None,
        as_json=as_json,
    )
    file = None if path is None else Path(absolute(path))
    journal = JournalFlags(journal=file, job=state.job, resume_spool=record.spooled)
    return start(job, job.file.path, options, journal)


@app.command
def watch(
    path: Path | None = None,
    /,
    *,
    state: StateJournalOptions = _STATE,
    port: int = 0,
    open_: Annotated[Flag, Parameter(name="--open")] = False,
    as_json: JsonFlag = False,
) -> int:
    """Serve the page of a job that another process runs, and keep it up to date until the job ends.

    The page is for this machine, and for whoever has its URL.

    Args:
        path: The job's journal, if it is a file.
        state: Where it is otherwise.
        port: The port of this machine; 0 takes a free one.
        open_: Open the page in a browser.
        as_json: Print only JSON: first the URL, in the end the status of the job.
    """
    check_port(port)
    journal = state.open(path)

    async def announce(url: str) -> None:
        if as_json:
            show_item({"url": url})
        else:
            say(f"The job is shown at {url} until it ends. Ctrl-C stops showing it.", needed=True)
        if open_ and not await asyncio.to_thread(webbrowser.open, url):
            say(f"No browser was found; open {url}")

    try:
        record = run_in(journal, partial(follow, port=port, on_open=announce))
    except Interrupted:
        return Exit.DONE
    _show_status(record, as_json=as_json)
    return Exit.DONE


def _show_status(record: JournalRecord, *, as_json: bool) -> None:
    clock = SystemClock()
    now, waits = clock.now(), find_waits(record, clock)
    if not as_json:
        for line in _lines(record, now, waits):
            show(*line)
        return
    show_json(
        {
            "journal": record.name,
            "state": describe_state(record),
            **_job(record),
            **record.report.counts,
            "doubts": [{"rows": each.rows, "seconds": _age(each.sent_at, now)} for each in record.doubts],
            "turned_away": waits.turned_away,
            "resends_from": _iso(waits.resends_from),
            "quarantine": waits.quarantine if waits.quarantine is None else round(waits.quarantine, 3),
            "source_ended": record.source_ended,
            "runs": record.runs,
            "seconds": round(record.worked, 3),
            "begun_at": _iso(record.begun_at),
            "active_at": _iso(record.active_at),
            "next": describe_next(record),
        }
    )


@app.command
def report(
    path: Path | None = None,
    /,
    *,
    state: StateJournalOptions = _STATE,
    out: Path | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Write a report of a job, finished or not: totals, failures by reason, and its progress against the limit.

    Args:
        path: The job's journal, if it is a file.
        state: Where it is otherwise.
        out: Write to this file: .html to read, .json for programs. [default: JSON to stdout]
        as_json: Print only JSON.
    """
    record = state.read(path)
    if out is not None and path is not None and out.resolve() == path.resolve():
        raise InvalidArgument("--out", "must not be the journal itself")
    if out is None:
        show_json(_report(record))
        return Exit.DONE
    check_report(out, "--out")
    if out.suffix == ".json":
        write_json_report(out, _report(record), error=None, exit_code=Exit.DONE, option="--out")
    else:
        write_report(out, report_page(describe_journal_page(record, SystemClock())), "--out")
    if as_json:
        show_json({"report": str(out)})
    else:
        say(f"The report is in {out}.")
    return Exit.DONE


def _job(record: JournalRecord) -> Mapping[str, Any]:
    job = find_noted_job(record)
    return {
        "what": job.title if job else None,
        "file": job.file.path if job else None,
        "ids": describe_ids(job.target) if job else None,
        "spec": to_plain(job) if job else None,
    }


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat(timespec="seconds") if moment is not None else None


def _age(moment: datetime, now: datetime) -> float:
    return round(max(0.0, (now - moment).total_seconds()), 3)


def _lines(record: JournalRecord, now: datetime, waits: JobWaits) -> Iterator[Sequence[Part]]:
    yield (describe_title(record), "bold"), f": {describe_state(record)}"
    job = find_noted_job(record)
    for name, value in describe_ids(job.target).items() if job else ():
        yield (f"  {name} {value}",)
    if record.begun_at is not None and record.active_at is not None:
        ago = format_duration(_age(record.active_at, now))
        yield (
            f"  begun {record.begun_at:%Y-%m-%d %H:%M:%S} UTC, {count(record.runs, 'run')}, last activity {ago} ago",
        )
        yield from _totals(record, now)
    for sentence in waits.describe():
        yield (sentence,)
    yield (describe_next(record),)


def _totals(record: JournalRecord, now: datetime) -> Iterator[Sequence[Part]]:
    totals = record.report
    more = "" if record.source_ended else " so far"
    rows = [(totals.read, f"rows read{more}"), (totals.accepted, "accepted")]
    rows += [(totals.coalesced, "coalesced: an equal row is in the same request")] if totals.coalesced else []
    rows += [(totals.failed, "failed")] if totals.failed else []
    rows += [(totals.pending, "pending: read, without a result")] if totals.pending else []
    for number, what in [*rows, (totals.requests, f"request{'' if totals.requests == 1 else 's'}")]:
        yield (f"{number:>13,} {what}",)
    if record.doubts:
        oldest = format_duration(_age(record.doubts[0].sent_at, now))
        requests = count(len(record.doubts), "request")
        yield (f"{totals.in_doubt:>13,} in doubt: in {requests} without an answer, the oldest sent {oldest} ago",)


def _report(record: JournalRecord) -> Mapping[str, Any]:
    return {
        "journal": record.name,
        "state": describe_state(record),
        **_job(record),
        **record.report.as_dict(),
        "failures": describe_failures(record.report.failures),
        "reasons": list_reasons(record),
        "seconds": round(record.worked, 3),
        "runs": record.runs,
        "timeline": [attrs.asdict(moment) for moment in record.timeline],
        "requests_per_minute_limit": find_limit(record),
    }
