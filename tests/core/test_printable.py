import unicodedata
from collections.abc import Sequence

import pytest

from svc_async.errors import BadRequest, ErrorDetail, InvalidArgument
from svc_async.printable import clean, clean_cell, clean_lines, shorten

UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.mark.parametrize(
    "planes",
    [
        pytest.param((0,), id="basic"),
        pytest.param(
            (1, 2, 3, 14), id="others", marks=pytest.mark.long
        ),  # what is left has no characters, or private ones
    ],
)
def test_no_control_or_format_character_of_unicode_is_left(planes: Sequence[int]) -> None:
    everything = "".join(chr(plane << 16 | number) for plane in planes for number in range(1 << 16))
    assert not {letter for letter in clean(everything) if unicodedata.category(letter) in UNSAFE}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b31m", "\\x9b31m"),
        ("\x7f", "\\x7f"),
        ("a\r\n\tb", "a\\r\\n\\tb"),
        ("invoice\u202efdp.exe", "invoice\\u202efdp.exe"),
        ("\u200bzero\u2028width", "\\u200bzero\\u2028width"),
        ("\U000e0041", "\\U000e0041"),
        ("caf\udce9.csv", "caf\\udce9.csv"),
        ("\u3164", "\\u3164"),
        ("Łódź 東京 naïve 🙂", "Łódź 東京 naïve 🙂"),
        ("back\\slash", "back\\slash"),
    ],
)
def test_what_is_not_visible_is_escaped_and_what_is_stays(text: str, expected: str) -> None:
    assert clean(text) == expected


def test_line_breaks_stay_in_a_text_of_several_lines() -> None:
    assert clean_lines("one\ntwo\x1b\r\nthree") == "one\ntwo\\x1b\\r\nthree"


@pytest.mark.parametrize("text", ["=HYPER(1)", "+1", "-1+1", "@SUM(A1)", "\uff1d1", "\uff0b1", "\uff0d1", "\uff201"])
def test_a_cell_is_no_formula(text: str) -> None:
    assert clean_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["\t=1", "\r=1", "\n=1"])
def test_a_cell_does_not_hide_a_formula_behind_white_space(text: str) -> None:
    assert clean_cell(text) == repr(text)[1:-1]


def test_other_cells_stay_as_they_are() -> None:
    assert clean_cell("must be an e-mail address: a=b") == "must be an e-mail address: a=b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ten chars.", "ten chars."),
        ("some more words", "some more…"),
        ("some more+words=", "some…"),
        ("some, more.words", "some,…"),
        ("0123456789abcdef", "…"),
        ("これは空白のない文章です", "これは空白のない文章…"),
    ],
)
def test_a_text_is_cut_after_a_whole_word(text: str, expected: str) -> None:
    assert shorten(text, 11 if " " in text else 10) == expected


def test_the_message_of_an_error_is_clean_and_its_fields_are_as_they_came() -> None:
    error = BadRequest(status=400, errors=[ErrorDetail(code="X", message="a\x1b[2J\u202eb\nc")])
    assert str(error) == "HTTP 400: X a\\x1b[2J\\u202eb\\nc"
    assert error.errors[0].message == "a\x1b[2J\u202eb\nc"
    assert str(InvalidArgument("report", "must not be \x9b.csv")) == "report must not be \\x9b.csv"
