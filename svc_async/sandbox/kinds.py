"""Checks that settings and arguments of a sandbox are of the type of their annotation, and within their bounds."""

import ssl
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from difflib import get_close_matches
from functools import cache
from math import inf
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

__all__ = ["check_bounds", "check_fields", "check_json_object", "check_kind"]

_Rule = tuple[Callable[[Any], bool], str]


def check_kind(name: str, kind: Any, value: object) -> None:
    """Check that a value is of a type.

    Raises:
        ValueError: it is not; the message names it, and says what it must be.
    """
    accepts, words = _find_rule(kind)
    if not accepts(value):
        raise ValueError(f"{name} must be {words}")


def check_bounds(name: str, kind: Any, value: object, *, least: int = 0, meaning: str = "") -> None:
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


def check_fields(call: str, kinds: type, given: Mapping[str, object]) -> None:
    """Check that the keywords of a call are fields of a TypedDict, and their values of its types.

    Raises:
        TypeError: there is no such field; the message names the one that was probably meant.
        ValueError: a value is of another type; the message names it, and says what it must be.
    """
    hints = get_type_hints(kinds, include_extras=True)
    for name, value in given.items():
        if name not in hints:
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}; {_propose(name, hints)}")
        check_kind(name, hints[name], value)


def _propose(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"


def check_json_object(name: str, value: object) -> None:
    """Check that a value is a mapping that can be written as JSON.

    Raises:
        ValueError: it is not; the message names it.
    """
    if not (isinstance(value, Mapping) and _is_json(value)):
        raise ValueError(f"{name} must be a mapping that can be written as JSON, such as {{'text': 'Hello'}}")


def _is_json(value: object) -> bool:
    try:
        return bool(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False


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
        Sequence[str]: (_each(list | tuple, _is(str)), "a sequence of strings"),
        NoneType: (_is(NoneType), "None"),
        object: (_is_json, "what can be written as JSON"),
        ssl.SSLContext: (_is(ssl.SSLContext), "an ssl.SSLContext"),
    }
)


_CONTAINERS: Mapping[Any, tuple[Any, str]] = MappingProxyType(
    {frozenset: (AbstractSet, "a set"), Sequence: (list | tuple, "a sequence")}
)


@cache
def _find_rule(kind: Any) -> _Rule:
    origin, parts = get_origin(kind), get_args(kind)
    if kind in _RULES:
        return _RULES[kind]
    if origin is Literal:
        return (lambda value: _is(str, int)(value) and value in parts), f"one of {', '.join(map(str, parts))}"
    if origin in (Union, UnionType):
        return _join_rules(parts)
    if origin is Annotated:  # a number, and the least that is taken
        accepts, words = _find_rule(parts[0])
        return (lambda value: accepts(value) and value >= parts[1]), f"{words} of at least {parts[1]}"
    if origin in _CONTAINERS:
        accepts, words = _find_rule(parts[0])
        container, name = _CONTAINERS[origin]
        return _each(container, accepts), f"{name}, and each element {words}"
    return (_is(Mapping), "a mapping") if origin is Mapping else (_is(kind), f"a {kind.__name__}")


def _join_rules(kinds: Sequence[Any]) -> _Rule:
    """Return the rule of a value of one of several types."""
    rules = [_find_rule(kind) for kind in kinds]
    return (lambda value: any(accepts(value) for accepts, _ in rules)), ", or ".join(words for _, words in rules)
