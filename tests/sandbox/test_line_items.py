from typing import Any, get_args

import pytest

from svc_async.sandbox import SandboxConfig
from svc_async.sandbox.api.ads.line_item_fields import Objective
from tests.support.raw_client import RawClient

FIELDS = {
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
}
READERS, INSTALLS, VISITS, FILM = "9cqi0", "9cqi3", "9cqi4", "9cqi5"


async def send_update(raw: RawClient, line_item: str, **given: Any) -> Any:
    return await raw("PUT", f"{raw.account}/line_items/{line_item}", given)


def add_line_item(raw: RawClient, **fields: Any) -> str:
    return str(raw.sandbox.add_line_item(**fields))


async def expect_refusal(raw: RawClient, line_item: str, rule: str, parameter: str, **given: Any) -> None:
    got = await send_update(raw, line_item, **given)
    assert (got.status, got.rule, got.basis) == (400, rule, "spec")
    assert got.codes[0][1] == parameter


@pytest.mark.rule("LI-01", "LI-19", "GEN-03", "GEN-13")
async def test_an_update_without_parameters_returns_the_line_item(raw: RawClient) -> None:
    got = await send_update(raw, READERS)
    assert got.json.keys() == {"request", "data"}
    assert got.data.keys() == FIELDS
    assert got.data["campaign_id"] == "8wku2"
    assert (await send_update(raw, INSTALLS)).data["daily_budget_amount_local_micro"] == 30_000_000


@pytest.mark.rule("LI-01", "LI-06", "LI-12", "LI-14", "LI-17")
async def test_each_given_parameter_changes_its_field_alone(raw: RawClient, subtests: pytest.Subtests) -> None:
    for name, value, kept in [
        ("name", "Leser & Co", "Leser & Co"),
        ("advertiser_domain", "harbourbooks.example", "harbourbooks.example"),
        ("duration_in_days", "30", 30),
        ("start_time", "2026-07-01T00:00:00Z", "2026-07-01T00:00:00Z"),
        ("end_time", "2026-08-01T00:30:00+00:00", "2026-08-01T00:30:00Z"),
        ("frequency_cap", "4", 4),
        ("goal", "REACH_WITH_ENGAGEMENT", "REACH_WITH_ENGAGEMENT"),
        ("total_budget_amount_local_micro", "9000000000000000000", 9_000_000_000_000_000_000),
        ("ios_app_store_identifier", "1044820712", "1044820712"),
    ]:
        with subtests.test(name=name, value=value, kept=kept):
            before = (await send_update(raw, READERS)).data
            got = await send_update(raw, READERS, **{name: value})
            assert got.data == before | {name: kept}
            assert got.json["request"]["params"][name] == kept


@pytest.mark.rule("LI-02")
async def test_the_status_becomes_what_is_sent(raw: RawClient) -> None:
    for status in ("PAUSED", "PAUSED", "ACTIVE"):
        assert (await send_update(raw, READERS, entity_status=status)).data["entity_status"] == status


@pytest.mark.rule("LI-02", "LI-06", "LI-07b", "LI-12", "LI-14", "LI-15", "LI-17", "LI-03", "LI-05b")
async def test_a_value_of_another_kind_is_refused(raw: RawClient, subtests: pytest.Subtests) -> None:
    for rule, name, values in [
        ("LI-02", "entity_status", ("DRAFT", "active", "")),
        ("LI-03", "advertiser_domain", ("https://shop.example", "shop.example/books", "shop", "a b.example")),
        ("LI-05b", "ios_app_store_identifier", ("id1044820712", "1044820712.", "١٢٣")),
        ("LI-06", "audience_expansion", ("NARROW",)),
        ("LI-07b", "bid_amount_local_micro", ("0", "-1", "1.5", "many")),
        ("LI-10", "bid_strategy", ("CPM",)),
        ("LI-12", "duration_in_days", ("2", "0", "31", "week")),
        ("LI-14", "goal", ("ENGAGEMENTS", "LIKES")),
        ("LI-15", "pay_by", ("CLICK",)),
        ("LI-17", "start_time", ("tomorrow", "2026-07-01", "2026-07-01T00:00:00", "2026-13-01T00:00:00Z", "")),
        ("LI-17", "end_time", ("1782864000", "2026-07-01T00:00:00+02:00")),
    ]:
        with subtests.test(rule=rule, name=name, values=values):
            for value in values:
                got = await send_update(raw, READERS, **{name: value})
                assert (got.status, got.codes, got.rule) == (400, [("INVALID_PARAMETER", name)], rule)


