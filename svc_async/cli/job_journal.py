"""The journal of a command's job: how the same job is recognised and resumed."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs

from svc_async import profiles
from svc_async._version import __version__
from svc_async.batch.job import Job, JobNote, TargetSpec, from_plain
from svc_async.batch.journal.file import Journals
from svc_async.batch.journal.journal import JournalPath
from svc_async.batch.journal.record import JournalRecord
from svc_async.cli.options import JournalFlags, RunFlags, absolute
from svc_async.cli.sessions import require_state, run_in
from svc_async.clock import SystemClock
from svc_async.errors import InvalidArgument, SvcError, UnusableFile
from svc_async.session import Session
from svc_async.sources.detect import STANDARD_INPUT
from svc_async.sources.source import Source
from svc_async.state import SharedState
from svc_async.state.jobs import JobStore
from svc_async.users.tables import Rows

__all__ = [
    "UNKNOWN_JOB",
    "AbsentSource",
    "JobJournal",
    "describe_ids",
    "describe_resuming",
    "find_job",
    "find_journal",
    "find_source_problem",
    "read_noted_job",
    "read_state_job",
]

UNKNOWN_JOB = (
    "is not the name of a job in this shared state; `svc-async job list` lists them, and the shards of jobs on clusters"
)
_NEW_JOURNAL = "a new job needs a new journal"
_ID_NAMES = {"audience": "audience", "do_not_reach_list": "list", "catalog": "catalog"}


def describe_ids(target: TargetSpec) -> Mapping[str, str | None]:
    """Return the ids of a list by the names of the options that give them."""
    account = {} if target.kind == "catalog" else {"account": target.account_id}
    return {**account, _ID_NAMES[target.kind]: target.list_id}


def find_journal(options: JournalFlags, job: Job, run: RunFlags) -> JournalFlags:
    """Return the options with the journal of this run, if the journals are kept in a folder.

    Raises:
        InvalidArgument: two places are given.
        UnusableFile: the folder cannot be used.
    """
    if options.job is not None and not (options.journal is None and options.journals is None):
        raise InvalidArgument(
            "--job", "must not be given with --journal or --journals, which keep the journal in a file"
        )
    if options.journals is None:
        return options
    if options.journal is not None:
        raise InvalidArgument("--journals", "must not be given with --journal, which names one file for one run")
    host = profiles.find(run.profile).endpoints.ads_url
    about = {"job": job.title, "host": host, **describe_ids(job.target)}
    return attrs.evolve(options, journal=Journals(options.journals).find(about, SystemClock().now()))


def read_noted_job(record: JournalRecord) -> Job:
    """Return the job that a journal describes.

    Raises:
        UnusableFile: it describes no job that this version can read.
    """
    if not record.note:
        raise UnusableFile("journal", record.name, "was not begun by a command; make the same call again")
    try:
        return from_plain(record.note)
    except InvalidArgument as error:
        problem = f"describes its job in a way that this version cannot read: {error}"
        raise UnusableFile("journal", record.name, problem) from None


def find_source_problem(job: Job) -> str | None:
    """Return what a look at the folder of a source shows, if the job cannot be resumed with it."""
    if job.note.size is None or (size := _find_size(job.file.path)) == job.note.size:
        return None
    return "does not exist any more" if size is None else "has changed since"


def _find_size(path: str) -> int | None:
    """Return the bytes of a source, if it is one file on this machine."""
    file = Path(path)
    return file.stat().st_size if path != STANDARD_INPUT and file.is_file() else None


@attrs.define(kw_only=True)
class AbsentSource(Source):
    """Stands for a source that this process does not read: its rows are in a spool, or workers read them.

    Attributes:
        name: its name in messages.
        digest: its digest.
        has_lines: whether positions are lines already.
    """

    name: str
    digest: str = ""
    has_lines: bool = False

    async def fingerprint(self) -> str:
        """Return its digest."""
        return self.digest

    def find_line(self, position: int) -> int | None:
        """Return the position, if that is the line; a spool has no lines."""
        return position if self.has_lines else None

    def rows(self) -> Rows:
        """Return no rows: the uploader has them."""
        return Rows(["email"], ())

    def products(self) -> Iterable[Mapping[str, Any]]:
        """Return no products: the uploader has them."""
        return ()


def describe_resuming(job: str) -> str:
    """Return the command that resumes a job whose journal is in the shared state."""
    return f"svc-async job resume --job {shlex.quote(job)}"


def read_state_job(state: SharedState, job: str) -> JournalRecord | None:
    """Return what is known of a job in a shared state, also of one on a cluster; None if there is none.

    Raises:
        StateUnavailable: its database cannot be reached.
        UnusableState: a journal is damaged.
    """
    return run_in(state, lambda state: find_job(state, job))


async def find_job(state: SharedState, job: str) -> JournalRecord | None:
    """Return what is known of a job in an open shared state, also of one on a cluster; None if there is none."""
    return await state.journal(job).find() or await JobStore(state.database).find_record(job)


@attrs.frozen(kw_only=True)
class JobJournal:
    """The journal of a command's job, if it keeps one.

    Attributes:
        path: the file; None if there is none.
        job: the name of the job in the shared state; None if its journal is not there.
        record: what earlier runs of the job have left in it; None if this is the first.
        begun: the job as the first run has described it.
        resume_spool: whether the rows come from the spool instead of standard input.
    """

    path: Path | None = None
    job: str | None = None
    record: JournalRecord | None = None
    begun: Job | None = None
    resume_spool: bool = False

    @classmethod
    def open(cls, options: JournalFlags, job: Job, run: RunFlags) -> "JobJournal":
        """Find out what the journal of a job holds.

        Raises:
            UnusableFile: the journal is in use, belongs to another job, or cannot be read.
            UnusableState: likewise, in a shared state.
            StateUnavailable: the database of the shared state cannot be reached.
        """
        found = cls(path=options.journal, job=options.job)
        record = found._read(run)
        if record is None or record.begun_at is None:
            return found
        begun = read_noted_job(record)
        if (begun.title, begun.target) != (job.title, job.target):
            ids = ", ".join(f"{name} {value}" for name, value in describe_ids(begun.target).items())
            problem = f"belongs to another job: {begun.title} {ids}; {_NEW_JOURNAL}"
            raise UnusableFile("journal", record.name, problem)
        return attrs.evolve(found, record=record, begun=begun, resume_spool=options.resume_spool and record.spooled)

    def _read(self, run: RunFlags) -> JournalRecord | None:
        if (job := self.job) is not None:
            return run_in(require_state(run.state_url, run.profile), lambda state: state.journal(job).find())
        if self.path is None:
            return None
        if self.path.is_dir():
            raise UnusableFile("journal", self.path, "is a folder; --journals keeps a journal of each run in it")
        record = JournalRecord.read(self.path) if self.path.exists() and self.path.stat().st_size else None
        if record is not None and record.running:
            raise UnusableFile("journal", self.path, "is locked by another job", repeatable=True)
        return record

    async def read_end(self, session: Session) -> JournalRecord | None:
        """Return what the journal says after a run; None if there is none, or if it cannot be read."""
        try:
            if self.path is not None:
                return JournalRecord.read(self.path)
            return None if self.job is None or session.state is None else await session.state.journal(self.job).find()
        except SvcError:  # the run has ended, and is reported in any case
            return None

    @property
    def is_kept(self) -> bool:
        """Whether there is a journal."""
        return self.path is not None or self.job is not None

    @property
    def name(self) -> str | None:
        """The name of the journal in messages; None without a journal."""
        return self.job if self.path is None else str(self.path)

    @property
    def resume_command(self) -> str:
        """The command that resumes the job."""
        return describe_resuming(self.job) if self.job is not None else f"svc-async job resume {self.path}"

    @property
    def report_command(self) -> str | None:
        """The command that writes the report of the job; None without a journal."""
        if self.job is not None:
            return f"svc-async job report --job {shlex.quote(self.job)}"
        return None if self.path is None else f"svc-async job report {shlex.quote(str(self.path))}"

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.record is not None and self.record.finished

    @property
    def spooled(self) -> AbsentSource | None:
        """A stand-in for standard input, if its rows come from the spool."""
        if not self.resume_spool or self.begun is None:
            return None
        return AbsentSource(name="standard input", digest=self.begun.file.fingerprint or "")

    async def begin(self, source: Source, job: Job, options: RunFlags, session: Session) -> Job:
        """Return the job with its journal, and with notes for it; make sure that it was begun with the same source.

        Raises:
            UnusableFile: the source is another one, or has changed.
        """
        journal: JournalPath | None = self.path
        if self.job is not None and session.state is not None:
            journal = session.state.journal(self.job)
        if journal is None:
            return job
        fingerprint = await source.fingerprint()
        if self.begun is not None and self.begun.file.fingerprint != fingerprint:
            was = self.begun.file.path
            what = "standard input" if was == STANDARD_INPUT else f"{was}, or with what it held before it was changed"
            problem = f"belongs to a job with {what}; resume it with the same rows; {_NEW_JOURNAL}; nothing was sent"
            raise UnusableFile("journal", str(self.name), problem)
        note = JobNote(
            profile=options.profile,
            failures_file=absolute(options.failures_file) if options.failures_file else None,
            report=absolute(options.report) if options.report else None,
            host=urlsplit(profiles.find(options.profile).endpoints.ads_url).netloc,
            version=__version__,
            size=_find_size(job.file.path),
        )
        return attrs.evolve(job, journal=journal, note=note, source=attrs.evolve(job.file, fingerprint=fingerprint))
