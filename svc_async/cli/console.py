"""Where the command writes: results to stdout, what is said to people to stderr."""

from rich.console import Console
from rich.text import Text

__all__ = ["complain", "people", "results"]


def people() -> Console:
    """Give the console for what people are told; only a terminal breaks lines."""
    console = Console(stderr=True, highlight=False, markup=False)
    console.soft_wrap = not console.is_terminal
    return console


def results() -> Console:
    """Give the console for results; lines are never broken."""
    return Console(highlight=False, markup=False, soft_wrap=True)


def complain(message: str) -> None:
    """Say what went wrong."""
    people().print(Text.assemble(("svc-async: ", "bold red"), message))
