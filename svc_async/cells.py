"""Plain values of cells: missing, text, or a text that stands for nothing or for a rounded number.

Rows come from files, from tables of Arrow, pandas and numpy, and from mappings. What is asked here of a value is the
same whichever it came from, and imports none of these libraries.
"""

import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from operator import index
from typing import TypeGuard
from uuid import UUID

__all__ = ["NOTHINGS", "holds_several", "is_missing", "is_rounded", "stands_for_nothing", "to_text"]

_MAX_BITS = 256
"""Of an integer; Python writes those of more than 4,300 digits only on request."""


def holds_several(value: object) -> TypeGuard[Collection[object]]:
    """Return whether a value is a list of values, or another collection of them, and not one value, such as bytes."""
    if isinstance(value, str | bytes | bytearray | memoryview | Mapping) or not isinstance(value, Collection):
        return False
    try:
        return len(value) >= 0
    except TypeError:  # an array of numpy without dimensions
        return False


def is_missing(value: object) -> bool:
    """Return whether a value is None, or what else stands for a missing value: NaN, `pandas.NA`, NaT."""
    if value is None:
        return True
    if isinstance(value, str | int | Collection):
        return False
    try:
        differs = value != value  # noqa: PLR0124 - NaN and NaT differ from themselves
    except ArithmeticError:  # a signalling NaN of decimal
        return True
    except Exception:  # noqa: BLE001 - whatever a value raises that cannot be compared
        return False
    try:
        return bool(differs)
    except TypeError:  # pandas.NA != pandas.NA is pandas.NA, which is neither true nor false
        return differs is value


def to_text(value: object) -> str | None:
    """Return the text of a value that is text or a whole number, and None for any other one.

    A float is refused even if it is whole: it may be a number that has been rounded.
    A Decimal without decimal places is what databases return for the ids of a column NUMERIC.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool | Collection):
        return None
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Decimal):
        return str(value) if value.is_finite() and value.as_tuple().exponent == 0 else None
    try:
        number = index(value)  # type: ignore[arg-type]  # of numpy as well; what has none is refused
    except TypeError:
        return None
    return str(number) if number.bit_length() <= _MAX_BITS else None


NOTHINGS = frozenset(
    {
        *("null", "none", "nan", "nat", "na", "n/a", "n.a.", "nil", "undefined", "#n/a n/a", r"\n"),
        *(f"{left}{word}{right}" for left, right in ("()", "<>", "[]") for word in ("null", "none", "na", "nil")),
        *("(blank)", "(empty)", "(not set)", "[object object]", "-nan", "1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan"),
    }
)
r"""What programs, databases and spreadsheets write for no value, in lower case: `NULL`, `NaT`, `<NA>`, `\N`."""
_is_error_value = re.compile(
    r"#[¡¿]?[^\W\d_][\w/ ]*[!?]"  # #REF!, #DIV/0!, #NAME?, #¡VALOR!: in the language of whoever saved the file
    r"|#[^\W\d_]/[^\W\d_]!?"  # #N/A, #N/D, #I/T
    r"|#(?:nv|na|yok|puuttuu|saknas|hiányzik|getting_data)"
    r"|err:[0-9]{3}",  # of LibreOffice
    re.IGNORECASE,
).fullmatch
_is_one_mark = re.compile(r"(\W)\1*").fullmatch  # -, ???, ####
_is_rounded = re.compile(
    r"[+-]?[0-9]+(?:[.,]0{1,2}|[.,][0-9]+[eE]\+?[0-9]{1,3}|[eE]\+[0-9]{1,3})"  # 12e10 may be an id
).fullmatch


def stands_for_nothing(text: str) -> bool:
    """Return whether a text says that there is no value: a word such as `NULL`, an error value, a dash.

    It is compared without case and surrounding blanks. Blank text stands for nothing as well.
    """
    text = text.strip()
    return not text or text.lower() in NOTHINGS or bool(_is_error_value(text) or _is_one_mark(text))


def is_rounded(text: str) -> bool:
    """Return whether a program has written an id, or a phone number, as a quantity: `8.05E+11`, `805.0`, `805,00`."""
    return _is_rounded(text.strip()) is not None
