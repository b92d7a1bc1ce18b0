import json
from typing import Any

import pytest

from svc_async.sandbox import Fault, SandboxConfig
from svc_async.sandbox.api.ads.iso_codes import COUNTRIES, CURRENCIES
from tests.support.raw_client import RawClient

GOOD: dict[str, Any] = {
    "id": "sku-1",
    "title": "Sea charts",
    "description": "Charts of all harbours",
    "availability": "in stock",
    "condition": "new",
    "price": "12.50 EUR",
    "link": "https://harbour.example/charts",
    "image_link": "https://harbour.example/cover.png",
    "brand": "Harbour",
}


@pytest.fixture
async def path(raw: RawClient) -> str:
    catalog = (await raw("POST", "/12/product_catalogs", {"name": "Shop"})).data["id"]
    return f"/12/product_catalogs/{catalog}/products"


async def send(raw: RawClient, method: str, path: str, body: Any) -> Any:
    return await raw(method, path, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"})


async def upsert(raw: RawClient, path: str, *products: Any) -> list[dict[str, Any]]:
    got = await send(raw, "PUT", path, {"products": products})
    results: list[dict[str, Any]] = got.data["products_response"]
    return results


async def list_ids(raw: RawClient, path: str, **query: str) -> list[str]:
    return [product["id"] for product in (await raw("GET", path, query)).data]


def make_product(merchant_id: str, **fields: Any) -> dict[str, Any]:
    return {**GOOD, "id": merchant_id, **fields}


@pytest.mark.rule("PROD-08", "PROD-08b", "PROD-08c", "PROD-09", "PROD-14")
async def test_an_upsert_creates_updates_or_leaves(raw: RawClient, path: str) -> None:
    (created,) = await upsert(raw, path, GOOD)
    assert created.keys() == {"warnings", "errors", "product_key", "id", "status"}
    assert (created["id"], created["status"], created["errors"]) == ("sku-1", "CREATE_SUCCESS", [])
    (listed,) = (await raw("GET", path)).data
    assert listed == GOOD | {"product_key": created["product_key"]}
    (same,) = await upsert(raw, path, GOOD)
    assert same == created | {"status": "NO_CHANGE"}
    (updated,) = await upsert(raw, path, GOOD | {"price": "13 EUR"})
    assert updated == created | {"status": "UPDATE_SUCCESS"}
    assert (await raw("GET", path)).data == [listed | {"price": "13 EUR"}]


@pytest.mark.rule("PROD-08", "PROD-08b", "PROD-08c", "ERR-06b")
async def test_each_item_has_its_own_result_in_its_place(raw: RawClient, path: str) -> None:
    await upsert(raw, path, make_product("a"), make_product("b"))
    results = await upsert(raw, path, make_product("b", size="L"), {"id": "c"}, make_product("a"), make_product("d"), 7)
    assert [(result["id"], result["status"]) for result in results] == [
        ("b", "UPDATE_SUCCESS"),
        ("c", "ERROR"),
        ("a", "NO_CHANGE"),
        ("d", "CREATE_SUCCESS"),
        (None, "ERROR"),
    ]
    assert await list_ids(raw, path) == ["a", "b", "d"]


@pytest.mark.rule("PROD-01", "LIM-09", "GEN-16", "ERR-04")
async def test_a_batch_has_up_to_25_products(raw: RawClient, path: str) -> None:
    products = [make_product(f"sku-{number}") for number in range(26)]
    got = await send(raw, "PUT", path, {"products": products})
    assert (got.status, got.codes, got.rule) == (400, [("INVALID_PARAMETER", "products")], "PROD-01")
    assert len(await upsert(raw, path, *products[:25])) == 25
    assert (await send(raw, "PUT", path, {})).codes == [("MISSING_PARAMETER", "products")]
    wrong: dict[str, Any]
    for wrong in ({"products": GOOD}, {"products": []}, {"products": [GOOD], "dry_run": True}):
        assert (await send(raw, "PUT", path, wrong)).status == 400
    body = json.dumps({"products": [GOOD]}).encode()
    assert (await raw("PUT", path, data=body)).codes == [("INVALID_PARAMETER", "Content-Type")]
    assert len(await list_ids(raw, path)) == 25


@pytest.mark.rule("PROD-02", "PROD-03")
async def test_what_is_missing_is_named(raw: RawClient, path: str, subtests: pytest.Subtests) -> None:
    for name in GOOD:
        with subtests.test(name):
            (result,) = await upsert(raw, path, {key: value for key, value in GOOD.items() if key != name})
            assert result["status"] == "ERROR"
            assert [(error["code"], error["parameter"]) for error in result["errors"]] == [("MISSING_PARAMETER", name)]
            assert (await raw("GET", path)).data == []


WRONG: list[tuple[str, Any]] = [
    ("id", ""),
    ("id", 7),
    ("title", "x" * 151),
    ("description", "x" * 5001),
    ("description", "<b>bold</b>"),
    ("availability", "sold out"),
    ("condition", "mint"),
    ("gender", "any"),
    ("age_group", "senior"),
    ("price", "12.50"),
    ("price", "12,50 EUR"),
    ("price", "EUR 12.50"),
    ("price", "12.50 eur"),
    ("price", "1 XXQ"),
    ("sale_price", "1 XXQ"),
    ("description", "Charts <<a<b of all> harbours"),
    ("price", 12.5),
    ("link", "http://harbour.example/charts"),
    ("link", "harbour.example"),
    ("mobile_link", "http://m.harbour.example"),
    ("image_link", "cover.png"),
    ("image_link", "https://harbour.example/cover.bmp"),
    ("image_link", "https://harbour.example/renamed.jpg"),
    ("image_link", "https://harbour.example/narrow.jpg"),
    ("image_link", "https://harbour.example/low.webp"),
    ("image_link", "https://harbour.example/heavy.gif"),
    ("additional_image_link", ",".join(["https://harbour.example/1.png"] * 11)),
    ("additional_image_link", "https://harbour.example/1.png,nothing"),
    ("google_product_category", "Media>Books"),
    ("product_type", "Books > "),
    ("inventory", 0),
    ("inventory", "3"),
    ("inventory", True),
    ("sale_price", "12.50 EUR"),
    ("sale_price", "9 USD"),
    ("sale_price", "9"),
    ("sale_price_effective_date", "2026-06-10T12:00:00Z"),
    ("sale_price_effective_date", "2026-06-10/2026-06-11"),
    ("sale_price_effective_date", "2026-06-10T12:00:00Z/soon"),
    ("color", "#ff0000"),
    ("color", "00ff00"),
    ("weight", "1 kg"),
    ("brand", None),
]


@pytest.mark.rule(
    "PROD-02",
    "PROD-02b",
    "PROD-02c",
    "PROD-02d",
    "PROD-02e",
    "PROD-02f",
    "PROD-02g",
    "PROD-02h",
    "PROD-04",
    "PROD-05",
    "PROD-06",
    "PROD-06b",
    "PROD-06c",
    "PROD-12",
    "PROD-13",
)
@pytest.mark.long("sends a request for each wrong value of an attribute")
async def test_a_wrong_value_is_named_and_changes_nothing(raw: RawClient, path: str, subtests: pytest.Subtests) -> None:
    good = GOOD | {"gtin": "1"}
    for held in ([], [good]):
        if held:
            await upsert(raw, path, good)
        for name, value in WRONG:
            with subtests.test(name, value=value, held=len(held)):
                (result,) = await upsert(raw, path, good | {name: value})
                assert result["status"] == "ERROR"
                assert {error["parameter"] for error in result["errors"]} == {name}
                assert len((await raw("GET", path)).data) == len(held)


RIGHT: list[tuple[str, Any]] = [
    ("title", "ö" * 150),
    ("description", "5 < 6 and 7 > 6" + "x" * 4985),
    *(("availability", value) for value in ("in stock", "available for order", "preorder")),
    *(("availability", value) for value in ("out of stock", "discontinued")),
    *(("condition", value) for value in ("new", "used", "refurbished")),
    *(("gender", value) for value in ("female", "male", "unisex")),
    *(("age_group", value) for value in ("adult", "all ages", "teen", "kids", "toddler", "infant", "newborn")),
    ("price", "13 EUR"),
    ("mobile_link", "https://m.harbour.example/charts"),
    *(("image_link", f"https://harbour.example/other.{ending}") for ending in ("jpg", "GIF", "webp", "png", "jpeg")),
    ("image_link", "https://harbour.example/image/7"),
    ("additional_image_link", ",".join(["https://harbour.example/1.png"] * 10)),
    ("google_product_category", "Media > Books > Maps"),
    ("product_type", "Charts"),
    ("inventory", 1),
    ("sale_price", "12.49 EUR"),
    ("sale_price_effective_date", "2026-06-10T12:00:00Z/2026-06-12T12:00:00+02:00"),
    ("color", "light blue"),
    ("color", "beige"),
    ("size", "A2"),
    *((f"custom_label_{number}", "x") for number in range(5)),
]


@pytest.mark.rule(
    "PROD-02b",
    "PROD-02c",
    "PROD-02d",
    "PROD-02e",
    "PROD-02h",
    "PROD-04",
    "PROD-05",
    "PROD-06",
    "PROD-06b",
    "PROD-06c",
    "PROD-12",
    "PROD-13",
)
async def test_a_right_value_is_kept(raw: RawClient, path: str, subtests: pytest.Subtests) -> None:
    for number, (name, value) in enumerate(RIGHT):
        with subtests.test(name=name, value=value):
            (result,) = await upsert(raw, path, GOOD | {"id": f"sku-{number}", name: value})
            assert (result["status"], result["errors"]) == ("CREATE_SUCCESS", [])
    kept = {product["id"]: product for product in (await raw("GET", path)).data}
    for number, (name, value) in enumerate(RIGHT):
        assert kept[f"sku-{number}"][name] == value


@pytest.mark.rule("PROD-05")
async def test_stock_counts_only_while_it_is_in_stock(raw: RawClient, path: str) -> None:
    sold = GOOD | {"availability": "out of stock", "inventory": 0}
    assert (await upsert(raw, path, sold))[0]["status"] == "CREATE_SUCCESS"
    (result,) = await upsert(raw, path, GOOD)
    assert (result["status"], result["errors"][0]["parameter"]) == ("ERROR", "inventory")


@pytest.mark.rule("PROD-03")
async def test_any_of_three_identifiers_will_do_and_an_empty_one_is_unset(raw: RawClient, path: str) -> None:
    bare = {name: value for name, value in GOOD.items() if name != "brand"}
    for number, name in enumerate(("brand", "gtin", "mpn")):
        product = bare | {"id": f"sku-{number}", name: "x"}
        assert (await upsert(raw, path, product))[0]["status"] == "CREATE_SUCCESS"
        (result,) = await upsert(raw, path, product | {name: ""})
        assert [error["parameter"] for error in result["errors"]] == ["brand"]
    await upsert(raw, path, make_product("sku-0", size="L"))
    await upsert(raw, path, make_product("sku-0", size=""))
    assert "size" not in (await raw("GET", path)).data[0]


@pytest.mark.rule("PROD-07")
async def test_all_items_of_an_id_that_occurs_twice_are_ignored(raw: RawClient, path: str) -> None:
    group = [make_product("a"), make_product("b"), make_product("a", size="L"), {"id": "b"}, make_product("c")]
    assert [result["id"] for result in await upsert(raw, path, *group)] == ["c"]
    assert await list_ids(raw, path) == ["c"]


@pytest.mark.rule("PROD-09", "PROD-09b", "PROD-10", "PROD-10b")
async def test_variants_share_a_key_and_the_first_represents_them(raw: RawClient, path: str) -> None:
    group = [
        make_product("s", item_group_id="g"),
        make_product("x"),
        make_product("m", item_group_id="g"),
        make_product("y", item_group_id="h"),
    ]
    await upsert(raw, path, *group)
    listed = {product["id"]: product for product in (await raw("GET", path)).data}
    assert list(listed) == ["s", "x", "y"]
    assert "item_group_key" not in listed["x"]
    key = listed["s"]["item_group_key"]
    assert key not in ("g", listed["y"]["item_group_key"])
    assert await list_ids(raw, path, item_group_key=key) == ["s", "m"]
    assert await list_ids(raw, path, item_group_key="nothing") == []
    await send(raw, "DELETE", path, {"product_keys": [listed["s"]["product_key"]]})
    assert await list_ids(raw, path) == ["x", "m", "y"]


@pytest.mark.rule("PROD-09")
async def test_keys_are_generated_by_the_service(raw: RawClient, path: str) -> None:
    (made,) = await upsert(raw, path, GOOD | {"product_key": "mine", "item_group_key": "ours"})
    assert (made["status"], made["product_key"] != "mine") == ("CREATE_SUCCESS", True)
    assert [warning["parameter"] for warning in made["warnings"]] == ["product_key", "item_group_key"]
    (listed,) = (await raw("GET", path)).data
    assert "item_group_key" not in listed
    (again,) = await upsert(raw, path, listed)
    assert (again["status"], again["warnings"]) == ("NO_CHANGE", [])


@pytest.mark.parametrize("config", [SandboxConfig(product_messages="strings")])
async def test_messages_may_be_strings(raw: RawClient, path: str) -> None:
    (result,) = await upsert(raw, path, GOOD | {"price": "free"})
    assert [error.partition(" ")[0] for error in result["errors"]] == ["price"]


@pytest.mark.rule("PROD-10")
async def test_the_list_pages(raw: RawClient, path: str) -> None:
    for start in range(0, 125, 25):
        await upsert(raw, path, *(make_product(f"sku-{number:03}") for number in range(start, start + 25)))
    first = await raw("GET", path)
    assert len(first.data) == 100
    assert len((await raw("GET", path, {"cursor": first.json["next_cursor"]})).data) == 25
    for wrong in ({"count": "101"}, {"count": "0"}, {"sort_by": "id-asc"}, {"with_deleted": "true"}):
        got = await raw("GET", path, wrong)
        assert (got.status, got.codes) == (400, [("INVALID_PARAMETER", next(iter(wrong)))])
    assert (await raw("GET", "/12/product_catalogs/2mb9xk41/products")).status == 404


@pytest.mark.rule("PROD-11", "PROD-11b", "PROD-14")
async def test_deletion_by_key_is_permanent_and_answers_for_each(raw: RawClient, path: str) -> None:
    kept, gone = (result["product_key"] for result in await upsert(raw, path, make_product("a"), make_product("b")))
    got = await send(raw, "DELETE", path, {"product_keys": ["nothing", gone, gone]})
    results = got.data["delete_products"]
    assert all(result.keys() == {"product_key", "failed_product_key", "message"} for result in results)
    assert [(result["product_key"], result["failed_product_key"]) for result in results] == [
        (None, "nothing"),
        (gone, None),
        (None, gone),
    ]
    assert [result["message"] is None for result in results] == [False, True, False]
    assert [product["product_key"] for product in (await raw("GET", path)).data] == [kept]
    (again,) = await upsert(raw, path, make_product("b"))
    assert (again["status"], again["product_key"] != gone) == ("CREATE_SUCCESS", True)


@pytest.mark.rule("PROD-11")
async def test_a_deletion_needs_its_keys_in_json(raw: RawClient, path: str) -> None:
    assert (await send(raw, "DELETE", path, {})).codes == [("MISSING_PARAMETER", "product_keys")]
    for wrong in ("a", [], [7], [""]):
        got = await send(raw, "DELETE", path, {"product_keys": wrong})
        assert (got.status, got.codes, got.rule) == (400, [("INVALID_PARAMETER", "product_keys")], "PROD-11")
    assert (await raw("DELETE", path, {"product_keys": "a"})).status == 400


@pytest.mark.long("needs pycountry, which the group `test-long` brings")
@pytest.mark.rule("PROD-02c", "CARD-07b")
def test_the_tables_of_codes_are_those_of_iso() -> None:
    import pycountry  # noqa: PLC0415 - only the group `test-long` has it

    assert {each.alpha_2 for each in pycountry.countries} == COUNTRIES
    # Of the currencies, a release of the library may have a few more or fewer: they come and go every year.
    assert len({each.alpha_3 for each in pycountry.currencies} ^ CURRENCIES) <= 5


async def test_a_fault_refuses_single_products_and_keys(raw: RawClient, path: str) -> None:
    (first,) = await upsert(raw, path, make_product("a"))
    raw.sandbox.faults.on("*", "*/products").times(2).do(Fault.product_errors({1: "no such brand"}, code="ODD"))
    results = await upsert(raw, path, make_product("b"), make_product("a", size="L"), make_product("c"))
    assert [(result["id"], result["status"]) for result in results] == [
        ("b", "CREATE_SUCCESS"),
        ("a", "ERROR"),
        ("c", "CREATE_SUCCESS"),
    ]
    assert results[1] == first | {"status": "ERROR", "errors": [{"code": "ODD", "message": "no such brand"}]}
    assert [product.get("size") for product in (await raw("GET", path)).data] == [None] * 3

    keys = [result["product_key"] for result in results]
    deleted = (await send(raw, "DELETE", path, {"product_keys": keys})).data["delete_products"]
    assert [(each["product_key"], each["failed_product_key"], each["message"]) for each in deleted] == [
        (keys[0], None, None),
        (None, keys[1], "no such brand"),
        (keys[2], None, None),
    ]
    assert await list_ids(raw, path) == ["a"]


@pytest.mark.parametrize("config", [SandboxConfig(product_messages="strings")])
async def test_the_errors_of_a_refused_product_may_be_strings(raw: RawClient, path: str) -> None:
    raw.sandbox.faults.on("PUT", "*/products").once().do(Fault.product_errors({0: "no"}), stage="effect")
    (result,) = await upsert(raw, path, GOOD)
    assert (result["status"], result["errors"], await list_ids(raw, path)) == ("ERROR", ["no"], [])
