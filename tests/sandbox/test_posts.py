import pytest

from svc_async.sandbox import VirtualClock
from tests.support.raw_client import RawClient

ME, OTHER = "756201191646691328", "913311844217532416"
GOOD = {"as_user_id": ME, "text": "New this spring"}
IMAGES = ("3_880101", "3_880102", "3_880103", "3_880104", "3_880105")
GIF, VIDEO, VIDEO_2 = "16_880201", "7_880301", "7_880302"


@pytest.fixture
def path(raw: RawClient) -> str:
    return f"{raw.account}/post"


@pytest.mark.rule("POST-01", "POST-14", "POST-06", "POST-07", "GEN-11")
async def test_a_post_is_made(raw: RawClient, path: str) -> None:
    got = (await raw("POST", path, GOOD)).data
    assert isinstance(got["id"], int)
    assert (got["id_str"], got["text"]) == (str(got["id"]), GOOD["text"])
    assert (got["nullcast"], got["tweet_type"], got["scheduled_at"]) == (True, "PUBLISHED", None)
    assert got["user"] == {"id": int(ME), "id_str": ME, "screen_name": "anna"}
    assert got["created_at"] == "2026-06-10T12:00:00Z"
    again = (await raw("POST", path, GOOD)).data
    assert again["id"] != got["id"]


@pytest.mark.rule("POST-02")
async def test_a_post_needs_a_text_or_media(raw: RawClient, path: str) -> None:
    got = await raw("POST", path, {"as_user_id": ME})
    assert (got.status, got.codes, got.rule) == (400, [("MISSING_PARAMETER", "text")], "POST-02")
    assert (await raw("POST", path, {"as_user_id": ME, "media_keys": IMAGES[0]})).status == 200


@pytest.mark.rule("POST-03")
async def test_media_are_4_images_or_1_gif_or_1_video(raw: RawClient, path: str, subtests: pytest.Subtests) -> None:
    for keys, status in [
        (IMAGES[:1], 200),
        (IMAGES[:4], 200),
        (IMAGES, 400),
        ((GIF,), 200),
        ((GIF, GIF), 400),
        ((VIDEO,), 200),
        ((VIDEO, VIDEO_2), 400),
        ((VIDEO, IMAGES[0]), 400),
        ((GIF, IMAGES[0]), 400),
    ]:
        with subtests.test(keys=keys, status=status):
            got = await raw("POST", path, GOOD | {"media_keys": ",".join(keys)})
            assert got.status == status
            if status == 400:
                assert (got.codes, got.rule) == ([("INVALID_PARAMETER", "media_keys")], "POST-03")
            else:
                assert [medium["media_key"] for medium in got.data["entities"]["media"]] == list(keys)


async def test_posting_marks_a_medium_as_posted(raw: RawClient, path: str) -> None:
    await raw("POST", path, GOOD | {"media_keys": GIF})
    library = {
        medium["media_key"]: medium["posted"] for medium in (await raw("GET", f"{raw.account}/media_library")).data
    }
    assert [key for key, posted in library.items() if posted] == [GIF]
    assert (await raw("POST", path, GOOD | {"media_keys": "3_1"})).status == 404


@pytest.mark.rule("POST-04", "POST-04b")
async def test_conversation_settings_are_taken_and_not_returned(raw: RawClient, path: str) -> None:
    for value in ("EVERYONE", "FOLLOWING", "MENTIONED_USERS"):
        got = await raw("POST", path, GOOD | {"conversation_settings": value})
        assert got.status == 200
        assert not any("conversation_settings" in name for name in got.data)


@pytest.mark.rule("POST-06", "POST-06b")
async def test_only_the_authenticated_user_posts_for_everybody(raw: RawClient, path: str) -> None:
    assert (await raw("POST", path, GOOD | {"nullcast": "false"})).data["nullcast"] is False
    got = await raw("POST", path, GOOD | {"nullcast": "false", "as_user_id": OTHER})
    assert (got.status, got.codes, got.rule) == (400, [("INVALID_PARAMETER", "nullcast")], "POST-06b")
    assert (await raw("POST", path, GOOD | {"as_user_id": OTHER})).data["user"]["screen_name"] == "bruno"


@pytest.mark.rule("POST-07")
async def test_a_trimmed_user_is_only_its_id(raw: RawClient, path: str) -> None:
    got = await raw("POST", path, GOOD | {"trim_user": "true"})
    assert got.data["user"] == {"id": int(ME), "id_str": ME}


