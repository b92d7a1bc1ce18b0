import codecs

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_async import InvalidArgument
from svc_async.sources.csv_source import CsvSource
from tests.support.files import Write, rows_of

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
def test_every_unicode_encoding_is_told_from_the_first_bytes(
    write: Write, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    path = write(content)
    for size in (5, 7, 64, 65_536):
        monkeypatch.setattr("svc_async.sources.decoding._BLOCK", size)
        source = CsvSource(path)
        assert rows_of(source) == ROWS
        assert [source.line(position) for position in range(2)] == [2, 5]


def test_no_other_encoding_is_guessed_but_it_can_be_named(write: Write) -> None:
    path = write("email\nzoë@example.org\n".encode("cp1252"))
    with pytest.raises(InvalidArgument, match="is not UTF-8 on line 2: save it as UTF-8, or name its encoding"):
        rows_of(CsvSource(path))
    assert rows_of(CsvSource(path, encoding="cp1252")) == [("zoë@example.org",)]


@pytest.mark.parametrize("encoding", ["nonsense", "base64", "hex", "", "utf\08"])
def test_an_encoding_must_be_one_of_text(write: Write, encoding: str) -> None:
    with pytest.raises(InvalidArgument, match="encoding must be one that Python knows"):
        CsvSource(write("email\n"), encoding=encoding)


def test_a_mark_is_no_part_of_the_header_though_the_encoding_was_named(write: Write) -> None:
    assert rows_of(CsvSource(write(ENCODED["utf-8 with a mark"]), encoding="UTF8")) == ROWS


@settings(max_examples=300)
@given(content=st.one_of(st.binary(max_size=200), st.binary(max_size=60).map(b"email,phone\n".__add__)))
def test_whatever_the_bytes_are_a_file_is_read_or_refused_in_one_way(write: Write, content: bytes) -> None:
    try:
        rows = rows_of(CsvSource(write(content)))
    except InvalidArgument as error:
        assert error.parameter == "file"
    else:
        assert all(isinstance(cell, str) for row in rows for cell in row)
