"""OpenResponse items (LI-01 to LI-21, CAT-03).

An update is judged by what the line item would be after it: `_LAWS` is the list of what must hold then.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs

from svc_async.sandbox.api.ads.common import select_fields
from svc_async.sandbox.config import LINE_ITEM_DEFAULTS
from svc_async.sandbox.refusal import Basis, Finding, Problem, Refusal, invalid, missing, refuse
from svc_async.sandbox.server.operations import Answer, Call, Operation, answer_row, no_access, not_found
from svc_async.sandbox.server.params import integer, long, text, timestamp
from svc_async.sandbox.state.store import Row, Store

__all__ = ["FIELDS", "OPERATIONS", "add_campaign", "add_line_item"]

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
_PATH = "/12/accounts/{account_id}/line_items/{line_item_id}"
_OUTSIDE = "PUBLISHER_NETWORK"
_CAPPED = ("REACH", "ENGAGEMENTS", "VIDEO_VIEWS", "PREROLL_VIEWS")
_OF_APPS = ("APP_INSTALLS", "APP_ENGAGEMENTS")
_BY_IMPRESSION = ("APP_INSTALLS", "LINK_CLICKS")
_CATEGORIES = 2
_IS_DOMAIN = re.compile(r"[^\s/:?#@.]+(\.[^\s/:?#@.]+)+").fullmatch
_IS_NUMBER = re.compile(r"[0-9]+").fullmatch


def add_campaign(store: Store, account_id: str, **fields: Any) -> Row:
    """Keep a new campaign; what is not given gets a default."""
    given = {"id": store.ids.next("campaign", 5), **_NEW_CAMPAIGN, **fields}
    return store["campaigns"].add(account_id, given)


def add_line_item(
    store: Store, account_id: str, *, defaults: Mapping[str, Mapping[str, str]] = LINE_ITEM_DEFAULTS, **fields: Any
) -> Row:
    """Keep a new line item; what is not given gets a default, of its objective where there is one."""
    record = {**_NEW, "id": store.ids.next("line_item", 5), **fields}
    return store["line_items"].add(account_id, _complete(record, defaults))


def _complete(fields: Mapping[str, Any], defaults: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Fill in what follows from the rest (LI-07c, LI-10, LI-10b, LI-15b)."""
    own = {name: value for name, value in fields.items() if value is not None}
    filled = {**fields, **defaults.get(fields["objective"], {}), **own}
    # Unspecified: IMPRESSION is the default whatever the bidding, and not allowed with TARGET (CON-12).
    if filled["pay_by"] is None and filled["goal"] in _BY_IMPRESSION and filled["bid_strategy"] != "TARGET":
        filled["pay_by"] = "IMPRESSION"
    if filled["bid_strategy"] == "AUTO":
        filled["bid_amount_local_micro"] = None
    return filled


@attrs.frozen
class _Update:
    """A line item as it is and as it would be.

    Attributes:
        given: the names that the request has.
        campaign: the parent.
        business: from each IAB category to its business category.
    """

    before: Mapping[str, Any]
    after: Mapping[str, Any]
    given: frozenset[str]
    campaign: Mapping[str, Any]
    business: Mapping[str, str]
    counted: str

    def has(self, name: str) -> bool:
        """Whether the field would have a value."""
        return self.after[name] not in (None, [])

    @property
    def objective(self) -> str:
        return str(self.after["objective"])

    @property
    def outside(self) -> bool:
        return _OUTSIDE in self.after["placements"]

    @property
    def category_count(self) -> int:
        # Unspecified: whether one or two counts business categories or IAB values (UNS-categories-form).
        values = self.after["categories"]
        return len(values if self.counted == "values" else {self.business.get(value, value) for value in values})


@attrs.frozen
class _Law:
    """What must not be after an update."""

    rule: str
    parameter: str
    broken: Callable[[_Update], bool]
    message: str | None = None
    """None says that the parameter is missing."""

    def finding(self) -> Finding:
        if self.message is None:
            return missing(self.rule, self.parameter)
        return invalid(self.rule, self.message, self.parameter)


