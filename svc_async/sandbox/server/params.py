"""Declares the parameters of a call and reads them strictly.

A declaration is a value, so that a test can compare all of them with the contract.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

import attrs
import msgspec

from svc_async.sandbox.server.auth import form_pairs
from svc_async.sandbox.server.rendering import Basis, Problem, Refusal
from svc_async.sandbox.state.store import written

__all__ = [
    "Finding",
    "Param",
    "boolean",
    "csv",
    "form_field",
    "integer",
    "invalid",
    "json_field",
    "long",
    "missing",
    "moment",
    "path_params",
    "read_body",
    "read_fields",
    "read_form",
    "read_header",
    "read_query",
    "refuse",
    "text",
    "timestamp",
]

Kind = Literal["string", "int", "long", "boolean", "csv", "timestamp", "date_hours", "array", "object"]


@attrs.frozen(kw_only=True)
class Param:
    """One parameter of a call.

    Attributes:
        above: the value that a number must be greater than.
        min_length: characters; so is `max_length`.
        uncounted: characters that do not count in the length.
        clearable: an empty value unsets the field.
        rule: the rule that a wrong value breaks.
    """

    name: str
    place: Literal["path", "query", "json", "form", "header"] = "query"
    type: Kind = "string"
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
    """Declare a moment in the query (GEN-12)."""
    kind: Kind = "date_hours" if whole_hours else "timestamp"
    return Param(name=name, type=kind, required=required, clearable=clearable, rule=rule)


def boolean(name: str, *, default: bool | None = None, rule: str) -> Param:
    """Declare `true` or `false` in the query."""
    return Param(name=name, type="boolean", default=default, rule=rule)


def csv(
    name: str, *, required: bool = False, max_items: int | None = None, enum: Sequence[str] = (), rule: str
) -> Param:
    """Declare a comma list in the query."""
    return Param(name=name, type="csv", required=required, max_items=max_items, enum=tuple(enum), rule=rule)


def json_field(
    name: str,
    kind: Kind,
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
    """Declare a field of a JSON object: the body, an element of it, or an object further down."""
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


def path_params(path: str) -> tuple[Param, ...]:
    """Declare what a path template holds."""
    return tuple(Param(name=name, place="path", required=True, rule="GEN-02") for name in re.findall(r"{(\w+)}", path))


class Finding(NamedTuple):
    """What is wrong with a parameter, and the rule that it breaks."""

    rule: str
    problem: Problem


def invalid(rule: str, message: str, parameter: str, *, code: str = "INVALID_PARAMETER") -> Finding:
    """Say what is wrong with a parameter."""
    return Finding(rule, Problem(code, f"{parameter} {message}", parameter))


def missing(rule: str, parameter: str) -> Finding:
    """Say that a parameter is not there."""
    return invalid(rule, "is required", parameter, code="MISSING_PARAMETER")


def refuse(*findings: Finding) -> None:
    """Refuse the request if there are findings; each is named.

    Raises:
        Refusal: there are.
    """
    if findings:
        rule = findings[0].rule
        raise Refusal(400, *(finding.problem for finding in findings), rule=rule, basis=_basis(rule))


def read_query(declared: Iterable[Param], query: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a query string.

    Returns:
        all values with the defaults filled in; and those that were sent.

    Raises:
        Refusal: something is unknown, wrong or missing; every problem is named.
    """
    return _read_pairs((param for param in declared if param.place == "query"), form_pairs(query))


