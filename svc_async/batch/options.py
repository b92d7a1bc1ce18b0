"""The keywords of the methods that run jobs, with their meaning; their defaults are those of the settings."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypedDict

from svc_async.batch.job import StateLocation
from svc_async.batch.journal.journal import JournalPath
from svc_async.batch.plan import Plan
from svc_async.batch.report import Failure, Progress, Receipt
from svc_async.batch.settings import Ordering
from svc_async.users.encoding import BadIdentifiers

__all__ = [
    "AudienceSyncOptions",
    "ClusterOptions",
    "JobOptions",
    "JournalOptions",
    "ListStateOptions",
    "ReceiptOptions",
    "StreamOptions",
    "SyncOptions",
    "UploadOptions",
    "UserApplyOptions",
    "UserOptions",
    "UserStreamOptions",
    "UserUploadOptions",
]


class JobOptions(TypedDict, total=False):
    """The keywords of every job.

    An observer is a plain function, which should return quickly: it is called between the requests of the job, and not
    awaited. An exception in one ends the job; it is the cause of the BatchError.
    """

    concurrency: int
    """The most requests in flight, up to 1,000. There are fewer where the rate limit admits no more, or where fewer
    make fuller requests. A job that is resumed keeps the number of its lanes."""
    ordering: Ordering
    """`key` applies rows of one key in input order. `none` skips per-key ordering and coalescing; only for input
    without repeated keys, where a request in doubt is resent at once."""
    quarantine: float
    """Seconds for which the rows of a lane wait after a request of unknown outcome."""
    retry_delays: Sequence[float]
    """Seconds before each repeat of a request that was turned away, lost, or answered by a gateway or oddly. When they
    are used up and the service accepts nothing else, the job stops, and its rows are pending; otherwise only the rows
    of the request fail, with the code `GAVE_UP`. A 429 uses up none."""
    progress: Callable[[Progress], object] | None
    """Called with how far the job is."""
    on_failure: Callable[[Failure], object] | None
    """Called with each row that failed; the report keeps only the first 10,000."""


class UserOptions(TypedDict, total=False):
    """The keywords of jobs with users."""

    users_per_operation: int
    """How many users share an operation; with 1, a refusal names the row at once."""
    phone_region: str | None
    """The region of national phone numbers, such as `DE`; needs the extra `phone`."""
    bad_identifiers: BadIdentifiers
    """Whether a row with an identifier that breaks its rule fails (`fail`), or is sent with its other identifiers
    (`drop`); `Report.partly_valid` counts these rows."""


class JournalOptions(TypedDict, total=False):
    """The keyword of jobs that a journal makes resumable; a sync is resumed from its state."""

    journal: JournalPath | None
    """The path of the journal, or `state.journal(name)`. Repeat the call after a crash to resume; a finished job
    returns its report at once. The source must yield the same rows; a one-shot iterator is first spooled with the
    journal, users hashed."""


class ReceiptOptions(TypedDict, total=False):
    """The keyword of jobs that return a report; a stream yields the receipts."""

    on_receipt: Callable[[Receipt], object] | None
    """Called with each request that settled rows."""


class ClusterOptions(TypedDict, total=False):
    """The keyword of jobs that the workers of a cluster can do."""

    cluster: object
    """A `distributed.Client(..., asynchronous=True)` whose workers do the job, with a journal of the shared state. They
    read the source: the path, pattern or URL of files. Of a sync they only read it, with failures that have their file
    and row: this process compares and sends, with a `SharedState`, and sends nothing if a part cannot be read."""


class ListStateOptions(TypedDict, total=False):
    """The keyword of uploads to an audience, and removals from it, that has syncs."""

    state: StateLocation | None
    """The state of the syncs of this audience: the path of its file, or the `SharedState`. What is sent is noted there
    first, so that the next sync repairs it for everybody in its source; without it, the next sync knows nothing of it.
    A file belongs to one job at a time: while a sync runs, this one is refused. In a `SharedState` it ends the sync.
    Lists that cannot be synced refuse it."""


class StreamOptions(JobOptions, JournalOptions, total=False):
    """The keywords of `products.stream`."""


class UploadOptions(JobOptions, JournalOptions, ReceiptOptions, ClusterOptions, total=False):
    """The keywords of `products.upsert` and `products.delete`."""

    shards: int | None
    """Into how many parts a new job on a cluster is divided; by default, as its rows need."""


class SyncOptions(JobOptions, ReceiptOptions, ClusterOptions, total=False):
    """The keywords of `products.sync`."""

    dry_run: bool
    """Compare only; nothing is sent."""
    max_removal_share: float
    """The largest share of the rows on the list that may be removed; 1 for any."""
    on_plan: Callable[[Plan], object] | None
    """Called with the plan, before anything is sent."""
    on_removal_failure: Callable[[Failure], object] | None
    """Called with each removal that failed; its position counts the removals."""
    on_wait: Callable[[float], object] | None
    """Called with the seconds for which a part of the rows waits, because requests of an earlier run may still take
    effect."""


class UserStreamOptions(StreamOptions, UserOptions, total=False):
    """The keywords of `users.stream`."""


class UserApplyOptions(UserStreamOptions, ReceiptOptions, ListStateOptions, total=False):
    """The keywords of `users.apply`."""


class UserUploadOptions(UploadOptions, UserOptions, ListStateOptions, total=False):
    """The keywords of `users.upload` and `users.remove`."""


class AudienceSyncOptions(SyncOptions, UserOptions, total=False):
    """The keywords of `users.sync`."""

    refresh_within: timedelta
    """Rows that expire within this time are sent again."""
