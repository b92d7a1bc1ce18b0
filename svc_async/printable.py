"""Make text from outside safe to show: names, reasons and paths may hold what a terminal or a spreadsheet obeys.

Everything that is printed, logged or written for people goes through `clean`, cells of tables through `clean_cell`.
JSON needs neither: it is written in ASCII, where all of these characters are escaped.
"""

import re
import string
import unicodedata
from collections.abc import Sequence

__all__ = [
    "clean",
    "clean_cell",
    "clean_lines",
    "hide_people",
    "join_first",
    "replace_surrogates",
    "shorten",
    "strip_url",
]

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories: control, format (bidirectional and zero-width), surrogate, line and paragraph separator."""
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
"""Letters and marks of other categories that show nothing."""
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What begins a formula in a spreadsheet; some programs take the full-width forms for the same."""
_LETTERS = f"{string.ascii_letters}{string.digits}_+/=-.@:"
"""What words, hashes, encoded bytes, addresses and most ids consist of."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_USER_INFO = re.compile("//[^/@]*@")
_PERSON = re.compile(
    r"[\w.+%-]{1,64}(?:@|%40|\\u0040|&#64;|&#x40;)[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}|(?:\+|%2B)[1-9][0-9]{7,14}(?![0-9])",
    re.IGNORECASE,
)
"""An e-mail address or a phone number in E.164 form, also as URLs, JSON and HTML escape them."""
_NAMES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def clean(text: str) -> str:
    r"""Return a text on one line, where control and invisible characters are escaped, such as `\x1b` and `\u202e`.

    Line breaks are escaped too, so that a value cannot look like a line of its own.
    """
    if text.isascii() and text.isprintable():
        return text
    unsafe = {each for each in text if unicodedata.category(each) in _UNSAFE or each in _INVISIBLE}
    return "".join(_escape(letter) if letter in unsafe else letter for letter in text)


def clean_lines(text: str) -> str:
    """Return a text like `clean`, but keep its line breaks."""
    return "\n".join(map(clean, text.split("\n")))


def clean_cell(text: str) -> str:
    """Return a text for a cell of a table: like `clean`, and a spreadsheet does not take it for a formula.

    An apostrophe is put before a first character that begins a formula.
    """
    text = clean(text)
    return f"'{text}" if text.startswith(_FORMULA) else text


def shorten(text: str, most: int) -> str:
    """Return a text that is cut after a whole word if it has more characters than this.

    A part of a word is never left: it may be a part of something that is removed as a whole, such as a hash.
    """
    if len(text) <= most:
        return text
    return f"{text[:most].rstrip(_LETTERS).rstrip()}…"


def replace_surrogates(text: str) -> str:
    """Return a text that can be encoded: the replacement character stands for each lone surrogate."""
    return _SURROGATE.sub("\ufffd", text)


def strip_url(url: str) -> str:
    """Return a URL without what may be secret in it: the user, the query and the fragment."""
    return _USER_INFO.sub("//", re.split(r"[?#]", url, maxsplit=1)[0])


def hide_people(text: str) -> str:
    """Return a text with `…` in place of the e-mail addresses and phone numbers in it."""
    return _PERSON.sub("…", text)


def join_first(texts: Sequence[str], most: int = 10) -> str:
    """Return the first of some texts, separated by semicolons, and how many more there are."""
    more = len(texts) - most
    return "; ".join([*texts[:most], *([f"and {more:,} more"] if more > 0 else [])])


def _escape(letter: str) -> str:
    code = ord(letter)
    form = "\\x{:02x}" if code <= 0xFF else "\\u{:04x}" if code <= 0xFFFF else "\\U{:08x}"  # noqa: PLR2004 - sizes of escapes
    return _NAMES.get(letter) or form.format(code)
