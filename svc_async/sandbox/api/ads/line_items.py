"""Line items (LI-01 to LI-21, CAT-03), and the placements of each product type (PLC-01).

An update is checked by its result: `line_item_constraints` lists what must hold for the line item after it.
"""

from collections.abc import Mapping
from typing import Any, get_args

from svc_async.sandbox.api.ads.line_item_constraints import CONSTRAINTS, Update, ends_before_start
from svc_async.sandbox.api.ads.line_item_fields import (
    AudienceExpansion,
    BidStrategy,
    Days,
    EntityStatus,
    Goal,
    PayBy,
    ProductType,
)
from svc_async.sandbox.kinds import WrongArgument, check_kind
from svc_async.sandbox.refusal import Basis, Problem, Refusal, invalid, refuse
from svc_async.sandbox.server.decoding import integer, long, text, timestamp
from svc_async.sandbox.server.operations import Answer, Call, Operation, no_access, not_found
from svc_async.sandbox.state.store import Row, Store

__all__ = ["FIELDS", "OPERATIONS", "add_campaign", "add_line_item", "choose_campaign"]

FIELDS = (
    "id",
    "campaign_id",
    "name",
    "objective",
    "goal",
    "product_type",
    "placements",
    "entity_status",
    "bid_strategy",
    "bid_amount_local_micro",
    "target_cpa_local_micro",
    "pay_by",
    "currency",
    "start_time",
    "end_time",
    "duration_in_days",
    "frequency_cap",
    "standard_delivery",
    "total_budget_amount_local_micro",
    "daily_budget_amount_local_micro",
    "advertiser_user_id",
    "advertiser_domain",
    "categories",
    "android_app_store_identifier",
    "ios_app_store_identifier",
    "primary_web_event_tag",
    "automatic_post_promotion",
    "creative_source",
    "created_at",
    "updated_at",
    "deleted",
)
_NEW: Mapping[str, Any] = {
    **dict.fromkeys(FIELDS),
    "name": "Line item",
    "objective": "ENGAGEMENTS",
    "product_type": "PROMOTED_POSTS",
    "placements": ["ALL_ON_SVC"],
    "entity_status": "ACTIVE",
    "currency": "EUR",
    "start_time": "2026-06-01T00:00:00Z",
    "standard_delivery": True,
    "categories": [],
    "automatic_post_promotion": False,
    "creative_source": "MANUAL",
    "audience_expansion": None,
    "servable": True,
    "custom_audience_ids": [],
    "deleted": False,
}
_NEW_CAMPAIGN: Mapping[str, Any] = {
    "name": "Campaign",
    "start_time": "2026-06-01T00:00:00Z",
    "end_time": None,
    "purchase_order_number": None,
    "daily_budget_amount_local_micro": 50_000_000,
    "total_budget_amount_local_micro": None,
    "duration_in_days": None,
    "standard_delivery": True,
    "entity_status": "ACTIVE",
    "frequency_cap": None,
    "budget_optimization": "CAMPAIGN",
}
# Unspecified: which default an objective has (ASM-15).
_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "ENGAGEMENTS": {"bid_strategy": "AUTO", "goal": "ENGAGEMENT"},
    "APP_INSTALLS": {"bid_strategy": "AUTO", "goal": "APP_INSTALLS"},
    "APP_ENGAGEMENTS": {"bid_strategy": "AUTO", "goal": "APP_CLICKS"},
    "REACH": {"bid_strategy": "AUTO", "goal": "MAX_REACH"},
    "FOLLOWERS": {"bid_strategy": "AUTO", "goal": "FOLLOWERS"},
    "VIDEO_VIEWS": {"bid_strategy": "AUTO", "goal": "VIDEO_VIEW"},
    "PREROLL_VIEWS": {"bid_strategy": "AUTO", "goal": "PREROLL"},
    "WEBSITE_CLICKS": {"bid_strategy": "AUTO", "goal": "LINK_CLICKS"},
}
_PATH = "/12/accounts/{account_id}/line_items/{line_item_id}"
_BY_IMPRESSION = ("APP_INSTALLS", "LINK_CLICKS")


def choose_campaign(store: Store, account_id: str, campaign_id: str | None) -> str:
    """Return the id of the campaign to which a test adds a line item: by default, a new one.

    Raises:
        WrongArgument: the account does not have this campaign.
    """
    if campaign_id is None:
        return add_campaign(store, account_id).id
    check_kind("campaign_id", str, campaign_id)
    if store["campaigns"].get(campaign_id, owner=account_id, with_deleted=True) is None:
        raise WrongArgument("campaign_id", "must be the id of a campaign of the account")
    return campaign_id


def add_campaign(store: Store, account_id: str, **fields: Any) -> Row:
    """Add a campaign; missing fields get a default."""
    given = {"id": store.ids.next("campaign", 5), **_NEW_CAMPAIGN, **fields}
    return store["campaigns"].add(account_id, given)


def add_line_item(store: Store, account_id: str, **fields: Any) -> Row:
    """Add a line item; missing fields get the default of its objective, or a general one."""
    record = {**_NEW, "id": store.ids.next("line_item", 5), **fields}
    return store["line_items"].add(account_id, _complete(record))