@pytest.mark.rule("LI-03b", "LI-11")
async def test_the_publisher_network_needs_a_domain_and_categories(raw: RawClient) -> None:
    outside = add_line_item(raw, placements=["ALL_ON_SVC", "PUBLISHER_NETWORK"])
    got = await send_update(raw, outside, name="Elsewhere")
    assert got.codes == [("MISSING_PARAMETER", "advertiser_domain"), ("MISSING_PARAMETER", "categories")]
    got = await send_update(raw, outside, advertiser_domain="shop.example", categories="IAB22,IAB1-2")
    assert (got.status, got.data["categories"]) == (200, ["IAB22", "IAB1-2"])
    await expect_refusal(raw, outside, "LI-03b", "advertiser_domain", advertiser_domain="")
    await expect_refusal(raw, outside, "LI-11", "categories", categories="")


@pytest.mark.rule("LI-04")
async def test_the_advertiser_s_user_is_for_preroll(raw: RawClient) -> None:
    assert (await send_update(raw, FILM, advertiser_user_id="756201191646691328")).data["advertiser_user_id"]
    await expect_refusal(raw, READERS, "LI-04", "advertiser_user_id", advertiser_user_id="756201191646691328")


@pytest.mark.rule("LI-04")
@pytest.mark.parametrize("config", [SandboxConfig(closed_gates=frozenset({"advertiser_user"}))])
async def test_some_apps_may_not_set_the_advertiser_s_user(raw: RawClient) -> None:
    got = await send_update(raw, FILM, advertiser_user_id="756201191646691328")
    assert (got.status, got.codes) == (403, [("UNAUTHORIZED_CLIENT_APPLICATION", None)])
    assert (await send_update(raw, FILM, name="Film")).status == 200


@pytest.mark.rule("LI-05")
@pytest.mark.parametrize("objective", ["APP_INSTALLS", "APP_ENGAGEMENTS"])
async def test_apps_need_one_of_two_store_identifiers(raw: RawClient, objective: str) -> None:
    app = add_line_item(raw, objective=objective, android_app_store_identifier="com.example.app")
    await expect_refusal(raw, app, "LI-05", "android_app_store_identifier", android_app_store_identifier="")
    both = await send_update(raw, app, android_app_store_identifier="", ios_app_store_identifier="1044820712")
    assert both.data["android_app_store_identifier"] is None
    await expect_refusal(raw, app, "LI-05", "android_app_store_identifier", ios_app_store_identifier="")


@pytest.mark.rule("LI-07", "LI-07b")
async def test_max_and_target_need_a_bid(raw: RawClient) -> None:
    await expect_refusal(raw, READERS, "LI-07", "bid_amount_local_micro", bid_strategy="MAX")
    got = await send_update(raw, READERS, bid_strategy="MAX", bid_amount_local_micro=1)
    assert (got.data["bid_strategy"], got.data["bid_amount_local_micro"]) == ("MAX", 1)
    reach = add_line_item(raw, objective="REACH")
    await expect_refusal(raw, reach, "LI-07", "bid_amount_local_micro", bid_strategy="TARGET")
    assert (await send_update(raw, reach, bid_strategy="TARGET", bid_amount_local_micro=5)).status == 200
    await expect_refusal(raw, reach, "LI-07", "bid_amount_local_micro", bid_amount_local_micro="")


@pytest.mark.rule("LI-07c")
async def test_a_bid_is_ignored_with_auto(raw: RawClient) -> None:
    got = await send_update(raw, VISITS, bid_strategy="AUTO", bid_amount_local_micro=700_000)
    assert (got.data["bid_strategy"], got.data["bid_amount_local_micro"]) == ("AUTO", None)
    assert (await send_update(raw, READERS, bid_amount_local_micro=700_000)).data["bid_amount_local_micro"] is None


@pytest.mark.rule("LI-08", "LI-09")
async def test_a_strategy_is_for_some_objectives(raw: RawClient, subtests: pytest.Subtests) -> None:
    for objective in get_args(Objective):
        with subtests.test(objective=objective):
            fields = {"android_app_store_identifier": "com.example.app"}
            categories = ["IAB22"] if objective == "PREROLL_VIEWS" else []
            line_item = add_line_item(raw, objective=objective, pay_by="LINK_CLICK", categories=categories, **fields)
            for strategy, rule, good in (
                ("MAX", "LI-08", objective not in ("REACH", "FOLLOWERS")),
                ("TARGET", "LI-09", objective in ("REACH", "WEBSITE_CLICKS")),
            ):
                if good:
                    assert (
                        await send_update(raw, line_item, bid_strategy=strategy, bid_amount_local_micro=9)
                    ).status == 200
                else:
                    await expect_refusal(
                        raw, line_item, rule, "bid_strategy", bid_strategy=strategy, bid_amount_local_micro=9
                    )


