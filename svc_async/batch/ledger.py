"""What a job records of its requests and rows: intents, settlements and the state of its lanes; no I/O."""

from array import array
from collections.abc import Callable, Sequence
from datetime import datetime

import attrs

from svc_async.batch.report import KEPT_FAILURES, Failure, Progress, Report

__all__ = ["Intent", "JournalCheckpoint", "LaneState", "Settlement", "Tally", "Totals"]


@attrs.frozen(kw_only=True)
class LaneState:
    """Which rows of some lanes are settled.

    Attributes:
        lanes: the lanes.
        settled_up_to: the position up to which their rows are settled, except the unsettled ones.
        unsettled: the positions up to there of rows that are not settled.
    """

    lanes: Sequence[int]
    settled_up_to: int
    unsettled: "array[int]"


@attrs.frozen(kw_only=True)
class Intent:
    """A batch that is about to be sent.

    Attributes:
        sender: the lane that sends it.
        after: the state of the lanes once it is settled.
        layout: users per operation and rows, for each block of operations.
        positions: the rows, in the order of the body.
        superseded: rows that are settled with it, without being sent.
        pinned: when the batch was built.
        sent_at: seconds since the epoch; None if it certainly had no effect.
        digest: the SHA-256 of the body, in hexadecimal digits.
    """

    sender: int
    after: LaneState
    layout: Sequence[tuple[int, int]]
    positions: "array[int]"
    superseded: "array[int]"
    pinned: datetime
    sent_at: float | None
    digest: str


@attrs.frozen(kw_only=True)
class Settlement:
    """What an answer settled.

    Attributes:
        sender: the lane that sent the request.
        after: the state of the lanes now.
        accepted: how many rows were accepted.
        coalesced: how many superseded rows were settled with them.
        failures: the rows that failed.
        in_doubt: the part of the batch that the answer does not mention.
    """

    sender: int
    after: LaneState
    accepted: int
    coalesced: int
    failures: Sequence[Failure]
    in_doubt: Intent | None = None


@attrs.frozen
class JournalCheckpoint:
    """How far a source was read.

    Attributes:
        rows: how many rows.
        digest: of their hashed contents.
        ended: whether there were no more.
        invalid_rows: how many rows break a rule.
    """

    rows: int = 0
    digest: str = ""
    ended: bool = False
    invalid_rows: int = attrs.field(default=0, eq=False)


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
class Tally:
    """The running totals of a job."""

    on_failure: Callable[[Failure], object] | None = None
    read: int = 0
    accepted: int = 0
    coalesced: int = 0
    failed: int = 0
    requests: int = 0
    rate_limited: int = 0
    _failures: list[Failure] = attrs.field(factory=list, init=False)

    def take_up(self, totals: Totals) -> None:
        """Begin with what earlier runs have settled; their failures are told again."""
        self.read = totals.settled
        self.accepted, self.coalesced, self.requests = totals.accepted, totals.coalesced, totals.requests
        self.fail(totals.failures)
        self.failed = totals.failed

    def fail(self, failures: Sequence[Failure]) -> None:
        """Count rows that failed, keep them for the report while there is room, and tell of each."""
        self.failed += len(failures)
        self._failures.extend(failures[: KEPT_FAILURES - len(self._failures)])
        if self.on_failure is not None:
            for failure in failures:
                self.on_failure(failure)

    def progress(self, *, pending: int, in_flight: int, in_doubt: int, seconds: float) -> Progress:
        """Say how far the job is; `pending` are the rows that it holds."""
        self._balance(pending)
        return Progress(
            read=self.read,
            accepted=self.accepted,
            coalesced=self.coalesced,
            failed=self.failed,
            pending=pending,
            requests=self.requests,
            in_flight=in_flight,
            in_doubt=in_doubt,
            rate_limited=self.rate_limited,
            seconds=seconds,
        )

    def report(self, *, pending: int, in_doubt: int) -> Report:
        """Close the books; `pending` are the rows that the job still holds."""
        self._balance(pending)
        return Report(
            read=self.read,
            accepted=self.accepted,
            coalesced=self.coalesced,
            failed=self.failed,
            pending=pending,
            in_doubt=in_doubt,
            requests=self.requests,
            failures=tuple(sorted(self._failures, key=lambda failure: failure.position)),
        )

    def _balance(self, pending: int) -> None:
        settled = self.accepted + self.coalesced + self.failed
        if self.read != settled + pending:
            raise RuntimeError(f"the books do not balance: {self.read} rows read, {settled} settled, {pending} pending")
