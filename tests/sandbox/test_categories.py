import pytest

from svc_async.sandbox import SandboxConfig
from tests.support.raw_client import RawClient

OF_ADVERTISERS = "/12/advertiser_business_categories"
NAMES = {
    "Consumer Packaged Goods",
    "Health & Pharma",
    "Alcohol",
    "Dining",
    "Financial Services",
    "Retail",
    "Travel",
    "Gaming",
    "Technology",
    "Telecommunication",
    "Auto",
    "Media & Entertainment",
    "Politics",
    "Gambling",
    "Dating",
    "Non-Profit",
}
BOOKS, TRAVEL = "9ddrgesiap6o", "9ddrgesiap7p"
CHOSEN = "43853bhii885"


@pytest.mark.rule("CAT-01", "GEN-04")
async def test_the_list_shows_the_sixteen_names_with_their_iab_categories(raw: RawClient) -> None:
    got = await raw("GET", OF_ADVERTISERS)
    assert got.json.keys() == {"request", "next_cursor", "data"}
    assert {category["name"] for category in got.data} == NAMES
    assert all(category.keys() == {"id", "name", "iab_categories"} for category in got.data)
    assert all(isinstance(iab, str) for category in got.data for iab in category["iab_categories"])


@pytest.mark.rule("CAT-01")
@pytest.mark.parametrize("config", [SandboxConfig(rate_limits=False)])
async def test_the_list_takes_no_parameters(raw: RawClient) -> None:
    for name in ("count", "cursor", "sort_by", "with_deleted", "with_total_count"):
        assert (await raw("GET", OF_ADVERTISERS, {name: "1"})).codes == [("INVALID_PARAMETER", name)]


async def test_calls_without_an_account_share_a_low_limit(raw: RawClient) -> None:
    assert (await raw("GET", OF_ADVERTISERS)).headers["x-rate-limit-limit"] == "5"


@pytest.mark.rule("CAT-02", "GEN-03")
async def test_a_curated_category_is_read(raw: RawClient) -> None:
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


async def test_an_unknown_curated_category_is_not_found(raw: RawClient) -> None:
    got = await raw("GET", f"{raw.account}/curated_categories/nothing")
    assert (got.status, got.codes) == (404, [("CURATED_CATEGORY_NOT_FOUND", "curated_category_id")])
    assert (await raw("GET", f"{raw.account}/curated_categories/{BOOKS}", {"with_deleted": "true"})).status == 400


@pytest.mark.rule("CAT-02")
@pytest.mark.parametrize("config", [SandboxConfig(account_countries={"18ce54d4x5t": "PT"})])
async def test_a_curated_category_is_available_in_its_countries_only(raw: RawClient) -> None:
    assert (await raw("GET", f"{raw.account}/curated_categories/{BOOKS}")).status == 200
    assert (await raw("GET", f"{raw.account}/curated_categories/{TRAVEL}")).status == 404


@pytest.fixture
def path(raw: RawClient) -> str:
    return f"{raw.account}/line_item_curated_categories"


@pytest.mark.rule("LICC-03")
async def test_one_is_chosen_by_two_ids(raw: RawClient, path: str) -> None:
    given = {"line_item_id": "9cqi2", "curated_category_id": "9ddrgesiap6o"}
    got = await raw("POST", path, given)
    assert got.data.items() >= given.items()
    assert got.json["request"]["params"] == {"account_id": raw.sandbox.account_id, **given}
    assert (await raw("GET", f"{path}/{got.data['id']}")).data == got.data


@pytest.mark.rule("LICC-03")
async def test_both_ids_are_required_and_each_missing_one_is_named(raw: RawClient, path: str) -> None:
    got = await raw("POST", path)
    assert got.status == 400
    assert got.codes == [("MISSING_PARAMETER", "line_item_id"), ("MISSING_PARAMETER", "curated_category_id")]
    assert (got.rule, got.basis) == ("LICC-03", "spec")


async def test_ids_that_name_nothing_are_refused(raw: RawClient, path: str) -> None:
    for given, code in (
        ({"line_item_id": "x", "curated_category_id": "9ddrgesiap6o"}, "LINE_ITEM_NOT_FOUND"),
        ({"line_item_id": "9cqi2", "curated_category_id": "x"}, "CURATED_CATEGORY_NOT_FOUND"),
    ):
        got = await raw("POST", path, given)
        assert (got.status, got.codes[0][0]) == (404, code)
    assert len((await raw("GET", path)).data) == 2


@pytest.mark.rule("LICC-04")
async def test_either_id_may_be_changed_alone(raw: RawClient, path: str) -> None:
    got = await raw("PUT", f"{path}/{CHOSEN}", {"line_item_id": "9cqi2"})
    assert (got.data["line_item_id"], got.data["curated_category_id"]) == ("9cqi2", "9ddrgesiap6o")
    got = await raw("PUT", f"{path}/{CHOSEN}", {"curated_category_id": "9ddrgesiap7p"})
    assert (got.data["line_item_id"], got.data["curated_category_id"]) == ("9cqi2", "9ddrgesiap7p")
    assert (await raw("PUT", f"{path}/{CHOSEN}", {"line_item_id": "x"})).status == 404
    await raw("DELETE", f"{path}/{CHOSEN}")
    assert (await raw("PUT", f"{path}/{CHOSEN}", {"line_item_id": "9cqi2"})).status == 404
