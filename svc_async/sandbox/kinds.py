"""Checks that settings and arguments of a sandbox are of the type of their annotation, and within their bounds."""

import ssl
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from difflib import get_close_matches
from functools import cache
from math import inf
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

__all__ = ["WrongArgument", "check_bounds", "check_fields", "check_json_object", "check_kind"]

_Rule = tuple[Callable[[Any], bool], str]


class WrongArgument(ValueError):
    """An argument or a setting of a sandbox cannot be used.

    Attributes:
        parameter: its name.
        rule: the rule that it breaks.
    """

    def __init__(self, parameter: str, rule: str) -> None:
        super().__init__(parameter, rule)  # with both, it can be copied and pickled
        self.parameter, self.rule = parameter, rule

    def __str__(self) -> str:
        return f"{self.parameter} {self.rule}"


def check_kind(name: str, kind: Any, value: object) -> None:
    """Check that a value is of a type.

    Raises:
        WrongArgument: it is not.
    """
    accepts, words = _find_rule(kind)
    if not accepts(value):
        raise WrongArgument(name, f"must be {words}")


def check_bounds(name: str, kind: Any, value: object, *, least: int = 0, meaning: str = "") -> None:
    """Check that a value is a finite number of a type, and at least as large as a bound.

    Args:
        name: the name of the value.
        kind: the type.
        value: the value.
        least: the bound.
        meaning: what the number counts, for the message.

    Raises:
        WrongArgument: it is not.
    """
    accepts, words = _find_rule(kind)
    if not accepts(value) or not least <= value < inf:  # type: ignore[operator]  # it is a number
        raise WrongArgument(name, f"must be {words} of at least {least}{meaning and f': {meaning}'}")


def check_fields(call: str, kinds: type, given: Mapping[str, object]) -> None:
    """Check that the keywords of a call are fields of a TypedDict, and their values of its types.

    Raises:
        TypeError: there is no such field; the message names the one that was probably meant.
        WrongArgument: a value is of another type.
    """
    hints = get_type_hints(kinds, include_extras=True)
    for name, value in given.items():
        if name not in hints:
            near = get_close_matches(name, hints, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(hints)}"
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}; {hint}")
        check_kind(name, hints[name], value)


def check_json_object(name: str, value: object) -> None:
    """Check that a value is a mapping that can be written as JSON.

    Raises:
        WrongArgument: it is not.
    """
    if not (isinstance(value, Mapping) and _is_json(value)):
        raise WrongArgument(name, "must be a mapping that can be written as JSON, such as {'text': 'Hello'}")


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
        rules = [_find_rule(each) for each in parts]
        return (lambda value: any(accepts(value) for accepts, _ in rules)), ", or ".join(words for _, words in rules)
    if origin is Annotated:  # a number, and the least that is taken
        accepts, words = _find_rule(parts[0])
        return (lambda value: accepts(value) and value >= parts[1]), f"{words} of at least {parts[1]}"
    if origin in _CONTAINERS:
        accepts, words = _find_rule(parts[0])
        container, name = _CONTAINERS[origin]
        return _each(container, accepts), f"{name}, and each element {words}"
    return (_is(Mapping), "a mapping") if origin is Mapping else (_is(kind), f"a {kind.__name__}")
