import json
from collections.abc import AsyncIterator
from types import MappingProxyType
from typing import Any, Self

import pytest

from svc_async import BatchError, Forbidden, InvalidArgument, Session
from svc_async.ads.products import Product, ProductAvailability, ProductCondition
from svc_async.batch.job import StateLocation
from svc_async.batch.plan import SyncReport
from svc_async.batch.report import Failure
from svc_async.errors import UnusableFile
from svc_async.sandbox import Fault, Sandbox, VirtualClock
from tests.support.errors import has
from tests.support.files import Write
from tests.support.sync_states import EVERYWHERE

PRODUCTS = "*/product_catalogs/*/products"
HEADER = "id,title,description,availability,condition,price,link,image_link,brand,inventory,item_group_id"


def row(name: str, price: str = "9.90 EUR", group: str = "") -> str:
    return f"{name},T,D,in_stock,new,{price},https://shop.example.org/{name},https://shop.example.org/{name}.png,B,1,{group}"


def mapping(name: str) -> dict[str, Any]:
    link = f"https://shop.example.org/{name}"
    text = {"id": name, "title": "T", "description": "D", "price": "9.90 EUR", "brand": "B"}
    words = {"availability": ProductAvailability.IN_STOCK, "condition": ProductCondition.NEW}
    return {**text, **words, "link": link, "image_link": f"{link}.png", "inventory": 1}


class Catalog:
    """A catalog that is synced with rows of a feed."""

    def __init__(self, session: Session, catalog_id: str, write: Write, state: StateLocation) -> None:
        self.products = session.product_catalog(catalog_id).products
        self.write = write
        self.state = state
        self.failures: list[Failure] = []
        self.removal_failures: list[Failure] = []

    async def sync(self, *rows: str, quarantine: float = 0.0) -> SyncReport:
        return await self.products.sync(
            self.write("\n".join([HEADER, *rows])),
            state=self.state,
            max_removal_share=1,
            quarantine=quarantine,
            on_failure=self.failures.append,
            on_removal_failure=self.removal_failures.append,
        )

    async def held(self) -> dict[str, str]:
        return {product.id: product.price async for product in self.products.list()}


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
async def catalog(sandbox: Sandbox, write: Write, location: StateLocation) -> AsyncIterator[Catalog]:
    async with Session.sandbox(sandbox) as session:
        made = await session.product_catalogs.create(name="Shop")
        yield Catalog(session, made.id, write, location)


@EVERYWHERE
async def test_only_what_changed_is_sent(catalog: Catalog) -> None:
    names = [f"p{number}" for number in range(60)]
    first = await catalog.sync(*map(row, names))
    assert first.sent.accepted == 60
    again = await catalog.sync(*map(row, names))
    assert again.sent.read == again.removed.read == 0
    third = await catalog.sync(*map(row, names[2:]), row("new"), row("p1", "5.00 EUR"))
    assert (third.sent.accepted, third.removed.accepted) == (2, 1)
    assert await catalog.held() == {**dict.fromkeys([*names[1:], "new"], "9.90 EUR"), "p1": "5.00 EUR"}


async def test_a_product_that_failed_is_reported_at_its_position_and_tried_again(catalog: Catalog) -> None:
    rows = [row("a"), row("b", "cheap"), row("c"), row("").removeprefix("x")]
    sync = await catalog.sync(*rows)
    assert (sync.sent.accepted, sync.sent.failed) == (2, 2)
    assert [(failure.position, failure.attribute) for failure in catalog.failures] == [(1, "price"), (3, "id")]
    assert (await catalog.sync(*rows)).sent.read == 2


async def test_a_change_that_failed_leaves_the_product_and_its_key(catalog: Catalog) -> None:
    await catalog.sync(row("a"), row("b"))
    await catalog.sync(row("a", "cheap"), row("b"))
    assert await catalog.held() == {"a": "9.90 EUR", "b": "9.90 EUR"}
    sync = await catalog.sync(row("b"))
    assert sync.removed.accepted == 1
    assert await catalog.held() == {"b": "9.90 EUR"}


