"""Tables of other libraries as sources of members and products: what each exports, by the Arrow PyCapsule interface."""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from svc_async import Session
from svc_async.sandbox import Sandbox, VirtualClock
from svc_async.sources.rows import from_arrow

duckdb: Any = import_module("duckdb")  # nox -s types does not install these
pl: Any = import_module("polars")

MEMBERS = {"E-Mail": ["anna@example.org", "no", None], "svc id": [None, None, 12]}


def open_relation(members: Any) -> Any:
    return duckdb.connect().from_arrow(pl.DataFrame(members).to_arrow()).order('"E-Mail" nulls last')


TABLES: Mapping[str, Callable[[], Any]] = {
    "pandas": lambda: pd.DataFrame({**MEMBERS, "svc id": pd.array([None, None, 12], "Int64")}),
    "polars": lambda: pl.DataFrame(MEMBERS),
    "polars, categories": lambda: pl.DataFrame(MEMBERS).with_columns(pl.col("E-Mail").cast(pl.Categorical)),
    "duckdb": lambda: open_relation(MEMBERS),
}


@pytest.fixture
async def session() -> Any:
    async with Sandbox(clock=VirtualClock(mode="jump")) as sandbox, Session.sandbox(sandbox) as session:
        yield session


@pytest.mark.parametrize("library", TABLES)
async def test_a_table_is_uploaded_with_a_journal_and_synced(library: str, session: Session, tmp_path: Path) -> None:
    (account, *_) = await session.accounts.list().collect()
    users = session.account(account.id).custom_audience("1nmth").users
    table = TABLES[library]()
    report = await users.upload(table, journal=tmp_path / "journal")
    assert (report.read, report.accepted, [each.position for each in report.failures]) == (3, 2, [1])
    synced = await users.sync(table, state=tmp_path / "state")
    assert (synced.plan.additions, synced.sent.accepted) == (2, 2)


@pytest.mark.parametrize("library", ["polars", "duckdb"])
async def test_a_table_is_a_feed_of_products(library: str, session: Session) -> None:
    feed = {
        "id": ["1", "2"],
        "title": ["Lamp", None],
        "description": ["A lamp", "A chair"],
        "availability": ["in_stock", "in stock"],
        "condition": ["new", "new"],
        "price": ["9.90 EUR", "99.00 EUR"],
        "link": ["https://shop.example/1", "https://shop.example/2"],
        "image link": ["https://shop.example/1.jpg", "https://shop.example/2.jpg"],
        "brand": ["Harbour", "Harbour"],
        "inventory": [3, 4],
    }
    table = pl.DataFrame(feed) if library == "polars" else duckdb.connect().from_arrow(pl.DataFrame(feed).to_arrow())
    catalog = await session.product_catalogs.create(name="Shop")
    report = await session.product_catalog(catalog.id).products.upsert(table)
    assert (report.accepted, [each.position for each in report.failures]) == (1, [1])


def test_a_relation_is_read_in_batches() -> None:
    relation = duckdb.connect().sql("select i || '@example.org' as email from range(300_000) rows(i) order by i")
    batches: Any = from_arrow(relation).batches
    sizes: Iterator[int] = (len(column) for (column,) in batches)
    assert sum(sizes) == 300_000
