"""The public types as type checkers see them; nothing here runs. Each `type: ignore` is an error that must be found.

`nox -s types` checks this with mypy and with pyright, both of which refuse a comment that suppresses nothing.
"""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from datetime import date, datetime
from typing import Any, assert_type
from zoneinfo import ZoneInfo

from svc_async import BearerToken, Columns, MemberDict, OperationDict, ProductDict, Rows, Session
from svc_async.ads.accounts import Account
from svc_async.ads.dicts import DoNotReachMemberDict, DoNotReachOperationDict
from svc_async.ads.features import Features
from svc_async.ads.line_items import LineItem
from svc_async.ads.products import Product, ProductUpsertResult
from svc_async.ads.vocabulary import BatchCounts
from svc_async.batch.plan import SyncReport
from svc_async.batch.report import Report
from svc_async.engine.paging import CountedPager, Pager
from svc_async.events.models import Event
from svc_async.sandbox import Sandbox
from svc_async.webhooks import SigningKey, WebhookReceiver, unwrap
from svc_async.wire.envelope import CallAnswer, Page

HASH = "0" * 64

MEMBERS: list[MemberDict] = [{"email": "anna@example.org"}, {"phone_number": ["+43 1 2345"], "svc_id": "7"}]
WRONG_MEMBER: MemberDict = {"emial": "anna@example.org"}  # type: ignore[typeddict-unknown-key]  # must be found
WRONG_VALUE: MemberDict = {"email": 7}  # type: ignore[typeddict-item]  # must be found
WRONG_FOR_THE_LIST: DoNotReachMemberDict = {"handle": "anna"}  # type: ignore[typeddict-unknown-key]  # must be found

OPERATIONS: list[OperationDict] = [{"operation_type": "Update", "params": {"users": [{"email": [HASH]}]}}]
WRONG_OPERATION: OperationDict = {"operation_type": "update", "params": {"users": []}}  # type: ignore[typeddict-item]  # must be found
WRONG_PARAMS: OperationDict = {"operation_type": "Delete", "params": {"user": []}}  # type: ignore[typeddict-item, typeddict-unknown-key]  # must be found
REMOVAL: DoNotReachOperationDict = {"operation_type": "Delete", "params": {"users": [{"email": [HASH]}]}}

PRODUCT: ProductDict = {
    "id": "1",
    "title": "Lamp",
    "description": "A lamp",
    "availability": "in stock",
    "condition": "new",
    "price": "9.90 EUR",
    "link": "https://shop.example/1",
    "image_link": "https://shop.example/1.jpg",
    "brand": "Harbour",
    "inventory": 3,
}
INCOMPLETE: ProductDict = {"id": "1", "title": "Lamp"}  # type: ignore[typeddict-item]  # must be found


async def check_calls(session: Session) -> None:
    account = session.account("a1")
    assert_type(await session.accounts.get("a1"), Account)
    assert_type(session.accounts.list(), CountedPager[Account])
    assert_type(await session.accounts.list(), Page[Account])
    assert_type(await session.accounts.list().first(), Account | None)
    assert_type(await session.accounts.list().collect(), list[Account])
    assert_type([page async for page in session.accounts.list().pages()], list[Page[Account]])
    assert_type(await session.accounts.list().page(cursor="c"), Page[Account])
    async with aclosing(session.accounts.list().pages()) as pages:
        assert_type([page async for page in pages], list[Page[Account]])
    assert_type(account.features, Features)
    assert_type(await session.with_answer(session.accounts.get("a1")), tuple[Account, CallAnswer])
    assert_type(await session.with_answer(session.accounts.list()), tuple[Page[Account], CallAnswer])
    assert_type(session.as_user(BearerToken("token")), Session)
    assert_type(await session.open(), Session)
    session.as_user("token")  # type: ignore[arg-type]  # must be found
    assert_type(await account.line_items.delete("l1"), LineItem)
    await session.accounts.get(account_ids="a1")  # type: ignore[call-arg]  # must be found
    session.acounts  # type: ignore[attr-defined]  # noqa: B018 - must be found


async def check_members(session: Session, read: AsyncIterator[Mapping[str, Any]], rows: list[dict[str, str]]) -> None:
    users = session.account("a1").custom_audience("c1").users
    assert_type(await users.upload(MEMBERS), Report)
    await users.upload(read)
    await users.upload(rows)
    await users.upload([{"email": "anna@example.org"}])
    await users.upload(Rows(["email"], [("anna@example.org",)]))
    await users.upload(Columns(["email"], [[["anna@example.org"]]]))
    await users.upload("customers.csv")
    await users.upload(7)  # type: ignore[arg-type]  # must be found
    await users.upload(MEMBERS, concurency=3)  # type: ignore[call-arg]  # must be found
    assert_type(await users.send(OPERATIONS), BatchCounts)
    assert_type(await users.apply(OPERATIONS), Report)
    assert_type(await users.sync(MEMBERS, state="audience.state"), SyncReport)
    await users.sync(MEMBERS)  # type: ignore[call-arg]  # must be found
    assert_type(await session.account("a1").do_not_reach_list("d1").users.send([REMOVAL]), Sequence[BatchCounts])


async def check_products(session: Session) -> None:
    products = session.product_catalog("c1").products
    assert_type(products.list(), Pager[Product])
    assert_type(await products.send([PRODUCT]), Sequence[ProductUpsertResult])
    assert_type(await products.upsert([PRODUCT]), Report)
    await products.upsert({"id": "1"})  # type: ignore[dict-item]  # must be found


def check_values(page: Page[Account], report: Report, account: Account) -> None:
    assert_type(page.to_dict(), dict[str, Any])
    assert_type(report.to_json(), str)
    assert_type(account.zone, ZoneInfo)
    assert_type(account.midnight(date(2026, 3, 29)), datetime)


async def check_webhooks(sandbox: Sandbox) -> None:
    key = SigningKey(sandbox.app["consumer_secret"])
    assert_type(unwrap(b"{}", {}, keys=[key]), tuple[Event, ...])
    unwrap("{}", {}, keys=[key])  # type: ignore[arg-type]  # must be found
    WebhookReceiver()  # type: ignore[call-arg]  # must be found
