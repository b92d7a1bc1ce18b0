"""Rate-limit headers, parsed defensively."""

from email.utils import format_datetime

import pytest

from svc_async.governor.rate_headers import RateLimitHeaders
from svc_async.governor.ticks import SECOND
from tests.support.clock import EPOCH
from tests.support.rate_limits import rate_limit_headers

WALL = EPOCH.timestamp()
NOW = 5_000_000


def parse(headers: dict[str, str], *, is_read: bool = True) -> RateLimitHeaders:
    return RateLimitHeaders.parse(headers, now=NOW, wall=lambda: EPOCH, is_read=is_read)


def test_a_reset_is_over_when_its_second_is() -> None:
    answer = parse(dict(rate_limit_headers(100, 7, 30)))
    assert (answer.limit, answer.remaining) == (100, 7)
    assert answer.reset_at == NOW + 31 * SECOND


@pytest.mark.parametrize("is_read", [True, False])
def test_account_headers_win_on_reads(is_read: bool) -> None:
    both = {**rate_limit_headers(100, 7, 30), **rate_limit_headers(900, 3, 60, account=True)}
    assert parse(both, is_read=is_read).remaining == (3 if is_read else 7)


def test_malformed_account_headers_yield_to_the_users() -> None:
    both = {**rate_limit_headers(100, 7, 30), **rate_limit_headers(900, "many", 60, account=True)}
    assert parse(both).remaining == 7


@pytest.mark.parametrize("value", ["", "-1", "many", "1.5", "9" * 5_000, "١٢", "0x10", "1e3", "None"])
def test_malformed_headers_are_ignored(value: str) -> None:
    headers = {**rate_limit_headers(value, value, value), "retry-after": value}
    answer = parse(headers)
    assert answer == RateLimitHeaders()


def test_absent_headers_say_nothing() -> None:
    assert parse({}) == RateLimitHeaders()


def test_a_limit_of_zero_is_no_limit() -> None:
    assert parse(dict(rate_limit_headers(0, 0, 30))).limit is None


def test_reset_in_milliseconds_is_ignored() -> None:
    assert parse(dict(rate_limit_headers(100, 7, str(int(WALL * 1_000))))).reset_at is None


def test_reset_in_the_past_is_kept() -> None:
    reset_at = parse(dict(rate_limit_headers(100, 0, -30))).reset_at
    assert reset_at is not None
    assert reset_at < NOW


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("12", 12), (" 12 ", 12), (format_datetime(EPOCH.replace(minute=2), usegmt=True), 120), ("0", None), ("-5", None)],
)
def test_retry_after_in_seconds_or_as_a_date(value: str, seconds: int | None) -> None:
    expected = None if seconds is None else NOW + seconds * SECOND
    assert parse({"retry-after": value}).retry_at == expected
