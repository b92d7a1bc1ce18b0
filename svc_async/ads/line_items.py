"""Line items: what a campaign spends on what."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import attrs

from svc_async.ads.vocabulary import AdProductType, Placement
from svc_async.engine.pipeline import Pipeline
from svc_async.open_enum import OpenEnum
from svc_async.wire.checks import datetimes, greater_than, not_greater_than, one_of, related, required_when, satisfies
from svc_async.wire.records import Record, Timestamp
from svc_async.wire.route import Route

__all__ = [
    "AdProductType",
    "AudienceExpansion",
    "BidStrategy",
    "CreativeSource",
    "EntityStatus",
    "LineItem",
    "LineItemGoal",
    "LineItemObjective",
    "LineItems",
    "PayBy",
    "Placement",
]


class LineItemObjective(OpenEnum):
    """What a line item is for; more values may exist than those that are documented."""

    ENGAGEMENTS = "ENGAGEMENTS"
    APP_INSTALLS = "APP_INSTALLS"
    APP_ENGAGEMENTS = "APP_ENGAGEMENTS"
    REACH = "REACH"
    FOLLOWERS = "FOLLOWERS"
    VIDEO_VIEWS = "VIDEO_VIEWS"
    PREROLL_VIEWS = "PREROLL_VIEWS"
    WEBSITE_CLICKS = "WEBSITE_CLICKS"


class LineItemGoal(OpenEnum):
    """What delivery is optimised for (contract LI-14)."""

    APP_CLICKS = "APP_CLICKS"
    APP_INSTALLS = "APP_INSTALLS"
    APP_PURCHASES = "APP_PURCHASES"
    ENGAGEMENT = "ENGAGEMENT"
    FOLLOWERS = "FOLLOWERS"
    LINK_CLICKS = "LINK_CLICKS"
    MAX_REACH = "MAX_REACH"
    PREROLL = "PREROLL"
    PREROLL_STARTS = "PREROLL_STARTS"
    REACH_WITH_ENGAGEMENT = "REACH_WITH_ENGAGEMENT"
    VIDEO_VIEW = "VIDEO_VIEW"
    VIEW_3S_100PCT = "VIEW_3S_100PCT"
    VIEW_6S = "VIEW_6S"
    VIEW_15S = "VIEW_15S"
    WEBSITE_CONVERSIONS = "WEBSITE_CONVERSIONS"


class EntityStatus(OpenEnum):
    """Whether a line item runs (contract LI-02)."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"


class AudienceExpansion(OpenEnum):
    """How far the audience may be widened (contract LI-06)."""

    BROAD = "BROAD"
    DEFINED = "DEFINED"
    EXPANDED = "EXPANDED"


class BidStrategy(OpenEnum):
    """The bid strategies (contract LI-08, LI-09, LI-18)."""

    AUTO = "AUTO"
    """By budget and dates."""
    MAX = "MAX"
    """At most the bid; not for the objectives REACH and FOLLOWERS."""
    TARGET = "TARGET"
    """A daily average within 20 percent of the bid; for REACH or WEBSITE_CLICKS."""


class PayBy(OpenEnum):
    """What is charged for (contract LI-15)."""

    APP_CLICK = "APP_CLICK"
    IMPRESSION = "IMPRESSION"
    LINK_CLICK = "LINK_CLICK"


class CreativeSource(OpenEnum):
    """Where creatives come from; more values exist than the one that is documented."""

    MANUAL = "MANUAL"


@attrs.frozen(kw_only=True)
class LineItem(Record):
    """A line item (contract record `LineItem`); amounts are in millionths of the currency unit (GEN-13).

    Attributes:
        goal: what delivery is optimised for.
        bid_amount_local_micro: without meaning with the bid strategy AUTO, for which the service ignores it (LI-07c).
        pay_by: what is charged for.
        duration_in_days: the window of `frequency_cap` (contract LI-12b).
        primary_web_event_tag: in the service's form, which is not documented, like `automatic_post_promotion`.
    """

    id: str
    campaign_id: str
    name: str | None = None
    objective: LineItemObjective | None = None
    goal: LineItemGoal | None = None
    product_type: AdProductType | None = None
    placements: tuple[Placement, ...] = ()
    entity_status: EntityStatus | None = None
    bid_strategy: BidStrategy | None = None
    bid_amount_local_micro: int | None = None
    target_cpa_local_micro: int | None = None
    pay_by: PayBy | None = None
    currency: str | None = None
    start_time: Timestamp | None = None
    end_time: Timestamp | None = None
    duration_in_days: int | None = None
    frequency_cap: int | None = None
    standard_delivery: bool | None = None
    total_budget_amount_local_micro: int | None = None
    daily_budget_amount_local_micro: int | None = None
    advertiser_user_id: str | None = None
    advertiser_domain: str | None = None
    categories: tuple[str, ...] = ()
    android_app_store_identifier: str | None = None
    ios_app_store_identifier: str | None = None
    primary_web_event_tag: Any = attrs.field(default=None, hash=False)
    automatic_post_promotion: Any = attrs.field(default=None, hash=False)
    creative_source: CreativeSource | None = None
    created_at: Timestamp
    updated_at: Timestamp
    deleted: bool


