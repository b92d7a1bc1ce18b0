"""Tables of Arrow as sources of members and products; those of other libraries are in tests/recipes."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from svc_async import InvalidArgument, Session
from svc_async.errors import Hint
from svc_async.lists.product_codec import encode_checked, read_keys, read_products
from svc_async.sandbox import Sandbox, VirtualClock
from svc_async.sources.parquet import ParquetSource
from svc_async.sources.product_attributes import PRODUCTS, UnparsedRow
from svc_async.sources.rows import from_arrow, products_from_arrow
from svc_async.users.encoding import SLICE_ROWS
from svc_async.users.tables import Columns
from tests.support.errors import at, has
from tests.support.files import read_rows


def read(columns: Columns) -> list[tuple[Any, ...]]:
    batches: Any = columns.batches
    return [row for batch in batches for row in zip(*batch, strict=True)]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_a_long_text_that_many_rows_share_is_decoded_for_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    monkeypatch.setattr("svc_async.sources.rows.MAX_BATCH", 1_000)
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 25, pa.int32()), pa.array(["x" * 100], kind))
    batches: Any = from_arrow(pa.table({"svc id": column})).batches
    assert [len(batch[0]) for batch in batches] == [10, 10, 5]


@pytest.mark.parametrize("wrap", [lambda values: values, lambda values: pa.ListArray.from_arrays([0, 1], values)])
def test_a_text_that_many_rows_share_has_a_longest_size(wrap: Any) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.array(["x" * 5_000_000]))
    with pytest.raises(InvalidArgument, check=has(parameter="table")):
        read(from_arrow(pa.table({"svc id": wrap(column)})))


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["7", None, "9"]),
        pa.array(["7", None, "9"], pa.large_string()),
        pa.array(["7", None, "9"], pa.string_view()),
        pa.array(["7", None, "9"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, None, 1]), pa.array(["7", "9"], pa.string_view())),
        pa.array([7, None, 9], pa.int64()),
        pa.array([7, None, 9], pa.uint8()),
        pa.array([7, None, 9], pa.int16()).dictionary_encode(),
        pa.chunked_array([["7"], [None, "9"]]),
    ],
    ids=lambda column: str(column.type),
)
def test_texts_and_integers_are_texts_however_they_are_stored(column: Any) -> None:
    columns = from_arrow(pa.table({"svc id": column}))
    assert columns.names == ["svc_id"]
    assert read(columns) == [("7",), (None,), ("9",)]
    assert read(columns) == [("7",), (None,), ("9",)]


def test_lists_are_several_values() -> None:
    table = pa.table({"email": pa.array([["a", "b"], None, []])})
    assert read(from_arrow(table)) == [(["a", "b"],), (None,), ([],)]


def test_a_frame_of_pandas_is_a_table() -> None:
    frame = pd.DataFrame({"E-Mail": ["a@example.org", None], "Phone": pd.Series([4912345678, 4987654321])})
    assert read(from_arrow(frame)) == [("a@example.org", "4912345678"), (None, "4987654321")]


def test_a_frame_whose_rows_were_filtered_is_a_table(tmp_path: Path) -> None:
    frame = pd.DataFrame({"email": ["a@example.org", None, "c@example.org", "d@example.org"]})
    filtered = frame[frame["email"].notna()]
    rows = [("a@example.org",), ("c@example.org",), ("d@example.org",)]
    assert read(from_arrow(filtered)) == rows
    path = tmp_path / "customers.parquet"
    filtered.to_parquet(path)
    assert read_rows(ParquetSource(path)) == rows
    assert read(from_arrow(filtered, mapping={"__index_level_0__": "svc_id"}))[1] == ("c@example.org", "2")
    with pytest.raises(InvalidArgument, check=has(parameter="table", hint=Hint.MAP_A_COLUMN)):
        from_arrow(filtered.rename(columns={"email": "zzz"}))


class Exported:
    """Exports a stream, and counts the rows that were taken from it."""

    def __init__(self, batches: int, rows: int) -> None:
        self.exports = self.taken = 0
        self._batches, self._rows = batches, rows

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        self.exports += 1
        schema = pa.schema({"email": pa.string()})
        return pa.RecordBatchReader.from_batches(schema, self._make(schema)).__arrow_c_stream__(requested_schema)

    def _make(self, schema: Any) -> Iterator[Any]:
        for batch in range(self._batches):
            self.taken += self._rows
            yield pa.record_batch([[f"{batch}-{row}@example.org" for row in range(self._rows)]], schema)


def test_a_table_is_read_as_it_is_needed_and_exported_once_for_each_reading() -> None:
    table = Exported(batches=5, rows=2_000)
    columns = from_arrow(table)
    assert (table.exports, table.taken) == (1, 0)
    batches: Any = iter(columns.batches)  # type: ignore[arg-type]  # they are not asynchronous
    (first,) = next(batches)
    assert len(first) == SLICE_ROWS
    assert (table.exports, table.taken) == (1, 2_000)
    assert len(read(columns)) == 10_000
    assert table.exports == 2


@pytest.mark.parametrize(
    ("table", "hint"),
    [
        (pa.table({"email": [1.5]}), None),
        (pa.table({"email": [b"a"]}), None),
        (pa.table({"mail": ["a"], "x": ["b"]}), Hint.MAP_A_COLUMN),
        (pa.chunked_array([["a"]]), None),
        (pd.Series(["a"]), None),
        (pd.DataFrame({"email": ["a", 3]}), None),
    ],
)
def test_a_table_that_cannot_be_read_is_an_error_before_anything_is_read(table: Any, hint: Hint | None) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="table", hint=hint)):
        from_arrow(table)


def test_text_that_is_not_utf_8_is_an_error_with_its_row() -> None:
    good = ["a"] * 1_000
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.array([b"\xff"]).buffers()[1], pa.py_buffer(b"\xff")])
    table = pa.table({"email": pa.chunked_array([good, bad])})
    with pytest.raises(InvalidArgument, check=at(row=1_001)):
        read(from_arrow(table))


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"email": ["a"]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidArgument, match="svc-async\\[feeds\\]"):
        from_arrow(table)


# --- products


FEED: dict[str, list[Any]] = {
    "ID": ["1", "2", "3"],
    "Name": ["Lamp", "Chair", "x" * 70_000],
    "inventory": [3, 0, 1],
    "additional image link": [["https://a", "https://b"], None, []],
    "warehouse": ["A", "B", "C"],
}


def test_a_table_is_a_feed_of_products() -> None:
    products = list(products_from_arrow(pa.table(FEED)))
    assert products[:2] == [
        {"id": "1", "title": "Lamp", "inventory": 3, "additional_image_link": "https://a,https://b"},
        {"id": "2", "title": "Chair", "inventory": 0, "additional_image_link": ""},
    ]
    assert isinstance(products[2], UnparsedRow)
    mapped = products_from_arrow(pa.table(FEED), mapping={"warehouse": "custom_label_0", "Name": "-"})
    assert next(iter(mapped))["custom_label_0"] == "A"
    assert "title" not in next(iter(mapped))


def test_a_stream_of_batches_is_read_once_and_a_table_any_number_of_times() -> None:
    stream, table = products_from_arrow(pa.table(FEED).to_reader()), products_from_arrow(pa.table(FEED))
    assert [len(list(stream)), len(list(stream))] == [3, 0]
    assert [len(list(table)), len(list(table))] == [3, 3]


def test_a_stream_is_spooled_by_a_job_that_may_be_resumed_and_a_table_is_read_again() -> None:
    keys = pa.table({"product_key": ["a", "b"]})
    assert [read_keys(each, SLICE_ROWS).replayable for each in (keys, keys.to_reader())] == [True, False]
    feeds = (pa.table(FEED), pa.table(FEED).to_reader())
    assert [read_products(each, encode_checked, SLICE_ROWS).replayable for each in feeds] == [True, False]


def test_the_columns_of_a_feed_are_those_of_products() -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="table", hint=Hint.MAP_A_COLUMN)):
        products_from_arrow(pa.table({"warehouse": ["A"]}))
    assert "warehouse" not in PRODUCTS.keys


async def test_tables_are_sent_and_synced(tmp_path: Path) -> None:
    fields = {
        "description": "A thing",
        "availability": "in stock",
        "condition": "new",
        "price": "9.90 EUR",
        "link": "https://shop.example/1",
        "image_link": "https://shop.example/1.jpg",
        "brand": "Harbour",
    }
    ids = [str(number) for number in range(60)]
    titles: list[Any] = [None, *(f"Thing {number}" for number in ids[1:])]
    table = pa.table({"id": ids, "title": titles, **{name: [value] * 60 for name, value in fields.items()}})
    async with Sandbox(clock=VirtualClock(mode="jump")) as sandbox, Session.sandbox(sandbox) as session:
        catalog = await session.product_catalogs.create(name="Shop")
        products = session.product_catalog(catalog.id).products
        report = await products.upsert(table, journal=tmp_path / "journal")
        synced = await products.sync(table.to_pandas().drop(index=0), state=tmp_path / "state")
        keys = [product.product_key async for product in products.list()]
        deleted = [
            await products.delete(pa.table({"Product Key": keys})),
            await products.delete(pa.table({"product_key": [None]})),
        ]
    assert (report.accepted, [each.position for each in report.failures]) == (59, [0])
    assert report.failures[0].attribute == "title"
    assert [(each.accepted, each.failed) for each in deleted] == [(59, 0), (0, 1)]
    assert (synced.plan.additions, synced.sent.accepted) == (59, 59)
