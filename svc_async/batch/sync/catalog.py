"""A product catalog as the target of a diff sync."""

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from itertools import islice
from typing import Any

import attrs
import msgspec

from svc_async.ads.products import Product, ProductUpsertResult
from svc_async.batch.products.products import Products
from svc_async.batch.report import Failure, Receipt, Report
from svc_async.batch.settings import Observers
from svc_async.batch.sync.state import Entries, Snapshots
from svc_async.sources.source import ProductFeed

__all__ = ["CatalogTarget"]

_SLICE = 512


@attrs.frozen(kw_only=True)
class CatalogTarget:
    """A catalog, and the feed of products that it is to hold.

    A product is known by its `id`. It is deleted by the key that the service has made of it, which the state keeps from
    the answer; where the answer was lost, the catalog is listed to find it.

    Attributes:
        products: the products of the catalog.
        feed: all that it is to hold.
        settings: more keywords for `products.upsert` and `products.delete`.
    """

    products: Products
    feed: ProductFeed
    settings: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def replaces(self) -> bool:
        """Whether a changed product is deleted before it is sent: it is not."""
        return False

    async def entries(self) -> AsyncIterator[Entries]:
        """Read the feed from its start."""
        walk, first = iter(self.feed.products()), 0
        while part := list(islice(walk, _SLICE)):
            yield _entries(part, first)
            first += len(part)
            await asyncio.sleep(0)

    def rows(self) -> Iterable[Mapping[str, Any]]:
        """Read the products from the start."""
        return self.feed.products()

    async def remove(self, leaving: Snapshots, observers: Observers) -> Report:
        """Delete products for good."""
        found = await self._found({name.decode() for _, name, key in leaving.leaving() if key is None})
        numbers = _Numbers(leaving, observers)
        gone = [number for number, name, key in leaving.leaving() if key is None and name.decode() not in found]
        leaving.accepted("leaving", gone)
        report = await self.products.delete(
            numbers.keys(found),
            **self.settings,
            progress=observers.progress,
            on_receipt=numbers.receipt,
            on_failure=numbers.failure,
        )
        await self._forgive(leaving, numbers.failed)
        return report

    async def _forgive(self, leaving: Snapshots, failed: Collection[int]) -> None:
        """Take note of products that could not be deleted because they are not there."""
        names = {number: name.decode() for number, name, _ in leaving.leaving() if number in failed} if failed else {}
        found = await self._found(set(names.values()))
        leaving.accepted("leaving", [number for number, name in names.items() if name not in found])

    async def send(
        self,
        coming: Iterable[Mapping[str, Any]],
        observers: Observers,
        *,
        expires_at: datetime | None,  # noqa: ARG002 - products stay
        named: Callable[[Mapping[int, str]], None],
    ) -> Report:
        """Make or change products."""
        made = _Made(named, observers)
        return await self.products.upsert(
            coming,
            **self.settings,
            progress=observers.progress,
            on_receipt=made.receipt,
            on_failure=observers.on_failure,
            on_result=made.result,
        )

    async def _found(self, ids: set[str]) -> Mapping[str, str]:
        """Look up the service's keys of products whose answers were lost."""
        found: dict[str, str] = {}
        if not ids:
            return found
        async for product in self._listed():
            if product.id in ids and product.product_key is not None:
                found[product.id] = product.product_key
        return found

    async def _listed(self) -> AsyncIterator[Product]:
        groups: set[str] = set()
        async for product in self.products.list():
            yield product
            if product.item_group_key is not None and product.item_group_key not in groups:
                groups.add(product.item_group_key)
                # The plain list has only the first product of a group (contract PROD-10b).
                async for variant in self.products.list(item_group_key=product.item_group_key):
                    yield variant


@attrs.define
class _Made:
    """Tells the service's keys of products, before it is told that they are there."""

    named: Callable[[Mapping[int, str]], None]
    observers: Observers
    keys: dict[int, str] = attrs.field(factory=dict[int, str])

    def result(self, result: ProductUpsertResult) -> None:
        if result.id is not None and result.product_key is not None:
            self.keys[_key(result.id)] = result.product_key

    def receipt(self, receipt: Receipt) -> None:
        self.named(self.keys)
        self.keys = {}
        if self.observers.on_receipt is not None:
            self.observers.on_receipt(receipt)


@attrs.define
class _Numbers:
    """Keeps which row each deletion is of, since not all rows have a key."""

    leaving: Snapshots
    observers: Observers
    numbers: "array[int]" = attrs.field(factory=lambda: array("Q"))
    failed: set[int] = attrs.field(factory=set[int])

    def keys(self, found: Mapping[str, str]) -> Iterator[str]:
        for number, name, key in self.leaving.leaving():
            known = key or found.get(name.decode())
            if known is not None:
                self.numbers.append(number)
                yield known

    def receipt(self, receipt: Receipt) -> None:
        if self.observers.on_receipt is not None:
            positions = [self.numbers[position] for position in receipt.positions]
            self.observers.on_receipt(attrs.evolve(receipt, positions=positions))

    def failure(self, failure: Failure) -> None:
        number = self.numbers[failure.position]
        self.failed.add(number)
        if self.observers.on_failure is not None:
            self.observers.on_failure(attrs.evolve(failure, position=number))


def _entries(part: Sequence[Mapping[str, Any]], first: int) -> Entries:
    named = {position: product for position, product in enumerate(part, first) if _is_named(product)}
    written = [msgspec.json.encode(product, order="deterministic") for product in named.values()]
    ids = [str(product["id"]) for product in named.values()]
    return Entries(
        positions=list(named),
        keys=list(map(_key, ids)),
        names=[each.encode() for each in ids],
        contents=[int.from_bytes(sha256(each).digest()[:8]) for each in written],
        misfits=[position for position in range(first, first + len(part)) if position not in named],
        size=sum(map(len, written)),
    )


def _is_named(product: Mapping[str, Any]) -> bool:
    return isinstance(product.get("id"), str)


def _key(product_id: str) -> int:
    return int.from_bytes(sha256(product_id.encode()).digest()[:8])
