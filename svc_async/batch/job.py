"""A job as a value: what the methods of a list make of a call, and what runs it on a cluster."""

from collections.abc import Collection, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NotRequired, Protocol, TypedDict, TypeVar

import attrs

from svc_async.batch.journal.journal import JournalPath
from svc_async.batch.report import Report
from svc_async.batch.settings import BatchSettings, Reading
from svc_async.batch.sync.settings import SyncObservers, SyncSettings
from svc_async.batch.sync.snapshot import Snapshot
from svc_async.errors import InvalidArgument
from svc_async.value_rules import refuse_unknown

__all__ = ["ClusterClient", "ClusterRunner", "Job", "ListIds", "read_job"]

T = TypeVar("T", bound=attrs.AttrsInstance)


class ClusterClient(Protocol):
    """A `distributed.Client` that was made with `asynchronous=True`."""

    @property
    def asynchronous(self) -> bool:
        """Whether its methods are awaited."""
        ...


class ListIds(TypedDict):
    """What kind of list rows go to, and its ids; a catalog has no account."""

    kind: Literal["audience", "do_not_reach_list", "catalog"]
    list_id: str
    account_id: NotRequired[str]


@attrs.frozen(kw_only=True)
class Job:
    """Which rows go to which list, and how; a keyword that the method does not take has its default.

    On a cluster the journal is one of the shared state, and the session is one of `from_env` or `from_profile`: the
    workers have the same variables or the same profile, so that no credentials are sent to them.

    Attributes:
        ids: the list.
        settings: how rows are sent.
        observers: functions that are called as the job proceeds.
        reading: how users are read.
        sync: what a sync may do.
        journal: what keeps the job, so that it can be resumed.
        cluster: the workers that do it, if not this process.
        shards: into how many parts a new job on a cluster is divided; None leaves it to the rows.
        operation: `Update` or `Delete`.
        times: when users become and cease to be members, as far as that was given.
        source: the rows; on a cluster, the path, pattern or URL of files that every worker can read.
        parameter: the argument that gives the source, for messages.
    """

    ids: ListIds
    settings: BatchSettings
    observers: SyncObservers
    reading: Reading = attrs.field(factory=Reading)
    sync: SyncSettings = attrs.field(factory=SyncSettings)
    journal: JournalPath | None = None
    cluster: ClusterClient | None = None
    shards: int | None = None
    operation: str = "Update"
    times: Mapping[str, datetime] = attrs.field(factory=dict[str, datetime])
    source: object = attrs.field(default=None, repr=False)
    parameter: str = "members"

    @property
    def path(self) -> str:
        """The path, pattern or URL of the source.

        Raises:
            InvalidArgument: the source has none.
        """
        if isinstance(self.source, str | Path):
            return str(self.source)
        rule = "must be a path, a pattern or a URL where cluster= is given: the workers read the rows"
        raise InvalidArgument(self.parameter, rule)


def read_job(call: str, options: Mapping[str, Any], known: Collection[str], *, ids: ListIds) -> Job:
    """Return the job that the keywords of a call describe.

    Args:
        call: the name of the method, for messages.
        options: the keywords.
        known: those that the method takes.
        ids: the list.

    Raises:
        TypeError: the method does not take one of them.
        InvalidArgument: a value breaks its rule.
    """
    refuse_unknown(call, options, known)

    def pick(kind: type[T]) -> T:
        return kind(**{name: options[name] for name in attrs.fields_dict(kind) if name in options})

    return Job(
        ids=ids,
        settings=pick(BatchSettings),
        observers=pick(SyncObservers),
        reading=pick(Reading),
        sync=pick(SyncSettings),
        journal=options.get("journal"),
        cluster=options.get("cluster"),
        shards=options.get("shards"),
    )


class ClusterRunner:
    """Runs the jobs of a list on clusters; this one refuses them, since no session says how workers are reached."""

    async def run(self, cluster: ClusterClient, job: Job) -> Report:  # noqa: ARG002 - for those that can
        """Run a job and return its report.

        Raises:
            InvalidArgument: there is no session.
        """
        raise self._make_error()

    def open_snapshot(self, cluster: ClusterClient, job: Job) -> AbstractAsyncContextManager[Snapshot]:  # noqa: ARG002 - likewise
        """Have the workers read the rows of a sync, which this process compares and sends.

        Raises:
            InvalidArgument: there is no session.
        """
        raise self._make_error()

    def _make_error(self) -> InvalidArgument:
        return InvalidArgument("cluster", "needs the users or products of a session, such as session.account(id)")
