"""The identifiers of a slice of users, column by column."""

from collections.abc import Mapping, Sequence
from functools import lru_cache, reduce
from itertools import chain
from operator import or_
from types import MappingProxyType

import attrs

from svc_async.users.digest_column import DigestColumn, TextColumn, delete_rows
from svc_async.users.identifiers import DIGEST_SIZE, IDENTIFIERS
from svc_async.users.packed import HashedUsers, PackedUsers, RowTemplate, TextUsers

__all__ = ["Column", "UserColumns", "combine_present", "find_template"]

Column = DigestColumn | TextColumn

_ORDER = tuple(IDENTIFIERS)
_FIELDS_TEMPLATE = RowTemplate("{", "},{", "}", openings=tuple(f'"{name}":["' for name in _ORDER), closing='"]')


@attrs.frozen
class UserColumns:
    """The users of a slice that can be sent, and the rows that cannot.

    Attributes:
        columns: for each kind of identifier, in the order that decides the key, those of all users.
        present: a byte for each user; bit i says whether it has the i-th identifier.
        indexes: the index of each user in the slice.
        invalid: the rule that a row breaks which cannot be sent, by its index in the slice.
        attributes: the identifier that such a rule is about, where it is about one.
        partly_valid: the indexes of rows that have a valid identifier beside an invalid one.
    """

    columns: Mapping[str, Column]
    present: bytes
    indexes: Sequence[int]
    invalid: Mapping[int, str]
    attributes: Mapping[int, str] = MappingProxyType({})
    partly_valid: Sequence[int] = ()

    @property
    def template(self) -> RowTemplate:
        """Return the JSON that the users have in common."""
        return find_template(tuple(self.columns))

    def leave_out(self, attributes: Mapping[int, str]) -> "UserColumns":
        """Return the users without the invalid rows, and the identifiers that these are invalid for."""
        return attrs.evolve(
            self,
            columns={name: column.leave_out(self.invalid) for name, column in self.columns.items()},
            present=bytes(delete_rows(self.present, self.invalid)),
            indexes=delete_rows(self.indexes, self.invalid),
            attributes=attributes,
        )

    def pack(self) -> PackedUsers:
        """Return the users as they wait to be sent: as digests if each identifier of them is one hash."""
        hashed = [each for each in self.columns.values() if isinstance(each, DigestColumn)]
        texts = [each for each in self.columns.values() if isinstance(each, TextColumn)]
        if not hashed or any(any(each.tokens) for each in texts) or any(each.has_several for each in hashed):
            return self._pack_text()
        if len(self.columns) == 1:
            return HashedUsers(hashed[0].digests)
        by_row = zip(*[each.split() for each in hashed], strict=True)
        return HashedUsers(b"".join(chain.from_iterable(by_row)), self.present)

    def _pack_text(self) -> TextUsers:
        tokens = {name: column.write_tokens() for name, column in self.columns.items()}
        (_, users), *others = tokens.items()
        keys = memoryview(self.join_first_hashes()).cast("Q")[:: DIGEST_SIZE // 8].tolist()
        return TextUsers.pack(keys, _join_fields(tokens) if others else users)

    def join_first_hashes(self) -> bytes:
        """Return 32 bytes for each user: the hash of its first identifier, of which the key is the head."""
        first, *others = self.columns.values()
        if isinstance(first, DigestColumn) and first.counts is None:
            return first.digests
        hashes = first.list_first_hashes()
        for column in others:
            hashes = [each or other for each, other in zip(hashes, column.list_first_hashes(), strict=True)]
        return b"".join(hashes)


def combine_present(columns: Mapping[str, Column]) -> bytes:
    """Return a byte for each row; bit i says whether it has the i-th identifier."""
    present = [int.from_bytes(column.present) << _ORDER.index(name) for name, column in columns.items()]
    return reduce(or_, present).to_bytes(len(next(iter(columns.values()))))


@lru_cache
def find_template(names: tuple[str, ...]) -> RowTemplate:
    """Return the template of users with these identifiers; those with a single one differ in the token only.

    It is the same object each time, since users share operations only if they share their template.
    """
    if len(names) == 1:
        (name,) = names
        return RowTemplate(f'{{"{name}":["', f'"]}},{{"{name}":["', '"]}')
    return _FIELDS_TEMPLATE


def _join_fields(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Write the fields of each user."""
    fields = [[f',"{name}":["{token}"]' if token else "" for token in tokens] for name, tokens in columns.items()]
    return [user[1:] for user in map("".join, zip(*fields, strict=True))]
