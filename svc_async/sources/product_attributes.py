"""The products of feeds: attributes as merchants write them, and what their values become for the service."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from svc_async.ads.products import Product
from svc_async.errors import Hint
from svc_async.users.names import Vocabulary
from svc_async.wire.records import list_field_names

__all__ = [
    "MAX_PRODUCT",
    "PRODUCTS",
    "PRODUCT_KEYS",
    "UnparsedRow",
    "find_id",
    "join_values",
    "parse_product",
    "refuse_long_product",
]

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


def find_id(product: object) -> str | None:
    """Return the id of a product, also of one that breaks rules; None if it has none that can be read."""
    if isinstance(product, UnparsedRow):
        product_id: object = product.product_id
    else:
        product_id = product.get("id") if isinstance(product, Mapping) else getattr(product, "id", None)
    if not isinstance(product_id, str) or not product_id:
        return None
    try:
        product_id.encode()
    except UnicodeEncodeError:
        return None
    return product_id


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


def parse_product(columns: Sequence[str], row: Sequence[Any]) -> Mapping[str, Any]:
    """Return the product in a row of a table.

    Values are texts, integers, or lists of these, which are several values of an attribute; others are left to the
    checks of products. Blank values are absent.

    Args:
        columns: the attribute that each value is of.
        row: the values; none in a row with more cells than the header.
    """
    if not row:
        return UnparsedRow("must not have more cells than the header")
    cells = zip(columns, row, strict=True)
    if set(map(type, row)) == {str}:  # as in CSV: no value needs a closer look
        if sum(map(len, row)) > MAX_PRODUCT:
            return refuse_long_product(_normalize("id", dict(cells).get("id", "")))
        return {name: _normalize(name, value) for name, value in cells if value.strip()}
    found = {name: value for name, value in cells if not _is_blank(value)}
    if sum(len(value if isinstance(value, str) else str(value)) for value in found.values()) > MAX_PRODUCT:
        return refuse_long_product(_parse_value("id", found.get("id")))
    return {name: _parse_value(name, value) for name, value in found.items()}


def refuse_long_product(product_id: object) -> UnparsedRow:
    """Return the row of a product that is too long, with the id as it would be sent if that is a short text."""
    is_short = isinstance(product_id, str) and 0 < len(product_id) <= _MAX_ID
    reason = f"must have at most {MAX_PRODUCT:,} characters in all its attributes"
    return UnparsedRow(reason, product_id if is_short else None)


def _is_blank(value: object) -> bool:
    return value is None or (not value.strip() if isinstance(value, str) else value == [])


def _parse_value(name: str, value: Any) -> object:
    if _is_plain(value):
        return _normalize(name, str(value))
    if isinstance(value, list) and all(map(_is_plain, value)):
        return join_values(name, [str(each).strip() for each in value])
    return value


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _normalize(name: str, value: str) -> int | str:
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
        return _normalize(name, distinct[0])
    return distinct
