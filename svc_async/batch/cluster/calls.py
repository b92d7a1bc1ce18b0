"""Calls that are to run on a cluster, as values, and what runs them."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Literal, NotRequired, Protocol, TypedDict

import attrs

from svc_async.batch.report import Report
from svc_async.batch.settings import BatchSettings, Observers, Reading
from svc_async.batch.sync.snapshot import Snapshot
from svc_async.errors import InvalidArgument

__all__ = ["ClusterCall", "ClusterClient", "ClusterRunner", "ClusterSource", "ListIds", "NoCluster"]


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
class ClusterSource:
    """A source that the workers of a cluster read.

    Attributes:
        client: the connection to the cluster.
        ids: the list that its rows go to.
        source: the path, pattern or URL of files that every worker can read.
        parameter: the argument that gives the source, for messages.
        reading: how users are read.
        observers: functions that are called as the job proceeds.
    """

    client: ClusterClient
    ids: ListIds
    source: object
    parameter: str = "members"
    reading: Reading = attrs.field(factory=Reading)
    observers: Observers

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


@attrs.frozen(kw_only=True)
class ClusterCall(ClusterSource):
    """A call of `upload` or one of its kin that is to run on a cluster.

    The journal is one of the shared state. The session is one of `from_env` or `from_profile`: the workers have the
    same variables or the same profile, so that no credentials are sent to them.

    Attributes:
        shards: into how many parts a new job is divided; None leaves it to the rows.
        operation: `Update` or `Delete`.
        settings: how rows are sent.
        times: when users become and cease to be members, as far as that was given.
        journal: names the job in the shared state.
    """

    shards: int | None
    operation: str
    settings: BatchSettings
    times: Mapping[str, datetime] = attrs.field(factory=dict[str, datetime])
    journal: object


class ClusterRunner(Protocol):
    """Runs the jobs of a list on clusters."""

    async def run(self, call: ClusterCall) -> Report:
        """Run a job and return its report."""
        ...

    def open_snapshot(self, source: ClusterSource) -> AbstractAsyncContextManager[Snapshot]:
        """Have the workers read the rows for a sync, which this process compares and sends."""
        ...


class NoCluster:
    """Refuses jobs on clusters: there is no session that says how workers are reached."""

    async def run(self, call: ClusterCall) -> Report:  # noqa: ARG002 - as declared
        """Refuse.

        Raises:
            InvalidArgument: always.
        """
        raise self._make_error()

    def open_snapshot(self, source: ClusterSource) -> AbstractAsyncContextManager[Snapshot]:  # noqa: ARG002 - likewise
        """Refuse.

        Raises:
            InvalidArgument: always.
        """
        raise self._make_error()

    def _make_error(self) -> InvalidArgument:
        return InvalidArgument("cluster", "needs the users or products of a session, such as session.account(id)")
