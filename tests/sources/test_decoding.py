import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async import InvalidArgument, UnusableFile
from svc_async.errors import Hint
from svc_async.sources.csv_source import CsvSource
from tests.support.files import Write, read_rows

TEXT = 'email,handle\r\n"zoë@example.org","two\r\nlines"\r\n\r\n€,😀\r\n'
ROWS = [("zoë@example.org", "two\r\nlines"), ("€", "😀")]
ENCODED = {
    "utf-8": TEXT.encode(),
    "utf-8 with a mark": codecs.BOM_UTF8 + TEXT.encode(),
    "utf-16 little": codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le"),
    "utf-16 big": codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"),
    "utf-16 little without a mark": TEXT.encode("utf-16-le"),
    "utf-16 big without a mark": TEXT.encode("utf-16-be"),
    "utf-32 little": codecs.BOM_UTF32_LE + TEXT.encode("utf-32-le"),
    "utf-32 big without a mark": TEXT.encode("utf-32-be"),
}


@pytest.mark.parametrize("content", ENCODED.values(), ids=ENCODED.keys())
def test_every_unicode_encoding_is_detected_from_the_first_bytes(write: Write, content: bytes) -> None:
    path = write(content)
    for size in (5, 7, 64, 65_536):
        source = CsvSource(path, block_size=size)
        assert read_rows(source) == ROWS
        assert [source.find_line(position) for position in range(2)] == [2, 5]


def test_no_other_encoding_is_guessed_but_it_can_be_named(write: Write) -> None:
    path = write("email\nzoë@example.org\n".encode("cp1252"))
    with pytest.raises(UnusableFile) as caught:
        read_rows(CsvSource(path))
    assert caught.value.hint is Hint.NAME_THE_ENCODING

    assert read_rows(CsvSource(path, encoding="cp1252")) == [("zoë@example.org",)]


@pytest.mark.parametrize("encoding", ["nonsense", "base64", "hex", "", "utf\08"])
def test_an_encoding_must_be_one_of_text(write: Write, encoding: str) -> None:
    with pytest.raises(InvalidArgument, match="encoding must be one that Python knows"):
        CsvSource(write("email\n"), encoding=encoding)


def test_a_mark_is_not_part_of_the_header_even_if_the_encoding_is_named(write: Write) -> None:
    assert read_rows(CsvSource(write(ENCODED["utf-8 with a mark"]), encoding="UTF8")) == ROWS


@pytest.mark.usefixtures("examples")
@given(content=st.one_of(st.binary(max_size=200), st.binary(max_size=60).map(b"email,phone\n".__add__)))
def test_any_bytes_are_read_or_refused_as_an_unusable_file(write: Write, content: bytes) -> None:
    try:
        rows = read_rows(CsvSource(write(content)))
    except UnusableFile as error:
        assert error.parameter == "file"
    else:
        assert all(isinstance(cell, str) for row in rows for cell in row)
