"""Modules that import what they name on first use."""

from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = ["LazyModule", "make_getattr"]


class LazyModule:
    """A module that is imported on first use: it takes long, or this Python may have been built without it.

    Args:
        name: its full name.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> object:
        return getattr(import_module(self._name), name)


def make_getattr(module: str, namespace: dict[str, object], homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a module.

    Args:
        module: its name, for messages.
        namespace: its globals, which keep what was imported.
        homes: the module that defines each name.
    """

    def import_name(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = namespace[name] = getattr(import_module(home), name)
        return value

    return import_name
