"""The settings of a batch job with their defaults, stated once; its observers; and a job that runs on a cluster."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Literal, NotRequired, Protocol, TypedDict, get_args

import attrs

from svc_async.batch.report import Failure, Progress, Receipt, Report
from svc_async.errors import InvalidArgument
from svc_async.users.encoding import SLICE_ROWS, BadIdentifiers

__all__ = [
    "DEFAULTS",
    "BatchSettings",
    "ClusterCall",
    "ClusterClient",
    "JobSizes",
    "ListIds",
    "Observers",
    "Ordering",
    "Reading",
    "RunOnCluster",
    "refuse_cluster",
]

Ordering = Literal["key", "none"]

_MOST_REQUESTS = 1_000
"""Each lane takes memory, and the limits of the service allow a few dozen at a time."""


def _is_whole(number: float) -> bool:
    return isinstance(number, int)


@attrs.frozen(kw_only=True)
class BatchSettings:
    """How a batch job sends its rows.

    Attributes:
        concurrency: the most requests in flight, up to 1,000. There are fewer where the rate limit admits no more, or
            where fewer make fuller requests (`count_lanes`). A job that is resumed keeps the number of its lanes.
        users_per_operation: how many users share an operation; with 1, a refusal names the row at once.
        ordering: `key` applies rows of one key in input order. `none` skips per-key ordering and coalescing; only for
            input without repeated keys, where a request in doubt is resent at once.
        quarantine: seconds for which the rows of a lane wait after a request of unknown outcome.
        retry_delays: seconds before each repeat of a request; when they are used up, its rows fail.

    Raises:
        InvalidArgument: a setting breaks its rule.
    """

    concurrency: int = 32
    users_per_operation: int = 25
    ordering: Ordering = "key"
    quarantine: float = 120.0
    retry_delays: tuple[float, ...] = attrs.field(default=(0, 60, 300), converter=tuple[float, ...])

    def __attrs_post_init__(self) -> None:
        if self.ordering not in get_args(Ordering):
            raise InvalidArgument("ordering", f"must be one of {', '.join(get_args(Ordering))}")
        if not (_is_whole(self.concurrency) and 1 <= self.concurrency <= _MOST_REQUESTS):
            raise InvalidArgument("concurrency", f"must be a whole number from 1 to {_MOST_REQUESTS:,}")
        if not (_is_whole(self.users_per_operation) and self.users_per_operation >= 1):
            raise InvalidArgument("users_per_operation", "must be a whole number of at least 1")
        if not 0 <= self.quarantine < inf:
            raise InvalidArgument("quarantine", "must be at least 0 seconds")
        if not all(0 <= delay < inf for delay in self.retry_delays):
            raise InvalidArgument("retry_delays", "must be seconds of at least 0")

    @property
    def ordered(self) -> bool:
        """Whether rows of one key keep their order; if not, no key may occur twice."""
        return self.ordering == "key"


DEFAULTS = BatchSettings()


@attrs.frozen(kw_only=True)
class JobSizes:
    """The amounts in which a job works; smaller ones let a test see a long job in few rows.

    Attributes:
        slice_rows: rows that are read and encoded between two turns of the event loop.
        partition_rows: rows that are collected before they are distributed over the lanes.
        repeats: repeated requests that a job may send in a row; each accepted request earns one back.
    """

    slice_rows: int = SLICE_ROWS
    partition_rows: int = 8_192
    repeats: int = 100


@attrs.frozen(kw_only=True)
class Observers:
    """Functions that a job calls as it proceeds.

    Attributes:
        progress: called with how far the job is.
        on_receipt: called with each request that settled rows.
        on_failure: called with each row that failed; the report keeps only the first 10,000.
    """

    progress: Callable[[Progress], object] | None = None
    on_receipt: Callable[[Receipt], object] | None = None
    on_failure: Callable[[Failure], object] | None = None


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


@attrs.frozen
class Reading:
    """How users are read.

    Attributes:
        phone_region: the region of national phone numbers.
        bad_identifiers: whether a row with an invalid identifier fails, or is sent with its other identifiers.
    """

    phone_region: str | None = None
    bad_identifiers: BadIdentifiers = "fail"


@attrs.frozen(kw_only=True)
class ClusterCall:
    """A call of `upload` or one of its kin that is to run on a cluster.

    The source is the path, pattern or URL of files that every worker can read. The journal is one of the shared state.
    The session is one of `from_env` or `from_profile`: the workers have the same variables or the same profile, so that
    no credentials are sent to them.

    Attributes:
        client: the connection to the cluster.
        shards: into how many parts a new job is divided; None leaves it to the rows.
        ids: the list.
        operation: `Update` or `Delete`.
        source: where the rows come from.
        parameter: the argument that gives the source, for messages.
        settings: how rows are sent.
        reading: how users are read.
        times: when users become and cease to be members, as far as that was given.
        journal: names the job in the shared state.
        observers: functions that are called as the job proceeds.
    """

    client: ClusterClient
    shards: int | None
    ids: ListIds
    operation: str
    source: object
    parameter: str = "members"
    settings: BatchSettings
    reading: Reading = Reading()
    times: Mapping[str, datetime] = attrs.field(factory=dict[str, datetime])
    journal: object
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


RunOnCluster = Callable[[ClusterCall], Awaitable[Report]]
"""Runs a job on a cluster."""


async def refuse_cluster(_: ClusterCall) -> Report:
    """Refuse a job on a cluster: there is no session that workers could open.

    Raises:
        InvalidArgument: always.
    """
    raise InvalidArgument("cluster", "needs the users or products of a session, such as session.account(id)")
