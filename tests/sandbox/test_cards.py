import json
from typing import Any

import pytest

from tests.support.raw_client import RawClient

FIELDS = {"id", "name", "card_uri", "card_type", "components", "created_at", "updated_at", "deleted"}
SEEDED, LEGACY = "5rkb1", "5rkc2"
IMAGE, VIDEO, GIF = "3_880101", "7_880301", "16_880201"

WEBSITE: dict[str, Any] = {"type": "WEBSITE", "url": "https://harbour.example/"}
APP: dict[str, Any] = {"type": "APP", "country_code": "PT", "googleplay_app_id": "example.harbour"}
SHOP: dict[str, Any] = {"type": "ENUM", "value": "SHOP"}
DETAILS: dict[str, Any] = {"type": "DETAILS", "title": "Read", "destination": WEBSITE}
BUTTON: dict[str, Any] = {"type": "BUTTON", "label": SHOP, "destination": APP}


def media(key: str = IMAGE) -> dict[str, Any]:
    return {"type": "MEDIA", "media_key": key}


def swipeable(*keys: str) -> dict[str, Any]:
    return {"type": "SWIPEABLE_MEDIA", "media_keys": list(keys)}


@pytest.fixture
def path(raw: RawClient) -> str:
    return f"{raw.account}/cards"


async def send(raw: RawClient, method: str, path: str, **body: Any) -> Any:
    headers = {"Content-Type": "application/json"}
    return await raw(method, path, data=json.dumps(body).encode(), headers=headers)


async def list_ids(raw: RawClient, path: str, **query: str) -> list[str]:
    return [record["id"] for record in (await raw("GET", path, query)).data]


@pytest.mark.rule("CARD-10", "CARD-10c", "CARD-13", "GEN-12b")
async def test_the_list_returns_cards_of_components(raw: RawClient, path: str) -> None:
    got = await raw("GET", path)
    assert [record["id"] for record in got.data] == [SEEDED]
    assert got.data[0].keys() == FIELDS
    assert got.data[0]["card_uri"] == f"card://{SEEDED}"
    assert await list_ids(raw, path, include_legacy_cards="true") == [SEEDED, LEGACY]


@pytest.mark.rule("CARD-10", "GEN-17", "LIM-07")
async def test_types_ids_and_uris_choose(raw: RawClient, path: str) -> None:
    made = (await send(raw, "POST", path, name="Video", components=[media(VIDEO), DETAILS])).data["id"]
    assert await list_ids(raw, path, card_types="VIDEO_WEBSITE,VIDEO_APP") == [made]
    assert await list_ids(raw, path, card_id=f"{SEEDED},nothing") == [SEEDED]
    assert await list_ids(raw, path, card_uris=f"card://{made}") == [made]
    assert await list_ids(raw, path, sort_by="name-desc") == [made, SEEDED]
    assert (await raw("GET", path, {"with_total_count": "true"})).status == 400


@pytest.mark.rule("CARD-10b")
async def test_q_is_a_prefix_of_the_name_in_any_case(raw: RawClient, path: str) -> None:
    for q, found in (("SPRING", [SEEDED]), ("list", []), ("x" * 80, [])):
        assert await list_ids(raw, path, q=q) == found


@pytest.mark.rule("CARD-11")
async def test_one_is_read_as_an_array_of_one(raw: RawClient, path: str) -> None:
    assert [card["id"] for card in (await raw("GET", f"{path}/{SEEDED}")).data] == [SEEDED]
    got = await raw("GET", f"{path}/nothing")
    assert (got.status, got.codes) == (404, [("CARD_NOT_FOUND", "card_id")])


