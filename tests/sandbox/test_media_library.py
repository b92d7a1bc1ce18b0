import pytest

from tests.support.raw_client import RawClient

FIELDS = {
    "media_key",
    "name",
    "file_name",
    "title",
    "description",
    "media_url",
    "media_type",
    "media_category",
    "media_status",
    "posted",
    "duration",
    "aspect_ratio",
    "poster_media_url",
    "poster_media_key",
    "created_at",
    "updated_at",
    "deleted",
}
IMAGE, GIF, VIDEO = "3_880101", "16_880201", "7_880301"
NEW_IMAGE, NEW_VIDEO, UNCATEGORISED, ANOTHERS = "3_880104", "13_880401", "3_880106", "3_880501"


@pytest.fixture
def path(raw: RawClient) -> str:
    return f"{raw.account}/media_library"


async def list_keys(raw: RawClient, path: str, **query: str) -> list[str]:
    return [record["media_key"] for record in (await raw("GET", path, query)).data]


@pytest.mark.rule("ML-01", "ML-05", "GEN-12b")
async def test_the_list_returns_the_account_s_library(raw: RawClient, path: str) -> None:
    got = await raw("GET", path)
    assert [record["media_key"] for record in got.data] == [IMAGE, "3_880102", "3_880103", GIF, VIDEO, "7_880302"]
    assert all(record.keys() == FIELDS for record in got.data)
    assert {record["media_status"] for record in got.data} == {"TRANSCODE_COMPLETED"}
    assert (got.data[0]["duration"], got.data[4]["duration"], got.data[4]["aspect_ratio"]) == (None, 15000, "16:9")


@pytest.mark.rule("ML-02", "ML-02b")
async def test_an_upload_is_put_into_the_library(raw: RawClient, path: str) -> None:
    given = {"media_key": NEW_IMAGE, "name": "n" * 100, "file_name": "f" * 255}
    got = await raw("POST", path, given)
    assert got.data.items() >= given.items()
    assert (got.data["media_type"], got.data["media_category"], got.data["posted"]) == ("IMAGE", "POST_IMAGE", False)
    assert (await raw("GET", f"{path}/{NEW_IMAGE}")).data == got.data
    await raw("DELETE", f"{path}/{NEW_IMAGE}")
    assert (await raw("PUT", f"{path}/{NEW_IMAGE}", {"name": "n"})).status == 404
    assert (await raw("POST", path, {"media_key": NEW_IMAGE})).data["deleted"] is False


@pytest.mark.rule("ML-02")
async def test_only_the_account_s_categorised_uploads_are_taken(raw: RawClient, path: str) -> None:
    got = await raw("POST", path)
    assert (got.status, got.codes) == (400, [("MISSING_PARAMETER", "media_key")])
    got = await raw("POST", path, {"media_key": UNCATEGORISED})
    assert (got.status, got.codes, got.rule) == (400, [("INVALID_PARAMETER", "media_key")], "ML-02")
    for unknown in ("3_1", ANOTHERS):
        assert (await raw("POST", path, {"media_key": unknown})).status == 404
    assert (await raw("POST", path, {"media_key": IMAGE})).status == 400


@pytest.mark.rule("ML-02d")
async def test_some_fields_are_for_videos_only(raw: RawClient, path: str) -> None:
    given = {"description": "d", "poster_media_key": IMAGE, "title": "t"}
    for method, where, more in (("POST", path, {"media_key": NEW_IMAGE}), ("PUT", f"{path}/{GIF}", {})):
        got = await raw(method, where, {**more, **given})
        assert (got.status, got.rule) == (400, "ML-02d")
        assert got.codes == [("INVALID_PARAMETER", name) for name in given]
    assert (await raw("POST", path, {"media_key": NEW_VIDEO, **given})).data.items() >= given.items()


@pytest.mark.rule("ML-02c")
async def test_the_poster_is_the_first_frame_unless_it_is_named(raw: RawClient, path: str) -> None:
    first = (await raw("POST", path, {"media_key": NEW_VIDEO})).data
    assert first["poster_media_key"] in first["poster_media_url"]
    named = (await raw("PUT", f"{path}/{NEW_VIDEO}", {"poster_media_key": IMAGE})).data
    assert (named["poster_media_key"], IMAGE in named["poster_media_url"]) == (IMAGE, True)
    cleared = (await raw("PUT", f"{path}/{NEW_VIDEO}", {"poster_media_key": ""})).data
    assert cleared["poster_media_key"] == first["poster_media_key"]
    assert (await raw("PUT", f"{path}/{NEW_VIDEO}", {"poster_media_key": VIDEO})).status == 400
    assert (await raw("PUT", f"{path}/{NEW_VIDEO}", {"poster_media_key": "3_1"})).status == 404
    assert (await raw("GET", f"{path}/{IMAGE}")).data["poster_media_key"] is None


@pytest.mark.rule("ML-06")
async def test_an_unset_name_shows_as_a_label(raw: RawClient, path: str) -> None:
    assert (await raw("POST", path, {"media_key": NEW_IMAGE})).data["name"] == "Untitled media"
    assert (await raw("PUT", f"{path}/{IMAGE}", {"name": ""})).data["name"] == "Untitled media"
    assert NEW_IMAGE not in await list_keys(raw, path, q="untitled")


@pytest.mark.rule("ML-03")
async def test_an_update_changes_what_is_given(raw: RawClient, path: str) -> None:
    await raw.clock.advance(hours=1)
    before = (await raw("GET", f"{path}/{VIDEO}")).data
    got = await raw("PUT", f"{path}/{VIDEO}", {"title": "Come in", "description": ""})
    changes = {"title": "Come in", "description": None, "updated_at": "2026-06-10T13:00:00Z"}
    assert got.data == {**before, **changes}
    refused = await raw("PUT", f"{path}/{VIDEO}", {"media_key": IMAGE})
    assert (refused.status, refused.codes) == (400, [("INVALID_PARAMETER", "media_key")])


@pytest.mark.rule("AM-02")
async def test_a_promoted_video_becomes_preroll_account_media(raw: RawClient, path: str) -> None:
    await raw("POST", path, {"media_key": NEW_IMAGE})
    added = (await raw("POST", path, {"media_key": NEW_VIDEO})).data
    (preroll,) = (await raw("GET", f"{raw.account}/account_media", {"creative_types": "PREROLL"})).data
    assert (preroll["media_url"], preroll["video_id"]) == (added["media_url"], "880401")
    assert len((await raw("GET", f"{raw.account}/account_media")).data) == 3
