import pytest

from svc_async.sandbox import SandboxConfig
from tests.support.raw_client import RawClient

BOOKS, TRAVEL = "9ddrgesiap6o", "9ddrgesiap7p"


@pytest.mark.rule("CAT-02", "GEN-03")
async def test_one_is_read(raw: RawClient) -> None:
    got = await raw("GET", f"{raw.account}/curated_categories/{BOOKS}")
    assert got.json.keys() == {"request", "data"}
    assert got.data == {
        "id": BOOKS,
        "name": "Books and letters",
        "description": "Publishers who speak about books",
        "country_codes": ["PT", "NO"],
        "publisher_user_ids": ["913311844217532417", "913311844217532418"],
        "videos_monetized_in_last_thirty_days": 412,
        "created_at": "2026-06-10T12:00:00Z",
        "updated_at": "2026-06-10T12:00:00Z",
    }


async def test_an_unknown_one_is_not_found(raw: RawClient) -> None:
    got = await raw("GET", f"{raw.account}/curated_categories/nothing")
    assert (got.status, got.codes) == (404, [("CURATED_CATEGORY_NOT_FOUND", "curated_category_id")])
    assert (await raw("GET", f"{raw.account}/curated_categories/{BOOKS}", {"with_deleted": "true"})).status == 400


@pytest.mark.rule("CAT-02")
@pytest.mark.parametrize("config", [SandboxConfig(account_countries={"18ce54d4x5t": "PT"})])
async def test_it_is_available_in_its_countries_only(raw: RawClient) -> None:
    assert (await raw("GET", f"{raw.account}/curated_categories/{BOOKS}")).status == 200
    assert (await raw("GET", f"{raw.account}/curated_categories/{TRAVEL}")).status == 404
