"""Rate-limit headers, parsed defensively."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from email.utils import format_datetime

import pytest

from svc_async.governor.windows import SECOND, RateLimitHeaders
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


USER = rate_limit_headers(100, 7, 30)
ACCOUNT = rate_limit_headers(900, 3, 60, account=True)


@pytest.mark.parametrize(
    ("headers", "limit", "remaining", "seconds"),
    [
        (USER, 100, 7, 31),
        (ACCOUNT, 900, 3, 61),
        ({**USER, **rate_limit_headers(None, 3, 60, account=True)}, None, 3, 61),
        ({**USER, **rate_limit_headers(900, 3, None, account=True)}, 100, 7, 31),
        ({**USER, **rate_limit_headers(900, None, 60, account=True)}, 100, 7, 31),
        ({**rate_limit_headers(100), **rate_limit_headers(900, 3, account=True)}, 100, None, None),
        ({**rate_limit_headers(None, 7), **rate_limit_headers(900, 3, account=True)}, None, None, None),
        (rate_limit_headers(900, 3, None, account=True), 900, 3, None),
        (rate_limit_headers(900, None, 60, account=True), 900, None, 61),
        (rate_limit_headers(None, 7, 30), None, 7, 31),
        (rate_limit_headers(None, 7, None), None, None, None),
        (rate_limit_headers(None, 7, None, retry_after="5"), None, 7, None),
    ],
)
def test_the_numbers_of_one_kind_are_used_and_complete_ones_win(
    headers: Mapping[str, str], limit: int | None, remaining: int | None, seconds: int | None
) -> None:
    answer = parse(dict(headers))

    assert (answer.limit, answer.remaining) == (limit, remaining)
    assert answer.reset_at == (None if seconds is None else NOW + seconds * SECOND)


def test_the_clock_is_only_asked_if_a_header_needs_it() -> None:
    def fail() -> datetime:
        raise AssertionError

    silent = RateLimitHeaders.parse({"x-rate-limit-remaining": "7"}, now=NOW, wall=fail, is_read=True)

    assert silent == RateLimitHeaders()


@pytest.mark.parametrize(
    ("headers", "is_silent"),
    [
        (RateLimitHeaders(), True),
        (RateLimitHeaders(retry_at=NOW), True),
        (RateLimitHeaders(limit=1), False),
        (RateLimitHeaders(remaining=0), False),
        (RateLimitHeaders(reset=1), False),
    ],
)
def test_headers_without_numbers_are_silent(headers: RateLimitHeaders, is_silent: bool) -> None:
    assert headers.is_silent is is_silent


@pytest.mark.parametrize(
    ("reset_at", "retry_at", "bounded"),
    [
        (10, 20, (10, 20)),
        (11, 20, (10, 20)),
        (10, 21, (10, 20)),
        (11, 21, (10, 20)),
        (9, 30, (9, 20)),
        (30, 19, (10, 19)),
        (None, 21, (None, 20)),
        (11, None, (10, None)),
        (None, None, (None, None)),
    ],
)
def test_times_can_be_bounded(reset_at: int | None, retry_at: int | None, bounded: tuple[int | None, ...]) -> None:
    headers = RateLimitHeaders(limit=5, remaining=4, reset=3, reset_at=reset_at, retry_at=retry_at)

    found = headers.bound(reset_at=10, retry_at=20)

    assert found == RateLimitHeaders(limit=5, remaining=4, reset=3, reset_at=bounded[0], retry_at=bounded[1])
    assert found.reopens_at == max(at or 0 for at in bounded)


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


@pytest.mark.parametrize(("digits", "limit"), [("9" * 12, 10**12 - 1), ("1" + "0" * 12, None), ("1", 1)])
def test_a_number_has_at_most_twelve_digits(digits: str, limit: int | None) -> None:
    assert parse(dict(rate_limit_headers(digits))).limit == limit


@pytest.mark.parametrize(("seconds", "is_used"), [(86_399, True), (86_400, True), (86_401, False)])
def test_a_reset_is_at_most_a_day_ahead(seconds: int, is_used: bool) -> None:
    answer = parse(dict(rate_limit_headers(100, 7, seconds)))

    assert answer.reset == (WALL + seconds if is_used else None)
    assert answer.reset_at == (NOW + (seconds + 1) * SECOND if is_used else None)
    assert (answer.limit, answer.remaining) == (100, 7)


def test_reset_in_the_past_is_kept() -> None:
    reset_at = parse(dict(rate_limit_headers(100, 0, -30))).reset_at
    assert reset_at is not None
    assert reset_at < NOW


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("12", 12),
        (" 12 ", 12),
        ("1", 1),
        ("0", None),
        ("-5", None),
        ("86400", 86_400),
        ("86401", None),
        (format_datetime(EPOCH.replace(minute=2), usegmt=True), 120),
        (format_datetime(EPOCH, usegmt=True), None),
        (format_datetime(EPOCH + timedelta(days=1), usegmt=True), 86_400),
        (format_datetime(EPOCH + timedelta(days=1, seconds=1), usegmt=True), None),
        ("tomorrow", None),
    ],
)
def test_retry_after_in_seconds_or_as_a_date(value: str, seconds: int | None) -> None:
    expected = None if seconds is None else NOW + seconds * SECOND
    assert parse({"retry-after": value}).retry_at == expected
