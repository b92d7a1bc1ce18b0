"""Open a source of any format: the format is detected from the content, `-` is standard input."""

import codecs
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any

import attrs

from svc_async.errors import Hint, InvalidArgument
from svc_async.sources.blocks.decoding import describe_other_format
from svc_async.sources.blocks.files import ByteReader, FileInput, Input, SpooledInput, unusable
from svc_async.sources.columns import ColumnMatcher, FoundColumn
from svc_async.sources.product_attributes import PRODUCTS
from svc_async.sources.source import ProductFeed, UserSource
from svc_async.users.names import USERS, VOCABULARY, Vocabulary
from svc_async.value_rules import TEXT, TEXT_BY_TEXT, TEXTS, has_members, one_of, or_none

__all__ = ["STANDARD_INPUT", "detect_format", "list_columns", "open_feed", "open_source"]

STANDARD_INPUT = "-"

_INPUT = has_members("a path, `-` or an input", "name", "size", "open", "check_unchanged", "close")

_PARQUET = b"PAR1"
_SAMPLE_SIZE = 4_096
_LEADING = codecs.BOM_UTF8 + codecs.BOM_UTF16 + b"\0 \t\r\n"
"""Bytes that may precede the first character, in any Unicode encoding."""


@attrs.frozen(kw_only=True)
class _FormatOptions:
    """What a caller says about a file."""

    mapping: Mapping[str, str] | None = attrs.field(validator=or_none(TEXT_BY_TEXT))
    encoding: str | None = attrs.field(validator=or_none(TEXT))
    vocabulary: Vocabulary = attrs.field(validator=VOCABULARY)
    empty: Collection[str]
    header: Sequence[str] | None = attrs.field(validator=or_none(TEXTS))


@attrs.frozen
class _Format:
    """A file format.

    Attributes:
        reader: the class that reads it, as module and name; it is imported when a file of the format is opened.
        takes_encoding: whether the caller may name an encoding; other formats define their own.
        takes_header: whether the caller may name the columns, if the file does not.
        settings: arguments of the reader that are the same for all files.
    """

    reader: str
    takes_encoding: bool = True
    takes_header: bool = False
    settings: Mapping[str, Any] = attrs.field(factory=dict)

    def open(self, file: Input, options: _FormatOptions) -> Any:
        if options.header is not None and not self.takes_header:
            raise InvalidArgument("header", "must be given for CSV only: other formats have names in every file")
        encoding = {"encoding": options.encoding} if self.takes_encoding else {}
        header = {"header": options.header} if self.takes_header else {}
        reader = resolve_name(f"svc_async.sources.{self.reader}")
        settings = {"mapping": options.mapping, "vocabulary": options.vocabulary, "empty": options.empty}
        return reader(file, **settings, **encoding, **header, **self.settings)


_SOURCES: Mapping[str, _Format] = MappingProxyType(
    {
        "csv": _Format("csv_source:CsvSource", takes_header=True),
        "tsv": _Format("csv_source:CsvSource", takes_header=True, settings={"delimiter": "\t"}),
        "jsonl": _Format("json_lines:JsonLinesSource"),
        "parquet": _Format("parquet:ParquetSource", takes_encoding=False),
    }
)
_FEEDS: Mapping[str, _Format] = MappingProxyType(
    {
        "csv": _Format("table_feeds:open_csv_feed", takes_header=True),
        "tsv": _Format("table_feeds:open_csv_feed", takes_header=True, settings={"delimiter": "\t"}),
        "xml": _Format("xml_feed:XmlFeed", takes_encoding=False),
        "jsonl": _Format("table_feeds:open_json_feed"),
        "parquet": _Format("table_feeds:open_parquet_feed", takes_encoding=False),
    }
)
_FIRST_CHARACTERS: Mapping[str, str] = MappingProxyType({"{": "jsonl", "[": "jsonl", "<": "xml"})
"""The first characters of text that is not CSV."""


def open_source(
    file: str | Path | Input,
    *,
    format: str | None = None,  # noqa: A002 - its usual name
    mapping: Mapping[str, str] | None = None,
    encoding: str | None = None,
    vocabulary: Vocabulary = USERS,
    empty: Collection[str] = (),
    header: Sequence[str] | None = None,
) -> UserSource:
    """Open a file of users.

    It may be compressed with gzip, bzip2, xz or (with Python 3.14 or the extra `feeds`) Zstandard.

    Args:
        file: its path, or `-` for standard input, which is stored in an anonymous temporary file while it is used;
            or an input.
        format: `csv`, `tsv`, `jsonl` or `parquet`; detected from the content by default.
        mapping: from names of columns to the service's keys; `-` ignores a column, and `*` stands for all columns
            that are not recognised.
        encoding: any of Python's, if it is not Unicode.
        vocabulary: what columns may contain.
        empty: texts that stand for no value, such as `n/a`, in any case.
        header: the names of the columns of a CSV file that has no header.

    Raises:
        UnusableFile: the message says what is wrong with the file and where, never a value.
        InvalidArgument: an option cannot be used.
    """
    options = _FormatOptions(mapping=mapping, encoding=encoding, vocabulary=vocabulary, empty=empty, header=header)
    source: UserSource = _open(_SOURCES, file, format, options)
    return source


