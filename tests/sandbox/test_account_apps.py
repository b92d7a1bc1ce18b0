import pytest

from tests.support.raw_client import RawClient

FIELDS = {
    "id",
    "app_store_identifier",
    "conversion_tracking_enabled",
    "deep_link_pattern",
    "os_type",
    "created_at",
    "updated_at",
    "deleted",
}


@pytest.fixture
def path(raw: RawClient) -> str:
    return f"{raw.account}/account_apps"


@pytest.mark.rule("ACC-08", "GEN-04", "GEN-12b")
async def test_the_list_shows_the_account_s_apps(raw: RawClient, path: str) -> None:
    got = await raw("GET", path)
    assert got.json.keys() == {"request", "next_cursor", "data"}
    assert [app["id"] for app in got.data] == ["sg7q1", "sg7q2"]
    assert all(app.keys() == FIELDS for app in got.data)
    assert [app["os_type"] for app in got.data] == ["Android", "iOS"]
    assert (got.rule, got.basis) == ("ACC-08", "spec")


@pytest.mark.rule("ACC-08", "GEN-14b")
async def test_deleted_apps_are_listed_on_demand(raw: RawClient, path: str) -> None:
    got = await raw("GET", path, {"with_deleted": "true"})
    assert [(app["id"], app["deleted"]) for app in got.data][2:] == [("sg7q3", True)]


@pytest.mark.rule("ACC-08", "GEN-06", "GEN-08", "GEN-04b")
async def test_the_list_takes_all_that_lists_take(raw: RawClient, path: str) -> None:
    first = await raw("GET", path, {"count": 1, "sort_by": "os_type-desc", "with_total_count": "true"})
    assert ([app["os_type"] for app in first.data], first.json["total_count"]) == (["iOS"], 2)
    cursor = first.json["next_cursor"]
    rest = await raw("GET", path, {"count": 1, "sort_by": "os_type-desc", "cursor": cursor})
    assert ([app["os_type"] for app in rest.data], rest.json["next_cursor"]) == (["Android"], None)
    for count in (0, 1001):
        assert (await raw("GET", path, {"count": count})).codes == [("INVALID_PARAMETER", "count")]
