"""The journal of a command's job: what it notes about the job, and how the same job is recognised and resumed."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from svc_async import profiles
from svc_async.batch.journal.file import JournalFile
from svc_async.batch.journal.journal import annotate
from svc_async.batch.journal.journals import Journals
from svc_async.batch.journal.record import JournalRecord
from svc_async.cli.options import JournalOptions, RunOptions, absolute
from svc_async.clock import SystemClock
from svc_async.errors import InvalidArgument, UnusableFile
from svc_async.jobs.spec import JobSpec, TargetSpec, UploadSpec, from_plain, to_plain
from svc_async.sources.detect import STANDARD_INPUT
from svc_async.sources.source import ReplayableSource
from svc_async.users.tables import Rows

__all__ = ["JobJournal", "JobNote", "SpooledSource", "describe_ids", "find_journal"]

_SETTINGS = ("fingerprint", "profile", "failures_file", "report")
_ID_NAMES = {"audience": "audience", "do_not_reach_list": "list", "catalog": "catalog"}


def describe_ids(target: TargetSpec) -> Mapping[str, str | None]:
    """Return the ids of a list by the names of the options that give them."""
    account = {} if target.kind == "catalog" else {"account": target.account_id}
    return {**account, _ID_NAMES[target.kind]: target.list_id}


def find_journal(options: JournalOptions, spec: JobSpec, run: RunOptions) -> JournalOptions:
    """Return the options with the journal of this run, if the journals are kept in a folder.

    Raises:
        InvalidArgument: a file is given too.
        UnusableFile: the folder cannot be used.
    """
    if options.journals is None:
        return options
    if options.journal is not None:
        raise InvalidArgument("--journals", "must not be given with --journal, which names one file for one run")
    host = profiles.find(run.profile).endpoints.ads_url
    about = {"job": spec.title, "host": host, **describe_ids(spec.target)}
    return attrs.evolve(options, journal=Journals(options.journals).find(about, SystemClock().now()))


@attrs.frozen(kw_only=True)
class JobNote:
    """What a command writes into the journal of its job.

    Attributes:
        spec: the job.
        fingerprint: the digest of its source.
        profile: the profile that it was started with.
        failures_file: where its failures are written, if not beside the source.
        report: where its report is written, if anywhere.
    """

    spec: UploadSpec
    fingerprint: str
    profile: str | None = None
    failures_file: str | None = None
    report: str | None = None

    @classmethod
    def read(cls, record: JournalRecord) -> "JobNote":
        """Return the note in a journal.

        Raises:
            UnusableFile: there is none that this version can read.
        """
        if not record.note:
            raise UnusableFile("journal", record.name, "was not begun by a command; make the same call again")
        try:
            spec = from_plain(record.note.get("spec"))
        except InvalidArgument as error:
            problem = f"describes its job in a way that this version cannot read: {error}"
            raise UnusableFile("journal", record.name, problem) from None
        if not isinstance(spec, UploadSpec):
            raise UnusableFile("journal", record.name, "describes a sync, which keeps no journal")
        settings: dict[str, Any] = {name: record.note.get(name) for name in _SETTINGS}
        return cls(spec=spec, **settings)

    def to_plain(self) -> Mapping[str, Any]:
        """Return plain values, ready for JSON."""
        return {**attrs.asdict(self, recurse=False), "spec": to_plain(self.spec)}


class SpooledSource:
    """Stands for standard input that an earlier run has read to its end: its rows are in the spool of the journal.

    Attributes:
        name: what messages call it.
        columns: any; the rows are encoded already.
        ignored: none.
        size: one unit, which has been read.
        bytes_read: as much.
        exhausted: it is.
    """

    name = "standard input"
    columns = ("email",)
    ignored: Sequence[str] = ()
    size = bytes_read = 1
    exhausted = True

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint

    async def check(self) -> None:
        """Accept it: it was checked when it was read."""

    async def fingerprint(self) -> str:
        """Return the digest of what was read."""
        return self._fingerprint

    def find_line(self, position: int) -> None:
        """Return None: the spool has no lines."""

    def rows(self) -> Rows:
        """Return no rows: the uploader has them."""
        return Rows(self.columns, ())

    def products(self) -> Iterable[Mapping[str, Any]]:
        """Return no products: the uploader has them."""
        return ()

    def close(self) -> None:
        """Do nothing: it holds no file."""


@attrs.frozen(kw_only=True)
class JobJournal:
    """The journal of a command's job, if it keeps one.

    Attributes:
        path: the file; None if there is no journal.
        record: what earlier runs of the job have left in it; None if this is the first.
        note: what the first run has noted.
        resume_spool: whether the rows come from the spool instead of standard input.
    """

    path: Path | None = None
    record: JournalRecord | None = None
    note: JobNote | None = None
    resume_spool: bool = False

    @classmethod
    def open(cls, options: JournalOptions, spec: JobSpec) -> "JobJournal":
        """Find out what the journal of a job holds.

        Raises:
            UnusableFile: the journal is in use, belongs to another job, or cannot be read.
        """
        path = options.journal
        if path is None:
            return cls()
        if path.is_dir():
            raise UnusableFile("journal", path, "is a folder; --journals keeps a journal of each run in it")
        record = JournalRecord.read(path) if path.exists() and path.stat().st_size else None
        if record is None:
            return cls(path=path)
        if record.running:
            raise UnusableFile("journal", path, "is locked by another job")
        if record.begun_at is None:
            return cls(path=path)
        note = JobNote.read(record)
        if (note.spec.title, note.spec.target) != (spec.title, spec.target):
            ids = ", ".join(f"{name} {value}" for name, value in describe_ids(note.spec.target).items())
            raise UnusableFile("journal", path, f"belongs to another job: {note.spec.title} {ids}")
        return cls(path=path, record=record, note=note, resume_spool=options.resume_spool and record.spooled)

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.record is not None and self.record.finished

    @property
    def spooled(self) -> SpooledSource | None:
        """What stands for standard input, if its rows come from the spool."""
        return SpooledSource(self.note.fingerprint) if self.resume_spool and self.note is not None else None

    async def begin(self, source: ReplayableSource, spec: JobSpec, options: RunOptions) -> None:
        """Note what begins now; or make sure that the source is the one with which the job was begun.

        Raises:
            UnusableFile: the source is another one, or has changed.
        """
        if self.path is None or not isinstance(spec, UploadSpec):
            return
        fingerprint = await source.fingerprint()
        if self.note is None:
            note = JobNote(
                spec=spec,
                fingerprint=fingerprint,
                profile=options.profile,
                failures_file=absolute(options.failures_file) if options.failures_file else None,
                report=absolute(options.report) if options.report else None,
            )
            await annotate(JournalFile(self.path), note.to_plain())
        elif self.note.fingerprint != fingerprint:
            was = self.note.spec.source.path
            what = "standard input" if was == STANDARD_INPUT else f"{was}, or with what it held before it was changed"
            problem = f"belongs to a job with {what}; a new job needs a new journal; nothing was sent"
            raise UnusableFile("journal", self.path, problem)
