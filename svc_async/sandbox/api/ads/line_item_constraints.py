"""What must hold for a line item after an update (LI-03 to LI-16b, CAT-03)."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs

from svc_async.sandbox.refusal import Finding, invalid, missing

__all__ = ["CONSTRAINTS", "Constraint", "Update", "ends_before_start"]

_OUTSIDE = "PUBLISHER_NETWORK"
_CAPPED = ("REACH", "ENGAGEMENTS", "VIDEO_VIEWS", "PREROLL_VIEWS")
_OF_APPS = ("APP_INSTALLS", "APP_ENGAGEMENTS")
_CATEGORIES = 2
_DAILY = "daily_budget_amount_local_micro"
_TOTAL = "total_budget_amount_local_micro"
_IS_DOMAIN = re.compile(r"[^\s/:?#@.]+(\.[^\s/:?#@.]+)+").fullmatch
_IS_NUMBER = re.compile(r"[0-9]+").fullmatch


@attrs.frozen
class Update:
    """A line item before and after an update.

    Attributes:
        sent: the names of the sent parameters.
        campaign: its campaign.
        business: the business category of each IAB category.
    """

    before: Mapping[str, Any]
    after: Mapping[str, Any]
    sent: frozenset[str]
    campaign: Mapping[str, Any]
    business: Mapping[str, str]

    def has(self, name: str) -> bool:
        """Return whether the field has a value after the update."""
        return self.after[name] not in (None, [])

    @property
    def objective(self) -> str:
        """The objective, which does not change."""
        return str(self.after["objective"])

    @property
    def outside(self) -> bool:
        """Whether it runs outside the service too."""
        return _OUTSIDE in self.after["placements"]

    @property
    def category_count(self) -> int:
        """The number of its business categories."""
        # Unspecified: that "one or two" counts these, not IAB values (UNS-categories-form).
        return len({self.business.get(value, value) for value in self.after["categories"]})


@attrs.frozen
class Constraint:
    """What must not hold after an update."""

    rule: str
    parameter: str
    is_broken: Callable[[Update], bool]
    message: str | None = None
    """None means that the parameter is missing."""

    def finding(self) -> Finding:
        """Return the finding that the update breaks it."""
        if self.message is None:
            return missing(self.rule, self.parameter)
        return invalid(self.rule, self.message, self.parameter)


def _is_malformed(name: str, matches: Callable[[str], object], update: Update) -> bool:
    return update.after[name] is not None and not matches(update.after[name])


def ends_before_start(update: Update) -> bool:
    """Return whether the end is not after the start."""
    start, end = update.after["start_time"], update.after["end_time"]
    return start is not None and end is not None and end <= start


CONSTRAINTS = (
    Constraint(
        "LI-03",
        "advertiser_domain",
        partial(_is_malformed, "advertiser_domain", _IS_DOMAIN),
        "must be a bare domain",
    ),
    Constraint("LI-03b", "advertiser_domain", lambda u: u.outside and not u.has("advertiser_domain")),
    Constraint(
        "LI-04",
        "advertiser_user_id",
        lambda u: u.has("advertiser_user_id") and u.objective != "PREROLL_VIEWS",
        "is for PREROLL_VIEWS only",
    ),
    Constraint(
        "LI-05",
        "android_app_store_identifier",
        lambda u: (
            u.objective in _OF_APPS and not (u.has("android_app_store_identifier") or u.has("ios_app_store_identifier"))
        ),
    ),
    Constraint(
        "LI-05b",
        "ios_app_store_identifier",
        partial(_is_malformed, "ios_app_store_identifier", _IS_NUMBER),
        "must be the numeric part",
    ),
    Constraint(
        "LI-07",
        "bid_amount_local_micro",
        lambda u: u.after["bid_strategy"] != "AUTO" and not u.has("bid_amount_local_micro"),
    ),
    Constraint(
        "LI-08",
        "bid_strategy",
        lambda u: u.after["bid_strategy"] == "MAX" and u.objective in ("REACH", "FOLLOWERS"),
        "MAX is not for REACH and FOLLOWERS",
    ),
    Constraint(
        "LI-09",
        "bid_strategy",
        lambda u: u.after["bid_strategy"] == "TARGET" and u.objective not in ("REACH", "WEBSITE_CLICKS"),
        "TARGET is for REACH and WEBSITE_CLICKS only",
    ),
    # Unspecified: business categories are for PREROLL_VIEWS only, and PUBLISHER_NETWORK needs categories (CON-13).
    Constraint("LI-11", "categories", lambda u: u.outside and not u.has("categories")),
    Constraint(
        "CAT-03",
        "categories",
        lambda u: u.has("categories") and u.objective != "PREROLL_VIEWS" and not u.outside,
        "are for PREROLL_VIEWS only",
    ),
    Constraint(
        "CAT-03b",
        "categories",
        lambda u: u.objective == "PREROLL_VIEWS" and not 1 <= u.category_count <= _CATEGORIES,
        "must be one or two",
    ),
    Constraint(
        "CAT-03c",
        "categories",
        lambda u: u.objective == "PREROLL_VIEWS" and not u.business.keys() >= {*u.after["categories"]},
        "must be iab_categories of the business categories",
    ),
    Constraint(
        "LI-13",
        "frequency_cap",
        lambda u: u.has("frequency_cap") and u.objective not in _CAPPED,
        f"is for {', '.join(_CAPPED)} only",
    ),
    Constraint(
        "LI-15",
        "pay_by",
        lambda u: "pay_by" in u.sent and u.after["pay_by"] != u.before["pay_by"] and u.objective != "APP_INSTALLS",
        "can be changed for APP_INSTALLS only",
    ),
    Constraint(
        "LI-15c",
        "pay_by",
        lambda u: u.after["pay_by"] == "IMPRESSION" and u.after["bid_strategy"] == "TARGET",
        "IMPRESSION is not allowed with TARGET",
    ),
    Constraint(
        "LI-16",
        _DAILY,
        lambda u: u.has(_DAILY) and u.has(_TOTAL) and u.after[_DAILY] > u.after[_TOTAL],
        "is more than the total budget",
    ),
    Constraint(
        "LI-16b",
        _DAILY,
        lambda u: u.has(_DAILY) and u.campaign.get("budget_optimization") != "LINE_ITEM",
        "needs a campaign with budget_optimization LINE_ITEM",
    ),
)
