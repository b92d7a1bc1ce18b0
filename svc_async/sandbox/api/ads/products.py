"""The products of a catalog, written in batches in which each item has its own result (PROD-01 to PROD-14).

An item is checked in three steps: its fields by `_FIELDS`, the form of each by `_FORMS`, then the relations between the
fields of the whole product after the update.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

from svc_async.sandbox.api.ads.common import list_owned, show_without_dates
from svc_async.sandbox.api.ads.iso_codes import CURRENCIES
from svc_async.sandbox.api.ads.product_catalogs import find_catalog
from svc_async.sandbox.refusal import Finding, invalid, missing, refuse
from svc_async.sandbox.server.decoding import Param, integer, json_field, text
from svc_async.sandbox.server.operations import Answer, Call, Operation
from svc_async.sandbox.server.reading import read_fields
from svc_async.sandbox.state.store import Row

__all__ = ["OPERATIONS"]

_KIND = "products"
_PATH = "/12/product_catalogs/{product_catalog_id}/products"
_AVAILABILITIES = ("in stock", "available for order", "preorder", "out of stock", "discontinued")
_CONDITIONS = ("new", "used", "refurbished")
_GENDERS = ("female", "male", "unisex")
_AGE_GROUPS = ("adult", "all ages", "teen", "kids", "toddler", "infant", "newborn")
_GENERATED = ("product_key", "item_group_key")
_IDENTIFIERS = ("brand", "gtin", "mpn")
_BATCH = 25


def _declare_required(
    name: str, *, enum: Sequence[str] = (), max_length: int | None = None, rule: str = "PROD-02"
) -> Param:
    return json_field(name, "string", required=True, enum=enum, max_length=max_length, rule=rule)


def _declare_optional(name: str, *, enum: Sequence[str] = (), rule: str = "PROD-02") -> Param:
    return json_field(name, "string", enum=enum, clearable=True, rule=rule)


_FIELDS = (
    _declare_required("id"),
    _declare_required("title", max_length=150, rule="PROD-02b"),
    _declare_required("description", max_length=5000, rule="PROD-02b"),
    _declare_required("availability", enum=_AVAILABILITIES, rule="PROD-02h"),
    _declare_required("condition", enum=_CONDITIONS, rule="PROD-02h"),
    _declare_required("price", rule="PROD-02c"),
    _declare_required("link", rule="PROD-02d"),
    _declare_required("image_link", rule="PROD-02e"),
    *(_declare_optional(name, rule="PROD-03") for name in _IDENTIFIERS),
    _declare_optional("mobile_link", rule="PROD-02d"),
    _declare_optional("additional_image_link", rule="PROD-04"),
    _declare_optional("google_product_category", rule="PROD-13"),
    _declare_optional("product_type", rule="PROD-13"),
    # Unspecified: that an empty text unsets a number as well (ASM-101).
    json_field("inventory", "int", clearable=True, rule="PROD-05"),
    _declare_optional("sale_price", rule="PROD-06b"),
    _declare_optional("sale_price_effective_date", rule="PROD-06c"),
    _declare_optional("item_group_id", rule="PROD-09b"),
    _declare_optional("gender", enum=_GENDERS, rule="PROD-02h"),
    _declare_optional("age_group", enum=_AGE_GROUPS, rule="PROD-02h"),
    _declare_optional("color", rule="PROD-12"),
    _declare_optional("size"),
    *(_declare_optional(f"custom_label_{number}") for number in range(5)),
    *(_declare_optional(name, rule="PROD-09") for name in _GENERATED),
)

_AMOUNT = re.compile(r"\d+(\.\d+)?", re.ASCII)
_TAG_START = re.compile(r"</?[A-Za-z]")
_IS_HEX = re.compile(r"#.*|(?=.*\d)([0-9A-Fa-f]{3}|[0-9A-Fa-f]{6}|[0-9A-Fa-f]{8})").fullmatch
_IMAGES = {"jpg": "JPG", "jpeg": "JPG", "gif": "GIF", "webp": "WEBP", "png": "PNG"}
_IMAGE_SIDE = 500
_IMAGE_BYTES = 5_000_000  # Unspecified: that a MB has a million bytes
_EXTRA_IMAGES = 10


def _is_money(value: str) -> bool:
    amount, _, currency = value.partition(" ")
    return _AMOUNT.fullmatch(amount) is not None and currency in CURRENCIES


def _is_plain(value: str) -> bool:
    """Return whether a text has no markup: a tag that begins and, anywhere later, a closing bracket."""
    begun = _TAG_START.search(value)
    return begun is None or ">" not in value[begun.end() :]


def _is_url(value: str, *schemes: str) -> bool:
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return parts.scheme in (schemes or ("http", "https")) and bool(parts.hostname) and " " not in value


def _is_https(value: str) -> bool:
    return _is_url(value, "https")


def _are_urls(value: str) -> bool:
    links = value.split(",")
    return len(links) <= _EXTRA_IMAGES and all(_is_url(link.strip()) for link in links)


def _is_path(value: str) -> bool:
    return all(level and level == level.strip() and ">" not in level for level in value.split(" > "))


def _is_span(value: str) -> bool:
    start, _, end = value.partition("/")
    return _is_timestamp(start) and _is_timestamp(end)


def _is_timestamp(value: str) -> bool:
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return "T" in value


_MONEY = "must be an amount such as 12.50, a space and a currency code of ISO 4217 such as EUR"
_FORMS: Mapping[str, tuple[str, Callable[[str], object], str]] = {
    "description": ("PROD-02b", _is_plain, "must be plain text"),
    "price": ("PROD-02c", _is_money, _MONEY),
    "link": ("PROD-02d", _is_https, "must be an https URL"),
    "mobile_link": ("PROD-02d", _is_https, "must be an https URL"),
    "additional_image_link": ("PROD-04", _are_urls, f"must be up to {_EXTRA_IMAGES} URLs"),
    "google_product_category": ("PROD-13", _is_path, "must have its levels separated by ' > '"),
    "product_type": ("PROD-13", _is_path, "must have its levels separated by ' > '"),
    "sale_price": ("PROD-06b", _is_money, _MONEY),
    "sale_price_effective_date": ("PROD-06c", _is_span, "must be two ISO 8601 timestamps with a slash between them"),
    "color": ("PROD-12", lambda value: not _IS_HEX(value), "must be a word"),
}


def _list(call: Call) -> Answer:
    catalog, group = find_catalog(call), call.params["item_group_key"]
    rows = sorted(list_owned(call, _KIND, owner=catalog.id), key=lambda row: row.position)
    if group is not None:
        # Unspecified: that all products of the group are listed, not only the first (CON-20).
        rows = [row for row in rows if row.fields.get("item_group_key") == group]
    else:
        # Of each group, only the product that was submitted first (PROD-10b).
        rows = list({row.fields.get("item_group_key", row.id): row for row in reversed(rows)}.values())
    return call.answer_page(rows, show=show_without_dates)


def _upsert(call: Call) -> Answer:
    catalog = find_catalog(call)
    items = call.params["products"]
    if not items:  # Unspecified: that this is refused
        refuse(invalid("PROD-01", "is empty", "products"))
    known = {row.fields["id"]: row for row in list_owned(call, _KIND, owner=catalog.id)}
    times = Counter(_get_merchant_id(item) for item in items)
    results: list[dict[str, Any]] = []
    for index, item in enumerate(items):
        merchant_id = _get_merchant_id(item)
        row = known.get(merchant_id or "")
        if index in call.refused_items:
            found = [Finding("PROD-08c", call.refused_items[index])]
            results.append(_make_result(call, merchant_id, row, "ERROR", errors=found))
        elif merchant_id is None or times[merchant_id] == 1:
            # Unspecified: that an item whose id occurs several times (PROD-07) has no result
            # (UNS-product-duplicate-result).
            results.append(_upsert_one(call, catalog, row, item, at=f"products[{index}]"))
    return Answer({"products_response": results})


def _get_merchant_id(item: Any) -> str | None:
    found = item.get("id") if isinstance(item, dict) else None
    return found if isinstance(found, str) else None


def _upsert_one(call: Call, catalog: Row, row: Row | None, item: Any, *, at: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        return _make_result(call, None, None, "ERROR", errors=[invalid("PROD-01", "must be an object", at)])
    sent, found = read_fields(_FIELDS, item)
    shown = {} if row is None else show_without_dates(row)
    held = {name: value for name, value in shown.items() if name not in _GENERATED}
    # What is not sent stays, and an empty string unsets (ASM-101).
    product = {name: value for name, value in {**held, **sent}.items() if value is not None and name not in _GENERATED}
    found += _check(call, sent, product)
    if found:
        return _make_result(call, _get_merchant_id(item), row, "ERROR", errors=found)
    if row is not None and product == held:
        return _make_result(call, product["id"], row, "NO_CHANGE", warnings=_warn_of_ignored_keys(sent, row))
    status = "CREATE_SUCCESS" if row is None else "UPDATE_SUCCESS"
    row = _save(call, catalog, row, product)
    return _make_result(call, product["id"], row, status, warnings=_warn_of_ignored_keys(sent, row))


def _save(call: Call, catalog: Row, row: Row | None, product: Mapping[str, Any]) -> Row:
    store = call.sandbox.store
    key = store.ids.next("product", 10) if row is None else row.id
    fields = {**product, "product_key": key}
    if (group_id := product.get("item_group_id")) is not None:
        # The first product of a group of variants creates it (PROD-09).
        groups, name = store["item_groups"], f"{catalog.id}:{group_id}"
        group = groups.get(name) or groups.add(catalog.id, {"item_group_key": store.ids.next("group", 8)}, key=name)
        fields["item_group_key"] = group.fields["item_group_key"]
    if row is None:
        return store[_KIND].add(catalog.id, fields, key=key)
    return store[_KIND].replace(row, fields)


def _warn_of_ignored_keys(sent: Mapping[str, Any], row: Row) -> list[Finding]:
    """Return warnings about sent keys that differ from those that the service generates (CON-06)."""
    return [
        invalid("PROD-09", "is given by the service", name)
        for name in _GENERATED
        if sent.get(name) is not None and sent[name] != row.fields.get(name)
    ]


def _make_result(
    call: Call,
    merchant_id: str | None,
    row: Row | None,
    status: str,
    *,
    errors: Sequence[Finding] = (),
    warnings: Sequence[Finding] = (),
) -> dict[str, Any]:
    return {
        "warnings": _render_findings(call, warnings),
        "errors": _render_findings(call, errors),
        "product_key": None if row is None else row.id,
        "id": merchant_id,
        "status": status,
    }


def _render_findings(call: Call, findings: Sequence[Finding]) -> list[Any]:
    # Unspecified: what errors and warnings hold (ASM-142).
    if call.sandbox.config.product_messages == "strings":
        return [finding.problem.message for finding in findings]
    return [finding.problem.as_json() for finding in findings]


def _check(call: Call, sent: Mapping[str, Any], product: Mapping[str, Any]) -> list[Finding]:
    """Return the findings about the sent values, and about the resulting product."""
    found = [
        invalid(rule, message, name)
        for name, (rule, fits, message) in _FORMS.items()
        if sent.get(name) is not None and not fits(sent[name])
    ]
    if sent.get("image_link") is not None:
        found += _check_image(call, sent["image_link"])
    if not any(name in product for name in _IDENTIFIERS):
        found.append(missing("PROD-03", "brand"))
    if product.get("availability") == "in stock" and product.get("inventory", 1) < 1:
        found.append(invalid("PROD-05", "must be at least 1 while it is in stock", "inventory"))
    if problem := _check_sale(product.get("sale_price"), product.get("price")):
        found.append(invalid("PROD-06", problem, "sale_price"))
    return found


def _check_sale(sale_price: str | None, price: str | None) -> str | None:
    """Return what is wrong with the sale price; None if nothing is, or if there are not two valid prices."""
    if not (sale_price and price and _is_money(sale_price) and _is_money(price)):
        return None
    (lower, currency), (higher, other) = sale_price.split(" "), price.split(" ")
    if currency != other:  # Unspecified: what a sale price in another currency means; PROD-06 states that it is lower.
        return "must be in the currency of price"
    return None if Decimal(lower) < Decimal(higher) else "must be lower than price"


def _check_image(call: Call, link: str) -> list[Finding]:
    if not _is_url(link):
        return [invalid("PROD-02e", "must be a URL", "image_link")]
    # An image that the seed does not know is valid, unless its ending is unknown too.
    _, dot, ending = urlsplit(link).path.rpartition("/")[2].rpartition(".")
    image_format = _IMAGES.get(ending.lower(), ending) if dot else "JPG"
    facts: Mapping[str, Any] = {"format": image_format, "width": _IMAGE_SIDE, "height": _IMAGE_SIDE, "bytes": 0}
    if (known := call.sandbox.store["images"].get(link)) is not None:
        facts = known.fields
    found: list[Finding] = []
    if facts["format"] not in _IMAGES.values():
        found.append(invalid("PROD-02e", "must be a JPG, GIF, WEBP or PNG", "image_link"))
    if min(facts["width"], facts["height"]) < _IMAGE_SIDE:
        found.append(invalid("PROD-02f", f"must have at least {_IMAGE_SIDE}x{_IMAGE_SIDE} px", "image_link"))
    if facts["bytes"] > _IMAGE_BYTES:
        found.append(invalid("PROD-02g", "must have at most 5 MB", "image_link"))
    return found


def _delete(call: Call) -> Answer:
    """Remove products, key by key (PROD-11, PROD-11b)."""
    catalog = find_catalog(call)
    keys = call.params["product_keys"]
    if not keys:  # Unspecified: that this is refused
        refuse(invalid("PROD-11", "is empty", "product_keys"))
    if not all(isinstance(key, str) and key for key in keys):
        refuse(invalid("PROD-11", "holds strings", "product_keys"))
    products = call.sandbox.store[_KIND]
    results: list[dict[str, str | None]] = []
    for index, key in enumerate(keys):
        row, problem = products.get(key, owner=catalog.id), call.refused_items.get(index)
        if problem is not None or row is None:
            message = "the catalog has no such product" if problem is None else problem.message
            results.append({"product_key": None, "failed_product_key": key, "message": message})
        else:
            products.remove(row)
            results.append({"product_key": key, "failed_product_key": None, "message": None})
    return Answer({"delete_products": results})


OPERATIONS = (
    Operation(
        id="products.list",
        method="GET",
        path=_PATH,
        handler=_list,
        query=(
            text("item_group_key", rule="PROD-10"),
            integer("count", default=100, minimum=1, maximum=100, rule="PROD-10"),
            text("cursor", rule="GEN-07"),
        ),
        limit="product_reads",
        rule="PROD-10",
        gate="early_access",
    ),
    Operation(
        id="products.upsert",
        method="PUT",
        path=_PATH,
        handler=_upsert,
        query=(json_field("products", "array", required=True, max_items=_BATCH, rule="PROD-01"),),
        limit="product_upserts",
        rule="PROD-08c",
        gate="early_access",
        body="object",
    ),
    Operation(
        id="products.delete",
        method="DELETE",
        path=_PATH,
        handler=_delete,
        query=(json_field("product_keys", "array", required=True, rule="PROD-11"),),
        limit="product_deletes",
        rule="PROD-11",
        gate="early_access",
        body="object",
    ),
)