@pytest.mark.rule("LI-10", "LI-10b")
async def test_strategy_and_goal_default_by_objective(raw: RawClient) -> None:
    for objective, goal in (("VIDEO_VIEWS", "VIDEO_VIEW"), ("REACH", "MAX_REACH")):
        line_item = add_line_item(raw, objective=objective)
        assert (await send_update(raw, line_item)).data.items() >= {"bid_strategy": "AUTO", "goal": goal}.items()
        await send_update(raw, line_item, goal="VIEW_6S")
        got = await send_update(raw, line_item, goal="", bid_strategy="")
        assert (got.data["bid_strategy"], got.data["goal"]) == ("AUTO", goal)


@pytest.mark.rule("CAT-03", "CAT-03b", "CAT-03c", "LI-11")
async def test_preroll_has_one_or_two_business_categories(raw: RawClient) -> None:
    categories = {category["name"]: category["iab_categories"] for category in await list_categories(raw)}
    two = [*categories["Retail"], *categories["Media & Entertainment"]]
    got = await send_update(raw, FILM, categories=",".join(two))
    assert (got.status, got.data["categories"]) == (200, two)
    await expect_refusal(raw, FILM, "CAT-03b", "categories", categories=",".join([*two, *categories["Travel"]]))
    await expect_refusal(raw, FILM, "CAT-03c", "categories", categories="IAB99")
    inside = add_line_item(raw, objective="PREROLL_VIEWS", placements=["ALL_ON_SVC"])
    await expect_refusal(raw, inside, "CAT-03b", "categories", name="none at all")
    await expect_refusal(raw, READERS, "CAT-03", "categories", categories="IAB22")


async def list_categories(raw: RawClient) -> Any:
    return (await raw("GET", "/12/advertiser_business_categories")).data


@pytest.mark.rule("LI-13")
async def test_a_frequency_cap_is_for_four_objectives(raw: RawClient, subtests: pytest.Subtests) -> None:
    for objective in get_args(Objective):
        with subtests.test(objective=objective):
            categories = ["IAB22"] if objective == "PREROLL_VIEWS" else []
            app = "com.example.app"
            line_item = add_line_item(raw, objective=objective, categories=categories, android_app_store_identifier=app)
            if objective in ("REACH", "ENGAGEMENTS", "VIDEO_VIEWS", "PREROLL_VIEWS"):
                got = await send_update(raw, line_item, frequency_cap=3, duration_in_days=7)
                assert (got.data["frequency_cap"], got.data["duration_in_days"]) == (3, 7)
            else:
                await expect_refusal(raw, line_item, "LI-13", "frequency_cap", frequency_cap=3)


@pytest.mark.rule("LI-15", "LI-15b")
async def test_the_charging_unit_changes_for_installs_only(raw: RawClient) -> None:
    assert (await send_update(raw, INSTALLS)).data["pay_by"] == "IMPRESSION"
    assert (await send_update(raw, INSTALLS, pay_by="APP_CLICK")).data["pay_by"] == "APP_CLICK"
    assert (await send_update(raw, INSTALLS, pay_by="")).data["pay_by"] == "IMPRESSION"
    await expect_refusal(raw, VISITS, "LI-15", "pay_by", pay_by="APP_CLICK")
    await expect_refusal(raw, READERS, "LI-15", "pay_by", pay_by="IMPRESSION")
    assert (await send_update(raw, VISITS, pay_by="LINK_CLICK")).status == 200


@pytest.mark.rule("LI-15b")
async def test_impression_is_the_default_of_two_goals(raw: RawClient) -> None:
    assert (await send_update(raw, READERS)).data["pay_by"] is None
    for goal in ("APP_INSTALLS", "LINK_CLICKS"):
        line_item = add_line_item(raw)
        assert (await send_update(raw, line_item, goal=goal)).data["pay_by"] == "IMPRESSION"


