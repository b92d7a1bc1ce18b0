"""The products of a catalog: listing them, and the rows that carry them."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import attrs

from svc_async.open_enum import OpenEnum
from svc_async.paging import Pager
from svc_async.pipeline import Pipeline
from svc_async.wire.checks import (
    Check,
    any_of,
    at_most,
    between,
    distinct,
    each,
    holds,
    length,
    related,
    required,
)
from svc_async.wire.endpoint import Endpoint, Listing
from svc_async.wire.records import Record

__all__ = [
    "DELETE",
    "PRODUCT_CHECKS",
    "UPSERT",
    "Product",
    "ProductAgeGroup",
    "ProductAvailability",
    "ProductCondition",
    "ProductDeleteResult",
    "ProductDeleteResults",
    "ProductGender",
    "ProductUpsertResult",
    "ProductUpsertResults",
    "ProductUpsertStatus",
    "Products",
]


class ProductAvailability(OpenEnum):
    """Whether a product can be had."""

    IN_STOCK = "in stock"
    AVAILABLE_FOR_ORDER = "available for order"
    PREORDER = "preorder"
    OUT_OF_STOCK = "out of stock"
    DISCONTINUED = "discontinued"


class ProductCondition(OpenEnum):
    """Whether a product is new."""

    NEW = "new"
    USED = "used"
    REFURBISHED = "refurbished"


class ProductGender(OpenEnum):
    """Whom a product is for."""

    FEMALE = "female"
    MALE = "male"
    UNISEX = "unisex"


class ProductAgeGroup(OpenEnum):
    """Of what age those are whom a product is for."""

    ADULT = "adult"
    ALL_AGES = "all ages"
    TEEN = "teen"
    KIDS = "kids"
    TODDLER = "toddler"
    INFANT = "infant"
    NEWBORN = "newborn"


class ProductUpsertStatus(OpenEnum):
    """What became of a product (contract PROD-08, PROD-08b)."""

    CREATE_SUCCESS = "CREATE_SUCCESS"
    UPDATE_SUCCESS = "UPDATE_SUCCESS"
    ERROR = "ERROR"
    NO_CHANGE = "NO_CHANGE"


@attrs.frozen(kw_only=True)
class Product(Record):
    """A product, with the attributes of a merchant's feed (contract record `Product`).

    Attributes:
        id: the merchant's unique id.
        product_key: the service's id, made by it.
        title: at most 150 characters.
        description: plain text of at most 5000 characters.
        price: such as `9.90 EUR`.
        link: an https URL, like `mobile_link`.
        image_link: JPG, GIF, WEBP or PNG of at least 500 x 500 pixels and at most 5 MB.
        brand: one of this, `gtin` and `mpn` at least.
        additional_image_link: up to 10 URLs, joined by commas.
        google_product_category: a path in a taxonomy, its levels separated by ` > `, like `product_type`.
        inventory: at least 1 when it is in stock.
        sale_price: lower than `price`.
        sale_price_effective_date: two ISO 8601 timestamps with a slash between them.
        item_group_id: what its variants have in common.
        item_group_key: the same, made by the service.
        color: a word, no hex code.
    """

    id: str
    product_key: str | None = None
    title: str
    description: str
    availability: ProductAvailability
    condition: ProductCondition
    price: str
    link: str
    image_link: str
    brand: str | None = None
    gtin: str | None = None
    mpn: str | None = None
    mobile_link: str | None = None
    additional_image_link: str | None = None
    google_product_category: str | None = None
    product_type: str | None = None
    inventory: int | None = None
    sale_price: str | None = None
    sale_price_effective_date: str | None = None
    item_group_id: str | None = None
    item_group_key: str | None = None
    gender: ProductGender | None = None
    age_group: ProductAgeGroup | None = None
    color: str | None = None
    size: str | None = None
    custom_label_0: str | None = None
    custom_label_1: str | None = None
    custom_label_2: str | None = None
    custom_label_3: str | None = None
    custom_label_4: str | None = None


@attrs.frozen(kw_only=True)
class ProductUpsertResult(Record):
    """What became of one product; the forms of `warnings` and `errors` are not documented."""

    warnings: Any = None
    errors: Any = None
    product_key: str | None = None
    id: str | None = None
    status: ProductUpsertStatus


@attrs.frozen(kw_only=True)
class ProductUpsertResults(Record):
    """What became of the products of one request (contract PROD-08c)."""

    products_response: Sequence[ProductUpsertResult]


@attrs.frozen(kw_only=True)
class ProductDeleteResult(Record):
    """What became of one key; the forms of `failed_product_key` and `message` are not documented."""

    product_key: str | None = None
    failed_product_key: Any = None
    message: Any = None


@attrs.frozen(kw_only=True)
class ProductDeleteResults(Record):
    """What became of the keys of one request (contract PROD-11)."""

    delete_products: Sequence[ProductDeleteResult]


_PRICE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ([A-Z]{3})")
_PRICE_RULE = "must be a number, a space and a 3-letter currency code, such as 9.90 EUR"


def _is_price(value: object) -> bool:
    return isinstance(value, str) and _PRICE.fullmatch(value) is not None


def _is_lower(price: str, than: str) -> bool:
    """Compare two prices; those of different currencies are the service's to compare."""
    low, high = _PRICE.fullmatch(price), _PRICE.fullmatch(than)
    if low is None or high is None or low[2] != high[2]:
        return True
    return Decimal(low[1]) < Decimal(high[1])


