"""What became of the requests of one bucket in this process, until the shared count has taken it over; no I/O."""

from collections import deque

import attrs

from svc_async.governor.rate_headers import RateLimitHeaders
from svc_async.governor.ticks import SECOND
from svc_async.state.limits.lease import LeaseReport

__all__ = ["Usage"]

_CELLS = 60
_REPEATED = 2 * SECOND
"""Answers of this time are reported again: a crash of the database loses the leases that it was about to write."""


@attrs.define(eq=False)
class Usage:
    """Counts answers, and makes reports of them; a report that was lost is contained in the next.

    Attributes:
        period: ticks; older answers need not be reported.
        answered: how many requests were answered.
        cells: when those of the last period were answered, the oldest first, a few at a time.
        succeeded: successes since the last confirmed report.
        silent: answers without a usable header.
        retires_guess: a success had none.
        headers: the latest report of the service.
        refused: the newest generation of a grant that was refused.
        closed_until: the tick until which the service closed the bucket; 0 if it stated nothing.
        jitter: ticks on top.
    """

    period: int
    answered: int = 0
    cells: deque[list[int]] = attrs.field(factory=deque[list[int]], init=False)
    succeeded: int = attrs.field(default=0, init=False)
    silent: int = attrs.field(default=0, init=False)
    retires_guess: bool = attrs.field(default=False, init=False)
    headers: RateLimitHeaders | None = attrs.field(default=None, init=False)
    refused: int | None = attrs.field(default=None, init=False)
    closed_until: int = attrs.field(default=0, init=False)
    jitter: int = attrs.field(default=0, init=False)
    _confirmed: int = attrs.field(default=0, init=False)
    """How many answers the shared count has."""
    _newest_since: int = attrs.field(default=0, init=False)
    _lent: "tuple[int, Usage] | None" = attrs.field(default=None, init=False)

    def add_answer(self, cost: int, now: int, headers: RateLimitHeaders | None) -> None:
        """Count an answer."""
        self.answered += cost
        if self.cells and now < self._newest_since + self.period // _CELLS:
            self.cells[-1][0] = now
            self.cells[-1][1] += cost
        else:
            self.cells.append([now, cost])
            self._newest_since = now
        self._drop_old(now)
        if headers is None or headers.remaining is None or headers.reset is None:
            self.silent += cost
        if headers is not None:
            self._add_headers(headers)

    def add_refusal(self, generation: int, closed_until: int, jitter: int) -> None:
        """Note a 429 for a grant of a generation; `closed_until` is 0 if it says nothing."""
        self.refused = generation if self.refused is None else max(self.refused, generation)
        self.closed_until = max(self.closed_until, closed_until)
        self.jitter = max(self.jitter, jitter)

    def report(self, outstanding: int, generation: int, now: int) -> LeaseReport:
        """Return what is to be reported; `confirm` or `restore` must follow."""
        self._drop_old(now)
        headers = self.headers or RateLimitHeaders()
        answers = self._list_answers(now)
        report = LeaseReport(
            outstanding=outstanding,
            answered=self.answered,
            ages=[age for age, _ in answers],
            counts=[count for _, count in answers],
            generation=generation,
            succeeded=self.succeeded,
            silent=self.silent,
            retires_guess=self.retires_guess,
            limit=headers.limit,
            remaining=headers.remaining,
            reset=headers.reset,
            reset_in=None if headers.reset_at is None else max(0, headers.reset_at - now),
            refused=self.refused,
            closed_for=max(0, self.closed_until - now) or None,
            jitter=self.jitter,
        )
        self._lent = self.answered, self._move()
        return report

    @property
    def is_unreported(self) -> bool:
        """Whether the shared count may not have all answers."""
        return self.answered != self._confirmed

    def confirm(self) -> None:
        """Forget what was reported: the shared count has it."""
        if self._lent is None:
            return
        self._confirmed, self._lent = self._lent[0], None

    def restore(self) -> None:
        """Report again what may have been lost, whatever was confirmed: the database may have lost that, too."""
        self._confirmed = 0
        if self._lent is None:
            return
        lent, self._lent = self._lent[1], None
        self.succeeded += lent.succeeded
        self.silent += lent.silent
        self.retires_guess |= lent.retires_guess
        newer, self.headers = self.headers, lent.headers
        if newer is not None:
            self._add_headers(newer)
        if lent.refused is not None:
            self.add_refusal(lent.refused, lent.closed_until, lent.jitter)

    def _list_answers(self, now: int) -> list[tuple[int, int]]:
        """Return the ages and numbers of answers that the shared count may not have, the newest first."""
        answers = []
        left = self.answered - self._confirmed
        for time, count in reversed(self.cells):
            age = max(0, now - time)
            if left <= 0 and age > _REPEATED:
                break
            answers.append((age, count))
            left -= count
        return answers

    def _move(self) -> "Usage":
        """Return what is confirmed as a whole, and start it anew."""
        lent = Usage(self.period)
        for name in ("succeeded", "silent", "retires_guess", "headers", "refused", "closed_until", "jitter"):
            fresh = getattr(lent, name)
            setattr(lent, name, getattr(self, name))
            setattr(self, name, fresh)
        return lent

    def _add_headers(self, headers: RateLimitHeaders) -> None:
        """Keep the report of the latest window of the service; within one, `remaining` only falls."""
        known = self.headers
        if known is None or known.reset is None or known.remaining is None:
            self.headers = headers
        elif headers.reset is not None and headers.remaining is not None and headers.reset >= known.reset:
            lowest = min(headers.remaining, known.remaining) if headers.reset == known.reset else headers.remaining
            self.headers = attrs.evolve(headers, remaining=lowest)

    def _drop_old(self, now: int) -> None:
        while self.cells and self.cells[0][0] + self.period <= now:
            self.cells.popleft()
