"""Takes the SHA-256 of many texts: with stringzilla where it is installed (the extra `fast`), else with hashlib."""

from collections.abc import Callable
from hashlib import sha256

__all__ = ["DIGEST_SIZE", "HASH_LENGTH", "HASH_LIBRARY", "hash_lines", "hash_lines_one_by_one"]

DIGEST_SIZE = 32
HASH_LENGTH = 2 * DIGEST_SIZE
"""Characters of a digest in hexadecimal digits."""


def hash_lines_one_by_one(lines: str) -> bytes:
    """Return the digests of lines, joined, as `hash_lines` does; with the standard library."""
    return b"".join([sha256(line).digest() for line in lines.encode().split(b"\n")[:-1]])


def _load() -> tuple[str, Callable[[str], bytes]]:
    try:
        from stringzilla import Sha256s, __version__, split  # noqa: PLC0415 - optional; older ones have no Sha256s
    except ImportError:
        return "hashlib", hash_lines_one_by_one

    def hash_together(lines: str) -> bytes:
        messages = split(lines.encode(), b"\n")[:-1]
        count = len(messages)
        if not count:
            return b""
        return bytes(Sha256s(count).update(messages).digest(out=bytearray(DIGEST_SIZE * count)))

    return f"stringzilla {__version__}", hash_together


_name, _hash_lines = _load()

HASH_LIBRARY = _name
"""What takes the hashes of many texts, with its version."""


def hash_lines(lines: str) -> bytes:
    """Return the digests of lines, joined; a line feed ends each of them.

    Raises:
        UnicodeEncodeError: a line is not valid Unicode.
    """
    return _hash_lines(lines)
