"""Open a source of any format: the format is detected from the content, `-` is standard input."""

import codecs
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any

import attrs

from svc_async.errors import Hint, InvalidArgument
from svc_async.run_files import describe_run_file
from svc_async.sources.blocks.decoding import describe_other_format
from svc_async.sources.blocks.files import ByteReader, FileInput, Input, SpooledInput, unusable
from svc_async.sources.columns import PREFIX, ColumnMatcher, FoundColumn
from svc_async.sources.file_source import FileSource, TableSource
from svc_async.sources.product_attributes import PRODUCTS
from svc_async.users.names import USERS, VOCABULARY, Vocabulary
from svc_async.value_rules import TEXT, TEXT_BY_TEXT, TEXTS, instance_of, one_of, or_none

__all__ = [
    "STANDARD_INPUT",
    "describe_unread",
    "detect_format",
    "list_columns",
    "open_feed",
    "open_source",
    "read_sample",
]

STANDARD_INPUT = "-"

_INPUT = instance_of(Input, "a path, `-` or an input")

_PARQUET = (b"PAR1", b"PARE")  # the second if it is encrypted as a whole
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
        takes: which of `encoding` and `header` the caller may give; other formats define their own.
        settings: arguments of the reader that are the same for all files.
    """

    reader: str
    takes: Collection[str] = ()
    settings: Mapping[str, Any] = attrs.field(factory=dict)

    def open(self, file: Input, options: _FormatOptions) -> Any:
        if options.header is not None and "header" not in self.takes:
            raise InvalidArgument("header", "must be given for CSV only: other formats have names in every file")
        given = {name: getattr(options, name) for name in ("mapping", "vocabulary", "empty", *self.takes)}
        reader = resolve_name(f"svc_async.sources.{self.reader}")
        return reader(file, **given, **self.settings)


def _strip_prefix(name: str) -> str:
    """Remove the prefix that attributes have in XML."""
    return name.strip().removeprefix(PREFIX).removeprefix(PREFIX.upper())


_CSV = _Format("csv_source:CsvSource", ("encoding", "header"))
_SOURCES: Mapping[str, _Format] = MappingProxyType(
    {
        "csv": _CSV,
        "tsv": attrs.evolve(_CSV, settings={"delimiter": "\t"}),
        "jsonl": _Format("json_lines:JsonLinesSource", ("encoding",)),
        "parquet": _Format("parquet:ParquetSource"),
    }
)
_FEEDS: Mapping[str, _Format] = MappingProxyType(
    {
        **_SOURCES,
        "csv": attrs.evolve(_CSV, settings={"clean_name": _strip_prefix}),
        "tsv": attrs.evolve(_CSV, settings={"clean_name": _strip_prefix, "delimiter": "\t"}),
        "xml": _Format("xml_feed:XmlFeed"),
    }
)
_is_web_page = re.compile(
    rb"[^<]*(?:<(?:\?[^>]*|!--.*?--)>\s*)*+<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL
).match
"""Matches the beginning of a page, after a declaration and comments."""
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
) -> TableSource:
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
    source: TableSource = _open(file, format, options)
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
    with closing(_open(file, format, options)) as source:
        return ColumnMatcher(source.name, source.names, mapping or {}, source.refuse, vocabulary).find_columns()


def open_feed(
    file: str | Path | Input,
    *,
    format: str | None = None,  # noqa: A002 - its usual name
    mapping: Mapping[str, str] | None = None,
    encoding: str | None = None,
    vocabulary: Vocabulary = PRODUCTS,
    empty: Collection[str] = (),
    header: Sequence[str] | None = None,
) -> FileSource:
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
    feed: FileSource = _open(file, format, options, feed=True)
    return feed


def _open(file: str | Path | Input, chosen: str | None, options: _FormatOptions, *, feed: bool = False) -> Any:
    formats = _FEEDS if feed else _SOURCES
    or_none(one_of([*formats])).check("format", chosen)
    if isinstance(file, str | Path):
        file = SpooledInput(sys.stdin.buffer) if str(file) == STANDARD_INPUT else FileInput(file)
    _INPUT.check("file", file)
    try:
        return formats[detect_format(file, chosen=chosen, feed=feed)].open(file, options)
    except BaseException:
        file.close()
        raise


def read_sample(file: Input) -> bytes:
    """Return how the content of a file begins, decompressed.

    Raises:
        UnusableFile: it cannot be read.
    """
    with ByteReader(file) as reader:
        return reader.read(_SAMPLE_SIZE)


def describe_unread(sample: bytes) -> str | None:
    """Return why a file that begins so is not a source of rows, and is left out among several; else None."""
    return describe_run_file(sample) if sample else "is empty"


def detect_format(file: Input, *, chosen: str | None = None, feed: bool = False) -> str:
    """Return the format of a file of users, or of a product feed.

    Args:
        file: the file.
        chosen: its format as the caller says, which is not checked.
        feed: whether it is a feed.

    Raises:
        UnusableFile: it cannot be read, is empty, is a file that a run has left, or is of another format.
    """
    formats = _FEEDS if feed else _SOURCES
    sample = read_sample(file)
    problem = describe_unread(sample) or (None if chosen else describe_other_format(sample))
    if problem is not None:
        raise unusable(file.name, problem)
    if chosen is not None:
        return chosen
    character = sample.lstrip(_LEADING)[:1].decode("latin-1")
    found = "parquet" if sample.startswith(_PARQUET) else _FIRST_CHARACTERS.get(character, "csv")
    plain = sample.replace(b"\0", b"")  # of UTF-16
    if found == "xml" and (_is_web_page(plain) or (found not in formats and b"<html" in plain.lower())):
        raise unusable(file.name, "is a web page: was it downloaded without signing in?")
    if found not in formats:
        raise unusable(file.name, f"is {found}, but must be one of {', '.join(formats)}", Hint.USE_A_FEED)
    return found
