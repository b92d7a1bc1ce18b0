"""Decode an input into blocks of text that end where a line ends, in any Unicode encoding.

A file is read in blocks, never as a whole. The encoding is detected from a byte order mark, or from the positions of
the NUL bytes in the first characters; otherwise it is UTF-8. No other encoding is ever guessed: a wrong guess would
silently hash the names of people into those of others.
"""

import codecs
import re
import unicodedata
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from io import IncrementalNewlineDecoder, StringIO
from itertools import pairwise
from types import MappingProxyType

from svc_async.errors import Hint, InvalidArgument, UnusableFile
from svc_async.sources.blocks.files import ByteReader, Input, unusable

__all__ = ["BLOCK_SIZE", "MAX_LINE", "TextReader", "describe_other_format", "split_lines"]

_ENCODINGS: Mapping[str, str] = MappingProxyType(
    {
        "cp1252": "Western European, as ISO 8859-1",
        "cp1250": "Central European",
        "iso8859-2": "Central European",
        "cp1254": "Turkish, as ISO 8859-9",
        "cp1257": "Baltic",
        "iso8859-15": "Western European",
        "cp850": "Western European, of DOS",
        "cp852": "Central European, of DOS",
        "mac-roman": "Western European, of Macs",
        "cp1251": "Cyrillic",
        "koi8-r": "Russian",
        "koi8-u": "Ukrainian",
        "cp866": "Cyrillic, of DOS",
        "iso8859-5": "Cyrillic",
        "mac-cyrillic": "Cyrillic, of Macs",
        "cp1253": "Greek",
        "iso8859-7": "Greek",
        "cp1255": "Hebrew, as ISO 8859-8",
        "cp1256": "Arabic",
        "iso8859-6": "Arabic",
        "cp874": "Thai",
        "cp932": "Japanese, Shift JIS",
        "euc_jp": "Japanese",
        "gb18030": "Chinese, as GBK",
        "big5": "Chinese, traditional",
        "cp949": "Korean, as EUC-KR",
    }
)
"""The encodings that are proposed, and what they are for; those of ISO only where their letters are in other places."""
_MOST_LINES = 200
_MOST_BYTES = 8_192
_MOST_MISTAKES = 10
"""One in so many words may be of something else than letters of one script."""
_LEAST_ASCII = 4
"""One in so many letters, at least, of Latin words with accents has none: it is one in two or three."""
_IN_TEXT = frozenset(
    "\xa0\xa1\xa3\xa7\xa9\xaa\xab\xae\xb0\xb4\xb7\xba\xbb\xbf"
    "\u2013\u2014\u2018\u2019\u201c\u201d\u201e\u2022\u2026\u2039\u203a\u20ac\u2116\u2122"
)
"""Characters beside words that are not letters: quotes, dashes, signs of currencies and the like."""
_find_words = re.compile(r"[A-Za-z]*[^\x00-\x7f](?:[A-Za-z]|[^\x00-\x7f])*").findall
_SCRIPTS: Mapping[str, str] = MappingProxyType(dict.fromkeys(("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"), "CJK"))
"""The first words of the names of characters that are written together with those of another script."""


def propose_encodings(error: UnicodeDecodeError) -> Sequence[str]:
    """Return the encodings in which text that is not UTF-8 consists of words, the most plausible first.

    That bytes are letters in an encoding shows that it is possible, and no more: most letters of cp1252 are others in
    cp1250 and cp1254. None is returned if most text around the error is UTF-8: it is damaged, or has two encodings.
    """
    lines = [line for line in error.object.split(b"\n") if not line.isascii()]
    wrong = [line for line in lines if not _is_utf_8(line)]
    if 2 * len(wrong) <= len(lines):
        return ()
    sample = b"\n".join(wrong[:_MOST_LINES])[:_MOST_BYTES]
    mistakes = {name: _count_mistakes(sample, name) for name in _ENCODINGS}
    return sorted((name for name, count in mistakes.items() if count is not None), key=lambda name: mistakes[name] or 0)


