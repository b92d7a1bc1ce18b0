"""Reads the parameters of a request strictly, as they are declared."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from svc_async.sandbox.config import SandboxConfig
from svc_async.sandbox.refusal import Finding, invalid, missing, refuse
from svc_async.sandbox.server.decoding import Param, decode_object
from svc_async.sandbox.state.store import format_time

__all__ = ["Pairs", "parse_time", "read_boolean", "read_fields", "read_items", "read_parameters", "read_query"]

Pairs = Sequence[tuple[str, str]]
"""Names and values in their order, decoded."""


def read_parameters(
    declared: Sequence[Param],
    *,
    query: Pairs,
    header: Mapping[str, str],
    form: Pairs,
    body: bytes,
    body_type: str,
    config: SandboxConfig,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read all parameters of a request.

    Args:
        declared: the parameters of the operation.
        query: the parameters of the query.
        header: the parameters of an `OAuth` header.
        form: the fields of the body, if it is a form.
        body: the body.
        body_type: what the operation takes in the body; the items of an array are read by its handler.

    Returns:
        all values with the defaults filled in; and those that were sent, except in the header.

    Raises:
        Refusal: something is unknown, wrong or missing; every problem is named.
    """
    params, sent = read_query(declared, query, config)
    signed, in_header = _read_header(declared, header, config)
    if body_type == "object":
        fields, in_body = _read_body(declared, body, config)
    else:
        fields, in_body = _read_pairs(_select(declared, "form"), form if body_type == "form" else (), config)
    return signed | params | fields | in_header | sent | in_body, sent | in_body


