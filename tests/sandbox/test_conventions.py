"""What holds for every call of the advertising API (GEN-*), tried on one list."""

import pytest

from svc_async.sandbox import SandboxConfig
from tests.support.raw_client import RawClient

FREE = SandboxConfig(rate_limits=False)


@pytest.fixture
def config() -> SandboxConfig:
    return FREE


@pytest.fixture
def path(raw: RawClient) -> str:
    return f"{raw.account}/line_item_curated_categories"


async def list_ids(raw: RawClient, path: str, **query: str) -> list[str]:
    """Walk all pages; an empty page is not the end."""
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        got = await raw("GET", path, {**query, **cursor})
        found += [record["id"] for record in got.data]
        if got.json["next_cursor"] is None:
            return found
        cursor = {"cursor": got.json["next_cursor"]}


@pytest.fixture
async def create_many(raw: RawClient, path: str) -> list[str]:
    for _ in range(7):
        await raw("POST", path, {"line_item_id": "9cqi2", "curated_category_id": "9ddrgesiap6o"})
    return [record["id"] for record in (await raw("GET", path)).data]


@pytest.mark.rule("GEN-01")
async def test_only_version_12_is_there(raw: RawClient) -> None:
    for path in ("/11/accounts", "/accounts", "/5/accounts", "/12/nothing", "/12/accounts/"):
        got = await raw("GET", path)
        assert (got.status, got.codes, got.rule) == (404, [("ROUTE_NOT_FOUND", None)], "GEN-01")
    assert (await raw("GET", "/12/accounts", base=raw.sandbox.base_url)).status == 404


@pytest.mark.rule("GEN-02")
async def test_an_empty_account_id_is_no_list(raw: RawClient) -> None:
    assert (await raw("GET", "/12/accounts//line_item_curated_categories")).status == 404


@pytest.mark.rule("GEN-06")
async def test_a_count_out_of_bounds_is_refused_and_named(raw: RawClient, path: str, subtests: pytest.Subtests) -> None:
    for count in ("0", "-1", "1001", "\u0661"):
        with subtests.test(count):
            got = await raw("GET", path, {"count": count})
            assert (got.status, got.codes) == (400, [("INVALID_PARAMETER", "count")])


@pytest.mark.long("creates 201 entities")
@pytest.mark.rule("GEN-06", "LICC-01")
async def test_the_bounds_of_count_are_accepted_and_200_is_the_default(raw: RawClient, path: str) -> None:
    for _ in range(201):
        await raw("POST", path, {"line_item_id": "9cqi2", "curated_category_id": "9ddrgesiap6o"})
    assert len((await raw("GET", path)).data) == 200
    assert len((await raw("GET", path, {"count": "1"})).data) == 1
    assert len((await raw("GET", path, {"count": "1000"})).data) == 203


@pytest.mark.rule("GEN-08b")
async def test_false_is_accepted(raw: RawClient, path: str) -> None:
    assert (await raw("GET", path, {"with_deleted": "false"})).status == 200


async def test_a_repeated_parameter_is_refused(raw: RawClient, path: str) -> None:
    got = await raw("GET", path, [("count", 5), ("count", 6)])
    assert (got.status, got.codes) == (400, [("INVALID_PARAMETER", "count")])


@pytest.mark.rule("GEN-04", "GEN-07")
async def test_pages_cover_the_list_once_and_only_null_ends_it(
    raw: RawClient, path: str, create_many: list[str]
) -> None:
    assert await list_ids(raw, path, count="2") == create_many
    got = await raw("GET", path, {"count": "3"})
    assert got.json.keys() == {"request", "next_cursor", "data"}
    assert got.json["request"]["params"]["count"] == 3
    assert isinstance(got.json["next_cursor"], str)


@pytest.mark.rule("GEN-04")
async def test_a_page_that_ends_with_the_list_is_the_last(raw: RawClient, path: str, create_many: list[str]) -> None:
    got = await raw("GET", path, {"count": str(len(create_many))})
    assert (len(got.data), got.json["next_cursor"]) == (len(create_many), None)


@pytest.mark.parametrize("config", [SandboxConfig(rate_limits=False, empty_page_before_last=True)])
async def test_an_empty_page_may_come_before_the_last(raw: RawClient, path: str, create_many: list[str]) -> None:
    assert await list_ids(raw, path, count="4") == create_many
    sizes = []
    cursor: dict[str, str] = {}
    while cursor.get("cursor", "") is not None:
        got = await raw("GET", path, {"count": 4, **cursor})
        sizes.append(len(got.data))
        cursor = {"cursor": got.json["next_cursor"]}
    assert sizes == [4, 4, 0, 1]


