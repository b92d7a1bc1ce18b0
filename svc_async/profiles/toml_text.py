"""Edits strings in the tables of a TOML file, line by line, so that comments and the order of lines are kept."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping

__all__ = ["edit_table", "parses_to"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_TABLE_HEADER = re.compile(r"\s*\[")


def parses_to(text: str, expected: Mapping[str, object]) -> bool:
    """Return whether a text is TOML with exactly this content."""
    try:
        return tomllib.loads(text) == expected
    except ValueError:
        return False


def edit_table(text: str, name: str, added: Mapping[str, str], removed: Iterable[str]) -> str:
    """Return the text with settings of a table added or removed; the caller parses the result to verify it.

    Args:
        text: the file.
        name: the table, which is added at the end if it is not there.
        added: strings by key; a key that is there gets the new value.
        removed: keys.
    """
    lines = text.splitlines()
    start, end = _find_section(lines, name)
    old = {key: position for position in range(start, end) if (key := _parse_key(lines[position]))}
    for key, value in added.items():
        if key in old:
            lines[old[key]] = _format_line(key, value)
    new = [_format_line(key, value) for key, value in added.items() if key not in old]
    after = max(old.values(), default=start - 1) + 1
    dropped = {old[key] for key in removed if key in old}
    head = [line for position, line in enumerate(lines[:after]) if position not in dropped]
    return "\n".join([*head, *new, *lines[after:]]) + "\n"


def _find_section(lines: list[str], name: str) -> tuple[int, int]:
    """Return the range of lines below the header of a profile; a new header is added at the end."""
    headers = [position for position, line in enumerate(lines) if _TABLE_HEADER.match(line)]
    for position in headers:
        if parses_to(lines[position], {name: {}}):
            return position + 1, next((other for other in headers if other > position), len(lines))
    lines += ["", f"[{_quote_name(name)}]"] if lines else [f"[{_quote_name(name)}]"]
    return len(lines), len(lines)


def _parse_key(line: str) -> str | None:
    key, equals, _ = line.partition("=")
    return key.strip().strip("\"'") if equals and not key.lstrip().startswith("#") else None


def _format_line(key: str, value: str) -> str:
    return f"{key} = {_format_string(value)}"


def _quote_name(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _format_string(name)


def _format_string(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
