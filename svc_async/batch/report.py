"""What became of every row: failures by position, receipts by request, totals that must add up.

    read = accepted + coalesced + failed + pending

A position counts the rows of the input from 0. Nothing here contains a value of a row.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from svc_async.errors import BatchError

__all__ = ["KEPT_FAILURES", "Failure", "Progress", "Receipt", "Report"]

KEPT_FAILURES = 10_000
"""Failures that a report lists; `on_failure` is called with all of them, so that memory stays flat."""


@attrs.frozen
class Failure:
    """A row that was not accepted and will not be.

    Attributes:
        position: the row, counted from 0.
        reason: the rule that it breaks, or the service's message.
        code: `INVALID_ROW` and `TOO_LARGE` (not sent), `GAVE_UP` (sent too often), else the service's code.
        attribute: the field that the reason is about, where it is about one.
    """

    position: int
    reason: str
    code: str
    attribute: str | None = None

    @classmethod
    def too_large(cls, position: int) -> "Failure":
        """Return the failure of a row that no request can hold."""
        return cls(position, "must fit into one request", "TOO_LARGE")


@attrs.frozen(kw_only=True)
class Receipt:
    """One request whose answer settled rows.

    Attributes:
        first: the lowest position among its rows.
        last: the highest; the ranges of requests overlap.
        rows: how many rows it settled.
        accepted: how many of them were accepted.
        failures: the others.
        request_id: the server-assigned request id, if any.
        attempts: how many times the request was sent.
        positions: the positions of the accepted rows.
    """

    first: int
    last: int
    rows: int
    accepted: int
    failures: Sequence[Failure] = ()
    request_id: str | None = None
    attempts: int = 1
    positions: Sequence[int] = attrs.field(default=(), repr=False)


@attrs.frozen(kw_only=True)
class Progress:
    """How far a job is.

    Attributes:
        read: rows read from the source.
        accepted: rows that the service confirmed.
        coalesced: rows left out because an equal one is in the same request.
        failed: rows that will not be accepted.
        pending: rows that were read and are not settled.
        requests: how many times a request was sent.
        in_flight: requests that are being sent or wait for the rate limit.
        in_doubt: pending rows that were sent without a conclusive answer.
        resend_in: seconds until the first of them are sent again; None while that is not known.
        rate_limited: how many answers were 429.
        seconds: since the job began.
    """

    read: int = 0
    accepted: int = 0
    coalesced: int = 0
    failed: int = 0
    pending: int = 0
    requests: int = 0
    in_flight: int = 0
    in_doubt: int = 0
    resend_in: float | None = None
    rate_limited: int = 0
    seconds: float = 0.0

    @property
    def rows_per_second(self) -> float:
        """Settled rows per second since the job began."""
        return (self.accepted + self.coalesced + self.failed) / self.seconds if self.seconds else 0.0

    def __add__(self, other: "Progress") -> "Progress":
        """Return the progress of two parts of a job, one of which ran after the other."""
        return Progress(
            read=self.read + other.read,
            accepted=self.accepted + other.accepted,
            coalesced=self.coalesced + other.coalesced,
            failed=self.failed + other.failed,
            pending=self.pending + other.pending,
            requests=self.requests + other.requests,
            in_flight=self.in_flight + other.in_flight,
            in_doubt=self.in_doubt + other.in_doubt,
            resend_in=min((each for each in (self.resend_in, other.resend_in) if each is not None), default=None),
            rate_limited=self.rate_limited + other.rate_limited,
            seconds=self.seconds + other.seconds,
        )


@attrs.frozen(kw_only=True)
class Report:
    """What became of the rows of a job.

    The result of a coalesced row is that of the equal row that was sent in its place.

    Attributes:
        read: rows read from the source; the sum of the next four.
        accepted: rows that the service confirmed.
        coalesced: rows left out because an equal one was in the same request.
        failed: rows that will not be accepted.
        pending: rows without a result, because the job ended early.
        in_doubt: pending rows that were sent and may have been applied.
        requests: how many times a request was sent.
        partly_valid: rows that have a valid identifier beside an invalid one: with `bad_identifiers="fail"` they are
            among the failed, and `"drop"` would send them; with `"drop"` they were sent without the invalid ones.
        failures: the first 10,000 failures, by position.
    """

    read: int = 0
    accepted: int = 0
    coalesced: int = 0
    failed: int = 0
    pending: int = 0
    in_doubt: int = 0
    requests: int = 0
    partly_valid: int = 0
    failures: Sequence[Failure] = ()

    @classmethod
    def from_progress(cls, progress: Progress, failures: Iterable[Failure] = ()) -> "Report":
        """Return the report of a job that was cut off, from the last progress that it announced."""
        return cls(
            read=progress.read,
            accepted=progress.accepted,
            coalesced=progress.coalesced,
            failed=progress.failed,
            pending=progress.pending,
            in_doubt=progress.in_doubt,
            requests=progress.requests,
            failures=_first_failures(failures),
        )

    def __add__(self, other: "Report") -> "Report":
        """Return the report of two parts of a job whose positions count the rows of the same input."""
        return Report(
            read=self.read + other.read,
            accepted=self.accepted + other.accepted,
            coalesced=self.coalesced + other.coalesced,
            failed=self.failed + other.failed,
            pending=self.pending + other.pending,
            in_doubt=self.in_doubt + other.in_doubt,
            requests=self.requests + other.requests,
            partly_valid=self.partly_valid + other.partly_valid,
            failures=_first_failures((*self.failures, *other.failures)),
        )

    @property
    def complete(self) -> bool:
        """Whether every row that was read is accepted or coalesced."""
        return not self.failed and not self.pending

    def raise_for_failures(self) -> None:
        """Verify that every row that was read is accepted or coalesced.

        Raises:
            BatchError: rows failed or are pending; it carries this report.
        """
        if not self.complete:
            raise BatchError(f"of {self.read} rows {self.failed} failed and {self.pending} are pending", report=self)

    def as_dict(self) -> Mapping[str, Any]:
        """Return plain values, ready for JSON."""
        return attrs.asdict(self)


def _first_failures(failures: Iterable[Failure]) -> Sequence[Failure]:
    return tuple(sorted(failures, key=lambda failure: failure.position)[:KEPT_FAILURES])
