"""Declares the parameters of a call and reads them strictly.

A declaration is a value, so that a test can compare all of them with the contract.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import attrs

from svc_async.sandbox.auth import form_pairs
from svc_async.sandbox.dialects import Basis, Problem, Refusal

__all__ = ["Param", "boolean", "csv", "integer", "json_field", "moment", "path_params", "read_query", "text"]


@attrs.frozen(kw_only=True)
class Param:
    """One parameter of a call.

    Attributes:
        clearable: an empty value unsets the field.
        rule: the rule that a wrong value breaks.
    """

    name: str
    place: Literal["path", "query", "json"] = "query"
    type: Literal["string", "int", "boolean", "csv", "timestamp", "array", "object"] = "string"
    required: bool = False
    default: Any = None
    minimum: int | None = None
    maximum: int | None = None
    max_items: int | None = None
    enum: tuple[str, ...] = ()
    clearable: bool = False
    rule: str = "ASM-95"


def text(name: str, *, required: bool = False, enum: Sequence[str] = (), clearable: bool = False, rule: str) -> Param:
    """Declare a string in the query."""
    return Param(name=name, required=required, enum=tuple(enum), clearable=clearable, rule=rule)


def integer(name: str, *, default: int, minimum: int, maximum: int, rule: str) -> Param:
    """Declare a bounded number in the query."""
    return Param(name=name, type="int", default=default, minimum=minimum, maximum=maximum, rule=rule)


def boolean(name: str, *, default: bool, rule: str) -> Param:
    """Declare `true` or `false` in the query."""
    return Param(name=name, type="boolean", default=default, rule=rule)


def csv(name: str, *, max_items: int, rule: str) -> Param:
    """Declare a comma list in the query."""
    return Param(name=name, type="csv", max_items=max_items, rule=rule)


def json_field(
    name: str,
    kind: Literal["string", "timestamp", "array", "object"],
    *,
    required: bool = False,
    enum: Sequence[str] = (),
    rule: str,
) -> Param:
    """Declare a field of the JSON body's elements, for the record; its family reads it."""
    return Param(name=name, place="json", type=kind, required=required, enum=tuple(enum), rule=rule)


def path_params(path: str) -> tuple[Param, ...]:
    """Declare what a path template holds."""
    return tuple(Param(name=name, place="path", required=True, rule="GEN-02") for name in re.findall(r"{(\w+)}", path))


def read_query(declared: Iterable[Param], query: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a query string.

    Returns:
        all values with the defaults filled in; and those that were sent.

    Raises:
        Refusal: something is unknown, wrong or missing; every problem is named.
    """
    known = {param.name: param for param in declared if param.place == "query"}
    sent: dict[str, Any] = {}
    problems: list[Problem] = []
    rules: list[str] = []
    for name, value in form_pairs(query):
        try:
            sent[name] = _read(known.get(name), name, value, again=name in sent)
        except _Misfit as misfit:
            problems.append(Problem("INVALID_PARAMETER", str(misfit), name))
            rules.append(known[name].rule if name in known else "ASM-95")
    for param in known.values():
        if param.required and not any(name == param.name for name, _ in form_pairs(query)):
            problems.append(Problem("MISSING_PARAMETER", f"{param.name} is required", param.name))
            rules.append(param.rule)
    if problems:
        raise Refusal(400, *problems, rule=rules[0], basis=_basis(rules[0]))
    return {name: param.default for name, param in known.items()} | sent, sent


def moment(value: str) -> datetime:
    """Read ISO 8601 in UTC.

    Raises:
        ValueError: it is something else.
    """
    if not _UTC.fullmatch(value):
        raise ValueError("must be ISO 8601 in UTC")
    return datetime.fromisoformat(value)


_UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|\+00:?00)")


class _Misfit(Exception):
    """Says what is wrong with a value, without showing it."""


def _read(param: Param | None, name: str, value: str, *, again: bool) -> Any:
    if param is None:
        raise _Misfit(f"{name} is not a parameter of this call")
    if again:
        raise _Misfit(f"{name} is given twice")
    if not value:
        if param.clearable:
            return None
        raise _Misfit(f"{name} is empty")
    return _READERS[param.type](param, value)


def _read_string(param: Param, value: str) -> str:
    if param.enum and value not in param.enum:
        raise _Misfit(f"{param.name} must be one of {', '.join(param.enum)}")
    return value


def _read_int(param: Param, value: str) -> int:
    if not re.fullmatch(r"-?\d{1,18}", value, re.ASCII):
        raise _Misfit(f"{param.name} must be an int")
    number = int(value)
    if (param.minimum is not None and number < param.minimum) or (param.maximum is not None and number > param.maximum):
        raise _Misfit(f"{param.name} must be from {param.minimum} to {param.maximum}")
    return number


def _read_boolean(param: Param, value: str) -> bool:
    # Unspecified: only these two spellings (ASM-95).
    if value not in ("true", "false"):
        raise _Misfit(f"{param.name} must be true or false")
    return value == "true"


def _read_csv(param: Param, value: str) -> list[str]:
    items = value.split(",")
    if not all(items):
        raise _Misfit(f"{param.name} holds an empty item")
    if param.max_items is not None and len(items) > param.max_items:
        raise _Misfit(f"{param.name} takes up to {param.max_items} items")
    return items


_READERS: Mapping[str, Callable[[Param, str], Any]] = {
    "string": _read_string,
    "int": _read_int,
    "boolean": _read_boolean,
    "csv": _read_csv,
}


def _basis(rule: str) -> Basis:
    return Basis.ASSUMED if rule.startswith("ASM") else Basis.SPEC
