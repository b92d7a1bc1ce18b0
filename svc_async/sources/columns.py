"""What each column of a table contains: recognised by its name, or given by a mapping.

Messages quote the names of columns only when the first line is certain to be a header.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs

from svc_async.errors import Hint, InvalidArgument, SvcError
from svc_async.users.names import USERS, Vocabulary, normalize_name, quote_name, quote_names
from svc_async.value_rules import TEXTS

__all__ = [
    "IGNORED",
    "OTHERS",
    "PREFIX",
    "ColumnMatcher",
    "EmptyValues",
    "FoundColumn",
    "choose_between",
    "find_missing",
    "select_unmapped",
]


@attrs.frozen
class EmptyValues:
    """Texts that stand for no value, whatever their case and the spaces around them."""

    _texts: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, texts: Collection[str]) -> "EmptyValues":
        """Parse the texts of a caller.

        Raises:
            InvalidArgument: they are not several texts.
        """
        if not TEXTS.accepts(texts):
            raise InvalidArgument("empty", "must be a list of texts, such as n/a")
        return cls(frozenset(map(_normalize, texts)))

    @property
    def texts(self) -> Sequence[str]:
        """The texts, in an order that depends on nothing else."""
        return sorted(self._texts)

    def clear(self, value: Any) -> Any:
        """Return a value, or none if it is one of the texts; of a list those elements are left out."""
        if isinstance(value, str):
            return "" if _normalize(value) in self._texts else value
        if isinstance(value, list):
            return [each for each in value if not (isinstance(each, str) and _normalize(each) in self._texts)]
        return value

    def clear_all(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the values of a column without these texts."""
        return [self.clear(value) for value in values] if self._texts else values


def _normalize(text: str) -> str:
    return text.strip().casefold()


IGNORED = "-"
"""The key of a column that is left out."""
PREFIX = "g:"
"""What the names of attributes may begin with in feeds of products."""
# Unspecified: the namespace of attributes in XML; they are recognised by this prefix, whatever it stands for, too.
OTHERS = "*"
"""The name in a mapping that stands for all columns that are not recognised."""
_PROPOSED_NAMES = 10
_COMPARED_NAMES = 100
_LONGEST_HEADER = 1_000
_IN_NAMES = frozenset("-_ ")
"""Characters that are often within a name."""
_IS_PANDAS_INDEX = re.compile(r"__index_level_\d+__").fullmatch
"""The names under which pandas exports an index without a name, such as that of a frame whose rows were filtered."""


@attrs.frozen
class FoundColumn:
    """A column of a file.

    Attributes:
        name: its name in the file.
        key: what it contains, `-` if it is ignored, None if it is not recognised.
        proposal: what a column that is not recognised may contain, by its name.
    """

    name: str
    key: str | None
    proposal: str | None = None


def select_unmapped(names: Iterable[str], mapping: Mapping[str, str]) -> Sequence[str]:
    """Return the names about which a mapping says nothing."""
    if OTHERS in mapping:
        return ()
    mapped = {normalize_name(name.removeprefix(PREFIX)) for name in mapping}
    return [name for name in names if normalize_name(name) not in mapped]


def find_missing(vocabulary: Vocabulary, keys: Collection[str], names: Sequence[str]) -> tuple[str, Hint] | None:
    """Return what is wrong if every row needs a key that no column has, and what to do; None if there is none.

    A key that is only required is missing if a column that is left out is most likely one of it.

    Args:
        vocabulary: what columns may contain.
        keys: what the columns contain.
        names: the names of the columns that are not recognised.
    """
    required = {key for key in vocabulary.required if key not in keys}
    for name in names[:_COMPARED_NAMES] if required else ():
        if (key := vocabulary.propose_key(name)) in required:
            return f"has no column of {key!r} ({quote_name(name)} may be one)", Hint.MAP_OR_IGNORE
    missing = next((key for key in vocabulary.needed if key not in keys), None)
    if missing is None:
        return None
    similar = (name for name in names[:_COMPARED_NAMES] if vocabulary.propose_key(name) == missing)
    proposed = next((f" ({quote_name(name)} may be one)" for name in similar), "")
    return f"has no {missing!r}, which every row needs{proposed}", vocabulary.hint


def choose_between(names: Collection[str]) -> Hint:
    """Return what to do about several columns of which one is needed: a mapping tells them apart by their names."""
    return Hint.NAME_EACH_COLUMN if len(set(map(normalize_name, names))) < len(names) else Hint.IGNORE_THE_OTHERS


