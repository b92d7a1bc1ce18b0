"""The file of a dialect: the words that it may map, and its mistakes with their lines."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import attrs

from svc_async.errors import UnusableFile
from svc_async.printable import clean, shorten

__all__ = ["SECTIONS", "ContractWords", "Lines", "Mistake", "check_words", "find_mistakes", "read_text", "read_words"]

_LARGEST_FILE = 2**18
SECTIONS = ("paths", "pages", "headers", "names", "values")
_MOST_DOTS = 1_000
"""Dots in a line: the time that a TOML parser takes is quadratic in them."""
_PATH = r"(?:/(?:[A-Za-z0-9_.~-]{1,100}|{[a-z_]{1,100}}))+"
_FORMS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "paths": (re.compile(_PATH), "a path with its ids in braces, such as /12/accounts/{account_id}/note"),
    "pages": (re.compile(rf"(?:https://[a-z0-9.-]{{1,253}}(?::\d{{1,5}})?)?{_PATH}"), "a path, or a URL with https"),
    "headers": (re.compile(r"[a-z0-9-]{1,100}"), "the name of a header in lower case"),
    "names": (re.compile(r"[A-Za-z0-9_.-]{1,100}"), "letters, digits, _ . and -"),
    "values": (re.compile(r"[ !#-+\--\[\]-~]{1,100}"), "printable ASCII without quotes, commas and backslashes"),
}
_PART = r"""[ \t]*(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)[ \t]*"""
_KEY = re.compile(rf"{_PART}(?:\.{_PART})*(?==)")
_HEAD = re.compile(rf"[ \t]*\[\[?({_PART}(?:\.{_PART})*)\]")
_ID = re.compile(r"{(\w+)}")


_Place = tuple[str, str]
"""A section and a word in it, or nothing for the section itself."""


@attrs.frozen(kw_only=True)
class ContractWords:
    """The words of the contract, by section.

    Attributes:
        paths: the templates of routes.
        pages: those of pages that a browser opens.
        headers: names of headers, in lower case.
        names: names of parameters and of fields.
        values: values of the enumerations of the client.
        other_values: values that it reads as any text.
    """

    paths: frozenset[str] = attrs.field(converter=frozenset)
    pages: frozenset[str] = attrs.field(converter=frozenset)
    headers: frozenset[str] = attrs.field(converter=frozenset)
    names: frozenset[str] = attrs.field(converter=frozenset)
    values: frozenset[str] = attrs.field(converter=frozenset)
    other_values: frozenset[str] = attrs.field(converter=frozenset)

    @staticmethod
    @lru_cache(maxsize=1)
    def load() -> "ContractWords":
        """Return the words of the contract."""
        words = files("svc_async.wire").joinpath("words.toml").read_text(encoding="utf-8")
        return ContractWords(**tomllib.loads(words))


@attrs.frozen(kw_only=True)
class Mistake:
    """What is wrong with the file of a dialect.

    Attributes:
        line: the line, counted from 1.
        rule: the key and the rule that it breaks.
    """

    line: int
    rule: str


def read_text(path: Path | str) -> str:
    """Read the file of a dialect as text.

    Raises:
        UnusableFile: it cannot be read, or is too large.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise UnusableFile("dialect", path, f"cannot be read: {error.strerror}") from None
    if len(content) > _LARGEST_FILE:
        raise UnusableFile("dialect", path, f"must have at most {_LARGEST_FILE:,} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnusableFile("dialect", path, "must be UTF-8") from None


def read_words(path: Path | str) -> Mapping[str, Any]:
    """Return the name and the words in the file of a dialect.

    Raises:
        UnusableFile: it cannot be read, or has a mistake.
    """
    content = read_text(path)
    mistake = next(iter(find_mistakes(content)), None)
    if mistake is not None:
        raise UnusableFile("dialect", path, f"has a mistake in line {mistake.line}: {mistake.rule}")
    return tomllib.loads(content)


def find_mistakes(content: str) -> Sequence[Mistake]:
    """Return the mistakes in the file of a dialect, by their lines."""
    table = _parse(content)
    if table is None:
        return [Mistake(line=_find_broken_line(content.split("\n")), rule="the line is not TOML")]
    if not (found := [*check_words(table)]):
        return []
    lines = Lines(content)
    mistakes = [
        Mistake(line=lines.find(*place), rule=f"{clean(shorten('.'.join(filter(None, place)), 200))} {rule}")
        for place, rule in found
    ]
    return sorted(mistakes, key=lambda each: each.line)


def _parse(content: str) -> Mapping[str, object] | None:
    """Return a table of TOML; None if it is not one."""
    if any(line.count(".") > _MOST_DOTS for line in content.split("\n")):
        return None
    try:
        return tomllib.loads(content)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def _find_broken_line(lines: Sequence[str]) -> int:
    """Return the number of a line with which the lines are no TOML, and before which they are."""
    good, broken = 0, len(lines)
    while broken - good > 1:
        middle = (good + broken) // 2
        good, broken = (middle, broken) if _parse("\n".join(lines[:middle])) is not None else (good, middle)
    return broken


class Lines:
    """The lines of the keys of a file that is TOML.

    Args:
        content: the file.
    """

    def __init__(self, content: str) -> None:
        self._lines = dict[_Place, int]()
        head: tuple[str, ...] = ()
        for number, line in enumerate(content.split("\n"), 1):
            if found := _HEAD.match(line):
                key = head = _read_key(found[1])
            elif found := _KEY.match(line):
                key = (*head, *_read_key(found[0]))
            else:
                continue
            section, word, *_ = (*key, "", "")
            self._lines.setdefault((section, ""), number)
            self._lines.setdefault((section, word), number)

    def find(self, section: str, word: str) -> int:
        """Return the line of a key, counted from 1; those of an inline table are all on that of its section."""
        return self._lines.get((section, word)) or self._lines.get((section, ""), 1)


def _read_key(text: str) -> tuple[str, ...]:
    """Return the parts of a key of TOML; nothing if it is within a text of several lines."""
    parts, value = list[str](), dict[str, Any](_parse(f"{text}=0") or {})
    while value:
        ((part, value),) = value.items()
        parts.append(part)
    return tuple(parts)


def check_words(table: Mapping[str, object]) -> Iterator[tuple[_Place, str]]:
    """Yield the section and the key of each mistake, and the rule."""
    name = table.get("name")
    if not isinstance(name, str) or not _FORMS["names"][0].fullmatch(name):
        yield ("name", ""), f"must be a text of {_FORMS['names'][1]}"
    for section, words in table.items():
        if section in SECTIONS and isinstance(words, dict):
            yield from (((section, key), rule) for key, rule in _check_section(section, words))
        elif section != "name":
            yield (section, ""), f"must be one of name, {', '.join(SECTIONS)}; each but the name is a table"


def _check_section(section: str, words: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    form, description = _FORMS[section]
    contract = ContractWords.load()
    known: frozenset[str] = getattr(contract, section)
    if section == "values":
        known = known | contract.other_values
    taken = set[str]()
    for word, other in words.items():
        if not isinstance(other, str) or not form.fullmatch(other):
            yield word, f"must have a text as its value: {description}"
        elif not form.fullmatch(word):
            yield word, f"must be {description}"
        elif section in _CLOSED and word not in known:
            yield word, f"must be one of the contract's {section}"
        elif section in {"paths", "pages"} and sorted(_ID.findall(word)) != sorted(_ID.findall(other)):
            yield word, "must have the same ids in braces as its value"
        elif other in words:
            yield word, "must not have a key of the same table as its value"
        elif (shape := _ID.sub("{}", other)) in taken:
            yield word, "has the value of a key before it"
        elif shape in {_ID.sub("{}", each) for each in known}:
            yield word, f"must not have one of the contract's {section} as its value"
        else:
            taken.add(shape)


_CLOSED = frozenset({"paths", "pages", "headers"})
"""Sections whose words are all known; names and values of other calls may be mapped as well."""
