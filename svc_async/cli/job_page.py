"""Describes the job of a journal: its state, its waits, what to do next, and its page.

Until when a rate limit holds a job, only the job itself knows.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import attrs

from svc_async._version import __version__
from svc_async.batch.job import Job
from svc_async.batch.journal.record import JournalRecord
from svc_async.batch.ledger import GRACE
from svc_async.batch.report import Progress
from svc_async.batch.settings import BatchSettings
from svc_async.cli.exit_codes import explain
from svc_async.cli.failures import count_reasons
from svc_async.cli.job_journal import describe_ids, describe_resuming, find_source_problem, read_noted_job
from svc_async.cli.output.console import count, format_duration
from svc_async.clock import Clock, find_boot
from svc_async.errors import UnusableFile
from svc_async.jobs.html_report import JobRecord
from svc_async.jobs.limits import requests_per_minute
from svc_async.sources.detect import STANDARD_INPUT

__all__ = [
    "JobWaits",
    "describe_journal_page",
    "describe_next",
    "describe_state",
    "describe_target",
    "describe_title",
    "find_limit",
    "find_noted_job",
    "find_waits",
    "list_folder",
    "list_reasons",
]

_BEGUN_BY_PROGRAM = "Make the same call again with this journal to resume the job."
_NOT_ALL_SPOOLED = "It ended before all of its rows were kept: make the same call again with all of them."


def find_noted_job(record: JournalRecord) -> Job | None:
    """Return a job that a command has begun."""
    return read_noted_job(record) if record.note else None


def describe_state(record: JournalRecord) -> str:
    """Return whether a job runs, is finished, was stopped, or has not begun."""
    if record.running:
        return "running"
    if record.finished:
        return "finished"
    return "stopped" if record.begun_at is not None else "not begun"


def describe_next(record: JournalRecord) -> str:
    """Describe what to do."""
    is_spooling = record.spool_begun and not record.spooled
    if record.running:
        where = "" if record.owner is None else f" on {record.owner}"
        what = "reads its rows, before anything is sent" if is_spooling else "is running"
        return f"The job {what}{where}; wait, or stop it with Ctrl-C or SIGTERM."
    if record.finished:
        return "Nothing is left to do. A new job needs a new journal."
    if not record.note:
        return _NOT_ALL_SPOOLED if is_spooling else _BEGUN_BY_PROGRAM
    return _describe_resuming(record, read_noted_job(record))


def _describe_resuming(record: JournalRecord, job: Job) -> str:
    """Describe how a job that has ended early is resumed."""
    if (name := job.note.cluster_job) is not None:
        what = "" if name == record.name else "It is a shard. "
        return f"{what}Run the job {name} on a cluster again to resume it."
    resume = f"svc-async job resume {record.name}" if record.owner is None else describe_resuming(record.name)
    problem = find_source_problem(job) if record.owner is None else None  # the file may be on the machine of the owner
    if problem is not None:
        return f"{job.file.path} {problem}: restore it as it was, then resume the job with: {resume}"
    if job.file.path == STANDARD_INPUT and not record.spooled:
        return f"It ended before standard input was kept: pass the same input again, as in: {resume} < FILE"
    return f"Resume it with: {resume}"


def describe_title(record: JournalRecord) -> str:
    """Return what a job does, and with which file."""
    job = find_noted_job(record)
    return f"{job.title}: {job.file.path}" if job else record.name


def find_limit(record: JournalRecord) -> float | None:
    """Return the service's limit on the requests of a job a minute."""
    job = find_noted_job(record)
    return requests_per_minute(job.target.kind, job.operation) if job else None


def list_folder(folder: Path) -> Sequence[Mapping[str, Any]]:
    """Return the path, the state and the accepted rows of each journal in a folder, by name, or why it cannot be read.

    Raises:
        UnusableFile: there are none.
    """
    paths = sorted(folder.glob("*.journal"))
    if not paths:
        raise UnusableFile("journal", folder, "is a folder without journals (*.journal)")
    found: list[Mapping[str, Any]] = []
    for path in paths:
        facts: dict[str, Any] = {"journal": str(path), "state": None, "accepted": None, "problem": None}
        try:
            record = JournalRecord.read(path)
            facts |= {"state": describe_state(record), "accepted": record.report.accepted}
        except UnusableFile as error:  # the others are shown
            facts["problem"] = explain(error)
        found.append(facts)
    return found


