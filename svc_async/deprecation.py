"""Marks what a later release removes; docs/versions.md says for how long it works."""

import functools
import inspect
import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

__all__ = ["SvcDeprecationWarning", "deprecate"]


class SvcDeprecationWarning(DeprecationWarning):
    """Code uses a name of this SDK that a later release removes, or one that the service has deprecated."""


if TYPE_CHECKING:
    # Type checkers know this one and report each use (PEP 702). Its module is not needed to run.
    from typing_extensions import deprecated as deprecate
else:

    def deprecate(message: str, /) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return a decorator of functions, methods and classes whose use raises a `SvcDeprecationWarning`.

        Args:
            message: what is deprecated, which version removes it, and what to use instead.
        """

        def mark(thing: Callable[..., Any]) -> Callable[..., Any]:
            if isinstance(thing, type):
                thing.__init__ = _warn_of_class(thing, message)
                return thing
            return _warn_of_function(thing, message)

        return mark


def _warn_of_function(function: Callable[..., Any], message: str) -> Callable[..., Any]:
    """Return a function that warns when it is called; a coroutine function warns before it is awaited."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(message, SvcDeprecationWarning, stacklevel=2)
        return function(*args, **kwargs)

    vars(call)["__deprecated__"] = message
    if inspect.iscoroutinefunction(function) and sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(call)
    return call


def _warn_of_class(kind: Any, message: str) -> Callable[..., None]:
    """Return an `__init__` that warns, but not for subclasses."""
    initialise: Callable[..., None] = kind.__init__

    @functools.wraps(initialise)
    def warn_and_initialise(self: object, *args: Any, **kwargs: Any) -> None:
        if type(self) is kind:
            warnings.warn(message, SvcDeprecationWarning, stacklevel=2)
        initialise(self, *args, **kwargs)

    return warn_and_initialise
