"""The products of a catalog in batches, over a socket against the sandbox; and against a service that is scripted."""

import random
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async.ads.products import (
    Product,
    ProductDeleteResult,
    ProductDeleteResults,
    ProductUpsertStatus,
)
from svc_async.batch.report import Progress, Receipt
from svc_async.errors import (
    BatchError,
    ErrorDetail,
    InvalidArgument,
    NotFound,
    Sent,
    TransportError,
)
from svc_async.lists.products import Products
from svc_async.sandbox import Fault, Sandbox, SandboxConfig, VirtualClock
from svc_async.session import Session
from svc_async.wire.outcome import api_error
from tests.support.errors import has
from tests.support.fake_catalog import FakeCatalog, change_results, product

PRODUCTS = "*/product_catalogs/*/products"
LOST = TransportError("the connection broke", sent=Sent.MAYBE)


@pytest.fixture
def shop() -> FakeCatalog:
    return FakeCatalog()


@pytest.fixture
def products(shop: FakeCatalog) -> Products:
    return shop.products()


@pytest.fixture
async def catalog(sandbox: Sandbox) -> AsyncIterator[Products]:
    async with Session.sandbox(sandbox) as session:
        created = await session.product_catalogs.create(name="Shop")
        yield session.product_catalog(created.id).products


async def read_titles(catalog: Products) -> dict[str, str]:
    return {each.id: each.title async for each in catalog.list()}


@pytest.mark.rule("PROD-01", "PROD-08c", "PROD-14", "LIM-09")
async def test_any_number_of_products_is_created_and_changed(catalog: Products) -> None:
    report = await catalog.upsert(product(number) for number in range(130))
    report.raise_for_failures()

    assert (report.accepted, report.requests) == (130, 6)

    changed = [Product(**product(number, title="Shoes")) for number in range(30)]

    assert (await catalog.upsert(changed)).accepted == 30
    assert await read_titles(catalog) == {f"sku-{n}": "Shoes" if n < 30 else "Boots" for n in range(130)}


@pytest.mark.rule("PROD-11", "PROD-11b", "PROD-14")
async def test_any_number_of_products_is_deleted(catalog: Products) -> None:
    await catalog.upsert(product(number) for number in range(60))
    keys = [each.product_key or "" async for each in catalog.list()]

    report = await catalog.delete([*keys[:40], "nothing", keys[0], " "])

    assert (report.read, report.accepted, report.coalesced, report.failed) == (43, 40, 1, 2)
    assert [(failure.position, failure.attribute) for failure in report.failures] == [(40, None), (42, "product_key")]
    assert len(await read_titles(catalog)) == 20


@pytest.mark.rule("PROD-07")
async def test_an_id_is_never_repeated_in_a_request_and_its_rows_keep_their_order(catalog: Products) -> None:
    dice = random.Random(4)
    rows = [product(dice.randrange(5), title=f"t{number}") for number in range(60)]

    report = await catalog.upsert(rows)

    assert (report.accepted, report.failed) == (60, 0)
    assert await read_titles(catalog) == {row["id"]: row["title"] for row in rows}


@pytest.mark.rule("PROD-07")
@pytest.mark.parametrize("ordering", ["key", "none"])
async def test_equal_products_that_would_share_a_request_are_sent_once(
    products: Products, shop: FakeCatalog, ordering: Any
) -> None:
    report = await products.upsert([product(1), product(1), product(2), product(1, title="Shoes")], ordering=ordering)

    assert (report.accepted, report.coalesced) == (3, 1)
    assert [[row["title"] for row in request if row["id"] == "sku-1"] for request in shop.requests] == [
        ["Boots"],
        ["Shoes"],
    ]


@pytest.mark.rule("PROD-01")
async def test_requests_are_full_and_counted_to_the_byte(products: Products, shop: FakeCatalog) -> None:
    report = await products.upsert([product(n, title="ü" * (n % 150 + 1)) for n in range(300)])

    assert report.accepted == 300
    assert 12 <= len(shop.requests) <= 13  # the tails of lanes are not parted
    assert max(len(request) for request in shop.requests) == 25


