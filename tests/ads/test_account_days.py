"""When a day begins in the time zone of an account."""

import itertools
from datetime import UTC, date, datetime, timedelta
from typing import Any

import attrs
import pytest

from svc_async import InvalidArgument
from svc_async.ads.accounts import Account, ApprovalStatus
from tests.support.errors import has

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def account_in(zone: str) -> Account:
    return Account(
        id="a1",
        name="A",
        timezone=zone,
        approval_status=ApprovalStatus.ACCEPTED,
        created_at=NOW,
        updated_at=NOW,
        deleted=False,
    )


@pytest.mark.parametrize("day", ["2026-06-10", 5, None])
def test_what_is_no_date_is_refused(day: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="day")):
        account_in("UTC").midnight(day)


@pytest.mark.parametrize(
    ("zone", "day", "begins"),
    [
        ("Europe/Lisbon", date(2026, 6, 10), "2026-06-10T00:00:00+01:00"),
        ("Europe/Vienna", date(2026, 3, 29), "2026-03-29T00:00:00+01:00"),  # the clock changes later that day
        ("America/Sao_Paulo", date(2018, 11, 4), "2018-11-04T01:00:00-02:00"),  # there was no 00:00
        ("Asia/Beirut", date(2022, 3, 27), "2022-03-27T01:00:00+03:00"),
        ("America/Havana", date(2026, 11, 1), "2026-11-01T00:00:00-04:00"),  # 00:00 came twice
        ("UTC", date(2026, 2, 28), "2026-02-28T00:00:00+00:00"),
    ],
)
def test_a_day_begins_at_the_first_moment_that_the_zone_has(zone: str, day: date, begins: str) -> None:
    account = account_in(zone)
    midnight = account.midnight(day)
    assert midnight.isoformat() == begins
    assert midnight.tzinfo is account.zone
    before = (midnight.astimezone(UTC) - timedelta(seconds=1)).astimezone(account.zone)
    assert (midnight.date(), before.date()) == (day, day - timedelta(days=1))


def test_days_last_as_long_as_the_zone_says() -> None:
    account = account_in("Europe/Vienna")
    days = [date(2026, 3, 28), date(2026, 3, 29), date(2026, 3, 30)]
    begins = [account.midnight(day).astimezone(UTC) for day in days]
    assert [later - sooner for sooner, later in itertools.pairwise(begins)] == [
        timedelta(hours=24),
        timedelta(hours=23),
    ]


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd", "/etc/passwd", "", "a" * 10_000])
def test_a_zone_that_the_machine_does_not_know_is_an_error(zone: str) -> None:
    account = attrs.evolve(account_in("UTC"), timezone=zone)
    with pytest.raises(InvalidArgument, check=has(parameter="timezone")) as caught:
        account.midnight(date(2026, 1, 1))
    assert not zone or zone not in str(caught.value)
