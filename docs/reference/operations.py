"""Writes operations.md beside it: every operation with its call, found by walking from `Session` through the code.

A method is the call of the operation that its docstring names as the contract's; the rows that it sends give the HTTP
method and the path.
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
from svc_async.wire.endpoint import Endpoint, Listing, Surface

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
    method: Any  # a FunctionType, which type checkers would bind
    owner: type

    @property
    def operation(self) -> str | None:
        """The contract's id, if the docstring names one, or the class's where the method is inherited."""
        inherited = self.method.__name__ not in vars(self.owner)
        named = _ID.search(self.method.__doc__ or "") or (_ID.search(self.owner.__doc__ or "") if inherited else None)
        return named and named[1]

    @property
    def requests(self) -> set[str]:
        """What the method sends, by itself or through the service that it hands on to."""
        return {f"`{row.method} {row.path}`{_HOST.get(row.surface, '')}" for row in self.rows()}

    def rows(self) -> Iterator[Endpoint[Any] | Listing[Any]]:
        """Give the rows that stand behind the method."""
        for name in self.method.__code__.co_names:
            named = self.method.__globals__.get(name)
            inner = getattr(self.owner, name, None) if name.startswith("_") else None
            if isinstance(named, Endpoint | Listing):
                yield named
            elif isinstance(named, type):
                alike = (call for call in calls(named, "") if call.operation == self.operation)
                yield from itertools.chain.from_iterable(call.rows() for call in alike)
            elif isinstance(inner, FunctionType):
                yield from Call(name, inner, self.owner).rows()

    def __str__(self) -> str:
        return f"`{'await ' if inspect.iscoroutinefunction(self.method) else ''}{self.path}`"


def calls(kind: type, path: str) -> Iterator[Call]:
    """Give the methods that can be reached from a class, in the order of their paths."""
    for name, member in inspect.getmembers_static(kind):
        method = member.fget if isinstance(member, property) else member
        if name.startswith("_") or not isinstance(method, FunctionType):
            continue
        here = f"{path}.{name}" if isinstance(member, property) else f"{path}.{name}({_arguments(method)})"
        call = Call(here, method, kind)
        if call.operation:
            yield call
        else:
            yield from calls(_result(method), here)


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
        found.setdefault(str(call.operation), []).append(call)
    return _HEAD + "".join(_line(operation, found[operation]) for operation in sorted(found))


def _line(operation: str, made: list[Call]) -> str:
    requests: set[str] = set().union(*(call.requests for call in made))
    ways = "<br>".join(map(str, made))
    summary = (made[0].method.__doc__ or "").partition("\n")[0]
    return f"| `{operation}` | {' '.join(sorted(requests))} | {ways} | {summary} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.name} is written\n")