IDS = ("id", "gtin", "mpn", "item_group_id")
ROUNDED: list[Any] = ["8.05E+11", "8,05E+11", "8.05e11", "1e5", "1E5", "805.0", "805,0", "805.00", 805e9, 8.05e21]
ROUNDED += [Decimal("805.0"), Decimal("1E+5")]
BROKEN: list[tuple[str, Any, str]] = [
    ("id", None, "must be given"),
    *((name, None, "must be given") for name in product(1) if name not in {"id", "brand"}),
    *((name, "", "must be given") for name in product(1) if name not in {"id", "brand"}),
    ("title", "x" * 151, "at most 150"),
    ("title", {"en": "Boots"}, "must be text"),
    ("title", ["Boots", "Shoes"], "must not occur twice"),
    ("title", True, "must be text"),
    ("title", "\ud800", "valid Unicode"),
    ("description", "x" * 5001, "at most 5000"),
    ("description", "<b>fine</b>", "plain text"),
    ("availability", "sold out", "must be in stock or"),
    ("condition", "mint", "must be new or used"),
    ("gender", "any", "must be female"),
    ("age_group", "senior", "must be adult"),
    *(("price", price, "a 3-letter currency") for price in ("9.90", "9,90 eur", "EUR 9", "-9,90 EUR", "-9 eur", "9 €")),
    *(("price", price, "a decimal point and no comma") for price in ("9,90 EUR", "1,299.00 EUR")),
    *(("price", price, "without a sign") for price in ("-1 EUR", "+1.5 EUR", "\N{MINUS SIGN}1 EUR")),
    *(("price", price, "currency code in capital letters") for price in ("9 eur", "9.90 Eur")),
    ("sale_price", "-1 EUR", "without a sign"),
    ("price", 9.9, "a 3-letter currency"),
    ("price", ["9.90 EUR", "9 EUR"], "must not occur twice"),
    ("price", b"9.90 EUR", "a 3-letter currency"),
    ("link", "http://shop.example", "https URL"),
    ("link", "https://", "https URL"),
    ("link", "https://shop.example/a b", "https URL"),
    ("link", "https://[", "https URL"),
    ("mobile_link", "ftp://shop.example", "https URL"),
    ("image_link", "boots.png", "JPG, GIF, WEBP or PNG"),
    ("image_link", "https://shop.example/boots.SVG?size=2", "JPG, GIF, WEBP or PNG"),
    ("brand", None, "must be given where gtin and mpn are not"),
    ("brand", "", "must be given where gtin and mpn are not"),
    ("additional_image_link", ",".join(["https://a.example/1.png"] * 11), "at most 10"),
    ("additional_image_link", "https://a.example/1.png, x", "URLs"),
    ("additional_image_link", "x,https://a.example/1.png", "URLs"),
    ("additional_image_link", "https://a.example/1.png,ftp://a.example/2.png", "URLs"),
    ("additional_image_link", ["https://a.example/1.png", {}], "URLs"),
    *((name, value, "a spreadsheet has made a number of it") for name in IDS for value in ROUNDED),
    *((name, value, "stands for nothing") for name in IDS for value in ("NULL", "#N/A", "nan", "None", "-", "#REF!")),
    ("inventory", 0, "at least 1 when availability is in stock"),
    ("inventory", -1, "at least 0"),
    *(("inventory", value, "whole number") for value in ("-1", "1.5", 1.5, "1.000", "many", True, [[7]])),
    ("inventory", [7, 8], "must not occur twice"),
    ("sale_price", "8", "currency"),
    ("sale_price", "99.00 EUR", "lower than price"),
    ("sale_price_effective_date", "2026-01-01/2026-02-01", "ISO 8601"),
    ("sale_price_effective_date", "2026-02-01T00:00Z/2026-01-01T00:00Z", "later one last"),
    ("sale_price_effective_date", "2026-01-01T00:00Z/2026-02-01T00:00", "ISO 8601"),
    ("sale_price_effective_date", "2026-01-01T00:00Z", "ISO 8601"),
    ("item_group_key", "g1", "must be given with item_group_key"),
    ("color", "#ff00aa", "hex"),
    ("color", "ff00aa", "hex"),
    ("product_type", "Shoes>Boots", "levels"),
    ("google_product_category", "Shoes > ", "levels"),
    ("colour", "red", "must be an attribute of a product"),
]


