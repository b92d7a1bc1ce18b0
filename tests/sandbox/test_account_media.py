import pytest

from tests.support.raw_client import RawClient

FIELDS = {"id", "creative_type", "video_id", "media_url", "created_at", "updated_at", "deleted"}
BANNER, VAST, ANOTHERS = "2wrdq", "2wrer", "2wrfs"


@pytest.fixture
def path(raw: RawClient) -> str:
    return f"{raw.account}/account_media"


async def list_ids(raw: RawClient, path: str, **query: str) -> list[str]:
    return [record["id"] for record in (await raw("GET", path, query)).data]


@pytest.mark.rule("AM-01", "AM-03", "GEN-12b")
async def test_the_list_returns_the_account_s_media(raw: RawClient, path: str) -> None:
    got = await raw("GET", path, {"with_total_count": "true"})
    assert [record["id"] for record in got.data] == [BANNER, VAST]
    assert got.json["total_count"] == 2
    assert all(record.keys() == FIELDS for record in got.data)
    assert [(record["video_id"], record["media_url"] is None) for record in got.data] == [
        (None, False),
        ("880111213", True),
    ]


@pytest.mark.rule("AM-01", "GEN-17", "LIM-07")
async def test_ids_and_creative_types_choose(raw: RawClient, path: str) -> None:
    assert await list_ids(raw, path, account_media_ids=f"{VAST},nothing") == [VAST]
    assert await list_ids(raw, path, creative_types="BANNER,PREROLL") == [BANNER]
    assert await list_ids(raw, path, creative_types="BANNER", account_media_ids=VAST) == []
    assert await list_ids(raw, path, account_media_ids=",".join(["a"] * 200)) == []
    for wrong in ({"account_media_ids": ",".join(["a"] * 201)}, {"creative_types": "BANNER,POSTER"}):
        got = await raw("GET", path, wrong)
        assert (got.status, got.codes) == (400, [("INVALID_PARAMETER", next(iter(wrong)))])


@pytest.mark.rule("AM-01")
async def test_the_list_sorts_and_pages(raw: RawClient, path: str) -> None:
    assert await list_ids(raw, path, sort_by="creative_type-desc") == [VAST, BANNER]
    first = await raw("GET", path, {"count": 1})
    assert await list_ids(raw, path, cursor=first.json["next_cursor"]) == [VAST]
    for count in ("0", "1001"):
        assert (await raw("GET", path, {"count": count})).status == 400


async def test_one_is_read_but_not_another_s(raw: RawClient, path: str) -> None:
    assert (await raw("GET", f"{path}/{BANNER}")).data["creative_type"] == "BANNER"
    got = await raw("GET", f"{path}/{ANOTHERS}")
    assert (got.status, got.codes) == (404, [("ACCOUNT_MEDIA_NOT_FOUND", "account_media_id")])


@pytest.mark.rule("AM-01b", "CARD-15", "GEN-14", "GEN-14b")
async def test_deletion_is_soft_and_final(raw: RawClient, path: str) -> None:
    assert (await raw("DELETE", f"{path}/{BANNER}")).data["deleted"] is True
    assert await list_ids(raw, path) == [VAST]
    assert await list_ids(raw, path, with_deleted="true") == [BANNER, VAST]
    assert (await raw("GET", f"{path}/{BANNER}")).status == 404
    assert (await raw("GET", f"{path}/{BANNER}", {"with_deleted": "true"})).data["deleted"] is True
    assert (await raw("DELETE", f"{path}/{BANNER}")).status == 404
