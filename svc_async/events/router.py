"""Dispatch events to handlers by their type."""

import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from svc_async.errors import InvalidArgument
from svc_async.events.models import OLD_EVENT_NAMES, Event, EventType
from svc_async.value_rules import can_take, instance_of, is_generator_function

__all__ = ["EventRouter", "Handler", "call_function", "name_handler"]

Handler = Callable[..., object]
"""A function or coroutine function that takes an event and its context."""

H = TypeVar("H", bound=Handler)

_MISFIT = "misfit"
_NO_GENERATOR = "must not be a generator function, of which nothing runs when it is called: use return instead of yield"
_WORDS = ("*", _MISFIT, "replay_job_status", "account_activity", "unknown")
_OWN = ", ".join(_WORDS[1:])
_EVENT = instance_of(Event, "an event, such as EventParser().parse(body) returns")
_PATTERN = re.compile(r"\*|\w+(\.\w+)*(\.\*)?", re.ASCII)


class EventRouter:
    """The handlers of each event type.

    A pattern is a whole type (`post.create`), all types below a word (`post.*`, `profile.*`), `*`, or `misfit`: events
    that do not fit their type. Without a handler of `misfit` they go to the handlers of their type. A type need not be
    a known one, since the platform adds types, but types of the platform have a dot.
    """

    def __init__(self) -> None:
        self._handlers: list[tuple[str, Handler]] = []

    def on(self, event_type: str) -> Callable[[H], H]:
        """Register the decorated function for a pattern; for several, stack the decorators.

        A function is called once for each of its patterns that an event matches.

        Args:
            event_type: a pattern.

        Raises:
            InvalidArgument: it is not a pattern, a word that is no type, or a deprecated PascalCase name (contract
                EV-02); or what is decorated cannot be called with an event and its context, or is a generator function.
        """
        if not isinstance(event_type, str):
            raise InvalidArgument("event_type", 'must be given, as in @receiver.on("post.create")')
        if event_type in OLD_EVENT_NAMES:
            raise InvalidArgument(
                "event_type", f"must be {OLD_EVENT_NAMES[event_type]!r}, its current name", rule_ids=("EV-02",)
            )
        if event_type != event_type.strip():
            raise InvalidArgument("event_type", "must have no white space around it")
        if not _PATTERN.fullmatch(event_type):
            raise InvalidArgument("event_type", "must be a dot-separated type, one that ends in .*, or *")
        if "." not in event_type and event_type not in _WORDS:
            raise InvalidArgument("event_type", f"is no type, no pattern and none of {_OWN}; {_propose(event_type)}")

        def register(handler: H) -> H:
            _check_handler(handler)
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

    async def dispatch(self, event: Event, context: Any = None) -> int:
        """Call the event's handlers one after another; the first that raises ends the dispatch.

        Args:
            event: passed to every handler.
            context: likewise; where the event comes from: the `DeliveryContext` of a receiver, a stream, or your own.

        Returns:
            The number of handlers.

        Raises:
            InvalidArgument: it is no event.
        """
        _EVENT.check("event", event)
        handlers = self.find_handlers(event)
        for handler in handlers:
            await call_function("handler", handler, event, context)
        return len(handlers)


async def call_function(parameter: str, function: Callable[..., object], *arguments: object) -> None:
    """Call a handler or a callback, and wait for it if it is a coroutine function.

    Args:
        parameter: what the function was passed as.
        function: the function.
        arguments: its arguments.

    Raises:
        InvalidArgument: it returned a generator, of which nothing has run.
    """
    result = function(*arguments)
    if inspect.isawaitable(result):
        result = await result
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise InvalidArgument(parameter, _NO_GENERATOR)


def name_handler(handler: Handler) -> str:
    """Return the module and the qualified name of a handler."""
    while isinstance(handler, partial):
        handler = handler.func
    named = handler if hasattr(handler, "__qualname__") else type(handler)
    return f"{named.__module__}.{named.__qualname__}"


def _check_handler(handler: object) -> None:
    if not callable(handler):
        raise InvalidArgument("handler", 'must be a function, as in @receiver.on("post.create")')
    if is_generator_function(handler):
        raise InvalidArgument("handler", _NO_GENERATOR)
    if not can_take(handler, 2):
        raise InvalidArgument("handler", "must take two arguments, as in handler(event, context)")


def _propose(word: str) -> str:
    """Return the pattern that was probably meant by a word without a dot."""
    from difflib import get_close_matches  # noqa: PLC0415 - for messages only

    types = [each.value for each in EventType]
    known = {*_WORDS, *(f"{each.partition('.')[0]}.*" for each in types)}
    by_words = {each.strip(".*").replace(".", ""): each for each in (*types, *known)}
    near = get_close_matches(word.replace("_", "").lower(), by_words, 1)
    return f"did you mean {by_words[near[0]]}?" if near else "types are such as post.create, patterns such as post.*"


def _matches(pattern: str, event_type: str) -> bool:
    if pattern.endswith("*"):
        return event_type.startswith(pattern[:-1])
    return event_type == pattern
