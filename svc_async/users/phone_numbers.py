"""Phone numbers, checked by the library phonenumbers if it is installed: the extra `phone`.

It is imported when phone numbers are encoded, since it takes 20 times as long as the modules of identifiers.
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any

__all__ = ["can_parse", "find_unassigned", "format_e164", "is_known_region", "plain_characters"]

_TYPES = (
    *("fixed_line", "mobile", "toll_free", "premium_rate", "shared_cost"),
    *("personal_number", "voip", "pager", "uan", "voicemail"),
)
"""The types of numbers of a country, as the library's metadata name them."""
_MINUS, _WIDE_PLUS = "\u2212", "\uff0b"
_EXTENSION_WORDS = {
    "anexo",
    "ext",
    "extension",
    "extensi\u00f3n",
    "extn",
    "int",
    "x",
    "xt",
    "xtn",
    "\u0434\u043e\u0431",
}
"""Those that the library knows. It also takes the end of another word for one, such as the x of a name."""
_match_nothing = re.compile("(?!)").match
_split_at_words = re.compile(r"([^\W\d_]+)").split


def plain_characters(text: str) -> str:
    """Return a text without invisible characters, its digits, dashes and blanks in ASCII, and its plus sign."""
    return text if text.isascii() else "".join(map(_plain_character, text))


def _plain_character(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Cf":  # marks of direction, zero-width characters
        return ""
    if category == "Pd" or character == _MINUS:
        return "-"
    if category == "Nd":  # a digit of any script
        return str(unicodedata.decimal(character))
    if character == _WIDE_PLUS:
        return "+"
    return " " if category == "Zs" else character


def _find_library() -> ModuleType | None:
    try:
        import phonenumbers  # noqa: PLC0415 - see above
    except ImportError:
        return None
    return phonenumbers


def can_parse() -> bool:
    """Return whether the extra is installed."""
    return _find_library() is not None


def is_known_region(region: str) -> bool:
    """Return whether a region has phone numbers."""
    library: Any = _find_library()
    return region in library.SUPPORTED_REGIONS


def find_unassigned(numbers: Sequence[str]) -> Collection[int]:
    """Return which of these numbers in E.164 cannot be assigned to anybody; none, if the extra is not installed.

    Patterns accept most of the numbers at a twentieth of the library's time; it decides about all others.
    """
    library = _find_library()
    if library is None:
        return ()
    return {
        index
        for index, number in enumerate(numbers)
        if not _compile(number[1:4])(number) and not _is_assignable(number)
    }


@lru_cache(maxsize=512)
def _is_assignable(number: str) -> bool:
    """Return whether the library accepts a number in E.164 as it is; those of a slice are asked for twice."""
    parsed = _parse(_find_library(), number, None)
    return parsed is not None and parsed[1] == number


@lru_cache(maxsize=1_000)
def _compile(start: str) -> Callable[[str], object]:
    """Return what matches numbers that begin with three digits, and that the library accepts as they are."""
    library: Any = _find_library()
    codes = [int(start[:length]) for length in (1, 2, 3)]
    code = next((each for each in codes if each in library.COUNTRY_CODE_TO_REGION_CODE), None)
    return _compile_country(code) if code else _match_nothing


@lru_cache(maxsize=1_000)
def _compile_country(code: int) -> Callable[[str], object]:
    """Return the same for a country code, out of the library's metadata.

    As in the library, the first region of those that share the code decides whose leading digits the number has, or,
    if it has none, one of whose types it is. Numbers of which the library may take away a prefix are left to it.
    """
    library: Any = _find_library()
    find_metadata = library.PhoneMetadata.metadata_for_region_or_calling_code
    countries = [find_metadata(code, region) for region in library.COUNTRY_CODE_TO_REGION_CODE[code]]
    prefix = countries[0].national_prefix_for_parsing
    others = rf"(?!(?:{prefix})(?<!\+{code}))" if prefix else ""
    regions: list[str] = []
    for country in countries:
        types = "|".join(filter(None, [_write_pattern(getattr(country, each)) for each in _TYPES]))
        any_type = _write_pattern(country.general_desc)
        leading = country.leading_digits
        if types and any_type:
            regions.append(f"{others}(?={leading or ''})(?={any_type})(?:{types})")
        if leading:
            others += f"(?!{leading})"
    return re.compile(rf"\+{code}(?:{'|'.join(regions)})").match if regions else _match_nothing


def _write_pattern(description: Any) -> str:
    """Return the pattern of the numbers of one type, up to their end; nothing if there are none."""
    if description is None or not description.national_number_pattern:
        return ""
    lengths = "|".join(f"[0-9]{{{length}}}" for length in description.possible_length)
    ending = rf"(?=(?:{lengths})\Z)" if lengths else ""
    return rf"{ending}(?:{description.national_number_pattern})\Z"


def _parse(library: Any, text: str, region: str | None) -> tuple[Any, str] | None:
    """Return a number with its form in E.164, None if nobody can have it."""
    try:
        number = library.parse(text, region, keep_raw_input=True)
    except library.NumberParseException:
        return None
    if not library.is_valid_number(number):
        return None
    return number, library.format_number(number, library.PhoneNumberFormat.E164)


def format_e164(text: str, region: str) -> str | None:
    """Return a number in E.164 that may be written as within a region, None if nobody can have it.

    The only word that it may contain is the one before an extension, which is left out: the library would take the
    letters of others for digits, as on the keys of a phone. Behind a country code there is no zero of calls within the
    country, unless it is in parentheses.
    """
    library: Any = _find_library()
    before, *words = _split_at_words(unicodedata.normalize("NFC", text))
    parsed = _parse(library, text, region)
    if parsed is None or len(words) > 2:  # noqa: PLR2004 - a word, and what follows it
        return None
    number, formatted = parsed
    extension = number.extension or ""
    if words:
        word, digits = words
        is_extension = word.lower() in _EXTENSION_WORDS and library.normalize_digits_only(digits) == extension
        without = _parse(library, before, region)
        if not is_extension or without is None or without[1] != formatted:
            return None
    if number.country_code_source == library.CountryCodeSource.FROM_DEFAULT_COUNTRY:
        return formatted
    ending = formatted[1:] + extension
    spellings = (text, text.replace("(0)", ""))
    return formatted if any(library.normalize_digits_only(each).endswith(ending) for each in spellings) else None
