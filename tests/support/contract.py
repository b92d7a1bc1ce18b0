"""The contract's tables, and samples of what they describe: parameters as they are given, records as they are sent."""

import tomllib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "contract"

Row = dict[str, Any]


def table(file: str, name: str, key: str = "id") -> dict[str, Row]:
    rows = tomllib.loads((FOLDER / f"{file}.toml").read_text(encoding="utf-8"))[name]
    return {row[key]: row for row in rows}


ENUMS = table("enums", "enum")
RECORDS = table("records", "record", "name")
OPERATIONS = {name: row for name, row in table("operations", "operation").items() if row["surface"].startswith("ads")}

MOMENT = datetime(2026, 1, 2, 3, tzinfo=UTC)
WRITTEN_MOMENT = "2026-01-02T03:00:00Z"

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


def parameters(operation: Row) -> list[Row]:
    """Give what a caller can give: not the two that belong to pagers."""
    return [row for row in operation.get("parameter", []) if row["name"] not in {"cursor", "with_total_count"}]


def value_of(parameter: Row) -> Any:
    """Give a value that no rule forbids."""
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


def written(value: Any) -> str:
    """Write a value as a query carries it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def sample(record: str) -> Row:
    """Give a record with every field that the contract shows."""
    return {field["name"]: _field(field) for field in RECORDS[record]["field"]}


def answer(operation: Row) -> Any:
    """Give an answer of the shape that the contract states, and the records in it."""
    record, shape = operation["response"]["record"], operation["response"]["shape"]
    value = sample(record) if record in RECORDS else {"string": "AGE_TARGETING", "unspecified": {}}[record]
    if shape in {"list", "array", "array_of_one"}:
        return {"request": {"params": {}}, "data": [value], "next_cursor": None}, [value]
    if shape == "named_array":
        return {"data": {operation["response"]["at"].removeprefix("data."): [value]}}, [value]
    return {"request": {"params": {}}, "data": value}, [value]


def records_of(operations: Mapping[str, Row]) -> set[str]:
    """Name the records that operations take and give, with those inside them."""
    found: set[str] = set()
    waiting = [name for row in operations.values() for name in _named(row["response"], *parameters(row))]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _named(*RECORDS[name]["field"])
    return found


def _named(*rows: Row) -> Iterator[str]:
    for row in rows:
        names = [row.get("record"), row.get("items"), *row.get("records", [])]
        yield from (name for name in names if name in RECORDS)


_NUMBERS = ("_height", "_width", "_seconds", "_days", "_cap", "duration")


def _field(field: Row) -> Any:
    name, kind = field["name"], field["type"]
    if kind == "array":
        return _elements(field)
    if kind == "object":
        inner = [*_named(field)]
        return sample(inner[0]) if inner else {"key": 1}
    return field.get("const") or _scalar(name, kind, field.get("enum"))


def _scalar(name: str, kind: str, enum: str | None) -> Any:
    if enum:
        return ENUMS[enum]["values"][0]
    if kind == "timestamp" or name.endswith("_at"):
        return WRITTEN_MOMENT
    if kind in {"int", "long"} or (kind == "unspecified" and name.endswith(_NUMBERS)):
        return 7
    return True if kind == "boolean" else f"{name}-value"


def _elements(field: Row) -> list[Any]:
    inner = [*_named(field)]
    if inner:
        return [sample(name) for name in inner]
    if "items_enum" in field:
        values = ENUMS[field["items_enum"]]["values"]
        return [values] if field.get("items") == "array" else values
    return [7] if field.get("items") == "int" else [f"{field['name']}-value"]