def _is_utf_8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _count_mistakes(sample: bytes, encoding: str) -> int | None:
    """Return how many words are not of letters of one script; None if the text cannot be of an encoding."""
    try:
        words = _find_words(codecs.getincrementaldecoder(encoding)().decode(sample))  # the last character may be cut
    except UnicodeDecodeError:
        return None
    words = [word for each in words if not (word := "".join(filter(lambda c: c not in _IN_TEXT, each))).isascii()]
    mistakes = sum(not _is_word(word) for word in words)
    latin = "".join(word for word in words if len(word) > 2 and _find_script(max(word)) == "LATIN")  # noqa: PLR2004 - à, où
    if not words or mistakes * _MOST_MISTAKES > len(words) or sum(map(str.isascii, latin)) * _LEAST_ASCII < len(latin):
        return None
    return mistakes


def _is_word(text: str) -> bool:
    """Return whether a text has only letters, of one script, and no capital after a small one."""
    categories = list(map(unicodedata.category, text))
    scripts = {_find_script(each) for each, category in zip(text, categories, strict=True) if category[0] != "M"}
    is_mixed = len(scripts) > 1 or ("Ll", "Lu") in pairwise(categories)
    return not is_mixed and all(category[0] in "LM" for category in categories)


def _find_script(character: str) -> str:
    name = unicodedata.name(character, "").partition(" ")[0]
    return _SCRIPTS.get(name, name)


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
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
"""What text begins with whose letters may have NULs; the mark of UTF-32-LE begins as that of UTF-16-LE."""
_WIDE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
_has_control = re.compile(r"[\x01-\x08\x0e-\x1f]").search


def is_binary(sample: bytes) -> bool:
    """Return whether the first bytes of a file have NULs, and are not text in which some are a mistake."""
    if b"\0" not in sample or sample.startswith(_WIDE_MARKS):
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


BLOCK_SIZE = 65_536
"""Bytes that are read and decoded at a time."""
MAX_LINE = 4_194_304
"""Characters of a line."""
_SAMPLE_SIZE = 4_096
_NO_TEXT = "is no text file; CSV, TSV, JSON lines and Parquet are read, and XML as a feed of products"
_MARKS: Mapping[bytes, str] = MappingProxyType(
    {
        codecs.BOM_UTF8: "utf-8-sig",
        codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark is its beginning
        codecs.BOM_UTF32_BE: "utf-32",
        codecs.BOM_UTF16_LE: "utf-16",
        codecs.BOM_UTF16_BE: "utf-16",
    }
)
_NULS: Mapping[tuple[bool, ...], str] = MappingProxyType(
    {
        (True, True, True, False): "utf-32-be",
        (False, True, True, True): "utf-32-le",
        (True, False, True, False): "utf-16-be",
        (False, True, False, True): "utf-16-le",
    }
)
"""The positions of NUL bytes if the first two characters are ASCII."""


