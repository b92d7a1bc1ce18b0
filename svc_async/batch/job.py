"""A job as a value: which rows go from where to which list, and how.

The methods of a list, the command, a journal and a cluster all describe a job by a `Job`. `to_plain` and `from_plain`
convert it to and from values for JSON: a journal keeps it so, for whoever resumes the job. They leave out what belongs
to one process, and a job holds no session and no credentials.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Literal, Self, TypedDict, TypeVar, get_args

import attrs
import msgspec

from svc_async.batch.journal.journal import JournalPath
from svc_async.batch.report import Report
from svc_async.batch.settings import BatchSettings, Reading, SyncObservers, SyncSettings
from svc_async.engine.origin import SessionOrigin
from svc_async.errors import Hint, InvalidArgument
from svc_async.store.records import SharedSyncs
from svc_async.value_rules import TEXT, instance_of, one_of, or_none, refuse_unknown

__all__ = [
    "ClusterRunner",
    "Job",
    "JobNote",
    "ListKind",
    "Operation",
    "SourceSpec",
    "StateLocation",
    "TargetSpec",
    "from_plain",
    "import_cluster",
    "read_job",
    "to_plain",
]

T = TypeVar("T", bound=attrs.AttrsInstance)

_FORMAT = 2
"""The version of the encoding; it changes whenever an older version would misread a job."""

ListKind = Literal["audience", "do_not_reach_list", "catalog"]
Operation = Literal["upload", "remove", "sync"]

_REQUIRED: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "audience": {"account_id": "account_id", "list_id": "custom_audience_id"},
        "do_not_reach_list": {"account_id": "account_id", "list_id": "do_not_reach_list_id"},
        "catalog": {"list_id": "product_catalog_id"},
    }
)
"""The fields that a target of each kind needs, and the names of what they hold."""
_TIMES: Mapping[tuple[str, str], Collection[str]] = MappingProxyType(
    {("audience", "upload"): ("effective_at", "expires_at"), ("do_not_reach_list", "upload"): ("expires_at",)}
)
"""The times that rows of a job may have."""
_TITLES: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("audience", "upload"): "Upload to an audience",
        ("audience", "remove"): "Removal from an audience",
        ("audience", "sync"): "Sync of an audience",
        ("do_not_reach_list", "upload"): "Upload to a do-not-reach list",
        ("do_not_reach_list", "remove"): "Removal from a do-not-reach list",
        ("catalog", "upload"): "Upload to a catalog",
        ("catalog", "remove"): "Deletion from a catalog",
        ("catalog", "sync"): "Sync of a catalog",
    }
)


StateLocation = str | Path | SharedSyncs
"""The path of a file, one for each list; or the shared state, which has all of them."""


@attrs.frozen(kw_only=True)
class SourceSpec:
    """The file that rows come from; on a cluster also a folder, a pattern or a URL.

    Attributes:
        path: its path, absolute if another process is to find it; `-` is standard input.
        format: its format; detected from the content if None.
        mapping: from names of columns to the service's keys.
        encoding: its encoding, if it is not Unicode.
        empty: what stands for no value in it, such as `n/a`.
        header: the names of its columns, if it is a CSV file without a header.
        fingerprint: the digest of its content when the job began, if the job has a journal.
    """

    path: str = attrs.field(validator=TEXT)
    format: str | None = None
    mapping: Mapping[str, str] = attrs.field(factory=dict)
    encoding: str | None = None
    empty: tuple[str, ...] = ()
    header: tuple[str, ...] | None = None
    fingerprint: str | None = None


@attrs.frozen(kw_only=True)
class TargetSpec:
    """The list that rows go to.

    Attributes:
        kind: audience, do_not_reach_list or catalog.
        list_id: the id of the audience, do-not-reach list or catalog.
        account_id: the account of the list; a catalog has none.
    """

    kind: ListKind = attrs.field(validator=one_of(get_args(ListKind)))
    list_id: str | None = attrs.field(default=None, validator=or_none(TEXT))
    account_id: str | None = attrs.field(default=None, validator=or_none(TEXT))

    def describe_at(self, host: str) -> str:
        """Return the list and its host, as the state of its syncs names it."""
        return " ".join(filter(None, [self.kind, self.account_id, self.list_id, "at", host]))

    def check(self) -> None:
        """Check that no id is missing.

        Raises:
            InvalidArgument: names the first id that is missing.
        """
        for field, name in _REQUIRED[self.kind].items():
            if getattr(self, field) is None:
                hint = Hint.LIST_ACCOUNTS if field == "account_id" else Hint.GIVE_AN_ID
                raise InvalidArgument(name, "must be given", hint=hint)


@attrs.frozen(kw_only=True)
class JobNote:
    """Notes for `svc-async job`, which resumes and reports a job that it finds in a journal.

    Attributes:
        profile: the profile that the job was begun with.
        failures_file: where its failures are written, if not beside the source.
        report: where its report is written, if anywhere.
        host: the host of the list.
        version: the version of the SDK that began it.
        size: the bytes of its source, if that is one file.
        cluster_job: the name of the job on a cluster of which it is a shard.
    """

    profile: str | None = None
    failures_file: str | None = None
    report: str | None = None
    host: str | None = None
    version: str | None = None
    size: int | None = None
    cluster_job: str | None = None


_SOURCE = or_none(instance_of(SourceSpec, "a SourceSpec"))
_TARGET = instance_of(TargetSpec, "a TargetSpec")


@attrs.frozen(kw_only=True)
class Job:
    """An upload of rows to a list, their removal, or a sync of the list with them.

    On a cluster the journal is one of the shared state, and the session is one of `from_env` or `from_profile`: the
    workers have the same variables or the same profile, so that no credentials are sent to them.

    Attributes:
        target: the list.
        operation: upload, remove or sync. Products are removed by their `product_key`; a do-not-reach list cannot be
            synced.
        source: the file; None if the rows are given otherwise.
        effective_at: when members of an audience become members; now if None.
        expires_at: when members cease to be members; in 13 months if None.
        reading: how users are read.
        settings: how rows are sent.
        sync: what a sync may do.
        state: what keeps the state of the list between syncs; the shared state of the session if None. Of an upload or
            a removal, where what it sends is noted for the next sync; if None, nowhere.
        note: notes for `svc-async job`.
        observers: functions that are called as the job proceeds. `to_plain` leaves out this and what follows.
        journal: what keeps an upload or a removal, so that it can be resumed.
        cluster: the workers that do the job, if not this process.
        shards: into how many parts a new job on a cluster is divided; None leaves it to the rows.

    Raises:
        InvalidArgument: the list has no such operation or times.
    """

    target: TargetSpec = attrs.field(validator=_TARGET)
    operation: Operation = attrs.field(default="upload", validator=one_of(get_args(Operation)))
    source: SourceSpec | None = attrs.field(default=None, validator=_SOURCE)
    effective_at: datetime | None = None
    expires_at: datetime | None = None
    reading: Reading = attrs.field(factory=Reading)
    settings: BatchSettings = attrs.field(factory=BatchSettings)
    sync: SyncSettings = attrs.field(factory=SyncSettings)
    state: StateLocation | None = None
    note: JobNote = attrs.field(factory=JobNote)
    observers: SyncObservers = attrs.field(factory=SyncObservers)
    journal: JournalPath | None = None
    cluster: object = None
    shards: int | None = None

    def __attrs_post_init__(self) -> None:
        if (self.target.kind, self.operation) not in _TITLES:
            raise InvalidArgument("kind", "must be audience or catalog: other lists cannot be synced")
        known = _TIMES.get((self.target.kind, self.operation), ())
        for name in ("effective_at", "expires_at"):
            if getattr(self, name) is not None and name not in known:
                raise InvalidArgument(name, f"must not be given for this job: {self.title}")
        if self.operation == "sync" or self.state is None:
            return
        if self.target.kind != "audience":
            raise InvalidArgument("state", f"must not be given for this job: {self.title}")
        if self.cluster is not None:
            raise InvalidArgument(
                "state", "must not be given with cluster=: it would know nothing of what the workers send"
            )

    @property
    def title(self) -> str:
        """The operation and the kind of the list, in a few words."""
        return _TITLES[self.target.kind, self.operation]

    @property
    def file(self) -> SourceSpec:
        """The source.

        Raises:
            InvalidArgument: the rows are given otherwise.
        """
        if self.source is None:
            raise InvalidArgument("source", "must be given")
        return self.source

    def name_files(self, parameter: str, rows: object) -> Self:
        """Return the job with the files as its source that the workers of a cluster read.

        Args:
            parameter: the argument that gives them.
            rows: its value.

        Raises:
            InvalidArgument: it is not the path, pattern or URL of files.
        """
        if self.source is not None:
            return self
        if isinstance(rows, str | Path):
            return attrs.evolve(self, source=SourceSpec(path=str(rows)))
        rule = "must be a path, a pattern or a URL where cluster= is given: the workers read the rows"
        raise InvalidArgument(parameter, rule)

    def detach(self) -> Self:
        """Return the job without what belongs to this process, such as a shared state, so that it can be pickled."""
        state = self.state if isinstance(self.state, str | Path) else None
        return attrs.evolve(self, state=state, observers=SyncObservers(), journal=None, cluster=None, shards=None)


class _StoredJob(TypedDict, total=False):
    """The fields of a job that are stored."""

    target: TargetSpec
    operation: Operation
    source: SourceSpec | None
    effective_at: datetime | None
    expires_at: datetime | None
    reading: Reading
    settings: BatchSettings
    sync: SyncSettings
    state: str | None
    note: JobNote


def to_plain(job: Job) -> dict[str, Any]:
    """Return a job as plain values, ready for JSON; a shared state is left to the session that runs the job."""
    stored = {name: msgspec.to_builtins(getattr(job, name)) for name in _StoredJob.__annotations__ if name != "state"}
    return {"format": _FORMAT, **stored, "state": str(job.state) if isinstance(job.state, str | Path) else None}


def from_plain(plain: object) -> Job:
    """Return the job that plain values describe.

    Raises:
        InvalidArgument: this version cannot run it.
    """
    if not isinstance(plain, Mapping) or "format" not in plain:
        raise InvalidArgument("job", "must be one that `to_plain` has encoded")
    if plain["format"] != _FORMAT:
        raise InvalidArgument("job", f"is of format {plain['format']}, but this version runs format {_FORMAT}")
    try:
        stored = msgspec.convert(dict(plain), _StoredJob)
    except msgspec.ValidationError as error:
        raise InvalidArgument("job", f"cannot be read: {error}") from None
    if "target" not in stored:
        raise InvalidArgument("job", "cannot be read: it names no list")
    return Job(**stored)


def read_job(call: str, options: Mapping[str, Any], known: Collection[str], **fields: Any) -> Job:
    """Return the job that the keywords of a call describe.

    Args:
        call: the name of the method, for messages.
        options: the keywords.
        known: those that the method takes.
        fields: other fields of the job.

    Raises:
        TypeError: the method does not take one of them.
        InvalidArgument: a value breaks its rule.
    """
    refuse_unknown(call, options, known)

    def pick(kind: type[T]) -> T:
        return kind(**{name: options[name] for name in attrs.fields_dict(kind) if name in options})

    return Job(
        reading=pick(Reading),
        settings=pick(BatchSettings),
        sync=pick(SyncSettings),
        observers=pick(SyncObservers),
        journal=options.get("journal"),
        cluster=options.get("cluster"),
        shards=options.get("shards"),
        state=fields.pop("state", options.get("state")),
        **fields,
    )


@attrs.frozen
class ClusterRunner:
    """Runs jobs on a cluster, whose workers open the session of this process.

    Attributes:
        origin: where they find its settings; None, as of a list that belongs to no session, is refused.
    """

    origin: SessionOrigin | None = None

    async def run(self, job: Job) -> Report:
        """Run an upload or a removal, and return its report; exceptions as in `upload`."""
        reports: Sequence[Report] = await import_cluster("runner").run_jobs(
            [job],
            cluster=job.cluster,
            journal=job.journal,
            origin=self.origin,
            shards=job.shards,
            observers=job.observers,
        )
        return reports[0]


def import_cluster(name: str, *, extra: str = "cluster") -> ModuleType:
    """Import a module of the package of clusters, which opens sessions and so belongs to a floor above this one.

    Args:
        name: the module.
        extra: what brings all that the caller needs.

    Raises:
        InvalidArgument: the extra is missing.
    """
    try:
        return import_module(f"svc_async.cluster.{name}")
    except ImportError as error:
        if error.name and error.name.startswith("svc_async"):
            raise
        rule = f'needs the package {error.name}: pip install "svc-async[{extra}]"'
        raise InvalidArgument("cluster", rule) from None
