"""Products in JSON lines and Parquet are those that a CSV feed would hold."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from svc_async import UnusableFile
from svc_async.sources.detect import open_feed, open_source
from svc_async.sources.product_attributes import UnparsedRow
from svc_async.sources.rows import products_from_arrow
from tests.support.files import Write

LINES = """\
{"id": "1", "title": " Boots ", "availability": "in_stock", "inventory": 5, "price": "9.90 EUR", "other": 1}

{"id": 2, "image url": ["a", "b"], "additional_image_link": ["c", "d,e"], "title": null, "color": null, "size": ""}
{"ID": "3", "product_type": ["Shoes", "Boots"], "price": 9.5, "brand": [], "mpn": [null, " "]}
"""
PRODUCTS: Sequence[Mapping[str, Any]] = [
    {"id": "1", "title": "Boots", "availability": "in stock", "inventory": 5, "price": "9.90 EUR"},
    {"id": "2", "image_link": ["a", "b"], "additional_image_link": "c,d%2Ce", "color": "", "size": ""},
    {"id": "3", "product_type": "Shoes", "price": "9.5", "brand": "", "mpn": ""},
]


def test_objects_are_products(write: Write) -> None:
    with closing(open_feed(write(LINES))) as feed:
        assert list(feed.products()) == PRODUCTS
        assert list(feed.products()) == PRODUCTS
        assert [feed.find_line(position) for position in range(3)] == [1, 3, 4]
        assert feed.ignored == ("other",)
        assert feed.exhausted
        assert feed.bytes_read == feed.size == len(LINES)


async def test_columns_of_parquet_are_attributes(tmp_path: Path) -> None:
    path = tmp_path / "feed.parquet"
    columns = {
        "id": ["1", "2"],
        "Title": ["Boots", None],
        "inventory": [5, None],
        "images": [["c", "d"], []],
        "other": [1, 2],
    }
    pq.write_table(pa.table(columns), path)
    with closing(open_feed(path, mapping={"images": "additional_image_link"})) as feed:
        await feed.check()
        assert list(feed.products()) == [
            {"id": "1", "title": "Boots", "inventory": 5, "additional_image_link": "c,d"},
            {"id": "2", "inventory": "", "additional_image_link": ""},
        ]
        assert feed.find_line(0) is None
        assert (feed.name, feed.size, feed.ignored) == (str(path), 2, ("other",))
        digest = await feed.fingerprint()
    with closing(open_feed(path)) as feed:
        assert await feed.fingerprint() != digest


def test_columns_of_numbers_are_what_they_say(tmp_path: Path) -> None:
    columns = {
        "id": [Decimal("805.0"), Decimal("7.5")],
        "inventory": [5.0, None],
        "size": pa.array([41.5, 42.0], pa.float32()),
        "custom_label_0": [[1.5], []],
    }
    table = pa.table(columns)
    pq.write_table(table, tmp_path / "feed")
    with closing(open_feed(tmp_path / "feed")) as feed:
        expected = [
            {"id": "805.0", "inventory": 5, "size": "41.5", "custom_label_0": "1.5"},
            {"id": "7.5", "inventory": "", "size": "42.0", "custom_label_0": ""},
        ]
        assert list(feed.products()) == list(products_from_arrow(table)) == expected
    with pytest.raises(UnusableFile):
        open_source(tmp_path / "feed", mapping={"id": "phone_number"})


def test_product_of_any_size_fails_by_itself(write: Write) -> None:
    text = "x" * 70_000
    lines = json.dumps({"id": "1", "title": [text]}), json.dumps({"id": "2", "title": {text: 1}}), '{"id": "3"}'
    with closing(open_feed(write("\n".join(lines)))) as feed:
        *large, last = feed.products()
    assert [type(product) for product in large] == [UnparsedRow, UnparsedRow]
    assert last == {"id": "3"}
