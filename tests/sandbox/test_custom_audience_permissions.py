from typing import Any

import pytest

from tests.support.raw_client import RawClient, hash_sha256

FIELDS = {
    "id",
    "custom_audience_id",
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
    return f"{raw.account}/custom_audiences/{raw.sandbox.audience_id}/permissions"


@pytest.fixture
def theirs(raw: RawClient) -> str:
    """The path of the audience, as the account of the stranger names it."""
    return f"/12/accounts/{STRANGER}/custom_audiences/{raw.sandbox.audience_id}"


async def grant(raw: RawClient, path: str, account: str = SISTER, level: str = "READ_ONLY") -> Any:
    return await raw("POST", path, {"granted_account_id": account, "permission_level": level})


@pytest.mark.rule("CAP-01")
async def test_an_account_is_granted_a_level(raw: RawClient, path: str) -> None:
    got = await raw("POST", path)
    assert got.codes == [("MISSING_PARAMETER", "granted_account_id"), ("MISSING_PARAMETER", "permission_level")]
    assert (got.rule, got.basis) == ("CAP-01", "public")
    assert (await grant(raw, path, account="nowhere")).codes == [("ACCOUNT_NOT_FOUND", "granted_account_id")]
    got = await grant(raw, path, level="READ_WRITE")
    assert (got.basis, got.json.keys(), got.data.keys()) == ("public", {"request", "data"}, FIELDS)
    assert (got.data["custom_audience_id"], got.data["granted_account_id"]) == (raw.sandbox.audience_id, SISTER)
    assert (got.data["permission_level"], got.data["deleted"]) == ("READ_WRITE", False)


@pytest.mark.rule("CAP-03")
async def test_sharing_is_within_a_business_or_needs_its_feature(raw: RawClient, path: str) -> None:
    assert (await grant(raw, path, account=SISTER)).status == 200
    refused = await grant(raw, path, account=STRANGER)
    assert (refused.status, refused.codes) == (400, [("FEATURE_NOT_AVAILABLE", "granted_account_id")])
    assert (refused.rule, refused.basis) == ("CAP-03", "public")
    raw.sandbox.grant_feature(SHARING)
    assert (await grant(raw, path, account=STRANGER)).status == 200


@pytest.mark.rule("CA-04", "CAP-01")
async def test_what_is_shared_is_read_and_listed_apart(raw: RawClient, path: str, theirs: str) -> None:
    raw.sandbox.grant_feature(SHARING)
    await grant(raw, path, account=STRANGER)
    raw.credentials = raw.sandbox.other_credentials
    listing = theirs.rpartition("/")[0]
    (shared,) = (await raw("GET", listing, {"permission_scope": "SHARED"})).data
    assert (shared["id"], shared["name"]) == (raw.sandbox.audience_id, "Customers")
    assert (shared["permission_level"], shared["owner_account_id"]) == ("READ_ONLY", raw.sandbox.account_id)
    assert (await raw("GET", theirs)).data == shared
    assert [found["name"] for found in (await raw("GET", listing)).data] == ["Hikers"]
    assert (await raw("GET", listing, {"permission_scope": "SHARED", "q": "hik"})).data == []
    assert (await raw("GET", f"{theirs}/targeted")).data == []


@pytest.mark.rule("CAP-02")
async def test_only_the_owner_grants_and_revokes(raw: RawClient, path: str, theirs: str) -> None:
    raw.sandbox.grant_feature(SHARING)
    granted = (await grant(raw, path, account=STRANGER, level="READ_WRITE")).data["id"]
    raw.credentials = raw.sandbox.other_credentials
    permissions = f"{theirs}/permissions"
    for refused in (await grant(raw, permissions), await raw("DELETE", f"{permissions}/{granted}")):
        assert (refused.status, refused.rule, refused.basis) == (403, "CAP-02", "public")
    assert [found["id"] for found in (await raw("GET", permissions)).data] == [granted]


async def test_only_the_owner_changes_an_audience(raw: RawClient, path: str, theirs: str) -> None:
    raw.sandbox.grant_feature(SHARING)
    await grant(raw, path, account=STRANGER, level="READ_WRITE")
    raw.credentials = raw.sandbox.other_credentials
    users = b'[{"operation_type":"Update","params":{"users":[{"email":["%b"]}]}}]' % hash_sha256("a").encode()
    for refused in (
        await raw("PUT", theirs, {"name": "Ours"}),
        await raw("DELETE", theirs),
        await raw("POST", f"{theirs}/users", data=users, headers={"Content-Type": "application/json"}),
    ):
        assert (refused.status, refused.rule, refused.basis) == (403, "ASM-22", "assumed")
    assert raw.sandbox.audience(raw.sandbox.audience_id).users == []


@pytest.mark.rule("CAP-05", "GEN-09")
async def test_the_list_is_chosen_cut_and_counted(raw: RawClient, path: str) -> None:
    raw.sandbox.grant_feature(SHARING)
    one, other = [(await grant(raw, path, account=account)).data["id"] for account in (SISTER, STRANGER)]
    for query, found in (
        ({}, [one, other]),
        ({"granted_account_ids": f"{STRANGER},nowhere"}, [other]),
        ({"custom_audience_permission_ids": f"{one},{other}", "sort_by": "id-desc"}, [other, one]),
        ({"custom_audience_permission_ids": one, "granted_account_ids": STRANGER}, []),
    ):
        assert [permission["id"] for permission in (await raw("GET", path, query)).data] == found
    first = await raw("GET", path, {"count": 1, "with_total_count": "true"})
    assert (first.basis, first.json["total_count"]) == ("public", 2)
    assert [each["id"] for each in (await raw("GET", path, {"cursor": first.json["next_cursor"]})).data] == [other]
    assert (await raw("GET", path, {"with_deleted": "true"})).status == 400


@pytest.mark.rule("CAP-04")
async def test_a_permission_is_revoked_once(raw: RawClient, path: str, theirs: str) -> None:
    raw.sandbox.grant_feature(SHARING)
    granted = (await grant(raw, path, account=STRANGER)).data["id"]
    got = await raw("DELETE", f"{path}/{granted}")
    assert (got.data["id"], got.data["deleted"], got.data.keys(), got.basis) == (granted, True, FIELDS, "public")
    assert (await raw("GET", path)).data == []
    assert (await raw("DELETE", f"{path}/{granted}")).status == 404
    raw.credentials = raw.sandbox.other_credentials
    assert (await raw("GET", theirs)).status == 404
    assert (await raw("GET", theirs.rpartition("/")[0], {"permission_scope": "SHARED"})).data == []


async def test_a_permission_is_one_of_its_audience(raw: RawClient, path: str) -> None:
    granted = (await grant(raw, path)).data["id"]
    other = path.replace(raw.sandbox.audience_id, raw.sandbox.add_audience())
    assert (await raw("GET", other)).data == []
    refused = await raw("DELETE", f"{other}/{granted}")
    assert refused.codes == [("CUSTOM_AUDIENCE_PERMISSION_NOT_FOUND", "custom_audience_permission_id")]
    for unknown in ("nothing", "1nmti"):
        got = await raw("GET", path.replace(raw.sandbox.audience_id, unknown))
        assert got.codes == [("TAILORED_AUDIENCE_NOT_FOUND", "custom_audience_id")]