@pytest.mark.rule("GEN-07")
async def test_writes_between_pages_neither_skip_nor_repeat(raw: RawClient, path: str, create_many: list[str]) -> None:
    first = await raw("GET", path, {"count": "4"})
    await raw("DELETE", f"{path}/{create_many[0]}")
    await raw("DELETE", f"{path}/{create_many[3]}")
    added = await raw("POST", path, {"line_item_id": "9cqi1", "curated_category_id": "9ddrgesiap6o"})
    rest = await raw("GET", path, {"cursor": first.json["next_cursor"]})
    assert [record["id"] for record in rest.data] == [*create_many[4:], added.data["id"]]


@pytest.mark.rule("GEN-07")
async def test_a_cursor_is_valid_for_its_own_list_only(raw: RawClient, path: str, create_many: list[str]) -> None:
    assert create_many
    cursor = (await raw("GET", path, {"count": "2"})).json["next_cursor"]
    assert (await raw("GET", path, {"cursor": cursor, "count": "5"})).status == 200
    for query in (
        {"cursor": cursor, "sort_by": "id-desc"},
        {"cursor": cursor, "with_deleted": "true"},
        {"cursor": f"{cursor}A"},
        {"cursor": f"A{cursor[1:]}"},
        {"cursor": "ö"},
        {"cursor": ""},
    ):
        got = await raw("GET", path, query)
        assert (got.status, got.codes) == (400, [("INVALID_PARAMETER", "cursor")])
    assert (await raw("GET", "/12/accounts", {"cursor": cursor})).status == 400


@pytest.mark.rule("GEN-08")
async def test_sort_by_names_an_attribute_and_a_direction(raw: RawClient, path: str, create_many: list[str]) -> None:
    assert await list_ids(raw, path, sort_by="id-desc", count="2") == sorted(create_many, reverse=True)
    assert await list_ids(raw, path, sort_by="id-asc", count="3") == sorted(create_many)
    by_line_item = await list_ids(raw, path, sort_by="line_item_id-desc", count="2")
    assert by_line_item == [*reversed(create_many[2:]), create_many[1], create_many[0]]


@pytest.mark.rule("GEN-08")
async def test_any_other_order_is_refused(raw: RawClient, path: str, subtests: pytest.Subtests) -> None:
    for value in ["id", "id-up", "nothing-asc", "-asc", "id asc"]:
        with subtests.test(value=value):
            got = await raw("GET", path, {"sort_by": value})
            assert (got.status, got.codes) == (400, [("INVALID_PARAMETER", "sort_by")])


@pytest.mark.rule("GEN-04b", "GEN-08b")
async def test_the_total_is_there_when_asked_for(raw: RawClient, path: str, create_many: list[str]) -> None:
    got = await raw("GET", path, {"with_total_count": "true", "count": "2"})
    assert (got.json["total_count"], len(got.data)) == (len(create_many), 2)
    assert "total_count" not in (await raw("GET", path, {"with_total_count": "false"})).json


@pytest.mark.rule("GEN-09")
async def test_a_total_and_a_cursor_exclude_each_other(raw: RawClient, path: str, create_many: list[str]) -> None:
    assert create_many
    cursor = (await raw("GET", path, {"count": "2"})).json["next_cursor"]
    got = await raw("GET", path, {"with_total_count": "true", "cursor": cursor})
    assert (got.status, got.codes, got.rule) == (400, [("EXCLUSIVE_PARAMETERS", "cursor")], "GEN-09")


@pytest.mark.rule("GEN-15")
async def test_parameters_do_not_go_into_a_body(raw: RawClient, path: str) -> None:
    got = await raw("POST", path, data=b"{}", headers={"Content-Type": "application/json"})
    assert (got.status, got.rule, got.basis) == (400, "GEN-15", "spec")


async def test_every_answer_names_the_rule_it_rests_on(raw: RawClient, path: str) -> None:
    good, bad = await raw("GET", path), await raw("GET", path, {"what": "1"})
    assert (good.rule, good.basis) == ("LICC-01", "spec")
    assert (bad.rule, bad.basis) == ("ASM-95", "assumed")
    assert good.headers["x-transaction-id"] != bad.headers["x-transaction-id"]
    assert good.headers["Date"] == "Wed, 10 Jun 2026 12:00:00 GMT"
