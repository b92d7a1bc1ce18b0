"""A sync makes a catalog equal to its feed, whatever form the feed has: what leaves the feed leaves the catalog."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from svc_async import BatchError, Session
from svc_async.ads.products import CLEARED, Product
from svc_async.batch.plan import SyncReport
from svc_async.lists.products import Products
from svc_async.sandbox import Fault, Sandbox
from tests.support.product_forms import FORMS, Row

PRODUCTS = "*/product_catalogs/*/products"
OPTIONAL: Row = {
    "brand": "Trail",
    "gtin": "4006381333931",
    "mpn": "m-1",
    "mobile_link": "https://m.shop.example/boots",
    "additional_image_link": "https://shop.example/w_5,h_5/2.png",
    "google_product_category": "Apparel > Shoes",
    "product_type": "Shoes > Boots",
    "inventory": 5,
    "sale_price": "79.00 EUR",
    "sale_price_effective_date": "2026-01-01T00:00Z/2026-02-01T00:00Z",
    "item_group_id": "g",
    "gender": "unisex",
    "age_group": "adult",
    "color": "red",
    "size": "41",
    **{f"custom_label_{number}": f"l{number}" for number in range(5)},
}
forms = pytest.mark.parametrize("form", FORMS)


def product(name: str) -> Row:
    link = f"https://shop.example/{name}"
    own = {"id": name, "title": "Boots", "description": "For long ways", "availability": "in stock", "condition": "new"}
    return {**own, "price": "99.00 EUR", "link": link, "image_link": f"{link}.png", **OPTIONAL, "item_group_id": name}


def drop(name: str, row: Row) -> Row:
    return {key: value for key, value in row.items() if key != name}


FULL: list[Row] = [product(name) for name in OPTIONAL]
"""Products with every attribute, each named after the one that it loses."""
ABSENT: list[Row] = [drop(row["id"], row) for row in FULL]
BLANK: list[Row] = [{**row, row["id"]: None} for row in FULL]


class Shop:
    """A catalog that is synced with products in any form."""

    def __init__(self, products: Products, folder: Path) -> None:
        self.products = products
        self.folder = folder
        self.state = folder / "state"

    async def sync(self, form: str, rows: list[Row]) -> SyncReport:
        given = FORMS[form](self.folder / "feed", rows)
        return await self.products.sync(given, state=self.state, quarantine=0.0)

    async def held(self) -> Mapping[str, set[str]]:
        """Return the optional attributes that each product has."""
        return {each.id: {name for name in OPTIONAL if getattr(each, name) is not None} async for each in self.list()}

    async def list(self) -> AsyncIterator[Product]:
        async for each in self.products.list():
            assert (each.item_group_key is None) == (each.item_group_id is None)
            yield each


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
async def shop(sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[Shop]:
    async with Session.sandbox(sandbox) as session:
        catalog = await session.product_catalogs.create(name="Shop")
        yield Shop(session.product_catalog(catalog.id).products, tmp_path)


LEFT = {name: {*OPTIONAL} - {name} for name in OPTIONAL}


def test_all_optional_attributes_are_tried() -> None:
    assert OPTIONAL.keys() == CLEARED.keys()


@pytest.mark.rule("PROD-08b")
@forms
@pytest.mark.parametrize("rows", [ABSENT, BLANK], ids=["absent", "blank"])
async def test_what_a_feed_no_longer_has_leaves_the_catalog(shop: Shop, form: str, rows: list[Row]) -> None:
    assert (await shop.sync(form, FULL)).sent.accepted == 20
    changed = await shop.sync(form, rows)
    assert (changed.plan.changes, changed.sent.accepted) == (20, 20)
    assert await shop.held() == LEFT
    again = await shop.sync(form, rows)
    assert (again.plan.unchanged, again.sent.read) == (20, 0)


@forms
async def test_a_catalog_is_equal_to_its_feed_after_the_state_was_lost(shop: Shop, form: str) -> None:
    await shop.sync(form, FULL)
    shop.state = shop.folder / "another state"
    assert (await shop.sync(form, ABSENT)).plan.additions == 20
    assert await shop.held() == LEFT


@pytest.mark.parametrize("stage", ["before", "after"])
async def test_a_catalog_is_equal_to_its_feed_after_a_sync_was_cut_off(
    shop: Shop, sandbox: Sandbox, stage: Any
) -> None:
    """Nobody knows what became of the request; a feed that is as before it may be of a catalog that is not."""
    await shop.sync("csv", ABSENT)
    sandbox.faults.on("PUT", PRODUCTS).nth(1).do(Fault.http(500), stage=stage)
    sandbox.faults.on("PUT", PRODUCTS).nth(2).do(Fault.http(403))
    with pytest.raises(BatchError):
        await shop.sync("csv", FULL)
    assert (await shop.sync("csv", ABSENT)).sent.accepted == 20
    assert await shop.held() == LEFT
    assert (await shop.sync("csv", ABSENT)).plan.unchanged == 20


@pytest.mark.long("runs several syncs")
async def test_the_same_products_are_unchanged_in_any_form(shop: Shop) -> None:
    assert (await shop.sync("csv", ABSENT)).sent.accepted == 20
    for form in FORMS:
        for rows in (ABSENT, BLANK):
            report = await shop.sync(form, rows)
            assert (form, report.plan.unchanged, report.sent.read) == (form, 20, 0)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "records"])
async def test_an_upsert_clears_what_is_blank_and_keeps_what_is_not_named(shop: Shop, form: str) -> None:
    await shop.sync(form, [product("boots")])
    blank = [name for name in OPTIONAL if name not in {"gtin", "mpn"}][::2]
    required = {name: value for name, value in product("boots").items() if name not in OPTIONAL}
    row = {**required, "gtin": "1", **dict.fromkeys(blank)}
    report = await shop.products.upsert(FORMS[form](shop.folder / "feed", [row]))
    assert (report.accepted, report.failures) == (1, ())
    assert await shop.held() == {"boots": {*OPTIONAL} - {*blank}}


async def test_an_upsert_of_a_record_keeps_what_it_lacks(shop: Shop) -> None:
    await shop.sync("records", [product("boots")])
    required = {name: value for name, value in product("boots").items() if name not in OPTIONAL}
    report = await shop.products.upsert(FORMS["records"](shop.folder, [{**required, "gtin": "1"}]))
    assert report.accepted == 1
    assert await shop.held() == {"boots": {*OPTIONAL}}


@pytest.mark.parametrize("name", ["8.05E+11", "#N/A", 805e9])
@pytest.mark.parametrize("validate", [True, False])
async def test_rows_of_one_id_that_says_nothing_are_no_product(
    sandbox: Sandbox, tmp_path: Path, name: object, validate: bool
) -> None:
    async with Session.sandbox(sandbox, validate=validate) as session:
        made = await session.product_catalogs.create(name="Shop")
        shop = Shop(session.product_catalog(made.id).products, tmp_path)
        rows: list[Row] = [{**product("a"), "id": name}, {**product("b"), "id": name}, product("c")]
        report = await shop.sync("mappings", rows)
        assert (report.plan.repeated, report.plan.invalid_rows) == (0, 2)
        assert [(each.position, each.attribute) for each in report.sent.failures] == [(0, "id"), (1, "id")]
        assert [*await shop.held()] == ["c"]
