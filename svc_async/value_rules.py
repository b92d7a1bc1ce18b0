"""What settings and arguments must be: rules that are checked once, where an object is created or a job is called.

A setting of a wrong type would otherwise fail when it is first used, which may be on the path of another error. A rule
is also a validator of attrs, which names the field.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import partial, wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction, signature
from ipaddress import ip_address
from math import inf, isfinite
from typing import Any, TypeGuard, TypeVar
from urllib.parse import urlsplit

import attrs

from svc_async.errors import InvalidArgument

__all__ = [
    "ABSOLUTE_URL",
    "CLOCK",
    "COUNT",
    "DATE",
    "DURATION",
    "FLAG",
    "HEADER_NAME",
    "MAPPING",
    "MOMENT",
    "NAME",
    "PLAIN_FUNCTION",
    "POSITIVE_SECONDS",
    "SECONDS",
    "SECONDS_OR_INFINITE",
    "SEVERAL",
    "SHARE",
    "TEXT",
    "TEXTS",
    "TEXT_BY_TEXT",
    "ValueRule",
    "can_take",
    "function_of",
    "has_members",
    "hides_values",
    "instance_of",
    "is_absolute_url",
    "is_aware",
    "is_generator_function",
    "is_loopback",
    "is_number",
    "is_plain_function",
    "is_whole",
    "one_of",
    "or_none",
    "refuse_unknown",
    "whole_number",
]

T = TypeVar("T")


@attrs.frozen
class ValueRule:
    """What a value must be.

    Attributes:
        accepts: whether a value of any type fulfils the rule.
        words: the rule in words, which follow "must be".
        rule_ids: the rules of the contract that it states.
    """

    accepts: Callable[[Any], bool]
    words: str
    rule_ids: Sequence[str] = ()

    def check(self, name: str, value: object) -> None:
        """Check a value.

        Raises:
            InvalidArgument: it breaks the rule; the message has its name, and not the value.
        """
        if not self.accepts(value):
            del value  # it may be a secret, which must not be among the locals of a traceback
            raise InvalidArgument(name, f"must be {self.words}", rule_ids=self.rule_ids)

    def __call__(self, _: object, field: "attrs.Attribute[Any]", value: object) -> None:
        """Check the value of a field."""
        self.check(field.name, value)


def hides_values(kind: type[T]) -> type[T]:
    """Have a class whose arguments may be secrets raise its errors from a frame that has none of them.

    Those of its validators and of what attrs generates have them as locals, which reporters of errors send away.
    """
    initialize = kind.__init__

    @wraps(initialize)
    def initialize_or_raise(self: T, *values: Any, **named: Any) -> None:
        try:
            initialize(self, *values, **named)
        except Exception as error:  # noqa: BLE001 - a TypeError of a wrong call as well
            problem = error.with_traceback(None)
        else:
            return
        del self, values, named
        raise problem

    setattr(kind, "__init__", initialize_or_raise)  # noqa: B010 - as decorators of classes do, and no type says
    return kind


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is an int or a float; a bool is none, and neither is NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value  # noqa: PLR0124 - NaN is not


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is an int; a bool is none."""
    return isinstance(value, int) and not isinstance(value, bool)


_WITH_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]+")


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, whatever a name server says."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_absolute_url(value: object) -> bool:
    """Return whether a value is the URL of a web page with its host, or one with a scheme of an app."""
    if not isinstance(value, str) or not _WITH_SCHEME.fullmatch(value):
        return False
    return not value.startswith(("http:", "https:")) or bool(urlsplit(value).hostname)


def _are_texts(values: Any) -> bool:
    is_collection = isinstance(values, Collection) and not isinstance(values, str)
    return is_collection and all(isinstance(each, str) for each in values)


def _is_text_by_text(value: object) -> bool:
    return isinstance(value, Mapping) and _are_texts(value) and _are_texts([*value.values()])


def is_aware(value: object) -> TypeGuard[datetime]:
    """Return whether a value is a datetime with a time zone."""
    return isinstance(value, datetime) and value.tzinfo is not None


def is_plain_function(value: object) -> bool:
    """Return whether a value does its work when it is called; a coroutine function does it when it is awaited."""
    if not callable(value) or is_generator_function(value):
        return False
    return not any(map(iscoroutinefunction, (value, type(value).__call__)))


def is_generator_function(value: Callable[..., object]) -> bool:
    """Return whether a function does nothing when it is called, awaited or not, since it contains `yield`."""
    while isinstance(value, partial):
        value = value.func
    return any(isgeneratorfunction(each) or isasyncgenfunction(each) for each in (value, type(value).__call__))