def _is_https(value: object) -> bool:
    return isinstance(value, str) and value.lower().startswith("https://")


def _is_range(value: object) -> bool:
    try:
        moments = [datetime.fromisoformat(moment) for moment in str(value).split("/")]
    except ValueError:
        return False
    return len(moments) == len(("start", "end"))


def _is_stocked(inventory: object, availability: object) -> bool:
    return availability != ProductAvailability.IN_STOCK or (isinstance(inventory, int) and inventory >= 1)


_MOST_IMAGES = 10

PRODUCT_CHECKS: Sequence[Check] = (
    required("id", "title", "description", "availability", "condition", "price", "link", "image_link"),
    length("title", 150),
    length("description", 5000),
    holds("price", _is_price, _PRICE_RULE),
    holds("link", _is_https, "must be an https URL"),
    holds("mobile_link", _is_https, "must be an https URL"),
    any_of("brand", "gtin", "mpn"),
    holds(
        "additional_image_link",
        lambda links: str(links).count(",") < _MOST_IMAGES,
        f"must hold at most {_MOST_IMAGES} URLs",
    ),
    related(("inventory", "availability"), _is_stocked, "must be at least 1 when availability is in stock"),
    holds("sale_price", _is_price, _PRICE_RULE),
    related(("sale_price", "price"), _is_lower, "must be lower than price"),
    holds("sale_price_effective_date", _is_range, "must be two ISO 8601 timestamps with a slash between them"),
    holds("color", lambda color: not str(color).startswith("#"), "must be a word, not a hex code"),
)
"""What the service demands of a product and can be told without it (contract PROD-02 to PROD-06c, PROD-12)."""

_ALL = "/12/product_catalogs/{product_catalog_id}/products"

_LIST = Listing(_ALL, Product, checks=(between("count", 1, 100),))
UPSERT = Endpoint(
    "PUT",
    _ALL,
    ProductUpsertResults,
    json=True,
    checks=(at_most("products", 25, "products"), each("products", *PRODUCT_CHECKS), distinct("products", "id")),
)
"""The row that makes and changes up to 25 products (contract `products.upsert`)."""
DELETE = Endpoint("DELETE", _ALL, ProductDeleteResults, json=True)
"""The row that deletes products for good (contract `products.delete`)."""


@attrs.frozen
class Products:
    """The products of one catalog."""

    _pipeline: Pipeline
    product_catalog_id: str

    def list(self, *, item_group_key: str | None = None, count: int | None = None) -> Pager[Product]:
        """List them; of grouped ones only the one that was sent first (contract PROD-10b).

        Args:
            item_group_key: only the variants of this group.
            count: records a page, from 1 to 100, the service's default.

        Contract: PROD-10, `products.list`.
        """
        return Pager(
            self._pipeline,
            _LIST(product_catalog_id=self.product_catalog_id, item_group_key=item_group_key, count=count),
        )

    async def send(self, products: Sequence[Product | Mapping[str, Any]]) -> Sequence[ProductUpsertResult]:
        """Make or change products in one request; one result for each comes back, in their order.

        Args:
            products: at most 25, none twice: the service would ignore all of one id (contract PROD-07).

        Contract: PROD-01, `products.upsert`.
        """
        answer = await self._pipeline.send(UPSERT(product_catalog_id=self.product_catalog_id, products=products))
        return answer.products_response