def list_reasons(record: JournalRecord) -> Mapping[str, int]:
    """Count failures by reason; a journal lists the first 10,000, and rows that break a rule only at the end."""
    counted = count_reasons(record.report.failures)
    others = record.report.failed - sum(counted.values())
    name = "not listed in the journal" if record.finished else "break a rule, which is listed when the job is finished"
    return {**dict(counted.most_common()), **({name: others} if others else {})}


@attrs.frozen(kw_only=True)
class JobWaits:
    """The waits of a job.

    Attributes:
        turned_away: requests of a running job that had no effect, and are sent again.
        resends_from: when the first request without an answer is sent again at the earliest, while the job runs; None
            if that is not known.
        quarantine: seconds that the job waits, at most, before it sends anything in doubt when it is resumed now, on
            this machine; None if it runs, is finished, or that is not known.
        was_resumed: whether it is not the first run. After a kill it sends nothing before a quarantine is over that
            begins with its resumption; the journal does not know when that was.
    """

    turned_away: int = 0
    resends_from: datetime | None = None
    quarantine: float | None = None
    was_resumed: bool = False

    def describe(self) -> Sequence[str]:
        """Describe them in sentences."""
        told: list[str] = []
        if self.turned_away:
            were = "was turned away and is" if self.turned_away == 1 else "were turned away and are"
            told += [f"{count(self.turned_away, 'request')} {were} sent again after a delay."]
        if self.resends_from is not None:
            later = (
                ", or a whole quarantine after the job was resumed if it had been killed" if self.was_resumed else ""
            )
            told += [
                f"Requests without an answer are sent again at {self.resends_from:%H:%M:%S} UTC at the earliest{later}."
            ]
        if self.quarantine:
            told += [f"When it is resumed, it first waits up to {format_duration(self.quarantine)} for the quarantine."]
        return told


def find_waits(record: JournalRecord, clock: Clock) -> JobWaits:
    """Return the waits of a job, as far as its journal knows them; only a command notes the settings."""
    job = find_noted_job(record)
    if record.finished or record.begun_at is None:
        return JobWaits()
    settings = None if job is None else job.settings
    if record.running:
        earliest: datetime | None = None
        if settings is not None and settings.ordered and record.doubts:
            earliest = record.doubts[0].sent_at + timedelta(seconds=settings.quarantine)
            earliest = earliest if earliest > clock.now() else None
        return JobWaits(turned_away=record.turned_away, resends_from=earliest, was_resumed=record.runs > 1)
    is_on_cluster = job is not None and job.note.cluster_job is not None  # its shards wait for different times
    return JobWaits(quarantine=None if settings is None or is_on_cluster else _find_rest(record, settings, clock))


def _find_rest(record: JournalRecord, settings: BatchSettings, clock: Clock) -> float:
    if not settings.ordered:
        return 0.0
    if record.end is not None:
        passed = record.end.measure_time_since(clock.monotonic(), find_boot(clock))
        return max(0.0, settings.quarantine - passed) if record.doubts else 0.0
    return settings.quarantine + (0.0 if record.owner is None else GRACE)


def describe_target(job: Job, host: str | None) -> Mapping[str, str]:
    """Return the ids of a list, its host and the source, by what a page calls them."""
    facts = {name.capitalize(): value for name, value in describe_ids(job.target).items() if value is not None}
    file = "standard input" if job.file.path == STANDARD_INPUT else job.file.path
    return {**facts, **({"Host": host} if host else {}), "File": file}


def describe_journal_page(record: JournalRecord, clock: Clock) -> JobRecord:
    """Return what the page of a job says now."""
    job = find_noted_job(record)
    state = describe_state(record)
    facts = {} if job is None else describe_target(job, job.note.host)
    return JobRecord(
        title=describe_title(record) if job is None else f"{job.title}: {Path(job.file.path).name}",
        report=record.report,
        seconds=record.worked,
        state="finished" if record.finished else "running" if record.running else "stopped",
        facts={**facts, "Journal": record.name},
        begun_at=record.begun_at,
        samples=[Progress(), *record.timeline],
        reasons=list_reasons(record),
        requests_per_minute=find_limit(record),
        ended_early=None if record.finished or record.running else f"the job is {state}",
        advice=" ".join([*find_waits(record, clock).describe(), describe_next(record)]),
        version=__version__ if job is None else job.note.version or __version__,
    )