@pytest.mark.rule("PROD-02", "PROD-02b", "PROD-02c", "PROD-02d", "PROD-02h", "PROD-03", "PROD-04", "PROD-05", "PROD-06")
@pytest.mark.rule("PROD-06b", "PROD-06c", "PROD-09b", "PROD-12", "PROD-13")
async def test_a_broken_rule_is_named_by_position_and_attribute(
    subtests: pytest.Subtests, products: Products, shop: FakeCatalog
) -> None:
    rows = [product(number) | {name: value} for number, (name, value, _) in enumerate(BROKEN)]
    report = await products.upsert([product("first"), *rows, product("last")])

    assert [failure.position for failure in report.failures] == [*range(1, len(BROKEN) + 1)]
    assert (report.accepted, sorted(shop.held)) == (2, ["sku-first", "sku-last"])
    for failure, (name, value, reason) in zip(report.failures, BROKEN, strict=True):
        attribute = "item_group_id" if name == "item_group_key" else name
        with subtests.test(name, value=value):
            assert (failure.attribute, failure.code) == (attribute, "INVALID_ROW")
            assert reason in failure.reason
            assert failure.reason.startswith(f"{attribute} ")
            assert ("valid Unicode" in failure.reason) == (value == "\ud800")


async def yield_products(*rows: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    for each in rows:
        yield each


async def test_an_unknown_attribute_of_the_first_product_is_refused_with_the_nearest_name(
    products: Products, shop: FakeCatalog, tmp_path: Path
) -> None:
    wrong = {"titel": "x", **product(1)}
    refused = has(parameter="products[0]")
    with pytest.raises(InvalidArgument, match="write 'title' for 'titel'", check=refused):
        await products.upsert([wrong, product(2)])
    with pytest.raises(InvalidArgument, check=refused):
        await products.sync([wrong, product(2)], state=tmp_path / "state")
    for rows in (iter([wrong, product(2)]), yield_products(wrong, product(2))):
        with pytest.raises(BatchError) as caught:
            await products.upsert(rows)
        assert isinstance(caught.value.__cause__, InvalidArgument)
        assert refused(caught.value.__cause__)
    assert shop.held == {}


async def test_half_a_character_in_a_reason_does_not_end_a_job_with_a_journal(
    products: Products, shop: FakeCatalog, tmp_path: Path
) -> None:
    error: dict[str, Any] = {"status": ProductUpsertStatus.ERROR, "errors": ["cut \ud83d"]}
    shop.always = change_results(lambda found: [attrs.evolve(each, **error) for each in found])
    report = await products.upsert([product(1)], journal=tmp_path / "journal")
    assert [failure.reason for failure in report.failures] == ["cut \ufffd"]


KEPT: list[dict[str, Any]] = [
    {"brand": None, "gtin": "1"},
    {"brand": "", "mpn": "m"},
    {"mobile_link": "", "color": "", "sale_price": "", "gender": ""},
    {"availability": "out of stock", "inventory": 0},
    {"sale_price": "98.99 EUR", "sale_price_effective_date": "2026-01-01T00:00Z/2026-02-01T00:00+01:00"},
    {"image_link": "http://shop.example/image?id=7", "color": "facade"},
    {"additional_image_link": ", ".join(["https://a.example/1.png"] * 10)},
    {
        "google_product_category": "Apparel > Shoes",
        "product_type": "Boots",
        "gender": "unisex",
        "age_group": "all ages",
    },
    {"item_group_id": "g", "item_group_key": "k", "size": "41", "custom_label_4": "x", "product_key": "k"},
    *(
        {name: value}
        for name in ("id", "gtin", "mpn", "item_group_id")
        for value in ("A1E5", "12E4B", "v1.0", "1.0.0", "0")
    ),
    {"id": "1E555", "gtin": 4006381333931, "mpn": "1.5"},
    {"title": "x" * 150, "description": "a < b > c" + "x" * 4991, "price": "0.5 USD"},
]


@pytest.mark.rule("PROD-02", "PROD-03", "PROD-05", "PROD-06", "PROD-09b", "PROD-12", "PROD-13")
@pytest.mark.parametrize("fields", KEPT)
async def test_what_keeps_the_rules_is_accepted(catalog: Products, products: Products, fields: dict[str, Any]) -> None:
    assert (await products.upsert([product(1, **fields)])).accepted == 1

    report = await catalog.upsert([product(1, **fields)])

    assert report.failures == ()


async def test_every_rule_that_a_product_breaks_is_named(products: Products) -> None:
    rows: list[Any] = [product(1, price="9", color="#fff", condition=None), 5, {}]

    report = await products.upsert(rows)

    assert [failure.position for failure in report.failures] == [0, 1, 2]
    assert report.failures[0].attribute == "condition"
    assert report.failures[0].reason == (
        "condition must be given; price must be a number, a space and a 3-letter currency code, such as 9.90 EUR; "
        "color must be a word, not a hex code"
    )
    assert report.failures[2].attribute == "id"


async def test_a_session_that_does_not_validate_leaves_the_rules_to_the_service(
    products: Products, shop: FakeCatalog
) -> None:
    shop.validate = False
    rows: list[Any] = [product(1, price="9"), {"id": "x", "colour": "red"}, {"title": "t"}, {"id": "y", "price": b"9"}]

    report = await products.upsert(rows)

    assert (report.accepted, sorted(shop.held)) == (2, ["sku-1", "x"])
    assert [(failure.position, failure.attribute) for failure in report.failures] == [(2, "id"), (3, None)]


@pytest.mark.rule("PROD-08c", "PROD-14")
@pytest.mark.parametrize("messages", ["objects", "strings"])
async def test_a_product_with_an_error_result_has_failed(messages: Any) -> None:
    config = SandboxConfig(product_messages=messages)
    async with (
        Sandbox(seed=7, clock=VirtualClock(mode="jump"), config=config) as sandbox,
        Session.sandbox(sandbox, validate=False) as session,
    ):
        catalog = session.product_catalog((await session.product_catalogs.create(name="Shop")).id).products
        report = await catalog.upsert([product(1), product(2, price="9"), product(3)])
        ((failure,),) = [report.failures]
        assert failure.position == 1
        if messages == "objects":
            assert (failure.code, failure.attribute) == ("INVALID_PARAMETER", "price")
        assert failure.reason
        assert (report.accepted, report.requests) == (2, 1)
        assert len(await read_titles(catalog)) == 2


@pytest.mark.rule("PROD-08c")
async def test_products_that_the_answer_does_not_mention_are_in_doubt_and_sent_again(
    products: Products, shop: FakeCatalog
) -> None:
    shop.script[1] = change_results(lambda found: [each for each in found if each.id not in {"sku-3", "sku-7"}])
    receipts: list[Receipt] = []

    report = await products.upsert(
        [product(number) for number in range(10)], quarantine=50, on_receipt=receipts.append, concurrency=1
    )

    assert (report.accepted, report.requests, report.in_doubt) == (10, 2, 0)
    assert [row["id"] for row in shop.requests[1]] == ["sku-3", "sku-7"]
    assert shop.times[1] - shop.times[0] == 50
    assert [receipt.rows for receipt in receipts] == [8, 2]


@pytest.mark.parametrize(
    "change",
    [
        lambda _: [],
        lambda found: [attrs.evolve(each, id="other") for each in found],
        lambda found: [attrs.evolve(each, status=ProductUpsertStatus("PENDING")) for each in found],
    ],
)
async def test_a_product_that_is_never_mentioned_fails_in_the_end(
    products: Products, shop: FakeCatalog, change: Any
) -> None:
    shop.always = change_results(change)
    report = await products.upsert([product(1)], retry_delays=[0, 5])

    assert (report.accepted, report.failed, report.requests) == (0, 1, 3)
    assert report.failures[0].code == "GAVE_UP"


async def test_results_without_an_id_are_matched_in_their_order(products: Products, shop: FakeCatalog) -> None:
    status = ProductUpsertStatus.ERROR
    shop.script[1] = change_results(
        lambda found: [
            attrs.evolve(
                each, id=None, status=status if index == 1 else each.status, errors=["no", {"code": "C"}, None]
            )
            for index, each in enumerate(found)
        ]
    )
    report = await products.upsert([product(number) for number in range(3)], concurrency=1)
    ((failure,),) = [report.failures]

    assert (failure.position, failure.code, failure.reason) == (1, "C", "no")
    assert report.requests == 1


@pytest.mark.parametrize("name", ["attribute", "parameter"])
async def test_the_attribute_that_the_service_names_is_that_of_the_failure(
    products: Products, shop: FakeCatalog, name: str
) -> None:
    status, errors = ProductUpsertStatus.ERROR, {"code": "C", "message": "no", name: "price"}
    shop.script[1] = change_results(lambda found: [attrs.evolve(each, status=status, errors=errors) for each in found])
    report = await products.upsert([product(1)])
    assert [failure.attribute for failure in report.failures] == ["price"]


@pytest.mark.rule("PROD-11")
@pytest.mark.parametrize(
    ("result", "failed"),
    [
        (ProductDeleteResult(product_key="k"), False),
        (ProductDeleteResult(failed_product_key="k", message="gone"), True),
        (ProductDeleteResult(failed_product_key=["k"], message=["gone"]), True),
        (ProductDeleteResult(product_key="k", failed_product_key=True, message={"message": "gone"}), True),
    ],
)
async def test_a_key_that_was_not_deleted_has_failed_in_whatever_form_it_is_reported(
    products: Products, shop: FakeCatalog, result: ProductDeleteResult, failed: bool
) -> None:
    shop.always = lambda _: ProductDeleteResults(delete_products=(result,))
    report = await products.delete(["k"])

    assert (report.failed, report.accepted) == (failed, not failed)
    assert [failure.reason for failure in report.failures] == ["gone"] * failed


async def test_a_failure_after_an_unclear_answer_says_so(products: Products, shop: FakeCatalog) -> None:
    await products.upsert([product(1)])

    def delete_and_lose(_: object) -> Any:
        raise LOST

    shop.script[2] = delete_and_lose
    report = await products.delete(["k-sku-1"], quarantine=3)
    ((failure,),) = [report.failures]

    assert failure.reason == (
        "there is no such product; an earlier attempt had no conclusive answer and may have worked"
    )


@pytest.mark.parametrize("code", [400, 413, 422])
async def test_a_refused_request_is_narrowed_down_to_the_product(
    products: Products, shop: FakeCatalog, code: int
) -> None:
    def refuse(answer: Any) -> Any:
        if "sku-7" in [row["id"] for row in shop.requests[-1]]:
            shop.held.clear()
            raise api_error(status=code, errors=[ErrorDetail(code="BAD", message="new is not good", parameter="price")])
        return answer

    shop.always = refuse
    report = await products.upsert([product(number) for number in range(25)], concurrency=1)
    ((failure,),) = [report.failures]

    assert (failure.position, failure.code, failure.reason, failure.attribute) == (7, "BAD", "new is not good", "price")
    assert report.accepted == 24


async def test_refused_operations_are_isolated(products: Products, shop: FakeCatalog) -> None:
    shop.script[1] = api_error(status=400, operation_errors={3: (ErrorDetail(message="new is bad"),)})
    report = await products.upsert([product(number) for number in range(10)], concurrency=1)
    ((failure,),) = [report.failures]

    assert (failure.position, failure.code, failure.reason) == (3, "REFUSED", "new is bad")
    assert (report.accepted, report.requests) == (9, 2)


@pytest.mark.parametrize("fault", [Fault.http(503), Fault.drop_connection(), Fault.truncate(10), Fault.rate_limited(9)])
@pytest.mark.parametrize("stage", [pytest.param("before", marks=pytest.mark.long), "after"])
async def test_a_fault_costs_a_request_and_no_product(
    sandbox: Sandbox, catalog: Products, fault: Fault, stage: Any
) -> None:
    if fault.stage == "after" and stage == "before":
        stage = "after"
    sandbox.faults.on("PUT", PRODUCTS).once().do(fault, stage=stage)

    report = await catalog.upsert([product(number) for number in range(20)], quarantine=7)

    assert (report.accepted, report.requests) == (20, 2)
    assert len(await read_titles(catalog)) == 20


async def test_an_unknown_catalog_stops_the_job(sandbox: Sandbox) -> None:
    async with Session.sandbox(sandbox) as session:
        with pytest.raises(BatchError) as caught:
            await session.product_catalog("nothing").products.upsert([product(1)])

    assert isinstance(caught.value.__cause__, NotFound)
    assert caught.value.report.pending == 1


async def test_a_stream_returns_receipts_as_they_come(products: Products) -> None:
    stream = products.stream([product(number) for number in range(100)])
    assert sum([receipt.accepted async for receipt in stream]) == stream.report.accepted == 100


@pytest.mark.parametrize("source", [b"sku", {"id": "sku"}, 5])
@pytest.mark.parametrize(("call", "parameter"), [("upsert", "products"), ("delete", "product_keys")])
async def test_a_source_is_an_iterable(products: Products, call: str, parameter: str, source: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=parameter)):
        await getattr(products, call)(source)