@pytest.mark.rule("CARD-01", "CARD-08", "CARD-13")
async def test_the_type_follows_from_the_components(raw: RawClient, path: str, subtests: pytest.Subtests) -> None:
    for components, card_type in [
        ([media(), BUTTON], "IMAGE_APP"),
        ([DETAILS, media()], "IMAGE_WEBSITE"),
        ([media(VIDEO), BUTTON], "VIDEO_APP"),
        ([media(VIDEO), DETAILS], "VIDEO_WEBSITE"),
        ([swipeable(IMAGE, "3_880102"), BUTTON], "IMAGE_CAROUSEL_APP"),
        ([swipeable(IMAGE, "3_880102"), DETAILS], "IMAGE_CAROUSEL_WEBSITE"),
        ([swipeable(VIDEO, "7_880302"), BUTTON], "VIDEO_CAROUSEL_APP"),
        ([swipeable(VIDEO, "7_880302"), DETAILS], "VIDEO_CAROUSEL_WEBSITE"),
        ([swipeable(IMAGE, VIDEO), BUTTON], "MIXED_MEDIA_SINGLE_DEST_CAROUSEL_APP"),
        ([swipeable(IMAGE, VIDEO), DETAILS], "MIXED_MEDIA_SINGLE_DEST_CAROUSEL_WEBSITE"),
    ]:
        with subtests.test(components=components, card_type=card_type):
            got = await send(raw, "POST", path, name="Card", components=components)
            assert (got.data["card_type"], got.data["components"]) == (card_type, components)
            assert got.data["card_uri"] == f"card://{got.data['id']}"
            assert (await raw("GET", f"{path}/{got.data['id']}")).data == [got.data]


@pytest.mark.rule("CARD-01", "CARD-03")
async def test_slides_make_carousels_of_several_destinations(
    raw: RawClient, path: str, subtests: pytest.Subtests
) -> None:
    for keys, card_type in [
        ((IMAGE, "3_880102"), "IMAGE_MULTI_DEST_CAROUSEL_WEBSITE"),
        ((VIDEO, "7_880302"), "VIDEO_MULTI_DEST_CAROUSEL_WEBSITE"),
        ((IMAGE, VIDEO), "MIXED_MEDIA_MULTI_DEST_CAROUSEL_WEBSITE"),
    ]:
        with subtests.test(keys=keys, card_type=card_type):
            slides = [[media(key), DETAILS] for key in keys]
            got = await send(raw, "POST", path, name="Slides", slides=slides)
            assert (got.data["card_type"], got.data["slides"]) == (card_type, slides)
            assert "components" not in got.data


@pytest.mark.rule("CARD-03")
async def test_components_and_slides_exclude_each_other(raw: RawClient, path: str) -> None:
    for method, where in (("POST", path), ("PUT", f"{path}/{SEEDED}")):
        got = await send(raw, method, where, name="n", components=[media(), DETAILS], slides=[[media(), DETAILS]])
        assert (got.status, got.codes, got.rule) == (400, [("EXCLUSIVE_PARAMETERS", "slides")], "CARD-03")
    for slides, at in (([], "slides"), ([media()], "slides[0]"), ([[media(), DETAILS], [media()]], "slides[1]")):
        got = await send(raw, "POST", path, name="n", slides=slides)
        assert (got.status, got.codes) == (400, [("INVALID_PARAMETER", at)])
    assert (await send(raw, "POST", path, name="n", slides=[[media(), BUTTON]] * 2)).rule == "CARD-01"


@pytest.mark.rule("CARD-02", "GEN-16")
async def test_the_name_is_required_and_bounded(raw: RawClient, path: str) -> None:
    good = {"components": [media(), DETAILS]}
    assert (await send(raw, "POST", path, **good)).codes == [("MISSING_PARAMETER", "name")]
    for name in ("", "x" * 81, 7, None):
        got = await send(raw, "POST", path, name=name, **good)
        assert (got.status, got.codes, got.rule) == (400, [("INVALID_PARAMETER", "name")], "CARD-02")
    assert (await send(raw, "POST", path, name="ß" * 80, **good)).status == 200
    assert (await send(raw, "PUT", f"{path}/{SEEDED}", name="x" * 81)).status == 400


