import pytest

from svc_async.sandbox import SandboxConfig
from tests.support.raw_client import RawClient

FREE = SandboxConfig(rate_limits=False)
SHOWN_IN_LISTS = {
    "id",
    "name",
    "business_name",
    "business_id",
    "timezone",
    "timezone_switch_at",
    "approval_status",
    "created_at",
    "updated_at",
    "deleted",
}


@pytest.fixture
def config() -> SandboxConfig:
    return FREE


@pytest.mark.rule("ACC-01b", "ACC-06", "ACC-07", "ACC-09", "GEN-04", "GEN-12b")
async def test_the_list_shows_the_user_s_accounts_without_industry(raw: RawClient) -> None:
    raw.sandbox.add_account(name="Second")
    got = await raw("GET", "/12/accounts")
    assert got.json.keys() == {"request", "next_cursor", "data"}
    assert got.json["next_cursor"] is None
    assert [account["name"] for account in got.data] == ["Harbour Books", "Second"]
    assert all(account.keys() == SHOWN_IN_LISTS for account in got.data)
    assert got.data[0]["approval_status"] == "ACCEPTED"
    assert got.data[0]["timezone_switch_at"] is None
    assert got.data[1]["business_name"] is None


@pytest.mark.rule("ACC-01")
async def test_q_is_a_prefix_of_the_name_in_any_case(raw: RawClient) -> None:
    raw.sandbox.add_account(name="Old harbour")
    for prefix, found in (("HARB", 1), ("harbour books", 1), ("books", 0), ("old", 1)):
        assert len((await raw("GET", "/12/accounts", {"q": prefix})).data) == found


@pytest.mark.rule("GEN-17", "LIM-07")
async def test_account_ids_choose(raw: RawClient) -> None:
    second = raw.sandbox.add_account()
    got = await raw("GET", "/12/accounts", {"account_ids": f"{second},nowhere"})
    assert [account["id"] for account in got.data] == [second]
    assert got.json["request"] == {"params": {"account_ids": [second, "nowhere"]}}
    assert (await raw("GET", "/12/accounts", {"account_ids": "a,,b"})).status == 400


@pytest.mark.rule("ACC-02", "ACC-06", "GEN-03")
async def test_one_account_shows_its_industry(raw: RawClient) -> None:
    got = await raw("GET", raw.account)
    assert got.json.keys() == {"request", "data"}
    assert got.json["request"] == {"params": {"account_id": raw.sandbox.account_id}}
    assert got.data.keys() == SHOWN_IN_LISTS | {"industry_type"}
    assert got.data["industry_type"] == "RETAIL"


@pytest.mark.rule("ACC-03")
async def test_an_account_is_made_in_the_sandbox_only(raw: RawClient) -> None:
    refused = await raw("POST", "/12/accounts")
    assert (refused.status, refused.codes) == (404, [("ROUTE_NOT_FOUND", None)])
    got = await raw("POST", "/12/accounts", base=raw.sandbox.ads_sandbox_url)
    assert [account["deleted"] for account in got.data] == [False]
    assert (await raw("GET", f"/12/accounts/{got.data[0]['id']}")).status == 200
    unknown = await raw("POST", "/12/accounts", {"name": "mine"}, base=raw.sandbox.ads_sandbox_url)
    assert (unknown.status, unknown.codes) == (400, [("INVALID_PARAMETER", "name")])


@pytest.mark.rule("ACC-04")
async def test_an_update_changes_what_is_given(raw: RawClient) -> None:
    await raw.clock.advance(hours=1)
    got = await raw("PUT", raw.account, {"industry_type": "TRAVEL"})
    assert (got.data["name"], got.data["industry_type"]) == ("Harbour Books", "TRAVEL")
    assert got.data["updated_at"] == "2026-06-10T13:00:00Z"
    assert got.data["created_at"] == "2026-06-10T12:00:00Z"
    renamed = await raw("PUT", raw.account, {"name": "Bücher & mehr, 100 %"})
    assert (renamed.data["name"], renamed.data["industry_type"]) == ("Bücher & mehr, 100 %", "TRAVEL")
    assert (await raw("PUT", raw.account, {"industry_type": ""})).status == 400


@pytest.mark.rule("ACC-04")
async def test_an_update_takes_the_14_industries_only(raw: RawClient) -> None:
    refused = await raw("PUT", raw.account, {"industry_type": "SHOP", "name": ""})
    assert refused.status == 400
    assert refused.codes == [("INVALID_PARAMETER", "industry_type"), ("INVALID_PARAMETER", "name")]
    assert (await raw("GET", raw.account)).data["name"] == "Harbour Books"
    assert (await raw("PUT", raw.account, {"name": "  "})).status == 400


@pytest.mark.rule("ACC-05", "ACC-10", "GEN-14", "GEN-14b")
async def test_an_account_is_deleted_in_the_sandbox_only_and_softly(raw: RawClient) -> None:
    assert (await raw("DELETE", raw.account)).status == 404
    got = await raw("DELETE", raw.account, base=raw.sandbox.ads_sandbox_url)
    assert got.data["deleted"] is True
    assert (await raw("GET", raw.account)).status == 404
    assert (await raw("GET", raw.account, {"with_deleted": "true"})).data["deleted"] is True
    assert (await raw("GET", "/12/accounts")).data == []
    assert len((await raw("GET", "/12/accounts", {"with_deleted": "true"})).data) == 1
    assert (await raw("DELETE", raw.account, base=raw.sandbox.ads_sandbox_url)).status == 404
    assert (await raw("GET", f"{raw.account}/line_item_curated_categories")).status == 404


async def test_both_advertising_surfaces_share_one_state(raw: RawClient) -> None:
    await raw("PUT", raw.account, {"name": "Renamed"}, base=raw.sandbox.ads_sandbox_url)
    assert (await raw("GET", raw.account)).data["name"] == "Renamed"
