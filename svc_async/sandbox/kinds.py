"""Checks that settings and arguments of a sandbox are of the type of their annotation, and within their bounds."""

import ssl
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from math import inf
from types import MappingProxyType, UnionType
from typing import Any, Literal, get_args, get_origin

import msgspec

__all__ = ["check_bounds", "check_json_object", "check_kind"]

_Rule = tuple[Callable[[Any], bool], str]


def check_kind(name: str, kind: Any, value: object) -> None:
    """Check that a value is of a type.

    Raises:
        ValueError: it is not; the message names it, and says what it must be.
    """
    accepts, words = _find_rule(kind)
    if not accepts(value):
        raise ValueError(f"{name} must be {words}")


def check_bounds(name: str, kind: type[int] | type[float], value: object, *, least: int = 0, meaning: str = "") -> None:
    """Check that a value is a finite number of a type, and at least as large as a bound.

    Args:
        name: the name of the value.
        kind: the type.
        value: the value.
        least: the bound.
        meaning: what the number counts, for the message.

    Raises:
        ValueError: it is not; the message names it, and says what it must be.
    """
    accepts, words = _find_rule(kind)
    if not accepts(value) or not least <= value < inf:  # type: ignore[operator]  # it is a number
        raise ValueError(f"{name} must be {words} of at least {least}{meaning and f': {meaning}'}")


def check_json_object(name: str, value: object) -> None:
    """Check that a value is a mapping that can be written as JSON.

    Raises:
        ValueError: it is not; the message names it.
    """
    try:
        is_good = isinstance(value, Mapping) and bool(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError):
        is_good = False
    if not is_good:
        raise ValueError(f"{name} must be a mapping that can be written as JSON, such as {{'text': 'Hello'}}")


def _is(*types: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, types) and (bool in types or not isinstance(value, bool))


def _each(types: Any, accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, types) and all(map(accepts, value))


_RULES: Mapping[Any, _Rule] = MappingProxyType(
    {
        bool: (_is(bool), "True or False"),
        int: (_is(int), "a whole number"),
        float: (_is(int, float), "a number"),
        str: (_is(str), "a string"),
        bytes: (_is(bytes), "bytes"),
        datetime: (lambda value: isinstance(value, datetime) and value.tzinfo is not None, "a time with a time zone"),
        frozenset[str]: (_each(AbstractSet, _is(str)), "a set of strings"),
        tuple[float, ...]: (_each(list | tuple, _is(int, float)), "a sequence of numbers"),
        ssl.SSLContext: (_is(ssl.SSLContext), "an ssl.SSLContext"),
    }
)


def _find_rule(kind: Any) -> _Rule:
    origin, parts = get_origin(kind), get_args(kind)
    if kind in _RULES:
        return _RULES[kind]
    if origin is Literal:
        return (lambda value: isinstance(value, str) and value in parts), f"one of {', '.join(parts)}"
    if origin is UnionType:
        accepts, words = _find_rule(parts[0])
        return (lambda value: value is None or accepts(value)), f"{words}, or None"
    if origin is frozenset:
        accepts, words = _find_rule(parts[0])
        return _each(AbstractSet, accepts), f"a set, and each element {words}"
    if origin is Mapping:
        return _is(Mapping), "a mapping"
    return _is(kind), f"a {kind.__name__}"
