"""Custom audiences, the campaigns that target them, and the route that sends their users."""

from collections.abc import Collection, Sequence
from datetime import datetime
from math import inf
from typing import Any, ClassVar

import attrs

from svc_async.ads.vocabulary import BatchCounts, BatchOperationType, NotTargetableReason, PermissionLevel
from svc_async.engine.paging import CountedPager, Pager
from svc_async.engine.pipeline import Pipeline
from svc_async.errors import AudienceNotReady
from svc_async.open_enum import OpenEnum
from svc_async.value_rules import SECONDS, or_none
from svc_async.wire.checks import at_most, between, length
from svc_async.wire.records import Record, Timestamp
from svc_async.wire.route import Listing, Route

__all__ = [
    "USERS_BATCH",
    "AudienceUser",
    "AudienceUserOperation",
    "AudienceUserOperationParams",
    "BatchCounts",
    "BatchOperationType",
    "CustomAudience",
    "CustomAudienceTargetableType",
    "CustomAudienceType",
    "CustomAudiences",
    "NotTargetableReason",
    "PartnerSource",
    "PermissionLevel",
    "PermissionScope",
    "TargetedAudienceEntry",
    "TargetedAudienceLineItem",
]


class PermissionScope(OpenEnum):
    """Whose audiences are listed (contract CA-04)."""

    OWNER = "OWNER"
    SHARED = "SHARED"


class CustomAudienceType(OpenEnum):
    """How an audience came about; more values exist than the two that are documented."""

    CRM = "CRM"
    FLEXIBLE = "FLEXIBLE"


class CustomAudienceTargetableType(OpenEnum):
    """How criteria can target an audience; more values exist than the four that are documented."""

    CRM = "CRM"
    EXCLUDED_CRM = "EXCLUDED_CRM"
    FLEXIBLE = "FLEXIBLE"
    EXCLUDED_FLEXIBLE = "EXCLUDED_FLEXIBLE"


class PartnerSource(OpenEnum):
    """The partner that an audience came from; more values exist than the one that is documented."""

    OTHER = "OTHER"


@attrs.frozen(kw_only=True)
class CustomAudience(Record):
    """A custom audience (contract record `CustomAudience`).

    Attributes:
        audience_size: the users that were matched; None until that is known (contract CA-07).
        owner_account_id: the account that it belongs to; the answer to an update has `is_owner` instead (CA-12).
        metadata: the tree of a flexible audience, in the service's form: these are a closed beta.
    """

    occasional: ClassVar[Collection[str]] = ("owner_account_id", "is_owner", "metadata")

    id: str
    name: str
    description: str | None = None
    audience_type: CustomAudienceType | None = None
    audience_size: int | None = None
    targetable: bool
    reasons_not_targetable: tuple[NotTargetableReason, ...] = ()
    targetable_types: tuple[CustomAudienceTargetableType, ...] = ()
    permission_level: PermissionLevel | None = None
    owner_account_id: str | None = None
    is_owner: bool | None = None
    partner_source: PartnerSource | None = None
    metadata: Any = attrs.field(default=None, hash=False)
    created_at: Timestamp
    updated_at: Timestamp
    deleted: bool


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


_ALL = "/12/accounts/{account_id}/custom_audiences"
_ONE = "/12/accounts/{account_id}/custom_audiences/{custom_audience_id}"

_LIST = Listing(
    _ALL,
    CustomAudience,
    checks=(between("count", 1, 1000), at_most("custom_audience_ids", 200), length("q", 255, least=1)),
)
_GET = Route("GET", _ONE, CustomAudience)
_CREATE = Route("POST", _ALL, CustomAudience)
_UPDATE = Route("PUT", _ONE, CustomAudience)
_DELETE = Route("DELETE", _ONE, CustomAudience)
_TARGETED = Listing("/12/accounts/{account_id}/custom_audiences/{custom_audience_id}/targeted", TargetedAudienceEntry)
USERS_BATCH = Route(
    "POST", "/12/accounts/{account_id}/custom_audiences/{custom_audience_id}/users", BatchCounts, decides=True
)
"""The route that sends up to 2,500 operations and 5,000,000 bytes (contract `custom_audience_users.batch`)."""


_TIMEOUT = or_none(SECONDS)
_FIRST_PAUSE, _LONGEST_PAUSE = 30.0, 300.0
"""Seconds between two requests that wait for an audience; each pause is twice the one before."""


