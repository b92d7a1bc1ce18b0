"""What each column of a table holds: known by its name, or told by a mapping.

Names of columns are quoted only when the first line is certain to be a header.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import attrs

from svc_async.errors import InvalidArgument
from svc_async.sources.files import refused
from svc_async.users.identifiers import IDENTIFIERS, is_hash

__all__ = ["IGNORED", "OTHERS", "PEOPLE", "Matching", "Vocabulary", "looks_like_data", "plain"]

IGNORED = "-"
"""What a column is mapped to that is left out."""
OTHERS = "*"
"""Stands in a mapping for all columns that are not known."""

_holds_data = re.compile(r"[^@\s]+@[^@\s]+|\+?[\d\s().-]{7,}").fullmatch


def plain(name: str) -> str:
    """Bring a name into the form in which names are compared."""
    return re.sub(r"[\s_-]+", "_", name.strip()).casefold()


def looks_like_data(names: Collection[str]) -> bool:
    """Whether a name is rather somebody's address, number or hash."""
    return any(_holds_data(name.strip()) or is_hash(name.strip()) for name in names)


@attrs.frozen(kw_only=True)
class Vocabulary:
    """What columns may hold.

    Attributes:
        keys: the service's names.
        aliases: other common names of them, in their plain form.
        lenient: whether columns that are not known are left out without a word.
    """

    keys: Collection[str]
    aliases: Mapping[str, str] = MappingProxyType({})
    lenient: bool = False

    def key(self, name: str) -> str | None:
        """Give the key that a column's name stands for."""
        name = plain(name)
        key = self.aliases.get(name, name)
        return key if key in self.keys else None

    def only(self, keys: Collection[str]) -> "Vocabulary":
        """Leave out all keys but some."""
        return attrs.evolve(self, keys=tuple(key for key in self.keys if key in keys))


PEOPLE = Vocabulary(
    keys=tuple(IDENTIFIERS),
    aliases=MappingProxyType(
        {"e_mail": "email", "email_address": "email", "e_mail_address": "email", "phone": "phone_number"}
    ),
)


@attrs.frozen
class Matching:
    """Finds out what each column of a header holds.

    Attributes:
        name: what people call the input.
        header: the names of its columns.
        mapping: from names of columns to keys, as the user wrote it.
        vocabulary: what columns may hold.
        of: what the names were read from.
        at: where the names stand, if that is not plain.
    """

    name: str
    header: Sequence[str]
    mapping: Mapping[str, str]
    vocabulary: Vocabulary = PEOPLE
    of: str = "line 1"
    at: str = ""

    def chosen(self) -> Sequence[str]:
        """Give a key for each column of a table, `-` for one that is ignored.

        Raises:
            InvalidArgument: the header or the mapping is not usable.
        """
        chosen = self.meant()
        self._check_usable(chosen)
        return chosen

    def meant(self) -> Sequence[str]:
        """Give a key for each name, where several may mean the same.

        Raises:
            InvalidArgument: a name is not known, or the mapping is not usable.
        """
        self._check_mapping()
        keys = [self._key(name) for name in self.header]
        if not self.mapping and not any(keys):
            # The names are not listed: without a header they are somebody's data.
            raise refused(
                self.name,
                f"has no column that is known: {self.of} must name some of {self._listed_keys}, "
                "or give --map COLUMN=KEY",
            )
        if not self.vocabulary.lenient:
            self._check_unknown([index for index, key in enumerate(keys) if key is None])
        return [key or IGNORED for key in keys]

    @property
    def _listed_keys(self) -> str:
        return ", ".join(self.vocabulary.keys)

    def _key(self, name: str) -> str | None:
        for known, key in self.mapping.items():
            if known != OTHERS and plain(known) == plain(name):
                return key
        return self.vocabulary.key(name) or self.mapping.get(OTHERS)

    def _check_mapping(self) -> None:
        wrong = set(self.mapping.values()) - set(self.vocabulary.keys) - {IGNORED}
        if wrong or self.mapping.get(OTHERS, IGNORED) != IGNORED:
            raise InvalidArgument(
                "map", f"must give COLUMN=KEY, where the key is one of {self._listed_keys}, or - to ignore it"
            )
        names = set(map(plain, self.header))
        absent = [name for name in self.mapping if name != OTHERS and plain(name) not in names]
        if absent:
            raise InvalidArgument("map", f"names columns that {self.name} does not have: {_listed(absent)}")

    def _check_unknown(self, unknown: Sequence[int]) -> None:
        if unknown:
            names = [self.header[index] or f"(column {index + 1}, without a name)" for index in unknown]
            raise refused(
                self.name,
                f"has unknown columns{self.at}: {_listed(names)}; say what each holds with --map COLUMN=KEY, "
                f"ignore it with --map COLUMN={IGNORED}, or ignore all of them with --map '{OTHERS}={IGNORED}'",
            )

    def _check_usable(self, chosen: Sequence[str]) -> None:
        used = [key for key in chosen if key != IGNORED]
        if not used:
            raise refused(self.name, f"has no column left to send; map one to {self._listed_keys}")
        twice = sorted({key for key in used if used.count(key) > 1})
        if twice:
            raise refused(
                self.name,
                f"has more than one column of {_listed(twice)}; ignore the others with --map COLUMN={IGNORED}",
            )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
