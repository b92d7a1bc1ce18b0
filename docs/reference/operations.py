"""Writes operations.md beside it: every operation with its call, found by walking from `Session` through the code.

A method is the call of the operation that its docstring, or that of its class, names as the contract's; the rows that
are sent give the HTTP method and the path.
"""

import inspect
import itertools
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import attrs

from svc_async import Session
from svc_async.wire.route import Listing, Route, Surface

PAGE = Path(__file__).with_name("operations.md")

_HEAD = """\
# Operations

Made from the code by `python docs/reference/operations.py`; the tests compare it. Arguments that are needed are shown:
behind `*` they are given by name, and `...` stands for those that may be given. A call without `await`
gives something to iterate.

| Operation | Request | Call | |
|---|---|---|---|
"""
_HOST = {Surface.ADS_SANDBOX: " on the sandbox host"}
_ID = re.compile(r"[Cc]ontract:? [^\n]*`(\w+\.\w+)`")


@attrs.frozen
class Call:
    """A public method that makes an operation."""

    path: str
    operation: str
    kind: type
    method: Any  # a FunctionType, which type checkers would bind

    def rows(self) -> Iterator[Route[Any] | Listing[Any]]:
        """Give the rows behind the method: in itself, in private methods and in the classes that it names."""
        return _rows(self.method, self.kind, set())

    def __str__(self) -> str:
        return f"`{'await ' if inspect.iscoroutinefunction(self.method) else ''}{self.path}`"


def calls(kind: type, path: str) -> Iterator[Call]:
    """Give the methods that can be reached from a class, in the order of their paths."""
    for name, member in inspect.getmembers(kind):
        method = member.fget if isinstance(member, property) else member
        if name.startswith("_") or not isinstance(method, FunctionType):
            continue
        here = f"{path}.{name}" if isinstance(member, property) else f"{path}.{name}({_arguments(method)})"
        operation = _operation(method) or _operation(kind)
        if operation:
            yield Call(here, operation, kind, method)
        else:
            yield from calls(_result(method), here)


def _rows(method: Any, kind: type, seen: set[object]) -> Iterator[Route[Any] | Listing[Any]]:
    seen.add(method)
    for name in method.__code__.co_names:
        named = getattr(kind, name, None) if name.startswith("_") else None
        named = method.__globals__.get(name, named)
        if isinstance(named, Route | Listing):
            yield named
        elif isinstance(named, FunctionType) and named not in seen:
            yield from _rows(named, kind, seen)
        elif isinstance(named, type):
            for inner in filter(lambda each: isinstance(each, FunctionType) and each not in seen, vars(named).values()):
                yield from _rows(inner, named, seen)


def _operation(documented: FunctionType | type) -> str | None:
    named = _ID.search(documented.__doc__ or "")
    return named and named[1]


def _arguments(method: FunctionType) -> str:
    parameters = [*inspect.signature(method).parameters.values()][1:]
    needed = [each for each in parameters if each.default is each.empty]
    by_place = [each.name for each in needed if each.kind is not each.KEYWORD_ONLY]
    by_name = [each.name for each in needed if each.kind is each.KEYWORD_ONLY]
    more = ["..."] if len(needed) < len(parameters) else []
    return ", ".join([*by_place, *(["*", *by_name] if by_name else []), *more])


def _result(method: FunctionType) -> type:
    """Give what binding gives, if it is one of this project's services."""
    result = typing.get_type_hints(method).get("return")
    if isinstance(result, type) and result.__module__.startswith("svc_async.") and result is not Session:
        return result
    return type(None)


def page() -> str:
    """Make the page."""
    found: dict[str, list[Call]] = {}
    for call in calls(Session, "session"):
        found.setdefault(call.operation, []).append(call)
    return _HEAD + "".join(_line(operation, found[operation]) for operation in sorted(found))


def _line(operation: str, made: list[Call]) -> str:
    rows = itertools.chain.from_iterable(call.rows() for call in made)
    requests = {f"`{row.method} {row.path}`{_HOST.get(row.surface, '')}" for row in rows}
    ways = "<br>".join(map(str, made))
    summary = (made[0].method.__doc__ or "").partition("\n")[0]
    return f"| `{operation}` | {' '.join(sorted(requests))} | {ways} | {summary} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.name} is written\n")
