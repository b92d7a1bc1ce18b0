"""Product catalogs, in early access."""

import attrs

from svc_async.engine.paging import Pager
from svc_async.engine.pipeline import Pipeline
from svc_async.wire.records import Record
from svc_async.wire.route import Listing, Route

__all__ = ["ProductCatalog", "ProductCatalogs"]


@attrs.frozen(kw_only=True)
class ProductCatalog(Record):
    """A catalog; one catalog of a user contains all products (contract PC-01b, PC-03)."""

    id: str
    name: str | None = None


_ALL = "/12/product_catalogs"
_ONE = "/12/product_catalogs/{product_catalog_id}"

_LIST = Listing(_ALL, ProductCatalog)
_CREATE = Route("POST", _ALL, ProductCatalog)
_UPDATE = Route("PUT", _ONE, ProductCatalog)
_DELETE = Route("DELETE", _ONE, ProductCatalog)


@attrs.frozen(eq=False)
class ProductCatalogs:
    """The product catalogs that the user may use."""

    _pipeline: Pipeline = attrs.field(repr=False)

    def list(self, *, user_id: int | None = None) -> Pager[ProductCatalog]:
        """List the product catalogs, or those of one user.

        Contract: PC-01, `product_catalogs.list`.
        """
        return Pager(self._pipeline, _LIST(user_id=user_id))

    async def create(self, *, name: str, user_id: int | None = None) -> ProductCatalog:
        """Create a catalog, optionally for another user.

        Contract: PC-01, `product_catalogs.create`.
        """
        return await self._pipeline.send(_CREATE(name=name, user_id=user_id))

    async def update(self, product_catalog_id: str, *, name: str) -> ProductCatalog:
        """Rename a catalog.

        Contract: PC-01, `product_catalogs.update`.
        """
        return await self._pipeline.send(_UPDATE(product_catalog_id=product_catalog_id, name=name))

    async def delete(self, product_catalog_id: str) -> ProductCatalog:
        """Delete a catalog for good and return its last state.

        Contract: PC-04, `product_catalogs.delete`.
        """
        return await self._pipeline.send(_DELETE(product_catalog_id=product_catalog_id))
