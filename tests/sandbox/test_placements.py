import pytest

from tests.support.raw_client import RawClient

PATH = "/12/line_items/placements"


@pytest.mark.rule("PLC-01")
async def test_all_product_types_are_listed_with_their_placements(raw: RawClient) -> None:
    got = await raw("GET", PATH)
    assert got.json.keys() == {"request", "data"}
    assert [entry["product_type"] for entry in got.data] == ["MEDIA", "PROMOTED_ACCOUNT", "PROMOTED_POSTS"]
    assert all(entry.keys() == {"product_type", "placements"} for entry in got.data)
    found = {place for entry in got.data for group in entry["placements"] for place in group}
    assert found == {"ALL_ON_SVC", "SVC_TIMELINE", "PUBLISHER_NETWORK"}


@pytest.mark.rule("PLC-01")
async def test_one_product_type_may_be_asked_for(raw: RawClient) -> None:
    got = await raw("GET", PATH, {"product_type": "MEDIA"})
    assert got.data == [{"product_type": "MEDIA", "placements": [["PUBLISHER_NETWORK"]]}]
    refused = await raw("GET", PATH, {"product_type": "MEDIA,PROMOTED_POSTS"})
    assert (refused.status, refused.codes, refused.rule) == (400, [("INVALID_PARAMETER", "product_type")], "PLC-01")
