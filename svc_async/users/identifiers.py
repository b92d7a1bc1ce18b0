"""The identifiers of persons: each kind is normalised and hashed (contract CAU-07, CAU-08).

A kind is a few lines in one table: how a value is cleaned, the pattern that it must match then, and that rule in
words. Cleaning and pattern work on lines of text, so that one value and a whole column are processed alike: a column is
joined, cleaned, checked and hashed with a handful of calls instead of several for each value.
"""

import re
import unicodedata
from binascii import unhexlify
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from hashlib import sha256
from json import JSONEncoder
from types import MappingProxyType

import attrs

from svc_async.cells import NOTHINGS, is_rounded, stands_for_nothing
from svc_async.errors import InvalidArgument
from svc_async.users.phone_numbers import can_parse, find_unassigned, format_e164, is_known_region, plain_characters
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
_COMPARED_BYTES = 3
"""Bytes of a digest that are compared before all of them are: other digests have them once in some thousand."""


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

    def refuse(self, numbers: Collection[int]) -> "HashedTexts":
        """Return them with some more refused: the numbers of their digests."""
        if not numbers:
            return self
        count = len(self.digests) // DIGEST_SIZE
        refused = set(self.refused)
        hashed = [index for index in range(count + len(refused)) if index not in refused]
        kept = [number for number in range(count) if number not in numbers]
        return HashedTexts(
            b"".join([self.digests[DIGEST_SIZE * number :][:DIGEST_SIZE] for number in kept]),
            sorted(refused.union(hashed[number] for number in numbers)),
        )