@pytest.mark.rule("POST-08", "POST-14")
async def test_the_mode_decides_where_the_text_is(raw: RawClient, path: str) -> None:
    assert (await raw("POST", path, GOOD | {"post_mode": "compat"})).data["text"] == GOOD["text"]
    extended = (await raw("POST", path, GOOD | {"post_mode": "extended"})).data
    assert (extended["full_text"], "text" in extended) == (GOOD["text"], False)
    assert "text" in (await raw("POST", path, GOOD)).data


@pytest.mark.rule("ML-07", "POST-09", "POST-10")
async def test_a_video_s_title_is_shown_only_if_the_post_has_one(raw: RawClient, path: str) -> None:
    video = GOOD | {"media_keys": VIDEO}
    assert (await raw("POST", path, video)).data["entities"]["media"] == [{"media_key": VIDEO, "type": "VIDEO"}]
    words = {"video_title": "T" * 70, "video_description": "D" * 200}
    cta = {"video_cta": "WATCH_NOW", "video_cta_value": "https://harbour.example/"}
    (shown,) = (await raw("POST", path, video | words | cta)).data["entities"]["media"]
    assert (shown["title"], shown["description"], shown["cta"]) == ("T" * 70, "D" * 200, "WATCH_NOW")


@pytest.mark.rule("POST-12", "CARD-14")
async def test_a_card_of_any_kind_is_attached(raw: RawClient, path: str) -> None:
    poll = {"duration_in_minutes": 60, "first_choice": "a", "second_choice": "b", "name": "n"}
    uri = (await raw("POST", f"{raw.account}/cards/poll", poll)).data["card_uri"]
    for card_uri in (uri, "card://5rkb1"):
        assert (await raw("POST", path, GOOD | {"card_uri": card_uri})).data["card_uri"] == card_uri


@pytest.mark.rule("POST-12")
async def test_the_card_must_exist(raw: RawClient, path: str) -> None:
    got = await raw("POST", path, GOOD | {"card_uri": "card://1"})
    assert (got.status, got.codes) == (404, [("CARD_NOT_FOUND", "card_uri")])


@pytest.mark.rule("POST-05", "POST-11")
async def test_a_post_is_renamed(raw: RawClient, path: str) -> None:
    post = (await raw("POST", path, GOOD | {"name": "n" * 80})).data
    assert post["name"] == "n" * 80
    where = f"{raw.account}/posts/{post['id_str']}/name"
    assert (await raw("PUT", where, {"name": "é" * 80})).data == post | {"name": "é" * 80}
    assert (await raw("PUT", where)).data["name"] == "é" * 80
    assert (await raw("PUT", where, {"name": ""})).data["name"] is None
    for method, wrong in (("POST", path), ("PUT", where)):
        got = await raw(method, wrong, (GOOD if method == "POST" else {}) | {"name": "n" * 81})
        assert (got.status, got.codes, got.rule) == (400, [("INVALID_PARAMETER", "name")], "POST-05")
    assert (await raw("PUT", f"{raw.account}/posts/1/name", {"name": "n"})).status == 404


@pytest.mark.rule("POST-04")
async def test_older_versions_are_not_there(raw: RawClient) -> None:
    got = await raw("POST", f"/7/accounts/{raw.sandbox.account_id}/post", GOOD | {"conversation_settings": "EVERYONE"})
    assert got.codes == [("ROUTE_NOT_FOUND", None)]


@pytest.mark.rule("VER-05")
@pytest.mark.parametrize(
    ("clock", "status"),
    [(VirtualClock("2026-06-02T23:59:59Z"), 400), (VirtualClock("2026-06-03T00:00:00Z"), 200)],
    ids=["before", "after"],
)
async def test_paid_partnership_is_a_parameter_since_its_release(raw: RawClient, path: str, status: int) -> None:
    got = await raw("POST", path, GOOD | {"paid_partnership": "true"})
    assert got.status == status
    assert status == 200 or (got.codes, got.rule) == ([("INVALID_PARAMETER", "paid_partnership")], "VER-05")


@pytest.mark.rule("VER-05")
async def test_a_paid_partnership_is_a_boolean(raw: RawClient, path: str) -> None:
    got = await raw("POST", path, GOOD | {"paid_partnership": "maybe"})
    assert (got.status, got.codes) == (400, [("INVALID_PARAMETER", "paid_partnership")])
