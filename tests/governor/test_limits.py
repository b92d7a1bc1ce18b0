"""The table of known limits."""

import tomllib
from pathlib import Path

import pytest

from svc_async.errors import InvalidArgument
from svc_async.governor.governor import Governor
from svc_async.governor.limits import LIMITS, Limit, change_limit
from svc_async.wire.route import Surface
from tests.support.clock import DrivenClock
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
        ("POST", "/12/batch/accounts/{account_id}/do_not_reach_lists/{id}/users", "ads.writes"),
        ("POST", f"{ACCOUNT}/audience_estimate", "ads.audience_estimate"),
        ("GET", "/12/insights/keywords/search", "ads.keyword_insights"),
        ("GET", f"{ACCOUNT}/line_items", "ads.reads.core"),
        ("GET", f"{ACCOUNT}/line_item_curated_categories/{{id}}", "ads.reads.core"),
        ("GET", f"{ACCOUNT}/cards", "ads.reads.account"),
        ("GET", ACCOUNT, "ads.reads.account"),
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


@pytest.mark.parametrize(
    ("method", "template", "name"),
    [
        ("PUT", "/2/webhooks/{id}", "webhooks"),
        ("POST", "/2/webhooks/replay", "webhooks.replay"),
        ("GET", "/2/activity/subscriptions", "activity.subscriptions"),
        ("GET", "/2/activity/stream", "activity.stream"),
        ("POST", "/oauth/request_token", "POST /oauth/request_token"),
    ],
)
def test_the_main_api_has_its_limits_and_what_has_none_is_learned(method: str, template: str, name: str) -> None:
    assert find_limits(method, template, Surface.BASE) == [name]


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
        ("ads.reads.account", "account a1"),
        ("ads.reads.account", "sandbox account a1"),
    ]


def test_names_are_unique() -> None:
    assert len({limit.name for limit in LIMITS}) == len(LIMITS)


def test_one_limit_can_be_changed_by_name() -> None:
    table = change_limit(LIMITS, "ads.writes", requests=900)
    assert [(row.name, row.requests, row.period) for row in table if row not in LIMITS] == [("ads.writes", 900, 60.0)]


def test_changing_an_unknown_limit_names_the_known_ones() -> None:
    with pytest.raises(InvalidArgument, match=r"ads\.writes"):
        change_limit(LIMITS, "ads.rights", requests=900)


def test_a_limit_cannot_be_changed_to_nothing() -> None:
    with pytest.raises(InvalidArgument, match="requests"):
        change_limit(LIMITS, "ads.writes", requests=0)


@pytest.mark.parametrize("bad", [{"requests": 0}, {"period": -1.0}])
def test_a_limit_is_positive(bad: dict[str, float]) -> None:
    row = {"name": "x", "requests": 1, "period": 1.0, "scope": LIMITS[0].scope, "methods": frozenset(), "template": ""}
    with pytest.raises(InvalidArgument):
        Limit(**{**row, **bad})  # type: ignore[arg-type]  # one of them is bad
