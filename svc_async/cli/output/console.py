"""The output of the command: results go to stdout, messages to stderr, and nothing that a terminal would obey.

Whatever is printed passes through here. `say` and `show` print one line, whose parts cannot break it; the consoles
print tables and panels, in which a cell may have several lines.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext

import attrs
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from svc_async.printable import clean, clean_lines

__all__ = ["Part", "complain", "console", "say", "show", "stderr", "stdout"]

Part = str | tuple[str, str]
"""Text, with a style if there is one."""


@attrs.define
class _Console:
    """What the output of the running command goes by.

    Attributes:
        quiet: whether messages are left out that nobody needs.
        interrupt_bar: takes a bar off the terminal while something else is printed.
    """

    quiet: bool = False
    interrupt_bar: Callable[[], AbstractContextManager[object]] = nullcontext


console = _Console()


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


def say(*parts: Part, needed: bool = False) -> None:
    """Print a line to stderr; with `--quiet`, only if it is needed."""
    if needed or not console.quiet:
        with console.interrupt_bar():
            stderr().print(_assemble(parts))


def show(*parts: Part) -> None:
    """Print a line to stdout."""
    with console.interrupt_bar():
        stdout().print(_assemble(parts))


def complain(message: str) -> None:
    """Print an error message."""
    say(("svc-async: ", "bold red"), message, needed=True)


def _assemble(parts: Iterable[Part]) -> Text:
    line = Text()
    for part in parts:
        text, style = (part, "") if isinstance(part, str) else part
        line.append(clean(text), style)
    return line
