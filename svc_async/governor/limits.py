"""The known limits, one table, and the buckets in which a request counts.

An endpoint is counted by the first row that matches it, and also by every matching row with `with_total_count` if the
request asks for the total count. The limit of an endpoint without a row is learned from the headers of its answers.
"""

import enum
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, Generic, TypeVar

import attrs

from svc_async.errors import InvalidArgument
from svc_async.governor.fair_queue import Bucket
from svc_async.governor.window_store import WindowSpec, WindowStore
from svc_async.governor.windows import SECOND
from svc_async.value_rules import COUNT, POSITIVE_SECONDS
from svc_async.wire.route import Request, Surface

__all__ = ["LIMITS", "BucketTable", "Limit", "RequestKind", "Scope", "change_limit"]

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
# pass `limits=` to change them; the headers of the answers correct them. A scope of which nothing is known is the one
# that puts more requests into one window: the user before the account.
# fmt: off
LIMITS: tuple[Limit, ...] = (
    Limit("ads.audience_users", 1_500, _MINUTE, Scope.ACCOUNT, frozenset({"POST"}),
          rf"{_ACCOUNT}/custom_audiences{_ID}/users", documented=True),            # CAU-03, LIM-06
    Limit("ads.do_not_reach_users", 1_500, _MINUTE, Scope.ACCOUNT, frozenset({"POST"}),
          rf"{_ACCOUNT}/do_not_reach_lists{_ID}/users", documented=True),          # DNL-06
    Limit("ads.total_count", 200, _QUARTER, Scope.USER, _READ,
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


W = TypeVar("W")

_MAX_KINDS = 4_096
_MAX_IDLE = 1_000
_WITH_TOTAL_COUNT = ("with_total_count", "true")


@attrs.frozen(eq=False)
class RequestKind(Generic[W]):
    """What all requests of one endpoint, user and account have in common.

    Attributes:
        buckets: what each of them takes, all at once.
        account: the ad account; empty if the path names none.
        is_read: whether it is a read.
    """

    buckets: tuple[Bucket[W], ...]
    account: str
    is_read: bool


class BucketTable(Generic[W]):
    """The buckets in use: one for each limit, and each app, user or account that it counts.

    Attributes:
        windows: where the windows of further buckets come from.
    """

    def __init__(
        self,
        limits: Sequence[Limit],
        *,
        headroom: float,
        windows: WindowStore,
        is_idle: Callable[[Bucket[W]], bool],
        on_change: Callable[[Bucket[W]], object],
    ) -> None:
        """Start without buckets.

        Args:
            limits: the known limits.
            headroom: the share of a limit that is used.
            windows: where the windows come from.
            is_idle: whether nothing is lost by forgetting a bucket.
            on_change: called when the store has changed a window.
        """
        self._limits = tuple(limits)
        self._headroom = headroom
        self.windows = windows
        self._is_idle = is_idle
        self._on_change = on_change
        self._buckets: dict[WindowSpec, Bucket[W]] = {}
        self._kinds: dict[tuple[Any, ...], RequestKind[W]] = {}
        self._sweep_above = _MAX_IDLE

    def __iter__(self) -> Iterator[Bucket[W]]:
        return iter(self._buckets.values())

    def classify(self, request: Request[Any], user: str) -> RequestKind[W]:
        """Return the kind of a request of a user."""
        account = request.scope.get("account_id", "")
        total = _WITH_TOTAL_COUNT in request.query
        key = (request.method, request.surface, request.template, user, account, total)
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MAX_KINDS:
                self._kinds.clear()
            self._sweep()
            buckets = self._buckets_of(request, user, account, total=total)
            kind = self._kinds[key] = RequestKind(buckets, account, request.method == "GET")
        return kind

    def find_pace(self, request: Request[Any]) -> float | None:
        """Return how many requests like this one a second the table of limits admits; None if it has no limit."""
        own = next((row for row in self._find_rows(request) if not row.with_total_count), None)
        return None if own is None else own.requests * self._headroom / own.period

    def _find_rows(self, request: Request[Any]) -> list[Limit]:
        return [row for row in self._limits if row.matches(request.method, request.surface, request.template)]

    def _buckets_of(self, request: Request[Any], user: str, account: str, *, total: bool) -> tuple[Bucket[W], ...]:
        rows = self._find_rows(request)
        own = next((row for row in rows if not row.with_total_count), None)
        specs = [self._spec(own, request.surface, user, account) if own else self._unknown(request, user, account)]
        specs += [self._spec(row, request.surface, user, account) for row in rows if row.with_total_count and total]
        return tuple(map(self._find_or_add, specs))

    def _spec(self, row: Limit, surface: Surface, user: str, account: str) -> WindowSpec:
        return WindowSpec(
            name=row.name,
            surface=surface,
            scope=_describe_scope(row.scope, user, account),
            limit=row.requests,
            period=round(row.period * SECOND),
            headroom=self._headroom,
            documented=row.documented,
        )

    def _unknown(self, request: Request[Any], user: str, account: str) -> WindowSpec:
        return WindowSpec(
            name=f"{request.method} {request.template}",
            surface=request.surface,
            scope=_describe_scope(Scope.ACCOUNT, user, account),
            limit=None,
            period=SECOND,
            headroom=self._headroom,
            documented=False,
        )

    def _find_or_add(self, spec: WindowSpec) -> Bucket[W]:
        bucket = self._buckets.get(spec)
        if bucket is None:
            scope = f"sandbox {spec.scope}" if spec.surface is Surface.ADS_SANDBOX else spec.scope
            window = self.windows.window(spec, partial(self._forward_change, spec))
            bucket = self._buckets[spec] = Bucket(spec.name, scope, window)
        return bucket

    def _forward_change(self, spec: WindowSpec) -> None:
        bucket = self._buckets.get(spec)
        if bucket is not None:
            self._on_change(bucket)

    def _sweep(self) -> None:
        if len(self._buckets) <= self._sweep_above:
            return
        self._buckets = {spec: bucket for spec, bucket in self._buckets.items() if not self._is_idle(bucket)}
        self._kinds.clear()  # they hold the buckets that were swept
        self._sweep_above = max(_MAX_IDLE, 2 * len(self._buckets))


def _describe_scope(scope: Scope, user: str, account: str) -> str:
    if scope is Scope.ACCOUNT and account:
        return f"account {account}"
    return "app" if scope is Scope.APP else f"user {user}"
