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
from svc_async.users.lines import HashedTexts, MatchLines, compile_lines, hash_matching, join_lines, parse_hashes
from svc_async.value_rules import TEXT

__all__ = [
    "IDENTIFIERS",
    "HashedIdentifier",
    "Identifier",
    "InvalidIdentifier",
    "PartnerId",
    "is_hash",
    "select_identifiers",
]

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
