"""A first row that is no mapping is refused before anything is sent: it is most likely so in all of them."""

import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import pytest

from svc_async import BatchError, InvalidArgument, Rows, Session
from svc_async.ads.products import ProductUpsertResult, ProductUpsertStatus
from svc_async.handles import AccountHandle
from svc_async.lists.products import Products
from svc_async.sandbox import Sandbox
from svc_async.sources.rows import from_cursor
from tests.support.errors import because, has

SECRET = "someone@example.org"


class Named(NamedTuple):
    email: str


@dataclass
class Customer:
    email: str


class Model:
    """Has the method of a model of pydantic."""

    def model_dump(self) -> dict[str, str]:
        return {"email": SECRET}


def read_row() -> sqlite3.Row:
    with closing(sqlite3.connect(":memory:")) as database:
        database.row_factory = sqlite3.Row
        row: sqlite3.Row = database.execute("SELECT ? AS email", [SECRET]).fetchone()
        return row


ROWS: Mapping[str, tuple[Any, str]] = {
    "row": (read_row(), "; pass dict(row) for each row"),
    "named tuple": (Named(SECRET), "; pass row._asdict() for each row"),
    "dataclass": (Customer(SECRET), "; pass dataclasses.asdict(row) for each row"),
    "model": (Model(), "; pass row.model_dump() for each row"),
}
MEMBERS: Mapping[str, tuple[Any, str]] = {
    **ROWS,
    "tuple": ((SECRET,), "; for tuples pass Rows(columns, rows)"),
    "list": ([SECRET], "; for tuples pass Rows(columns, rows)"),
    **{repr(row): (row, ', such as {"email": "a@b.example"}') for row in ("x", b"x", 5, None)},
}
PRODUCTS: Mapping[str, tuple[Any, str]] = {
    **ROWS,
    "tuple": ((SECRET,), "; for tuples pass dict(zip(columns, row))"),
    **{repr(row): (row, "") for row in ("x", 5, None)},
}


async def read_later(rows: Sequence[Any]) -> AsyncIterator[Any]:
    for row in rows:
        yield row


@pytest.fixture
async def session(sandbox: Sandbox) -> AsyncIterator[Session]:
    async with Session.sandbox(sandbox) as session:
        yield session


@pytest.fixture
def account(session: Session, sandbox: Sandbox) -> AccountHandle:
    return session.account(sandbox.account_id)


@pytest.fixture(params=[True, False], ids=["validate", "no validate"])
async def products(sandbox: Sandbox, request: pytest.FixtureRequest) -> AsyncIterator[Products]:
    async with Session.sandbox(sandbox, validate=request.param) as session:
        yield session.product_catalog(sandbox.add_catalog()).products


def check_message(error: Exception, message: str) -> None:
    assert str(error).endswith(message)
    assert SECRET not in str(error)


async def refuse_members(account: AccountHandle, sandbox: Sandbox, state: Path, row: Any, proposal: str) -> None:
    message = f"members[0] must be a mapping of identifiers{proposal}"
    good = {"email": SECRET}
    for users in (
        account.custom_audience(sandbox.audience_id).users,
        account.do_not_reach_list(sandbox.do_not_reach_list_id).users,
    ):
        with pytest.raises(InvalidArgument) as refused:
            await users.upload([row, good])
        check_message(refused.value, message)
        for rows in (iter([row, good]), read_later([row, good])):
            with pytest.raises(BatchError) as ended:
                await users.upload(rows)
            assert isinstance(ended.value.__cause__, InvalidArgument)
            check_message(ended.value.__cause__, message)
        operation = {"operation_type": "Update", "params": {"users": [row, good]}}
        with pytest.raises(BatchError) as unapplied:
            await users.apply([operation])
        assert isinstance(unapplied.value.__cause__, InvalidArgument)
        nested = message.replace("members[0]", "operations[0].params.users[0]")
        check_message(unapplied.value.__cause__, nested.replace("Rows(columns, rows)", "dict(zip(columns, row))"))
    audience = account.custom_audience(sandbox.audience_id).users
    with pytest.raises((InvalidArgument, BatchError)):
        await audience.sync([row, good], state=state)
    assert sandbox.requests.count("*/users") == 0


@pytest.mark.long("runs several jobs for each form of a row")
async def test_a_member_that_is_no_mapping(
    subtests: pytest.Subtests, account: AccountHandle, sandbox: Sandbox, tmp_path: Path
) -> None:
    for number, (about, (row, proposal)) in enumerate(MEMBERS.items()):
        with subtests.test(about):
            await refuse_members(account, sandbox, tmp_path / f"{number}", row, proposal)


