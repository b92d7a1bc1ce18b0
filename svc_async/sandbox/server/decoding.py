"""Decodes the text of requests - queries, forms and JSON - by the declarations of their parameters."""

import json
import re
from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote_to_bytes

import attrs
import msgspec

from svc_async.sandbox.refusal import Basis, Problem, Refusal

__all__ = [
    "Param",
    "boolean",
    "check_utf8",
    "csv",
    "decode_json",
    "decode_object",
    "form_field",
    "header_field",
    "integer",
    "json_field",
    "long",
    "parse_form",
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


_DEEPEST = 100


def check_utf8(text: str, what: str) -> None:
    """Check that percent-encoded text is UTF-8.

    Raises:
        Refusal: it is not.
    """
    try:
        unquote_to_bytes(text).decode()
    except UnicodeError:
        # Unspecified: status and code; GEN-15 and GEN-16 state the encodings only.
        raise Refusal(400, Problem("INVALID_PARAMETER", f"{what} is not UTF-8"), rule="ASM-95") from None


def parse_form(text: str) -> list[tuple[str, str]]:
    """Parse a query string or a form body."""
    return parse_qsl(text, keep_blank_values=True)


def decode_json(body: bytes) -> Any:
    """Decode a JSON body.

    Raises:
        Refusal: it is not JSON, or an object in it has a name twice.
    """
    try:
        value = msgspec.json.decode(body)
        # Twice as fast as a decoder that builds the objects here.
        json.loads(body, object_pairs_hook=_check_names, parse_int=_ignore)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _refuse("the body is not JSON") from None
    return value


def decode_object(body: bytes) -> dict[str, Any]:
    """Decode a body that is a JSON object.

    Raises:
        Refusal: it is not such an object, is nested too deeply, or an object in it has a name twice.
    """
    value = decode_json(body)
    if not isinstance(value, dict):
        raise _refuse("the body is no JSON object")
    _check_depth(value)
    return value


def _check_names(pairs: Sequence[tuple[str, Any]]) -> None:
    if len(dict(pairs)) != len(pairs):
        # Unspecified: the answer to a name that is given twice (ASM-95).
        raise Refusal(400, Problem("INVALID_PARAMETER", "an object of the body has the same name twice"), rule="ASM-95")


def _ignore(_number: str) -> None:
    """Take a number of any length: `int` refuses long ones."""


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(_DEEPEST):
        level = [inner for outer in level for inner in _list_containers(outer)]
        if not level:
            return
    raise _refuse(f"the body is nested more than {_DEEPEST} levels deep")


def _list_containers(value: dict[str, Any] | list[Any]) -> list[Any]:
    inside = value.values() if isinstance(value, dict) else value
    return [inner for inner in inside if isinstance(inner, dict | list)]


def _refuse(message: str) -> Refusal:
    return Refusal(400, Problem("INVALID_PARAMETER", message), rule="GEN-16", basis=Basis.SPEC)
