"""Propose the encoding of text that is not UTF-8; it is never assumed, since a wrong one would silently change names.

Of text in Latin letters the encodings differ in a few letters, which a list of names does not tell apart: the library
that is asked proposes cp1250 for French, Spanish and Swedish names. So it is asked about other scripts only, and the
encoding of Windows is proposed wherever the first byte is a letter there.
"""

import codecs
import re
from collections.abc import Iterable

__all__ = ["propose_encoding"]

_LATIN = ("cp1252", "cp1250", "cp850", "cp852", "mac_roman")
_OTHER_SCRIPTS = (
    *("cp1251", "koi8_r", "koi8_u", "cp866", "iso8859_5", "mac_cyrillic"),
    *("cp1253", "cp1255", "cp1256", "cp874"),
    *("cp932", "euc_jp", "big5", "gb18030", "cp949"),
)
_MOST_LINES = 200
_MOST_BYTES = 8_192
_FOREIGN = re.compile(r"[^\x00-\x7f]+")
_BESIDE_LATIN = re.compile(r"(?<=[A-Za-z])[^\x00-\x7f]+|[^\x00-\x7f]+(?=[A-Za-z])")


def propose_encoding(error: UnicodeDecodeError) -> str | None:
    """Return the encoding that text probably has, by the lines from the first one on that is not UTF-8."""
    block, start = error.object, error.start
    return _detect(block[block.rfind(b"\n", 0, start) + 1 :]) or _choose_for_latin(block[start : start + 1])


def _choose_for_latin(first: bytes) -> str | None:
    try:
        return "cp1252" if first.decode("cp1252").isalpha() else None
    except UnicodeDecodeError:
        return None


def _detect(text: bytes) -> str | None:
    """Return the encoding of text in another script than Latin; None if it is none, or the library is missing."""
    try:
        from charset_normalizer import from_bytes  # noqa: PLC0415 - of the extra "cli", and for errors only
    except ImportError:
        return None
    sample = b"\n".join(_choose_lines(text.split(b"\n")))
    found = from_bytes(sample, cp_isolation=[*_LATIN, *_OTHER_SCRIPTS]).best()
    if found is None or found.encoding not in _OTHER_SCRIPTS or not _stands_apart(str(found)):
        return None
    return codecs.lookup(found.encoding).name


def _choose_lines(lines: Iterable[bytes]) -> Iterable[bytes]:
    """Yield the first lines that are not ASCII, whole ones as far as there are any."""
    size = 0
    for number, line in enumerate(each for each in lines if not each.isascii()):
        size += len(line)
        if number and (number == _MOST_LINES or size > _MOST_BYTES):
            return
        yield line[:_MOST_BYTES]


def _stands_apart(text: str) -> bool:
    """Return whether most of the words in another script have no Latin letters beside them."""
    return 2 * len(_BESIDE_LATIN.findall(text)) <= len(_FOREIGN.findall(text))
