"""The output of the command: results go to stdout, messages to stderr, and nothing that a terminal would obey.

Whatever is printed passes through here. `say` and `show` print one line, whose parts cannot break it; the consoles
print tables and panels, in which a cell may have several lines.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import attrs
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from svc_async.printable import clean, clean_lines

__all__ = [
    "JSON_VERSION",
    "JsonOutput",
    "Part",
    "count",
    "describe_end",
    "format_duration",
    "name_count",
    "output",
    "print_error",
    "say",
    "show",
    "show_item",
    "show_json",
    "show_list",
    "stderr",
    "stdout",
    "terminal",
]

_SINGULAR = {
    "additions": "addition",
    "changes": "change",
    "refreshes": "refresh",
    "removals": "removal",
    "invalid_rows": "invalid row",
}


T = TypeVar("T")

_WIDEST = 10_000
"""Columns of a table that is not printed to a terminal."""


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def name_count(number: int, name: str) -> str:
    """Return what stands behind the number of a count with this name: `invalid row` behind 1, else `invalid rows`."""
    return _SINGULAR.get(name, name) if number == 1 else name.replace("_", " ")


def format_duration(seconds: float) -> str:
    """Format a duration for people."""
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


JSON_VERSION = 1
"""It changes when a field changes its meaning or goes; fields may be added."""


@attrs.define
class JsonOutput:
    """The output of the running command.

    Attributes:
        command: its name, such as `accounts list`.
        result: what it found or did, if it has said so.
        error: why it did not do it completely, if that is so.
    """

    command: str = ""
    result: object = None
    error: Mapping[str, Any] | None = None

    def begin(self, command: str) -> None:
        """Begin with a command that has said nothing yet."""
        self.command, self.result, self.error = command, None, None

    def finish(self, exit_code: int) -> None:
        """Print how the command ended."""
        _print(describe_end(self.command, self.result, self.error, exit_code=exit_code))


output = JsonOutput()


def describe_end(
    command: str, result: object, error: Mapping[str, Any] | None, *, exit_code: int | None
) -> Mapping[str, Any]:
    """Return the shape of what is printed; the exit code of an item is None."""
    return {"version": JSON_VERSION, "command": command, "result": result, "error": error, "exit_code": exit_code}


def show_json(result: object, *, error: Mapping[str, Any] | None = None) -> None:
    """Set the result, which is printed when the command ends."""
    output.result, output.error = result, error


def show_item(item: object) -> None:
    """Print an item at once: the reader may be waiting for it."""
    _print(describe_end(output.command, item, None, exit_code=None))


def _print(value: Mapping[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(value)}\n")  # not with rich, which exits when the pipe is closed
    sys.stdout.flush()


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


def show_list(items: Sequence[T], columns: Mapping[str, Callable[[T], object]], *, none: str = "") -> None:
    """Print a table to stdout, one row per item, with numbers aligned to the right; without items, print `none`."""
    if not items:
        say(none)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, read in columns.items():
        table.add_column(heading, justify="right" if any(isinstance(read(item), int) for item in items) else "left")
    for item in items:
        found = (read(item) for read in columns.values())
        table.add_row(*(f"{each:,}" if isinstance(each, int) else clean(str(each or "")) for each in found))
    console = stdout()
    if not console.is_terminal:  # an item stays on its line
        console.width = _WIDEST
    console.print(table)


def print_error(message: str) -> None:
    """Print an error message."""
    say(("svc-async: ", "bold red"), message, needed=True)


def _print_line(console: Console, parts: Iterable[Part]) -> None:
    """Print a line. On a terminal it breaks between words, unless one is too long: a path can be copied as it is.

    What follows a break is indented as the line is.
    """
    line = Text()
    for part in parts:
        text, style = (part, "") if isinstance(part, str) else part
        line.append(clean(text), style)
    indent = len(line.plain) - len(line.plain.lstrip(" "))
    width = console.width - indent
    if console.is_terminal and all(cell_len(word) <= width for word in line.plain.split()):
        wrapped = line[indent:].wrap(console, width)
        for each in wrapped:
            each.rstrip()
            each.pad_left(indent)
        line = Text("\n").join(wrapped)
    console.print(line, soft_wrap=True)
