"""A product catalog as the target of a sync."""

import asyncio
from array import array
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

import attrs

from svc_async.ads.products import Product, ProductUpsertResult
from svc_async.batch.report import Report
from svc_async.engine.paging import Pager
from svc_async.sources.product_attributes import find_id
from svc_async.sources.source import SlicedRows
from svc_async.sync.entries import Removal, SelectRows
from svc_async.sync.ledger import PartJob
from svc_async.sync.product_slices import find_key, unpack_products
from svc_async.sync.state import Removals
from svc_async.sync.sync import SyncTarget

__all__ = ["CatalogTarget", "list_names"]

_CHECKED_AT_ONCE = 100
"""Products that are checked before other tasks run: some milliseconds."""
_NAMES = ("id", "product_key", "item_group_key")

SendProducts = Callable[
    [Iterable[Product | Mapping[str, Any]], Callable[[ProductUpsertResult], object], PartJob], Awaitable[Report]
]
"""Sends products, and calls a function with each result."""


@attrs.frozen(kw_only=True)
class CatalogTarget(SyncTarget):
    """A catalog, and the products that it is to have.

    A product is identified by its `id`. It is deleted by the key that the service has given it; the state keeps the key
    from the answer. Where the answer was lost, the catalog is listed to find it.

    Attributes:
        list_products: lists the products of the catalog, as `products.list`.
        send_products: sends some.
        delete_products: deletes some by their keys.
        accepts: whether a product keeps the rules, so that it is sent.
    """

    removes_for_good = True

    list_products: Callable[..., Pager[Product]]
    send_products: SendProducts
    delete_products: Callable[[AsyncIterable[str], PartJob], Awaitable[Report]]
    accepts: Callable[[object], bool] = attrs.field(repr=False)

    def name_key(self, kind: int) -> str:  # noqa: ARG002 - products have one kind of key
        """Return the name of the attribute."""
        return "id"

    async def find_invalid(self, select: SelectRows) -> AsyncIterator[int]:
        """Yield which of the products to send break a rule, of those that have an id."""
        for number, product in enumerate(unpack_products(self.spill.read(select))):
            if number % _CHECKED_AT_ONCE == 0:
                await asyncio.sleep(0)
            if find_id(product) is not None and not self.accepts(product):
                yield number

    async def remove(self, removals: Removals, job: PartJob) -> Report:
        """Delete products for good."""
        unknown = {position: _name(each) async for position, each in removals.each() if each.service_key is None}
        found = await self._find_keys(set(unknown.values()))
        removals.record_missing(position for position, name in unknown.items() if name not in found)
        numbers = job.ledger.numbers = array("Q")

        async def read_keys() -> AsyncIterator[str]:
            async for position, removal in removals.each():
                known = removal.service_key or found.get(_name(removal))
                if known is not None:
                    numbers.append(position)
                    yield known

        report = await self.delete_products(read_keys(), job)
        failed = job.ledger.failed
        if failed:  # those that could not be deleted because they do not exist are removed
            names = {position: _name(each) async for position, each in removals.each() if position in failed}
            found = await self._find_keys(set(names.values()))
            removals.record_missing(position for position, name in names.items() if name not in found)
        return report

    async def send(
        self,
        select: SelectRows,
        job: PartJob,
        *,
        expires_at: datetime | None,  # noqa: ARG002 - products do not expire
    ) -> Report:
        """Create or change products, and record the keys that the service has given them."""

        def record_key(result: ProductUpsertResult) -> None:
            if result.id is not None and result.product_key is not None:
                job.ledger.service_keys[find_key(result.id)] = result.product_key

        products = SlicedRows([unpack_products(self.spill.read(select))])
        return await self.send_products(products, record_key, job)

    async def _find_keys(self, ids: set[str]) -> Mapping[str, str]:
        """Find the service's keys of products whose answers were lost.

        A product counts as missing only if two listings lack it: a product that is taken for missing once would stay in
        the catalog for good, and an empty page is all that an answer needs to be to say so.
        """
        found = await self._list_keys(ids)
        missing = ids - found.keys()
        return {**found, **await self._list_keys(missing)}

    async def _list_keys(self, ids: set[str]) -> Mapping[str, str]:
        found: dict[str, str] = {}
        if not ids:
            return found
        async for product in list_names(self.list_products):
            product_id, product_key = product.get("id"), product.get("product_key")
            if product_id in ids and product_key is not None:
                found[product_id] = product_key
        return found


async def list_names(list_products: Callable[..., Pager[Product]]) -> AsyncIterator[Mapping[str, str]]:
    """Yield the names of all products, those of a group after its first one, which comes twice.

    Args:
        list_products: `products.list` of a catalog.
    """
    groups: set[str] = set()
    async for product in _list_plain(list_products()):
        yield product
        group = product.get("item_group_key")
        if group is not None and group not in groups:
            groups.add(group)
            # The plain list has only the first product of a group (contract PROD-10b).
            async for variant in _list_plain(list_products(item_group_key=group)):
                yield variant


async def _list_plain(products: Pager[Product]) -> AsyncIterator[Mapping[str, str]]:
    """Iterate over the names of products that can be read, also where the rest of a product cannot."""
    async for page in products.pages():
        for product in page.items:
            yield _find_names(partial(getattr, product))
        for each in page.unreadable:
            if isinstance(each.raw, Mapping):
                yield _find_names(each.raw.get)


def _find_names(find: Callable[[str], object]) -> Mapping[str, str]:
    return {name: value for name in _NAMES if isinstance(value := find(name), str)}


def _name(removal: Removal) -> str:
    return removal.name.decode()
