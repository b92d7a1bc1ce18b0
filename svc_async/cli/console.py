"""The output of the command: results go to stdout, messages to stderr, and nothing that a terminal would obey.

Whatever is printed passes through here. `say` and `show` print one line, whose parts cannot break it; the consoles
print tables and panels, in which a cell may have several lines; JSON is ASCII.
"""

import json
import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from svc_async.printable import clean, clean_lines

__all__ = ["Part", "complain", "say", "show", "show_json", "stderr", "stdout"]

Part = str | tuple[str, str]
"""Text, with a style if there is one."""


class _CleanConsole(Console):
    """Escapes control and invisible characters in all that it prints."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=clean_lines(segment.text))


def stderr() -> Console:
    """Return the console for messages; only a terminal wraps lines."""
    console = _CleanConsole(stderr=True, highlight=False, markup=False, emoji=False)
    console.soft_wrap = not console.is_terminal
    return console


def stdout() -> Console:
    """Return the console for results; lines are never wrapped."""
    return _CleanConsole(highlight=False, markup=False, emoji=False, soft_wrap=True)


def say(*parts: Part) -> None:
    """Print a line to stderr."""
    stderr().print(_assemble(parts))


def show(*parts: Part) -> None:
    """Print a line to stdout."""
    stdout().print(_assemble(parts))


def show_json(value: object) -> None:
    """Print a value as one line of JSON, in ASCII, at once: the reader may be waiting for it."""
    sys.stdout.write(f"{json.dumps(value)}\n")  # not with rich, which exits when the pipe is closed
    sys.stdout.flush()


def complain(message: str) -> None:
    """Print an error message."""
    say(("svc-async: ", "bold red"), message)


def _assemble(parts: Iterable[Part]) -> Text:
    line = Text()
    for part in parts:
        text, style = (part, "") if isinstance(part, str) else part
        line.append(clean(text), style)
    return line