@pytest.mark.rule("LI-15c")
async def test_impression_does_not_go_with_target(raw: RawClient) -> None:
    clicks = add_line_item(raw, objective="WEBSITE_CLICKS")
    assert (await send_update(raw, clicks)).data["pay_by"] == "IMPRESSION"
    await expect_refusal(raw, clicks, "LI-15c", "pay_by", bid_strategy="TARGET", bid_amount_local_micro=5)
    assert (await send_update(raw, VISITS, goal="LINK_CLICKS")).data["pay_by"] == "LINK_CLICK"


@pytest.mark.rule("LI-16", "LI-16b")
async def test_a_daily_budget_is_within_the_total_and_needs_its_campaign(raw: RawClient) -> None:
    got = await send_update(raw, INSTALLS, daily_budget_amount_local_micro=900_000_000)
    assert got.data["daily_budget_amount_local_micro"] == 900_000_000
    name = "daily_budget_amount_local_micro"
    await expect_refusal(raw, INSTALLS, "LI-16", name, daily_budget_amount_local_micro=900_000_001)
    await expect_refusal(raw, INSTALLS, "LI-16", name, total_budget_amount_local_micro=899_999_999)
    await expect_refusal(raw, READERS, "LI-16b", name, daily_budget_amount_local_micro=1)
    assert (await send_update(raw, INSTALLS, daily_budget_amount_local_micro="")).data[name] is None


async def test_the_end_is_after_the_start(raw: RawClient) -> None:
    dates = {"start_time": "2026-07-01T00:00:00Z", "end_time": "2026-07-01T00:00:00Z"}
    got = await send_update(raw, READERS, **dates)
    assert (got.status, got.codes, got.rule) == (400, [("INVALID_PARAMETER", "end_time")], "ASM-121")


async def test_every_broken_rule_is_named_at_once(raw: RawClient) -> None:
    got = await send_update(raw, READERS, bid_strategy="TARGET", categories="IAB22", daily_budget_amount_local_micro=5)
    assert [name for _, name in got.codes] == [
        "bid_amount_local_micro",
        "bid_strategy",
        "categories",
        "daily_budget_amount_local_micro",
    ]


@pytest.mark.rule("LI-20", "LI-20b", "LI-20c", "ERR-03", "GEN-14")
async def test_deletion_is_soft_irreversible_and_not_repeated(raw: RawClient) -> None:
    path = f"{raw.account}/line_items/{READERS}"
    got = await raw("DELETE", path)
    assert (got.status, got.data["id"], got.data["deleted"], got.data.keys()) == (200, READERS, True, FIELDS)
    again = await raw("DELETE", path)
    assert (again.status, again.codes) == (404, [("LINE_ITEM_NOT_FOUND", "line_item_id")])
    assert (again.rule, again.basis) == ("LI-20c", "spec")
    assert (await send_update(raw, READERS, name="back")).status == 404
    assert (await send_update(raw, VISITS, deleted="false")).codes == [("INVALID_PARAMETER", "deleted")]


async def test_another_s_line_item_is_not_there(raw: RawClient) -> None:
    for line_item in ("9cqk1", "nothing"):
        assert (await send_update(raw, line_item)).codes == [("LINE_ITEM_NOT_FOUND", "line_item_id")]
        assert (await raw("DELETE", f"{raw.account}/line_items/{line_item}")).status == 404


@pytest.mark.rule("PLC-01")
async def test_all_product_types_are_listed_with_their_placements(raw: RawClient) -> None:
    got = await raw("GET", "/12/line_items/placements")
    assert got.json.keys() == {"request", "data"}
    assert [entry["product_type"] for entry in got.data] == ["MEDIA", "PROMOTED_ACCOUNT", "PROMOTED_POSTS"]
    assert all(entry.keys() == {"product_type", "placements"} for entry in got.data)
    found = {place for entry in got.data for group in entry["placements"] for place in group}
    assert found == {"ALL_ON_SVC", "SVC_TIMELINE", "PUBLISHER_NETWORK"}


@pytest.mark.rule("PLC-01")
async def test_one_product_type_may_be_asked_for(raw: RawClient) -> None:
    got = await raw("GET", "/12/line_items/placements", {"product_type": "MEDIA"})
    assert got.data == [{"product_type": "MEDIA", "placements": [["PUBLISHER_NETWORK"]]}]
    refused = await raw("GET", "/12/line_items/placements", {"product_type": "MEDIA,PROMOTED_POSTS"})
    assert (refused.status, refused.codes, refused.rule) == (400, [("INVALID_PARAMETER", "product_type")], "PLC-01")
