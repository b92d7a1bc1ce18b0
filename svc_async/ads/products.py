"""The products of a catalog: their records, their rules, and the routes that send them."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from decimal import Decimal
from math import isfinite
from numbers import Real
from operator import itemgetter
from types import MappingProxyType
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

import attrs

from svc_async.cells import holds_several, is_missing, is_rounded, stands_for_nothing, to_text
from svc_async.engine.paging import Pager
from svc_async.engine.pipeline import Pipeline
from svc_async.errors import InvalidArgument
from svc_async.open_enum import OpenEnum
from svc_async.value_rules import SEVERAL
from svc_async.wire.checks import any_of, at_most, between, distinct, each, related, required, requires
from svc_async.wire.params import Check
from svc_async.wire.records import Record, fields_of
from svc_async.wire.route import Listing, Route

__all__ = [
    "ATTRIBUTES",
    "CLEARED",
    "DELETE",
    "MAX_PRODUCTS",
    "PRODUCT_CHECKS",
    "REQUIRED",
    "UPSERT",
    "Attribute",
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
    "normalize_product",
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

    occasional: ClassVar[Collection[str]] = (
        "gtin",
        "mpn",
        "mobile_link",
        "additional_image_link",
        "google_product_category",
        "product_type",
        "inventory",
        "sale_price",
        "sale_price_effective_date",
        "item_group_id",
        "item_group_key",
        "gender",
        "age_group",
        "color",
        "size",
        *(f"custom_label_{number}" for number in range(5)),
    )

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
_SIGNS = ("+", "-", "\N{MINUS SIGN}")
_MARKUP = re.compile(r"</?[A-Za-z][^<>]*>")
_HEX = re.compile(r"#.*|(?=.*[0-9])[0-9A-Fa-f]{6}(?:[0-9A-Fa-f]{2})?", re.DOTALL)
_MAX_TITLE = 150
_MAX_DESCRIPTION = 5000
_MAX_IMAGES = 10
_OTHER_FORMAT = re.compile(
    r".*\.(?:avif|bmp|eps|hei[cf]|html?|ico|mov|mp4|pdf|psd|svg|tiff?|webm)", re.IGNORECASE | re.DOTALL
)

FindBreach = Callable[[Any], str | None]
"""Returns the rule that a value breaks, None if it breaks none."""


def _write(value: object) -> str | None:
    """Return a value as a CSV file would have it: text or a number, an empty text if it is missing; else None."""
    if is_missing(value):
        return ""
    if isinstance(value, Decimal) or (isinstance(value, Real) and not isinstance(value, int)):
        return str(value) if isfinite(value) else None
    return to_text(value)


def _keep(text: str) -> str:
    return text


def _require_one(values: Sequence[Any]) -> Any:
    """Return the only value; several are returned as they are, and fail: none of them is chosen."""
    return values[0] if len(values) == 1 else [*values]


@attrs.frozen
class Attribute:
    """The rules of an attribute of a product.

    Attributes:
        find_breach_of_kind: returns the rule of its kind that a value breaks.
        parse: returns a text in the form of the service; one that has no such form is returned as it is, and fails.
        join: makes one value of several different ones.
        presence: whether a product must have it; an optional one is cleared by an empty text.
    """

    find_breach_of_kind: FindBreach
    parse: Callable[[str], Any] = _keep
    join: Callable[[Sequence[Any]], Any] = _require_one
    presence: Literal["required", "optional", "assigned by the service"] = "optional"

    def normalize(self, value: object) -> Any:
        """Return a value as it is sent: an empty text if it is missing or blank, as it is if it breaks the rule."""
        if isinstance(value, str):
            text = value.strip()
            return self.parse(text) if text else ""
        if holds_several(value) and not isinstance(value, AbstractSet):  # which has no order
            several = [*value]
            texts = [each for each in map(_write, several) if each is not None]
            found = dict.fromkeys(self.parse(stripped) for each in texts if (stripped := each.strip()))
            return several if len(texts) < len(several) else self.join([*found]) if found else ""
        written = _write(value)
        return value if written is None else self.parse(written) if written else ""

    def find_breach(self, value: Any) -> str | None:
        """Return the rule that a value breaks, None if it breaks none."""
        if isinstance(value, str):
            if not value.isascii() and _SURROGATE.search(value):
                return "must be text in valid Unicode"
        elif isinstance(value, list) and len(value) > 1 and self.join is _require_one:
            return "must not occur twice, with different values"
        return self.find_breach_of_kind(value)


def _compile_rules(*rules: tuple[Callable[[Any], object], str]) -> FindBreach:
    """Return what finds the first of these rules that a value breaks."""
    return lambda value: next((rule for accepts, rule in rules if not accepts(value)), None)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_price(value: object) -> bool:
    return isinstance(value, str) and _PRICE.fullmatch(value) is not None


def _find_breach_of_price(value: object) -> str | None:
    if _is_price(value):
        return None
    if isinstance(value, str) and value.startswith(_SIGNS) and _is_price(value[1:]):
        return "must be a number without a sign, such as 9.90 EUR: a price is never negative"
    if isinstance(value, str) and _is_price(value.upper()):
        return "must have its currency code in capital letters, such as 9.90 EUR"
    if isinstance(value, str) and "," in value and _is_price(value.replace(",", "")):
        return "must have a decimal point and no comma, such as 9.90 EUR"
    return "must be a number, a space and a 3-letter currency code, such as 9.90 EUR"


def _is_lower(price: object, than: object) -> bool:
    """Compare two prices; those in different currencies are left to the service."""
    low, high = _PRICE.fullmatch(str(price)), _PRICE.fullmatch(str(than))
    if low is None or high is None or low[2] != high[2]:
        return True
    return Decimal(low[1]) < Decimal(high[1])


def _is_url(value: object, *schemes: str) -> bool:
    if not isinstance(value, str):
        return False
    try:
        parts = urlsplit(value)
        host = parts.hostname
    except ValueError:
        return False
    return parts.scheme in (schemes or ("http", "https")) and bool(host) and not re.search(r"\s", value)


def _is_https(value: object) -> bool:
    return _is_url(value, "https")


def _may_be_image(value: object) -> bool:
    # Unspecified: how to detect the format of an image without fetching it. The suffix of another format is refused.
    return _is_url(value) and not _OTHER_FORMAT.fullmatch(urlsplit(str(value)).path)


# Unspecified: whether a URL in a list of URLs may have a comma; it is escaped.
_begins_url = re.compile(r"\s*[a-z][a-z0-9+.-]*://", re.IGNORECASE).match


def _parse_urls(text: str) -> str:
    """Return URLs with commas between them; any other comma, which no URL follows, is a part of one, and is escaped."""
    urls: list[list[str]] = []
    for part in text.split(","):
        if not urls or _begins_url(part):
            urls.append([])
        urls[-1].append(part)
    joined = (",".join(parts).strip(", \t\r\n") for parts in urls)
    return ",".join(each.replace(",", "%2C") for each in joined if each)


def _are_urls(value: object) -> bool:
    return isinstance(value, str) and all(map(_is_url, value.split(",")))


def _is_range(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        start, end = [datetime.fromisoformat(moment) for moment in value.split("/") if "T" in moment]
        return value.count("/") == 1 and start < end
    except (TypeError, ValueError):  # no two timestamps, or only one of them with a zone
        return False


def _is_path(value: object) -> bool:
    levels = value.split(" > ") if isinstance(value, str) else [""]
    return all(level and level == level.strip() and ">" not in level for level in levels)


_match_stock = re.compile(r"([0-9]{1,19})(?:[.,]0{1,2})?").fullmatch
"""A whole number, as it is or as a column of floats has it; three zeros may be thousands."""


def _parse_stock(text: str) -> int | str:
    found = _match_stock(text)
    return int(found[1]) if found else text


def _is_stock(inventory: object) -> bool:
    return isinstance(inventory, int) and not isinstance(inventory, bool) and inventory >= 0


def _is_stocked(inventory: object, availability: object) -> bool:
    return availability != ProductAvailability.IN_STOCK or not isinstance(inventory, int) or inventory >= 1


# Unspecified: what an id may be. `1E5` may be one, or what a program has made of several: it fails rather than be two.
_is_scientific = re.compile(r"[0-9]+[eE][0-9]{1,2}").fullmatch

_TEXT = Attribute(_compile_rules((_is_text, "must be text")))
_ID = Attribute(
    _compile_rules(
        (_is_text, "must be text"),
        (
            lambda text: not (is_rounded(text) or _is_scientific(text)),
            "must have all its digits: a spreadsheet has made a number of it, as 8.05E+11; export the column as text",
        ),
        (
            lambda text: not stands_for_nothing(text),
            "must not be a text that stands for nothing, such as NULL or #N/A; leave it empty",
        ),
    )
)
_HTTPS = Attribute(_compile_rules((_is_https, "must be an https URL")))
_PATH = Attribute(_compile_rules((_is_path, "must have its levels separated by ' > '")), join=itemgetter(0))


def _declare_enum(kind: type[OpenEnum]) -> Attribute:
    known = _compile_rules((lambda value: isinstance(value, str) and value in values, f"must be {' or '.join(kind)}"))
    values = frozenset(kind)
    return Attribute(known, parse=lambda text: text.replace("_", " ").lower())


def _declare_text(*rules: tuple[Callable[[Any], object], str]) -> Attribute:
    return Attribute(_compile_rules((_is_text, "must be text"), *rules))


def _require(attribute: Attribute) -> Attribute:
    return attrs.evolve(attribute, presence="required")


_ASSIGNED = attrs.evolve(_TEXT, presence="assigned by the service")  # contract PROD-09

# Unspecified: which of several categories counts; merchants write the main one first.
ATTRIBUTES: Mapping[str, Attribute] = MappingProxyType(
    {
        "id": _require(_ID),
        "title": _require(
            _declare_text((lambda text: len(text) <= _MAX_TITLE, f"must have at most {_MAX_TITLE} characters"))
        ),
        "description": _require(
            _declare_text(
                (lambda text: len(text) <= _MAX_DESCRIPTION, f"must have at most {_MAX_DESCRIPTION} characters"),
                (lambda text: not _MARKUP.search(text), "must be plain text, without tags"),
            )
        ),
        "availability": _require(_declare_enum(ProductAvailability)),
        "condition": _require(_declare_enum(ProductCondition)),
        "price": _require(Attribute(_find_breach_of_price)),
        "link": _require(_HTTPS),
        "image_link": _require(
            Attribute(_compile_rules((_may_be_image, "must be the URL of a JPG, GIF, WEBP or PNG")))
        ),
        "brand": _TEXT,
        "gtin": _ID,
        "mpn": _ID,
        "mobile_link": _HTTPS,
        "additional_image_link": Attribute(
            _compile_rules(
                (lambda links: str(links).count(",") < _MAX_IMAGES, f"must contain at most {_MAX_IMAGES} URLs"),
                (_are_urls, "must contain URLs with commas between them"),
            ),
            parse=_parse_urls,
            join=",".join,
        ),
        "google_product_category": _PATH,
        "product_type": _PATH,
        "inventory": Attribute(_compile_rules((_is_stock, "must be a whole number of at least 0")), parse=_parse_stock),
        "sale_price": Attribute(_find_breach_of_price),
        "sale_price_effective_date": Attribute(
            _compile_rules((_is_range, "must be two ISO 8601 timestamps with a slash between them, the later one last"))
        ),
        "item_group_id": _ID,
        "gender": _declare_enum(ProductGender),
        "age_group": _declare_enum(ProductAgeGroup),
        "color": _declare_text((lambda color: not _HEX.fullmatch(color), "must be a word, not a hex code")),
        "size": _TEXT,
        **{f"custom_label_{number}": _TEXT for number in range(5)},
        "product_key": _ASSIGNED,
        "item_group_key": _ASSIGNED,
    }
)
"""The attributes of a product, in whatever form it is given (contract PROD-02 to PROD-13)."""

REQUIRED: Sequence[str] = tuple(name for name, each in ATTRIBUTES.items() if each.presence == "required")
"""The attributes that every product needs (contract PROD-02)."""
# Unspecified: that an empty text clears a number as well; if it did not, the result would say so, and be a failure.
CLEARED: Mapping[str, str] = MappingProxyType(
    {name: "" for name, each in ATTRIBUTES.items() if each.presence == "optional"}
)
"""The value that clears each optional attribute: an empty text (contract ASM-101)."""


def normalize_product(product: Any) -> Any:
    """Return a product as it is sent, as a dict; whatever is not a mapping or a record is returned as it is.

    A missing or blank value of an optional attribute becomes an empty text, which clears it; any other one is left out.
    A value that breaks the rule of its attribute is kept, for the checks.
    """
    fields = fields_of(product)
    if fields is None:
        return product
    is_record = not isinstance(product, Mapping)  # None is all that a record has of an attribute that was not given
    found: dict[str, Any] = {}
    for name, value in fields.items():
        attribute = ATTRIBUTES.get(name)
        if attribute is None:
            found[name] = value
        elif not (is_record and value is None):
            plain = attribute.normalize(value)
            if name in CLEARED or not (isinstance(plain, str) and not plain):
                found[name] = plain
    return found


def _check_attribute(name: str, attribute: Attribute) -> Check:
    def check(params: Mapping[str, Any]) -> InvalidArgument | None:
        value = params.get(name)
        if value is None or (isinstance(value, str) and not value):
            return None
        rule = attribute.find_breach(value)
        return None if rule is None else InvalidArgument(name, rule)

    return check


PRODUCT_CHECKS: Sequence[Check] = (
    *map(required, REQUIRED),
    *(_check_attribute(name, attribute) for name, attribute in ATTRIBUTES.items()),
    any_of("brand", "gtin", "mpn"),
    related(("inventory", "availability"), _is_stocked, "must be at least 1 when availability is in stock"),
    related(("sale_price", "price"), _is_lower, "must be lower than price"),
    requires("item_group_key", "item_group_id"),
)
"""The service's rules for a normalized product that can be checked locally (contract PROD-02 to PROD-13)."""

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
            products: at most 25, none twice: the service would ignore all of one id (contract PROD-07). What a missing
                value does is said of `upsert`.

        Contract: PROD-01, `products.upsert`.
        """
        if SEVERAL.accepts(products) and isinstance(products, Sequence):
            products = [*map(normalize_product, products)]
        answer = await self._pipeline.send(UPSERT(product_catalog_id=self.product_catalog_id, products=products))
        return answer.products_response