async def test_a_later_member_that_is_no_mapping_fails_by_itself(account: AccountHandle, sandbox: Sandbox) -> None:
    rows: list[Any] = [{"email": SECRET}, (SECRET,)]
    report = await account.custom_audience(sandbox.audience_id).users.upload(rows)
    assert (report.accepted, [failure.position for failure in report.failures]) == (1, [1])


@pytest.mark.parametrize("first", [("Update", {}), None, "Update", 5])
async def test_an_operation_that_is_no_mapping(account: AccountHandle, sandbox: Sandbox, first: Any) -> None:
    users = account.custom_audience(sandbox.audience_id).users
    with pytest.raises(InvalidArgument, check=has(parameter="operations[0]")) as refused:
        await users.apply([first])
    assert refused.value.rule.endswith("dict(zip(columns, row))") == isinstance(first, tuple)
    with pytest.raises(BatchError, check=because(InvalidArgument, parameter="operations[0]")):
        await users.apply(iter([first]))


async def refuse_products(products: Products, state: Path, row: Any, proposal: str) -> None:
    message = f"products[0] must be a mapping of attributes, or a Product{proposal}"
    rows = [row, {"id": "1"}]
    with pytest.raises(InvalidArgument) as refused:
        await products.upsert(rows)
    check_message(refused.value, message)
    with pytest.raises(BatchError) as ended:
        await products.upsert(read_later(rows))
    assert isinstance(ended.value.__cause__, InvalidArgument)
    check_message(ended.value.__cause__, message)
    with pytest.raises(InvalidArgument) as unsynced:
        await products.sync(rows, state=state)
    check_message(unsynced.value, message)


async def test_a_product_that_is_no_mapping(
    subtests: pytest.Subtests, products: Products, sandbox: Sandbox, tmp_path: Path
) -> None:
    for number, (about, (row, proposal)) in enumerate(PRODUCTS.items()):
        with subtests.test(about):
            await refuse_products(products, tmp_path / f"{number}", row, proposal)
            assert sandbox.requests.count("*/products") == 0


@pytest.mark.parametrize(
    ("key", "proposal"),
    [
        ({"product_key": "k"}, '; pass row["product_key"] for each row'),
        (
            ProductUpsertResult(product_key="k", status=ProductUpsertStatus.NO_CHANGE),
            "; pass row.product_key for each row",
        ),
        (("k",), ""),
        (5, ""),
    ],
    ids=str,
)
async def test_a_key_that_is_no_text(products: Products, sandbox: Sandbox, key: Any, proposal: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await products.delete([key, "k"])
    check_message(refused.value, f"product_keys[0] must be the key of a product, as text{proposal}")
    with pytest.raises(BatchError, check=because(InvalidArgument, parameter="product_keys[0]")):
        await products.delete(iter([key, "k"]))
    assert sandbox.requests.count("*/products") == 0


async def test_a_key_that_is_missing_fails_by_itself(products: Products) -> None:
    keys: list[Any] = [None, " "]
    report = await products.delete(keys)
    reason = "product_key must be the key of a product, as text"
    assert [(each.position, each.reason) for each in report.failures] == [(0, reason), (1, reason)]


# --- rows of asyncpg


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


QUERY = "SELECT 'user' || n || '@example.org' AS email, NULL AS phone_number FROM generate_series(1, 1500) n ORDER BY n"


async def test_rows_of_a_cursor_of_asyncpg(
    connection: asyncpg.Connection, account: AccountHandle, sandbox: Sandbox
) -> None:
    users = account.custom_audience(sandbox.audience_id).users
    cursor: Any = connection.cursor(QUERY)
    with pytest.raises(BatchError, check=because(InvalidArgument, parameter="members[0]")):
        await users.upload(cursor)
    assert (await users.upload(dict(row) async for row in connection.cursor(QUERY))).accepted == 1_500
    rows = Rows(["email", "phone_number"], (tuple(row) async for row in connection.cursor(QUERY)))
    assert (await users.upload(rows)).accepted == 1_500


async def test_a_cursor_of_asyncpg_is_none_of_the_db_api(connection: asyncpg.Connection) -> None:
    for cursor in (connection.cursor(QUERY), await connection.cursor(QUERY), None, [(SECRET,)]):
        with pytest.raises(InvalidArgument, check=has(parameter="cursor")):
            from_cursor(cursor)
