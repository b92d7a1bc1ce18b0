"""The attributes of products as merchants write them in feeds, converted to the form of the service."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from svc_async.ads.products import Product
from svc_async.errors import Hint
from svc_async.users.names import Vocabulary
from svc_async.wire.records import list_field_names

__all__ = ["LONG_PRODUCT", "MAX_ID", "MAX_PRODUCT", "PRODUCTS", "PRODUCT_KEYS", "join_values", "normalize_value"]

_ASSIGNED_BY_THE_SERVICE = frozenset({"product_key", "item_group_key"})  # contract PROD-09

# Unspecified: which other names merchants use, and that columns without an attribute are left out; the command names
# them.
PRODUCTS = Vocabulary(
    keys=tuple(name for name in list_field_names(Product) if name not in _ASSIGNED_BY_THE_SERVICE),
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
    required=("id", "title", "description", "availability", "condition", "price", "link", "image_link"),
    needed=("id",),
    hints=MappingProxyType(
        {"id": "^(product|item|article|artikel|offer|variant|merchant)?(sku|id|code|no|nr|nummer|number)$"}
    ),
    lenient=True,
)
"""What the columns of a feed may contain."""
MAX_PRODUCT = 65_536
"""Characters of all values of a product; the longest, its description, has 5,000."""
MAX_ID = 1_000
"""Characters of the id that is kept of a product that is too long."""
LONG_PRODUCT = f"must have at most {MAX_PRODUCT:,} characters in all its attributes"
PRODUCT_KEYS = Vocabulary(keys=("product_key",), lenient=True, hint=Hint.LIST_PRODUCT_KEYS)
"""What the columns of a list of products to delete may contain."""


def _normalize_enum(value: str) -> str:
    """Return a value of an enum in the service's spelling: `in_stock` is `in stock`."""
    return value.replace("_", " ").lower()


_MAX_DIGITS = 19


def _parse_number(value: str) -> int | str:
    # Python parses integers of 4,300 digits at most; a longer one is not a stock.
    return int(value) if value.isascii() and value.isdecimal() and len(value) <= _MAX_DIGITS else value


_NORMALIZERS: Mapping[str, Callable[[str], int | str]] = MappingProxyType(
    {
        "age_group": _normalize_enum,
        "availability": _normalize_enum,
        "condition": _normalize_enum,
        "gender": _normalize_enum,
        "inventory": _parse_number,
    }
)


def normalize_value(name: str, value: str) -> int | str:
    """Return a value in the form of the service; an invalid one is returned unchanged, and found by the checks."""
    normalize = _NORMALIZERS.get(name)
    return normalize(value.strip()) if normalize else value.strip()


def join_values(name: str, values: list[str]) -> object:
    """Return one value for an attribute that a feed repeats.

    Links to images are a list in the service's form as well, separated by commas; of categories the first counts. Any
    other attribute must be unique, so its values are returned as a list, which every check refuses.
    """
    distinct = list(dict.fromkeys(values))
    if name == "additional_image_link":
        return ",".join(link.replace(",", "%2C") for link in distinct) if len(distinct) > 1 else distinct[0]
    # Unspecified: which of several categories counts; merchants write the main one first.
    if len(distinct) == 1 or name in {"product_type", "google_product_category"}:
        return normalize_value(name, distinct[0])
    return distinct
