# ruff: noqa: RUF001 - letters of other scripts are what is tested
import codecs
import io
import tarfile
import zipfile
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async import InvalidArgument, UnusableFile
from svc_async.errors import Hint
from svc_async.sources.csv_source import CsvSource
from svc_async.sources.detect import open_feed, open_source
from tests.support.errors import at, find_place, has
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
    with pytest.raises(UnusableFile, check=has(hint=Hint.NAME_THE_ENCODING)) as caught:
        read_rows(CsvSource(path))
    assert find_place(caught.value, "line") == 2
    assert "zo" not in caught.value.problem

    assert read_rows(CsvSource(path, encoding="cp1252")) == [("zoë@example.org",)]


@pytest.mark.parametrize("encoding", ["nonsense", "base64", "hex", "", "utf\08"])
def test_an_encoding_must_be_one_of_text(write: Write, encoding: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="encoding")):
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


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
def test_text_in_another_encoding_than_its_name_says_is_still_text(write: Write, encoding: str) -> None:
    path = write("Имя,email\nЖеня,a@b.de\n".encode(encoding))
    with pytest.raises(UnusableFile, check=has(hint=Hint.NAME_THE_ENCODING)):
        open_source(path, encoding="ascii")
    assert read_rows(open_source(path, mapping={"Имя": "-"}, encoding=encoding)) == [("a@b.de",)]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32"])
def test_any_unicode_encoding_is_detected(write: Write, encoding: str) -> None:
    source = open_source(write("E-Mail;Straße\na@b.de;Köln\n".encode(encoding)), mapping={"Strasse": "-"})
    assert read_rows(source) == [("a@b.de",)]


# --- files that are not text


def archive(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in names:
            file.writestr(name, "secret")
    return buffer.getvalue()


def tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as file:
        file.addfile(tarfile.TarInfo("customers.csv"))
    return buffer.getvalue()


OTHERS: Mapping[str, tuple[bytes, str]] = {
    "xlsx": (archive("[Content_Types].xml", "xl/workbook.xml"), "Excel workbook"),
    "xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "Excel 97"),
    "zip": (archive("customers.csv"), "ZIP"),
    "tar": (tar(), "tar archive"),
    "pdf": (b"%PDF-1.7\n", "PDF"),
    "sqlite": (b"SQLite format 3\0" + bytes(90), "SQLite"),
    "rtf": (b"{\\rtf1\\ansi secret}", "RTF"),
    "avro": (b"Obj\x01\x04", "Avro"),
    "arrow": (b"ARROW1\0\0", "Arrow"),
    "lz4": (b"\x04\x22\x4d\x18abc", "LZ4"),
    "web page": (b"<!DOCTYPE html>\n<html>Sign in</html>", "web page"),
    "array": (b'[{"email": "secret"}]\n', "jq"),
}
"""Files of other formats, and how each is called."""


@pytest.mark.parametrize("kind", OTHERS)
def test_a_file_of_another_format_is_named(write: Write, kind: str) -> None:
    content, name = OTHERS[kind]
    with pytest.raises(UnusableFile) as caught:
        open_source(write(content))
    assert name in caught.value.problem
    assert "secret" not in str(caught.value)


PROGRAM = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\0\x3e\0\x01\0\0\0\xb0\x40\0\nK\xf6ln\n" + bytes(90)


@pytest.mark.parametrize("content", [PROGRAM, b"\0\x01email\n" + bytes(range(256))], ids=["program", "any"])
@pytest.mark.parametrize("options", [{}, {"format": "csv"}, {"format": "jsonl"}, {"encoding": "cp1252"}], ids=str)
async def test_a_file_that_is_no_text_is_refused_as_a_whole(
    write: Write, content: bytes, options: Mapping[str, Any]
) -> None:
    with pytest.raises(UnusableFile, check=at(line=None)):
        await open_source(write(content), **options).check()
    with pytest.raises(UnusableFile, check=at(line=None)):
        await open_feed(write(content), **options).check()
