"""The identifiers of persons: each kind is normalised and hashed (contract CAU-07, CAU-08).

A kind is a few lines in one table: how a value is cleaned, the pattern that it must match then, and that rule in
words. Cleaning and pattern work on lines of text, so that one value and a whole column are processed alike: a column is
joined, cleaned, checked and hashed with a handful of calls instead of several for each value.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from hashlib import sha256
from json import JSONEncoder
from types import MappingProxyType

import attrs

from svc_async.errors import InvalidArgument
from svc_async.value_rules import TEXT

__all__ = [
    "DIGEST_SIZE",
    "HASH_LENGTH",
    "HASH_LIBRARY",
    "IDENTIFIERS",
    "HashedIdentifier",
    "HashedTexts",
    "Identifier",
    "InvalidIdentifier",
    "PartnerId",
    "hash_lines",
    "hash_lines_one_by_one",
    "is_hash",
    "select_identifiers",
]

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


_is_other_hash = re.compile(r"[0-9a-fA-F]{32}|[0-9a-fA-F]{40}").fullmatch
_match_hash = re.compile(r"[0-9a-fA-F]{64}").fullmatch
_escape = JSONEncoder(ensure_ascii=True).encode


class InvalidIdentifier(ValueError):
    """A value breaks the rule of its kind; the message is the rule, never the value."""


def is_hash(value: object) -> bool:
    """Return whether a value is a SHA-256 in hexadecimal digits."""
    return isinstance(value, str) and _match_hash(value) is not None


def _keep(text: str) -> str:
    return text


@attrs.frozen(kw_only=True, slots=False)
class HashedIdentifier:
    """A kind of identifier of which the service receives the SHA-256 only.

    Attributes:
        name: the service's key.
        pattern: what a cleaned line matches; it has no blanks of ASCII.
        ascii_pattern: the same for lines of ASCII, if that is faster to match; it matches no other line.
        rule: the same in words.
        clean: normalises lines whose ends are trimmed.
        parse_other: normalises a value that does not match, or returns None.
        explain: returns a clearer rule for a value that is often seen, or None.
    """

    name: str
    pattern: str
    rule: str
    ascii_pattern: str | None = None
    clean: Callable[[str], str] = _keep
    parse_other: Callable[[str], str | None] | None = None
    explain: Callable[[str], str | None] | None = None

    def tokenize(self, text: str) -> str:
        """Hash one value; a hash stays as it is, and blank text becomes an empty token.

        Raises:
            InvalidIdentifier: the value breaks the rule of this kind.
        """
        text = text.strip()
        if not text:
            return ""
        if _match_hash(text):
            return text.lower()
        return _hash(self._normalise(text))

    def hash_all(self, texts: Sequence[str], *, most_refused: int, trimmed: bool = False) -> HashedTexts | None:
        """Hash values at once, or parse them if they are hashes already.

        Args:
            texts: the values.
            most_refused: how many may need a closer look.
            trimmed: whether no value has blanks around it; otherwise all that have blanks need a closer look, and so
                may all that are not ASCII.

        Returns:
            The digests; None if more values need a closer look, or one has several lines.

        Raises:
            TypeError: a value is not text.
            UnicodeEncodeError: a value is not valid Unicode.
        """
        lines = join_lines(texts)
        limits = {"count": len(texts), "most_refused": most_refused}
        match = self._match_lines if trimmed else self._match_plain_lines
        if texts and is_hash(texts[0]):
            return parse_hashes(lines, **limits) or hash_matching(self.clean(lines), match, **limits)
        return hash_matching(self.clean(lines), match, **limits) or parse_hashes(lines, **limits)

    def _normalise(self, text: str) -> str:
        line = self.clean(text)
        if self._match(line):
            return line
        normal = self.parse_other(text) if self.parse_other else None
        if normal is None:
            raise InvalidIdentifier((self.explain and self.explain(text)) or self.rule)
        return normal

    @cached_property
    def _match(self) -> Callable[[str], object]:
        return re.compile(self.pattern).fullmatch

    @cached_property
    def _match_lines(self) -> MatchLines:
        return compile_lines(self.pattern)

    @cached_property
    def _match_plain_lines(self) -> MatchLines:
        return compile_lines(self.ascii_pattern or self.pattern)


@attrs.frozen(kw_only=True)
class PartnerId:
    """The partner's own id of a person: sent unhashed (contract CAU-08)."""

    name: str = "partner_user_id"
    rule: str = "must be text in valid Unicode"

    def tokenize(self, text: str) -> str:
        """Escape one value as between the quotes of ASCII JSON; blank text becomes an empty token.

        Raises:
            InvalidIdentifier: the text is not valid Unicode.
        """
        if not text.strip():
            return ""
        tokens = self.tokenize_all([text])
        if tokens is None:
            raise InvalidIdentifier(self.rule)
        return tokens[0]

    def tokenize_all(self, texts: Sequence[str]) -> list[str] | None:
        """Escape values that are all plain; return None if any has to be tokenized by itself."""
        try:
            "".join(texts).encode()
        except UnicodeEncodeError:
            return None
        if not all(map(str.strip, texts)):
            return None
        return [_escape(text)[1:-1] for text in texts]


Identifier = HashedIdentifier | PartnerId


def _hash(normal: str) -> str:
    # The patterns leave only lone surrogates without a form in UTF-8.
    try:
        return sha256(normal.encode()).hexdigest()
    except UnicodeEncodeError:
        raise InvalidIdentifier("must be text in valid Unicode") from None