def can_take(function: Callable[..., object], count: int) -> bool:
    """Return whether a function can be called with this many arguments, or does not tell.

    What a decorator has wrapped says nothing: the decorator may add an argument, or take one away.
    """
    try:
        known = signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # some functions that are written in C have none
        return True
    try:
        known.bind(*[None] * count)
    except TypeError:
        return False
    return True


def function_of(*arguments: str) -> ValueRule:
    """Return the rule of a function, plain or a coroutine function, that can be called with these arguments."""
    return ValueRule(
        lambda value: callable(value) and not is_generator_function(value) and can_take(value, len(arguments)),
        f"a function that can be called as function({', '.join(arguments)}), without yield",
    )


def or_none(rule: ValueRule, meaning: str = "") -> ValueRule:
    """Return the rule of a value that may also be None; `meaning` says what None stands for, if that is not plain."""
    words = f"{rule.words}, or None for {meaning}" if meaning else rule.words
    return ValueRule(lambda value: value is None or rule.accepts(value), words, rule.rule_ids)


def instance_of(kind: Any, words: str) -> ValueRule:
    """Return the rule of the values of one type, or of several."""
    return ValueRule(lambda value: isinstance(value, kind), words)


def has_members(words: str, *names: str) -> ValueRule:
    """Return the rule of objects whose type has these members, such as one that a test replaces."""
    return ValueRule(lambda value: all(hasattr(type(value), name) for name in names), words)


def whole_number(least: int, most: int | None = None) -> ValueRule:
    """Return the rule of an int within bounds."""
    bounds = f"of at least {least:,}" if most is None else f"from {least:,} to {most:,}"
    return ValueRule(
        lambda value: is_whole(value) and least <= value <= (inf if most is None else most), f"a whole number {bounds}"
    )


def one_of(values: Sequence[str]) -> ValueRule:
    """Return the rule of one of several values."""
    return ValueRule(lambda value: value in values, f"one of {', '.join(values)}")


_LONGEST_NAME = 200
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""What a header may be called (RFC 9110, 5.6.2)."""

ABSOLUTE_URL = ValueRule(is_absolute_url, "an absolute URL")
COUNT = whole_number(1)
DATE = instance_of(date, "a date")
DURATION = instance_of(timedelta, "a timedelta")
FLAG = instance_of(bool, "True or False")
HEADER_NAME = ValueRule(
    lambda value: isinstance(value, str) and bool(_TOKEN.fullmatch(value)),
    "the name of a header, such as x-request-id",
)
PLAIN_FUNCTION = ValueRule(
    lambda value: is_plain_function(value) and can_take(value, 1),
    "a plain function of one argument, not a coroutine function",
)
MAPPING = instance_of(Mapping, "a mapping")
MOMENT = ValueRule(is_aware, "a datetime with a time zone", ("GEN-12",))
NAME = ValueRule(
    lambda value: isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME and value.isprintable(),
    f"a name of 1 to {_LONGEST_NAME} printable characters",
)
POSITIVE_SECONDS = ValueRule(
    lambda value: is_number(value) and isfinite(value) and value > 0, "a number of seconds greater than 0"
)
SECONDS = ValueRule(
    lambda value: is_number(value) and isfinite(value) and value >= 0, "a number of seconds of at least 0"
)
SEVERAL = ValueRule(
    lambda value: isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping), "a sequence"
)
SECONDS_OR_INFINITE = ValueRule(lambda value: is_number(value) and value >= 0, SECONDS.words)
SHARE = ValueRule(lambda value: is_number(value) and 0 <= value <= 1, "a number from 0 to 1")
TEXT = instance_of(str, "a string")
TEXTS = ValueRule(_are_texts, "a collection of strings")
TEXT_BY_TEXT = ValueRule(_is_text_by_text, "a mapping of strings")
CLOCK = has_members("a clock, such as SystemClock()", "now", "monotonic", "sleep", "call_later", "timeout")


def refuse_unknown(call: str, given: Iterable[str], known: Collection[str]) -> None:
    """Refuse keywords that a call does not have, as Python does, and name what was probably meant.

    Raises:
        TypeError: there is such a keyword.
    """
    for name in given:
        if name not in known:
            from difflib import get_close_matches  # noqa: PLC0415 - for messages only

            near = get_close_matches(name, known, 1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}{meant}")