async def test_a_product_whose_answer_was_lost_is_found_and_deleted(catalog: Catalog, sandbox: Sandbox) -> None:
    sandbox.faults.on("PUT", PRODUCTS).nth(1).do(Fault.http(500), stage="after")
    sandbox.faults.on("PUT", PRODUCTS).nth(2).do(Fault.http(403))
    with pytest.raises(BatchError):
        await catalog.sync(row("a", group="g"), row("b", group="g"), row("c"))
    sync = await catalog.sync(row("c"))
    assert sync.removed.failed == 0
    assert await catalog.held() == {"c": "9.90 EUR"}
    assert (await catalog.sync(row("c"))).removed.read == 0


async def test_products_whose_results_name_none_are_found_and_deleted(catalog: Catalog, sandbox: Sandbox) -> None:
    result = b'{"status": "CREATE_SUCCESS", "product_key": "1"}'
    body = b'{"request": {"params": {}}, "data": {"products_response": [%s, %s]}}' % (result, result)
    sandbox.faults.on("PUT", PRODUCTS).once().do(Fault.http(200, body=body), stage="after")
    assert (await catalog.sync(row("a"), row("b"))).sent.accepted == 2
    sync = await catalog.sync(row("c"))
    assert (sync.removed.accepted, sync.removed.failed) == (2, 0)
    assert await catalog.held() == {"c": "9.90 EUR"}


async def test_a_listed_product_without_a_readable_name_hides_no_other(catalog: Catalog, sandbox: Sandbox) -> None:
    sandbox.faults.on("PUT", PRODUCTS).nth(1).do(Fault.http(500), stage="after")
    sandbox.faults.on("PUT", PRODUCTS).nth(2).do(Fault.http(403))
    with pytest.raises(BatchError):
        await catalog.sync(row("a"), row("b"))
    unreadable = b'{"id": ["a"]}, {"id": "a", "product_key": {}}, {"id": "b", "product_key": {}, "item_group_key": []}'
    body = b'{"data": [%s, 5, null]}' % unreadable
    sandbox.faults.on("GET", PRODUCTS).once().do(Fault.http(200, body=body))
    sync = await catalog.sync(row("b"))
    assert (sync.removed.accepted, sync.removed.failed) == (1, 0)
    assert await catalog.held() == {"b": "9.90 EUR"}


async def test_a_product_whose_request_was_lost_is_looked_for_once(catalog: Catalog, sandbox: Sandbox) -> None:
    sandbox.faults.on("PUT", PRODUCTS).once().do(Fault.http(500))
    sandbox.faults.on("PUT", PRODUCTS).once().do(Fault.http(403))
    with pytest.raises(BatchError):
        await catalog.sync(row("a", group="g"), row("b", group="g"), row("c"))
    assert (await catalog.sync(row("c"))).plan.all_removals == 2
    assert (await catalog.sync(row("c"))).plan.all_removals == 0


async def test_products_are_deleted_in_two_stages_if_requests_for_some_of_them_may_still_take_effect(
    write: Write, location: StateLocation
) -> None:
    async with Sandbox(clock=VirtualClock(mode="jump")) as sandbox, Session.sandbox(sandbox) as session:
        catalog = Catalog(session, (await session.product_catalogs.create(name="Shop")).id, write, location)
        await catalog.sync(row("x"), row("c"))
        sandbox.faults.on("PUT", PRODUCTS).once().do(Fault.http(500))
        sandbox.faults.on("PUT", PRODUCTS).once().do(Fault.http(403))
        with pytest.raises(BatchError):
            await catalog.sync(row("x"), row("a"), row("c"))
        await catalog.products.send([mapping("a")])

        sync = await catalog.sync(row("c"), quarantine=60.0)

        assert (sync.plan.all_removals, sync.plan.waiting_removals, sync.removed.accepted) == (2, 1, 2)
        assert (await catalog.sync(row("c"))).plan.all_removals == 0
        assert await catalog.held() == {"c": "9.90 EUR"}


