"""Payloads of events with every field of the contract, documented or public."""

from collections.abc import Mapping
from typing import Any

from tests.support.contract import EVENT_ENUMS, EVENT_RECORDS, Row

__all__ = ["PAYLOADS", "build_payload", "build_record"]

PAYLOADS: Mapping[str, str] = EVENT_ENUMS["ActivityEventPayload"]["meanings"]
"""The name of the record of each type's payload; "unshown" if there is none."""

_MOMENT = "2026-01-02T03:04:05.000Z"


def build_payload(event_type: str) -> Row:
    """Return the payload of a type; an empty one if it is shown nowhere."""
    record = PAYLOADS[event_type]
    return build_record(record) if record in EVENT_RECORDS else {}


def build_record(name: str) -> Row:
    """Return a record with every field of the contract."""
    return {field["name"]: _build_field(field) for field in EVENT_RECORDS[name]["field"] if "." not in field["name"]}


def _build_field(field: Row) -> Any:
    inner, kind = field.get("record", field.get("items")), field["type"]
    if inner in EVENT_RECORDS:
        value = build_record(inner)
        return [value] if kind == "array" else value
    if "enum" in field:
        return EVENT_ENUMS[field["enum"]]["values"][0]
    values = {"timestamp": _MOMENT, "boolean": True, "int": 7, "long": 7, "object": {"key": 1}}
    return [1, 2] if kind == "array" and inner == "int" else [] if kind == "array" else values.get(kind, "x")
