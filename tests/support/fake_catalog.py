"""A product catalog without a socket, which does what the specification says or what a test's script says."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Any, Self, cast

import attrs
import msgspec

from svc_async.ads.products import (
    ProductDeleteResult,
    ProductDeleteResults,
    ProductUpsertResult,
    ProductUpsertResults,
    ProductUpsertStatus,
)
from svc_async.batch.settings import JobSizes
from svc_async.engine.memory import MemoryBudget
from svc_async.engine.pipeline import Pipeline
from svc_async.lists.products import Products
from svc_async.monitoring import Subscribers
from svc_async.sandbox import VirtualClock
from svc_async.wire.base_urls import Endpoints
from svc_async.wire.dialect import Dialect
from svc_async.wire.envelope import CallAnswer
from svc_async.wire.route import Blocks, Request
from tests.support.call_answers import make_call_answer

__all__ = ["FakeCatalog", "change_results", "product"]

ENDPOINTS = Endpoints(base_url="https://base.example", ads_url="https://ads.example")

_GOOD: dict[str, Any] = {
    "title": "Boots",
    "description": "For long ways",
    "availability": "in stock",
    "condition": "new",
    "price": "99.00 EUR",
    "link": "https://shop.example/boots",
    "image_link": "https://shop.example/boots.png",
    "brand": "Trail",
}


def product(number: int | str, **changes: Any) -> dict[str, Any]:
    return {"id": f"sku-{number}", **_GOOD, **changes}


@attrs.define
class FakeCatalog:
    """Stands in for a pipeline."""

    clock: VirtualClock = attrs.field(factory=lambda: VirtualClock(mode="jump"))
    validate: bool = True
    requests: list[list[Any]] = attrs.field(factory=list)
    sizes: list[int] = attrs.field(factory=list)
    times: list[float] = attrs.field(factory=list)
    held: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    script: dict[int, Any] = attrs.field(factory=dict)
    """By the number of the request, from 1: what is raised, or what makes something else of the answer."""
    always: Any = None
    endpoints: Endpoints = ENDPOINTS
    dialect: Dialect | None = None
    restored: list[tuple[str, list[datetime]]] = attrs.field(factory=list)
    memory: MemoryBudget = attrs.field(factory=MemoryBudget)
    subscribers: Subscribers = attrs.field(factory=Subscribers)
    _before_sending: Callable[[Request[Any]], Awaitable[object]] | None = None
    _at_sending: Callable[[Request[Any]], object] | None = None

    def products(self, sizes: JobSizes | None = None) -> Products:
        """Return the products of the catalog."""
        # Jobs only send with it.
        return Products(cast("Pipeline", self), "c1", sizes=sizes or JobSizes())

    def but(
        self,
        *,
        before_sending: Callable[[Request[Any]], Awaitable[object]] | None = None,
        at_sending: Callable[[Request[Any]], object] | None = None,
        **_: object,
    ) -> Self:
        self._before_sending, self._at_sending = before_sending, at_sending
        return self

    def find_pace(self, _: Request[Any]) -> float | None:
        return None

    def restore(self, request: Request[Any], sent_at: Iterable[datetime]) -> None:
        self.restored.append((request.template, [*sent_at]))

    async def send_with_answer(self, request: Request[Any]) -> tuple[Any, CallAnswer]:
        if self._before_sending is not None:
            await self._before_sending(request)
        if self._at_sending is not None:
            self._at_sending(request)
        body = request.body
        assert isinstance(body, Blocks)
        joined = b"".join(body.blocks)
        assert len(joined) == body.size
        ((name, rows),) = msgspec.json.decode(joined).items()
        self.requests.append(rows)
        self.sizes.append(body.size)
        self.times.append(self.clock.monotonic())
        outcome = self.script.get(len(self.requests), self.always)
        await asyncio.sleep(0)
        if isinstance(outcome, Exception):
            raise outcome
        answer = self._upsert(rows) if name == "products" else self._delete(rows)
        return outcome(answer) if outcome else answer, make_call_answer(f"r-{len(self.requests)}")

    def _upsert(self, rows: list[dict[str, Any]]) -> ProductUpsertResults:
        assert len({row["id"] for row in rows}) == len(rows) <= 25
        results = [
            ProductUpsertResult(
                id=row["id"], product_key=f"k-{row['id']}", status=ProductUpsertStatus(self._status(row["id"]))
            )
            for row in rows
        ]
        self.held.update({row["id"]: row for row in rows})
        return ProductUpsertResults(products_response=tuple(results))

    def _status(self, product_id: str) -> str:
        return "UPDATE_SUCCESS" if product_id in self.held else "CREATE_SUCCESS"

    def _delete(self, keys: list[str]) -> ProductDeleteResults:
        assert len(set(keys)) == len(keys) <= 25
        return ProductDeleteResults(
            delete_products=tuple(
                ProductDeleteResult(product_key=key)
                if self.held.pop(key.removeprefix("k-"), None)
                else ProductDeleteResult(failed_product_key=key, message="there is no such product")
                for key in keys
            )
        )


def change_results(change: Callable[[list[ProductUpsertResult]], list[ProductUpsertResult]]) -> Any:
    """Script an answer with other results."""
    return lambda answer: ProductUpsertResults(products_response=tuple(change(list(answer.products_response))))