def read_query(declared: Iterable[Param], query: Pairs, config: SandboxConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the parameters of a query.

    Returns:
        all values with the defaults filled in; and those that were sent.

    Raises:
        Refusal: something is unknown, wrong or missing; every problem is named.
    """
    return _read_pairs(_select(declared, "query"), query, config)


def _select(declared: Iterable[Param], place: str) -> list[Param]:
    return [param for param in declared if param.place == place]


def _read_header(
    declared: Iterable[Param], protocol: Mapping[str, str], config: SandboxConfig
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the declared parameters of an `OAuth` header; others are ignored."""
    known = _select(declared, "header")
    names = {param.name for param in known}
    return _read_pairs(known, [(name, value) for name, value in protocol.items() if name in names], config)


def _read_pairs(
    declared: Iterable[Param], given: Pairs, config: SandboxConfig
) -> tuple[dict[str, Any], dict[str, Any]]:
    known = {param.name: param for param in declared}
    if config.unknown_parameters == "ignore":
        given = [(name, value) for name, value in given if name in known]
    sent: dict[str, Any] = {}
    found: list[Finding] = []
    for name, value in given:
        try:
            sent[name] = _read_text(known.get(name), value, config, again=name in sent)
        except _InvalidValue as error:
            found.append(_to_finding(known.get(name), name, error))
    names = {name for name, _ in given}
    found += [missing(param.rule, param.name) for param in known.values() if param.required and param.name not in names]
    refuse(*found)
    return {name: param.default for name, param in known.items()} | sent, sent


def _read_body(declared: Iterable[Param], body: bytes, config: SandboxConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a JSON object, as `read_query` reads a query.

    Raises:
        Refusal: it is not a JSON object, or a field is unknown, wrong or missing; every problem is named.
    """
    fields = {param.name: param for param in _select(declared, "json")}
    value = decode_object(body)
    if config.unknown_parameters == "ignore":
        value = {name: field for name, field in value.items() if name in fields}
    sent, found = read_fields(fields.values(), value)
    refuse(*found)
    return {name: param.default for name, param in fields.items()} | sent, sent


def read_fields(
    declared: Iterable[Param], value: Mapping[str, Any], *, at: str = ""
) -> tuple[dict[str, Any], list[Finding]]:
    """Read the fields of a JSON object.

    Args:
        declared: the fields that it may have.
        value: the object.
        at: its path, which prefixes the names of its fields in findings.

    Returns:
        the valid values; and the findings about the others.
    """
    known = {param.name: param for param in declared}
    good: dict[str, Any] = {}
    found = [
        missing(param.rule, f"{at}{name}") for name, param in known.items() if param.required and name not in value
    ]
    for name, field in value.items():
        try:
            good[name] = _read_field(known.get(name), field)
        except _InvalidValue as error:
            found.append(_to_finding(known.get(name), f"{at}{name}", error))
    return good, found


def read_items(
    declared: Sequence[Param], items: Sequence[Any], *, at: str, rule: str
) -> tuple[list[dict[str, Any]], list[Finding]]:
    """Read the objects of a JSON array, each as `read_fields` does.

    Args:
        declared: the fields that each may have.
        items: the elements of the array.
        at: the path of the array.
        rule: the rule for an element that is not an object.
    """
    good: list[dict[str, Any]] = []
    found: list[Finding] = []
    for index, item in enumerate(items):
        if isinstance(item, dict):
            fields, problems = read_fields(declared, item, at=f"{at}[{index}].")
            good.append(fields)
            found += problems
        else:
            found.append(invalid(rule, "must be an object", f"{at}[{index}]"))
    return good, found


def parse_time(value: str) -> datetime:
    """Parse ISO 8601 in UTC.

    Raises:
        ValueError: it is something else.
    """
    if not _UTC.fullmatch(value):
        raise ValueError("must be ISO 8601 in UTC")
    return datetime.fromisoformat(value)


_UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|\+00:?00)", re.ASCII)


class _InvalidValue(Exception):
    """Describes what is wrong with a value, without showing it."""


def _to_finding(param: Param | None, name: str, error: _InvalidValue) -> Finding:
    return invalid("ASM-95" if param is None else param.rule, str(error), name)


def _read_text(param: Param | None, value: str, config: SandboxConfig, *, again: bool) -> Any:
    if param is None:
        raise _InvalidValue("is not a parameter of this call")
    if again:
        raise _InvalidValue("is given twice")
    if not value:
        return _read_empty(param)
    if param.type == "boolean":
        if (said := read_boolean(value, config)) is None:
            raise _InvalidValue("must be true or false")
        return said
    return _READERS[param.type](param, value)


def _read_field(param: Param | None, value: Any) -> Any:
    if param is None:
        raise _InvalidValue("is unknown here")
    if value == "":
        return _read_empty(param)
    kind, name = _JSON_KINDS[param.type]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _InvalidValue(f"must be {name}")
    if isinstance(value, str):
        return _read_string(param, value)
    if isinstance(value, list):
        _check_size(param, value)
    return value


def _read_empty(param: Param) -> None:
    if not param.clearable:
        raise _InvalidValue("is empty")


def _read_string(param: Param, value: str) -> str:
    _check_enum(param, value)
    length = sum(character not in param.uncounted for character in value)
    if param.min_length is not None and length < param.min_length:
        raise _InvalidValue(f"needs at least {param.min_length} characters")
    if param.max_length is not None and length > param.max_length:
        raise _InvalidValue(f"takes up to {param.max_length} characters")
    return value


def _read_int(param: Param, value: str) -> int:
    if not re.fullmatch(r"-?\d{1,18}", value, re.ASCII):
        raise _InvalidValue("must be an int")
    number = int(value)
    _check_enum(param, number)
    if (param.minimum is not None and number < param.minimum) or (param.maximum is not None and number > param.maximum):
        raise _InvalidValue(f"must be from {param.minimum} to {param.maximum}")
    return number


def _read_long(param: Param, value: str) -> int:
    if not re.fullmatch(r"-?\d{1,19}", value, re.ASCII) or int(value) > _LARGEST:
        raise _InvalidValue("must be a long")
    if param.above is not None and int(value) <= param.above:
        raise _InvalidValue(f"must be greater than {param.above}")
    return int(value)


def _read_timestamp(_param: Param, value: str) -> str:
    return format_time(_parse_time(value))


def _read_date_hours(_param: Param, value: str) -> str:
    found = _parse_time(value)
    if found.replace(minute=0, second=0, microsecond=0) != found:
        raise _InvalidValue("must be a whole hour")
    return format_time(found)


def _parse_time(value: str) -> datetime:
    try:
        return parse_time(value)
    except ValueError:
        raise _InvalidValue("must be ISO 8601 in UTC") from None


def read_boolean(value: str, config: SandboxConfig) -> bool | None:
    """Return what a boolean says; None if it is not one."""
    # Unspecified: only these two spellings (ASM-95).
    return _BOOLEANS.get(value.lower() if config.booleans == "any_case" else value)


_BOOLEANS: Mapping[str, bool] = {"true": True, "false": False}


def _read_csv(param: Param, value: str) -> list[str]:
    items = value.split(",")
    if not all(items):
        raise _InvalidValue("holds an empty item")
    _check_size(param, items)
    for item in items:
        _check_enum(param, item)
    return items


def _check_enum(param: Param, value: str | int) -> None:
    if param.enum and value not in param.enum:
        raise _InvalidValue(f"must be one of {', '.join(map(str, param.enum))}")


def _check_size(param: Param, items: Sequence[Any]) -> None:
    if param.min_items is not None and len(items) < param.min_items:
        raise _InvalidValue(f"needs at least {param.min_items} items")
    if param.max_items is not None and len(items) > param.max_items:
        raise _InvalidValue(f"takes up to {param.max_items} items")


_LARGEST = 2**63 - 1

_READERS: Mapping[str, Callable[[Param, str], Any]] = {
    "string": _read_string,
    "int": _read_int,
    "long": _read_long,
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
