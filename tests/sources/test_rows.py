import sqlite3
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from svc_async import InvalidArgument, Rows, Session
from svc_async.errors import Hint
from svc_async.sandbox import Sandbox
from svc_async.sources.rows import from_cursor, from_rows
from tests.support.errors import has


async def collect(rows: Rows) -> list[tuple[Any, ...]]:
    if isinstance(rows.rows, AsyncIterable):
        return [tuple(row) async for row in rows.rows]
    return [tuple(row) for row in rows.rows]


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as database:
        database.execute("CREATE TABLE customer (mail TEXT, name TEXT, phone TEXT)")
        rows = [(f"user{number}@example.org", "N", None) for number in range(1_500)]
        database.executemany("INSERT INTO customer VALUES (?, ?, ?)", rows)
        yield database


async def test_a_database_cursor_becomes_an_audience(database: sqlite3.Connection) -> None:
    cursor = database.execute("SELECT * FROM customer ORDER BY mail")
    rows = from_cursor(cursor, mapping={"mail": "email", "name": "-"})
    assert rows.columns == ("email", "phone_number")

    async with Sandbox() as sandbox, Session.sandbox(sandbox) as session:
        users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
        assert (await users.upload(rows)).accepted == 1_500


async def test_rows_of_a_row_factory_are_accepted(database: sqlite3.Connection) -> None:
    database.row_factory = sqlite3.Row
    cursor = database.execute("SELECT phone, mail AS email FROM customer LIMIT 1")

    assert await collect(from_cursor(cursor)) == [(None, "user0@example.org")]


async def test_a_cursor_may_be_awaited() -> None:
    class Cursor:
        description = (("email", None), ("handle", None))

        def __init__(self) -> None:
            self.left = [[("a", "x"), ("b", "y")], [("c", "z")], []]

        async def fetchmany(self, _: int) -> Sequence[Sequence[str]]:
            return self.left.pop(0)

    assert await collect(from_cursor(Cursor())) == [("a", "x"), ("b", "y"), ("c", "z")]


def test_a_cursor_without_a_result_is_refused(database: sqlite3.Connection) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="cursor")):
        from_cursor(database.execute("DELETE FROM customer"))


def test_columns_must_be_recognised_or_mapped(database: sqlite3.Connection) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="table", hint=Hint.MAP_A_COLUMN)):
        from_cursor(database.execute("SELECT mail FROM customer"))
    with pytest.raises(InvalidArgument, check=has(parameter="table", hint=Hint.MAP_OR_IGNORE)):
        from_rows(["email", "name"], [])


async def test_an_async_iterable_is_reduced_to_the_columns_that_are_wanted() -> None:
    async def rows() -> AsyncIterator[Sequence[str]]:
        for number in range(1_200):
            yield f"user{number}", "N"

    found = await collect(from_rows(["email", "name"], rows(), mapping={"*": "-"}))

    assert found == [(f"user{number}",) for number in range(1_200)]


async def test_a_row_of_another_width_fails_alone() -> None:
    rows = from_rows(["email", "name"], [("a@example.org", "N"), ("b",), ("c", "d", "e")], mapping={"name": "-"})
    assert await collect(rows) == [("a@example.org",), (), ()]


async def test_values_that_are_not_identifiers_fail_alone() -> None:
    rows = [("a\ud800",), (object(),), (2**300,), (None,), 7, None, "ab", {"email": "x"}, (uuid.UUID(int=7),)]
    async with Sandbox() as sandbox, Session.sandbox(sandbox) as session:
        users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
        report = await users.upload(Rows(["email"], [*rows, ("ok@example.org",)]))  # type: ignore[list-item]  # wrong on purpose

    assert report.accepted == 1
    assert [failure.position for failure in report.failures] == list(range(9))
