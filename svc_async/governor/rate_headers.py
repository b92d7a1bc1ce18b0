"""What an answer says about rate limits: its headers, read with mistrust."""

from collections.abc import Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TypeAlias

import attrs

__all__ = ["SECOND", "Told", "heard"]

SECOND = 1_000_000
"""Ticks of a second. Windows count in whole microseconds: sums of floats round, and a rounded comparison can hang."""

# Unspecified: a reset farther away than a day is a mistake (milliseconds, say), not a limit to wait for.
_DAY = 86_400
_MOST_DIGITS = 12


@attrs.frozen(kw_only=True)
class Told:
    """The readable part of the rate headers of one answer.

    Attributes:
        limit: requests in a window.
        remaining: requests left in this window.
        reset: the Unix second in which the window ends; it tells one window from the next.
        reset_at: the tick at which that second is over, by our clock; it may lie in the past.
        retry_at: the tick at which `retry-after` is over.
    """

    limit: int | None = None
    remaining: int | None = None
    reset: int | None = None
    reset_at: int | None = None
    retry_at: int | None = None


_Names: TypeAlias = tuple[str, str, str]
_Numbers: TypeAlias = tuple[int | None, int | None, int | None]

_NOTHING = Told()
_NO_NUMBERS: _Numbers = (None, None, None)
_USER: _Names = ("x-rate-limit-limit", "x-rate-limit-remaining", "x-rate-limit-reset")
_ACCOUNT: _Names = ("x-account-rate-limit-limit", "x-account-rate-limit-remaining", "x-account-rate-limit-reset")
_READ = (_ACCOUNT, _USER)
_WRITE = (_USER, _ACCOUNT)


def heard(headers: Mapping[str, str], *, now: int, wall: Callable[[], float], read: bool) -> Told:
    """Read the rate headers of an answer; what is absent or malformed is None.

    Args:
        headers: the answer's headers, with names in lower case.
        now: the tick at which it arrived.
        wall: gives the Unix time; it is asked only if a header needs it.
        read: the request was a read, where the headers of the account win over those of the user.
    """
    limit, remaining, reset = _most_telling(headers, _READ if read else _WRITE)
    retry_after = headers.get("retry-after")
    if limit is None and reset is None and retry_after is None:
        return _NOTHING
    unix = wall()
    if reset is not None and reset > unix + _DAY:
        reset = None
    return Told(
        limit=limit,
        remaining=remaining,
        reset=reset,
        # Unspecified: whether the second is rounded up or down; waiting until it is over is right in both cases.
        reset_at=None if reset is None else now + round((reset + 1 - unix) * SECOND),
        retry_at=None if retry_after is None else _after(retry_after.strip(), now, unix),
    )


def _most_telling(headers: Mapping[str, str], kinds: tuple[_Names, _Names]) -> _Numbers:
    first = _numbers(headers, kinds[0])
    if first[1] is not None and first[2] is not None:
        return first
    second = _numbers(headers, kinds[1])
    return second if second != _NO_NUMBERS else first


def _numbers(headers: Mapping[str, str], names: _Names) -> _Numbers:
    limit, remaining, reset = names
    return _number(headers.get(limit)) or None, _number(headers.get(remaining)), _number(headers.get(reset))


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def _after(text: str, now: int, wall: float) -> int | None:
    number = _number(text)
    seconds = _seconds_until(text, wall) if number is None else number
    return now + round(seconds * SECOND) if seconds is not None and 0 < seconds <= _DAY else None


def _seconds_until(date: str, wall: float) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - wall