def read_form(declared: Iterable[Param], body: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a form, as `read_query` reads a query."""
    return _read_pairs(
        (param for param in declared if param.place == "form"), form_pairs(body.decode("utf-8", "replace"))
    )


def read_header(declared: Iterable[Param], protocol: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the declared parameters of an `OAuth` header; what else stands there is no concern of the call."""
    known = [param for param in declared if param.place == "header"]
    names = {param.name for param in known}
    return _read_pairs(known, [(name, value) for name, value in protocol.items() if name in names])


def _read_pairs(declared: Iterable[Param], given: Sequence[tuple[str, str]]) -> tuple[dict[str, Any], dict[str, Any]]:
    known = {param.name: param for param in declared}
    sent: dict[str, Any] = {}
    found: list[Finding] = []
    for name, value in given:
        try:
            sent[name] = _read(known.get(name), value, again=name in sent)
        except _Misfit as misfit:
            found.append(_finding(known.get(name), name, misfit))
    names = {name for name, _ in given}
    found += [missing(param.rule, param.name) for param in known.values() if param.required and param.name not in names]
    refuse(*found)
    return {name: param.default for name, param in known.items()} | sent, sent


def read_body(declared: Iterable[Param], body: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a JSON object, as `read_query` reads a query.

    Raises:
        Refusal: it is none, or something in it is unknown, wrong or missing; every problem is named.
    """
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Refusal(400, Problem("INVALID_PARAMETER", "the body is no JSON object"), rule="GEN-16", basis=Basis.SPEC)
    fields = [param for param in declared if param.place == "json"]
    sent, found = read_fields(fields, value)
    refuse(*found)
    return {param.name: param.default for param in fields} | sent, sent


def read_fields(
    declared: Iterable[Param], value: Mapping[str, Any], *, at: str = ""
) -> tuple[dict[str, Any], list[Finding]]:
    """Read the fields of a JSON object.

    Args:
        declared: all that it may have.
        value: the object.
        at: where it stands, to name its fields by.

    Returns:
        the good values; and what is wrong with the others.
    """
    known = {param.name: param for param in declared}
    good: dict[str, Any] = {}
    found = [
        missing(param.rule, f"{at}{name}") for name, param in known.items() if param.required and name not in value
    ]
    for name, field in value.items():
        try:
            good[name] = _read_field(known.get(name), field)
        except _Misfit as misfit:
            found.append(_finding(known.get(name), f"{at}{name}", misfit))
    return good, found


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


def _finding(param: Param | None, name: str, misfit: _Misfit) -> Finding:
    return invalid("ASM-95" if param is None else param.rule, str(misfit), name)


def _read(param: Param | None, value: str, *, again: bool) -> Any:
    if param is None:
        raise _Misfit("is not a parameter of this call")
    if again:
        raise _Misfit("is given twice")
    if not value:
        return _read_empty(param)
    return _READERS[param.type](param, value)


def _read_field(param: Param | None, value: Any) -> Any:
    if param is None:
        raise _Misfit("is unknown here")
    kind, name = _JSON_KINDS[param.type]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _Misfit(f"must be {name}")
    if value == "":
        return _read_empty(param)
    if isinstance(value, str):
        return _read_string(param, value)
    if isinstance(value, list):
        _check_size(param, value)
    return value


def _read_empty(param: Param) -> None:
    if not param.clearable:
        raise _Misfit("is empty")


def _read_string(param: Param, value: str) -> str:
    _check_enum(param, value)
    length = sum(character not in param.uncounted for character in value)
    if param.min_length is not None and length < param.min_length:
        raise _Misfit(f"needs at least {param.min_length} characters")
    if param.max_length is not None and length > param.max_length:
        raise _Misfit(f"takes up to {param.max_length} characters")
    return value


def _read_int(param: Param, value: str) -> int:
    if not re.fullmatch(r"-?\d{1,18}", value, re.ASCII):
        raise _Misfit("must be an int")
    number = int(value)
    _check_enum(param, number)
    if (param.minimum is not None and number < param.minimum) or (param.maximum is not None and number > param.maximum):
        raise _Misfit(f"must be from {param.minimum} to {param.maximum}")
    return number


def _read_long(param: Param, value: str) -> int:
    if not re.fullmatch(r"-?\d{1,19}", value, re.ASCII) or int(value) > _LARGEST:
        raise _Misfit("must be a long")
    if param.above is not None and int(value) <= param.above:
        raise _Misfit(f"must be greater than {param.above}")
    return int(value)


def _read_timestamp(_param: Param, value: str) -> str:
    return written(_moment(value))


def _read_date_hours(_param: Param, value: str) -> str:
    found = _moment(value)
    if found.replace(minute=0, second=0, microsecond=0) != found:
        raise _Misfit("must be a whole hour")
    return written(found)


def _moment(value: str) -> datetime:
    try:
        return moment(value)
    except ValueError:
        raise _Misfit("must be ISO 8601 in UTC") from None


def _read_boolean(_param: Param, value: str) -> bool:
    # Unspecified: only these two spellings (ASM-95).
    if value not in ("true", "false"):
        raise _Misfit("must be true or false")
    return value == "true"


def _read_csv(param: Param, value: str) -> list[str]:
    items = value.split(",")
    if not all(items):
        raise _Misfit("holds an empty item")
    _check_size(param, items)
    for item in items:
        _check_enum(param, item)
    return items


def _check_enum(param: Param, value: str | int) -> None:
    if param.enum and value not in param.enum:
        raise _Misfit(f"must be one of {', '.join(map(str, param.enum))}")


def _check_size(param: Param, items: Sequence[Any]) -> None:
    if param.min_items is not None and len(items) < param.min_items:
        raise _Misfit(f"needs at least {param.min_items} items")
    if param.max_items is not None and len(items) > param.max_items:
        raise _Misfit(f"takes up to {param.max_items} items")


_LARGEST = 2**63 - 1

_READERS: Mapping[str, Callable[[Param, str], Any]] = {
    "string": _read_string,
    "int": _read_int,
    "long": _read_long,
    "boolean": _read_boolean,
    "csv": _read_csv,
    "timestamp": _read_timestamp,
    "date_hours": _read_date_hours,
}

_JSON_KINDS: Mapping[str, tuple[type, str]] = {
    "string": (str, "a string"),
    "int": (int, "an int"),
    "boolean": (bool, "a boolean"),
    "array": (list, "an array"),
    "object": (dict, "an object"),
}


def _basis(rule: str) -> Basis:
    return Basis.ASSUMED if rule.startswith("ASM") else Basis.SPEC
