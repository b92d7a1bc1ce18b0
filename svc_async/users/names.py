"""How columns and keys are named: compare names, propose the one that was meant, quote some of many.

Messages quote a name only if it does not look like the data of a person.
"""

import re
import unicodedata
from collections.abc import Collection, Mapping
from itertools import islice
from types import MappingProxyType

import attrs

from svc_async.errors import Hint
from svc_async.users.identifiers import IDENTIFIERS, is_hash
from svc_async.value_rules import instance_of

__all__ = [
    "DO_NOT_REACH_USERS",
    "USERS",
    "VOCABULARY",
    "Vocabulary",
    "looks_like_data",
    "normalize_name",
    "quote_name",
    "quote_names",
    "shorten_name",
]

_QUOTED_NAMES = 10
_QUOTED_LENGTH = 60
_SIMILARITY = 0.75
"""How similar a name must be to be proposed, from 0 to 1: `emial` and `email` are by 0.8."""

_is_data = re.compile(r"[^@\s]+@[^@\s]+|\+?[\d\s().-]{7,}").fullmatch
_umlauts = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"})


def normalize_name(name: str) -> str:
    """Return a name in the form in which names are compared: without case and accents, `_` between words."""
    name = name.strip().casefold()
    if not name.isascii():
        name = unicodedata.normalize("NFC", name).translate(_umlauts)
        name = "".join(each for each in unicodedata.normalize("NFKD", name) if not unicodedata.combining(each))
    return re.sub(r"[\s_./-]+", "_", name).strip("_")


def looks_like_data(names: Collection[str]) -> bool:
    """Return whether one of the names is more likely an address, number or hash of a person."""
    return any(_is_data(name.strip()) or is_hash(name.strip()) for name in names)


def quote_name(name: str) -> str:
    """Return a name in quotes, shortened if it is long."""
    return repr(shorten_name(name))


def shorten_name(name: str) -> str:
    """Return a name, shortened if it is long."""
    return name if len(name) <= _QUOTED_LENGTH else f"{name[: _QUOTED_LENGTH - 1]}…"


def quote_names(names: Collection[str]) -> str:
    """Return names in quotes: the first ten, and how many more there are."""
    quoted = ", ".join(map(quote_name, islice(names, _QUOTED_NAMES)))
    more = len(names) - _QUOTED_NAMES
    return f"{quoted} and {more:,} more" if more > 0 else quoted


@attrs.frozen(kw_only=True, eq=False)
class Vocabulary:
    """What names may stand for.

    Attributes:
        keys: the service's names.
        aliases: other common names for them, normalized.
        required: the keys that every row needs; a table is refused that has none but a column of a similar name.
        needed: the keys without which no row can be sent; a table that has none of one is refused.
        hints: what a name for a key may contain, as a regular expression; such a key is proposed, never assumed.
        lenient: whether names that are not recognised are left out silently.
        optional: whether there need not be any name that is recognised.
        multiple: whether a key may have several values, so that several columns may contain it.
        numbers: whether columns of a table may contain numbers with decimal places, too.
        hint: what to do if a table has none of the keys that it needs.
    """

    keys: Collection[str]
    aliases: Mapping[str, str] = MappingProxyType({})
    required: Collection[str] = ()
    needed: Collection[str] = ()
    hints: Mapping[str, str] = MappingProxyType({})
    lenient: bool = False
    optional: bool = False
    multiple: bool = False
    numbers: bool = False
    hint: Hint = Hint.MAP_A_COLUMN
    _spellings: Mapping[str, str] = attrs.field(
        default=attrs.Factory(lambda self: self._spell(), takes_self=True), init=False, repr=False
    )

    def _spell(self) -> Mapping[str, str]:
        """Return the keys by their names and aliases, without separators."""
        names = {
            **{name: key for name, key in self.aliases.items() if key in self.keys},
            **{key: key for key in self.keys},
        }
        return {name.replace("_", ""): key for name, key in names.items()}

    def find_key(self, name: str) -> str | None:
        """Return the key that a name stands for, None if it is not recognised."""
        return self._spellings.get(normalize_name(name).replace("_", ""))

    def propose_key(self, name: str) -> str | None:
        """Return the key that a name that is not recognised may stand for, None if there is none."""
        from difflib import get_close_matches  # noqa: PLC0415 - for messages only, it is not imported with the session

        compact = normalize_name(name[:_QUOTED_LENGTH]).replace("_", "")
        hinted = next((key for key, hint in self.hints.items() if key in self.keys and re.search(hint, compact)), None)
        near = get_close_matches(compact, self._spellings, 1, _SIMILARITY)
        return hinted or (self._spellings[near[0]] if near else None)

    def restrict_to(self, keys: Collection[str]) -> "Vocabulary":
        """Return a vocabulary of some of the keys."""
        return attrs.evolve(self, keys=tuple(key for key in self.keys if key in keys))


USERS = Vocabulary(
    keys=tuple(IDENTIFIERS),
    aliases=MappingProxyType(
        {
            "adresse_e_mail": "email",
            "correo_electronico": "email",
            "courriel": "email",
            "e_mail": "email",
            "e_mail_address": "email",
            "e_mail_adresse": "email",
            "email_address": "email",
            "mail_address": "email",
            "mail_adresse": "email",
            "cell_phone": "phone_number",
            "handynummer": "phone_number",
            "mobile_number": "phone_number",
            "mobile_phone": "phone_number",
            "mobilnummer": "phone_number",
            "numero_de_telephone": "phone_number",
            "phone": "phone_number",
            "telefon": "phone_number",
            "telefono": "phone_number",
            "telefonnummer": "phone_number",
            "telephone": "phone_number",
            "telephone_number": "phone_number",
        }
    ),
    hints=MappingProxyType(
        {
            "email": "mail",
            "phone_number": "phone|telef|mobil|handy|cell|^tel",
            "device_id": "idfa|gaid|advertisingid|deviceid",
            "handle": "handle|username|screenname",
        }
    ),
    multiple=True,
)
"""What the columns and keys of users may be named."""
DO_NOT_REACH_USERS = USERS.restrict_to(("email", "phone_number"))  # contract DNR-03
"""The same of users of do-not-reach lists."""

VOCABULARY = instance_of(Vocabulary, "a Vocabulary")
