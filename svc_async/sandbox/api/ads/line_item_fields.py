"""The fields with which a test adds campaigns and line items, since the documented calls create neither."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, TypedDict

from svc_async.sandbox.kinds import WrongArgument, check_fields
from svc_async.sandbox.server.reading import parse_time
from svc_async.sandbox.state.store import Store, format_time

__all__ = [
    "AudienceExpansion",
    "BidStrategy",
    "CampaignFields",
    "Days",
    "EntityStatus",
    "Goal",
    "LineItemFields",
    "PayBy",
    "ProductType",
    "read_fields",
]

AudienceExpansion = Literal["BROAD", "DEFINED", "EXPANDED"]
BidStrategy = Literal["AUTO", "MAX", "TARGET"]
Days = Literal[1, 7, 30]
EntityStatus = Literal["ACTIVE", "PAUSED"]
Goal = Literal[
    "APP_CLICKS",
    "APP_INSTALLS",
    "APP_PURCHASES",
    "ENGAGEMENT",
    "FOLLOWERS",
    "LINK_CLICKS",
    "MAX_REACH",
    "PREROLL",
    "PREROLL_STARTS",
    "REACH_WITH_ENGAGEMENT",
    "VIDEO_VIEW",
    "VIEW_3S_100PCT",
    "VIEW_6S",
    "VIEW_15S",
    "WEBSITE_CONVERSIONS",
]
Objective = Literal[
    "ENGAGEMENTS",
    "APP_INSTALLS",
    "APP_ENGAGEMENTS",
    "REACH",
    "FOLLOWERS",
    "VIDEO_VIEWS",
    "PREROLL_VIEWS",
    "WEBSITE_CLICKS",
]
PayBy = Literal["APP_CLICK", "IMPRESSION", "LINK_CLICK"]
Placement = Literal["ALL_ON_SVC", "SVC_TIMELINE", "PUBLISHER_NETWORK"]
ProductType = Literal["MEDIA", "PROMOTED_ACCOUNT", "PROMOTED_POSTS"]
Count = Annotated[int, 1]
"""A whole number, and the least that is taken; amounts are in millionths of the currency unit (GEN-13)."""


class _SharedFields(TypedDict, total=False):
    id: str
    name: str
    entity_status: EntityStatus
    start_time: datetime | str
    end_time: datetime | str | None
    duration_in_days: Days | None
    frequency_cap: Count | None
    standard_delivery: bool
    total_budget_amount_local_micro: Count | None
    daily_budget_amount_local_micro: Count | None
    deleted: bool


class CampaignFields(_SharedFields, total=False):
    """The fields that `Sandbox.add_campaign` takes; times are a datetime with a time zone, or ISO 8601 in UTC.

    Attributes:
        id: a new one by default; no other campaign may have it.
        name: "Campaign".
        entity_status: ACTIVE.
        start_time: 2026-06-01T00:00:00Z.
        end_time: None.
        duration_in_days: the window of `frequency_cap`; None.
        frequency_cap: None.
        standard_delivery: True.
        total_budget_amount_local_micro: None.
        daily_budget_amount_local_micro: 50,000,000.
        deleted: False.
        purchase_order_number: None.
        budget_optimization: CAMPAIGN; with LINE_ITEM its line items take a daily budget (LI-16b).
    """

    purchase_order_number: str | None
    budget_optimization: Literal["CAMPAIGN", "LINE_ITEM"]


class LineItemFields(_SharedFields, total=False):
    """The fields that `Sandbox.add_line_item` takes; times are a datetime with a time zone, or ISO 8601 in UTC.

    A line item need not fulfil the rules of updates: each update checks all of them.

    Attributes:
        id: a new one by default; no other line item may have it.
        name: "Line item".
        entity_status: ACTIVE.
        start_time: 2026-06-01T00:00:00Z.
        end_time: None.
        duration_in_days: the window of `frequency_cap`; None.
        frequency_cap: None.
        standard_delivery: True.
        total_budget_amount_local_micro: None.
        daily_budget_amount_local_micro: None.
        deleted: False.
        objective: ENGAGEMENTS.
        goal: by the objective, as `SandboxConfig.line_item_defaults` says; so is `bid_strategy`.
        bid_strategy: as above.
        bid_amount_local_micro: None; it stays None with the bid strategy AUTO, which ignores bids (LI-07c).
        target_cpa_local_micro: None.
        pay_by: IMPRESSION for the goals APP_INSTALLS and LINK_CLICKS, unless the bid strategy is TARGET; else None.
        audience_expansion: None.
        product_type: PROMOTED_POSTS.
        placements: ALL_ON_SVC.
        categories: IAB values; none.
        currency: EUR.
        advertiser_user_id: None.
        advertiser_domain: None.
        android_app_store_identifier: None.
        ios_app_store_identifier: None.
        primary_web_event_tag: whatever JSON can say; None.
        automatic_post_promotion: likewise; False.
        creative_source: MANUAL.
        servable: what `custom_audiences.targeted` says of it; True.
        custom_audience_ids: the audiences that it targets; none.
    """

    objective: Objective
    goal: Goal | None
    bid_strategy: BidStrategy | None
    bid_amount_local_micro: Count | None
    target_cpa_local_micro: Count | None
    pay_by: PayBy | None
    audience_expansion: AudienceExpansion | None
    product_type: ProductType
    placements: Sequence[Placement]
    categories: Sequence[str]
    currency: str
    advertiser_user_id: str | None
    advertiser_domain: str | None
    android_app_store_identifier: str | None
    ios_app_store_identifier: str | None
    primary_web_event_tag: object
    automatic_post_promotion: object
    creative_source: str
    servable: bool
    custom_audience_ids: Sequence[str]


_FIELDS = {"campaigns": ("add_campaign", CampaignFields), "line_items": ("add_line_item", LineItemFields)}


def read_fields(store: Store, kind: Literal["campaigns", "line_items"], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a new record as they are stored.

    Raises:
        TypeError: a field does not exist.
        WrongArgument: a value is impossible.
    """
    call, known = _FIELDS[kind]
    check_fields(call, known, fields)
    if "id" in fields and store[kind].get(fields["id"], with_deleted=True) is not None:
        raise WrongArgument("id", f"must not be the id of another record of {kind}")
    times = {name: _format(name, fields[name]) for name in ("start_time", "end_time") if fields.get(name) is not None}
    lists = {name: list(value) for name, value in fields.items() if isinstance(value, tuple)}
    return {**fields, **times, **lists}


def _format(name: str, moment: datetime | str) -> str:
    try:
        return format_time(parse_time(moment) if isinstance(moment, str) else moment)
    except ValueError:
        raise WrongArgument(name, "must be ISO 8601 in UTC, such as 2026-06-01T00:00:00Z") from None
