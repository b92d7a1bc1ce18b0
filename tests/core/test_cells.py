from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest

from svc_async.cells import holds_several, is_missing, is_rounded, stands_for_nothing, to_text


class Number(IntEnum):
    SEVEN = 7


class Word(StrEnum):
    SEVEN = "seven"


@pytest.mark.parametrize("value", [None, float("nan"), Decimal("NaN"), Decimal("sNaN")])
def test_a_missing_value_is_recognised(value: object) -> None:
    assert is_missing(value)
    assert to_text(value) is None


TEXTS: list[tuple[object, str]] = [
    ("", ""),
    (" a", " a"),
    (Word.SEVEN, "seven"),
    (0, "0"),
    (-5, "-5"),
    (Number.SEVEN, "7"),
    (Decimal(12), "12"),
    (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
]


@pytest.mark.parametrize(("value", "text"), TEXTS)
def test_text_and_whole_numbers_are_what_they_say(value: object, text: str) -> None:
    assert not is_missing(value)
    assert to_text(value) == text


OTHERS = [True, 1.0, Decimal("1.0"), Decimal("1E+3"), Decimal("Infinity"), b"a", [], ["a"], {}, object(), 10**5_000]


@pytest.mark.parametrize("value", OTHERS, ids=lambda value: type(value).__name__)
def test_other_values_are_neither_missing_nor_text(value: object) -> None:
    assert not is_missing(value)
    assert to_text(value) is None


@pytest.mark.long("imports numpy and pandas")
def test_values_of_numpy_and_pandas_are_what_they_say() -> None:
    import numpy as np  # noqa: PLC0415 - for this only
    import pandas as pd  # noqa: PLC0415 - for this only

    missing: list[Any] = [np.nan, np.float32("nan"), np.datetime64("NaT"), np.timedelta64("NaT"), pd.NA, pd.NaT]
    texts: list[Any] = [np.str_("7"), np.int8(7), np.uint64(7)]
    others: list[Any] = [np.bool_(True), np.bool_(False), np.float64(7), np.array(7.5), np.array([7]), pd.Timestamp(0)]
    assert not holds_several(np.array(7))

    assert list(map(is_missing, missing)) == [True] * len(missing)
    assert not any(map(is_missing, [*texts, *others]))
    assert list(map(to_text, texts)) == ["7"] * len(texts)
    assert list(map(to_text, [*missing, *others])) == [None] * len([*missing, *others])


@pytest.mark.parametrize(
    "text",
    [
        *("NULL", " nan ", "#N/A", "#¡VALOR!", "--"),
        *("", "None", "NaT", "<NA>", "(null)", "[NULL]", "n/a", "nil", "undefined", r"\N", "(not set)", "-1.#IND", "—"),
        *(
            "#REF!",
            "#DIV/0!",
            "#NAME?",
            "#ÜBERLAUF!",
            "#NV",
            "#N/D",
            "#\u0414/\u0414",
            "#GETTING_DATA",
            "Err:508",
            "###",
        ),
    ],
)
def test_texts_that_stand_for_nothing_are_recognised(text: str) -> None:
    assert stands_for_nothing(text)


@pytest.mark.parametrize("text", ["nancy", "#1", "a-b", "0", "_", "nulls", "#ann", "-.", '","', "Error:508", "ж"])
def test_other_texts_stand_for_themselves(text: str) -> None:
    assert not stands_for_nothing(text)


@pytest.mark.parametrize("text", ["8.05E+11", "805.0", "805,00", "4,4e+11", "1E+5", "-8.05E11", "+491512345678.0"])
def test_numbers_that_a_program_has_rounded_are_recognised(text: str) -> None:
    assert is_rounded(text)


@pytest.mark.parametrize(
    "text", ["805", "805.10", "12e10", "8E11", "1.000", "1.2.0", "+33.1.23.45.67.00", "x.0", "8.05E+"]
)
def test_other_numbers_are_not_rounded(text: str) -> None:
    assert not is_rounded(text)
