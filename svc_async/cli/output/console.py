"""The output of the command: results go to stdout, messages to stderr, and nothing that a terminal would obey.

Whatever is printed passes through here. `say` and `show` print one line, whose parts cannot break it; the consoles
print tables and panels, in which a cell may have several lines.
"""

import os
import sys
from collections.abc import Iterable
from typing import Literal

import attrs
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from svc_async.printable import clean, clean_lines

__all__ = ["Part", "print_error", "say", "show", "stderr", "stdout", "terminal"]

Part = str | tuple[str, str]
"""Text, with a style if there is one."""


@attrs.define
class Terminal:
    """What the output of the running command goes by.

    Attributes:
        quiet: whether messages are left out that nobody needs.
        live: draws bars; whatever is printed to the same terminal goes above them.
    """

    quiet: bool = False
    live: Console | None = None


terminal = Terminal()


class _CleanConsole(Console):
    """Escapes control and invisible characters in all that it prints."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=clean_lines(segment.text))


def stderr() -> Console:
    """Return the console for messages; only a terminal wraps lines."""
    if terminal.live is not None:
        return terminal.live
    console = _CleanConsole(stderr=True, highlight=False, markup=False, emoji=False, color_system=_find_colours())
    console.soft_wrap = not console.is_terminal
    return console


def stdout() -> Console:
    """Return the console for results; lines are never wrapped, except above bars."""
    if terminal.live is not None and sys.stdout.isatty():
        return terminal.live
    return _CleanConsole(highlight=False, markup=False, emoji=False, soft_wrap=True, color_system=_find_colours())


def _find_colours() -> Literal["auto"] | None:
    """Return which colours rich may use: none at all with NO_COLOR, and no other sequences either."""
    return None if os.environ.get("NO_COLOR") else "auto"


def say(*parts: Part, needed: bool = False) -> None:
    """Print a line to stderr; with `--quiet`, only if it is needed."""
    if needed or not terminal.quiet:
        _print_line(stderr(), parts)


def show(*parts: Part) -> None:
    """Print a line to stdout."""
    _print_line(stdout(), parts)


def print_error(message: str) -> None:
    """Print an error message."""
    say(("svc-async: ", "bold red"), message, needed=True)


def _print_line(console: Console, parts: Iterable[Part]) -> None:
    """Print a line. On a terminal it breaks between words, unless one is too long: a path can be copied as it is.

    What follows a break is indented as the line is.
    """
    line = _assemble(parts)
    indent = len(line.plain) - len(line.plain.lstrip(" "))
    width = console.width - indent
    if console.is_terminal and all(cell_len(word) <= width for word in line.plain.split()):
        wrapped = line[indent:].wrap(console, width)
        for part in wrapped:
            part.rstrip()
            part.pad_left(indent)
        line = Text("\n").join(wrapped)
    console.print(line, soft_wrap=True)


def _assemble(parts: Iterable[Part]) -> Text:
    line = Text()
    for part in parts:
        text, style = (part, "") if isinstance(part, str) else part
        line.append(clean(text), style)
    return line