def _complete(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the fields that follow from others (LI-07c, LI-10, LI-10b, LI-15b)."""
    own = {name: value for name, value in fields.items() if value is not None}
    filled = {**fields, **_DEFAULTS.get(fields["objective"], {}), **own}
    # Unspecified: IMPRESSION is the default whatever the bidding, and not allowed with TARGET (CON-12).
    if filled["pay_by"] is None and filled["goal"] in _BY_IMPRESSION and filled["bid_strategy"] != "TARGET":
        filled["pay_by"] = "IMPRESSION"
    # Unspecified: what becomes of a bid of before; here, a bid that AUTO ignores is not kept (LI-07c).
    if filled["bid_strategy"] == "AUTO":
        filled["bid_amount_local_micro"] = None
    return filled


def _show(row: Row) -> dict[str, Any]:
    return {name: row.fields[name] for name in FIELDS}


def _update(call: Call) -> Answer:
    row, store = call.find("line_items", "line_item_id"), call.sandbox.store
    if call.sent.get("advertiser_user_id") is not None and "advertiser_user" in call.sandbox.config.closed_gates:
        raise no_access("advertiser_user_id")
    sent = dict(call.sent)
    if "categories" in sent:
        # Unspecified: one string carries several categories as a comma list (UNS-categories-form).
        sent["categories"] = sent["categories"].split(",") if sent["categories"] else []
    after = _complete({**row.fields, **sent})
    campaign = store["campaigns"].get(row.fields["campaign_id"])
    categories = store["advertiser_business_categories"]
    update = Update(
        before=row.fields,
        after=after,
        sent=frozenset(sent),
        campaign={} if campaign is None else campaign.fields,
        business={iab: category.id for category in categories for iab in category.fields["iab_categories"]},
    )
    findings = [constraint.finding() for constraint in CONSTRAINTS if constraint.is_broken(update)]
    if ends_before_start(update):  # Unspecified: that this is refused (ASM-121)
        findings.append(invalid("ASM-121", "must be later than start_time", "end_time"))
    refuse(*findings)
    return Answer(_show(store["line_items"].change(row, **after)))


def _delete(call: Call) -> Answer:
    rows = call.sandbox.store["line_items"]
    row = rows.get(call.path["line_item_id"], owner=call.account, with_deleted=True)
    if row is None:
        raise not_found("line_item_id")
    if row.deleted:
        # Unspecified: the code (ASM-92).
        problem = Problem("LINE_ITEM_NOT_FOUND", "the line item was deleted before", "line_item_id")
        raise Refusal(404, problem, rule="LI-20c", basis=Basis.SPEC)
    return Answer(_show(rows.delete(row)))


def _list_placements(call: Call) -> Answer:
    product_type = call.params["product_type"]
    rows = [row for row in call.sandbox.store["placements"] if product_type in (None, row.id)]
    return Answer([{"product_type": row.id, "placements": row.fields["placements"]} for row in rows])


OPERATIONS = (
    Operation(
        id="line_items.update",
        method="PUT",
        path=_PATH,
        handler=_update,
        query=(
            # Unspecified: an empty value unsets what may be without one (ASM-101).
            text("advertiser_domain", clearable=True, rule="LI-03"),
            text("advertiser_user_id", clearable=True, rule="LI-04"),
            text("android_app_store_identifier", clearable=True, rule="LI-05"),
            text("ios_app_store_identifier", clearable=True, rule="LI-05b"),
            text("audience_expansion", enum=get_args(AudienceExpansion), clearable=True, rule="LI-06"),
            long("bid_amount_local_micro", above=0, clearable=True, rule="LI-07b"),
            text("bid_strategy", enum=get_args(BidStrategy), clearable=True, rule="LI-10"),
            text("categories", clearable=True, rule="LI-11"),
            integer("duration_in_days", enum=get_args(Days), clearable=True, rule="LI-12"),
            text("entity_status", enum=get_args(EntityStatus), rule="LI-02"),
            timestamp("start_time", rule="LI-17"),
            timestamp("end_time", clearable=True, rule="LI-17"),
            integer("frequency_cap", clearable=True, rule="LI-13"),
            text("goal", enum=get_args(Goal), clearable=True, rule="LI-14"),
            text("name", rule="LI-01"),
            text("pay_by", enum=get_args(PayBy), clearable=True, rule="LI-15"),
            long("total_budget_amount_local_micro", clearable=True, rule="GEN-13"),
            long("daily_budget_amount_local_micro", clearable=True, rule="LI-16"),
        ),
        limit="writes",
        rule="LI-19",
    ),
    Operation(
        id="line_items.delete",
        method="DELETE",
        path=_PATH,
        handler=_delete,
        limit="writes",
        rule="LI-20",
    ),
    Operation(
        id="placements.list",
        method="GET",
        path="/12/line_items/placements",
        handler=_list_placements,
        query=(text("product_type", enum=get_args(ProductType), rule="PLC-01"),),
        limit="global_reads",
        rule="PLC-01",
    ),
)
