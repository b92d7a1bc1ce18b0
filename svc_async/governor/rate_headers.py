"""Parses the rate-limit headers of answers, defensively: what is absent, malformed or implausible is None."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeAlias

import attrs

from svc_async.governor.ticks import SECOND
from svc_async.wire.envelope import parse_http_date, service_time

__all__ = ["RateLimitHeaders"]

# Unspecified: a reset more than a day ahead is a mistake (milliseconds, say), not a limit to wait for.
_DAY = 86_400
_MAX_DIGITS = 12

_Names: TypeAlias = tuple[str, str, str]
_Numbers: TypeAlias = tuple[int | None, int | None, int | None]

_NO_NUMBERS: _Numbers = (None, None, None)
_USER: _Names = ("x-rate-limit-limit", "x-rate-limit-remaining", "x-rate-limit-reset")
_ACCOUNT: _Names = ("x-account-rate-limit-limit", "x-account-rate-limit-remaining", "x-account-rate-limit-reset")
_READ = (_ACCOUNT, _USER)
_WRITE = (_USER, _ACCOUNT)


@attrs.frozen(kw_only=True)
class RateLimitHeaders:
    """The usable part of the rate-limit headers of one answer.

    Attributes:
        limit: requests per window.
        remaining: requests left in this window.
        reset: the Unix second in which the window ends; it distinguishes one window from the next.
        reset_at: the tick at which that second is over, measured against the answer's `Date`; it may be in the past.
        retry_at: the tick at which `retry-after` is over.
    """

    limit: int | None = None
    remaining: int | None = None
    reset: int | None = None
    reset_at: int | None = None
    retry_at: int | None = None

    @classmethod
    def parse(
        cls, headers: Mapping[str, str], *, now: int, wall: Callable[[], datetime], is_read: bool
    ) -> "RateLimitHeaders":
        """Parse the rate-limit headers of an answer.

        Args:
            headers: the answer's headers, with names in lower case.
            now: the tick at which it arrived.
            wall: returns our time, for an answer without `Date`; it is called only if a header needs it.
            is_read: whether the request was a read, where the account's headers take precedence over the user's.
        """
        limit, remaining, reset = _choose(headers, _READ if is_read else _WRITE)
        retry_after = headers.get("retry-after")
        if limit is None and reset is None and retry_after is None:
            return _NOTHING
        service_now = service_time(headers, wall())
        unix = service_now.timestamp()
        if reset is not None and reset > unix + _DAY:
            reset = None
        return cls(
            limit=limit,
            remaining=remaining,
            reset=reset,
            # Unspecified: whether the second is rounded up or down; waiting until it is over is right in both cases.
            reset_at=None if reset is None else now + round((reset + 1 - unix) * SECOND),
            retry_at=None if retry_after is None else _parse_retry_after(retry_after.strip(), now, service_now),
        )

    @property
    def is_silent(self) -> bool:
        """Whether they say nothing about a limit."""
        return self.limit is None and self.remaining is None and self.reset is None

    def bound(self, *, reset_at: int, retry_at: int) -> "RateLimitHeaders":
        """Return these headers with times that are not later than these ticks."""
        if (self.reset_at or 0) <= reset_at and (self.retry_at or 0) <= retry_at:
            return self
        return attrs.evolve(
            self,
            reset_at=self.reset_at and min(self.reset_at, reset_at),
            retry_at=self.retry_at and min(self.retry_at, retry_at),
        )

    @property
    def reopens_at(self) -> int:
        """The later of reset and retry-after; 0 if neither is known."""
        return max(self.reset_at or 0, self.retry_at or 0)


_NOTHING = RateLimitHeaders()


def _choose(headers: Mapping[str, str], kinds: tuple[_Names, _Names]) -> _Numbers:
    """Return the numbers of the preferred kind if they are complete, else those of the other kind, if it has any."""
    first = _parse_numbers(headers, kinds[0])
    if first[1] is not None and first[2] is not None:
        return first
    second = _parse_numbers(headers, kinds[1])
    return second if second != _NO_NUMBERS else first


def _parse_numbers(headers: Mapping[str, str], names: _Names) -> _Numbers:
    limit, remaining, reset = names
    return _parse_int(headers.get(limit)) or None, _parse_int(headers.get(remaining)), _parse_int(headers.get(reset))


def _parse_int(text: str | None) -> int | None:
    if text is None:
        return None
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None


def _parse_retry_after(text: str, now: int, service_now: datetime) -> int | None:
    number = _parse_int(text)
    date = parse_http_date(text) if number is None else None
    seconds = number if date is None else (date - service_now).total_seconds()
    return now + round(seconds * SECOND) if seconds is not None and 0 < seconds <= _DAY else None