def list_columns(
    file: str | Path,
    *,
    format: str | None = None,  # noqa: A002 - its usual name
    mapping: Mapping[str, str] | None = None,
    encoding: str | None = None,
    vocabulary: Vocabulary = USERS,
) -> Sequence[FoundColumn]:
    """Return the columns of a file of users, with what each contains or may contain.

    Args:
        file: as in `open_source`; columns need not be recognised or mapped.
        format: as in `open_source`.
        mapping: as in `open_source`.
        encoding: as in `open_source`.
        vocabulary: what columns may contain.

    Raises:
        UnusableFile: the file cannot be read.
        InvalidArgument: an option cannot be used.
    """
    VOCABULARY.check("vocabulary", vocabulary)
    any_names = attrs.evolve(vocabulary, lenient=True, optional=True)
    options = _FormatOptions(mapping=mapping, encoding=encoding, vocabulary=any_names, empty=(), header=None)
    with closing(_open(_SOURCES, file, format, options)) as source:
        return ColumnMatcher(
            source.name, source.names, mapping or {}, partial(unusable, source.name), vocabulary
        ).find_columns()


def open_feed(
    file: str | Path | Input,
    *,
    format: str | None = None,  # noqa: A002 - its usual name
    mapping: Mapping[str, str] | None = None,
    encoding: str | None = None,
    vocabulary: Vocabulary = PRODUCTS,
    empty: Collection[str] = (),
    header: Sequence[str] | None = None,
) -> ProductFeed:
    """Open a product feed of a merchant.

    Args:
        file: as in `open_source`.
        format: `csv`, `tsv`, `xml`, `jsonl` or `parquet`; detected from the content by default.
        mapping: from names of columns or elements to attributes of products; `-` ignores one.
        encoding: any of Python's, if it is not Unicode; XML declares its own.
        vocabulary: what columns may contain.
        empty: texts that stand for no value, such as `n/a`, in any case.
        header: the names of the columns of a CSV file that has no header.

    Raises:
        UnusableFile: the message says what is wrong with the file and where, never a value.
        InvalidArgument: an option cannot be used.
    """
    options = _FormatOptions(mapping=mapping, encoding=encoding, vocabulary=vocabulary, empty=empty, header=header)
    feed: ProductFeed = _open(_FEEDS, file, format, options)
    return feed


def _open(
    formats: Mapping[str, _Format],
    file: str | Path | Input,
    chosen: str | None,
    options: _FormatOptions,
) -> Any:
    or_none(one_of([*formats])).check("format", chosen)
    source = _open_input(file)
    try:
        return formats[chosen or _detect_format(source, formats)].open(source, options)
    except BaseException:
        source.close()
        raise


def _open_input(file: str | Path | Input) -> Input:
    if not isinstance(file, str | Path):
        _INPUT.check("file", file)
        return file
    return SpooledInput(sys.stdin.buffer) if str(file) == STANDARD_INPUT else FileInput(file)


def detect_format(file: Input, *, feed: bool = False) -> str:
    """Return the format of a file of users, or of a product feed.

    Raises:
        UnusableFile: it cannot be read, or is of another format.
    """
    return _detect_format(file, _FEEDS if feed else _SOURCES)


def _detect_format(source: Input, formats: Collection[str]) -> str:
    with ByteReader(source) as file:
        sample = file.read(_SAMPLE_SIZE)
    other = describe_other_format(sample)
    if other is not None:
        raise unusable(source.name, other)
    character = sample.lstrip(_LEADING)[:1].decode("latin-1")
    found = "parquet" if sample.startswith(_PARQUET) else _FIRST_CHARACTERS.get(character, "csv")
    if found == "xml" and found not in formats and b"<html" in sample.lower():
        raise unusable(source.name, "is a web page: was it downloaded without signing in?")
    if found not in formats:
        hint = Hint.USE_A_FEED if found in _FEEDS else None
        raise unusable(source.name, f"is {found}, but must be one of {', '.join(formats)}", hint)
    return found
