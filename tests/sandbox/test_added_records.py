"""What a test adds to a sandbox has known fields and possible values, or the call is refused."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from svc_async.sandbox import CampaignFields, LineItemFields, Sandbox, WrongArgument
from tests.support.contract import ENUMS
from tests.support.errors import has
from tests.support.raw_client import RawClient

LINE_ITEM: Mapping[str, tuple[Any, ...]] = {
    "id": (5, None),
    "name": (5, None, b"x"),
    "entity_status": ("DRAFT", None, 1),
    "start_time": (5, None, datetime(2026, 6, 1)),  # noqa: DTZ001 - refused
    "end_time": (5, datetime(2026, 6, 1)),  # noqa: DTZ001 - likewise
    "duration_in_days": (2, "7", 7.0, True),
    "frequency_cap": (0, "3"),
    "standard_delivery": (1, None, "true"),
    "bid_amount_local_micro": ("x", 0, -1, 1.5, True),
    "bid_strategy": ("CPM",),
    "placements": ("ALL_ON_SVC", ["EVERYWHERE"], None, {"ALL_ON_SVC"}),
    "categories": ("IAB22", [5]),
    "primary_web_event_tag": (1j, ...),
}
CAMPAIGN: Mapping[str, tuple[Any, ...]] = {
    "purchase_order_number": (118,),
    "budget_optimization": ("BOTH", None),
    "daily_budget_amount_local_micro": (0, "50"),
}
OTHERS: Mapping[str, Callable[[Sandbox, Any], object]] = {
    "add_audience": lambda sandbox, name: sandbox.add_audience(name=name),
    "add_account": lambda sandbox, name: sandbox.add_account(name=name),
    "add_catalog": lambda sandbox, name: sandbox.add_catalog(name=name),
}
OF_ACCOUNTS: Mapping[str, Callable[[Sandbox, Any], object]] = {
    "add_audience": lambda sandbox, account: sandbox.add_audience(account),
    "add_campaign": lambda sandbox, account: sandbox.add_campaign(account),
    "add_line_item": lambda sandbox, account: sandbox.add_line_item(account),
    "grant_feature": lambda sandbox, account: sandbox.grant_feature("AGE_TARGETING", account),
}


@pytest.mark.parametrize(("adder", "table"), [("add_line_item", LINE_ITEM), ("add_campaign", CAMPAIGN)])
def test_an_impossible_value_is_refused(
    adder: str, table: Mapping[str, tuple[Any, ...]], subtests: pytest.Subtests
) -> None:
    sandbox = Sandbox()
    for name, values in table.items():
        for value in values:
            with (
                subtests.test(name=name, value=value),
                pytest.raises(WrongArgument, check=has(parameter=name)),
            ):
                getattr(sandbox, adder)(**{name: value})


@pytest.mark.parametrize(
    ("adder", "given", "meant"),
    [
        ("add_line_item", "nmae", "'name'"),
        ("add_line_item", "bid_amount_local_macro", "'bid_amount_local_micro'"),
        ("add_campaign", "entity_state", "'entity_status'"),
        ("add_campaign", "objective", ", ".join(CampaignFields.__annotations__)),
    ],
)
def test_an_unknown_field_is_refused_with_the_one_that_is_meant(adder: str, given: str, meant: str) -> None:
    with pytest.raises(TypeError) as caught:
        getattr(Sandbox(), adder)(**{given: "x"})
    assert meant in str(caught.value)


def test_a_field_takes_the_values_of_the_contract(subtests: pytest.Subtests) -> None:
    for name, enum in [
        ("objective", "LineItemObjective"),
        ("goal", "LineItemGoal"),
        ("product_type", "AdProductType"),
        ("entity_status", "EntityStatus"),
        ("audience_expansion", "AudienceExpansion"),
        ("pay_by", "PayBy"),
    ]:
        with subtests.test(name=name, enum=enum):
            sandbox, stated = Sandbox(), ENUMS[enum]["values"]
            possible: list[dict[str, Any]] = [{name: value} for value in stated]
            assert len({sandbox.add_line_item(**given) for given in possible}) == len(stated)
            impossible: dict[str, Any] = {name: "OTHER"}
            with pytest.raises(WrongArgument, check=has(parameter=name)):
                sandbox.add_line_item(**impossible)


async def test_a_line_item_has_the_fields_that_it_is_given(raw: RawClient) -> None:
    eastern = timezone(timedelta(hours=2))
    given: LineItemFields = {
        "id": "lisbon",
        "name": "Lisbon",
        "objective": "WEBSITE_CLICKS",
        "bid_strategy": "TARGET",
        "bid_amount_local_micro": 1_500_000,
        "start_time": datetime(2026, 6, 1, 2, tzinfo=eastern),
        "end_time": "2026-07-01T00:00Z",
        "placements": ("SVC_TIMELINE",),
        "categories": (),
        "primary_web_event_tag": {"id": "o1"},
    }
    assert raw.sandbox.add_line_item(**given) == "lisbon"
    found = (await raw("PUT", f"{raw.account}/line_items/lisbon")).data
    assert (
        found.items()
        >= {
            **given,
            "start_time": "2026-06-01T00:00:00Z",
            "end_time": "2026-07-01T00:00:00Z",
            "placements": ["SVC_TIMELINE"],
            "categories": [],
        }.items()
    )


async def test_a_line_item_takes_a_daily_budget_if_its_campaign_says_so(raw: RawClient) -> None:
    campaign = raw.sandbox.add_campaign(budget_optimization="LINE_ITEM", start_time=datetime(2026, 6, 1, tzinfo=UTC))
    line_item = raw.sandbox.add_line_item(campaign_id=campaign)
    got = await raw("PUT", f"{raw.account}/line_items/{line_item}", {"daily_budget_amount_local_micro": 5})
    assert (got.status, got.data["campaign_id"]) == (200, campaign)


def test_a_time_as_text_is_iso_8601_in_utc(subtests: pytest.Subtests) -> None:
    for time in ["tomorrow", "2026-06-01", "2026-06-01T00:00:00+02:00", ""]:
        with subtests.test(time=time):
            for adder in (Sandbox().add_line_item, Sandbox().add_campaign):
                with pytest.raises(WrongArgument, check=has(parameter="end_time")):
                    adder(end_time=time)


def test_an_id_is_of_one_record() -> None:
    sandbox = Sandbox()
    with pytest.raises(WrongArgument, check=has(parameter="id")):
        sandbox.add_campaign(id=sandbox.add_campaign())
    with pytest.raises(WrongArgument, check=has(parameter="id")):
        sandbox.add_line_item(id=sandbox.add_line_item(deleted=True))


def test_a_campaign_is_one_of_the_account() -> None:
    sandbox = Sandbox()
    of_another = sandbox.add_campaign(sandbox.add_account())
    for campaign in ("none", "", 5, of_another):
        with pytest.raises(WrongArgument, check=has(parameter="campaign_id")):
            sandbox.add_line_item(campaign_id=campaign)  # type: ignore[arg-type]  # which is refused


@pytest.mark.parametrize("name", OF_ACCOUNTS)
@pytest.mark.parametrize("account", ["none", "", 5, ["18ce54d4x5t"]])
def test_an_account_is_one_of_the_sandbox(name: str, account: object) -> None:
    with pytest.raises(WrongArgument, check=has(parameter="account_id")):
        OF_ACCOUNTS[name](Sandbox(), account)


@pytest.mark.parametrize("adder", OTHERS)
@pytest.mark.parametrize("name", [5, None, b"x"])
def test_a_name_is_a_string(adder: str, name: object) -> None:
    with pytest.raises(WrongArgument, check=has(parameter="name")):
        OTHERS[adder](Sandbox(), name)


def test_a_feature_is_a_string() -> None:
    with pytest.raises(WrongArgument, check=has(parameter="key")):
        Sandbox().grant_feature(5)  # type: ignore[arg-type]  # which is refused