_replace_dashed = re.compile("^.*-.*$", re.MULTILINE).sub
_punctuation = str.maketrans(dict.fromkeys(" -.()\u00a0"))


def _strip_at(lines: str) -> str:
    return f"\n{lines.lower()}".replace("\n@", "\n")[1:]


def _lower_advertising_ids(lines: str) -> str:
    return _replace_dashed(lambda line: line[0].lower(), lines)


def _strip_punctuation(lines: str) -> str:
    # A zero in parentheses is dialled within the country only, in most countries: dropping or keeping it is a guess.
    return lines.replace("(0)", "?").translate(_punctuation)


_is_rounded = re.compile(r"\+?[0-9]+(?:[.,][0-9]+)?[eE]\+?[0-9]{1,2}").fullmatch


def _explain_email(text: str) -> str | None:
    if _is_other_hash(text):
        return "must be an e-mail address or its SHA-256 of 64 hexadecimal digits; MD5 and SHA-1 are not accepted"
    if _find_invisible(text):
        return "must be an e-mail address without blanks and invisible characters, such as a zero-width space"
    return None


def _explain_phone_number(text: str) -> str | None:
    if _is_rounded(text):
        return "must have all its digits: a spreadsheet has rounded it, as 4.4E+11; export the column as text"
    return None


def _select_ascii(characters: str) -> str:
    """Return a class of all ASCII characters in another class: a class that names its members is matched faster."""
    found = filter(re.compile(characters).fullmatch, map(chr, range(128)))
    return f"[{''.join(map(re.escape, found))}]"


def _write_email_pattern(local: str, label: str) -> str:
    return rf"{local}++@(?:{label}++\.)++{label}++"


_INVISIBLE = (
    r"\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000"
    r"\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"
)
"""Blanks and control characters that are not ASCII, and what Unicode lets programs show as nothing.

An address copied from a page or a document often has one of them. Nobody registers with it, so its hash finds nobody.
"""
_find_invisible = re.compile(f"[{_INVISIBLE}]").search
_LOCAL = rf'[^\x00- @"(),:;<>\[\]\\{_INVISIBLE}]'
_LABEL = rf"[^\x00-,./:-@\[-\^`{{-\x7f{_INVISIBLE}]"
"""A character of a host name: letters of any script, digits, hyphens, and underscores, which some names have."""
_PHONE_NUMBER = HashedIdentifier(
    name="phone_number",
    pattern=r"\+[1-9][0-9]{6,14}+",
    rule="must be a phone number in E.164 with a leading +; national numbers need a phone region",
    clean=_strip_punctuation,
    explain=_explain_phone_number,
)
# The order decides a row's key: the first identifier that the row has.
# Unspecified: how raw values are normalised (contract UNS-hash-normalization), except that partner ids are not hashed.
IDENTIFIERS: Mapping[str, Identifier] = MappingProxyType(
    {
        identifier.name: identifier
        for identifier in (
            PartnerId(),
            HashedIdentifier(
                name="svc_id",
                pattern=r"[0-9]{1,20}+",
                rule="must be a decimal integer",
            ),
            HashedIdentifier(
                name="email",
                pattern=_write_email_pattern(_LOCAL, _LABEL),
                ascii_pattern=_write_email_pattern(_select_ascii(_LOCAL), _select_ascii(_LABEL)),
                rule="must be an e-mail address",
                clean=str.lower,
                explain=_explain_email,
            ),
            _PHONE_NUMBER,
            HashedIdentifier(
                name="handle",
                pattern=r"[a-z0-9_]{1,50}+",
                rule="must be a handle: letters, digits and underscores, with or without a leading @",
                clean=_strip_at,
            ),
            HashedIdentifier(
                name="device_id",
                pattern=r"(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-fA-F]{16})",
                rule="must be an advertising id with dashes, or an Android id of 16 hexadecimal digits",
                clean=_lower_advertising_ids,
            ),
        )
    }
)


_is_region = re.compile("[A-Z]{2}").fullmatch
_REGION = "must be a region of two capital letters, such as DE"


def select_identifiers(phone_region: str | None) -> Mapping[str, Identifier]:
    """Return the identifiers; with a region (such as `DE`), its national phone numbers are accepted as well.

    Raises:
        InvalidArgument: the region is unknown, or the extra `phone` is not installed.
    """
    if phone_region is None:
        return IDENTIFIERS
    _require_region(phone_region)
    phone = attrs.evolve(
        _PHONE_NUMBER,
        parse_other=partial(_format_e164, region=phone_region),
        rule=f"must be a phone number in E.164 or a valid number of the region {phone_region}",
    )
    return MappingProxyType({**IDENTIFIERS, phone.name: phone})


def _require_region(region: str) -> None:
    if not TEXT.accepts(region) or not _is_region(region):  # before the extra, which somebody would install for nothing
        raise InvalidArgument("phone_region", _REGION)
    try:
        import phonenumbers  # noqa: PLC0415 - the extra `phone`, 20 times the weight of this module
    except ImportError:
        raise InvalidArgument("phone_region", 'needs the extra "phone": pip install "svc-async[phone]"') from None
    if region not in phonenumbers.SUPPORTED_REGIONS:
        raise InvalidArgument("phone_region", "must be a region that has phone numbers, such as DE: a code of ISO 3166")


@lru_cache(maxsize=4096)
def _format_e164(text: str, *, region: str) -> str | None:
    import phonenumbers  # noqa: PLC0415 - see above

    try:
        number = phonenumbers.parse(text, region)
    except phonenumbers.NumberParseException:
        return None
    if not phonenumbers.is_valid_number(number):
        return None
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)
