"""Records what a job does; no I/O.

A ledger records each request directly before it is sent (`intend`) and after its answer (`settle`). The plain `Ledger`
keeps nothing beyond the run; one that outlives the process extends it, and finds in `resume` what earlier runs left.
Every method may wait for a commit. When one raises, the job ends and nothing more is sent: a ledger that another
process has taken over raises in `intend`.

Records do not grow with the rows. A lane sends its rows nearly in order, so a record states up to which position the
rows of a lane are settled, and which rows up to there are not.

A process that is stopped, or that waits, cannot know whether another one has taken up its job meanwhile. It knows that
it had the job when its last commit was accepted. So where a job can be taken up elsewhere, a request goes out at most
ten seconds after that commit was begun, by a clock that goes on while the machine is suspended. It is checked directly
before the bytes are written; between the check and the first byte lie some microseconds of this process, in which it
may still be stopped. Who takes up the job waits that much longer before it repeats a request in doubt.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from types import TracebackType
from typing import ClassVar, Self

import attrs

from svc_async.batch.lane import Lane, Settle
from svc_async.batch.packing.batch import Batch, Layout
from svc_async.batch.packing.positions import Positions
from svc_async.batch.report import Accounting, Failure, Report
from svc_async.batch.source import RowSource
from svc_async.errors import SvcError

__all__ = [
    "GRACE",
    "LONGEST_WINDOW",
    "SENDABLE",
    "Intent",
    "Ledger",
    "NoLongerSendable",
    "Resumption",
    "check_sendable",
]

LONGEST_WINDOW = 900
"""Seconds for which it is kept how many requests were sent: no limit of the service counts longer."""
SENDABLE = 10.0
"""Seconds after the beginning of a commit for which requests may be sent."""
GRACE = SENDABLE + 1.0
"""Seconds after a job was taken up in which a request of the run before may still go out; clocks run differently."""


class NoLongerSendable(SvcError):
    """The request waited too long after its intent was committed; it was not sent, and is recorded anew."""

    repeatable = True


def check_sendable(committed_at: float, now: float) -> None:
    """Check that a request may still be sent after the last commit.

    Args:
        committed_at: when the last accepted commit was begun, by `read_boottime`.
        now: the present moment.

    Raises:
        NoLongerSendable: another process may have taken up the job meanwhile.
    """
    if not 0 <= now - committed_at < SENDABLE:
        raise NoLongerSendable(f"the request was not sent within {SENDABLE:g} s of its record; it is recorded anew")


@attrs.frozen(kw_only=True)
class Intent:
    """A batch that is about to be sent.

    Attributes:
        sender: the lane that sends it.
        lanes: the lanes whose rows it sends.
        settled_up_to: the position up to which the rows of these lanes are settled with it, except the unsettled ones.
        unsettled: the positions up to there of rows that are not settled even then.
        layout: the blocks of operations.
        positions: the rows, in the order of the body.
        superseded: rows that are settled with it, without being sent.
        pinned: when the batch was built.
        sent_at: when it had its turn at the rate limit, in seconds since the epoch; None if it certainly had no effect.
        digest: the SHA-256 of what the body is made of, in hexadecimal digits.
    """

    sender: int
    lanes: Sequence[int]
    settled_up_to: int
    unsettled: Positions
    layout: Layout
    positions: Positions
    superseded: Positions
    pinned: datetime
    sent_at: float | None
    digest: str


@attrs.frozen
class Resumption:
    """What is left to do.

    Attributes:
        source: the rows that are neither settled nor in an unsettled batch; to be read when these are settled.
        unsettled: the intents and the batches that earlier runs left, to be iterated over once; an iterator does not
            keep them in memory while the source is read.
        killed: whether the last run did not end in good order. It may have sent more than is known here, so nothing is
            sent before a whole quarantine is over.
        grace: seconds in which that run may still send a request, if it is not known to have ended.
        age: seconds that have certainly passed since the last request.
    """

    source: RowSource
    unsettled: Iterable[tuple[Intent, Batch]] = ()
    killed: bool = False
    grace: float = 0.0
    age: float = 0.0


@attrs.define(eq=False, slots=False)
class Ledger:
    """The ledger of one run, which is forgotten with it; a context manager for the time of the run.

    Attributes:
        lanes: how many lanes the rows are distributed over: those of a new job until the ledger is entered, which may
            find those of earlier runs.
        accounting: the totals; entering begins them with those of earlier runs.
        keyed: whether a row must always belong to the lane of its key, even if no order is kept.
        finished: the report, if nothing is left to do.
        sent_at: when earlier runs sent their last requests, as far as a limit of the service may still count them.
    """

    lanes: int = attrs.field(default=1, init=False)
    accounting: Accounting = attrs.field(factory=Accounting, init=False)
    finished: Report | None = attrs.field(default=None, init=False)
    sent_at: Sequence[datetime] = attrs.field(default=(), init=False)
    keyed: ClassVar[bool] = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of what the ledger is kept in."""

    async def resume(self, source: RowSource) -> Resumption:
        """Return what earlier runs left, even if that is nothing; nothing is sent before it returns.

        Raises:
            SvcError: the source is not the one of the earlier runs.
        """
        return Resumption(source)

    @property
    def in_transit(self) -> bool:
        """Whether rows that an earlier run left were read, and `arrive` was not called since.

        They count as left until then: nothing may be recorded between the packers' taking them and `arrive`.
        """
        return False

    def arrive(self) -> None:
        """Note that the packers hold all rows that were read."""

    async def intend(self, lane: Lane, packed: Iterable[Collection[int]], /) -> None:
        """Record that the first batch of a lane is about to be sent: it has its turn at the rate limit.

        Args:
            lane: the lane.
            packed: positions of rows that wait in the packers of the lane.
        """

    async def retract(self, lane: Lane, /) -> None:
        """Record that the batch which was intended last was not sent, as if it had not been intended."""

    def check_sendable(self) -> None:
        """Make sure, directly before a request is written, that nobody else can have taken up the job.

        Raises:
            NoLongerSendable: somebody can; the request is intended anew.
        """

    async def release(self, lane: Lane, /) -> None:
        """Record that a request which was sent certainly had no effect, so that nobody needs to wait for it."""

    async def settle(self, lane: Lane, settle: Settle, packed: Iterable[Collection[int]], /) -> None:
        """Record the result of rows; `packed` as for `intend`."""

    def fail(self, failures: Sequence[Failure], /) -> None:
        """Record rows that failed before they were sent."""
        self.accounting.fail(failures)

    async def finish(self, report: Report, /) -> None:
        """Record that nothing is left to do."""