@pytest.mark.parametrize(
    ("setting", "value"), [("concurrency", 0), ("quarantine", -1), ("retry_delays", [-1]), ("ordering", "x")]
)
@pytest.mark.parametrize("call", ["upsert", "delete"])
async def test_a_bad_setting_is_named(products: Products, call: str, setting: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=setting)):
        await getattr(products, call)([], **{setting: value})


async def test_results_of_a_job_on_a_cluster_cannot_be_observed(products: Products) -> None:
    cluster: Any = object()
    with pytest.raises(InvalidArgument, check=has(parameter="on_result")):
        await products.upsert([], cluster=cluster, on_result=print)


FAULTS = st.sampled_from(["fine", "fine", "503", "lost before", "lost after", "429", "some left out", "error", "400"])


@pytest.mark.usefixtures("examples")
@given(
    ids=st.lists(st.integers(0, 30), max_size=150),
    faults=st.lists(FAULTS, max_size=10),
    lanes=st.sampled_from([1, 3, 32]),
)
async def test_the_catalog_has_the_last_product_of_each_id_whatever_happens(
    ids: list[int], faults: list[str], lanes: int
) -> None:
    shop = FakeCatalog()

    def lose(_: object) -> Any:
        raise LOST

    errors = {
        "503": api_error(status=503),
        "429": api_error(status=429),
        "400": api_error(status=400),
        "lost before": LOST,
        "lost after": lose,
        "some left out": change_results(lambda found: found[::2]),
        "error": change_results(lambda found: [attrs.evolve(found[0], status=ProductUpsertStatus.ERROR), *found[1:]]),
    }
    shop.script = {number: errors[fault] for number, fault in enumerate(faults, 1) if fault != "fine"}
    rows = [product(each, title=f"t{number}") for number, each in enumerate(ids)]
    seen: list[Progress] = []

    report = await shop.products().upsert(rows, concurrency=lanes, progress=seen.append, retry_delays=[0] * 9)

    assert all(each.read == each.accepted + each.coalesced + each.failed + each.pending for each in seen)
    assert report.pending == 0

    failed = {rows[failure.position]["id"] for failure in report.failures}
    last = {row["id"]: row["title"] for row in rows}

    assert {name: row["title"] for name, row in shop.held.items() if name not in failed} == {
        name: title for name, title in last.items() if name not in failed
    }