class KnownDigests:
    """The digests of some texts, to be found among many at next to no cost.

    The first byte of all digests is compared at once, then the second. A table says for each byte which groups of known
    digests have it in that place, with a bit for each group; a digest of no group leaves no bit.

    Args:
        texts: the texts.
    """

    def __init__(self, texts: Collection[str]) -> None:
        self._digests = {sha256(text.encode()).digest() for text in texts}
        self._tables = [bytearray(256) for _ in range(_COMPARED_BYTES)]
        for number, digest in enumerate(self._digests):
            for table, byte in zip(self._tables, digest, strict=False):
                table[byte] |= 1 << number % 8

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._digests

    def find(self, digests: bytes) -> Collection[int]:
        """Return the numbers of those digests, of 32 bytes each, that are known."""
        bits = -1
        for place, table in enumerate(self._tables):
            bits &= int.from_bytes(digests[place::DIGEST_SIZE].translate(table), "little")
            if not bits:
                return ()
        every = range(len(digests) // DIGEST_SIZE)
        return {number for number in every if digests[DIGEST_SIZE * number :][:DIGEST_SIZE] in self}


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


def parse_hashes(texts: Sequence[str]) -> bytes | None:
    """Return the digests of texts that are all hashes in hexadecimal digits, None if one is something else."""
    lines = "\n".join(texts)
    if lines[HASH_LENGTH :: HASH_LENGTH + 1] != "\n" * (len(texts) - 1) or (len(lines) + 1) % (HASH_LENGTH + 1):
        return None
    try:
        return unhexlify("".join(texts))
    except ValueError:
        return None


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


_is_other_hash = re.compile("|".join(rf"[0-9a-fA-F]{{{digits}}}" for digits in (32, 40, 56, 96, 128))).fullmatch
_match_hash = re.compile(r"[0-9a-fA-F]{64}").fullmatch
_escape = JSONEncoder(ensure_ascii=True).encode

_NO_VALUE = "leave it out, or name it with empty= (--empty)"
_STANDS_FOR_NOTHING = f"must not be a text that stands for no value, as NULL, #N/A and zeros do: {_NO_VALUE}"
_HASH_OF_NOTHING = f"must not be the hash of a text that stands for no value, such as empty text or NULL: {_NO_VALUE}"
_IS_A_HEADER = "must not be the name of its column: the header is repeated among the rows"
_NOT_UNICODE = "must be text in valid Unicode"
_ROUNDED = "must have all its digits: a spreadsheet has rounded it, as 4.4E+11 or 44.0; export the column as text"
_HASHED_NOTHINGS = ("", "null", "NULL", "none", "None", "nan", "NaN", "n/a", "N/A", "#N/A", "undefined")
"""Texts for no value that somebody has hashed with a column, whatever its kind."""


class InvalidIdentifier(ValueError):
    """A value breaks the rule of its kind; the message is the rule, never the value."""


def is_hash(value: object) -> bool:
    """Return whether a value is a SHA-256 in hexadecimal digits."""
    return isinstance(value, str) and _match_hash(value) is not None


def _keep(text: str) -> str:
    return text


def _check_pattern(kind: "HashedIdentifier", _: object, pattern: str) -> None:
    """Refuse a pattern that a hash matches, since a value that is one is taken for a hash.

    Tried are hashes of one digit, and those that together have each digit at each place.
    """
    match = re.compile(pattern).fullmatch
    digits = "0123456789abcdef"
    samples = [*(digit * HASH_LENGTH for digit in digits), *((digits[at:] + digits[:at]) * 4 for at in range(16))]
    if any(match(kind.clean(sample)) for each in samples for sample in (each, each.upper())):
        raise InvalidArgument("pattern", "must not match 64 hexadecimal digits, which are a SHA-256")


@attrs.frozen(kw_only=True, slots=False)
class HashedIdentifier:
    """A kind of identifier of which the service receives the SHA-256 only.

    Attributes:
        name: the service's key.
        pattern: what a cleaned line matches: characters of ASCII without blanks, and never 64 hexadecimal digits.
        rule: the same in words.
        clean: normalises lines whose ends are trimmed.
        nothings: cleaned values that stand for no value.
        find_unassigned: returns the numbers of cleaned lines that match and that nobody can have, or None.
        unassigned_rule: that in words.
        parse_other: normalises a value that does not match, or returns None.
        explain: returns a clearer rule for a value that is often seen and never valid, or None.

    Raises:
        InvalidArgument: the pattern matches 64 hexadecimal digits.
    """

    name: str
    pattern: str = attrs.field(validator=_check_pattern)
    rule: str
    clean: Callable[[str], str] = _keep
    nothings: Collection[str] = ()
    find_unassigned: Callable[[Sequence[str]], Collection[int]] | None = None
    unassigned_rule: str = ""
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
        is_hashed = is_hash(text)
        if is_hashed and bytes.fromhex(text) in self._nothings:
            raise InvalidIdentifier(_HASH_OF_NOTHING)
        return text.lower() if is_hashed else sha256(self._normalise(text).encode()).hexdigest()

    def hash_all(self, texts: Sequence[str], *, most_refused: int) -> HashedTexts | None:
        """Hash values at once, or parse them if they are hashes already.

        Args:
            texts: the values. Those with blanks around them, or with characters that are not ASCII, may need a closer
                look.
            most_refused: how many may need a closer look because they do not match.

        Returns:
            The digests; None if more values do not match, or one has several lines.

        Raises:
            TypeError: a value is not text.
            UnicodeEncodeError: a value is not valid Unicode.
        """
        starts_hashed = bool(texts) and is_hash(texts[0])
        digests = parse_hashes(texts) if starts_hashed else None
        if digests is not None:
            return HashedTexts(digests).refuse(self._nothings.find(digests))
        lines = join_lines(texts)
        ways = (self._parse_lines, self._hash_lines) if starts_hashed else (self._hash_lines, self._parse_lines)
        return ways[0](lines, len(texts), most_refused) or ways[1](lines, len(texts), most_refused)

    def _parse_lines(self, lines: str, count: int, most_refused: int) -> HashedTexts | None:
        selected = _select(lines, _match_hashes, most_refused)
        found = selected and _check_count(bytes.fromhex(selected[0]), selected[1], count)
        return found and found.refuse(self._nothings.find(found.digests))

    def _hash_lines(self, lines: str, count: int, most_refused: int) -> HashedTexts | None:
        selected = _select(self.clean(lines), self._match_lines, most_refused)
        found = selected and _check_count(hash_lines(selected[0]), selected[1], count)
        if not selected or not found:
            return None
        refused = self._nothings.find(found.digests) if self.nothings else ()
        if self.find_unassigned:
            refused = {*refused, *self.find_unassigned(selected[0].split("\n")[:-1])}
        return found.refuse(refused)

    def _normalise(self, text: str) -> str:
        reason = self._explain(text)
        if reason is not None:
            raise InvalidIdentifier(reason)
        line = self.clean(text)
        if line in self.nothings:
            raise InvalidIdentifier(_STANDS_FOR_NOTHING)
        matches = self._match(line)
        if matches and not (self.find_unassigned and self.find_unassigned([line])):
            return line
        normal = self.parse_other(text) if self.parse_other else None
        if normal is None:
            raise InvalidIdentifier(self.unassigned_rule if matches else self.rule)
        return normal

    def _explain(self, text: str) -> str | None:
        if _is_other_hash(self.clean(text)):
            return f"{self.rule}, or its SHA-256 of 64 hexadecimal digits; MD5, SHA-1 and the like are not accepted"
        if stands_for_nothing(text):
            return _STANDS_FOR_NOTHING
        try:
            text.encode()
        except UnicodeEncodeError:
            return _NOT_UNICODE
        return self.explain(text) if self.explain else None

    @cached_property
    def _nothings(self) -> KnownDigests:
        return KnownDigests({*_HASHED_NOTHINGS, *self.nothings})

    @cached_property
    def _match(self) -> Callable[[str], object]:
        return re.compile(self.pattern).fullmatch

    @cached_property
    def _match_lines(self) -> MatchLines:
        return compile_lines(self.pattern)


_match_plain_ids = compile_lines(
    rf"(?!(?i:{'|'.join(filter(str.isalpha, NOTHINGS))}|partner[_-]?user[_-]?id)\n)"
    r"(?!(?i:e3b0c44298fc|da39a3ee5e6b|d41d8cd98f00))"  # the hashes of empty text, below
    r"(?=[0_-]*+[A-Za-z1-9])[A-Za-z0-9_][A-Za-z0-9_-]*+"
)
"""The ids that need no closer look, of letters, digits, hyphens and underscores."""
_HASHES_OF_EMPTY_TEXT = (
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "d41d8cd98f00b204e9800998ecf8427e",
)
_is_zero = re.compile(r"\W*0[\W0]*|-1").fullmatch
_drop_separators = re.compile(r"[\W_]+").sub


@attrs.frozen(kw_only=True)
class PartnerId:
    """The partner's own id of a person: sent unhashed, without blanks around it (contract CAU-08)."""

    name: str = "partner_user_id"

    def tokenize(self, text: str) -> str:
        """Escape one value as between the quotes of ASCII JSON; blank text becomes an empty token.

        Raises:
            InvalidIdentifier: the text is not valid Unicode, stands for no value, or is a rounded number.
        """
        text = text.strip()
        if not text:
            return ""
        if stands_for_nothing(text) or _is_zero(text):
            raise InvalidIdentifier(_STANDS_FOR_NOTHING)
        if _drop_separators("", text).lower() == self.name.replace("_", ""):  # a second header
            raise InvalidIdentifier(_IS_A_HEADER)
        if text.lower() in _HASHES_OF_EMPTY_TEXT:
            raise InvalidIdentifier(_HASH_OF_NOTHING)
        if is_rounded(text):
            raise InvalidIdentifier(_ROUNDED)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidIdentifier(_NOT_UNICODE) from None
        return _escape(text)[1:-1]

    def tokenize_all(self, texts: Sequence[str]) -> Sequence[str] | None:
        """Return values that are all plain as they are; return None if any has to be tokenized by itself.

        Raises:
            TypeError: one is not text.
        """
        lines = join_lines(texts)
        is_plain = _find_end(_match_plain_ids, lines, 0) == len(lines) and lines.count("\n") == len(texts)
        return texts if is_plain else None


Identifier = HashedIdentifier | PartnerId


def _lower(lines: str) -> str:
    """Return lines with the letters of ASCII in lower case; `str.lower` makes a `k` of the sign of kelvin, too."""
    if lines.isascii():
        return lines.lower()
    return lines.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def _strip_at(lines: str) -> str:
    return f"\n{_lower(lines)}".replace("\n@", "\n")[1:]


_replace_dashed = re.compile("^.*-.*$", re.MULTILINE).sub


def _lower_advertising_ids(lines: str) -> str:
    return _replace_dashed(lambda line: line[0].lower(), lines)


def _explain_handle(text: str) -> str | None:
    return _IS_A_HEADER if _strip_at(text) == "handle" else None


def _explain_svc_id(text: str) -> str | None:
    if not text.strip("0"):
        return _STANDS_FOR_NOTHING
    return _ROUNDED if is_rounded(text) else None


_INVISIBLE = (
    r"\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000"
    r"\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"
)
"""Blanks and control characters that are not ASCII, and what Unicode lets programs show as nothing.

An address copied from a page or a document often has one of them. Nobody registers with it, so its hash finds nobody.
"""
_find_invisible = re.compile(f"[{_INVISIBLE}]").search
_find_others = re.compile(r"[^\x00-\x7f]").findall
_replace_others = re.compile(r"[^\x00-\x7f]").sub
_EMAIL = r"[!#-'*+\-./0-9=?A-Z^-~]++@(?:[-0-9A-Z_a-z]++\.)++[-0-9A-Z_a-z]++"
"""Host names may have underscores: some names have."""
_is_email = re.compile(_EMAIL).fullmatch


def _explain_email(text: str) -> str | None:
    if _find_invisible(text):
        return "must be an e-mail address without blanks and invisible characters, such as a zero-width space"
    if text.isascii():
        return None
    if any(map(_becomes_ascii, _find_others(text))) or not all(map(_may_be_in_address, _find_others(_compose(text)))):
        return "must be an e-mail address without typographic quotes and other characters that no address has"
    return None


_compose = partial(unicodedata.normalize, "NFC")


@lru_cache(maxsize=4_096)
def _becomes_ascii(character: str) -> bool:
    """Return whether NFC or lower case makes ASCII of a character that is not, as of the sign of kelvin."""
    return any(map(str.isascii, _compose(character) + character.lower()))


@lru_cache(maxsize=4_096)
def _may_be_in_address(character: str) -> bool:
    """Return whether an address may have a character that is not ASCII: a letter, mark or digit of any script.

    Addresses are not written with compatibility characters, such as full-width letters.
    """
    is_of_words = unicodedata.category(character)[0] in "LMN" and unicodedata.is_normalized("NFKC", character)
    return is_of_words and not _becomes_ascii(character)


@lru_cache(maxsize=4_096)
def _encode_label(label: str) -> str:
    """Return a part of the name of a host as it is asked for.

    Raises:
        UnicodeError: no host may have it.
    """
    if label.isascii():
        return label.lower()
    import idna  # noqa: PLC0415 - for few addresses only; it takes longer than this module

    return idna.encode(label, uts46=True).decode()


def _parse_unicode_email(text: str) -> str | None:
    """Return an address that is not all ASCII in NFC and lower case, its host as programs ask for it (UTS 46)."""
    if text.isascii():
        return None
    local, _, host = _compose(text).rpartition("@")
    try:
        host = ".".join(map(_encode_label, host.split(".")))
    except UnicodeError:
        return None
    local = _compose(local.lower())
    return f"{local}@{host}" if _is_email(f"{_replace_others('x', local)}@{host}") else None


_punctuation = str.maketrans(dict.fromkeys(" -.()"))
_drop_guards = partial(re.compile(r"^'(?=[+0-9(])", re.MULTILINE).sub, "")


def _clean_phone_numbers(lines: str) -> str:
    # A zero in parentheses is dialled within the country only, in most countries: dropping or keeping it is a guess.
    # The end of a float would become the last digits.
    lines = lines.replace("(0)", "?").replace(".0\n", "?\n").replace(".00\n", "?\n")
    return _unguard(plain_characters(lines)).translate(_punctuation)


def _unguard(lines: str) -> str:
    """Return lines without the apostrophe that keeps a spreadsheet from taking a number for a formula."""
    return _drop_guards(lines) if "'" in lines else lines


def _explain_phone_number(text: str) -> str | None:
    digits = re.sub("[ ()-]", "", _unguard(plain_characters(text)))
    if is_rounded(digits):
        return _ROUNDED
    if _has_trunk_zero(_clean_phone_numbers(text)):
        return "must be a phone number in E.164, without the zero that is dialled only within the country"
    return None


_WITH_TRUNK_ZERO = "(?:3[1-4]|4[13-9]|6[14]|9[01])0"
"""Country codes of numbers that never begin with a zero, which is dialled within the country only, and that zero."""
_has_trunk_zero = re.compile(rf"\+{_WITH_TRUNK_ZERO}[0-9]+").fullmatch
_PHONE_NUMBER = HashedIdentifier(
    name="phone_number",
    pattern=rf"\+(?!{_WITH_TRUNK_ZERO})[1-9][0-9]{{6,14}}+",
    rule="must be a phone number in E.164 with a leading +; national numbers need a phone region",
    clean=_clean_phone_numbers,
    find_unassigned=find_unassigned,
    unassigned_rule="must be a phone number that its country may have assigned: check the country code and all digits",
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
                pattern=r"(?=0*+[1-9])[0-9]{1,20}+",
                rule="must be a decimal integer",
                nothings=["0"],
                explain=_explain_svc_id,
            ),
            HashedIdentifier(
                name="email",
                pattern=_EMAIL,
                rule="must be an e-mail address",
                clean=_lower,
                parse_other=_parse_unicode_email,
                explain=_explain_email,
            ),
            _PHONE_NUMBER,
            HashedIdentifier(
                name="handle",
                pattern=r"(?:[a-z0-9_]{1,31}+|(?![0-9a-f]{32}(?:[0-9a-f]{8})?(?!\w))[a-z0-9_]{32,50}+)",
                rule="must be a handle: letters, digits and underscores, with or without a leading @",
                clean=_strip_at,
                nothings=["0", "00", "000", "handle", *filter(str.isalpha, NOTHINGS)],
                explain=_explain_handle,
            ),
            HashedIdentifier(
                name="device_id",
                pattern=r"(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-fA-F]{16})",
                rule="must be an advertising id with dashes, or an Android id of 16 hexadecimal digits",
                clean=_lower_advertising_ids,
                nothings=[*(f"{d * 8}-{d * 4}-{d * 4}-{d * 4}-{d * 12}" for d in "0f"), "0" * 16, "f" * 16, "F" * 16],
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
        parse_other=partial(_parse_national, region=phone_region),
        rule=f"must be a phone number in E.164 or a valid number of the region {phone_region}",
    )
    return MappingProxyType({**IDENTIFIERS, phone.name: phone})


def _parse_national(text: str, region: str) -> str | None:
    return format_e164(_unguard(plain_characters(text)), region)


def _require_region(region: str) -> None:
    if not TEXT.accepts(region) or not _is_region(region):  # before the extra, which somebody would install for nothing
        raise InvalidArgument("phone_region", _REGION)
    if not can_parse():
        raise InvalidArgument("phone_region", 'needs the extra "phone": pip install "svc-async[phone]"')
    if not is_known_region(region):
        raise InvalidArgument("phone_region", "must be a region that has phone numbers, such as DE: a code of ISO 3166")