@pytest.mark.rule("CARD-04")
async def test_a_card_needs_one_medium_and_somewhere_to_go(
    raw: RawClient, path: str, subtests: pytest.Subtests
) -> None:
    for components in [
        [],
        [media()],
        [DETAILS],
        [media(), media(), DETAILS],
        [media(), swipeable(IMAGE, VIDEO), BUTTON],
        [media(), {"type": "TEXT"}],
        [media(), {"type": ["DETAILS"]}],
        [media(), DETAILS, {}],
        [media(), "DETAILS"],
    ]:
        with subtests.test(components=components):
            got = await send(raw, "POST", path, name="n", components=components)
            assert (got.status, got.rule) == (400, "CARD-04")


@pytest.mark.rule("CARD-04")
async def test_a_card_needs_components_or_slides(raw: RawClient, path: str) -> None:
    got = await send(raw, "POST", path, name="n")
    assert (got.status, got.codes) == (400, [("MISSING_PARAMETER", "components")])


WRONG = [
    ("CARD-05", "media_key", [{"type": "MEDIA"}, DETAILS]),
    ("CARD-05", "media_key", [media(7), DETAILS]),  # type: ignore[arg-type]  # wrong on purpose
    ("CARD-05b", "media_keys", [{"type": "SWIPEABLE_MEDIA"}, DETAILS]),
    ("CARD-05b", "media_keys", [swipeable(IMAGE), DETAILS]),
    ("CARD-05b", "media_keys", [swipeable(*[IMAGE] * 7), DETAILS]),
    ("CARD-05b", "media_keys", [swipeable(IMAGE, 7), DETAILS]),  # type: ignore[arg-type]  # wrong on purpose
    ("CARD-05c", "title", [{"type": "DETAILS", "destination": WEBSITE}, media()]),
    ("CARD-05c", "destination", [{"type": "DETAILS", "title": "t"}, media()]),
    ("CARD-07", "destination.type", [DETAILS | {"destination": WEBSITE | {"type": "APP"}}, media()]),
    ("CARD-07", "destination.url", [DETAILS | {"destination": {"type": "WEBSITE"}}, media()]),
    ("CARD-05d", "label", [{"type": "BUTTON", "destination": APP}, media()]),
    ("CARD-05d", "destination", [{"type": "BUTTON", "label": SHOP}, media()]),
    ("CARD-06", "label.type", [BUTTON | {"label": {"type": "TEXT", "value": "SHOP"}}, media()]),
    ("CARD-06", "label.value", [BUTTON | {"label": {"type": "ENUM", "value": "BUY"}}, media()]),
    ("CARD-07b", "destination.type", [BUTTON | {"destination": APP | {"type": "WEBSITE"}}, media()]),
    ("CARD-07b", "destination.country_code", [BUTTON | {"destination": APP | {"country_code": "pt"}}, media()]),
    ("CARD-07b", "destination.country_code", [BUTTON | {"destination": APP | {"country_code": "ZZ"}}, media()]),
    (
        "CARD-07b",
        "destination.country_code",
        [BUTTON | {"destination": {"type": "APP", "googleplay_app_id": "a"}}, media()],
    ),
    (
        "CARD-07c",
        "destination.googleplay_app_id",
        [BUTTON | {"destination": {"type": "APP", "country_code": "PT"}}, media()],
    ),
    ("CARD-07e", "destination.ios_deep_link", [BUTTON | {"destination": APP | {"ios_deep_link": "a://"}}, media()]),
    (
        "CARD-07d",
        "destination.googleplay_deep_link",
        [
            BUTTON
            | {
                "destination": {
                    "type": "APP",
                    "country_code": "PT",
                    "ios_app_store_identifier": "1",
                    "googleplay_deep_link": "a://",
                }
            },
            media(),
        ],
    ),
    ("ASM-95", "color", [DETAILS | {"color": "red"}, media()]),
]


