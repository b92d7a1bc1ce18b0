"""What a process asks of a shared count, and what it is granted; all times are microseconds, as ticks are."""

from collections.abc import Sequence
from uuid import UUID

import attrs

__all__ = ["Lease", "LeaseReport", "LeaseRequest", "SharedLimit"]


@attrs.frozen(kw_only=True)
class SharedLimit:
    """The limit that a bucket counts, as the process that asks first knows it.

    Attributes:
        bucket: identifies the bucket in all processes, and names nobody.
        name: the limit's name.
        limit: requests per period; None if it is to be learned.
        period: its length.
        headroom: the share of the limit that is used, in millionths.
        documented: the reference states the limit.
    """

    bucket: UUID
    name: str
    limit: int | None
    period: int
    headroom: int = 1_000_000
    documented: bool = True


@attrs.frozen(kw_only=True)
class LeaseReport:
    """What became of the requests of one process since it last asked.

    Every number is either a state or a total, so that a report whose confirmation was lost may be repeated.

    Attributes:
        outstanding: requests that were granted and are not in `answered`: unanswered, or a lease that is not used yet.
        answered: requests answered since the process has begun to count this bucket.
        ages: how long ago the latest of these were answered, the newest first.
        counts: how many at each of these ages; they reach back at least to the last confirmed report.
        generation: the generation of the grants of which `succeeded` counts the successes.
        succeeded: successes since the last confirmed report.
        silent: answers without a rate-limit header since then.
        retires_guess: one of them was a success.
        limit: the limit that the service last stated.
        remaining: what it reported as remaining.
        reset: the Unix second in which the window of that report ends.
        reset_in: how long it is until that second is over.
        refused: the newest generation of a grant that was refused for its rate; None if none was.
        closed_for: how long no request may go after a refusal; None if the service stated nothing.
        jitter: what is added to the closure.
    """

    outstanding: int = 0
    answered: int = 0
    ages: Sequence[int] = ()
    counts: Sequence[int] = ()
    generation: int = 0
    succeeded: int = 0
    silent: int = 0
    retires_guess: bool = False
    limit: int | None = None
    remaining: int | None = None
    reset: int | None = None
    reset_in: int | None = None
    refused: int | None = None
    closed_for: int | None = None
    jitter: int = 0


@attrs.frozen(kw_only=True)
class LeaseRequest:
    """What one process wants of one bucket, with its report.

    Attributes:
        limit: the limit of the bucket.
        process: identifies the process.
        interactive: how many more interactive requests it could send now.
        bulk: how many more bulk requests.
        report: what became of the earlier ones.
    """

    limit: SharedLimit
    process: UUID
    interactive: int = 0
    bulk: int = 0
    report: LeaseReport = LeaseReport()


@attrs.frozen(kw_only=True)
class Lease:
    """What a process may send, and what is known of the bucket.

    Attributes:
        granted: how many requests it may send, within a second.
        ask_in: when to ask for the rest; None if there is no rest.
        opens_in: how long no process can be granted a request.
        closed_for: how long the bucket is closed after a 429.
        firm_for: how long an answer, and not only a guessed limit, forbids every request.
        generation: how many refusals there were; to be reported with a success.
        allowed: how many requests all processes together may have in flight after a refusal; None if any number.
        limit: requests per period; None while it is unknown.
        period: its length.
        is_guess: neither the reference nor a header states the limit.
        remaining: what the service reported as remaining; None if that is over.
        used: what the service may count, of all processes.
        processes: how many processes have used the bucket within the last period, this one included.
    """

    granted: int
    ask_in: int | None
    opens_in: int
    closed_for: int
    firm_for: int
    generation: int
    allowed: int | None
    limit: int | None
    period: int
    is_guess: bool
    remaining: int | None
    used: int
    processes: int