def _differs_from_form(name: str, good: Callable[[str], object], update: _Update) -> bool:
    return update.after[name] is not None and not good(update.after[name])


def _lacks_app(update: _Update) -> bool:
    known = update.has("android_app_store_identifier") or update.has("ios_app_store_identifier")
    return update.objective in _OF_APPS and not known


def _has_unknown_category(update: _Update) -> bool:
    known = all(value in update.business for value in update.after["categories"])
    return update.objective == "PREROLL_VIEWS" and not known


def _changes_pay_by(update: _Update) -> bool:
    changed = update.after["pay_by"] != update.before["pay_by"]
    return "pay_by" in update.given and changed and update.objective != "APP_INSTALLS"


def _exceeds_total(update: _Update) -> bool:
    daily, total = (update.after[f"{period}_budget_amount_local_micro"] for period in ("daily", "total"))
    return daily is not None and total is not None and daily > total


def _has_daily_budget(update: _Update) -> bool:
    alone = update.campaign.get("budget_optimization") == "LINE_ITEM"
    return update.has("daily_budget_amount_local_micro") and not alone


def _ends_before_start(update: _Update) -> bool:
    start, end = update.after["start_time"], update.after["end_time"]
    return start is not None and end is not None and end <= start


_LAWS = (
    _Law(
        "LI-03",
        "advertiser_domain",
        partial(_differs_from_form, "advertiser_domain", _IS_DOMAIN),
        "must be a bare domain",
    ),
    _Law("LI-03b", "advertiser_domain", lambda u: u.outside and not u.has("advertiser_domain")),
    _Law(
        "LI-04",
        "advertiser_user_id",
        lambda u: u.has("advertiser_user_id") and u.objective != "PREROLL_VIEWS",
        "is for PREROLL_VIEWS only",
    ),
    _Law("LI-05", "android_app_store_identifier", _lacks_app),
    _Law(
        "LI-05b",
        "ios_app_store_identifier",
        partial(_differs_from_form, "ios_app_store_identifier", _IS_NUMBER),
        "must be the numeric part",
    ),
    _Law(
        "LI-07",
        "bid_amount_local_micro",
        lambda u: u.after["bid_strategy"] != "AUTO" and not u.has("bid_amount_local_micro"),
    ),
    _Law(
        "LI-08",
        "bid_strategy",
        lambda u: u.after["bid_strategy"] == "MAX" and u.objective in ("REACH", "FOLLOWERS"),
        "MAX is not for REACH and FOLLOWERS",
    ),
    _Law(
        "LI-09",
        "bid_strategy",
        lambda u: u.after["bid_strategy"] == "TARGET" and u.objective not in ("REACH", "WEBSITE_CLICKS"),
        "TARGET is for REACH and WEBSITE_CLICKS only",
    ),
    # Unspecified: business categories are for PREROLL_VIEWS only, and PUBLISHER_NETWORK needs categories (CON-13).
    _Law("LI-11", "categories", lambda u: u.outside and not u.has("categories")),
    _Law(
        "CAT-03",
        "categories",
        lambda u: u.has("categories") and u.objective != "PREROLL_VIEWS" and not u.outside,
        "are for PREROLL_VIEWS only",
    ),
    _Law(
        "CAT-03b",
        "categories",
        lambda u: u.objective == "PREROLL_VIEWS" and not 1 <= u.category_count <= _CATEGORIES,
        "must be one or two",
    ),
    _Law("CAT-03c", "categories", _has_unknown_category, "must be iab_categories of the business categories"),
    _Law(
        "LI-13",
        "frequency_cap",
        lambda u: u.has("frequency_cap") and u.objective not in _CAPPED,
        f"is for {', '.join(_CAPPED)} only",
    ),
    _Law("LI-15", "pay_by", _changes_pay_by, "can be changed for APP_INSTALLS only"),
    _Law(
        "LI-15c",
        "pay_by",
        lambda u: u.after["pay_by"] == "IMPRESSION" and u.after["bid_strategy"] == "TARGET",
        "IMPRESSION is not allowed with TARGET",
    ),
    _Law("LI-16", "daily_budget_amount_local_micro", _exceeds_total, "is more than the total budget"),
    _Law(
        "LI-16b",
        "daily_budget_amount_local_micro",
        _has_daily_budget,
        "needs a campaign with budget_optimization LINE_ITEM",
    ),
)


