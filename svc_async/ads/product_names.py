"""Lists the names of all products of a catalog: their ids, and the keys that the service has given them."""

from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial

from svc_async.ads.products import Product
from svc_async.engine.paging import Pager

__all__ = ["list_names"]

_NAMES = ("id", "product_key", "item_group_key")


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
