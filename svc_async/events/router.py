"""Dispatch events to handlers by their type."""

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

from svc_async.errors import InvalidArgument
from svc_async.events.models import OLD_EVENT_NAMES, Event

__all__ = ["EventRouter", "Handler"]

Handler = Callable[..., object]
"""A function or coroutine function that takes an event and what the dispatcher adds, such as a context."""

H = TypeVar("H", bound=Handler)

_MISFIT = "misfit"
_PATTERN = re.compile(r"\*|\w+(\.\w+)*(\.\*)?", re.ASCII)


class EventRouter:
    """The handlers of each event type.

    A pattern is a whole type (`post.create`), all types below a word (`post.*`, `profile.*`), `*`, or `misfit`: events
    that do not fit their type. Without a handler of `misfit` they go to the handlers of their type.
    """

    def __init__(self) -> None:
        self._handlers: list[tuple[str, Handler]] = []

    def on(self, event_type: str) -> Callable[[H], H]:
        """Register the decorated function for a pattern; one function may be registered for several.

        Args:
            event_type: a pattern.

        Raises:
            InvalidArgument: it is not a pattern, or a deprecated PascalCase name (contract EV-02).
        """
        if not isinstance(event_type, str):
            raise InvalidArgument("event_type", 'must be given, as in @receiver.on("post.create")')
        if event_type in OLD_EVENT_NAMES:
            raise InvalidArgument(
                "event_type", f"must be {OLD_EVENT_NAMES[event_type]!r}, its current name", rule_ids=("EV-02",)
            )
        if not _PATTERN.fullmatch(event_type):
            raise InvalidArgument("event_type", "must be a dot-separated type, one that ends in .*, or *")

        def register(handler: H) -> H:
            self._handlers.append((event_type, handler))
            return handler

        return register

    def handlers(self, event_type: str) -> tuple[Handler, ...]:
        """Return the handlers of a type, in the order of their registration."""
        return tuple(handler for pattern, handler in self._handlers if _matches(pattern, event_type))

    def find_handlers(self, event: Event) -> tuple[Handler, ...]:
        """Return the handlers of an event, in the order of their registration."""
        is_misfit = event.problem is not None and any(pattern == _MISFIT for pattern, _ in self._handlers)
        return self.handlers(_MISFIT if is_misfit else event.event_type)

    async def dispatch(self, event: Event, *context: Any) -> int:
        """Call the event's handlers one after another; the first that raises ends the dispatch.

        Args:
            event: passed to every handler.
            context: further arguments for the handlers.

        Returns:
            The number of handlers.
        """
        handlers = self.find_handlers(event)
        for handler in handlers:
            result = handler(event, *context)
            if inspect.isawaitable(result):
                await result
        return len(handlers)


def _matches(pattern: str, event_type: str) -> bool:
    if pattern.endswith("*"):
        return event_type.startswith(pattern[:-1])
    return event_type == pattern
