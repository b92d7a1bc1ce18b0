"""Many values as lines of one text, which are checked and hashed with a handful of calls instead of several for each.

A line feed ends each line. Lines that do not match are passed over, so a few of them do not delay the others.
"""

import re
from collections.abc import Callable, Sequence

import attrs

from svc_async.users.hashing import DIGEST_SIZE, HASH_LENGTH, hash_lines

__all__ = ["HashedTexts", "MatchLines", "compile_lines", "hash_matching", "join_lines", "parse_hashes"]

MatchLines = Callable[..., re.Match[str] | None]
"""Matches all lines from a place on, up to the first that does not match."""


@attrs.frozen
class HashedTexts:
    """Texts that were hashed at once.

    Attributes:
        digests: 32 bytes for each of them, in their order.
        refused: the indexes of those that need a closer look; they have no digest.
    """

    digests: bytes
    refused: Sequence[int] = ()


def compile_lines(pattern: str) -> MatchLines:
    """Return what matches lines of a pattern."""
    return re.compile(rf"(?:{pattern}\n)*+").match


_match_hashes = compile_lines("[0-9a-fA-F]{64}")


def join_lines(texts: Sequence[str]) -> str:
    """Return texts as lines.

    Raises:
        TypeError: one is not text.
    """
    return "\n".join(texts) + "\n" if texts else ""


def hash_matching(lines: str, match: MatchLines, *, count: int, most_refused: int) -> HashedTexts | None:
    """Hash the lines that match.

    Args:
        lines: the lines.
        match: matches those that are hashed.
        count: how many texts they are; one that has several lines must not pass as several texts.
        most_refused: how many may not match.

    Returns:
        The digests; None if more lines do not match, or there are more lines than texts.

    Raises:
        UnicodeEncodeError: a line is not valid Unicode.
    """
    selected = _select(lines, match, most_refused)
    return selected and _check_count(hash_lines(selected[0]), selected[1], count)


def parse_hashes(lines: str, *, count: int, most_refused: int) -> HashedTexts | None:
    """Parse the lines that are hashes in hexadecimal digits; arguments and result as in `hash_matching`."""
    if lines[HASH_LENGTH :: HASH_LENGTH + 1] == "\n" * count:
        try:
            digests = bytes.fromhex(lines)  # it skips the ends of lines, and other blanks
        except ValueError:
            digests = b""
        if len(digests) == DIGEST_SIZE * count and len(lines) == (HASH_LENGTH + 1) * count:
            return HashedTexts(digests)
    selected = _select(lines, _match_hashes, most_refused)
    return selected and _check_count(bytes.fromhex(selected[0]), selected[1], count)


def _select(lines: str, match: MatchLines, most_refused: int) -> tuple[str, Sequence[int]] | None:
    """Return the lines that match, and the numbers of the others; None if these are too many."""
    end = _find_end(match, lines, 0)
    if end == len(lines):
        return lines, ()
    kept, refused, number = [lines[:end]], list[int](), lines.count("\n", 0, end)
    while end < len(lines):
        if len(refused) == most_refused:
            return None
        refused.append(number)
        start = lines.index("\n", end) + 1
        end = _find_end(match, lines, start)
        kept.append(lines[start:end])
        number += 1 + lines.count("\n", start, end)
    return "".join(kept), refused


def _find_end(match: MatchLines, lines: str, start: int) -> int:
    matched = match(lines, start)
    return matched.end() if matched else start


def _check_count(digests: bytes, refused: Sequence[int], count: int) -> HashedTexts | None:
    """Return the digests of this many texts, of which some were refused; None if there are more or fewer."""
    return HashedTexts(digests, refused) if len(digests) + DIGEST_SIZE * len(refused) == DIGEST_SIZE * count else None
