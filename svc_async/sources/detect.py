"""One way to open a source, whatever it is: the format is told from the content, `-` is standard input."""

import codecs
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs

from svc_async.errors import InvalidArgument
from svc_async.sources.columns import PEOPLE, Vocabulary
from svc_async.sources.csv_feed import CsvFeed
from svc_async.sources.csv_source import CsvSource
from svc_async.sources.files import Bytes, FileInput, Input, SpooledInput, refused
from svc_async.sources.json_lines import JsonLinesSource
from svc_async.sources.parquet import ParquetSource
from svc_async.sources.product_attributes import PRODUCTS
from svc_async.sources.source import Feed, Source
from svc_async.sources.xml_feed import XmlFeed

__all__ = ["STANDARD_INPUT", "open_feed", "open_source"]

STANDARD_INPUT = "-"

_PARQUET = b"PAR1"
_LOOK = 512
_BEFORE = codecs.BOM_UTF8 + codecs.BOM_UTF16 + b"\0 \t\r\n"
"""Bytes that may stand before the first letter, in any Unicode encoding."""


@attrs.frozen(kw_only=True)
class _Settings:
    """What a format may need to know."""

    mapping: Mapping[str, str] | None
    encoding: str | None
    vocabulary: Vocabulary

    def csv(self, file: Input, make: Callable[..., Any], delimiter: str | None) -> Any:
        return make(file, mapping=self.mapping, encoding=self.encoding, delimiter=delimiter, vocabulary=self.vocabulary)

    def jsonl(self, file: Input) -> JsonLinesSource:
        return JsonLinesSource(file, mapping=self.mapping, encoding=self.encoding, vocabulary=self.vocabulary)

    def parquet(self, file: Input) -> ParquetSource:
        return ParquetSource(file, mapping=self.mapping, vocabulary=self.vocabulary)

    def xml(self, file: Input) -> XmlFeed:
        return XmlFeed(file, mapping=self.mapping, vocabulary=self.vocabulary)


_SOURCES: Mapping[str, Callable[[_Settings, Input], Source]] = MappingProxyType(
    {
        "csv": lambda settings, file: settings.csv(file, CsvSource, None),
        "tsv": lambda settings, file: settings.csv(file, CsvSource, "\t"),
        "jsonl": _Settings.jsonl,
        "parquet": _Settings.parquet,
    }
)
_FEEDS: Mapping[str, Callable[[_Settings, Input], Feed]] = MappingProxyType(
    {
        "csv": lambda settings, file: settings.csv(file, CsvFeed, None),
        "tsv": lambda settings, file: settings.csv(file, CsvFeed, "\t"),
        "xml": _Settings.xml,
    }
)
_FIRST: Mapping[str, str] = MappingProxyType({"{": "jsonl", "[": "jsonl", "<": "xml"})
"""What a text begins with that is no CSV."""


def open_source(
    file: str | Path,
    *,
    format: str | None = None,  # noqa: A002 - what people call it
    mapping: Mapping[str, str] | None = None,
    encoding: str | None = None,
    vocabulary: Vocabulary = PEOPLE,
) -> Source:
    """Open a file of people.

    It may be compressed with gzip, bzip2, xz or (with Python 3.14 or the extra `feeds`) Zstandard.

    Args:
        file: its path, or `-` for standard input, which is kept in a file without a name while it is used.
        format: `csv`, `tsv`, `jsonl` or `parquet`; told from the content, if not given.
        mapping: from names of columns to the service's keys; `-` ignores a column, and `*` stands for all columns
            that are not known.
        encoding: any of Python's, if it is not Unicode.
        vocabulary: what columns may hold.

    Raises:
        InvalidArgument: names the file, and what is wrong with it and where, never a value.
    """
    source: Source = _open(_SOURCES, file, format, _Settings(mapping=mapping, encoding=encoding, vocabulary=vocabulary))
    return source


def open_feed(
    file: str | Path,
    *,
    format: str | None = None,  # noqa: A002 - what people call it
    mapping: Mapping[str, str] | None = None,
    encoding: str | None = None,
    vocabulary: Vocabulary = PRODUCTS,
) -> Feed:
    """Open a merchant's feed of products.

    Args:
        file: as for `open_source`.
        format: `csv`, `tsv` or `xml`; told from the content, if not given.
        mapping: from names of columns or elements to attributes of products; `-` ignores one.
        encoding: any of Python's, if it is not Unicode; XML names its own.
        vocabulary: what columns may hold.

    Raises:
        InvalidArgument: names the file, and what is wrong with it and where, never a value.
    """
    feed: Feed = _open(_FEEDS, file, format, _Settings(mapping=mapping, encoding=encoding, vocabulary=vocabulary))
    return feed


def _open(
    formats: Mapping[str, Callable[[_Settings, Input], Any]], file: str | Path, chosen: str | None, settings: _Settings
) -> Any:
    if chosen is not None and chosen not in formats:
        raise InvalidArgument("format", f"must be one of {', '.join(formats)}")
    source: Input = SpooledInput(sys.stdin.buffer) if str(file) == STANDARD_INPUT else FileInput(Path(file))
    try:
        return formats[chosen or _format_of(source, formats)](settings, source)
    except BaseException:
        source.close()
        raise


def _format_of(source: Input, formats: Collection[str]) -> str:
    with Bytes(source) as file:
        first = file.read(_LOOK)
    letter = first.lstrip(_BEFORE)[:1].decode("latin-1")
    found = "parquet" if first.startswith(_PARQUET) else _FIRST.get(letter, "csv")
    if found not in formats:
        raise refused(source.name, f"is {found}, but must be one of {', '.join(formats)}")
    return found