_ONE = "/12/accounts/{account_id}/line_items/{line_item_id}"

_UPDATE = Route(
    "PUT",
    _ONE,
    LineItem,
    checks=(
        satisfies("advertiser_domain", lambda domain: "://" not in str(domain), "must be a domain without protocol"),
        satisfies("ios_app_store_identifier", lambda app: str(app).isdecimal(), "must be the numeric part only"),
        greater_than("bid_amount_local_micro", 0),
        required_when("bid_strategy", ("MAX", "TARGET"), "bid_amount_local_micro"),
        datetimes("start_time", "end_time"),
        one_of("duration_in_days", 1, 7, 30),
        related(
            ("pay_by", "bid_strategy"),
            lambda pay_by, strategy: (pay_by, strategy) != (PayBy.IMPRESSION, BidStrategy.TARGET),
            "must not be IMPRESSION when bid_strategy is TARGET",
        ),
        not_greater_than("daily_budget_amount_local_micro", "total_budget_amount_local_micro"),
    ),
)
_DELETE = Route("DELETE", _ONE, LineItem)


@attrs.frozen(eq=False)
class LineItems:
    """The line items of one account."""

    _pipeline: Pipeline = attrs.field(repr=False)
    account_id: str

    async def update(
        self,
        line_item_id: str,
        *,
        advertiser_domain: str | None = None,
        advertiser_user_id: str | None = None,
        android_app_store_identifier: str | None = None,
        ios_app_store_identifier: str | None = None,
        audience_expansion: AudienceExpansion | None = None,
        bid_amount_local_micro: int | None = None,
        bid_strategy: BidStrategy | None = None,
        categories: Sequence[str] | None = None,
        duration_in_days: int | None = None,
        entity_status: EntityStatus | None = None,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        frequency_cap: int | None = None,
        goal: LineItemGoal | None = None,
        name: str | None = None,
        pay_by: PayBy | None = None,
        total_budget_amount_local_micro: int | None = None,
        daily_budget_amount_local_micro: int | None = None,
    ) -> LineItem:
        """Update the given fields; None leaves a field as it is. `svc_async.money` converts decimal numbers to amounts.

        Args:
            line_item_id: the line item.
            advertiser_domain: a domain without protocol; the placement PUBLISHER_NETWORK needs it (contract LI-03).
            advertiser_user_id: the user who promotes a PREROLL_VIEWS ad; for certain apps only (LI-04).
            android_app_store_identifier: APP_INSTALLS and APP_ENGAGEMENTS need an app of either store (LI-05).
            ios_app_store_identifier: the numeric part.
            audience_expansion: how far the audience may be widened.
            bid_amount_local_micro: above zero; required with the bid strategies MAX and TARGET (LI-07). The service
                ignores it with AUTO (LI-07c), which may be the strategy that the line item has: send both.
            bid_strategy: the bid strategy; the service's default depends on the objective.
            categories: IAB values of business categories; the placement PUBLISHER_NETWORK needs them (LI-11).
            duration_in_days: the window of `frequency_cap`: 1, 7 or 30.
            entity_status: whether it runs.
            start_time: the start of the flight.
            end_time: its end.
            frequency_cap: for REACH, ENGAGEMENTS, VIDEO_VIEWS and PREROLL_VIEWS only (LI-13).
            goal: what delivery is optimised for; the service's default depends on the objective.
            name: its name.
            pay_by: for APP_INSTALLS only; not IMPRESSION with the bid strategy TARGET (LI-15).
            total_budget_amount_local_micro: the budget of the flight.
            daily_budget_amount_local_micro: at most the total; only where the campaign leaves budgets to its line
                items (LI-16).

        Contract: LI-01, `line_items.update`.
        """
        return await self._pipeline.send(
            _UPDATE(
                account_id=self.account_id,
                line_item_id=line_item_id,
                advertiser_domain=advertiser_domain,
                advertiser_user_id=advertiser_user_id,
                android_app_store_identifier=android_app_store_identifier,
                ios_app_store_identifier=ios_app_store_identifier,
                audience_expansion=audience_expansion,
                bid_amount_local_micro=bid_amount_local_micro,
                bid_strategy=bid_strategy,
                categories=categories,  # Unspecified: UNS-categories-form
                duration_in_days=duration_in_days,
                entity_status=entity_status,
                start_time=start_time,
                end_time=end_time,
                frequency_cap=frequency_cap,
                goal=goal,
                name=name,
                pay_by=pay_by,
                total_budget_amount_local_micro=total_budget_amount_local_micro,
                daily_budget_amount_local_micro=daily_budget_amount_local_micro,
            )
        )

    async def delete(self, line_item_id: str) -> LineItem:
        """Delete a line item for good and return its record, with `deleted` true.

        Raises:
            NotFound: it was deleted before (contract LI-20c).

        Contract: LI-20, `line_items.delete`.
        """
        return await self._pipeline.send(_DELETE(account_id=self.account_id, line_item_id=line_item_id))
