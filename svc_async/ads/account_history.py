"""The changes to an ad account and who made them: beta, for allowlisted apps."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import attrs

from svc_async.engine.paging import Pager
from svc_async.engine.pipeline import Pipeline
from svc_async.open_enum import OpenEnum
from svc_async.wire.checks import between, datetimes, whole_hours
from svc_async.wire.reading import read_as
from svc_async.wire.records import Record, Timestamp
from svc_async.wire.route import Listing

__all__ = [
    "AccountHistory",
    "AccountHistoryChangeBy",
    "AccountHistoryEntry",
    "CampaignSnapshot",
    "HistoryChangeType",
    "HistoryEntityType",
]


class HistoryEntityType(OpenEnum):
    """What can change (contract HIST-02b)."""

    CAMPAIGN = "CAMPAIGN"
    LINE_ITEM = "LINE_ITEM"
    PROMOTED_TWEET = "PROMOTED_TWEET"
    TARGETING_CRITERIA = "TARGETING_CRITERIA"
    PROMOTED_ACCOUNT = "PROMOTED_ACCOUNT"


class HistoryChangeType(OpenEnum):
    """What a change did; more values exist than the one that is documented."""

    CREATE = "CREATE"
    # Unspecified: the others (contract UNS-history-change-types).
    UPDATE = "UPDATE"
    DELETE = "DELETE"


@attrs.frozen(kw_only=True)
class AccountHistoryChangeBy(Record):
    """The user who made a change, and the platform they used."""

    user_id: str | None = None
    platform: str | None = None


@attrs.frozen(kw_only=True)
class CampaignSnapshot(Record):
    """A campaign at the time of a change; amounts are in millionths of the currency unit (contract GEN-13)."""

    name: str | None = None
    start_time: Timestamp | None = None
    end_time: Timestamp | None = None
    purchase_order_number: str | None = None
    daily_budget_amount_local_micro: int | None = None
    total_budget_amount_local_micro: int | None = None
    duration_in_days: int | None = None
    standard_delivery: bool | None = None
    entity_status: str | None = None
    frequency_cap: int | None = None
    created_at: Timestamp | None = None
    updated_at: Timestamp | None = None
    deleted: bool | None = None


@attrs.frozen(kw_only=True)
class AccountHistoryEntry(Record):
    """One change (contract HIST-05).

    Attributes:
        changes: what changed, in the service's form, which is not documented.
        entity: the type's name.
        entity_data: the entity at that time; see `campaign`.
    """

    change_by: AccountHistoryChangeBy | None = None
    changes: Mapping[str, Any] | None = attrs.field(default=None, hash=False)
    change_time: Timestamp
    entity_id: str
    entity: str
    entity_data: Mapping[str, Any] | None = attrs.field(default=None, hash=False)
    change_type: HistoryChangeType

    def campaign(self) -> CampaignSnapshot | None:
        """Return the snapshot of a campaign, the only documented form; None for other entities."""
        if self.entity_data is None or self.entity.upper() != HistoryEntityType.CAMPAIGN:
            return None
        return read_as(CampaignSnapshot, self.entity_data)


_LIST = Listing(
    "/12/accounts/{account_id}/account_history",
    AccountHistoryEntry,
    checks=(datetimes("start_time", "end_time"), whole_hours("start_time", "end_time"), between("count", 1, 1000)),
)


@attrs.frozen(eq=False)
class AccountHistory:
    """The changes of one account."""

    _pipeline: Pipeline = attrs.field(repr=False)
    account_id: str

    def list(
        self,
        *,
        entity_type: HistoryEntityType,
        entity_id: str,
        start_time: datetime,
        end_time: datetime,
        user_id: int | None = None,
        count: int | None = None,
    ) -> Pager[AccountHistoryEntry]:
        """List the changes of one entity.

        Args:
            entity_type: what `entity_id` is.
            entity_id: the entity.
            start_time: the start, a whole hour (contract HIST-03).
            end_time: the end, a whole hour.
            user_id: only changes that this user made.
            count: records per page, from 1 to 1000; the service's default is 200.

        Contract: `account_history.list`.
        """
        request = _LIST(
            account_id=self.account_id,
            entity_type=entity_type,
            entity_id=entity_id,
            start_time=start_time,
            end_time=end_time,
            user_id=user_id,
            count=count,
        )
        return Pager(self._pipeline, request)
