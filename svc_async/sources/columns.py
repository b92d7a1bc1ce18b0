"""What each column of a table contains: recognised by its name, or given by a mapping.

Messages quote the names of columns only when the first line is certain to be a header.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

import attrs

from svc_async.errors import InvalidArgument, SvcError
from svc_async.users.identifiers import IDENTIFIERS, is_hash

__all__ = ["IGNORED", "OTHERS", "USERS", "ColumnMatcher", "Vocabulary", "looks_like_data", "normalize_name"]

IGNORED = "-"
"""The key of a column that is left out."""
OTHERS = "*"
"""The name in a mapping that stands for all columns that are not recognised."""

_is_data = re.compile(r"[^@\s]+@[^@\s]+|\+?[\d\s().-]{7,}").fullmatch


def normalize_name(name: str) -> str:
    """Return a name in the form in which names are compared."""
    return re.sub(r"[\s_-]+", "_", name.strip()).casefold()


def looks_like_data(names: Collection[str]) -> bool:
    """Return whether one of the names is more likely an address, number or hash of a person."""
    return any(_is_data(name.strip()) or is_hash(name.strip()) for name in names)


@attrs.frozen(kw_only=True)
class Vocabulary:
    """What columns may contain.

    Attributes:
        keys: the service's names.
        aliases: other common names for them, normalized.
        lenient: whether columns that are not recognised are left out silently.
    """

    keys: Collection[str]
    aliases: Mapping[str, str] = MappingProxyType({})
    lenient: bool = False

    def find_key(self, name: str) -> str | None:
        """Return the key that the name of a column stands for, None if it is not recognised."""
        name = normalize_name(name)
        key = self.aliases.get(name, name)
        return key if key in self.keys else None

    def restrict_to(self, keys: Collection[str]) -> "Vocabulary":
        """Return a vocabulary of some of the keys."""
        return attrs.evolve(self, keys=tuple(key for key in self.keys if key in keys))


USERS = Vocabulary(
    keys=tuple(IDENTIFIERS),
    aliases=MappingProxyType(
        {"e_mail": "email", "email_address": "email", "e_mail_address": "email", "phone": "phone_number"}
    ),
)
"""What the columns of a user file may contain."""


@attrs.frozen
class ColumnMatcher:
    """Finds out what each column of a header contains.

    Attributes:
        name: the name of the input to show to users.
        header: the names of its columns.
        mapping: from names of columns to keys, as the user wrote it.
        refuse: makes the error that says what is wrong with the input.
        vocabulary: what columns may contain.
        place: what the names were read from.
        where: the place of the names in messages, if it is not obvious.
    """

    name: str
    header: Sequence[str]
    mapping: Mapping[str, str]
    refuse: Callable[[str], SvcError]
    vocabulary: Vocabulary = USERS
    place: str = "the header"
    where: str = ""

    def match_columns(self) -> Sequence[str]:
        """Return a key for each column of a table, `-` for one that is ignored.

        Raises:
            SvcError: the header is not usable.
            InvalidArgument: the mapping is not usable.
        """
        keys = self.match_names()
        self._check_usable(keys)
        return keys

    def match_names(self) -> Sequence[str]:
        """Return a key for each name, where several names may have the same key.

        Raises:
            SvcError: a name is not recognised.
            InvalidArgument: the mapping is not usable.
        """
        self._check_mapping()
        keys = [self._find_key(name) for name in self.header]
        if not self.mapping and not any(keys):
            # The names are not listed: without a header they are personal data.
            raise self.refuse(
                f"has no recognised column; {self.place} needs at least one of {self._known_keys}, "
                "or name a column with --map COLUMN=KEY"
            )
        if not self.vocabulary.lenient:
            self._check_unknown([index for index, key in enumerate(keys) if key is None])
        return [key or IGNORED for key in keys]

    @property
    def _known_keys(self) -> str:
        return ", ".join(self.vocabulary.keys)

    def _find_key(self, name: str) -> str | None:
        for known, key in self.mapping.items():
            if known != OTHERS and normalize_name(known) == normalize_name(name):
                return key
        return self.vocabulary.find_key(name) or self.mapping.get(OTHERS)

    def _check_mapping(self) -> None:
        wrong = set(self.mapping.values()) - set(self.vocabulary.keys) - {IGNORED}
        if wrong or self.mapping.get(OTHERS, IGNORED) != IGNORED:
            raise InvalidArgument(
                "map", f"must be COLUMN=KEY, where KEY is one of {self._known_keys}, or - to ignore the column"
            )
        names = set(map(normalize_name, self.header))
        absent = [name for name in self.mapping if name != OTHERS and normalize_name(name) not in names]
        if absent:
            raise InvalidArgument("map", f"names columns that {self.name} does not have: {_quote(absent)}")

    def _check_unknown(self, unknown: Sequence[int]) -> None:
        if unknown:
            names = [self.header[index] or f"(column {index + 1}, without a name)" for index in unknown]
            raise self.refuse(
                f"has unknown columns{self.where}: {_quote(names)}; name the content of each with --map COLUMN=KEY, "
                f"ignore it with --map COLUMN={IGNORED}, or ignore all of them with --map '{OTHERS}={IGNORED}'"
            )

    def _check_usable(self, keys: Sequence[str]) -> None:
        used = [key for key in keys if key != IGNORED]
        if not used:
            raise self.refuse(f"has no column left to send; map one to {self._known_keys}")
        repeated = sorted({key for key in used if used.count(key) > 1})
        if repeated:
            raise self.refuse(
                f"has more than one column of {_quote(repeated)}; ignore the others with --map COLUMN={IGNORED}"
            )


def _quote(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
