"""All kinds of records and events."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from svc_async import ads, events, platform


def find_kinds(base: Any) -> list[Any]:
    """Return the public classes of the SDK that are derived from one, in the order of their names."""
    for package in (ads, events, platform):
        for module in iter_modules(package.__path__):
            import_module(f"{package.__name__}.{module.name}")
    return sorted(_list_derived(base), key=lambda kind: (kind.__module__, kind.__name__))


def _list_derived(base: Any) -> Iterator[Any]:
    for kind in base.__subclasses__():
        yield from _list_derived(kind)
        # Of each class with slots there are two, until the one that attrs has replaced is collected.
        is_current = vars(sys.modules[kind.__module__]).get(kind.__name__) is kind
        if is_current and kind.__module__.startswith("svc_async.") and not kind.__name__.startswith("_"):
            yield kind
