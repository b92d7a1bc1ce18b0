"""The consoles of the command: results go to stdout, messages to stderr."""

from rich.console import Console
from rich.text import Text

__all__ = ["complain", "printable", "stderr", "stdout"]


def stderr() -> Console:
    """Return the console for messages; only a terminal wraps lines."""
    console = Console(stderr=True, highlight=False, markup=False)
    console.soft_wrap = not console.is_terminal
    return console


def stdout() -> Console:
    """Return the console for results; lines are never wrapped."""
    return Console(highlight=False, markup=False, soft_wrap=True)


def complain(message: str) -> None:
    """Print an error message."""
    stderr().print(Text.assemble(("svc-async: ", "bold red"), message))


def printable(text: str) -> str:
    """Replace what is not printable: a terminal would obey control sequences."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