@attrs.frozen(eq=False)
class CustomAudiences:
    """The custom audiences of one account."""

    _pipeline: Pipeline = attrs.field(repr=False)
    account_id: str

    def list(
        self,
        *,
        count: int | None = None,
        custom_audience_ids: Sequence[str] | None = None,
        permission_scope: PermissionScope | None = None,
        q: str | None = None,
        sort_by: str | None = None,
        with_deleted: bool | None = None,
    ) -> CountedPager[CustomAudience]:
        """List the audiences.

        Args:
            count: records per page, from 1 to 1000; the service's default is 200.
            custom_audience_ids: only these, at most 200.
            permission_scope: `SHARED` lists those that other accounts share with this one; the service's default is
                `OWNER`, those of this account (contract CA-04).
            q: the beginning of the name, of 1 to 255 characters in any case (contract CA-05).
            sort_by: an attribute and a direction, such as `created_at-desc`.
            with_deleted: include deleted ones.

        Contract: `custom_audiences.list`.
        """
        request = _LIST(
            account_id=self.account_id,
            count=count,
            custom_audience_ids=custom_audience_ids,
            permission_scope=permission_scope,
            q=q,
            sort_by=sort_by,
            with_deleted=with_deleted,
        )
        return CountedPager(self._pipeline, request)

    async def get(self, custom_audience_id: str, *, with_deleted: bool | None = None) -> CustomAudience:
        """Return an audience.

        Contract: `custom_audiences.get`.
        """
        request = _GET(account_id=self.account_id, custom_audience_id=custom_audience_id, with_deleted=with_deleted)
        return await self._pipeline.send(request)

    async def create(self, *, name: str, description: str | None = None) -> CustomAudience:
        """Create an empty audience, which cannot be targeted yet: see `ready`.

        Args:
            name: a name that no other audience has (contract CA-02).
            description: what it is.

        Contract: CA-01, `custom_audiences.create`.
        """
        return await self._pipeline.send(_CREATE(account_id=self.account_id, name=name, description=description))

    async def update(
        self, custom_audience_id: str, *, name: str | None = None, description: str | None = None
    ) -> CustomAudience:
        """Update the given fields; None leaves one as it is.

        Contract: CA-09, `custom_audiences.update`.
        """
        return await self._pipeline.send(
            _UPDATE(
                account_id=self.account_id, custom_audience_id=custom_audience_id, name=name, description=description
            )
        )

    async def delete(self, custom_audience_id: str) -> CustomAudience:
        """Delete an audience and return its record, with `deleted` true.

        Contract: CA-10, `custom_audiences.delete`.
        """
        return await self._pipeline.send(_DELETE(account_id=self.account_id, custom_audience_id=custom_audience_id))

    async def ready(self, custom_audience_id: str, *, timeout: float | None = None) -> CustomAudience:  # noqa: ASYNC109 - on the session's clock
        """Wait until an audience can be targeted, as `ready` of its handle does.

        Args:
            custom_audience_id: the audience.
            timeout: the seconds to wait; 0 asks once, None waits without an end.

        Raises:
            AudienceNotReady: the time is over, or waiting does not help.
        """
        _TIMEOUT.check("timeout", timeout)
        clock, pause = self._pipeline.clock, _FIRST_PAUSE
        deadline = inf if timeout is None else clock.monotonic() + timeout
        while True:
            audience = await self.get(custom_audience_id)
            if audience.targetable and not audience.deleted:
                return audience
            can_change, rest = _can_become_targetable(audience), deadline - clock.monotonic()
            if not can_change or rest <= 0:
                raise AudienceNotReady(custom_audience_id, audience.reasons_not_targetable, repeatable=can_change)
            await clock.sleep(min(pause, rest))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def targeted(self, custom_audience_id: str, *, with_active: bool | None = None) -> Pager[TargetedAudienceEntry]:
        """List the campaigns whose line items target an audience.

        Args:
            custom_audience_id: the audience.
            with_active: False includes line items that cannot be served; the service's default is True (TGT-01).

        Contract: `targeted_audiences.list`.
        """
        request = _TARGETED(account_id=self.account_id, custom_audience_id=custom_audience_id, with_active=with_active)
        return Pager(self._pipeline, request)


def _can_become_targetable(audience: CustomAudience) -> bool:
    """Return whether an audience may become targetable while nobody changes it.

    Unspecified: which reasons pass (contract CA-06). One that is too small stays so once it was processed; any other
    reason may pass, also one that is not known here, and so may the lack of reasons.
    """
    return not audience.deleted and {*audience.reasons_not_targetable} != {NotTargetableReason.TOO_SMALL}
