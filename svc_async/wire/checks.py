"""Rules that can be decided before a request is spent, as values that stand in an operation's row."""

from collections.abc import Callable, Mapping, Sized
from typing import Any

from svc_async.errors import InvalidArgument

__all__ = ["Check", "at_most", "between"]

Check = Callable[[Mapping[str, Any]], InvalidArgument | None]
"""Looks at the parameters of a call and gives what is wrong with them."""


def between(name: str, low: int, high: int) -> Check:
    """Demand an int within bounds."""

    def check(params: Mapping[str, Any]) -> InvalidArgument | None:
        value = params.get(name)
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and low <= value <= high):
            return None
        return InvalidArgument(name, f"must be a whole number from {low} to {high}")

    return check


def at_most(name: str, bound: int) -> Check:
    """Demand a sequence of at most so many (contract GEN-17)."""

    def check(params: Mapping[str, Any]) -> InvalidArgument | None:
        value = params.get(name)
        if value is None:
            return None
        if isinstance(value, str | bytes) or not isinstance(value, Sized):
            return InvalidArgument(name, "must be a sequence of ids")
        return InvalidArgument(name, f"must hold at most {bound} ids") if len(value) > bound else None

    return check
