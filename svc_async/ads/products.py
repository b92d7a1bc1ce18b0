"""The products of a catalog: their records, their rules, and the routes that send them."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import attrs

from svc_async.engine.paging import Pager
from svc_async.engine.pipeline import Pipeline
from svc_async.errors import InvalidArgument
from svc_async.open_enum import OpenEnum
from svc_async.wire.checks import (
    any_of,
    at_most,
    between,
    distinct,
    each,
    length,
    one_of,
    related,
    required,
    requires,
    satisfies,
)
from svc_async.wire.params import Check
from svc_async.wire.records import Record, list_field_names
from svc_async.wire.route import Listing, Route

__all__ = [
    "DELETE",
    "MAX_PRODUCTS",
    "PRODUCT_CHECKS",
    "UPSERT",
    "CatalogProducts",
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
]


class ProductAvailability(OpenEnum):
    """Whether a product is available."""

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
    """The gender a product is for."""

    FEMALE = "female"
    MALE = "male"
    UNISEX = "unisex"


class ProductAgeGroup(OpenEnum):
    """The age group a product is for."""

    ADULT = "adult"
    ALL_AGES = "all ages"
    TEEN = "teen"
    KIDS = "kids"
    TODDLER = "toddler"
    INFANT = "infant"
    NEWBORN = "newborn"


class ProductUpsertStatus(OpenEnum):
    """The result for a product (contract PROD-08, PROD-08b)."""

    CREATE_SUCCESS = "CREATE_SUCCESS"
    UPDATE_SUCCESS = "UPDATE_SUCCESS"
    ERROR = "ERROR"
    NO_CHANGE = "NO_CHANGE"


@attrs.frozen(kw_only=True)
class Product(Record):
    """A product, with the attributes of a merchant's feed (contract record `Product`).

    Attributes:
        id: the merchant's unique id.
        product_key: the id that the service assigns.
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
        item_group_id: the id that its variants share.
        item_group_key: the key that the service assigns to the group.
        color: a word, not a hex code.
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
    """The result for one product; the forms of `warnings` and `errors` are not documented."""

    warnings: Any = attrs.field(default=None, hash=False)
    errors: Any = attrs.field(default=None, hash=False)
    product_key: str | None = None
    id: str | None = None
    status: ProductUpsertStatus


@attrs.frozen(kw_only=True)
class ProductUpsertResults(Record):
    """The results for the products of one request (contract PROD-08c)."""

    products_response: tuple[ProductUpsertResult, ...]


@attrs.frozen(kw_only=True)
class ProductDeleteResult(Record):
    """The result for one key; the forms of `failed_product_key` and `message` are not documented."""

    product_key: str | None = None
    failed_product_key: Any = attrs.field(default=None, hash=False)
    message: Any = attrs.field(default=None, hash=False)


@attrs.frozen(kw_only=True)
class ProductDeleteResults(Record):
    """The results for the keys of one request (contract PROD-11)."""

    delete_products: tuple[ProductDeleteResult, ...]


_PRICE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ([A-Z]{3})")
_SURROGATE = re.compile("[\ud800-\udfff]")
_PRICE_RULE = "must be a number, a space and a 3-letter currency code, such as 9.90 EUR"
_SIGNS = ("+", "-", "\N{MINUS SIGN}")
_SIGN_RULE = "must be a number without a sign, such as 9.90 EUR: a price is never negative"
_COMMA_RULE = "must have a decimal point and no comma, such as 9.90 EUR"
_CAPITALS_RULE = "must have its currency code in capital letters, such as 9.90 EUR"
_MARKUP = re.compile(r"</?[A-Za-z][^<>]*>")
_HEX = re.compile(r"#.*|(?=.*[0-9])[0-9A-Fa-f]{6}(?:[0-9A-Fa-f]{2})?", re.DOTALL)
_MAX_IMAGES = 10
_OTHER_FORMAT = re.compile(
    r".*\.(?:avif|bmp|eps|hei[cf]|html?|ico|mov|mp4|pdf|psd|svg|tiff?|webm)", re.IGNORECASE | re.DOTALL
)


def _is_text(value: object) -> bool:
    """Return whether it is a string that UTF-8 can encode."""
    return isinstance(value, str) and not _SURROGATE.search(value)


def _is_price(value: object) -> bool:
    return isinstance(value, str) and _PRICE.fullmatch(value) is not None


def _find_price_rule(value: object) -> str | None:
    """Return the rule that a price breaks; None if it breaks none."""
    if _is_price(value):
        return None
    if isinstance(value, str) and value.startswith(_SIGNS) and _is_price(value[1:]):
        return _SIGN_RULE
    if isinstance(value, str) and _is_price(value.upper()):
        return _CAPITALS_RULE
    if isinstance(value, str) and "," in value and _is_price(value.replace(",", "")):
        return _COMMA_RULE
    return _PRICE_RULE


def _check_price(name: str) -> Check:
    """Require that a value, if given, is a price."""

    def check(params: Mapping[str, Any]) -> InvalidArgument | None:
        value = params.get(name)
        rule = None if value is None else _find_price_rule(value)
        return None if rule is None else InvalidArgument(name, rule)

    return check


def _is_lower(price: object, than: object) -> bool:
    """Compare two prices; those in different currencies are left to the service."""
    low, high = _PRICE.fullmatch(str(price)), _PRICE.fullmatch(str(than))
    if low is None or high is None or low[2] != high[2]:
        return True
    return Decimal(low[1]) < Decimal(high[1])


def _is_url(value: object, *schemes: str) -> bool:
    try:
        parts = urlsplit(str(value))
        host = parts.hostname
    except ValueError:
        return False
    return parts.scheme in (schemes or ("http", "https")) and bool(host) and not re.search(r"\s", str(value))


