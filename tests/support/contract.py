"""The tables of the contract, and samples of what they describe: arguments of calls and records of answers."""

import tomllib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "contract"

Row = dict[str, Any]


def load_table(file: str, name: str, key: str = "id") -> dict[str, Row]:
    rows = tomllib.loads((FOLDER / f"{file}.toml").read_text(encoding="utf-8"))[name]
    return {row[key]: row for row in rows}


PUBLIC = ("beyond/audiences",)
"""Files of operations that are public facts beyond the documents."""
UNBUILT = {"custom_audiences.batch": "a closed beta, of which the forms are not sure"}
"""Public operations that neither client nor sandbox has; docs/unspecified.md lists them."""


def load_tables(file: str, name: str, key: str = "id") -> dict[str, Row]:
    """Return the rows of a table of the documents, and of those beyond them."""
    return {row: each for found in (file, *PUBLIC) for row, each in load_table(found, name, key).items()}


ENUMS = load_tables("enums", "enum")
RECORDS = load_tables("records", "record", "name")
EVENT_RECORDS = load_table("beyond/events", "record", "name")
EVENT_ENUMS = load_table("beyond/events", "enum")
MORE_FIELDS = {name: row["field"] for name, row in load_table("beyond/cards", "record", "name").items()}
"""Public fields of records beyond the documents, by record."""
OPERATIONS = {
    name: row
    for name, row in load_tables("operations", "operation").items()
    if row["surface"].startswith("ads") and name not in UNBUILT
}

MOMENT = datetime(2026, 1, 2, 3, tzinfo=UTC)
FORMATTED_MOMENT = "2026-01-02T03:00:00Z"

COMPONENTS = [
    {"type": "MEDIA", "media_key": "13_1"},
    {"type": "DETAILS", "title": "t", "destination": {"type": "WEBSITE", "url": "https://example.test"}},
]
PRODUCT = {
    "id": "sku",
    "title": "t",
    "description": "d",
    "availability": "in stock",
    "condition": "new",
    "price": "9.90 EUR",
    "link": "https://example.test/p",
    "image_link": "https://example.test/p.png",
    "brand": "b",
}

BOUND_IDS: Mapping[str, str] = {
    name: f"{name}-0"
    for name in (
        "account_id",
        "custom_audience_id",
        "do_not_reach_list_id",
        "product_catalog_id",
        "tailored_audience_id",
    )
}
"""The ids that handles are bound to."""

_EXCLUSIVE = {"cards.create": "slides", "cards.update": "slides"}
"""Parameters that cannot be given together with all others."""

_VALUES: Mapping[str, Any] = {
    "advertiser_domain": "example.test",
    "categories": ["IAB1", "IAB2"],
    "components": COMPONENTS,
    "duration_in_minutes": 5,
    "filters": [{"attribute": "price", "operator": "LESS_THAN", "value": "9"}],
    "ios_app_store_identifier": "123",
    "products": [PRODUCT],
    "slides": [COMPONENTS, COMPONENTS],
    "targeting_criteria": [{"targeting_type": "LOCATION", "targeting_value": "x"}],
}
"""Parameters whose value must be more than one of the type."""


def list_parameters(operation: Row) -> list[Row]:
    """Return the parameters that a method has: all but the two that belong to pagers."""
    return [row for row in operation.get("parameter", []) if row["name"] not in {"cursor", "with_total_count"}]


def find_value(parameter: Row) -> Any:
    """Return a value that no rule forbids."""
    name, kind = parameter["name"], parameter["type"]
    if name in _VALUES:
        return _VALUES[name]
    known = ENUMS[parameter["enum"]]["values"] if "enum" in parameter else [f"{name}-1", f"{name}-2"]
    values = {
        "csv": known,
        "array": known,
        "int": known[0] if "enum" in parameter else parameter.get("min", 7),
        "long": 7,
        "boolean": False,
        "timestamp": MOMENT,
        "date_hours": MOMENT,
    }
    return values.get(kind, known[0])


