"""Formats of files that are not read, recognised by their first bytes to say what to do instead."""

import codecs
import re
from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["describe_other_format", "is_binary"]

_EXPORT = "save the sheet as CSV (UTF-8)"
_UNPACK = "extract the file that it contains"
_ZIP = b"PK\x03\x04"
_TAR_AT = 257
_BY_START: Mapping[bytes, str] = MappingProxyType(
    {
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": f"is a workbook of Excel 97 to 2003: {_EXPORT}",
        b"%PDF-": "is a PDF: export the data as CSV",
        b"SQLite format 3\0": "is a SQLite database: pass the rows of a query, or export them as CSV",
        b"Obj\x01": "is an Avro file: convert it to Parquet or JSON lines",
        b"ORC": "is an ORC file: convert it to Parquet",
        b"ARROW1": "is a file of Arrow or Feather: convert it to Parquet",
        b"{\\rtf": "is a document in RTF: save it as plain text",
        b"7z\xbc\xaf\x27\x1c": f"is a 7-Zip archive: {_UNPACK}",
        b"Rar!\x1a\x07": f"is a RAR archive: {_UNPACK}",
        b"\x1f\x9d": "is compressed with compress (.Z): decompress it, or use gzip",
        b"\x04\x22\x4d\x18": "is compressed with LZ4: decompress it, or use gzip or Zstandard",
        b"\x89PNG": "is an image",
        b"\xff\xd8\xff": "is an image",
    }
)
_BY_ENTRY: Mapping[bytes, str] = MappingProxyType(
    {
        b"application/vnd.oasis.opendocument.spreadsheet": f"is an OpenDocument spreadsheet (.ods): {_EXPORT}",
        b"xl/": f"is an Excel workbook (.xlsx): {_EXPORT}",
        b"[Content_Types].xml": f"is an Office document, such as an Excel workbook (.xlsx): {_EXPORT}",
        b"Index/": f"is a Numbers spreadsheet: {_EXPORT}",
    }
)
"""Descriptions of ZIP archives, by what is among their first entries."""
_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
"""What text begins with whose letters may have NULs; the mark of UTF-32-LE begins as that of UTF-16-LE."""
_WIDE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
_has_control = re.compile(r"[\x01-\x08\x0e-\x1f]").search


def is_binary(sample: bytes) -> bool:
    """Return whether the first bytes of a file have NULs, and are not text in which some are a mistake."""
    if b"\0" not in sample or sample.startswith(_MARKS):
        return False
    return _has_control(sample.decode("latin-1")) is not None and not any(_is_text(sample, name) for name in _WIDE)


def _is_text(sample: bytes, encoding: str) -> bool:
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(sample)
    except UnicodeError:
        return False
    return "\0" not in text and not _has_control(text)


def describe_other_format(sample: bytes) -> str | None:
    """Return what a file is and what to do, None if it may be of a format that is read.

    Args:
        sample: its first bytes, at least 512 if it has them.
    """
    if sample.startswith(_ZIP):
        found = next((text for entry, text in _BY_ENTRY.items() if entry in sample), None)
        return found or f"is a ZIP archive: {_UNPACK}, or compress it with gzip"
    if sample[_TAR_AT : _TAR_AT + 5] == b"ustar":
        return f"is a tar archive: {_UNPACK}"
    return next((text for magic, text in _BY_START.items() if sample.startswith(magic)), None)
