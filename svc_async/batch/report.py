"""How far a job is, and what became of every row: failures by position, receipts by request, counts that must add up.

A position counts the rows of the input from 0. Nothing here contains a value of a row but the id of a product.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self, TypeVar

import attrs

from svc_async.counts import Counts
from svc_async.errors import BatchError, Sent
from svc_async.wire.envelope import CallAnswer

__all__ = [
    "KEPT_FAILURES",
    "SLOTS",
    "SLOT_WIDTH",
    "Accounting",
    "Failure",
    "JobPhase",
    "Progress",
    "Receipt",
    "Report",
    "Timeline",
    "Wait",
    "first_failures",
    "widen_slots",
]

SLOTS = 512
SLOT_WIDTH = 0.0625
"""Seconds that a slot of a timeline covers at first."""
KEPT_FAILURES = 10_000
"""Failures that a report lists; `on_failure` is called with all of them, so that memory stays flat."""

T = TypeVar("T")

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
        code: `INVALID_ROW`, `TOO_LARGE`, `REPEATED_KEY` (not sent), `GAVE_UP` (`retry_delays` used up), else the
            service's code.
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
class Wait:
    """Requests that wait to be sent again; without any, a job that sends nothing until a quarantine is over.

    Attributes:
        until: when the first of them is sent again, or the job continues, by the monotonic clock of this process.
        requests: how many requests wait.
        after: the failure after which the first is sent again, such as `HTTP 503`; None if an earlier run has sent it.
        attempts: how many attempts to send the first failed in this run.
    """

    until: float
    requests: int = 0
    after: str | None = None
    attempts: int = 0

    @classmethod
    def merge(cls, waits: Iterable["Wait | None"]) -> "Wait | None":
        """Return the first wait that ends with a request, or else the first, with the requests of all of them."""
        known = [wait for wait in waits if wait is not None]
        first = min(known, key=lambda wait: (not wait.requests, wait.until), default=None)
        return first and attrs.evolve(first, requests=sum(wait.requests for wait in known))


@attrs.frozen(kw_only=True)
class Progress(Counts):
    """How far a job is.

    Attributes:
        in_flight: requests that are being sent or wait for the rate limit.
        rate_limited: how many answers were 429.
        seconds: since the job began.
        phase: what the job does.
        phase_done: how much of the phase is done: rows, pages of a state or fragments of a source.
        phase_total: out of how many; None while that is not known.
        wait: what the job waits for; None if nothing waits.
        at: when it was announced, by the monotonic clock of this process.
    """

    in_flight: int = 0
    rate_limited: int = 0
    seconds: float = 0.0
    phase: JobPhase | None = None
    phase_done: int = 0
    phase_total: int | None = None
    wait: Wait | None = None
    at: float = 0.0

    @property
    def waiting(self) -> int:
        """How many requests wait to be sent again."""
        return 0 if self.wait is None else self.wait.requests

    @property
    def resend_in(self) -> float | None:
        """Seconds until the first of them is sent again; without any, until a quarantine is over; None for no wait."""
        return None if self.wait is None else max(0.0, self.wait.until - self.at)

    @property
    def resend_after(self) -> str | None:
        """The failure after which it is sent again, such as `HTTP 503`; None if an earlier run has sent it."""
        return None if self.wait is None else self.wait.after

    @property
    def attempts(self) -> int:
        """How many attempts to send it failed in this run."""
        return 0 if self.wait is None else self.wait.attempts

    @property
    def rows_per_second(self) -> float:
        """Settled rows per second since the job began."""
        return self.settled / self.seconds if self.seconds else 0.0

    def __add__(self, other: Counts) -> Self:
        """Return the progress with more counts, or that of two parts of a job, one of which ran after the other."""
        total = super().__add__(other)
        if not isinstance(other, Progress):
            return total
        return attrs.evolve(
            total,
            in_flight=self.in_flight + other.in_flight,
            rate_limited=self.rate_limited + other.rate_limited,
            seconds=self.seconds + other.seconds,
            phase=other.phase,
            phase_done=other.phase_done,
            phase_total=other.phase_total,
            wait=Wait.merge([self.wait, other.wait]),
            at=other.at,
        )

    def count_down(self, now: float) -> Self:
        """Return the progress of a job that has announced nothing since, without a wait that is over.

        Args:
            now: the monotonic time.
        """
        return attrs.evolve(self, at=now, wait=self.wait if self.wait and self.wait.until > now else None)


@attrs.frozen(kw_only=True)
class Report(Counts):
    """What became of the rows of a job.

    The result of a coalesced row is that of the equal row that was sent in its place.

    Attributes:
        failures: the first 10,000 failures, by position.
    """

    failures: Sequence[Failure] = attrs.field(default=(), repr=False)

    @classmethod
    def from_progress(cls, progress: Progress, failures: Iterable[Failure] = ()) -> "Report":
        """Return the report of a job that was cut off, from the last progress that it announced."""
        return cls(failures=first_failures(failures)) + progress

    def __add__(self, other: Counts) -> Self:
        """Return the report with more counts, or that of two parts of a job; positions count rows of the same input."""
        more = other.failures if isinstance(other, Report) else ()
        return attrs.evolve(super().__add__(other), failures=first_failures((*self.failures, *more)))

    @property
    def total(self) -> Self:
        """The report itself: `SyncReport.total` is the sum of two."""
        return self

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


@attrs.define
class Accounting:
    """Counts the rows of a job.

    Attributes:
        counts: what is counted so far. Its pending rows are those that earlier runs left and this one has not read yet;
            the lanes know the others.
        rate_limited: how many answers were 429.
        failures: the first failures.
    """

    counts: Counts = attrs.field(factory=Counts)
    rate_limited: int = 0
    failures: list[Failure] = attrs.field(factory=list[Failure])

    def resend(self, rows: int, *, superseded: int, in_doubt: bool) -> None:
        """Count the rows of a batch that an earlier run left unsettled, and that a lane has now."""
        self.counts += Counts(pending=-rows - superseded, coalesced=superseded, in_doubt=-rows if in_doubt else 0)

    def settle(self, receipt: Receipt) -> None:
        """Count the rows of a request."""
        self.counts += Counts(accepted=receipt.accepted)
        self.fail(receipt.failures)

    def fail(self, failures: Sequence[Failure]) -> None:
        """Count rows that failed, and keep them for the report while there is room."""
        self.counts += Counts(failed=len(failures))
        self.failures.extend(failures[: KEPT_FAILURES - len(self.failures)])

    def total(self, *, pending: int, in_doubt: int) -> Counts:
        """Return the counts, with the rows that lanes have.

        Raises:
            RuntimeError: the rows do not add up.
        """
        total = self.counts + Counts(pending=pending, in_doubt=in_doubt)
        if not total.adds_up:
            raise RuntimeError(
                f"rows do not add up: {total.read} read, {total.settled} settled, {total.pending} pending"
            )
        return total

    def report(self, *, pending: int, in_doubt: int) -> Report:
        """Return what became of the rows.

        Raises:
            RuntimeError: they do not add up.
        """
        return Report(failures=first_failures(self.failures)) + self.total(pending=pending, in_doubt=in_doubt)


def first_failures(failures: Iterable[Failure]) -> Sequence[Failure]:
    """Return the failures that a report lists, by position."""
    return tuple(sorted(failures, key=lambda failure: (failure.file or "", failure.position))[:KEPT_FAILURES])


def widen_slots(slots: dict[int, T], width: float, *, seconds: float) -> tuple[dict[int, T], float]:
    """Return samples by slot, and the width of a slot, so that a moment falls into one of the slots.

    Args:
        slots: the samples by slot, in ascending order.
        width: the seconds that a slot covers.
        seconds: the moment.
    """
    while seconds >= SLOTS * width:
        slots, width = {slot // 2: sample for slot, sample in slots.items()}, width * 2
    return slots, width


@attrs.define
class Timeline:
    """Collects the progress of a job in a bounded number of samples.

    Time is divided into slots of equal width. Whenever a job outgrows the slots, their width doubles, and of two
    samples that then share a slot the later one is kept.
    """

    _slots: dict[int, Progress] = attrs.field(factory=dict[int, Progress], init=False)
    _width: float = attrs.field(default=SLOT_WIDTH, init=False)

    @property
    def samples(self) -> list[Progress]:
        """The samples, from the beginning to the last progress."""
        return [Progress(), *self._slots.values()]

    def add(self, progress: Progress) -> None:
        """Add a progress; of several in one slot the last is kept."""
        self._slots, self._width = widen_slots(self._slots, self._width, seconds=progress.seconds)
        self._slots[int(progress.seconds / self._width)] = progress
