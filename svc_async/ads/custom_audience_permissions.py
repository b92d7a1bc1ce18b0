"""The accounts that may use a custom audience."""

from collections.abc import Sequence

import attrs

from svc_async.ads.vocabulary import PermissionLevel
from svc_async.engine.paging import CountedPager
from svc_async.engine.pipeline import Pipeline
from svc_async.wire.checks import at_most, between
from svc_async.wire.records import Record, Timestamp
from svc_async.wire.route import Listing, Route

__all__ = ["CustomAudiencePermission", "CustomAudiencePermissions", "PermissionLevel"]


@attrs.frozen(kw_only=True)
class CustomAudiencePermission(Record):
    """The permission of an account to use an audience (contract record `CustomAudiencePermission`)."""

    id: str
    custom_audience_id: str
    granted_account_id: str
    permission_level: PermissionLevel
    created_at: Timestamp
    updated_at: Timestamp
    deleted: bool


_ALL = "/12/accounts/{account_id}/custom_audiences/{custom_audience_id}/permissions"
_ONE = "/12/accounts/{account_id}/custom_audiences/{custom_audience_id}/permissions/{custom_audience_permission_id}"

_LIST = Listing(
    _ALL,
    CustomAudiencePermission,
    checks=(
        between("count", 1, 1000),
        at_most("granted_account_ids", 200),
        at_most("custom_audience_permission_ids", 200),
    ),
)
_CREATE = Route("POST", _ALL, CustomAudiencePermission)
_DELETE = Route("DELETE", _ONE, CustomAudiencePermission)


@attrs.frozen(eq=False)
class CustomAudiencePermissions:
    """The permissions of one audience; only its owner may grant and revoke them (contract CAP-02)."""

    _pipeline: Pipeline = attrs.field(repr=False)
    account_id: str
    custom_audience_id: str

    def list(
        self,
        *,
        count: int | None = None,
        granted_account_ids: Sequence[str] | None = None,
        sort_by: str | None = None,
        custom_audience_permission_ids: Sequence[str] | None = None,
    ) -> CountedPager[CustomAudiencePermission]:
        """List the permissions.

        Args:
            count: records per page, from 1 to 1000; the service's default is 200.
            granted_account_ids: only those granted to these accounts, at most 200.
            sort_by: an attribute and a direction, such as `created_at-desc`.
            custom_audience_permission_ids: only these, at most 200.

        Contract: CAP-05, `custom_audience_permissions.list`.
        """
        request = _LIST(
            account_id=self.account_id,
            custom_audience_id=self.custom_audience_id,
            count=count,
            granted_account_ids=granted_account_ids,
            sort_by=sort_by,
            custom_audience_permission_ids=custom_audience_permission_ids,
        )
        return CountedPager(self._pipeline, request)

    async def create(self, *, granted_account_id: str, permission_level: PermissionLevel) -> CustomAudiencePermission:
        """Grant a permission to an account of the same business; other accounts need a feature (contract CAP-03).

        Contract: CAP-01, `custom_audience_permissions.create`.
        """
        return await self._pipeline.send(
            _CREATE(
                account_id=self.account_id,
                custom_audience_id=self.custom_audience_id,
                granted_account_id=granted_account_id,
                permission_level=permission_level,
            )
        )

    async def delete(self, custom_audience_permission_id: str) -> CustomAudiencePermission:
        """Revoke a permission; campaigns that use the audience keep running, but cannot be copied.

        Contract: CAP-04, `custom_audience_permissions.delete`.
        """
        return await self._pipeline.send(
            _DELETE(
                account_id=self.account_id,
                custom_audience_id=self.custom_audience_id,
                custom_audience_permission_id=custom_audience_permission_id,
            )
        )
