import pytest

from svc_async.sandbox import SandboxConfig
from tests.support.raw_client import RawClient

PATH = "/12/advertiser_business_categories"
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


@pytest.mark.rule("CAT-01", "GEN-04")
async def test_the_list_shows_the_sixteen_names_with_their_iab_categories(raw: RawClient) -> None:
    got = await raw("GET", PATH)
    assert got.json.keys() == {"request", "next_cursor", "data"}
    assert {category["name"] for category in got.data} == NAMES
    assert all(category.keys() == {"id", "name", "iab_categories"} for category in got.data)
    assert all(isinstance(iab, str) for category in got.data for iab in category["iab_categories"])


@pytest.mark.rule("CAT-01")
@pytest.mark.parametrize("config", [SandboxConfig(rate_limits=False)])
async def test_the_list_takes_no_parameters(raw: RawClient) -> None:
    for name in ("count", "cursor", "sort_by", "with_deleted", "with_total_count"):
        assert (await raw("GET", PATH, {name: "1"})).codes == [("INVALID_PARAMETER", name)]


async def test_calls_without_an_account_share_a_low_limit(raw: RawClient) -> None:
    assert (await raw("GET", PATH)).headers["x-rate-limit-limit"] == "5"