async def test_what_was_never_made_need_not_be_deleted(catalog: Catalog, sandbox: Sandbox) -> None:
    sandbox.faults.on("PUT", PRODUCTS).nth(1).do(Fault.http(403))
    with pytest.raises(BatchError):
        await catalog.sync(row("a"), row("b"))
    sync = await catalog.sync(row("b"))
    assert sync.removed.read == 0
    assert await catalog.held() == {"b": "9.90 EUR"}


async def test_a_product_that_somebody_else_deleted_fails_once_and_is_forgotten(catalog: Catalog) -> None:
    await catalog.sync(row("a"), row("b"), row("c"))
    keys = {product.id: str(product.product_key) async for product in catalog.products.list()}
    await catalog.products.delete([keys["a"]])
    sync = await catalog.sync(row("c"))
    assert (sync.removed.accepted, sync.removed.failed) == (1, 1)
    assert (await catalog.sync(row("c"))).removed.read == 0
    assert await catalog.held() == {"c": "9.90 EUR"}


async def test_a_deletion_that_failed_has_its_number_among_all_removals(catalog: Catalog, sandbox: Sandbox) -> None:
    names = ["a", *(f"b{number}" for number in range(5))]
    results = [{"status": "CREATE_SUCCESS", "id": name} for name in names]
    results[0]["product_key"] = "999"
    body = json.dumps({"request": {"params": {}}, "data": {"products_response": results}}).encode()
    sandbox.faults.on("PUT", PRODUCTS).once().do(Fault.http(200, body=body))
    assert (await catalog.sync(*map(row, names))).sent.accepted == 6
    sync = await catalog.sync(row("z"))  # only `a` has a key to be deleted by, and the catalog has none of them
    assert (sync.plan.all_removals, sync.removed.read, sync.removed.failed) == (6, 1, 1)
    assert [failure.position for failure in catalog.removal_failures] == [5]
    assert [*sync.removed.failures] == catalog.removal_failures


async def test_a_listing_that_fails_ends_the_sync_with_a_report(catalog: Catalog, sandbox: Sandbox) -> None:
    sandbox.faults.on("PUT", PRODUCTS).nth(1).do(Fault.http(500), stage="after")
    sandbox.faults.on("PUT", PRODUCTS).nth(2).do(Fault.http(403))
    with pytest.raises(BatchError):
        await catalog.sync(row("a"), row("b"))
    sandbox.faults.on("GET", PRODUCTS).do(Fault.http(403))

    with pytest.raises(BatchError) as caught:
        await catalog.sync(row("b"))

    assert isinstance(caught.value.report, SyncReport)
    assert isinstance(caught.value.__cause__, Forbidden)


# --- the call


async def test_products_may_be_mappings_or_records(catalog: Catalog) -> None:
    plain = [mapping("a"), mapping("b")]
    first = await catalog.products.sync(plain, state=catalog.state)
    record = Product(**{**mapping("b"), "price": "5.00 EUR"})

    second = await catalog.products.sync([record], state=catalog.state, max_removal_share=0.5)

    assert (first.sent.accepted, second.sent.accepted, second.removed.accepted) == (2, 1, 1)
    assert await catalog.held() == {"b": "5.00 EUR"}


async def test_products_that_can_be_read_only_once_are_refused(catalog: Catalog) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="products")):
        await catalog.products.sync(iter([{"id": "a"}]), state=catalog.state)


class Money(str):
    """A text that can be pickled and not be read back."""

    __slots__ = ()

    def __new__(cls, amount: str, currency: str) -> Self:
        return super().__new__(cls, f"{amount} {currency}")


async def test_a_value_that_cannot_be_read_back_is_sent_as_what_it_is_in_json(catalog: Catalog) -> None:
    rows: list[Any] = [{**mapping("a"), "price": Money("9.90", "EUR")}]
    report = await catalog.products.sync(rows, state=catalog.state)
    assert report.sent.accepted == 1
    assert await catalog.held() == {"a": "9.90 EUR"}