@pytest.mark.rule(
    "CARD-05",
    "CARD-05b",
    "CARD-05c",
    "CARD-05d",
    "CARD-06",
    "CARD-07",
    "CARD-07b",
    "CARD-07c",
    "CARD-07d",
    "CARD-07e",
)
async def test_each_part_of_a_component_is_checked(raw: RawClient, path: str, subtests: pytest.Subtests) -> None:
    for rule, field, components in WRONG:
        for method, where in (("POST", path), ("PUT", f"{path}/{SEEDED}")):
            with subtests.test(rule, field=field, method=method):
                got = await send(raw, method, where, name="n", components=components)
                assert (got.status, got.rule) == (400, rule)
                assert [parameter for _, parameter in got.codes] == [f"components[0].{field}"]


@pytest.mark.rule("CARD-06", "CARD-07c", "CARD-07d", "CARD-07e")
async def test_what_an_app_button_may_hold(raw: RawClient, path: str) -> None:
    both = {
        **APP,
        "ios_app_store_identifier": "333",
        "ios_deep_link": "harbour://1",
        "googleplay_deep_link": "harbour://2",
    }
    ios = {"type": "APP", "country_code": "NO", "ios_app_store_identifier": "333", "ios_deep_link": "harbour://1"}
    for destination in (both, ios):
        for value in ("BOOK", "CONNECT", "INSTALL", "OPEN", "ORDER", "PLAY", "SHOP"):
            label = {"type": "ENUM", "value": value}
            button = {"type": "BUTTON", "label": label, "destination": destination}
            assert (await send(raw, "POST", path, name="n", components=[media(), button])).status == 200


@pytest.mark.rule("CARD-05")
async def test_media_are_images_and_videos_of_the_account(raw: RawClient, path: str) -> None:
    assert (await send(raw, "POST", path, name="n", components=[media(GIF), DETAILS])).rule == "CARD-05"
    for unknown in ("3_1", "3_880501"):
        assert (await send(raw, "POST", path, name="n", components=[media(unknown), DETAILS])).status == 404


@pytest.mark.rule("CARD-09", "CARD-08")
async def test_each_given_field_replaces_the_old_value(raw: RawClient, path: str) -> None:
    await raw.clock.advance(hours=1)
    ((before),) = (await raw("GET", f"{path}/{SEEDED}")).data
    renamed = (await send(raw, "PUT", f"{path}/{SEEDED}", name="Autumn list")).data
    assert renamed == {**before, "name": "Autumn list", "updated_at": "2026-06-10T13:00:00Z"}
    changed = (await send(raw, "PUT", f"{path}/{SEEDED}", components=[BUTTON, media(VIDEO)])).data
    assert (changed["card_type"], changed["components"]) == ("VIDEO_APP", [BUTTON, media(VIDEO)])
    slides = [[media(), DETAILS], [media(VIDEO), DETAILS]]
    turned = (await send(raw, "PUT", f"{path}/{SEEDED}", slides=slides)).data
    assert (turned["card_type"], turned["slides"]) == ("MIXED_MEDIA_MULTI_DEST_CAROUSEL_WEBSITE", slides)
    assert "components" not in turned
    assert turned["name"] == "Autumn list"
    for unknown in ("nothing", LEGACY):
        assert (await send(raw, "PUT", f"{path}/{unknown}", name="n")).status == 404


@pytest.mark.rule("CARD-12", "CARD-15", "GEN-14", "GEN-14b")
async def test_only_a_legacy_card_can_be_deleted(raw: RawClient, path: str) -> None:
    assert (await raw("DELETE", f"{path}/{SEEDED}")).status == 404
    assert (await raw("DELETE", f"{path}/image_conversation/{SEEDED}")).status == 404
    got = await raw("DELETE", f"{path}/image_conversation/{LEGACY}")
    assert (got.data["id"], got.data["deleted"]) == (LEGACY, True)
    assert await list_ids(raw, path, include_legacy_cards="true") == [SEEDED]
    assert await list_ids(raw, path, include_legacy_cards="true", with_deleted="true") == [SEEDED, LEGACY]
    assert (await raw("GET", f"{path}/{LEGACY}")).status == 404
    assert (await raw("DELETE", f"{path}/image_conversation/{LEGACY}")).status == 404
