"""Custom audiences: the campaigns that target them, and the route that sends their users."""

from collections.abc import Sequence
from datetime import datetime

import attrs

from svc_async.ads.vocabulary import BatchCounts, BatchOperationType
from svc_async.engine.paging import Pager
from svc_async.engine.pipeline import Pipeline
from svc_async.wire.records import Record
from svc_async.wire.route import Listing, Route

__all__ = [
    "USERS_BATCH",
    "AudienceUser",
    "AudienceUserOperation",
    "AudienceUserOperationParams",
    "BatchCounts",
    "BatchOperationType",
    "CustomAudiences",
    "TargetedAudienceEntry",
    "TargetedAudienceLineItem",
]


@attrs.frozen(kw_only=True)
class AudienceUser:
    """One user by any of its identifiers (contract CAU-07).

    All but `partner_user_id` are SHA-256 hashes of the normalised value, as 64 lower-case hex digits (CAU-08).
    """

    email: Sequence[str] | None = None
    device_id: Sequence[str] | None = None
    handle: Sequence[str] | None = None
    svc_id: Sequence[str] | None = None
    phone_number: Sequence[str] | None = None
    partner_user_id: Sequence[str] | None = None


@attrs.frozen(kw_only=True)
class AudienceUserOperationParams:
    """The users of one operation and the time in which they belong to the audience (contract CAU-05).

    Attributes:
        users: the users.
        effective_at: the start; the service's default is now (CAU-06).
        expires_at: the end, later than `effective_at`; the service's default is 13 months after the request (CAU-06b).
    """

    users: Sequence[AudienceUser]
    effective_at: datetime | None = None
    expires_at: datetime | None = None


@attrs.frozen(kw_only=True)
class AudienceUserOperation:
    """One operation of a users batch (contract CAU-04, CAU-05)."""

    operation_type: BatchOperationType
    params: AudienceUserOperationParams


@attrs.frozen(kw_only=True)
class TargetedAudienceLineItem(Record):
    """A line item that targets an audience."""

    id: str
    name: str | None = None
    servable: bool


@attrs.frozen(kw_only=True)
class TargetedAudienceEntry(Record):
    """A campaign whose line items target an audience (contract TGT-02)."""

    campaign_id: str
    campaign_name: str | None = None
    line_items: tuple[TargetedAudienceLineItem, ...] = ()


_TARGETED = Listing("/12/accounts/{account_id}/custom_audiences/{custom_audience_id}/targeted", TargetedAudienceEntry)
USERS_BATCH = Route(
    "POST", "/12/accounts/{account_id}/custom_audiences/{custom_audience_id}/users", BatchCounts, decides=True
)
"""The route that sends up to 2,500 operations and 5,000,000 bytes (contract `custom_audience_users.batch`)."""


@attrs.frozen(eq=False)
class CustomAudiences:
    """The custom audiences of one account."""

    _pipeline: Pipeline = attrs.field(repr=False)
    account_id: str

    def targeted(self, custom_audience_id: str, *, with_active: bool | None = None) -> Pager[TargetedAudienceEntry]:
        """List the campaigns whose line items target an audience.

        Args:
            custom_audience_id: the audience.
            with_active: False includes line items that cannot be served; the service's default is True (TGT-01).

        Contract: `targeted_audiences.list`.
        """
        request = _TARGETED(account_id=self.account_id, custom_audience_id=custom_audience_id, with_active=with_active)
        return Pager(self._pipeline, request)
