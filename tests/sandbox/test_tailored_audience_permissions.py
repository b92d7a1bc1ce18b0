from typing import Any

import pytest

from tests.support.raw_client import RawClient

FIELDS = {
    "id",
    "tailored_audience_id",
    "granted_account_id",
    "permission_level",
    "created_at",
    "updated_at",
    "deleted",
}
SISTER, STRANGER = "18ce55hq7w1", "18ce55gze09"
SHARING = "SHARE_AUDIENCE_OUTSIDE_BUSINESS"


@pytest.fixture
def path(raw: RawClient) -> str:
    return f"/5/accounts/{raw.sandbox.account_id}/tailored_audiences/tq4k1/permissions"


async def grant(raw: RawClient, path: str, account: str = SISTER, level: str = "READ_ONLY") -> Any:
    return await raw("POST", path, {"granted_account_id": account, "permission_level": level})


@pytest.mark.rule("TAP-01", "GEN-01")
async def test_permissions_live_in_version_5(raw: RawClient, path: str) -> None:
    assert (await raw("GET", path)).data == []
    twelfth = await raw("GET", path.replace("/5/", "/12/"))
    assert (twelfth.status, twelfth.codes) == (404, [("ROUTE_NOT_FOUND", None)])


@pytest.mark.rule("TAP-02", "GEN-03", "GEN-12b")
async def test_a_permission_is_granted(raw: RawClient, path: str) -> None:
    for level in ("READ_ONLY", "READ_WRITE"):
        got = await grant(raw, path, level=level)
        assert got.json.keys() == {"request", "data"}
        assert got.data.keys() == FIELDS
        assert (got.data["tailored_audience_id"], got.data["granted_account_id"]) == ("tq4k1", SISTER)
        assert (got.data["permission_level"], got.data["deleted"]) == (level, False)


@pytest.mark.rule("TAP-02")
async def test_account_and_level_are_required(raw: RawClient, path: str) -> None:
    got = await raw("POST", path)
    assert got.codes == [("MISSING_PARAMETER", "granted_account_id"), ("MISSING_PARAMETER", "permission_level")]
    assert (await grant(raw, path, account="nowhere")).codes == [("ACCOUNT_NOT_FOUND", "granted_account_id")]


@pytest.mark.rule("TAP-03")
async def test_only_the_owner_grants_and_revokes(raw: RawClient, path: str) -> None:
    raw.sandbox.grant_feature(SHARING)
    granted = (await grant(raw, path, account=STRANGER)).data["id"]
    raw.credentials = raw.sandbox.other_credentials
    theirs = path.replace(raw.sandbox.account_id, STRANGER)
    assert [permission["id"] for permission in (await raw("GET", theirs)).data] == [granted]
    for refused in (await grant(raw, theirs), await raw("DELETE", f"{theirs}/{granted}")):
        assert (refused.status, refused.rule, refused.basis) == (403, "TAP-03", "spec")
    assert len((await raw("GET", theirs)).data) == 1
    assert (await raw("GET", path)).status == 403


@pytest.mark.rule("TAP-04")
async def test_sharing_is_within_a_business_or_needs_its_feature(raw: RawClient, path: str) -> None:
    assert (await grant(raw, path, account=SISTER)).status == 200
    refused = await grant(raw, path, account=STRANGER)
    assert (refused.status, refused.codes) == (400, [("FEATURE_NOT_AVAILABLE", "granted_account_id")])
    assert refused.rule == "TAP-04"
    raw.sandbox.grant_feature(SHARING)
    assert (await grant(raw, path, account=STRANGER)).status == 200


@pytest.mark.rule("TAP-04")
async def test_accounts_without_a_business_have_none_in_common(raw: RawClient) -> None:
    raw.credentials = raw.sandbox.other_credentials
    path = f"/5/accounts/{STRANGER}/tailored_audiences/tq4k9/permissions"
    assert (await grant(raw, path, account=raw.sandbox.add_account())).rule == "TAP-04"


@pytest.mark.rule("TAP-01b", "GEN-04", "GEN-04b")
async def test_the_list_is_cut_sorted_and_counted(raw: RawClient, path: str) -> None:
    ids = [(await grant(raw, path, level=level)).data["id"] for level in ("READ_WRITE", "READ_ONLY", "READ_ONLY")]
    first = await raw("GET", path, {"count": 2, "sort_by": "permission_level-desc", "with_total_count": "true"})
    assert ([permission["id"] for permission in first.data], first.json["total_count"]) == ([ids[0], ids[2]], 3)
    query = {"count": 2, "sort_by": "permission_level-desc", "cursor": first.json["next_cursor"]}
    assert [permission["id"] for permission in (await raw("GET", path, query)).data] == [ids[1]]
    assert (await raw("GET", path, {"with_deleted": "true"})).status == 400


@pytest.mark.rule("TAP-01b", "GEN-17", "LIM-07")
async def test_the_list_is_chosen_by_ids(raw: RawClient, path: str) -> None:
    raw.sandbox.grant_feature(SHARING)
    one, other = [(await grant(raw, path, account=account)).data["id"] for account in (SISTER, STRANGER)]
    for query, found in (
        ({"granted_account_ids": f"{STRANGER},nowhere"}, [other]),
        ({"tailored_audience_permission_ids": f"{one},{other}"}, [one, other]),
        ({"tailored_audience_permission_ids": one, "granted_account_ids": STRANGER}, []),
    ):
        assert [permission["id"] for permission in (await raw("GET", path, query)).data] == found


@pytest.mark.rule("TAP-05", "GEN-14")
async def test_a_permission_is_revoked_once(raw: RawClient, path: str) -> None:
    granted = (await grant(raw, path)).data["id"]
    got = await raw("DELETE", f"{path}/{granted}")
    assert (got.data["id"], got.data["deleted"], got.data.keys()) == (granted, True, FIELDS)
    assert (await raw("GET", path)).data == []
    assert (await raw("DELETE", f"{path}/{granted}")).status == 404
    assert (await raw("DELETE", f"{path}/nothing")).codes[0][1] == "tailored_audience_permission_id"


@pytest.mark.rule("TAP-05c")
async def test_campaigns_run_on_after_a_permission_is_revoked(raw: RawClient, path: str) -> None:
    raw.sandbox.grant_feature(SHARING)
    granted = (await grant(raw, path, account=STRANGER)).data["id"]
    await raw("DELETE", f"{path}/{granted}")
    raw.credentials = raw.sandbox.other_credentials
    got = await raw("PUT", f"/12/accounts/{STRANGER}/line_items/9cqk1")
    assert (got.data["entity_status"], got.data["deleted"]) == ("ACTIVE", False)


async def test_an_unknown_audience_is_not_found(raw: RawClient, path: str) -> None:
    for audience in ("tq4k9", "nothing"):
        got = await raw("GET", path.replace("tq4k1", audience))
        assert (got.status, got.codes) == (404, [("TAILORED_AUDIENCE_NOT_FOUND", "tailored_audience_id")])
