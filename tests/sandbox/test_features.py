from typing import Any

import pytest

from svc_async.sandbox.api.ads.features import ACCEPTED
from tests.support.raw_client import RawClient

SEEDED = [
    "REACH_AND_FREQUENCY_ANALYTICS",
    "WEBSITE_CLICKS_CPM_BILLING",
    "AGE_TARGETING",
    "CITY_TARGETING",
    "PROMOTED_MEDIA_POLLS",
]


@pytest.fixture
def path(raw: RawClient) -> str:
    return f"{raw.account}/features"


async def write(raw: RawClient, method: str, keys: str) -> Any:
    return await raw(method, f"{raw.account}/features", {"feature_keys": keys}, base=raw.sandbox.ads_sandbox_url)


@pytest.mark.rule("FEAT-01", "FEAT-03", "FEAT-04")
async def test_a_read_returns_the_features_of_the_account(raw: RawClient, path: str) -> None:
    got = await raw("GET", path)
    assert got.json.keys() == {"request", "data"}
    assert got.data == SEEDED


@pytest.mark.rule("FEAT-01", "FEAT-01b")
async def test_a_read_may_ask_for_some_of_three_keys(raw: RawClient, path: str) -> None:
    got = await raw("GET", path, {"feature_keys": "REACH_FREQUENCY_CAP,WEBSITE_CLICKS_CPM_BILLING"})
    assert got.data == ["WEBSITE_CLICKS_CPM_BILLING"]
    refused = await raw("GET", path, {"feature_keys": "REACH_FREQUENCY_CAP,AGE_TARGETING"})
    assert (refused.status, refused.codes, refused.rule) == (400, [("INVALID_PARAMETER", "feature_keys")], "FEAT-01b")


@pytest.mark.rule("FEAT-02", "FEAT-02b", "FEAT-03")
async def test_all_22_keys_can_be_added_once_each(raw: RawClient, path: str) -> None:
    assert len(ACCEPTED) == 22
    got = await write(raw, "POST", ",".join(ACCEPTED))
    assert got.data == [*SEEDED, *(key for key in ACCEPTED if key not in SEEDED)]
    assert (await raw("GET", path)).data == got.data


@pytest.mark.rule("FEAT-02b")
async def test_no_other_key_can_be_added(raw: RawClient, path: str, subtests: pytest.Subtests) -> None:
    for key in ["CITY_TARGETING", "WEBSITE_CLICKS_CPM_BILLING", "SHARE_AUDIENCE_OUTSIDE_BUSINESS", "X"]:
        with subtests.test(key=key):
            got = await write(raw, "POST", f"BRAND_TPN,{key}")
            assert (got.status, got.codes, got.rule) == (400, [("INVALID_PARAMETER", "feature_keys")], "FEAT-02b")
            assert (await raw("GET", path)).data == SEEDED


@pytest.mark.rule("FEAT-02", "FEAT-03")
async def test_keys_are_removed(raw: RawClient, path: str) -> None:
    got = await write(raw, "DELETE", "AGE_TARGETING,CITY_TARGETING,BRAND_TPN")
    assert got.data == ["REACH_AND_FREQUENCY_ANALYTICS", "WEBSITE_CLICKS_CPM_BILLING", "PROMOTED_MEDIA_POLLS"]
    assert (await raw("GET", path)).data == got.data
    assert (await write(raw, "DELETE", "NONSENSE")).codes == [("INVALID_PARAMETER", "feature_keys")]


@pytest.mark.rule("FEAT-02")
@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_writes_exist_in_the_sandbox_only_and_need_keys(raw: RawClient, path: str, method: str) -> None:
    refused = await raw(method, path, {"feature_keys": "BRAND_TPN"})
    assert (refused.status, refused.codes) == (404, [("ROUTE_NOT_FOUND", None)])
    without = await raw(method, path, base=raw.sandbox.ads_sandbox_url)
    assert (without.status, without.codes) == (400, [("MISSING_PARAMETER", "feature_keys")])


async def test_a_new_account_holds_nothing(raw: RawClient) -> None:
    account = raw.sandbox.add_account()
    assert (await raw("GET", f"/12/accounts/{account}/features")).data == []