def _update(call: Call) -> Answer:
    row = _find(call)
    if call.sent.get("advertiser_user_id") is not None and not call.sandbox.config.may_set_advertiser_user:
        raise no_access("advertiser_user_id")
    after = _complete({**row.fields, **_read_sent(call)}, call.sandbox.config.line_item_defaults)
    update = _Update(
        before=row.fields,
        after=after,
        given=frozenset(call.sent),
        campaign=_find_campaign(call, row),
        business=_map_categories(call),
        counted=call.sandbox.config.categories_counted,
    )
    findings = [law.finding() for law in _LAWS if law.broken(update)]
    if call.sandbox.config.line_item_dates_ordered and _ends_before_start(update):
        findings.append(invalid("ASM-121", "must be later than start_time", "end_time"))
    refuse(*findings)
    return _answer(call.sandbox.store["line_items"].change(row, **after))


def _read_sent(call: Call) -> dict[str, Any]:
    categories = call.sent.get("categories")
    # Unspecified: one string carries several categories as a comma list (UNS-categories-form).
    split = {"categories": categories.split(",") if categories else []} if "categories" in call.sent else {}
    return {**call.sent, **split}


def _find_campaign(call: Call, row: Row) -> Mapping[str, Any]:
    campaign = call.sandbox.store["campaigns"].get(row.fields["campaign_id"])
    return {} if campaign is None else campaign.fields


def _map_categories(call: Call) -> dict[str, str]:
    return {
        iab: row.id
        for row in call.sandbox.store["advertiser_business_categories"]
        for iab in row.fields["iab_categories"]
    }


def _find(call: Call) -> Row:
    return call.find(call.sandbox.store["line_items"], "line_item_id", code="LINE_ITEM_NOT_FOUND")


def _delete(call: Call) -> Answer:
    rows = call.sandbox.store["line_items"]
    row = rows.get(call.path["line_item_id"], owner=call.account, with_deleted=True)
    if row is None:
        raise not_found("LINE_ITEM_NOT_FOUND", "line_item_id")
    if row.deleted:
        # Unspecified: the code (ASM-92).
        problem = Problem("LINE_ITEM_NOT_FOUND", "the line item was deleted before", "line_item_id")
        raise Refusal(404, problem, rule="LI-20c", basis=Basis.SPEC)
    return _answer(rows.delete(row))


def _answer(row: Row) -> Answer:
    return answer_row(select_fields(row, FIELDS))


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
            text("audience_expansion", enum=("BROAD", "DEFINED", "EXPANDED"), clearable=True, rule="LI-06"),
            long("bid_amount_local_micro", above=0, clearable=True, rule="LI-07b"),
            text("bid_strategy", enum=("AUTO", "MAX", "TARGET"), clearable=True, rule="LI-10"),
            text("categories", clearable=True, rule="LI-11"),
            integer("duration_in_days", enum=(1, 7, 30), clearable=True, rule="LI-12"),
            text("entity_status", enum=("ACTIVE", "PAUSED"), rule="LI-02"),
            timestamp("start_time", rule="LI-17"),
            timestamp("end_time", clearable=True, rule="LI-17"),
            integer("frequency_cap", clearable=True, rule="LI-13"),
            text(
                "goal",
                enum=(
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
                ),
                clearable=True,
                rule="LI-14",
            ),
            text("name", rule="LI-01"),
            text("pay_by", enum=("APP_CLICK", "IMPRESSION", "LINK_CLICK"), clearable=True, rule="LI-15"),
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
)
