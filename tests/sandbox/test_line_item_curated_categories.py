import pytest

from tests.support.raw_client import RawClient

FIELDS = {"id", "line_item_id", "curated_category_id", "created_at", "updated_at", "deleted"}
SEEDED = "43853bhii885"


@pytest.fixture
def path(raw: RawClient) -> str:
    return f"{raw.account}/line_item_curated_categories"


@pytest.mark.rule("LICC-01", "GEN-12", "GEN-12b")
async def test_the_list_returns_records(raw: RawClient, path: str) -> None:
    got = await raw("GET", path)
    assert [record["id"] for record in got.data] == [SEEDED, "43853bhii886"]
    assert all(record.keys() == FIELDS for record in got.data)
    assert got.data[0]["created_at"] == "2026-06-10T12:00:00Z"


@pytest.mark.rule("LICC-02", "GEN-03")
async def test_one_is_read(raw: RawClient, path: str) -> None:
    got = await raw("GET", f"{path}/{SEEDED}")
    assert (got.data["line_item_id"], got.data["deleted"]) == ("9cqi0", False)
    unknown = await raw("GET", f"{path}/nothing")
    assert (unknown.status, unknown.codes[0][1]) == (404, "line_item_curated_category_id")


@pytest.mark.rule("LICC-03")
async def test_one_is_made_from_two_ids(raw: RawClient, path: str) -> None:
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
    got = await raw("PUT", f"{path}/{SEEDED}", {"line_item_id": "9cqi2"})
    assert (got.data["line_item_id"], got.data["curated_category_id"]) == ("9cqi2", "9ddrgesiap6o")
    got = await raw("PUT", f"{path}/{SEEDED}", {"curated_category_id": "9ddrgesiap7p"})
    assert (got.data["line_item_id"], got.data["curated_category_id"]) == ("9cqi2", "9ddrgesiap7p")
    assert (await raw("PUT", f"{path}/{SEEDED}", {"line_item_id": "x"})).status == 404


@pytest.mark.rule("LICC-05", "LICC-02", "GEN-14", "GEN-14b")
async def test_deletion_is_soft_and_final(raw: RawClient, path: str) -> None:
    got = await raw("DELETE", f"{path}/{SEEDED}")
    assert (got.data["id"], got.data["deleted"]) == (SEEDED, True)
    assert [record["id"] for record in (await raw("GET", path)).data] == ["43853bhii886"]
    assert len((await raw("GET", path, {"with_deleted": "true"})).data) == 2
    assert (await raw("GET", f"{path}/{SEEDED}")).status == 404
    assert (await raw("GET", f"{path}/{SEEDED}", {"with_deleted": "true"})).data["deleted"] is True
    assert (await raw("PUT", f"{path}/{SEEDED}", {"line_item_id": "9cqi2"})).status == 404
    assert (await raw("DELETE", f"{path}/{SEEDED}")).status == 404


@pytest.mark.rule("LICC-05")
async def test_deletion_takes_no_parameters(raw: RawClient, path: str) -> None:
    assert (await raw("DELETE", f"{path}/{SEEDED}", {"with_deleted": "true"})).status == 400
