"""Forms of answers that only one family has."""

import json
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import attrs
import pytest
from aioresponses import aioresponses

from svc_async import InvalidArgument, Session, UnexpectedAnswer, ads, platform
from svc_async.ads.account_history import CampaignSnapshot, HistoryEntityType
from svc_async.ads.cards import (
    Card,
    CardComponentButton,
    CardComponentDetails,
    CardComponentMedia,
    CardComponentSwipeableMedia,
    CardLabelValue,
)
from svc_async.ads.features import FeatureKey
from svc_async.handles import AccountHandle, ProductCatalogHandle
from tests.support.errors import has
from tests.support.fake_http import answer_any_method, make_session

HOUR = datetime(2026, 1, 2, 3, tzinfo=UTC)
MOMENTS = {"created_at": "2026-01-02T03:04:05Z", "updated_at": "2026-01-02T03:04:05Z", "deleted": False}
DETAILS = {"type": "DETAILS", "title": "t", "destination": {"type": "WEBSITE", "url": "https://example.test"}}
BUTTON = {
    "type": "BUTTON",
    "label": {"type": "ENUM", "value": "TO_COME"},
    "destination": {"type": "APP", "country_code": "AT", "googleplay_app_id": "com.example"},
}
TO_COME = {"type": "TO_COME", "anything": [1]}
CARD: dict[str, Any] = {"id": "c", "name": "n", "card_uri": "card://c", "card_type": "IMAGE_WEBSITE", **MOMENTS}
PRODUCT = {
    "id": "1",
    "title": "t",
    "description": "d",
    "availability": "in stock",
    "condition": "new",
    "price": "1 EUR",
    "link": "https://x",
    "image_link": "https://x/y.png",
    "gtin": "1",
}
POLL = {"id": "c", "card_type": "TEXT_POLLS", "duration_in_minutes": "5", **MOMENTS, "deleted": True}


def wrap_in_envelope(value: object) -> dict[str, Any]:
    return {"request": {"params": {}}, "data": value}


async def read_card(service: aioresponses, *components: object, keep_unknown: bool = False) -> Card:
    answer_any_method(service, wrap_in_envelope({**CARD, "components": components}))
    async with make_session(keep_unknown=keep_unknown) as session:
        return await session.account("a").cards.get("c")


@pytest.mark.rule("CARD-01", "CARD-05", "CARD-05b", "CARD-05c", "CARD-05d", "CARD-08", "CARD-13")
@pytest.mark.parametrize("keep_unknown", [False, True])
async def test_components_are_distinguished_by_their_type_and_keep_their_order(
    service: aioresponses, *, keep_unknown: bool
) -> None:
    swipes = {"type": "SWIPEABLE_MEDIA", "media_keys": ["13_1", "3_2"]}
    media = {"type": "MEDIA", "media_key": "13_1"}
    found = await read_card(service, swipes, BUTTON, media, DETAILS, keep_unknown=keep_unknown)
    kinds = [CardComponentSwipeableMedia, CardComponentButton, CardComponentMedia, CardComponentDetails]
    assert [type(component) for component in found.components] == kinds
    button = found.components[1]
    assert isinstance(button, CardComponentButton)
    assert (button.destination.googleplay_app_id, button.label.value) == ("com.example", CardLabelValue("TO_COME"))


async def test_a_component_of_an_unknown_type_is_unchanged(service: aioresponses) -> None:
    assert (await read_card(service, DETAILS, TO_COME)).components[1] == TO_COME


async def test_unknown_fields_inside_components_are_kept(service: aioresponses) -> None:
    found = await read_card(service, {**DETAILS, "salt": 1}, keep_unknown=True)
    details = found.components[0]

    assert isinstance(details, CardComponentDetails)
    assert (details.extra, found.extra) == ({"salt": 1}, {})


@pytest.mark.parametrize("component", ["DETAILS", None, [], {"type": "DETAILS"}, {**DETAILS, "destination": None}])
async def test_a_component_that_does_not_fit_can_be_reached_as_it_came(
    service: aioresponses, component: object
) -> None:
    found = await read_card(service, DETAILS, component)
    assert found.id == CARD["id"]
    assert found.to_dict()["components"] == [DETAILS, component]


@pytest.mark.rule("CARD-09")
async def test_a_card_that_was_read_can_be_written(service: aioresponses, account: AccountHandle) -> None:
    found = await read_card(
        service, {"type": "MEDIA", "media_key": "13_1", "salt": 1}, DETAILS, TO_COME, keep_unknown=True
    )
    answer_any_method(service, wrap_in_envelope(CARD))
    await account.cards.update(found.id, components=found.components)
    request = [*service.requests.values()][-1][-1]
    media = {"type": "MEDIA", "media_key": "13_1"}

    assert json.loads(request.kwargs["data"].decode()) == {"components": [media, DETAILS, TO_COME]}


@pytest.mark.parametrize("body", ["", "null", "{}", '{"data": null}', '{"data": {"deleted": true}}', "<html></html>"])
async def test_the_deletion_of_a_poll_succeeds_whatever_it_answers(
    service: aioresponses, account: AccountHandle, body: str
) -> None:
    service.delete(re.compile(".*"), body=body)
    assert await account.poll_cards.delete("c") is None


@pytest.mark.rule("POLL-01b", "POLL-06")
async def test_the_record_of_a_deleted_poll_is_read(service: aioresponses, account: AccountHandle) -> None:
    answer_any_method(service, wrap_in_envelope(POLL))
    found = await account.poll_cards.delete("c")

    assert found is not None
    assert (found.deleted, found.duration_in_minutes) == (True, "5")


