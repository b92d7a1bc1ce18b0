"""What became of every row: failures by position, receipts by request, totals that must add up.

    read = accepted + coalesced + failed + pending

A position counts the rows of the input from 0. Nothing here contains a value of a row but the id of a product.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import attrs

from svc_async.errors import BatchError, Sent
from svc_async.wire.envelope import CallAnswer

__all__ = [
    "KEPT_FAILURES",
    "Accounting",
    "Failure",
    "JobPhase",
    "Progress",
    "Receipt",
    "Report",
    "Totals",
    "first_failures",
]

_SUMMED = (
    *("read", "accepted", "coalesced", "failed", "pending", "requests", "in_flight", "in_doubt"),
    *("waiting", "rate_limited", "seconds"),
)
_OF_FIRST = ("resend_in", "resend_after", "attempts")

KEPT_FAILURES = 10_000
"""Failures that a report lists; `on_failure` is called with all of them, so that memory stays flat."""

JobPhase = Literal[
    "checking",
    "planning",
    "reading",
    "comparing",
    "recording",
    "encoding",
    "exchanging",
    "sending",
    "waiting",
    "settling",
]
"""What a job does. Every job checks its source, sends, and waits if it must; a resumed one first reads what was read. A
sync compares its source with the state, and records and settles it. On a cluster, rows are encoded and exchanged."""


@attrs.frozen
class Failure:
    """A row that was not accepted, and that the job sends no more.

    Attributes:
        position: the row, counted from 0.
        reason: the rule that it breaks, after the attribute that it is about; or the service's message.
        code: `INVALID_ROW`, `TOO_LARGE` (not sent), `GAVE_UP` (`retry_delays` used up), else the service's code.
        attribute: the field that the reason is about, if any.
        file: the file of the row, on a cluster; the position is its line, or its row in a Parquet file, from 1.
        id: the first 100 characters of the `id` of a product, if it can be read; else None.
    """

    position: int
    reason: str
    code: str
    attribute: str | None = None
    file: str | None = None
    id: str | None = None

    @classmethod
    def too_large(cls, position: int) -> "Failure":
        """Return the failure of a row that no request can hold."""
        return cls(position, "must fit into one request", "TOO_LARGE")


@attrs.frozen(kw_only=True)
class Receipt:
    """One request whose answer settled rows.

    Attributes:
        rows: how many rows it settled.
        accepted: how many of them were accepted.
        failures: the others.
        request_id: the server-assigned request id, if any.
        attempts: how many times the request was sent.
        positions: the positions of the accepted rows.
        settled: the positions of all its rows.
        answer: the answer of success that it was read from; None if the service refused the request.
    """

    rows: int
    accepted: int
    failures: Sequence[Failure] = ()
    request_id: str | None = None
    attempts: int = 1
    positions: Sequence[int] = attrs.field(default=(), repr=False)
    settled: Sequence[int] = attrs.field(default=(), repr=False)
    answer: CallAnswer | None = attrs.field(default=None, eq=False, repr=False)

    @property
    def first(self) -> int:
        """The lowest position among its rows."""
        return min(self.settled)

    @property
    def last(self) -> int:
        """The highest position among its rows; the ranges of requests overlap."""
        return max(self.settled)


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
        waiting: requests that wait to be sent again.
        resend_in: seconds until the first of them is sent again; without any, until a quarantine is over after which
            the job continues. None if nothing waits.
        resend_after: the failure after which it is sent again, such as `HTTP 503`; None if an earlier run has sent it.
        attempts: how many attempts to send it failed in this run.
        rate_limited: how many answers were 429.
        seconds: since the job began.
        phase: what the job does.
        phase_done: how much of the phase is done: rows, pages of a state or fragments of a source.
        phase_total: out of how many; None while that is not known.
    """

    read: int = 0
    accepted: int = 0
    coalesced: int = 0
    failed: int = 0
    pending: int = 0
    requests: int = 0
    in_flight: int = 0
    in_doubt: int = 0
    waiting: int = 0
    resend_in: float | None = None
    resend_after: str | None = None
    attempts: int = 0
    rate_limited: int = 0
    seconds: float = 0.0
    phase: JobPhase | None = None
    phase_done: int = 0
    phase_total: int | None = None

    @property
    def rows_per_second(self) -> float:
        """Settled rows per second since the job began."""
        return (self.accepted + self.coalesced + self.failed) / self.seconds if self.seconds else 0.0

    def __add__(self, other: "Progress") -> "Progress":
        """Return the progress of two parts of a job, one of which ran after the other."""
        first = min(self, other, key=lambda part: float("inf") if part.resend_in is None else part.resend_in)
        return attrs.evolve(
            other,
            **{name: getattr(self, name) + getattr(other, name) for name in _SUMMED},
            **{name: getattr(first, name) for name in _OF_FIRST},
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
    failures: Sequence[Failure] = attrs.field(default=(), repr=False)

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
            failures=first_failures(failures),
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
            failures=first_failures((*self.failures, *other.failures)),
        )

    def find_sent(self) -> Sent:
        """Return whether requests were sent, for an error about this report."""
        sent = Sent.MAYBE if self.in_doubt else Sent.YES
        return sent if self.requests else Sent.NO

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
            message = f"rows: {self.read} read, {self.failed} failed, {self.pending} pending"
            raise BatchError(message, report=self, sent=self.find_sent())

    def to_dict(self) -> dict[str, Any]:
        """Return the report as values that JSON can represent."""
        return {**self.counts, "failures": [attrs.asdict(failure) for failure in self.failures]}

    def to_json(self) -> str:
        """Return `to_dict()` as JSON in ASCII."""
        return json.dumps(self.to_dict())

    def as_dict(self) -> Mapping[str, Any]:
        """Return `to_dict()`."""
        return self.to_dict()

    def _repr_html_(self) -> str:
        """Return a table of the counts, for notebooks."""
        from svc_async.notebook import render_fields  # noqa: PLC0415 - only notebooks need it

        return render_fields("Complete" if self.complete else "Not complete", self.counts)

    @property
    def counts(self) -> Mapping[str, int]:
        """The counts by their names, without the failures."""
        return {field.name: getattr(self, field.name) for field in attrs.fields(Report) if field.name != "failures"}


