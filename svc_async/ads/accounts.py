"""Ad accounts."""

from collections.abc import Collection, Sequence
from datetime import UTC, date, datetime, time
from typing import ClassVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import attrs

from svc_async.engine.paging import CountedPager
from svc_async.engine.pipeline import Pipeline
from svc_async.errors import InvalidArgument
from svc_async.open_enum import OpenEnum
from svc_async.value_rules import DATE
from svc_async.wire.checks import at_most, between
from svc_async.wire.records import Record, Timestamp
from svc_async.wire.route import Listing, Route, Surface

__all__ = ["Account", "Accounts", "ApprovalStatus", "IndustryType"]


class ApprovalStatus(OpenEnum):
    """Whether an account may advertise; more values exist than the one that is documented."""

    ACCEPTED = "ACCEPTED"


class IndustryType(OpenEnum):
    """The industry of an advertiser."""

    AGENCY = "AGENCY"
    BUSINESS_TO_BUSINESS = "BUSINESS_TO_BUSINESS"
    ONLINE_SERVICES = "ONLINE_SERVICES"
    EDUCATION = "EDUCATION"
    FINANCIAL = "FINANCIAL"
    HEALTH = "HEALTH"
    GOVERNMENT = "GOVERNMENT"
    MEDIA = "MEDIA"
    MOBILE = "MOBILE"
    RESTAURANT = "RESTAURANT"
    RETAIL = "RETAIL"
    TECHNOLOGY = "TECHNOLOGY"
    TRAVEL = "TRAVEL"
    OTHER = "OTHER"


@attrs.frozen(kw_only=True)
class Account(Record):
    """An ad account (contract record `Account`).

    Attributes:
        business_name: None if the account does not belong to a business, like `business_id`.
        timezone: a zone name, such as `Europe/Vienna`.
        timezone_switch_at: when a change of the zone takes effect.
        industry_type: present in single reads and updates only (contract ACC-06).
    """

    occasional: ClassVar[Collection[str]] = ("industry_type",)

    id: str
    name: str
    business_name: str | None = None
    business_id: str | None = None
    timezone: str
    timezone_switch_at: Timestamp | None = None
    approval_status: ApprovalStatus
    industry_type: IndustryType | None = None
    created_at: Timestamp
    updated_at: Timestamp
    deleted: bool

    @property
    def zone(self) -> ZoneInfo:
        """The time zone, with its changes of the clock.

        Raises:
            InvalidArgument: the time zone database of this machine does not have it; on Windows, and in some
                containers, there is none without the package `tzdata`.
        """
        try:
            return ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            rule = "must be in the time zone database of this machine; without one: pip install tzdata"
            raise InvalidArgument("timezone", rule) from None

    def midnight(self, day: date) -> datetime:
        """Return when a day begins in the account's time zone, as a datetime of that zone.

        Where the clock is set forward at midnight, the day begins later than 00:00, and that time is returned; where it
        is set back across midnight, the first 00:00.

        Raises:
            InvalidArgument: it is no date; or see `zone`.
        """
        DATE.check("day", day)
        midnight = datetime.combine(day, time.min, tzinfo=self.zone)
        return midnight.astimezone(UTC).astimezone(self.zone)  # a time that the clock skips becomes the first after it


_LIST = Listing("/12/accounts", Account, checks=(between("count", 1, 1000), at_most("account_ids", 200)))
_GET = Route("GET", "/12/accounts/{account_id}", Account)
_CREATE = Route("POST", "/12/accounts", Account, surface=Surface.ADS_SANDBOX)
_UPDATE = Route("PUT", "/12/accounts/{account_id}", Account)
_DELETE = Route("DELETE", "/12/accounts/{account_id}", Account, surface=Surface.ADS_SANDBOX)


@attrs.frozen(eq=False)
class Accounts:
    """The ad accounts of the user."""

    _pipeline: Pipeline = attrs.field(repr=False)

    def list(
        self,
        *,
        account_ids: Sequence[str] | None = None,
        count: int | None = None,
        q: str | None = None,
        sort_by: str | None = None,
        with_deleted: bool | None = None,
    ) -> CountedPager[Account]:
        """List the accounts that the user may use.

        Args:
            account_ids: only these, at most 200.
            count: records per page, from 1 to 1000; the service's default is 200.
            q: a prefix of the name, in any case (contract ACC-01).
            sort_by: an attribute and a direction, such as `created_at-desc`.
            with_deleted: include deleted ones.

        Contract: `accounts.list`.
        """
        return CountedPager(
            self._pipeline,
            _LIST(account_ids=account_ids, count=count, q=q, sort_by=sort_by, with_deleted=with_deleted),
        )

    async def get(self, account_id: str, *, with_deleted: bool | None = None) -> Account:
        """Return an account; a deleted one only with `with_deleted`.

        Contract: `accounts.get`.
        """
        return await self._pipeline.send(_GET(account_id=account_id, with_deleted=with_deleted))

    async def create(self) -> Account:
        """Create an account, on the sandbox host only (contract ACC-03, `accounts.create`)."""
        return await self._pipeline.send(_CREATE())

    async def update(
        self, account_id: str, *, name: str | None = None, industry_type: IndustryType | None = None
    ) -> Account:
        """Update the given fields; None leaves a field as it is.

        Contract: `accounts.update`.
        """
        return await self._pipeline.send(_UPDATE(account_id=account_id, name=name, industry_type=industry_type))

    async def delete(self, account_id: str) -> Account:
        """Delete an account, on the sandbox host only, and return its record, with `deleted` true.

        Contract: ACC-05, `accounts.delete`.
        """
        return await self._pipeline.send(_DELETE(account_id=account_id))
