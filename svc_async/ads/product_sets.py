"""Product sets: chosen by hand or by filters."""

from collections.abc import Sequence

import attrs

from svc_async.engine.pipeline import Pipeline
from svc_async.open_enum import OpenEnum
from svc_async.wire.checks import each, required, required_when
from svc_async.wire.records import Record
from svc_async.wire.route import Route

__all__ = [
    "ProductSet",
    "ProductSetFilter",
    "ProductSetFilterAttribute",
    "ProductSetFilterOperator",
    "ProductSetProcessingStatus",
    "ProductSetType",
    "ProductSets",
]


class ProductSetType(OpenEnum):
    """How the products of a set are chosen."""

    MANUAL = "MANUAL"
    FILTERED = "FILTERED"


class ProductSetProcessingStatus(OpenEnum):
    """The state of processing (contract PSET-03b)."""

    DONE = "DONE"
    PROCESSING = "PROCESSING"
    FAILED = "FAILED"


class ProductSetFilterAttribute(OpenEnum):
    """The attribute that a filter compares (contract PSET-02)."""

    PRICE = "price"
    PRODUCT_TYPE = "product_type"
    GOOGLE_PRODUCT_CATEGORY = "google_product_category"
    SALE_PRICE = "sale_price"
    INVENTORY = "inventory"
    CUSTOM_LABEL_0 = "custom_label_0"
    CUSTOM_LABEL_1 = "custom_label_1"
    CUSTOM_LABEL_2 = "custom_label_2"
    CUSTOM_LABEL_3 = "custom_label_3"
    CUSTOM_LABEL_4 = "custom_label_4"


class ProductSetFilterOperator(OpenEnum):
    """How a filter compares (contract PSET-02)."""

    GREATER_THAN = "GREATER_THAN"
    EQUAL_TO = "EQUAL_TO"
    LESS_THAN = "LESS_THAN"
    MATCH = "MATCH"
    NOT_CONTAINS = "NOT_CONTAINS"
    CONTAINS = "CONTAINS"


@attrs.frozen(kw_only=True)
class ProductSetFilter(Record):
    """A condition on products."""

    attribute: ProductSetFilterAttribute
    operator: ProductSetFilterOperator
    value: str


@attrs.frozen(kw_only=True)
class ProductSet(Record):
    """A product set (contract record `ProductSet`).

    Attributes:
        product_ids: the merchant's ids, although sets are created with `product_keys`.
        filters: the conditions of a `FILTERED` set.
    """

    id: str
    name: str | None = None
    description: str | None = None
    type: ProductSetType
    product_ids: tuple[str, ...] | None = None
    filters: tuple[ProductSetFilter, ...] | None = None
    processing_status: ProductSetProcessingStatus | None = None


_ALL = "/12/product_catalogs/{product_catalog_id}/product_sets"
_ONE = "/12/product_catalogs/{product_catalog_id}/product_sets/{product_set_id}"

_GET = Route("GET", _ONE, ProductSet)
_CREATE = Route(
    "POST",
    _ALL,
    ProductSet,
    json=True,
    checks=(
        required_when("type", ("MANUAL",), "product_keys"),
        required_when("type", ("FILTERED",), "filters"),
        each("filters", required("attribute", "operator", "value")),
    ),
)
_UPDATE = Route("PUT", _ONE, ProductSet, json=True)


@attrs.frozen(eq=False)
class ProductSets:
    """The product sets of one catalog."""

    _pipeline: Pipeline = attrs.field(repr=False)
    product_catalog_id: str

    async def get(self, product_set_id: str) -> ProductSet:
        """Return a product set.

        Contract: `product_sets.get`.
        """
        return await self._pipeline.send(
            _GET(product_catalog_id=self.product_catalog_id, product_set_id=product_set_id)
        )

    async def create(
        self,
        *,
        name: str,
        type: ProductSetType,  # noqa: A002 - the service's name
        description: str | None = None,
        filters: Sequence[ProductSetFilter] | None = None,
        product_keys: Sequence[str] | None = None,
    ) -> ProductSet:
        """Create a set; its `processing_status` says whether it is ready.

        Args:
            name: its name.
            type: how its products are chosen.
            description: what it is.
            filters: the conditions; needed for `FILTERED` (contract PSET-01b).
            product_keys: the products; needed for `MANUAL` (contract PSET-01).

        Contract: `product_sets.create`.
        """
        return await self._pipeline.send(
            _CREATE(
                product_catalog_id=self.product_catalog_id,
                name=name,
                type=type,
                description=description,
                filters=filters,
                product_keys=product_keys,
            )
        )

    async def update(
        self,
        product_set_id: str,
        *,
        name: str | None = None,
        description: str | None = None,
        product_keys: Sequence[str] | None = None,
    ) -> ProductSet:
        """Update the given fields of a `MANUAL` set; None leaves one as it is. `FILTERED` ones cannot be changed.

        Contract: PSET-04, PSET-04b, `product_sets.update`.
        """
        return await self._pipeline.send(
            _UPDATE(
                product_catalog_id=self.product_catalog_id,
                product_set_id=product_set_id,
                name=name,
                description=description,
                product_keys=product_keys,
            )
        )