@attrs.frozen(kw_only=True)
class Totals:
    """What earlier runs of a job settled."""

    accepted: int = 0
    coalesced: int = 0
    failed: int = 0
    requests: int = 0
    failures: Sequence[Failure] = ()

    @property
    def settled(self) -> int:
        """How many rows are settled."""
        return self.accepted + self.coalesced + self.failed


@attrs.define
class Accounting:
    """The running totals of a job."""

    read: int = 0
    accepted: int = 0
    coalesced: int = 0
    failed: int = 0
    requests: int = 0
    rate_limited: int = 0
    partly_valid: int = 0
    failures: list[Failure] = attrs.field(factory=list, init=False)
    unread: int = attrs.field(default=0, init=False)
    """Rows that earlier runs read and did not settle, and that this one has not read yet."""
    in_doubt: int = attrs.field(default=0, init=False)
    """How many of these were sent without a conclusive answer."""

    def resume(self, totals: Totals, *, read: int = 0, in_doubt: int = 0) -> None:
        """Begin with what earlier runs settled.

        Args:
            totals: what they settled.
            read: how many rows they read.
            in_doubt: how many of these were sent without a conclusive answer.
        """
        self.read, self.failed = max(read, totals.settled), totals.failed
        self.accepted, self.coalesced, self.requests = totals.accepted, totals.coalesced, totals.requests
        self.failures = list(totals.failures)
        self.unread, self.in_doubt = self.read - totals.settled, in_doubt

    def resend(self, rows: int, *, superseded: int, in_doubt: bool) -> None:
        """Count the rows of a batch that an earlier run left unsettled, and that a lane has now."""
        self.unread -= rows + superseded
        self.coalesced += superseded
        self.in_doubt -= rows if in_doubt else 0

    def read_rows(self, count: int, *, again: int = 0, invalid_again: int = 0) -> None:
        """Count rows that were read, some again after an earlier run; `fail` counts the invalid ones of these anew."""
        self.read += count - again
        self.unread -= again - invalid_again
        self.failed -= invalid_again

    def settle(self, receipt: Receipt) -> None:
        """Count the rows of a request."""
        self.accepted += receipt.accepted
        self.fail(receipt.failures)

    def fail(self, failures: Sequence[Failure]) -> None:
        """Count rows that failed, and keep them for the report while there is room."""
        self.failed += len(failures)
        self.failures.extend(failures[: KEPT_FAILURES - len(self.failures)])

    def progress(
        self,
        *,
        pending: int,
        in_flight: int,
        in_doubt: int,
        seconds: float,
        phase: JobPhase = "sending",
    ) -> Progress:
        """Return how far the job is.

        Raises:
            RuntimeError: the rows do not add up.
        """
        pending += self.unread
        self._check(pending)
        return Progress(
            read=self.read,
            accepted=self.accepted,
            coalesced=self.coalesced,
            failed=self.failed,
            pending=pending,
            requests=self.requests,
            in_flight=in_flight,
            in_doubt=in_doubt + self.in_doubt,
            rate_limited=self.rate_limited,
            seconds=seconds,
            phase=phase,
        )

    def report(self, *, pending: int, in_doubt: int) -> Report:
        """Return what became of the rows.

        Raises:
            RuntimeError: they do not add up.
        """
        pending += self.unread
        self._check(pending)
        return Report(
            read=self.read,
            accepted=self.accepted,
            coalesced=self.coalesced,
            failed=self.failed,
            pending=pending,
            in_doubt=in_doubt + self.in_doubt,
            requests=self.requests,
            partly_valid=self.partly_valid,
            failures=tuple(sorted(self.failures, key=lambda failure: failure.position)),
        )

    def _check(self, pending: int) -> None:
        settled = self.accepted + self.coalesced + self.failed
        if self.read != settled + pending:
            raise RuntimeError(f"rows do not add up: {self.read} read, {settled} settled, {pending} pending")


def first_failures(failures: Iterable[Failure]) -> Sequence[Failure]:
    """Return the failures that a report lists, by position."""
    return tuple(sorted(failures, key=lambda failure: (failure.file or "", failure.position))[:KEPT_FAILURES])
