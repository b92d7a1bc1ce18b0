import pytest

from tests.support.raw_client import RawClient

TEXT_FIELDS = {
    "id",
    "name",
    "card_uri",
    "card_type",
    "first_choice",
    "second_choice",
    "third_choice",
    "fourth_choice",
    "duration_in_minutes",
    "start_time",
    "end_time",
    "created_at",
    "updated_at",
    "deleted",
}
MEDIA_FIELDS = {
    "video_url",
    "video_hls_url",
    "video_height",
    "video_width",
    "video_poster_url",
    "video_poster_height",
    "video_poster_width",
    "content_duration_seconds",
}
GOOD = {"duration_in_minutes": "60", "first_choice": "Prose", "second_choice": "Verse", "name": "What next"}
IMAGE, SQUARE, NARROW, GIF, VIDEO = "3_880101", "3_880102", "3_880103", "16_880201", "7_880301"


@pytest.fixture
def path(raw: RawClient) -> str:
    return f"{raw.account}/cards/poll"


@pytest.mark.rule("POLL-01", "POLL-01b", "POLL-03", "POLL-07", "CARD-13", "GEN-12b")
async def test_a_poll_runs_from_its_creation_on(raw: RawClient, path: str) -> None:
    got = (await raw("POST", path, GOOD)).data
    assert got.keys() == TEXT_FIELDS
    assert got.items() >= GOOD.items()
    assert (got["card_type"], got["card_uri"]) == ("TEXT_POLLS", f"card://{got['id']}")
    assert (got["start_time"], got["end_time"]) == ("2026-06-10T12:00:00Z", "2026-06-10T13:00:00Z")
    assert (got["third_choice"], got["fourth_choice"]) == (None, None)
    assert (await raw("GET", f"{path}/{got['id']}")).data == got
    assert (await raw("GET", path)).data == [got]


async def test_the_later_choices_are_as_long_as_the_first(raw: RawClient, path: str) -> None:
    for choices in ({"third_choice": "x" * 26}, {"third_choice": "x", "fourth_choice": "x" * 26}):
        got = await raw("POST", path, GOOD | choices)
        assert (got.status, got.rule, got.basis) == (400, "ASM-133", "assumed")


@pytest.mark.rule("POLL-02b", "POLL-02c")
async def test_a_choice_needs_those_before_it(raw: RawClient, path: str) -> None:
    got = await raw("POST", path, GOOD | {"fourth_choice": "Maps"})
    assert (got.status, got.codes, got.rule) == (400, [("MISSING_PARAMETER", "third_choice")], "POLL-02c")
    without = {name: value for name, value in GOOD.items() if name != "second_choice"}
    got = await raw("POST", path, without | {"third_choice": "Essays"})
    assert (got.status, got.codes) == (400, [("MISSING_PARAMETER", "second_choice")])
    got = await raw("POST", path, GOOD | {"third_choice": "Essays", "fourth_choice": "Maps"})
    assert (got.data["third_choice"], got.data["fourth_choice"]) == ("Essays", "Maps")


@pytest.mark.rule("POLL-04", "POLL-04b", "POLL-07", "POLL-08")
async def test_a_poll_with_a_video_shows_the_video_and_not_its_key(raw: RawClient, path: str) -> None:
    got = (await raw("POST", path, GOOD | {"media_key": VIDEO})).data
    assert got.keys() == TEXT_FIELDS | MEDIA_FIELDS
    assert (got["card_type"], got["content_duration_seconds"]) == ("VIDEO_POLLS", "15")
    assert (got["video_width"], got["video_height"]) == ("1920", "1080")
    assert all(got[name] is not None for name in MEDIA_FIELDS)
    assert (await raw("GET", f"{path}/{got['id']}")).data == got


@pytest.mark.rule("POLL-04", "POLL-04b")
async def test_an_image_needs_its_width_and_its_ratio(raw: RawClient, path: str) -> None:
    got = (await raw("POST", path, GOOD | {"media_key": IMAGE})).data
    assert got.keys() == TEXT_FIELDS | MEDIA_FIELDS
    assert (got["card_type"], got["video_url"], got["video_poster_width"]) == ("TEXT_POLLS", None, "1200")
    for wrong in (SQUARE, NARROW, GIF):
        refused = await raw("POST", path, GOOD | {"media_key": wrong})
        assert (refused.status, refused.codes, refused.rule) == (400, [("INVALID_PARAMETER", "media_key")], "POLL-04")


@pytest.mark.rule("POLL-04")
async def test_the_medium_is_one_of_the_media_library(raw: RawClient, path: str) -> None:
    for unknown in ("3_1", "3_880104", "3_880501"):
        got = await raw("POST", path, GOOD | {"media_key": unknown})
        assert (got.status, got.codes) == (404, [("MEDIA_NOT_FOUND", "media_key")])


@pytest.mark.rule("POLL-04c")
async def test_media_need_the_account_s_feature(raw: RawClient, path: str) -> None:
    assert (await raw("POST", path, GOOD | {"media_key": VIDEO})).status == 200
    keys = {"feature_keys": "PROMOTED_MEDIA_POLLS"}
    await raw("DELETE", f"{raw.account}/features", keys, base=raw.sandbox.ads_sandbox_url)
    got = await raw("POST", path, GOOD | {"media_key": VIDEO})
    assert (got.status, got.codes, got.rule) == (400, [("FEATURE_NOT_AVAILABLE", "media_key")], "POLL-04c")
    assert (await raw("POST", path, GOOD)).status == 200


@pytest.mark.rule("POLL-05")
async def test_a_poll_cannot_be_changed(raw: RawClient, path: str) -> None:
    made = (await raw("POST", path, GOOD)).data
    assert (await raw("PUT", f"{path}/{made['id']}", {"name": "n"})).codes == [("ROUTE_NOT_FOUND", None)]
    assert (await raw("GET", f"{path}/{made['id']}")).data == made