class TextReader:
    """Reads the text of an input.

    Args:
        source: the input.
        encoding: any of Python's; detected from the first bytes if None.
        block_size: bytes that are decoded at a time.
        returns: whether a carriage return by itself ends a line.

    Attributes:
        name: the name of the input to show to users.
        encoding: the encoding.
        lines_before: how many lines come before the input, if it is a part of a file.
        bytes_read: how many stored bytes `read_blocks` has read.

    Raises:
        InvalidArgument: the encoding is unknown.
        UnusableFile: the input cannot be read.
    """

    def __init__(
        self,
        source: Input,
        *,
        encoding: str | None = None,
        block_size: int = BLOCK_SIZE,
        returns: bool = True,
    ) -> None:
        self._input = source
        self._block_size = block_size
        self._returns = returns
        self.name = source.name
        self.lines_before = source.lines_before
        self.bytes_read = 0
        self.encoding = self._detect_encoding() if encoding is None else _find_encoding(encoding)

    def refuse(self, problem: str, hint: Hint | None = None) -> UnusableFile:
        """Return the error that says what is wrong with the input."""
        return unusable(self.name, problem, hint)

    def read_blocks(self) -> Generator[str, None, None]:
        """Yield the text in blocks that end where a line ends.

        Raises:
            UnusableFile: the text is truncated, is not in its encoding, contains a NUL or has too long a line.
        """
        rest = ""
        with closing(self._decode_blocks()) as blocks:
            for block in blocks:
                # A carriage return at the very end may be the first half of a line end.
                text = rest + block
                end = max(text.rfind("\n"), text.rfind("\r", 0, -1) if self._returns else -1) + 1
                rest = text[end:]
                if len(rest) > MAX_LINE:
                    raise self.refuse("has a line longer than 4 MiB; is this really CSV or JSON lines?")
                yield text[:end]
        yield rest

    def _decode_blocks(self) -> Generator[str, None, None]:
        decoder = codecs.getincrementaldecoder(self.encoding)()
        offset = 0
        with ByteReader(self._input) as file:
            self.bytes_read = 0
            while True:
                block = file.read(self._block_size)
                yield self._check_nul(self._decode(decoder, block, offset), offset)
                offset += len(block)
                self.bytes_read = file.stored
                if not block:
                    return

    def _decode(self, decoder: codecs.IncrementalDecoder, block: bytes, offset: int) -> str:
        try:
            return decoder.decode(block, final=not block)
        except UnicodeError as error:
            # The decoder may have held back the first bytes of a character from the block before.
            rest = len(error.object) - error.start if isinstance(error, UnicodeDecodeError) else len(block)
            line = self._count_lines_before(offset + len(block) - rest) + 1
            name = self.encoding.removesuffix("-sig").upper()
            proposed = propose_encodings(error) if isinstance(error, UnicodeDecodeError) and name == "UTF-8" else ()
            fitting = ", ".join(f"{each} ({_ENCODINGS[each]})" for each in proposed)
            problem = f"is not {name} on line {line}{f'; it may be {fitting}' if fitting else ''}"
        raise self._refuse_text(problem)  # only now: the other error holds the text

    def _check_nul(self, text: str, offset: int) -> str:
        nul = text.find("\0")
        if nul < 0:
            return text
        returns = text.count("\r", 0, nul) - text.count("\r\n", 0, nul) if self._returns else 0
        line = self._count_lines_before(offset) + text.count("\n", 0, nul) + returns + 1
        raise self._refuse_text(f"contains a NUL byte on line {line}")

    def _refuse_text(self, problem: str) -> UnusableFile:
        """Return the error that says what is wrong with the text, and what to do; or that it is not text."""
        with ByteReader(self._input) as file:
            if is_binary(file.read(_SAMPLE_SIZE)):
                return self.refuse(_NO_TEXT)
        return self.refuse(problem, Hint.NAME_THE_ENCODING)

    def _count_lines_before(self, offset: int) -> int:
        """Count the lines of the file before a byte, by reading again."""
        plain = codecs.getincrementaldecoder(self.encoding)("replace")
        decoder = IncrementalNewlineDecoder(plain, translate=self._returns)
        with ByteReader(self._input) as file:
            count = self.lines_before
            for start in range(0, offset, self._block_size):
                try:
                    count += decoder.decode(file.read(min(self._block_size, offset - start))).count("\n")
                except UnicodeError:  # no byte order mark where the encoding needs one: nothing can be decoded
                    break
            return count

    def _detect_encoding(self) -> str:
        with ByteReader(self._input) as file:
            first = file.read(4)
        marked = next((name for mark, name in _MARKS.items() if first.startswith(mark)), None)
        return marked or _NULS.get(tuple(not byte for byte in first), "utf-8")


def _find_encoding(encoding: str) -> str:
    try:
        name = codecs.lookup(encoding).name
        "".encode(name)  # refuses codecs that are not of text
    except (LookupError, ValueError):
        raise InvalidArgument("encoding", "must be one that Python knows, such as utf-8 or cp1252") from None
    return "utf-8-sig" if name == "utf-8" else name


def split_lines(text: str) -> Iterator[str]:
    """Split a block into lines, each with its end."""
    return StringIO(text, newline="")