def format_query_value(value: Any) -> str:
    """Return a value in the form of a query."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def build_arguments(operation: str) -> dict[str, Any]:
    """Return a value for every parameter of a method, but those that cannot be given with all others."""
    without = _EXCLUSIVE.get(operation)
    rows = list_parameters(OPERATIONS[operation])
    return {row["name"]: BOUND_IDS.get(row["name"], find_value(row)) for row in rows if row["name"] != without}


def build_record(record: str) -> Row:
    """Return a record with every field of the contract."""
    return {field["name"]: _build_field(field) for field in [*RECORDS[record]["field"], *MORE_FIELDS.get(record, [])]}


def build_answer(operation: Row) -> Any:
    """Return an answer in the shape of the contract, and the records in it."""
    record, shape = operation["response"]["record"], operation["response"]["shape"]
    value = build_record(record) if record in RECORDS else {"string": "AGE_TARGETING", "unspecified": {}}[record]
    if shape in {"list", "array", "array_of_one"}:
        return {"request": {"params": {}}, "data": [value], "next_cursor": None}, [value]
    if shape == "named_array":
        return {"data": {operation["response"]["at"].removeprefix("data."): [value]}}, [value]
    return {"request": {"params": {}}, "data": value}, [value]


def _build_list(parameter: Row, size: int) -> list[Any]:
    element = find_value(parameter)[0]
    return [{**element, "id": str(number)} if isinstance(element, dict) else str(number) for number in range(size)]


def list_bounds(row: Row) -> dict[str, tuple[Any, Any]]:
    """Return for each bound of a parameter a value within it, and the next one, which is not."""
    pairs: dict[str, tuple[Any, Any]] = {}
    if "min" in row:
        pairs["min"] = row["min"], row["min"] - 1
    if "max" in row:
        pairs["max"] = row["max"], row["max"] + 1
    if "exclusive_min" in row:
        pairs["exclusive_min"] = row["exclusive_min"] + 1, row["exclusive_min"]
    if "min_length" in row:
        pairs["min_length"] = "x" * row["min_length"], "x" * (row["min_length"] - 1)
    if "max_length" in row:
        pairs["max_length"] = "x" * row["max_length"], "x" * (row["max_length"] + 1)
    if "max_items" in row:
        pairs["max_items"] = _build_list(row, row["max_items"]), _build_list(row, row["max_items"] + 1)
    return pairs


def find_records(operations: Mapping[str, Row]) -> set[str]:
    """Return the names of the records that operations accept and return, with those inside them."""
    found: set[str] = set()
    waiting = [
        name for row in operations.values() for name in _find_record_names(row["response"], *list_parameters(row))
    ]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _find_record_names(*RECORDS[name]["field"])
    return found


def _find_record_names(*rows: Row) -> Iterator[str]:
    for row in rows:
        names = [row.get("record"), row.get("items"), *row.get("records", [])]
        yield from (name for name in names if name in RECORDS)


_NUMBERS = ("_height", "_width", "_seconds", "_days", "_cap", "duration")


def _build_field(field: Row) -> Any:
    name, kind = field["name"], field["type"]
    if kind == "array":
        return _build_elements(field)
    if kind == "object":
        inner = [*_find_record_names(field)]
        return build_record(inner[0]) if inner else {"key": 1}
    return field.get("const") or _build_scalar(name, kind, field.get("enum"))


def _build_scalar(name: str, kind: str, enum: str | None) -> Any:
    if enum:
        return ENUMS[enum]["values"][0]
    if kind == "timestamp" or name.endswith("_at"):
        return FORMATTED_MOMENT
    if kind in {"int", "long"} or (kind == "unspecified" and name.endswith(_NUMBERS)):
        return 7
    return True if kind == "boolean" else f"{name}-value"


def _build_elements(field: Row) -> list[Any]:
    inner = [*_find_record_names(field)]
    if inner:
        return [build_record(name) for name in inner]
    if "items_enum" in field:
        values = ENUMS[field["items_enum"]]["values"]
        return [values] if field.get("items") == "array" else values
    return [7] if field.get("items") == "int" else [f"{field['name']}-value"]
