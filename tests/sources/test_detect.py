import gzip
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from svc_async import InvalidArgument, UnusableFile
from svc_async.errors import Hint
from svc_async.sources.columns import FoundColumn
from svc_async.sources.csv_source import CsvSource
from svc_async.sources.detect import list_columns, open_feed, open_source
from svc_async.sources.json_lines import JsonLinesSource
from svc_async.sources.parquet import ParquetSource
from svc_async.sources.xml_feed import XmlFeed
from svc_async.users.names import USERS
from tests.support.errors import at, has
from tests.support.files import COMPRESSIONS, Write, iter_rows, read_rows

CSV = b"email\na@b.c\n"
JSONL = json.dumps({"email": "a@b.c"}).encode()


class _Stdin:
    def __init__(self, content: bytes) -> None:
        self.buffer = io.BytesIO(content)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        pytest.param(CSV, CsvSource, id="csv"),
        pytest.param(gzip.compress(CSV), CsvSource, id="compressed csv"),
        pytest.param(b"\n " + JSONL, JsonLinesSource, id="jsonl"),
        pytest.param(JSONL.decode().encode("utf-16"), JsonLinesSource, id="jsonl in utf-16"),
        pytest.param(gzip.compress(JSONL), JsonLinesSource, id="compressed jsonl"),
    ],
)
def test_the_format_is_detected_from_the_content_and_not_from_the_name(
    write: Write, monkeypatch: pytest.MonkeyPatch, content: bytes, kind: type
) -> None:
    source = open_source(write(content, "customers.txt"))
    assert isinstance(source, kind)
    monkeypatch.setattr(sys, "stdin", _Stdin(content))
    piped = open_source("-")
    assert isinstance(piped, kind)
    assert piped.name == "standard input"
    assert read_rows(source) == read_rows(piped)
    piped.close()


def test_parquet_is_detected_from_its_content(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"email": ["a@b.c"]}), tmp_path / "x")
    assert isinstance(open_source(tmp_path / "x"), ParquetSource)


def test_feeds_are_detected_from_their_content(write: Write) -> None:
    assert isinstance(open_feed(write("id\n1\n", "a")), CsvSource)
    assert isinstance(open_feed(write("\ufeff\n<rss/>", "b")), XmlFeed)


def test_a_format_can_be_named(write: Write) -> None:
    assert read_rows(open_source(write("email;x\thandle\na\tb\n"), format="tsv", mapping={"email;x": "email"})) == [
        ("a", "b")
    ]
    with pytest.raises(UnusableFile, check=at(line=1)):
        open_source(write(CSV), format="jsonl")
    with pytest.raises(InvalidArgument, check=has(parameter="format")):
        open_source(write(CSV), format="xml")
    with pytest.raises(InvalidArgument, check=has(parameter="format")):
        open_feed(write(CSV), format="json")


@pytest.mark.parametrize("format_", [None, "csv", "jsonl"])
@pytest.mark.parametrize("compress", [pytest.param(each, id=name) for name, each in COMPRESSIONS.items()])
def test_a_compressed_file_without_content_is_empty(
    write: Write, compress: Callable[[bytes], bytes], format_: str | None
) -> None:
    with pytest.raises(UnusableFile) as plain:
        open_source(write(b""), format=format_)
    for open_ in (open_source, open_feed):
        with pytest.raises(UnusableFile, check=has(problem=plain.value.problem)):
            open_(write(compress(b"")), format=format_)


def test_a_feed_is_not_a_user_file(write: Write) -> None:
    with pytest.raises(UnusableFile, check=has(hint=Hint.USE_A_FEED)):
        open_source(write("<rss/>"))


def test_a_list_may_accept_fewer_identifiers(write: Write) -> None:
    vocabulary = USERS.restrict_to(["email", "phone_number"])
    with pytest.raises(UnusableFile, check=has(hint=Hint.MAP_OR_IGNORE)):
        open_source(write("email,handle\n"), vocabulary=vocabulary)

    assert open_source(write(JSONL), vocabulary=vocabulary).columns == ("email", "phone_number")


def test_a_refused_source_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", _Stdin(b"nothing known\n"))
    with pytest.raises(UnusableFile, check=has(path="standard input", hint=Hint.MAP_A_COLUMN)):
        open_source("-")


def test_closing_releases_a_file_that_was_not_read_to_its_end(write: Write) -> None:
    for path in (write(JSONL + b"\n", "a"), write(CSV, "b")):
        source = open_source(path)
        rows = iter_rows(source)
        next(rows)
        source.close()
        assert list(rows) == []
        assert not source.exhausted
    feed = open_feed(write(f"<feed>{'<entry/>' * 50_000}</feed>", "c"))
    products = iter(feed.products())
    next(products)
    feed.close()

    assert len(list(products)) < 25_000
    assert not feed.exhausted


@pytest.mark.parametrize("line", ["sep=;\r\n", '"sep=;"\n', "sep=;\n"])
def test_the_line_with_the_separator_is_no_header(write: Write, line: str) -> None:
    source = open_source(write(f"{line}E-Mail-Adresse;Telefon\na@b.de;+49301234567\n\nc,d@b.de\n"))
    assert read_rows(source) == [("a@b.de", "+49301234567"), ("c,d@b.de", "")]
    assert [source.find_line(position) for position in range(2)] == [3, 5]
    feed = open_feed(write(f"{line}id;title\n1;a,b\n"))
    assert list(feed.products()) == [{"id": "1", "title": "a,b"}]


async def test_the_names_of_a_file_without_a_header_can_be_given(write: Write) -> None:
    path = write("a@b.de;+49301234567;x\nc@b.de;;y\n")
    with pytest.raises(UnusableFile, check=has(hint=Hint.NAME_THE_COLUMNS)):
        open_source(path)
    source = open_source(path, header=["email", "phone", "note"], mapping={"note": "-"})
    assert read_rows(source) == [("a@b.de", "+49301234567"), ("c@b.de", "")]
    assert source.find_line(0) == 1
    other = open_source(path, header=["email", "note", "phone"], mapping={"note": "-"})
    assert await source.fingerprint() != await other.fingerprint()
    assert list(open_feed(write("1,Boots\n"), header=["id", "title"]).products()) == [{"id": "1", "title": "Boots"}]
    with pytest.raises(InvalidArgument, check=has(parameter="header")):
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
