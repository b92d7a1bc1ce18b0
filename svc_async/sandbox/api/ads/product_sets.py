"""Product sets: products selected by key, or by filters that every read evaluates (PSET-01 to PSET-06)."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from svc_async.sandbox.api.ads.common import list_owned, show_without_dates
from svc_async.sandbox.api.ads.product_catalogs import find_catalog
from svc_async.sandbox.refusal import invalid, missing, refuse
from svc_async.sandbox.server.decoding import json_field
from svc_async.sandbox.server.operations import Answer, Call, Operation, not_found
from svc_async.sandbox.server.reading import read_items
from svc_async.sandbox.state.store import Row

__all__ = ["OPERATIONS"]

_KIND = "product_sets"
_PATH = "/12/product_catalogs/{product_catalog_id}/product_sets"
_ONE = f"{_PATH}/{{product_set_id}}"
_ATTRIBUTES = (
    "price",
    "product_type",
    "google_product_category",
    "sale_price",
    "inventory",
    "custom_label_0",
    "custom_label_1",
    "custom_label_2",
    "custom_label_3",
    "custom_label_4",
)
_OPERATORS = ("GREATER_THAN", "EQUAL_TO", "LESS_THAN", "MATCH", "NOT_CONTAINS", "CONTAINS")
_NUMBERS = ("price", "sale_price", "inventory")
_FILTER = (
    json_field("attribute", "string", required=True, enum=_ATTRIBUTES, rule="PSET-02"),
    json_field("operator", "string", required=True, enum=_OPERATORS, rule="PSET-02"),
    json_field("value", "string", required=True, rule="PSET-02"),
)
# Unspecified: how many products and filters a set has at most (ASM-139).
_MOST_PRODUCTS = 50
_MOST_FILTERS = 30
_NEEDED = {"MANUAL": ("PSET-01", "product_keys"), "FILTERED": ("PSET-01b", "filters")}


def _create(call: Call) -> Answer:
    catalog = find_catalog(call)
    rule, needed = _NEEDED[call.params["type"]]
    found = [] if call.params[needed] else [missing(rule, needed)]
    # Unspecified: that the parameter of the other type is refused (ASM-95).
    others = {name for _, name in _NEEDED.values()} - {needed}
    refuse(
        *found,
        *(invalid("ASM-95", f"is not for {call.params['type']} sets", name) for name in others if name in call.sent),
    )
    filters: Sequence[Any] = call.params["filters"] or []
    if len(filters) > _MOST_FILTERS:
        refuse(invalid("ASM-139", f"takes up to {_MOST_FILTERS} items", "filters"))
    refuse(*read_items(_FILTER, filters, at="filters", rule="PSET-02")[1])
    record = {
        "id": call.sandbox.store.ids.next(_KIND, 7),
        "name": call.params["name"],
        "description": call.params["description"],
        "type": call.params["type"],
        "filters": filters,
        **_select_products(call, catalog),
    }
    return _answer(call, call.sandbox.store[_KIND].add(catalog.id, record))


def _update(call: Call) -> Answer:
    row = _find(call)
    if row.fields["type"] == "FILTERED":
        # Unspecified: the answer.
        refuse(invalid("PSET-04", "names a FILTERED set, which cannot be updated", "product_set_id"))
    given = {name: call.sent[name] for name in ("name", "description") if name in call.sent}
    chosen = _select_products(call, find_catalog(call)) if "product_keys" in call.sent else {}
    return _answer(call, call.sandbox.store[_KIND].change(row, **given, **chosen))


def _find(call: Call) -> Row:
    return call.find(_KIND, "product_set_id", owner=find_catalog(call).id)


def _answer(call: Call, row: Row) -> Answer:
    products = call.sandbox.store["products"]
    if row.fields["type"] == "MANUAL":
        found = (products.get(key, owner=row.owner) for key in row.fields["_product_keys"])
        chosen = [product for product in found if product is not None]
    else:
        # Unspecified: that all filters must match, and that every read evaluates them (ASM-139).
        mine = sorted(list_owned(call, "products", owner=row.owner), key=lambda product: product.position)
        chosen = [product for product in mine if all(_matches(each, product.fields) for each in row.fields["filters"])]
    ids = [product.fields["id"] for product in chosen]
    # Unspecified: when a status changes (ASM-140); here a set is processed at once, and never FAILED.
    return Answer({**show_without_dates(row), "product_ids": ids, "processing_status": "DONE"})


def _select_products(call: Call, catalog: Row) -> dict[str, Any]:
    """Return the products selected by key."""
    keys: Sequence[Any] = call.params["product_keys"] or ()
    if len(keys) > _MOST_PRODUCTS:
        refuse(invalid("ASM-139", f"takes up to {_MOST_PRODUCTS} items", "product_keys"))
    if not all(isinstance(key, str) and key for key in keys):
        refuse(invalid("PSET-01", "holds strings", "product_keys"))
    # Unspecified: the answer to a key that names nothing (ASM-102).
    if any(call.sandbox.store["products"].get(key, owner=catalog.id) is None for key in keys):
        raise not_found("product_keys")
    return {"_product_keys": list(dict.fromkeys(keys))}


def _matches(condition: Mapping[str, str], product: Mapping[str, Any]) -> bool:
    """Return whether a product matches a filter."""
    attribute, operator, wanted = condition["attribute"], condition["operator"], condition["value"]
    held = product.get(attribute)
    if held is None:
        return operator == "NOT_CONTAINS"
    if attribute not in _NUMBERS or operator not in _COMPARE_AMOUNTS:
        return _COMPARE_TEXT[operator](str(held), wanted)
    (amount, _, currency), (other, _, other_currency) = str(held).partition(" "), wanted.partition(" ")
    try:
        # The value of a filter may omit the currency.
        return other_currency in ("", currency) and _COMPARE_AMOUNTS[operator](Decimal(amount), Decimal(other))
    except InvalidOperation:
        return False


_COMPARE_AMOUNTS: Mapping[str, Callable[[Decimal, Decimal], bool]] = {
    "GREATER_THAN": lambda held, wanted: held > wanted,
    "EQUAL_TO": lambda held, wanted: held == wanted,
    "LESS_THAN": lambda held, wanted: held < wanted,
}

# Unspecified: the meaning of the operators, in particular for text; MATCH is EQUAL_TO in any case.
_COMPARE_TEXT: Mapping[str, Callable[[str, str], bool]] = {
    "GREATER_THAN": lambda held, wanted: held > wanted,
    "EQUAL_TO": lambda held, wanted: held == wanted,
    "LESS_THAN": lambda held, wanted: held < wanted,
    "MATCH": lambda held, wanted: held.casefold() == wanted.casefold(),
    "CONTAINS": lambda held, wanted: wanted.casefold() in held.casefold(),
    "NOT_CONTAINS": lambda held, wanted: wanted.casefold() not in held.casefold(),
}


OPERATIONS = (
    Operation(
        id="product_sets.get",
        method="GET",
        path=_ONE,
        handler=lambda call: _answer(call, _find(call)),
        limit="product_set_reads",
        rule="PSET-06",
        gate="early_access",
    ),
    Operation(
        id="product_sets.create",
        method="POST",
        path=_PATH,
        handler=_create,
        query=(
            json_field("name", "string", required=True, rule="PSET-01c"),
            json_field("description", "string", rule="PSET-01c"),
            json_field("type", "string", required=True, enum=tuple(_NEEDED), rule="PSET-01c"),
            json_field("filters", "array", rule="PSET-01b"),
            json_field("product_keys", "array", rule="PSET-01"),
        ),
        limit="product_set_creations",
        rule="PSET-03",
        gate="early_access",
        body="object",
    ),
    Operation(
        id="product_sets.update",
        method="PUT",
        path=_ONE,
        handler=_update,
        query=(
            json_field("name", "string", rule="PSET-04b"),
            json_field("description", "string", clearable=True, rule="PSET-04b"),
            json_field("product_keys", "array", min_items=1, rule="PSET-04b"),
        ),
        limit="product_set_updates",
        rule="PSET-04b",
        gate="early_access",
        body="object",
    ),
)
