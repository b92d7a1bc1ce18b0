"""What a merchant writes of a product is what the service gets, whichever way it is given."""

import json
from collections import UserDict, deque
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest

from svc_async import Session
from svc_async.ads.products import ATTRIBUTES, CLEARED, Product
from svc_async.sandbox import Sandbox
from tests.support.fake_catalog import FakeCatalog, product

IMAGE = "https://img.example/w_500,h_500/b.jpg"
QUOTED = "https://img.example/w_500%2Ch_500/b.jpg"
OTHER = "https://img.example/2.png"

TEXTS: list[tuple[str, str, Any]] = [
    ("availability", " In_Stock ", "in stock"),
    ("availability", "OUT_OF_STOCK", "out of stock"),
    ("condition", "New", "new"),
    ("age_group", "all_ages", "all ages"),
    ("title", "  Boots ", "Boots"),
    ("inventory", "7", 7),
    ("inventory", "10.0", 10),
    ("inventory", "10,00", 10),
    ("additional_image_link", IMAGE, QUOTED),
    ("additional_image_link", f"{IMAGE},{OTHER}", f"{QUOTED},{OTHER}"),
    ("additional_image_link", f" {OTHER} , {IMAGE},, ", f"{OTHER},{QUOTED}"),
    ("additional_image_link", f"{QUOTED},HTTPS://img.example/3.png", f"{QUOTED},HTTPS://img.example/3.png"),
    ("image_link", IMAGE, IMAGE),
    *(
        (name, blank, "")
        for name in ("color", "sale_price", "inventory", "additional_image_link")
        for blank in ("", " ")
    ),
]
"""An attribute, a text that is written for it, and what is sent."""
OF_JSON: list[tuple[str, Any, Any]] = [
    *((name, 805, "805") for name in ("id", "gtin", "mpn", "item_group_id", "title", "size", "custom_label_0")),
    ("size", 41.5, "41.5"),
    ("inventory", 10.0, 10),
    *((name, None, "") for name in CLEARED if name != "brand"),
    ("color", ["red", "red", None, ""], "red"),
    ("color", [None, ""], ""),
    ("color", [], ""),
    ("inventory", ["7", 7.0], 7),
    ("product_type", ["Shoes > Boots", "Boots"], "Shoes > Boots"),
    ("google_product_category", [None, 187, 5], "187"),
    ("additional_image_link", [IMAGE], QUOTED),
    ("additional_image_link", [IMAGE, OTHER, IMAGE], f"{QUOTED},{OTHER}"),
]
OF_PYTHON: list[tuple[str, Any, Any]] = [
    ("color", float("nan"), ""),
    ("sale_price", Decimal("NaN"), ""),
    ("id", UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    ("gtin", Decimal(4006381333931), "4006381333931"),
    ("inventory", Decimal("10.00"), 10),
    ("additional_image_link", (IMAGE, OTHER), f"{QUOTED},{OTHER}"),
    ("additional_image_link", deque([IMAGE]), QUOTED),
]


async def send(given: object) -> list[Mapping[str, Any]]:
    shop = FakeCatalog()
    report = await shop.products().upsert(given)  # type: ignore[arg-type]  # whatever a test gives
    assert report.failures == ()
    return [*shop.held.values()]


@pytest.mark.rule("PROD-02h", "PROD-04")
@pytest.mark.parametrize("validate", [True, False])
async def test_a_mapping_is_what_its_values_say(subtests: pytest.Subtests, validate: bool) -> None:
    for name, written, sent in TEXTS + OF_JSON + OF_PYTHON:
        with subtests.test(name, value=written):
            shop = FakeCatalog(validate=validate)
            row = product(1, gtin="1") | {name: written}
            report = await shop.products().upsert([row, UserDict({**row, "id": 2}), MappingProxyType({**row, "id": 3})])
            assert (report.accepted, report.failures) == (3, ())
            expected = {**product(1, gtin="1"), name: sent}
            assert shop.held[expected["id"]] == expected


@pytest.mark.long("runs two jobs for each value")
async def test_a_file_has_the_products_of_mappings_with_its_values(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for name, written, sent in TEXTS + OF_JSON:
        with subtests.test(name, value=written):
            row = product(1, gtin="1") | {name: written}
            (tmp_path / "feed").write_text(json.dumps(row))
            expected = {**product(1, gtin="1"), name: sent}
            assert await send(str(tmp_path / "feed")) == await send([row]) == [expected]


@pytest.mark.parametrize("name", ATTRIBUTES)
async def test_a_reason_is_about_what_the_attribute_is(name: str) -> None:
    """Text in valid Unicode is asked for where there is text that is not."""
    shop = FakeCatalog()
    values: list[Any] = [{"a": 1}, object(), True, b"a", ["a", "b", {}], {"a"}, "\ud800"]
    report = await shop.products().upsert([product(1) | {name: value} for value in values])
    assert [(each.attribute, "Unicode" in each.reason) for each in report.failures] == [
        *[(name, False)] * (len(values) - 1),
        (name, True),
    ]


async def test_ids_that_say_nothing_or_were_rounded_fail_also_in_a_session_that_does_not_validate() -> None:
    shop = FakeCatalog(validate=False)
    wrong = ["8.05E+11", "8.05E+11", "#N/A", 805e9, None, "", {}]
    report = await shop.products().upsert([product(1) | {"id": each} for each in wrong])
    assert (report.failed, [each.attribute for each in report.failures]) == (7, ["id"] * 7)
    assert [each.id for each in report.failures] == ["8.05E+11", "8.05E+11", "#N/A", "805000000000.0", None, None, None]


async def test_a_failure_names_the_id_as_it_would_be_sent() -> None:
    report = await FakeCatalog().products().upsert([product(1) | {"id": 7, "price": "9"}])
    assert [each.id for each in report.failures] == ["7"]


@pytest.mark.rule("PROD-02h")
async def test_a_single_request_takes_what_a_job_takes() -> None:
    async with Sandbox() as sandbox, Session.sandbox(sandbox) as session:
        catalog = session.product_catalog((await session.product_catalogs.create(name="Shop")).id).products
        await catalog.send([product(1, color="red", inventory=5, size="41")])
        row = product(1, color=None, inventory=float("nan"), availability="IN_STOCK", gtin=7)
        await catalog.send([row])
        (held,) = [each async for each in catalog.list()]
        assert (held.color, held.inventory, held.size, held.gtin, held.availability) == (
            None,
            None,
            "41",
            "7",
            "in stock",
        )
        await catalog.send([Product(**product(1, brand=None), gtin="8")])
        (held,) = [each async for each in catalog.list()]
        assert (held.brand, held.gtin, held.size) == ("Trail", "8", "41")


@pytest.mark.long("imports numpy and pandas")
async def test_a_frame_of_pandas_is_the_products_of_its_csv(tmp_path: Path) -> None:
    import numpy as np  # noqa: PLC0415 - for this only
    import pandas as pd  # noqa: PLC0415 - for this only

    rows = [
        product(1, gtin=np.int64(805), inventory=np.int64(7), color=pd.NA, size=np.float64(41)),
        product(2, gtin=np.uint8(7), inventory=np.nan, color=np.str_("red"), size=pd.NaT),
    ]
    rows[0]["additional_image_link"] = np.array([IMAGE, OTHER])
    sent = await send(rows)
    assert sent[0] == product(
        1, gtin="805", inventory=7, color="", size="41.0", additional_image_link=f"{QUOTED},{OTHER}"
    )
    assert sent[1] == product(2, gtin="7", inventory="", color="red", size="")

    without_dimensions = np.array(7)
    assert ATTRIBUTES["size"].normalize(without_dimensions) is without_dimensions

    frame = pd.DataFrame(rows).drop(columns="additional_image_link")
    frame.to_csv(tmp_path / "feed", index=False)
    assert await send(frame.to_dict("records")) == await send(str(tmp_path / "feed"))
