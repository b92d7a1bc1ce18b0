"""The programs of the documentation: blocks of Python, each with what it prints in a `text` block behind it."""

import re
from collections.abc import Iterator
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]
NEEDS_MORE = {"how-to-use-in-a-pipeline.md"}
"""Pages whose programs need the libraries of the group `recipes`."""
_BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```)?", re.MULTILINE | re.DOTALL)


@attrs.frozen
class Example:
    """One program of a page.

    Attributes:
        name: the page and the line where the program begins.
        output: what it prints; None if the page does not say.
        needs_sandbox: it takes the address of the service and the ids from the environment.
    """

    name: str
    code: str = attrs.field(repr=False)
    output: str | None = attrs.field(repr=False)

    @property
    def needs_sandbox(self) -> bool:
        return bool(re.search(r"os\.environ\[.ACCOUNT_ID", self.code))


def find_examples(page: Path) -> Iterator[Example]:
    """Yield the programs of a page."""
    text = page.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 2
        yield Example(f"{page.name}:{line}", match["code"], match["output"])