async def test_a_product_without_a_form_in_json_fails_by_itself(catalog: Catalog) -> None:
    rows: list[Any] = [{"id": "a", "title": object()}, "b", {"id": "c", "title": lambda: "T"}]
    rows.append(MappingProxyType(mapping("d")))  # this one has a form, but cannot be pickled
    planned = await catalog.products.sync(rows, state=catalog.state, dry_run=True)
    report = await catalog.products.sync(rows, state=catalog.state)

    assert (planned.plan.invalid_rows, report.sent.failed, report.sent.accepted) == (3, 3, 1)
    assert [failure.id for failure in report.sent.failures] == ["a", None, "c"]
    assert await catalog.held() == {"d": "9.90 EUR"}


@pytest.mark.parametrize(
    "broken",
    [
        {"title": ""},
        *(pytest.param(each, marks=pytest.mark.long) for each in ({"title": object()}, {"price": "10.90 €"})),
    ],
)
async def test_a_product_whose_row_is_invalid_is_not_deleted(catalog: Catalog, broken: dict[str, Any]) -> None:
    rows = [mapping(name) for name in "abcdefgh"]
    await catalog.products.sync(rows, state=catalog.state)
    report = await catalog.products.sync([{**rows[0], **broken}, *rows[1:7]], state=catalog.state)
    assert (report.plan.invalid_rows, report.plan.changes, report.plan.unchanged) == (1, 0, 6)
    assert (report.removed.accepted, report.sent.failed, report.plan.rows) == (1, 1, 7)
    assert sorted(await catalog.held()) == [*"abcdefg"]


async def test_a_product_that_is_too_long_is_not_deleted(catalog: Catalog) -> None:
    rows = [row(name) for name in "abcdefgh"]
    await catalog.sync(*rows)
    report = await catalog.sync(row("a").replace(",T,", f",{'x' * 70_000},"), *rows[1:7])
    assert (report.removed.accepted, report.sent.failed, catalog.failures[0].id) == (1, 1, "a")
    assert sorted(await catalog.held()) == [*"abcdefg"]


async def test_a_dry_run_returns_the_plan_and_changes_nothing(catalog: Catalog) -> None:
    await catalog.sync(row("a"), row("b"))

    feed = catalog.write("\n".join([HEADER, row("b"), row("c")]))
    report = await catalog.products.sync(feed, state=catalog.state, dry_run=True)

    assert (report.plan.additions, report.plan.removals, report.plan.unchanged) == (1, 1, 1)
    assert await catalog.held() == {"a": "9.90 EUR", "b": "9.90 EUR"}


async def test_by_default_a_fifth_of_the_catalog_may_be_deleted(catalog: Catalog) -> None:
    names = [f"p{number}" for number in range(10)]
    await catalog.sync(*map(row, names))

    feed = catalog.write("\n".join([HEADER, *map(row, names[3:])]))
    with pytest.raises(InvalidArgument, check=has(parameter="max_removal_share")):
        await catalog.products.sync(feed, state=catalog.state)

    assert len(await catalog.held()) == 10


@pytest.mark.parametrize("location", ["state_path"], indirect=True)
async def test_the_state_of_another_host_is_refused(catalog: Catalog) -> None:
    await catalog.sync(row("a"))
    async with Sandbox() as other, Session.sandbox(other) as session:
        products = session.product_catalog(catalog.products.product_catalog_id).products
        with pytest.raises(UnusableFile, check=has(path=str(catalog.state))):
            await products.sync([mapping("a")], state=catalog.state)


async def test_an_id_of_three_products_that_differ_identifies_none(catalog: Catalog) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="id")):
        await catalog.sync(row("a"), *(row("sku", f"{price}.00 EUR") for price in (1, 2, 3)))
    assert [(each.position, each.code, each.attribute) for each in catalog.failures] == [
        (position, "REPEATED_KEY", "id") for position in (1, 2, 3)
    ]
    assert await catalog.held() == {}


async def test_a_feed_whose_products_are_refused_deletes_nothing(catalog: Catalog) -> None:
    await catalog.sync(row("a"), row("b"), row("c"))
    feed = catalog.write("\n".join([HEADER, row("a", "cheap"), row("b", "cheap")]))
    with pytest.raises(InvalidArgument, check=has(parameter="max_removal_share")):
        await catalog.products.sync(feed, state=catalog.state, max_removal_share=0.5, quarantine=0.0)
    assert await catalog.held() == dict.fromkeys("abc", "9.90 EUR")
