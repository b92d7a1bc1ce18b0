import json
from typing import Any

import pytest

from svc_async.sandbox import SandboxConfig
from tests.support.raw_client import RawClient

FIELDS = {"id", "name", "description", "type", "product_ids", "filters", "processing_status"}
PRODUCT: dict[str, Any] = {
    "title": "t",
    "description": "d",
    "availability": "in stock",
    "condition": "new",
    "link": "https://harbour.example/1",
    "image_link": "https://harbour.example/1.png",
    "brand": "Harbour",
}
PRODUCTS: list[dict[str, Any]] = [
    {"id": "a", "price": "9.50 EUR", "product_type": "Books > Poetry", "inventory": 3},
    {"id": "b", "price": "20 EUR", "sale_price": "15.00 EUR", "product_type": "Books > Prose", "custom_label_0": "New"},
    {"id": "c", "price": "100.00 USD", "google_product_category": "Media > Maps", "custom_label_4": "old"},
]


async def send(raw: RawClient, method: str, path: str, **body: Any) -> Any:
    return await raw(method, path, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"})


@pytest.fixture
async def catalog(raw: RawClient) -> str:
    made = (await raw("POST", "/12/product_catalogs", {"name": "Shop"})).data["id"]
    return f"/12/product_catalogs/{made}"


@pytest.fixture
def path(catalog: str) -> str:
    return f"{catalog}/product_sets"


@pytest.fixture
async def keys(raw: RawClient, catalog: str) -> dict[str, str]:
    """The generated keys by the merchant's ids."""
    got = await send(raw, "PUT", f"{catalog}/products", products=[PRODUCT | product for product in PRODUCTS])
    return {result["id"]: result["product_key"] for result in got.data["products_response"]}


def condition(attribute: str, operator: str, value: str) -> dict[str, str]:
    return {"attribute": attribute, "operator": operator, "value": value}


@pytest.mark.rule("PSET-01", "PSET-01c", "PSET-03", "PSET-03b", "PSET-06")
async def test_a_manual_set_holds_what_was_chosen(raw: RawClient, path: str, keys: dict[str, str]) -> None:
    chosen = [keys["c"], keys["a"]]
    got = (await send(raw, "POST", path, name="Set", description="Some", type="MANUAL", product_keys=chosen)).data
    assert got.keys() == FIELDS
    assert (got["product_ids"], got["filters"], got["processing_status"]) == (["c", "a"], [], "DONE")
    assert (got["name"], got["description"], got["type"]) == ("Set", "Some", "MANUAL")
    assert (await raw("GET", f"{path}/{got['id']}")).data == got
    without = (await send(raw, "POST", path, name="Set", type="MANUAL", product_keys=chosen)).data
    assert without["description"] is None


@pytest.mark.rule("PSET-01", "PSET-01b", "PSET-01c", "GEN-16")
async def test_what_is_missing_is_named(raw: RawClient, path: str, keys: dict[str, str]) -> None:
    assert (await send(raw, "POST", path)).codes == [("MISSING_PARAMETER", "name"), ("MISSING_PARAMETER", "type")]
    for kind, needed, rule in (("MANUAL", "product_keys", "PSET-01"), ("FILTERED", "filters", "PSET-01b")):
        given: dict[str, Any]
        for given in ({}, {needed: []}):
            got = await send(raw, "POST", path, name="n", type=kind, **given)
            assert (got.status, got.codes, got.rule) == (400, [("MISSING_PARAMETER", needed)], rule)
    assert (await send(raw, "POST", path, name="n", type="ALL")).codes == [("INVALID_PARAMETER", "type")]
    both = {"product_keys": [keys["a"]], "filters": [condition("price", "LESS_THAN", "9")]}
    for kind, other in (("MANUAL", "filters"), ("FILTERED", "product_keys")):
        assert (await send(raw, "POST", path, name="n", type=kind, **both)).codes == [("INVALID_PARAMETER", other)]
    body = json.dumps({"name": "n", "type": "MANUAL", "product_keys": [keys["a"]]}).encode()
    assert (await raw("POST", path, data=body)).codes == [("INVALID_PARAMETER", "Content-Type")]


async def test_keys_must_name_products_of_the_catalog(raw: RawClient, path: str, keys: dict[str, str]) -> None:
    got = await send(raw, "POST", path, name="n", type="MANUAL", product_keys=[keys["a"], "nothing"])
    assert (got.status, got.codes) == (404, [("PRODUCT_NOT_FOUND", "product_keys")])
    assert (await send(raw, "POST", path, name="n", type="MANUAL", product_keys=[7])).status == 400


@pytest.mark.rule("PSET-02", "PSET-06")
async def test_filters_choose(raw: RawClient, path: str, keys: dict[str, str], subtests: pytest.Subtests) -> None:
    for conditions, expected in [
        ([condition("price", "GREATER_THAN", "9.50")], ["b", "c"]),
        ([condition("price", "GREATER_THAN", "9.50 EUR")], ["b"]),
        ([condition("price", "LESS_THAN", "100")], ["a", "b"]),
        ([condition("price", "EQUAL_TO", "20.00")], ["b"]),
        ([condition("price", "EQUAL_TO", "cheap")], []),
        ([condition("price", "CONTAINS", "usd")], ["c"]),
        ([condition("sale_price", "LESS_THAN", "16")], ["b"]),
        ([condition("inventory", "GREATER_THAN", "2")], ["a"]),
        ([condition("product_type", "CONTAINS", "books")], ["a", "b"]),
        ([condition("product_type", "NOT_CONTAINS", "Poetry")], ["b", "c"]),
        ([condition("product_type", "MATCH", "books > prose")], ["b"]),
        ([condition("product_type", "EQUAL_TO", "books > prose")], []),
        ([condition("google_product_category", "EQUAL_TO", "Media > Maps")], ["c"]),
        ([condition("custom_label_0", "MATCH", "NEW")], ["b"]),
        ([condition("custom_label_4", "GREATER_THAN", "new")], ["c"]),
        ([condition("custom_label_4", "LESS_THAN", "p")], ["c"]),
        ([condition("product_type", "CONTAINS", "Books"), condition("price", "GREATER_THAN", "10")], ["b"]),
    ]:
        with subtests.test(conditions=conditions, expected=expected):
            assert keys
            got = (await send(raw, "POST", path, name="n", type="FILTERED", filters=conditions)).data
            assert (got["product_ids"], got["filters"]) == (expected, conditions)


@pytest.mark.rule("PSET-02")
async def test_each_filter_is_checked(raw: RawClient, path: str) -> None:
    good = condition("price", "LESS_THAN", "9")
    for wrong, field in (
        (good | {"attribute": "color"}, ".attribute"),
        (good | {"operator": "LIKE"}, ".operator"),
        (good | {"value": 9}, ".value"),
        ({"attribute": "price", "operator": "MATCH"}, ".value"),
        (good | {"unit": "EUR"}, ".unit"),
        ("price", ""),
    ):
        got = await send(raw, "POST", path, name="n", type="FILTERED", filters=[good, wrong])
        assert (got.status, [parameter for _, parameter in got.codes]) == (400, [f"filters[1]{field}"])


async def test_a_filtered_set_follows_its_catalog(
    raw: RawClient, catalog: str, path: str, keys: dict[str, str]
) -> None:
    conditions = [condition("price", "LESS_THAN", "50")]
    made = (await send(raw, "POST", path, name="n", type="FILTERED", filters=conditions)).data
    assert made["product_ids"] == ["a", "b"]
    new = [PRODUCT | PRODUCTS[0] | {"price": "90 EUR"}, PRODUCT | {"id": "d", "price": "1 EUR"}]
    await send(raw, "PUT", f"{catalog}/products", products=new)
    await send(raw, "DELETE", f"{catalog}/products", product_keys=[keys["b"]])
    assert (await raw("GET", f"{path}/{made['id']}")).data["product_ids"] == ["d"]


@pytest.mark.parametrize("config", [SandboxConfig(catalogs_per_user=None)])
async def test_a_filtered_set_has_products_of_its_catalog_only(raw: RawClient, path: str, keys: dict[str, str]) -> None:
    other = (await raw("POST", "/12/product_catalogs", {"name": "Other"})).data["id"]
    filters = [condition("price", "GREATER_THAN", "0")]
    for where, expected in ((path, list(keys)), (f"/12/product_catalogs/{other}/product_sets", [])):
        got = await send(raw, "POST", where, name="n", type="FILTERED", filters=filters)
        assert got.data["product_ids"] == expected


async def test_a_manual_set_loses_what_is_deleted(
    raw: RawClient, catalog: str, path: str, keys: dict[str, str]
) -> None:
    made = (await send(raw, "POST", path, name="n", type="MANUAL", product_keys=list(keys.values()))).data
    await send(raw, "DELETE", f"{catalog}/products", product_keys=[keys["b"]])
    assert (await raw("GET", f"{path}/{made['id']}")).data["product_ids"] == ["a", "c"]


@pytest.mark.rule("PSET-04b")
async def test_a_manual_set_is_updated(raw: RawClient, path: str, keys: dict[str, str]) -> None:
    made = (await send(raw, "POST", path, name="n", description="d", type="MANUAL", product_keys=[keys["a"]])).data
    where = f"{path}/{made['id']}"
    assert (await send(raw, "PUT", where, name="m")).data == made | {"name": "m"}
    assert (await send(raw, "PUT", where, description="")).data["description"] is None
    assert (await send(raw, "PUT", where, product_keys=[keys["b"]])).data["product_ids"] == ["b"]
    wrong: dict[str, Any]
    for wrong in ({"type": "FILTERED"}, {"filters": []}, {"product_keys": []}, {"name": ""}):
        assert (await send(raw, "PUT", where, **wrong)).codes == [("INVALID_PARAMETER", next(iter(wrong)))]
    assert (await send(raw, "PUT", where, product_keys=["nothing"])).status == 404
    assert (await raw("GET", where)).data["product_ids"] == ["b"]


@pytest.mark.rule("PSET-04")
async def test_a_filtered_set_cannot_be_updated(raw: RawClient, path: str) -> None:
    conditions = [condition("price", "LESS_THAN", "50")]
    made = (await send(raw, "POST", path, name="n", type="FILTERED", filters=conditions)).data
    for change in ({"name": "m"}, {"description": "d"}, {}):
        got = await send(raw, "PUT", f"{path}/{made['id']}", **change)
        assert (got.status, got.rule) == (400, "PSET-04")
    assert (await raw("GET", f"{path}/{made['id']}")).data == made


async def test_only_one_s_own_sets_are_there(raw: RawClient, path: str) -> None:
    got = await raw("GET", f"{path}/nothing")
    assert (got.status, got.codes) == (404, [("PRODUCT_SET_NOT_FOUND", "product_set_id")])
    assert (await raw("GET", "/12/product_catalogs/2mb9xk41/product_sets/a")).codes[0][1] == "product_catalog_id"


async def test_sets_are_bounded(raw: RawClient, path: str, keys: dict[str, str]) -> None:
    got = await send(raw, "POST", path, name="n", type="MANUAL", product_keys=[keys["a"]] * 51)
    assert (got.status, got.codes, got.rule) == (400, [("INVALID_PARAMETER", "product_keys")], "ASM-139")
    conditions = [condition("price", "LESS_THAN", "50")]
    got = await send(raw, "POST", path, name="n", type="FILTERED", filters=conditions * 31)
    assert (got.status, got.codes, got.rule) == (400, [("INVALID_PARAMETER", "filters")], "ASM-139")
    assert (await send(raw, "POST", path, name="n", type="FILTERED", filters=conditions * 30)).status == 200
