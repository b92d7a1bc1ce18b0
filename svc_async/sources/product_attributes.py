"""The products of feeds: the names that merchants write for attributes, and rows that are products."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from svc_async.ads.products import ATTRIBUTES, CLEARED, REQUIRED, normalize_product
from svc_async.errors import Hint
from svc_async.users.names import Vocabulary

__all__ = [
    "MAX_PRODUCT",
    "PRODUCTS",
    "PRODUCT_KEYS",
    "UnparsedRow",
    "find_id",
    "parse_product",
    "parse_products",
    "read_id",
    "refuse_long_product",
]

# Unspecified: which other names merchants use, and that columns without an attribute are left out; the command names
# them.
PRODUCTS = Vocabulary(
    keys=(*REQUIRED, *CLEARED),
    aliases=MappingProxyType(
        {
            "additional_image_links": "additional_image_link",
            "additional_images": "additional_image_link",
            "image_url": "image_link",
            "mobile_url": "mobile_link",
            "name": "title",
            "quantity": "inventory",
            "url": "link",
        }
    ),
    required=REQUIRED,
    needed=("id",),
    hints=MappingProxyType(
        {"id": "^(product|item|article|artikel|offer|variant|merchant)?(sku|id|code|no|nr|nummer|number)$"}
    ),
    lenient=True,
    numbers=True,
)
"""What the columns of a feed may contain."""
MAX_PRODUCT = 65_536
"""Characters of all values of a product; the longest, its description, has 5,000."""
_MAX_ID = 1_000
"""Characters of the id that is kept of a product that is too long."""
PRODUCT_KEYS = Vocabulary(keys=("product_key",), lenient=True, hint=Hint.LIST_PRODUCT_KEYS)
"""What the columns of a list of products to delete may contain."""


class UnparsedRow(dict[str, Any]):
    """A row that its source could not parse as a product; it fails with this reason.

    Args:
        reason: what is wrong with it.
        product_id: its id, if that could be read.
    """

    def __init__(self, reason: str, product_id: object = None) -> None:
        super().__init__()
        self.reason = reason
        self.product_id = product_id


def read_id(product: object) -> str | None:
    """Return the id of a product, also one that breaks its rule; None if there is none that can be read."""
    if isinstance(product, UnparsedRow):
        product_id: object = product.product_id
    else:
        product_id = product.get("id") if isinstance(product, Mapping) else getattr(product, "id", None)
    product_id = ATTRIBUTES["id"].normalize(product_id)
    if not isinstance(product_id, str) or not product_id:
        return None
    try:
        product_id.encode()
    except UnicodeEncodeError:
        return None
    return product_id


def find_id(product: object) -> str | None:
    """Return the id of a product, None if it has none that keeps its rule: one that was rounded is that of several."""
    product_id = read_id(product)
    return None if product_id is None or ATTRIBUTES["id"].find_breach(product_id) else product_id


def parse_product(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a product as it is sent; see `normalize_product`.

    Args:
        found: the values of attributes: texts, integers, or lists of these; others are left to the checks of products.
    """
    if sum(len(value if isinstance(value, str) else str(value)) for value in found.values()) > MAX_PRODUCT:
        return refuse_long_product(found.get("id"))
    product: Mapping[str, Any] = normalize_product(found)
    return product


def parse_products(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the products in rows of a table; an empty one had more cells than the header.

    Args:
        columns: the attribute that each value is of.
        rows: the values.
    """
    return [
        parse_product(dict(zip(columns, row, strict=True)))
        if row
        else UnparsedRow("must not have more cells than the header")
        for row in rows
    ]


def refuse_long_product(product_id: object) -> UnparsedRow:
    """Return the row of a product that is too long, with its id if that is a short text."""
    product_id = ATTRIBUTES["id"].normalize(product_id)
    is_short = isinstance(product_id, str) and len(product_id) <= _MAX_ID
    reason = f"must have at most {MAX_PRODUCT:,} characters in all its attributes"
    return UnparsedRow(reason, product_id if is_short else None)
