"""The table of known limits."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from svc_async.ads.custom_audiences import USERS_BATCH
from svc_async.errors import InvalidArgument
from svc_async.governor.governor import Governor
from svc_async.governor.limits import LIMITS, Limit, Scope, change_limit
from svc_async.wire.route import Surface
from tests.support.clock import DrivenClock
from tests.support.errors import has
from tests.support.rate_limits import USERS, build_request, request_slot

ACCOUNT = "/12/accounts/{account_id}"
TOTAL = (("with_total_count", "true"),)


def find_limits(
    method: str, template: str, surface: Surface = Surface.ADS, query: tuple[tuple[str, str], ...] = ()
) -> list[str]:
    governor = Governor(clock=DrivenClock())
    scope = {"account_id": "a1"} if "{account_id}" in template else {}
    request = build_request(method, template.replace("{", "").replace("}", ""), surface=surface, query=query, **scope)
    request_slot(governor, request)
    return [bucket.name for bucket in governor.snapshot()]


@pytest.mark.parametrize(
    ("method", "template", "name"),
    [
        ("POST", USERS, "ads.audience_users"),
        ("POST", "/12/batch/accounts/{account_id}/do_not_reach_lists/{id}/users", "ads.do_not_reach_users"),
        ("POST", f"{ACCOUNT}/audience_estimate", "ads.audience_estimate"),
        ("GET", "/12/insights/keywords/search", "ads.keyword_insights"),
        ("GET", f"{ACCOUNT}/line_items", "ads.reads.core"),
        ("GET", f"{ACCOUNT}/line_item_apps/{{id}}", "ads.reads.core"),
        ("GET", f"{ACCOUNT}/line_item_curated_categories/{{id}}", "ads.reads.account"),
        ("GET", f"{ACCOUNT}/cards", "ads.reads.account"),
        ("GET", ACCOUNT, "ads.reads.core"),
        ("GET", "/5/accounts/{account_id}/tailored_audiences/{id}/permissions", "ads.reads.account"),
        ("GET", "/12/accounts", "ads.reads.global"),
        ("GET", "/12/line_items/placements", "ads.reads.global"),
        ("PUT", f"{ACCOUNT}/line_items/{{id}}", "ads.writes"),
        ("GET", "/12/product_catalogs", "ads.product_catalogs.read"),
        ("DELETE", "/12/product_catalogs/{id}", "ads.product_catalogs.write"),
        ("PUT", "/12/product_catalogs/{id}/products", "ads.products.put"),
        ("GET", "/12/product_catalogs/{id}/product_sets/{set}", "ads.product_sets.read"),
    ],
)
def test_each_endpoint_has_its_limit(method: str, template: str, name: str) -> None:
    assert find_limits(method, template) == [name]


GLOBAL, CARDS = (
    "ads.reads.global ads.writes ads.writes ads.writes",
    "ads.reads.account ads.writes ads.writes ads.writes",
)
CORE = "ads.reads.core ads.writes ads.writes ads.writes"
CATALOGS = "/12/product_catalogs"
CATALOG = "ads.product_catalogs.read ads.product_catalogs.write ads.product_catalogs.write ads.product_catalogs.write"
PRODUCTS = "ads.products.read ads.product_catalogs.write ads.products.put ads.products.delete"
SETS = "ads.product_sets.read ads.product_sets.post ads.product_sets.put ads.product_sets.delete"


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("/12/accounts", GLOBAL),
        (ACCOUNT, CORE),
        (f"{ACCOUNT}/cards", CARDS),
        (USERS, "ads.reads.account ads.audience_users ads.writes ads.writes"),
        (f"{USERS}/{{id}}", CARDS),
        (f"{ACCOUNT}/audience_estimate", "ads.reads.account ads.audience_estimate ads.writes ads.writes"),
        ("/12/insights/keywords/search", "ads.keyword_insights ads.writes ads.writes ads.writes"),
        *((f"{ACCOUNT}/{name}", CORE) for name in ("line_items", "line_item_apps", "campaigns", "promoted_posts")),
        *((f"{ACCOUNT}/{name}/{{id}}", CORE) for name in ("funding_instruments", "media_creatives", "line_items")),
        (CATALOGS, CATALOG),
        (f"{CATALOGS}/{{id}}", CATALOG),
        (f"{CATALOGS}/{{id}}/products", PRODUCTS),
        (f"{CATALOGS}/{{id}}/products/{{key}}", PRODUCTS),
        (f"{CATALOGS}/{{id}}/product_sets", SETS),
        (f"{CATALOGS}/{{id}}/product_sets/{{set}}", SETS),
    ],
)
def test_each_method_of_an_endpoint_has_its_limit(template: str, names: str) -> None:
    found = [find_limits(method, template) for method in ("GET", "POST", "PUT", "DELETE")]

    assert found == [[name] for name in names.split()]


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("/2/webhooks", "webhooks webhooks webhooks webhooks"),
        ("/2/webhooks/{id}", "webhooks webhooks webhooks webhooks"),
        ("/2/webhooks/replay", "webhooks webhooks.replay webhooks webhooks"),
        ("/2/account_activity/replay/webhooks/{id}", "- webhooks.replay - -"),
        ("/2/activity/subscriptions", " ".join(["activity.subscriptions"] * 4)),
        ("/2/activity/subscriptions/{id}", " ".join(["activity.subscriptions"] * 4)),
        ("/2/activity/stream", "activity.stream - - -"),
        ("/2/posts/search/stream", "filtered_stream.stream - - -"),
        ("/oauth/request_token", "- - - -"),
        ("/12/accounts", "- - - -"),
    ],
)
def test_the_main_api_has_its_limits_and_what_has_none_is_learned(template: str, names: str) -> None:
    written = template.replace("{", "").replace("}", "")
    for method, name in zip(("GET", "POST", "PUT", "DELETE"), names.split(), strict=True):
        assert find_limits(method, template, Surface.BASE) == [f"{method} {written}" if name == "-" else name]


@pytest.mark.rule("DNL-06")
def test_the_numbers_of_the_table() -> None:
    account, user, app = Scope.ACCOUNT, Scope.USER, Scope.APP

    assert {row.name: (row.requests, row.period, row.scope) for row in LIMITS} == {
        "ads.audience_users": (1_500, 60, account),
        "ads.do_not_reach_users": (1_500, 60, account),
        "ads.total_count": (200, 900, user),
        "ads.audience_estimate": (400, 900, account),
        "ads.keyword_insights": (500, 900, user),
        "ads.products.read": (1_000, 900, user),
        "ads.products.put": (600, 900, user),
        "ads.products.delete": (150, 900, user),
        "ads.product_sets.read": (2_000, 900, user),
        "ads.product_sets.post": (100, 900, user),
        "ads.product_sets.put": (500, 900, user),
        "ads.product_sets.delete": (100, 900, user),
        "ads.product_catalogs.read": (1_000, 900, user),
        "ads.product_catalogs.write": (20, 900, user),
        "ads.reads.core": (10_000, 900, account),
        "ads.reads.account": (2_000, 900, account),
        "ads.reads.global": (5, 900, user),
        "ads.writes": (450, 60, account),
        "webhooks.replay": (100, 900, app),
        "webhooks": (450, 900, app),
        "activity.subscriptions": (500, 900, app),
        "activity.stream": (450, 900, app),
        "filtered_stream.stream": (50, 900, app),
    }


@pytest.mark.parametrize(
    ("scope", "account", "described"),
    [
        (Scope.APP, "a1", "app"),
        (Scope.APP, "", "app"),
        (Scope.USER, "a1", "user ann"),
        (Scope.ACCOUNT, "a1", "account a1"),
        (Scope.ACCOUNT, "", "user ann"),
    ],
)
def test_a_limit_counts_for_the_app_the_user_or_the_account(scope: Scope, account: str, described: str) -> None:
    governor = Governor(limits=(Limit("all", 5, 60.0, scope, frozenset({"GET"}), ".*"),), clock=DrivenClock())
    request_slot(governor, build_request("GET", "/12/x", account_id=account))

    assert [state.scope for state in governor.snapshot()] == [described]


@pytest.mark.rule("GEN-10", "LIM-05")
def test_total_count_takes_two_buckets() -> None:
    assert find_limits("GET", f"{ACCOUNT}/cards", query=TOTAL) == ["ads.reads.account", "ads.total_count"]


@pytest.mark.rule("CAU-03", "LIM-06", "GEN-10", "LIM-05")
def test_documented_rows_equal_the_contract() -> None:
    contract = tomllib.loads((Path(__file__).parents[1] / "contract" / "limits.toml").read_text(encoding="utf-8"))
    rates = {(limit["value"], limit["per_minutes"] * 60) for limit in contract["limit"] if limit["kind"] == "rate"}
    assert {(row.requests, row.period) for row in LIMITS if row.documented} == rates


def test_each_host_counts_for_itself() -> None:
    governor = Governor(clock=DrivenClock())
    for surface in (Surface.ADS, Surface.ADS_SANDBOX):
        request_slot(governor, build_request("GET", ACCOUNT, surface=surface, account_id="a1"))
    assert [(state.name, state.scope) for state in governor.snapshot()] == [
        ("ads.reads.core", "account a1"),
        ("ads.reads.core", "sandbox account a1"),
    ]


def test_scopes_have_names() -> None:
    assert [scope.value for scope in Scope] == ["app", "user", "account"]


def test_names_are_unique() -> None:
    assert len({limit.name for limit in LIMITS}) == len(LIMITS)


@pytest.mark.parametrize(
    ("change", "requests", "period"),
    [({"requests": 900}, 900, 60.0), ({"period": 30.0}, 450, 30.0), ({"requests": 1, "period": 0.5}, 1, 0.5)],
)
def test_one_limit_can_be_changed_by_name(change: dict[str, Any], requests: int, period: float) -> None:
    table = change_limit(LIMITS, "ads.writes", **change)

    changed = [row for row in table if row not in LIMITS]
    assert [row for row in table if row in LIMITS] == [row for row in LIMITS if row.name != "ads.writes"]
    assert [(row.name, row.requests, row.period, row.documented) for row in changed] == [
        ("ads.writes", requests, period, True)
    ]


def test_changing_an_unknown_limit_names_the_known_ones() -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="name")) as caught:
        change_limit(LIMITS, "ads.rights", requests=900)
    assert caught.value.parameter == "name"


def test_a_limit_cannot_be_changed_to_nothing() -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="requests")):
        change_limit(LIMITS, "ads.writes", requests=0)


@pytest.mark.parametrize("bad", [{"requests": 0}, {"period": 0}, {"period": -1.0}])
def test_a_limit_is_positive(bad: dict[str, float]) -> None:
    row = {"name": "x", "requests": 1, "period": 1.0, "scope": LIMITS[0].scope, "methods": frozenset(), "template": ""}
    with pytest.raises(InvalidArgument):
        Limit(**{**row, **bad})  # type: ignore[arg-type]  # one of them is bad


def test_the_pace_of_an_endpoint_is_that_of_its_own_limit_with_headroom() -> None:
    governor = Governor()

    assert governor.find_pace(USERS_BATCH(account_id="a", custom_audience_id="c")) == pytest.approx(1_500 / 60 * 0.97)
    assert Governor(limits=()).find_pace(USERS_BATCH(account_id="a", custom_audience_id="c")) is None
