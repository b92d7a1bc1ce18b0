"""JSON objects with one field damaged in every way that JSON allows, and whether what came can still be reached."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import attrs

__all__ = ["DAMAGES", "damage", "find_damage", "is_reached", "list_required"]

DATE_OF_POSTS, THEN = "Tue Aug 27 22:22:12 +0000 2019", datetime(2019, 8, 27, 22, 22, 12, tzinfo=UTC)
HUGE = 10**400
DAMAGES: Mapping[str, Any] = {
    "null": None,
    "string": "some text",
    "empty string": "",
    "number in a string": "8",
    "lone surrogate": "cut \ud83d off",
    "int": 5,
    "float": 0.5,
    "boolean": True,
    "list": [1, "a"],
    "object": {},
    "another date": DATE_OF_POSTS,
    "no date": "2026-13-45T99:00:00Z",
    "nested": json.loads("[" * 300 + "]" * 300),
    "long": "x" * 20_000,
    "huge": HUGE,
    "endless": [{}] * 100,
}


def damage(record: Any) -> Iterator[Any]:
    """Return the record with each of its fields damaged, and with those of the records in it."""
    if isinstance(record, list):
        for index, element in enumerate(record):
            yield from ([*record[:index], each, *record[index + 1 :]] for each in damage(element))
    if isinstance(record, dict):
        for name, value in record.items():
            yield {other: record[other] for other in record if other != name}
            yield from ({**record, name: each} for each in DAMAGES.values())
            yield from ({**record, name: each} for each in damage(value))


def find_damage(damaged: Mapping[str, Any], good: Mapping[str, Any]) -> str:
    """Return the name of the field that is damaged, or holds what is."""
    (name,) = (name for name in good if name not in damaged or repr(damaged[name]) != repr(good[name]))
    return name


def list_required(model: type[attrs.AttrsInstance]) -> set[str]:
    """Return the names of the fields that a record must have."""
    return {field.name for field in attrs.fields(model) if field.default is attrs.NOTHING}


def is_reached(found: Any, sent: Any) -> bool:
    """Return whether everything that was sent is in what was found."""
    if isinstance(sent, dict):
        return isinstance(found, dict) and all(
            name in found and is_reached(found[name], value) for name, value in sent.items()
        )
    if isinstance(sent, list):
        return isinstance(found, list) and len(found) == len(sent) and all(map(is_reached, found, sent))
    return found == sent or (isinstance(found, str) and isinstance(sent, str) and is_same_time(found, sent))


def is_same_time(found: str, sent: str) -> bool:
    try:
        return datetime.fromisoformat(found) == (THEN if sent == DATE_OF_POSTS else datetime.fromisoformat(sent))
    except ValueError:
        return False
