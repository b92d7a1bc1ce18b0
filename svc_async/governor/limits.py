"""The known limits, one table.

An endpoint is counted by the first row that matches it, and also by every matching row with `with_total_count` if the
request asks for the total count. The limit of an endpoint without a row is learned from the headers of its answers.
"""

import enum
import re
from collections.abc import Sequence
from functools import cached_property

import attrs

from svc_async.errors import InvalidArgument
from svc_async.value_rules import COUNT, POSITIVE_SECONDS
from svc_async.wire.route import Surface

__all__ = ["LIMITS", "Limit", "Scope", "change_limit"]

_MINUTE = 60.0
_QUARTER = 900.0
_ADS = frozenset({Surface.ADS, Surface.ADS_SANDBOX})
_BASE = frozenset({Surface.BASE})
_READ = frozenset({"GET"})
_WRITE = frozenset({"POST", "PUT", "DELETE"})


class Scope(enum.Enum):
    """Whose requests share a limit."""

    APP = "app"
    USER = "user"
    ACCOUNT = "account"
    """One ad account; where the path names none, the user."""


@attrs.frozen(slots=False)
class Limit:
    """One row of the table: how many requests a group of endpoints admits per period.

    Attributes:
        name: identifies the limit in errors and snapshots.
        requests: how many.
        period: the window in seconds.
        scope: whose requests are counted together.
        methods: the HTTP methods.
        template: a regular expression that matches the whole path template.
        surfaces: the hosts; each host counts separately.
        with_total_count: counts requests for the total count, in addition to the endpoint's own row.
        documented: the reference, or the caller, states it: headers may lower but never raise it. Any other limit is a
            guess, which headers correct and answers without headers retire.
    """

    name: str
    requests: int = attrs.field(validator=COUNT)
    period: float = attrs.field(validator=POSITIVE_SECONDS)
    scope: Scope
    methods: frozenset[str]
    template: str
    surfaces: frozenset[Surface] = _ADS
    with_total_count: bool = attrs.field(default=False, kw_only=True)
    documented: bool = attrs.field(default=False, kw_only=True)

    def matches(self, method: str, surface: Surface, template: str) -> bool:
        """Return whether this row counts an endpoint."""
        return method in self.methods and surface in self.surfaces and self._pattern.fullmatch(template) is not None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self.template)


_ID = r"/[^/]+"
_ACCOUNT = rf"/\d+/(?:batch/)?accounts{_ID}"
_CATALOGS = r"/\d+/product_catalogs"
_PRODUCTS = rf"{_CATALOGS}{_ID}/products(?:/.*)?"
_SETS = rf"{_CATALOGS}{_ID}/product_sets(?:/.*)?"
_REST = r"(?:/.*)?"
_CORE = r"(?:line_items|line_item_(?!curated_)\w+|campaigns|funding_instruments|media_creatives|promoted_\w+)"

# Unspecified: every row without `documented`, and every scope. They are common defaults of services of this kind:
# pass `limits=` to change them; the headers of the answers correct them.
# fmt: off
LIMITS: tuple[Limit, ...] = (
    Limit("ads.audience_users", 1_500, _MINUTE, Scope.ACCOUNT, frozenset({"POST"}),
          rf"{_ACCOUNT}/custom_audiences{_ID}/users", documented=True),            # CAU-03, LIM-06
    Limit("ads.total_count", 200, _QUARTER, Scope.ACCOUNT, _READ,
          r"/\d+/.*", with_total_count=True, documented=True),                     # GEN-10, LIM-05
    Limit("ads.audience_estimate", 400, _QUARTER, Scope.ACCOUNT, frozenset({"POST"}), rf"{_ACCOUNT}/audience_estimate"),
    Limit("ads.keyword_insights", 500, _QUARTER, Scope.USER, _READ, r"/\d+/insights/keywords/search"),
    Limit("ads.products.read", 1_000, _QUARTER, Scope.USER, _READ, _PRODUCTS),
    Limit("ads.products.put", 600, _QUARTER, Scope.USER, frozenset({"PUT"}), _PRODUCTS),
    Limit("ads.products.delete", 150, _QUARTER, Scope.USER, frozenset({"DELETE"}), _PRODUCTS),
    Limit("ads.product_sets.read", 2_000, _QUARTER, Scope.USER, _READ, _SETS),
    Limit("ads.product_sets.post", 100, _QUARTER, Scope.USER, frozenset({"POST"}), _SETS),
    Limit("ads.product_sets.put", 500, _QUARTER, Scope.USER, frozenset({"PUT"}), _SETS),
    Limit("ads.product_sets.delete", 100, _QUARTER, Scope.USER, frozenset({"DELETE"}), _SETS),
    Limit("ads.product_catalogs.read", 1_000, _QUARTER, Scope.USER, _READ, _CATALOGS + _REST),
    Limit("ads.product_catalogs.write", 20, _QUARTER, Scope.USER, _WRITE, _CATALOGS + _REST),
    Limit("ads.reads.core", 10_000, _QUARTER, Scope.ACCOUNT, _READ, rf"{_ACCOUNT}(?:/{_CORE}{_REST})?"),
    Limit("ads.reads.account", 2_000, _QUARTER, Scope.ACCOUNT, _READ, _ACCOUNT + _REST),
    Limit("ads.reads.global", 5, _QUARTER, Scope.USER, _READ, r"/\d+/.*"),
    Limit("ads.writes", 450, _MINUTE, Scope.ACCOUNT, _WRITE, r"/\d+/.*"),
    Limit("webhooks.replay", 100, _QUARTER, Scope.APP, frozenset({"POST"}),
          r"/2/webhooks/replay|/2/account_activity/replay/.*", _BASE),
    Limit("webhooks", 450, _QUARTER, Scope.APP, _READ | _WRITE, r"/2/webhooks" + _REST, _BASE),
    Limit("activity.subscriptions", 500, _QUARTER, Scope.APP, _READ | _WRITE,
          r"/2/activity/subscriptions" + _REST, _BASE),
    Limit("activity.stream", 450, _QUARTER, Scope.APP, _READ, r"/2/activity/stream", _BASE),
    Limit("filtered_stream.stream", 50, _QUARTER, Scope.APP, _READ, r"/2/\w+/search/stream", _BASE),
)
# fmt: on


def change_limit(
    limits: Sequence[Limit], name: str, *, requests: int | None = None, period: float | None = None
) -> tuple[Limit, ...]:
    """Return the table with one limit changed, which then counts as documented.

    Args:
        limits: the table to change, such as `LIMITS`.
        name: the limit's name.
        requests: its new number of requests.
        period: its new window in seconds.

    Raises:
        InvalidArgument: no limit has this name, or a number is not positive.
    """
    if all(limit.name != name for limit in limits):
        raise InvalidArgument("name", f"must be one of {', '.join(limit.name for limit in limits)}")
    return tuple(
        attrs.evolve(
            limit,
            requests=limit.requests if requests is None else requests,
            period=limit.period if period is None else period,
            documented=True,
        )
        if limit.name == name
        else limit
        for limit in limits
    )
