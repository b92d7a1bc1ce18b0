"""Several columns of one kind are several values of it, in whatever they come."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from svc_async import Columns, InvalidArgument, Rows, Session, UnusableFile
from svc_async.errors import Hint
from svc_async.sandbox import Sandbox
from svc_async.sources.detect import open_feed, open_source
from svc_async.sources.rows import from_arrow, from_cursor, from_rows, products_from_arrow
from tests.support.errors import has
from tests.support.files import Write

NAMES = ("email", "phone", "E-Mail", "Email 3")
MAPPING = {"email 3": "email"}
ROWS: Sequence[Sequence[str | None]] = [
    ("a@example.org", "+4930123456", "b@example.org", None),
    (None, "+4930123457", " ", "c@example.org"),
    ("d@example.org", None, "d@example.org", "e@example.org"),
    ("f@example.org", None, None, None),
]
EXPECTED = [
    (["a@example.org", "b@example.org"], ["+4930123456"]),
    (["c@example.org"], ["+4930123457"]),
    (["d@example.org", "e@example.org"], []),
    (["f@example.org"], []),
]


def write_csv(path: Path) -> Path:
    path.write_text("\n".join(",".join(each or "" for each in row) for row in [NAMES, *ROWS]))
    return path


def write_json(path: Path) -> Path:
    objects: list[dict[str, Any]] = [
        {name: value for name, value in zip(NAMES, row, strict=True) if value} for row in ROWS
    ]
    objects[0] = {"phone": "+4930123456", "email": "a@example.org", "E-Mail": ["b@example.org"]}
    path.write_text("\n".join(map(json.dumps, objects)))
    return path


def write_parquet(path: Path, names: Sequence[str] = NAMES) -> Path:
    parquet.write_table(make_table(names), path)
    return path


def make_table(names: Sequence[str] = NAMES) -> pa.Table:
    columns = list(zip(*ROWS, strict=True))
    return pa.table([pa.array(columns[0]).dictionary_encode(), *columns[1:]], names=list(names))


def query(_: Path) -> Rows:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as database:
        database.execute(f"CREATE TABLE c ({', '.join(f'c{number} TEXT' for number in range(4))})")
        database.executemany("INSERT INTO c VALUES (?, ?, ?, ?)", ROWS)
        cursor = database.execute('SELECT c0 AS email, c1 AS phone, c2 AS email, c3 AS "Email 3" FROM c')
        return from_rows([name for name, *_ in cursor.description], cursor.fetchall(), mapping=MAPPING)


KEYS = ("email", "phone_number", "email", "email")
CONTAINERS: dict[str, Callable[[Path], Any]] = {
    "csv": lambda path: open_source(write_csv(path), mapping=MAPPING).rows(),
    "json lines": lambda path: open_source(write_json(path), mapping=MAPPING).rows(),
    "parquet": lambda path: open_source(write_parquet(path), mapping=MAPPING).rows(),
    "arrow": lambda _: from_arrow(make_table(), mapping=MAPPING),
    "cursor": query,
    "rows": lambda _: Rows(KEYS, ROWS),
    "columns": lambda _: Columns(KEYS, [list(zip(*ROWS, strict=True))]),
    "names that are equal": lambda path: open_source(
        write_parquet(path, ("email", "phone", "email", "Email 3")), mapping=MAPPING
    ).rows(),
    "equal in arrow": lambda _: from_arrow(make_table(("email", "phone", "email", "email"))),
}


@pytest.mark.parametrize("container", [pytest.param(each, id=name) for name, each in CONTAINERS.items()])
async def test_a_person_has_the_values_of_all_columns(tmp_path: Path, container: Callable[[Path], Any]) -> None:
    async with Sandbox() as sandbox, Session.sandbox(sandbox) as session:
        users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
        report = await users.upload(container(tmp_path / "customers"))
        assert (report.accepted, report.failed) == (4, 0)
        found = [
            (each.get("email"), each.get("phone_number", [])) for each in sandbox.audience(sandbox.audience_id).users
        ]
    expected = [(sorted(map(digest, emails)), [*map(digest, phones)]) for emails, phones in EXPECTED]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


async def test_an_awaited_cursor_may_repeat_a_name() -> None:
    class Cursor:
        description = (("email", None), ("email", None))

        async def fetchmany(self, _: int) -> Sequence[Sequence[str]]:
            return ()

    assert from_cursor(Cursor()).columns == ("email", "email")


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        pytest.param("id,link,url\n1,a,b\n", Hint.IGNORE_THE_OTHERS, id="csv"),
        pytest.param("id,link,Link\n1,a,b\n", Hint.NAME_EACH_COLUMN, id="csv, equal names"),
        pytest.param('{"id":"1","link":"a","url":"b"}\n', Hint.IGNORE_THE_OTHERS, id="json lines"),
        pytest.param('{"id":"1","link":"a","Link":"b"}\n', Hint.NAME_EACH_COLUMN, id="json lines, equal names"),
    ],
)
def test_a_product_has_one_value_of_an_attribute(write: Write, content: str, hint: Hint) -> None:
    with pytest.raises(UnusableFile, check=has(hint=hint)):
        list(open_feed(write(content)).products())


def test_a_table_of_products_has_one_column_of_an_attribute() -> None:
    with pytest.raises(InvalidArgument, check=has(hint=Hint.IGNORE_THE_OTHERS)):
        products_from_arrow(pa.table({"id": ["1"], "link": ["a"], "url": ["b"]}))
