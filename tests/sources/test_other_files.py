# ruff: noqa: RUF001 - letters of other scripts are what is tested
"""Files as people have them: from spreadsheets, without a header, in other formats."""

import io
import tarfile
import zipfile
from collections.abc import Mapping
from typing import Any

import pytest

from svc_async import InvalidArgument, UnusableFile
from svc_async.errors import Hint
from svc_async.sources.columns import FoundColumn
from svc_async.sources.detect import list_columns, open_feed, open_source
from tests.support.files import Write, read_rows


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
    "xlsx": (
        archive("[Content_Types].xml", "xl/workbook.xml"),
        r"is an Excel workbook \(.xlsx\): save the sheet as CSV",
    ),
    "xls": (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
        "is a workbook of Excel 97 to 2003: save the sheet as CSV",
    ),
    "zip": (archive("customers.csv"), "is a ZIP archive: extract the file that it contains"),
    "tar": (tar(), "is a tar archive: extract the file"),
    "pdf": (b"%PDF-1.7\n", "is a PDF: export the data as CSV"),
    "sqlite": (b"SQLite format 3\0" + bytes(90), "is a SQLite database: pass the rows of a query"),
    "rtf": (b"{\\rtf1\\ansi secret}", "is a document in RTF"),
    "avro": (b"Obj\x01\x04", "is an Avro file: convert it"),
    "arrow": (b"ARROW1\0\0", "is a file of Arrow or Feather: convert it to Parquet"),
    "lz4": (b"\x04\x22\x4d\x18abc", "is compressed with LZ4"),
    "web page": (b"<!DOCTYPE html>\n<html>Sign in</html>", "is a web page: was it downloaded without signing in"),
    "array": (b'[{"email": "secret"}]\n', "on line 1; write one object on each line, as jq"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_file_of_another_format_is_named_with_what_to_do(write: Write, kind: str) -> None:
    content, expected = OTHERS[kind]
    with pytest.raises(UnusableFile, match=expected) as caught:
        open_source(write(content))
    assert "secret" not in str(caught.value)


PROGRAM = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\0\x3e\0\x01\0\0\0\xb0\x40\0\nK\xf6ln\n" + bytes(90)
NO_TEXT = "is no text file; CSV, TSV, JSON lines and Parquet are read"


@pytest.mark.parametrize("content", [PROGRAM, b"\0\x01email\n" + bytes(range(256))], ids=["program", "any"])
@pytest.mark.parametrize("options", [{}, {"format": "csv"}, {"format": "jsonl"}, {"encoding": "cp1252"}], ids=str)
async def test_a_file_that_is_no_text_is_called_so(write: Write, content: bytes, options: Mapping[str, Any]) -> None:
    with pytest.raises(UnusableFile, match=NO_TEXT):
        await open_source(write(content), **options).check()
    with pytest.raises(UnusableFile, match=NO_TEXT):
        await open_feed(write(content), **options).check()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
def test_text_in_another_encoding_than_its_name_says_is_still_text(write: Write, encoding: str) -> None:
    path = write("Имя,email\nЖеня,a@b.de\n".encode(encoding))
    with pytest.raises(UnusableFile, match="on line 1; save it as UTF-8, or name its encoding"):
        open_source(path, encoding="ascii")
    assert read_rows(open_source(path, mapping={"Имя": "-"}, encoding=encoding)) == [("a@b.de",)]


@pytest.mark.parametrize("line", ["sep=;\r\n", '"sep=;"\n', "sep=;\n"])
def test_the_line_with_the_separator_is_no_header(write: Write, line: str) -> None:
    source = open_source(write(f"{line}E-Mail-Adresse;Telefon\na@b.de;+49301234567\n\nc,d@b.de\n"))
    assert read_rows(source) == [("a@b.de", "+49301234567"), ("c,d@b.de", "")]
    assert [source.find_line(position) for position in range(2)] == [3, 5]
    feed = open_feed(write(f"{line}id;title\n1;a,b\n"))
    assert list(feed.products()) == [{"id": "1", "title": "a,b"}]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32"])
def test_any_unicode_encoding_is_detected(write: Write, encoding: str) -> None:
    source = open_source(write("E-Mail;Straße\na@b.de;Köln\n".encode(encoding)), mapping={"Strasse": "-"})
    assert read_rows(source) == [("a@b.de",)]


def test_the_encoding_of_windows_is_proposed(write: Write) -> None:
    path = write("email;city\na@b.de;Köln\n".encode("cp1252"))
    with pytest.raises(UnusableFile, match="is not UTF-8 on line 2, probably cp1252; ") as caught:
        open_source(path, mapping={"*": "-"})
    assert caught.value.hint is Hint.NAME_THE_ENCODING
    assert "K" not in caught.value.problem.replace("UTF-8", "")
    assert read_rows(open_source(path, mapping={"*": "-"}, encoding="cp1252")) == [("a@b.de",)]


async def test_the_names_of_a_file_without_a_header_can_be_given(write: Write) -> None:
    path = write("a@b.de;+49301234567;x\nc@b.de;;y\n")
    with pytest.raises(UnusableFile) as caught:
        open_source(path)
    assert caught.value.hint is Hint.NAME_THE_COLUMNS
    source = open_source(path, header=["email", "phone", "note"], mapping={"note": "-"})
    assert read_rows(source) == [("a@b.de", "+49301234567"), ("c@b.de", "")]
    assert source.find_line(0) == 1
    other = open_source(path, header=["email", "note", "phone"], mapping={"note": "-"})
    assert await source.fingerprint() != await other.fingerprint()
    assert list(open_feed(write("1,Boots\n"), header=["id", "title"]).products()) == [{"id": "1", "title": "Boots"}]
    with pytest.raises(InvalidArgument, match="header must be given for CSV only"):
        open_source(write('{"email": "a@b.de"}\n'), header=["email"])


@pytest.mark.parametrize(
    "content",
    ["Kunden-Mail;Telefon;Ort;email\n", '{"Kunden-Mail": 1, "Telefon": 2, "Ort": 3, "email": 4}\n'],
)
def test_columns_are_listed_with_proposals(write: Write, content: str) -> None:
    assert list_columns(write(content), mapping={"email": "-"}) == [
        FoundColumn("Kunden-Mail", None, "email"),
        FoundColumn("Telefon", "phone_number"),
        FoundColumn("Ort", None),
        FoundColumn("email", "-"),
    ]


def test_columns_are_listed_although_none_is_recognised(write: Write) -> None:
    assert list_columns(write("Ort,Ort\n")) == [FoundColumn("Ort", None)] * 2