@pytest.mark.rule("FEAT-01", "FEAT-03", "FEAT-04")
async def test_features_are_keys_known_or_not(service: aioresponses, account: AccountHandle) -> None:
    answer_any_method(service, wrap_in_envelope(["CITY_TARGETING", "TO_COME"]))
    keys = [FeatureKey.CITY_TARGETING, FeatureKey("TO_COME")]

    assert await account.features.list().collect() == keys
    assert await account.features.add(keys) == keys
    assert await account.features.remove(keys) == keys


HISTORY = {
    "change_by": {"user_id": 7, "platform": "API"},
    "changes": {"name": ["a", "b"]},
    "change_time": "2026-01-02T03:04:05Z",
    "entity_id": "e",
    "change_type": "CREATE",
}


@pytest.mark.rule("HIST-05")
async def test_the_snapshot_of_a_campaign_is_typed(service: aioresponses, account: AccountHandle) -> None:
    data = {"name": "n", "daily_budget_amount_local_micro": 5_000_000, "start_time": None, "to_come": 1}
    campaign = {**HISTORY, "entity": "CAMPAIGN", "entity_data": data}
    line_item = {**HISTORY, "entity": "LINE_ITEM", "entity_data": data}
    wrong = {**campaign, "entity_data": {"deleted": 5}}
    answer_any_method(service, wrap_in_envelope([campaign, line_item, {**HISTORY, "entity": "CAMPAIGN"}, wrong]))
    entries = await account.history.list(
        entity_type=HistoryEntityType.CAMPAIGN,
        entity_id="e",
        start_time=HOUR,
        end_time=HOUR,
    ).collect()
    assert entries[0].change_by is not None
    assert entries[0].change_by.user_id == "7"
    assert entries[0].campaign() == CampaignSnapshot(name="n", daily_budget_amount_local_micro=5_000_000)
    assert entries[1].campaign() is None
    assert entries[1].entity_data == data
    assert entries[2].campaign() is None
    wrong_campaign = entries[3].campaign()
    assert wrong_campaign is not None
    assert (wrong_campaign.deleted, wrong_campaign.extra) == (None, {"deleted": 5})


@pytest.mark.rule("EST-01")
@pytest.mark.parametrize(
    ("data", "bounds"), [({"audience_size": {"min": 1, "max": 2}}, (1, 2)), ({}, None), ({"to_come": 1}, None)]
)
async def test_an_estimate_is_read_where_it_has_the_known_form(
    service: aioresponses, account: AccountHandle, data: object, bounds: object
) -> None:
    answer_any_method(service, wrap_in_envelope(data))
    size = (await account.audience_estimate(targeting_criteria=[{"targeting_type": "AGE"}])).audience_size

    assert (size and (size.min, size.max)) == bounds


@pytest.mark.rule("PROD-14", "PROD-08c")
async def test_each_product_has_its_result(service: aioresponses, catalog: ProductCatalogHandle) -> None:
    results = [
        {"id": "1", "product_key": "k", "status": "CREATE_SUCCESS"},
        {"id": "2", "status": "ERROR", "errors": []},
    ]
    answer_any_method(service, wrap_in_envelope({"products_response": results}))
    found = await catalog.products.send([PRODUCT, {**PRODUCT, "id": "2"}])

    assert [(result.id, result.status, result.product_key) for result in found] == [
        ("1", "CREATE_SUCCESS", "k"),
        ("2", "ERROR", None),
    ]


OPERATIONS = [{"operation_type": "Update", "params": {"users": [{"email": ["0" * 64]}]}}]
DECIDING: dict[str, tuple[Callable[[Session], Awaitable[object]], str]] = {
    "audience": (
        lambda session: session.account("a").custom_audience("c").users.send(OPERATIONS),
        '{"success_count": 1, "total_count": 2, "total_count": 1}',
    ),
    "do-not-reach list": (
        lambda session: session.account("a").do_not_reach_list("c").users.send(OPERATIONS),
        '[{"success_count": 1, "total_count": 2, "total_count": 1}]',
    ),
    "products": (
        lambda session: session.product_catalog("c").products.send([PRODUCT]),
        '{"products_response": [{"id": "1", "product_key": "k", "status": "ERROR", "status": "CREATE_SUCCESS"}]}',
    ),
}


@pytest.mark.parametrize("kind", DECIDING)
async def test_an_answer_that_says_what_is_done_says_it_once(
    kind: str, service: aioresponses, session: Session
) -> None:
    send, data = DECIDING[kind]
    for method in ("POST", "PUT"):
        service.add(re.compile(".*"), method, body=f'{{"data": {data}}}')
    with pytest.raises(UnexpectedAnswer):
        await send(session)


def test_no_service_shows_the_session_behind_it(session: Session) -> None:
    names = [
        f"{package.__name__}.{each.name}" for package in (ads, platform) for each in iter_modules(package.__path__)
    ]
    services = {
        each: field
        for name in names
        for each in vars(import_module(name)).values()
        if isinstance(each, type) and attrs.has(each) and each.__module__ == name
        for field in attrs.fields(each)
        if field.name == "_pipeline"
    }
    assert len(services) > 20
    assert [each.__name__ for each, field in services.items() if field.repr] == []
    assert repr(session.oauth2) == "OAuth2()"


@pytest.mark.parametrize("name", ["do_not_reach_list", "tailored_audience", "custom_audience"])
def test_a_handle_needs_an_id(account: AccountHandle, name: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=f"{name}_id")):
        getattr(account, name)("")
