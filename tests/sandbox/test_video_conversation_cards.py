from typing import Any

import pytest

from tests.support.raw_client import RawClient

FIELDS = {
    "id",
    "name",
    "card_uri",
    "card_type",
    "title",
    "first_cta",
    "first_cta_post",
    "second_cta",
    "second_cta_post",
    "third_cta",
    "third_cta_post",
    "fourth_cta",
    "fourth_cta_post",
    "thank_you_text",
    "thank_you_url",
    "media_key",
    "media_url",
    "poster_media_url",
    "video_owner_id",
    "video_height",
    "video_width",
    "created_at",
    "updated_at",
    "deleted",
}
VIDEO, SQUARE, PROMO, IMAGE = "7_880301", "7_880302", "13_880401", "3_880101"
REQUIRED = {
    "first_cta": "#ReadMore",
    "first_cta_post": "I read more",
    "media_key": VIDEO,
    "name": "Reading",
    "thank_you_text": "Thanks",
}
GOOD = REQUIRED | {"title": "Read with us"}


@pytest.fixture
def path(raw: RawClient) -> str:
    return f"{raw.account}/cards/video_conversation"


@pytest.fixture
async def made(raw: RawClient, path: str) -> dict[str, Any]:
    card: dict[str, Any] = (await raw("POST", path, GOOD)).data
    return card


@pytest.mark.rule("VCC-01f", "VCC-06", "CARD-13", "GEN-12b")
async def test_a_card_is_made(raw: RawClient, path: str, made: dict[str, Any]) -> None:
    assert made.keys() == FIELDS
    assert made.items() >= GOOD.items()
    assert (made["card_type"], made["card_uri"]) == ("VIDEO_CONVERSATION", f"card://{made['id']}")
    assert (made["video_width"], made["video_height"]) == ("1920", "1080")
    assert (await raw("GET", f"{path}/{made['id']}")).data == made


@pytest.mark.rule("VCC-01")
async def test_the_hash_sign_does_not_count_in_the_first_cta(raw: RawClient, path: str) -> None:
    assert (await raw("POST", path, GOOD | {"first_cta": "#" + "x" * 20})).status == 200
    assert (await raw("POST", path, GOOD | {"first_cta": "#" + "x" * 21})).status == 400


@pytest.mark.rule("VCC-01c", "VCC-01d")
async def test_a_title_or_a_second_cta_is_needed(raw: RawClient, path: str) -> None:
    got = await raw("POST", path, REQUIRED)
    assert (got.status, got.codes) == (400, [("MISSING_PARAMETER", "title"), ("MISSING_PARAMETER", "second_cta")])
    second = {"second_cta": "#Later", "second_cta_post": "later"}
    assert (await raw("POST", path, REQUIRED | second)).data["title"] is None
    assert (await raw("POST", path, GOOD | second)).status == 200


@pytest.mark.rule("VCC-02", "VCC-02b", "VCC-02c")
async def test_a_cta_needs_its_post(raw: RawClient, path: str, subtests: pytest.Subtests) -> None:
    for which, rule in [("second", "VCC-02"), ("third", "VCC-02b"), ("fourth", "VCC-02c")]:
        with subtests.test(which=which, rule=rule):
            got = await raw("POST", path, GOOD | {f"{which}_cta": "#Go"})
            assert (got.status, got.codes, got.rule) == (400, [("MISSING_PARAMETER", f"{which}_cta_post")], rule)
            good = await raw("POST", path, GOOD | {f"{which}_cta": "#Go", f"{which}_cta_post": "went"})
            assert good.data[f"{which}_cta_post"] == "went"


@pytest.mark.rule("VCC-03")
async def test_the_medium_is_a_video_of_the_library_in_16_to_9(raw: RawClient, path: str) -> None:
    for wrong in (SQUARE, IMAGE):
        got = await raw("POST", path, GOOD | {"media_key": wrong})
        assert (got.status, got.codes, got.rule) == (400, [("INVALID_PARAMETER", "media_key")], "VCC-03")
    for unknown in (PROMO, "7_1"):
        assert (await raw("POST", path, GOOD | {"media_key": unknown})).status == 404


@pytest.mark.rule("VCC-03b")
async def test_the_poster_is_a_long_and_else_the_first_frame(raw: RawClient, path: str, made: dict[str, Any]) -> None:
    video = (await raw("GET", f"{raw.account}/media_library/{VIDEO}")).data
    assert made["poster_media_url"] == video["poster_media_url"]
    named = (await raw("POST", path, GOOD | {"poster_media_key": "880101"})).data
    assert IMAGE in named["poster_media_url"]
    changed = (await raw("PUT", f"{path}/{made['id']}", {"poster_media_key": "880101"})).data
    assert changed["poster_media_url"] == named["poster_media_url"]
    for wrong in (IMAGE, "1.5", str(2**63)):
        got = await raw("POST", path, GOOD | {"poster_media_key": wrong})
        assert (got.status, got.codes, got.rule) == (400, [("INVALID_PARAMETER", "poster_media_key")], "VCC-03b")
    assert (await raw("POST", path, GOOD | {"poster_media_key": "1"})).status == 404


@pytest.mark.rule("VCC-04")
async def test_the_keys_of_what_is_unlocked_are_not_shown(raw: RawClient, path: str) -> None:
    unlocked = {"unlocked_image_media_key": IMAGE, "unlocked_video_media_key": VIDEO}
    got = (await raw("POST", path, GOOD | unlocked)).data
    assert got.keys() == FIELDS
    for name, wrong in (("unlocked_image_media_key", VIDEO), ("unlocked_video_media_key", IMAGE)):
        assert (await raw("POST", path, GOOD | {name: wrong})).codes == [("INVALID_PARAMETER", name)]
        assert (await raw("POST", path, GOOD | {name: "3_1"})).status == 404


@pytest.mark.rule("VCC-05")
async def test_an_update_changes_what_is_given(raw: RawClient, path: str, made: dict[str, Any]) -> None:
    where = f"{path}/{made['id']}"
    await raw("POST", f"{raw.account}/media_library", {"media_key": PROMO})
    await raw.clock.advance(hours=1)
    assert (await raw("PUT", where)).data == {**made, "updated_at": "2026-06-10T13:00:00Z"}
    for name in (*GOOD, "thank_you_url"):
        value = PROMO if name == "media_key" else "new"
        assert (await raw("PUT", where, {name: value})).data[name] == value
    assert (await raw("GET", where)).data["video_width"] == "1280"
    assert (await raw("PUT", where, {"thank_you_url": ""})).data["thank_you_url"] is None
    assert (await raw("PUT", f"{path}/nothing", {"name": "n"})).status == 404


async def test_a_changed_card_must_be_whole(raw: RawClient, path: str) -> None:
    made = (await raw("POST", path, GOOD)).data["id"]
    for change in ({"title": ""}, {"second_cta": "#Go"}):
        assert (await raw("PUT", f"{path}/{made}", change)).status == 400


async def test_no_deletion_is_shown(raw: RawClient, path: str, made: dict[str, Any]) -> None:
    assert (await raw("DELETE", f"{path}/{made['id']}")).codes == [("ROUTE_NOT_FOUND", None)]
