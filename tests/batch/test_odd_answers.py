"""Answers of success that are not what they should be: nothing counts as done, and the same bytes are sent again."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from svc_async.ads.products import ProductDeleteResult, ProductDeleteResults, ProductUpsertResult, ProductUpsertStatus
from svc_async.errors import Sent, UnexpectedAnswer
from tests.support import scripted_server
from tests.support.fake_catalog import FakeCatalog, change_results, product
from tests.support.scripted_server import Answer, ReceivedRequest, ScriptedServer

clock, server = scripted_server.clock, scripted_server.service

ROWS = [{"partner_user_id": f"p{number}"} for number in range(3)]
ONCE: dict[str, Any] = {"quarantine": 0, "retry_delays": [0]}

ODD = {
    "text": '{"data": {"success_count": "3", "total_count": "3"}}',
    "one is text": '{"data": {"success_count": 3, "total_count": "3"}}',
    "true": '{"data": {"success_count": true, "total_count": true}}',
    "a fraction": '{"data": {"success_count": 3.0, "total_count": 3.0}}',
    "null": '{"data": {"success_count": null, "total_count": null}}',
    "missing": '{"data": {"success_count": 3}}',
    "twice": '{"data": {"success_count": 2, "success_count": 3, "total_count": 3}}',
    "twice the same": '{"data": {"success_count": 3, "total_count": 3, "total_count": 3}}',
    "data twice": '{"data": {"success_count": 3, "total_count": 3}, "data": {"success_count": 3, "total_count": 3}}',
    "escaped": '{"data": {"success_count": 2, "success\\u005fcount": 3, "total_count": 3}}',
    "half": '{"data": {"success_count": 3, "total_',
    "nothing": "",
    "a page of a proxy": "<html>",
    "none of them": '{"data": {}}',
    "other counts": '{"data": {"success_count": 2, "total_count": 3}}',
    "those of another request": '{"data": {"success_count": 9, "total_count": 9}}',
}


def confirm_users(request: ReceivedRequest) -> Answer:
    users = sum(len(operation["params"]["users"]) for operation in request.json)
    return Answer({"data": {"success_count": users, "total_count": users}})


def confirm_operations(request: ReceivedRequest) -> Answer:
    counts = [len(operation["params"]["users"]) for operation in request.json]
    return Answer({"data": [{"success_count": count, "total_count": count} for count in counts]})


@pytest.mark.parametrize("odd", ODD)
async def test_a_batch_with_an_odd_answer_is_sent_again(server: ScriptedServer, odd: str) -> None:
    path = "/12/accounts/a1/custom_audiences/c1/users"
    server.on("POST", f"/ads{path}", Answer(ODD[odd]), confirm_users)

    async with server.session() as session:
        report = await session.account("a1").custom_audience("c1").users.upload(ROWS, **ONCE)

    assert (report.accepted, report.requests) == (3, 2)
    assert server.requests[0].body == server.requests[1].body


@pytest.mark.parametrize(
    "change",
    [
        lambda counts: [*counts, {"success_count": "1", "total_count": "1"}],
        lambda counts: [{**counts[0], "success_count": "3"}],
        lambda counts: [*counts, "nothing"],
        lambda _: [],
        lambda counts: counts * 2,
    ],
    ids=["one more that is text", "text", "an item that is none", "no counts", "twice"],
)
async def test_odd_counts_of_a_do_not_reach_list_confirm_nothing(
    server: ScriptedServer, change: Callable[[list[Any]], list[Any]]
) -> None:
    path = "/12/batch/accounts/a1/do_not_reach_lists/d1/users"
    rows = [{"email": f"{number}@example.org"} for number in range(3)]

    def answer_oddly(request: ReceivedRequest) -> Answer:
        return Answer({"data": change(json.loads(confirm_operations(request).response().text or "")["data"])})

    server.on("POST", f"/ads{path}", answer_oddly, confirm_operations)

    async with server.session() as session:
        report = await session.account("a1").do_not_reach_list("d1").users.upload(rows, **ONCE)

    assert (report.accepted, report.requests) == (3, 2)


@pytest.mark.parametrize("odd", [name for name in ODD if name not in {"half", "nothing", "a page of a proxy"}])
async def test_a_single_call_with_odd_counts_is_not_repeated(server: ScriptedServer, odd: str) -> None:
    path = "/12/accounts/a1/custom_audiences/c1/users"
    server.on("POST", f"/ads{path}", Answer(ODD[odd]))
    operation = {"operation_type": "Update", "params": {"users": [{"partner_user_id": ["a"]}] * 3}}

    async with server.session() as session:
        with pytest.raises(UnexpectedAnswer) as caught:
            await session.account("a1").custom_audience("c1").users.send([operation])

    assert (caught.value.sent, len(server.requests)) == (Sent.YES, 1)


@pytest.mark.parametrize("first", [ProductUpsertStatus.ERROR, ProductUpsertStatus.CREATE_SUCCESS])
async def test_a_product_with_two_results_is_sent_again(first: ProductUpsertStatus) -> None:
    shop = FakeCatalog()
    extra = ProductUpsertResult(id="sku-1", status=first)
    shop.script[1] = change_results(lambda results: [extra, *results])

    report = await shop.products().upsert([product(0), product(1)], **ONCE)

    assert (report.accepted, report.failed) == (2, 0)
    assert [[row["id"] for row in request] for request in shop.requests] == [["sku-0", "sku-1"], ["sku-1"]]


async def test_a_key_that_is_said_to_be_deleted_and_not_deleted_is_sent_again() -> None:
    shop = FakeCatalog()
    await shop.products().upsert([product(0), product(1)])
    said = ProductDeleteResult(failed_product_key="k-sku-1", message="no")
    shop.script[2] = lambda answer: ProductDeleteResults(delete_products=(*answer.delete_products, said))

    report = await shop.products().delete(["k-sku-0", "k-sku-1"], **ONCE)

    assert shop.requests[1:] == [["k-sku-0", "k-sku-1"], ["k-sku-1"]]
    assert (report.accepted, [failure.position for failure in report.failures]) == (1, [1])
    assert "may have worked" in report.failures[0].reason