@attrs.frozen(slots=False)
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
        continued: whether other names of the input were matched before.
        unused: the columns, counted from 0, that have neither a name nor any value.
    """

    name: str
    header: Sequence[str]
    mapping: Mapping[str, str]
    refuse: Callable[[str, Hint | None], SvcError]
    vocabulary: Vocabulary = USERS
    place: str = "the header"
    where: str = ""
    continued: bool = False
    unused: Collection[int] = ()

    def match_columns(self) -> Sequence[str]:
        """Return a key for each column of a table, `-` for one that is ignored.

        Raises:
            SvcError: the header is not usable.
            InvalidArgument: the mapping is not usable.
        """
        keys = self.match_names()
        if not self.vocabulary.optional:
            self._check_usable(keys)
        return keys

    def match_names(self) -> Sequence[str]:
        """Return a key for each name, where several names may have the same key.

        Raises:
            SvcError: a name is not recognised.
            InvalidArgument: the mapping is not usable.
        """
        self._check_mapping()
        keys = [IGNORED if at in self.unused else self._find_key(name) for at, name in enumerate(self.header)]
        if not (self.vocabulary.optional or self.mapping or self.continued or {*keys} - {None, IGNORED}):
            raise self._make_unrecognised_error()
        if not self.vocabulary.lenient:
            self._check_unknown(keys)
        return [key or IGNORED for key in keys]

    def find_columns(self) -> Sequence[FoundColumn]:
        """Return what each column contains, as far as it is recognised, with a proposal for the others."""
        keys = [self._find_key(name) for name in self.header]
        return [
            FoundColumn(name, key, None if key else self.vocabulary.propose_key(name))
            for name, key in zip(self.header, keys, strict=True)
        ]

    @property
    def _known_keys(self) -> str:
        return ", ".join(self.vocabulary.keys)

    @cached_property
    def _keys(self) -> Mapping[str, str]:
        """The keys of the mapping by normalized names; they may be other common names of a key too."""
        return {
            normalize_name(name): (key == key.strip() and self.vocabulary.find_key(key)) or key
            for name, key in self.mapping.items()
            if name != OTHERS
        }

    def _find_key(self, name: str) -> str | None:
        key = self._keys.get(normalize_name(name)) or self.vocabulary.find_key(name) or self.mapping.get(OTHERS)
        return IGNORED if key is None and _IS_PANDAS_INDEX(name) else key

    def _check_mapping(self) -> None:
        wrong = self._find_wrong()
        if wrong:
            which = f"; it is none for {quote_names(wrong)}" if len(self.mapping) > 1 else ""
            raise InvalidArgument(
                "map", f"must be COLUMN=KEY, where KEY is one of {self._known_keys}, or - to ignore the column{which}"
            )
        names = set(map(normalize_name, self.header))
        absent = [name for name in self.mapping if name != OTHERS and normalize_name(name) not in names]
        if absent:
            raise InvalidArgument("map", f"names columns that {self.name} does not have: {quote_names(absent)}")

    def _find_wrong(self) -> Sequence[str]:
        """Return the names in the mapping that are given something else than a key."""
        known = {*self.vocabulary.keys, IGNORED}
        return [
            name
            for name, key in self.mapping.items()
            if (key != IGNORED if name == OTHERS else self._keys[normalize_name(name)] not in known)
        ]

    def _make_unrecognised_error(self) -> SvcError:
        if (delimiter := self._find_delimiter()) is not None:
            separated = f"comma, semicolon, tab or bar, not by {quote_name(delimiter)}"
            return self.refuse(
                f"has no recognised column; the columns of a table may be separated by {separated}", None
            )
        # Names that resemble no key are not quoted: if the file has no header, they are the data of a person.
        needs = f"has no recognised column; {self.place} needs at least one of {self._known_keys}"
        return self.refuse(f"{needs}{self._propose(self.header)}", self.vocabulary.hint)

    def _find_delimiter(self) -> str | None:
        """Return what stands between known names if they make up the only name; None if it is none of several."""
        name = self.header[0][:_LONGEST_HEADER] if len(self.header) == 1 else ""

        def separates_keys(character: str) -> bool:
            return sum(self.vocabulary.find_key(part) is not None for part in name.split(character)) > 1

        return next(filter(separates_keys, sorted({*name} - _IN_NAMES)), None)

    def _check_unknown(self, keys: Sequence[str | None]) -> None:
        unknown = [index for index, key in enumerate(keys) if key is None]
        if unknown:
            names = [self.header[index] or f"(column {index + 1}, without a name)" for index in unknown]
            taken = () if self.vocabulary.optional else [key for key in keys if key]
            unknown_names = f"has unknown columns{self.where}: {quote_names(names)}"
            raise self.refuse(f"{unknown_names}{self._propose(names, taken)}", Hint.MAP_OR_IGNORE)

    def _propose(self, names: Sequence[str], taken: Collection[str] = ()) -> str:
        """Return what the first names may contain, in brackets; empty if no name resembles a key.

        Args:
            names: the names.
            taken: keys of other columns; more columns of these are rather not what is meant.
        """
        proposals = [(name, self.vocabulary.propose_key(name)) for name in names[:_PROPOSED_NAMES]]
        found = [f"{quote_name(name)} may be {key}" for name, key in proposals if key and key not in taken]
        return f" ({', '.join(found)})" if found else ""

    def _check_usable(self, keys: Sequence[str]) -> None:
        used = Counter(key for key in keys if key != IGNORED)
        if not used:
            raise self.refuse(
                f"has no column left to send, which contains one of {self._known_keys}", self.vocabulary.hint
            )
        others = [name for name in self.header if self._find_key(name) is None]
        if missing := find_missing(self.vocabulary, keys, others):
            raise self.refuse(*missing)
        repeated = sorted(key for key, count in used.items() if count > 1)
        if repeated and not self.vocabulary.multiple:
            names = [name for name, key in zip(self.header, keys, strict=True) if key in repeated]
            raise self.refuse(f"has more than one column of {quote_names(repeated)}", choose_between(names))
