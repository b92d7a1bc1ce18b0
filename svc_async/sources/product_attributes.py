"""The attributes of products as merchants write them in feeds, brought into the form of the service."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import attrs

from svc_async.ads.products import Product
from svc_async.sources.columns import Vocabulary

__all__ = ["KEYS", "PRODUCTS", "joined", "tidied"]

_MADE_BY_THE_SERVICE = frozenset({"product_key", "item_group_key"})  # contract PROD-09

# Unspecified: which other names merchants use, and that columns without an attribute are left out without a word.
PRODUCTS = Vocabulary(
    keys=tuple(field.name for field in attrs.fields(Product) if field.name not in _MADE_BY_THE_SERVICE),
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
    lenient=True,
)
"""What the columns of a feed may hold."""
KEYS = Vocabulary(keys=("product_key",), lenient=True)
"""What a list of products to delete must hold."""


def _words(value: str) -> str:
    """Write a word of an enum as the service does: `in_stock` is `in stock`."""
    return value.replace("_", " ").lower()


def _number(value: str) -> int | str:
    # Python reads integers of 4,300 digits at most; what is longer is no stock.
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 20 else value  # noqa: PLR2004


_FORMS: Mapping[str, Callable[[str], int | str]] = MappingProxyType(
    {
        "age_group": _words,
        "availability": _words,
        "condition": _words,
        "gender": _words,
        "inventory": _number,
    }
)


def tidied(name: str, value: str) -> int | str:
    """Bring a value into the form of the service; what is wrong with it is said when it is checked."""
    form = _FORMS.get(name)
    return form(value.strip()) if form else value.strip()


def joined(name: str, values: list[str]) -> object:
    """Make one value of those that a feed repeats.

    Links to images are a list in the service's form as well, with commas between them; of categories the first counts.
    Anything else must be there once, so a list is left, which no rule of an attribute lets pass.
    """
    distinct = list(dict.fromkeys(values))
    if name == "additional_image_link":
        return ",".join(link.replace(",", "%2C") for link in distinct) if len(distinct) > 1 else distinct[0]
    # Unspecified: which of several categories counts; merchants put the main one first.
    if len(distinct) == 1 or name in {"product_type", "google_product_category"}:
        return tidied(name, distinct[0])
    return distinct
