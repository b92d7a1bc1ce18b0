"""The apps of an ad account."""

import attrs

from svc_async.engine.paging import CountedPager
from svc_async.engine.pipeline import Pipeline
from svc_async.open_enum import OpenEnum
from svc_async.wire.checks import between
from svc_async.wire.records import Record, Timestamp
from svc_async.wire.route import Listing

__all__ = ["AccountApp", "AccountAppOsType", "AccountApps"]


class AccountAppOsType(OpenEnum):
    """The system that an app runs on; more values exist than the one that is documented."""

    ANDROID = "Android"
    IOS = "iOS"  # Unspecified: that it is one (contract AccountAppOsType)


@attrs.frozen(kw_only=True)
class AccountApp(Record):
    """An app of an account (contract record `AccountApp`)."""

    id: str
    app_store_identifier: str
    conversion_tracking_enabled: bool
    deep_link_pattern: str | None = None
    os_type: AccountAppOsType
    created_at: Timestamp
    updated_at: Timestamp
    deleted: bool


_LIST = Listing("/12/accounts/{account_id}/account_apps", AccountApp, checks=(between("count", 1, 1000),))


@attrs.frozen(eq=False)
class AccountApps:
    """The apps of one account."""

    _pipeline: Pipeline = attrs.field(repr=False)
    account_id: str

    def list(
        self, *, count: int | None = None, sort_by: str | None = None, with_deleted: bool | None = None
    ) -> CountedPager[AccountApp]:
        """List the apps.

        Args:
            count: records per page, from 1 to 1000; the service's default is 200.
            sort_by: an attribute and a direction, such as `created_at-desc`.
            with_deleted: include deleted ones.

        Contract: ACC-08, `account_apps.list`.
        """
        return CountedPager(
            self._pipeline,
            _LIST(account_id=self.account_id, count=count, sort_by=sort_by, with_deleted=with_deleted),
        )
