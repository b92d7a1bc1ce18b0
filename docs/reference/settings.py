"""Writes settings.md beside it: what may be chosen about the sandbox, from the source of `SandboxConfig`."""

import inspect
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from svc_async.sandbox import SandboxConfig

PAGE = Path(__file__).with_name("settings.md")

_HEAD = """\
# Settings of the sandbox

Made from the code by `python docs/reference/settings.py`; the tests compare it. Each is a choice where the
specification
is silent or speaks against itself: `Sandbox(config=SandboxConfig(card_must_exist=False))`. The last column names what
it
rests on, in `tests/contract/assumptions.toml` (`ASM-`), `unspecified.toml` (`UNS-`, `CON-`) or `rules.toml`.

| Setting | Default | Meaning | Rests on |
|---|---|---|---|
"""
_DEFAULTS = SandboxConfig()
_BASIS = re.compile(r"\b(?:ASM|UNS|CON|[A-Z]{2,4})-[\w-]+")


def page() -> str:
    """Make the page."""
    source = inspect.getsource(SandboxConfig)
    meanings = _meanings(source)
    return _HEAD + "".join(_line(field, meanings[field.name], source) for field in attrs.fields(SandboxConfig))


def _meanings(source: str) -> Mapping[str, str]:
    attributes = source.partition("Attributes:\n")[2].partition('"""')[0]
    named = re.findall(r"^ {8}(\w+): (.*(?:\n {12}.*)*)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in named}


def _line(field: "attrs.Attribute[Any]", meaning: str, source: str) -> str:
    comment = re.search(rf"^    {field.name}: .*?  # (.*)$", source, re.MULTILINE)
    basis = ", ".join(_BASIS.findall(comment[1])) if comment else ""
    return f"| `{field.name}` | {_default(getattr(_DEFAULTS, field.name))} | {meaning} | {basis} |\n"


def _default(value: object) -> str:
    if isinstance(value, Mapping | frozenset):
        return "a table" if value else "none"
    return f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.name} is written\n")
