"""Lines in the log of a receiver: few about what happens again and again, and nothing that users wrote."""

import os
import sysconfig
from collections.abc import Hashable, Sequence
from pathlib import Path
from traceback import walk_tb

import attrs

from svc_async.clock import Clock
from svc_async.errors import ApiError, InvalidArgument, SvcError
from svc_async.events.models import Event
from svc_async.events.router import Handler, name_handler
from svc_async.printable import clean

__all__ = ["DueLines", "describe_error", "describe_handler", "name_event", "name_subject", "name_type"]

_SHOWN = 100  # characters of a type of event, of its key, and of the name of a handler
_LONGEST_PATH = 1_000
_PACKAGE = f"{Path(__file__).parents[2]}{os.sep}"
_STANDARD_LIBRARY = f"{sysconfig.get_path('stdlib')}{os.sep}"
_INSTALLED = ("site-packages", "dist-packages")


def describe_handler(handler: Handler) -> str:
    """Return the name of a handler."""
    return clean(name_handler(handler)[:_SHOWN])


def name_subject(event: Event | None) -> str:
    """Return the type and the key of an event; without one, a delivery is concerned."""
    return name_event(event) if event else "a delivery"


def name_event(event: Event) -> str:
    """Return the type and the key of an event."""
    return f"{name_type(event)} {clean(event.key[:_SHOWN])}"


def name_type(event: Event) -> str:
    """Return the type of an event."""
    return clean(event.event_type[:_SHOWN])


def describe_error(error: BaseException) -> str:
    """Return the type of an error and where it was raised; its message may repeat what users wrote.

    The errors of this SDK that a store of it raises repeat nothing, and say more than a line of the SDK.
    """
    name, first = type(error).__name__, error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(first.__traceback__)]
    called = next((file for file, _ in frames if not file.startswith(_PACKAGE) and not _is_standard(file)), None)
    if frames and called is None and isinstance(error, SvcError) and not isinstance(error, ApiError | InvalidArgument):
        return f"{name}: {error}"
    place = _find_place(frames, called or _PACKAGE)
    return f"{name} at {place}" if place else name


def _find_place(frames: Sequence[tuple[str, int]], called: str) -> str | None:
    """Return the file and the line where an error was raised.

    Before an error that a library raises, the line that called the library: the last one in the file of the handler,
    the callback or the store that was called, or else in this SDK.
    """
    if not frames:
        return None
    *_, own = [frame for frame in frames if frame[0].startswith(called)] or frames
    raised = _name_line(*frames[-1])
    return raised if own == frames[-1] else f"{_name_line(*own)}, raised at {raised}"


def _is_standard(file: str) -> bool:
    """Return whether a file belongs to the standard library, whose frames stand between all others."""
    is_below = file.startswith((_STANDARD_LIBRARY, "<frozen"))
    return is_below and not any(folder in Path(file).parts for folder in _INSTALLED)


def _name_line(file: str, line: int) -> str:
    return f"{clean(file[:_LONGEST_PATH])}:{line}"


_INTERVAL = 60.0
"""Seconds between two lines about the same subject."""


@attrs.define
class _Line:
    """The latest line about a subject.

    Attributes:
        due: when the next one may be written.
        count: how often it has happened since.
    """

    due: float
    count: int = 0


@attrs.frozen
class DueLines:
    """Decides that a line is written when something happens first, and then at most once a minute."""

    _clock: Clock
    _lines: dict[Hashable, _Line] = attrs.field(factory=dict[Hashable, _Line], init=False)

    def count(self, subject: Hashable) -> int | None:
        """Count what has happened; return None unless a line is due.

        Returns:
            How often it has happened since the line before, this time included; 0 if there was no line before.
        """
        now = self._clock.monotonic()
        line = self._lines.get(subject)
        if line is None:
            self._lines[subject] = _Line(now + _INTERVAL)
            return 0
        line.count += 1
        if now < line.due:
            return None
        count = line.count
        line.due, line.count = now + _INTERVAL, 0
        return count