def _is_https(value: object) -> bool:
    return _is_url(value, "https")


def _may_be_image(value: object) -> bool:
    # Unspecified: how to detect the format of an image without fetching it. The suffix of another format is refused.
    return _is_url(value) and not _OTHER_FORMAT.fullmatch(urlsplit(str(value)).path)


def _are_urls(value: object) -> bool:
    return all(_is_url(link.strip()) for link in str(value).split(","))


def _is_range(value: object) -> bool:
    try:
        start, end = [datetime.fromisoformat(moment) for moment in str(value).split("/") if "T" in moment]
        return str(value).count("/") == 1 and start < end
    except (TypeError, ValueError):  # no two timestamps, or only one of them with a zone
        return False


def _is_path(value: object) -> bool:
    levels = str(value).split(" > ")
    return all(level and level == level.strip() and ">" not in level for level in levels)


def _is_stock(inventory: object) -> bool:
    return isinstance(inventory, int) and not isinstance(inventory, bool) and inventory >= 0


def _is_stocked(inventory: object, availability: object) -> bool:
    return availability != ProductAvailability.IN_STOCK or (isinstance(inventory, int) and inventory >= 1)


def _skip_unset(check: Check) -> Check:
    """Return a check that ignores empty strings, which clear an optional attribute."""
    return lambda params: check(_drop_unset(params) if "" in params.values() else params)


def _drop_unset(params: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in params.items() if value != ""}


_REQUIRED = ("id", "title", "description", "availability", "condition", "price", "link", "image_link")
_TEXTS = tuple(name for name in list_field_names(Product) if name != "inventory")
_ENUMS: Mapping[str, type[OpenEnum]] = {
    "availability": ProductAvailability,
    "condition": ProductCondition,
    "gender": ProductGender,
    "age_group": ProductAgeGroup,
}

PRODUCT_CHECKS: Sequence[Check] = tuple(
    map(
        _skip_unset,
        (
            *map(required, _REQUIRED),
            *(satisfies(name, _is_text, "must be text in valid Unicode") for name in _TEXTS),
            length("title", 150),
            length("description", 5000),
            satisfies("description", lambda text: not _MARKUP.search(str(text)), "must be plain text, without tags"),
            *(one_of(name, *kind) for name, kind in _ENUMS.items()),
            _check_price("price"),
            satisfies("link", _is_https, "must be an https URL"),
            satisfies("mobile_link", _is_https, "must be an https URL"),
            satisfies("image_link", _may_be_image, "must be the URL of a JPG, GIF, WEBP or PNG"),
            any_of("brand", "gtin", "mpn"),
            satisfies(
                "additional_image_link",
                lambda links: str(links).count(",") < _MAX_IMAGES,
                f"must contain at most {_MAX_IMAGES} URLs",
            ),
            satisfies("additional_image_link", _are_urls, "must contain URLs with commas between them"),
            satisfies("google_product_category", _is_path, "must have its levels separated by ' > '"),
            satisfies("product_type", _is_path, "must have its levels separated by ' > '"),
            satisfies("inventory", _is_stock, "must be a whole number of at least 0"),
            related(("inventory", "availability"), _is_stocked, "must be at least 1 when availability is in stock"),
            _check_price("sale_price"),
            related(("sale_price", "price"), _is_lower, "must be lower than price"),
            satisfies(
                "sale_price_effective_date",
                _is_range,
                "must be two ISO 8601 timestamps with a slash between them, the later one last",
            ),
            requires("item_group_key", "item_group_id"),
            satisfies("color", lambda color: not _HEX.fullmatch(str(color)), "must be a word, not a hex code"),
        ),
    )
)
"""The service's rules for a product that can be checked locally (contract PROD-02 to PROD-06c, PROD-09b to 13)."""

MAX_PRODUCTS = 25
"""Products in one request (contract PROD-01)."""

_ALL = "/12/product_catalogs/{product_catalog_id}/products"

_LIST = Listing(_ALL, Product, checks=(between("count", 1, 100),))
UPSERT = Route(
    "PUT",
    _ALL,
    ProductUpsertResults,
    json=True,
    decides=True,
    checks=(
        at_most("products", MAX_PRODUCTS, "products"),
        each("products", *PRODUCT_CHECKS),
        distinct("products", "id"),
    ),
)
"""The route that creates and changes products (contract `products.upsert`)."""
DELETE = Route("DELETE", _ALL, ProductDeleteResults, json=True, decides=True)
"""The route that deletes products for good (contract `products.delete`)."""


@attrs.frozen(eq=False)
class CatalogProducts:
    """The products of one catalog, in single requests."""

    _pipeline: Pipeline = attrs.field(repr=False)
    product_catalog_id: str

    def list(self, *, item_group_key: str | None = None, count: int | None = None) -> Pager[Product]:
        """List the products; of a group only the one that was sent first (contract PROD-10b).

        Args:
            item_group_key: only the variants of this group.
            count: records per page, from 1 to 100, the service's default.

        Contract: PROD-10, `products.list`.
        """
        request = _LIST(product_catalog_id=self.product_catalog_id, item_group_key=item_group_key, count=count)
        return Pager(self._pipeline, request)

    async def send(self, products: Sequence[Product | Mapping[str, Any]]) -> Sequence[ProductUpsertResult]:
        """Create or change products in one request; return one result for each, in their order.

        Args:
            products: at most 25, none twice: the service would ignore all of one id (contract PROD-07).

        Contract: PROD-01, `products.upsert`.
        """
        answer = await self._pipeline.send(UPSERT(product_catalog_id=self.product_catalog_id, products=products))
        return answer.products_response
