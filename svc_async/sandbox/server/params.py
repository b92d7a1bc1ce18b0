"""Declarations of parameters: values, so that a test can compare all of them with the contract."""

import re
from collections.abc import Sequence
from typing import Any, Literal

import attrs

__all__ = [
    "Param",
    "boolean",
    "csv",
    "form_field",
    "header_field",
    "integer",
    "json_field",
    "long",
    "path_params",
    "text",
    "timestamp",
]

ParamType = Literal["string", "int", "long", "boolean", "csv", "timestamp", "date_hours", "array", "object"]


@attrs.frozen(kw_only=True)
class Param:
    """One parameter of an operation.

    Attributes:
        above: the value that a number must be greater than.
        min_length: in characters; so is `max_length`.
        uncounted: characters that do not count in the length.
        clearable: an empty value unsets the field.
        rule: the rule that a wrong value breaks.
    """

    name: str
    place: Literal["path", "query", "json", "form", "header"] = "query"
    type: ParamType = "string"
    required: bool = False
    default: Any = None
    minimum: int | None = None
    maximum: int | None = None
    above: int | None = None
    min_length: int | None = None
    max_length: int | None = None
    uncounted: str = ""
    min_items: int | None = None
    max_items: int | None = None
    enum: tuple[str | int, ...] = ()
    clearable: bool = False
    rule: str = "ASM-95"


def text(
    name: str,
    *,
    required: bool = False,
    enum: Sequence[str] = (),
    default: str | None = None,
    min_length: int | None = None,
    max_length: int | None = None,
    uncounted: str = "",
    clearable: bool = False,
    rule: str,
) -> Param:
    """Declare a string in the query."""
    return Param(
        name=name,
        required=required,
        enum=tuple(enum),
        default=default,
        min_length=min_length,
        max_length=max_length,
        uncounted=uncounted,
        clearable=clearable,
        rule=rule,
    )


def integer(
    name: str,
    *,
    default: int | None = None,
    minimum: int | None = None,
    maximum: int | None = None,
    enum: Sequence[int] = (),
    required: bool = False,
    clearable: bool = False,
    rule: str,
) -> Param:
    """Declare a number in the query."""
    return Param(
        name=name,
        type="int",
        default=default,
        minimum=minimum,
        maximum=maximum,
        enum=tuple(enum),
        required=required,
        clearable=clearable,
        rule=rule,
    )


def long(name: str, *, above: int | None = None, required: bool = False, clearable: bool = False, rule: str) -> Param:
    """Declare a number of up to 64 bits in the query (GEN-11)."""
    return Param(name=name, type="long", above=above, required=required, clearable=clearable, rule=rule)


def timestamp(
    name: str, *, whole_hours: bool = False, required: bool = False, clearable: bool = False, rule: str
) -> Param:
    """Declare a time in the query (GEN-12)."""
    kind: ParamType = "date_hours" if whole_hours else "timestamp"
    return Param(name=name, type=kind, required=required, clearable=clearable, rule=rule)


def boolean(name: str, *, default: bool | None = None, rule: str) -> Param:
    """Declare `true` or `false` in the query."""
    return Param(name=name, type="boolean", default=default, rule=rule)


def csv(
    name: str, *, required: bool = False, max_items: int | None = None, enum: Sequence[str] = (), rule: str
) -> Param:
    """Declare a comma-separated list in the query."""
    return Param(name=name, type="csv", required=required, max_items=max_items, enum=tuple(enum), rule=rule)


def json_field(
    name: str,
    kind: ParamType,
    *,
    required: bool = False,
    enum: Sequence[str] = (),
    default: str | None = None,
    max_length: int | None = None,
    min_items: int | None = None,
    max_items: int | None = None,
    clearable: bool = False,
    rule: str,
) -> Param:
    """Declare a field of a JSON object: the body, an element of it, or a nested object."""
    return Param(
        name=name,
        place="json",
        type=kind,
        required=required,
        enum=tuple(enum),
        default=default,
        max_length=max_length,
        min_items=min_items,
        max_items=max_items,
        clearable=clearable,
        rule=rule,
    )


def form_field(
    name: str, *, required: bool = False, enum: Sequence[str] = (), clearable: bool = False, rule: str
) -> Param:
    """Declare a field of a form."""
    return Param(name=name, place="form", required=required, enum=tuple(enum), clearable=clearable, rule=rule)


def header_field(name: str, *, enum: Sequence[str] = (), required: bool = True, rule: str = "AUTH-01b") -> Param:
    """Declare a parameter of the `Authorization` header."""
    return Param(name=name, place="header", required=required, enum=tuple(enum), rule=rule)


def path_params(path: str) -> tuple[Param, ...]:
    """Declare the parameters of a path template."""
    return tuple(Param(name=name, place="path", required=True, rule="GEN-02") for name in re.findall(r"{(\w+)}", path))
