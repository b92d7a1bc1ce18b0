"""Slices of users, packed: what a sync compares of them, and the users as they are sent."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from types import MappingProxyType
from typing import Any

import msgspec

from svc_async.batch.packing.batch import Batch
from svc_async.sync.entries import Entries, WrittenIdentifiers
from svc_async.sync.snapshot import SnapshotSlice
from svc_async.users.digests import digest, mark_key
from svc_async.users.encoding import EncodedUsers
from svc_async.users.identifiers import IDENTIFIERS, PartnerId
from svc_async.users.packed import HashedUsers, IdentifierSet, TextUsers
from svc_async.users.user_columns import UserColumns, find_template
from svc_async.wire.dialect import Dialect

__all__ = ["KINDS", "find_users", "list_identifiers", "pack_users", "unpack_users"]

KINDS: Mapping[str, int] = MappingProxyType(
    {"svc_id": 1, "email": 2, "phone_number": 3, "handle": 4, "device_id": 5, "partner_user_id": 6}
)
"""The number of each kind of identifier in the state; it must never change."""
_KIND_TABLE = bytes([0, *map(KINDS.__getitem__, IDENTIFIERS)]).ljust(256, b"\0")
"""The same by the place of the kind among the identifiers, counted from 1."""


def pack_users(users: UserColumns) -> SnapshotSlice:
    """Pack a slice of users."""
    packed, members = users.pack(), digest(users)
    content = msgspec.msgpack.encode(
        (
            list(users.columns),
            *((packed.digests, packed.present) if isinstance(packed, HashedUsers) else (packed.keys, packed.text)),
            None if isinstance(users.indexes, range) else users.indexes,
            users.invalid,
            dict(users.attributes),
            users.partly_valid,
        )
    )
    entries = Entries(
        positions=users.indexes,
        ids=members.ids,
        kinds=members.kinds.translate(_KIND_TABLE),
        rests=members.rests,
        names=members.names,
        invalid_rows=sorted(users.invalid),
        size=members.size,
        is_linked=len(users.columns) > 1 or members.has_lists,
    )
    return SnapshotSlice(len(users.indexes) + len(users.invalid), entries, content)


def unpack_users(slices: Iterable[tuple[bytes, range, Sequence[int]]]) -> Iterator[EncodedUsers]:
    """Yield the users of slices, each given by its content, its rows, and those of them that are wanted."""
    for content, rows, selected in slices:
        names, users, indexes, invalid, attributes, partly_valid = _decode(content, len(rows))
        if len(selected) < len(rows):
            ranks = {index: rank for rank, index in enumerate(selected)}
            places = [place for place, index in enumerate(indexes) if index in ranks] if invalid else selected
            (users,) = users.distribute([places])
            indexes = _renumber(indexes, ranks) if invalid else range(len(selected))
            invalid = {ranks[index]: rule for index, rule in invalid.items() if index in ranks}
            attributes = {ranks[index]: name for index, name in attributes.items() if index in ranks}
            partly_valid = _renumber(partly_valid, ranks)
        yield EncodedUsers(find_template(tuple(names)), users, indexes, invalid, attributes, len(partly_valid))


def find_users(slices: Iterable[tuple[bytes, range, Sequence[int]]], identifiers: IdentifierSet) -> Iterator[int]:
    """Yield the positions of the users of slices that have one of these identifiers; see `unpack_users`."""
    for content, rows, selected in slices:
        _, users, indexes, *_ = _decode(content, len(rows))
        found = users.find_any(identifiers)
        if found:
            wanted = frozenset(selected)
            yield from (rows[indexes[place]] for place in found if indexes[place] in wanted)


def list_identifiers(batch: Batch, dialect: Dialect | None) -> WrittenIdentifiers:
    """Return all identifiers of the users of a batch, which is written in the words of a dialect, if there is one."""
    kinds, keys, rests, names = bytearray(), list[bytes](), list[bytes](), list[bytes]()
    for array in chain.from_iterable(block.write_users() for block in batch.operation_blocks):
        for user in msgspec.json.decode(array if dialect is None else dialect.read_json(array.encode())):
            for name, texts in user.items():
                identifier = IDENTIFIERS[name]
                for text in texts:
                    named = isinstance(identifier, PartnerId)
                    hashed = sha256(identifier.tokenize(text).encode()).digest() if named else bytes.fromhex(text)
                    kinds.append(KINDS[name])
                    keys.append(mark_key(name, hashed))
                    rests.append(b"" if named else hashed[16:])
                    names.append(text.encode() if named else b"")
    return WrittenIdentifiers(bytes(kinds), keys, rests, names)


def _decode(content: bytes, count: int) -> tuple[Any, ...]:
    names, first, second, indexes, *others = msgspec.msgpack.decode(content)
    users = TextUsers(first, second) if isinstance(second, str) else HashedUsers(first, second)
    return names, users, range(count) if indexes is None else indexes, *others


def _renumber(indexes: Iterable[int], ranks: Mapping[int, int]) -> Sequence[int]:
    """Return the ranks of those indexes that have one."""
    return [ranks[index] for index in indexes if index in ranks]
