"""Rows as fixed numbers of bytes: what identifies a row, and a digest of all its identifiers, a slice at a time.

The identifiers are hashes already, so nothing is hashed again. Each column is one large number, in which a row has 32
bytes. The columns are shifted by a few bytes, each by a different number, and combined with XOR; 8 bytes of each row
are the digest. The first identifier of a row is its key, as in an upload.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from hashlib import sha256
from operator import xor
from types import MappingProxyType

import attrs
import msgspec

from svc_async.users.identifiers import DIGEST_SIZE, HASH_LENGTH, IDENTIFIERS
from svc_async.users.user_columns import SEPARATOR, Column, UserColumns

__all__ = ["MemberDigests", "digest", "mark_key", "restore_hash"]

_NOTHING = bytes(DIGEST_SIZE)
_WORDS = DIGEST_SIZE // 8
_DIGEST_WORD = 2
"""The digest is the third word of 8 bytes; no column is shifted so far that bytes of another row come there."""
_SHIFTS: Mapping[str, int] = MappingProxyType({name: 3 * number for number, name in enumerate(IDENTIFIERS)})
_MARKED = 15
"""The byte of a key that is combined with the number of its kind."""
_MARKS: Mapping[str, int] = MappingProxyType({name: number for number, name in enumerate(IDENTIFIERS, 1)})
_FIRST_KINDS = bytes((present & -present).bit_length() for present in range(256))
"""The number of the first kind of identifier, by the byte that says which a row has."""
_MEMBER_BYTES, _IDENTIFIER_BYTES = len("{},") - 1, len('"":[""],')


@attrs.frozen
class MemberDigests:
    """The rows of a slice that can be sent.

    Attributes:
        ids: 24 bytes for each row: 16 of its key, 8 of the digest.
        rests: 16 bytes for each row: the second half of the hash of its first identifier.
        kinds: for each row the number of the kind of its first identifier: 1 for the first of `IDENTIFIERS`.
        names: the partner's own id of each row that has one, else nothing; none if no row has.
        size: bytes of the rows in JSON, approximately.
        has_lists: whether a row has several values of one kind.
    """

    ids: bytearray
    rests: bytearray
    kinds: bytes
    names: Sequence[bytes]
    size: int
    has_lists: bool


def digest(users: UserColumns) -> MemberDigests:
    """Return what identifies the users of a slice, and the digests of their contents."""
    count = len(users.present)
    kinds = users.present.translate(_FIRST_KINDS)
    hashes = memoryview(users.join_first_hashes()).cast("Q")
    ids, rests = bytearray(24 * count), bytearray(16 * count)
    words = memoryview(ids).cast("Q")
    words[0::3], words[1::3] = hashes[0::_WORDS], hashes[1::_WORDS]
    words[2::3] = memoryview(_combine_contents(users.columns)).cast("Q")[_DIGEST_WORD::_WORDS]
    words.release()  # or the keys could not be changed
    # The same text as two kinds makes two keys.
    ids[_MARKED::24] = (int.from_bytes(ids[_MARKED::24]) ^ int.from_bytes(kinds)).to_bytes(count)
    words = memoryview(rests).cast("Q")
    words[0::2], words[1::2] = hashes[2::_WORDS], hashes[3::_WORDS]
    texts = [column for column in users.columns.values() if column.texts]
    first = [token.split(SEPARATOR, 1)[0] for column in texts for token in column.write_tokens()]
    names = [str(msgspec.json.decode(f'"{token}"')).encode() for token in first]
    return MemberDigests(
        ids=ids,
        rests=rests,
        kinds=kinds,
        names=names,
        size=_MEMBER_BYTES * count + _measure(users.columns),
        has_lists=any(column.has_several for column in users.columns.values()),
    )


def mark_key(kind: str, hashed: bytes) -> bytes:
    """Return the key of a row, given the kind and the hash of its first identifier."""
    return hashed[:_MARKED] + bytes([hashed[_MARKED] ^ _MARKS[kind]])


def restore_hash(kind: str, key: bytes, rest: bytes) -> bytes:
    """Return the hash of a row's first identifier, given its key and the rest."""
    return mark_key(kind, key) + rest


def _combine_contents(columns: Mapping[str, Column]) -> bytes:
    """Return 32 bytes for each row, in which those of all columns are combined."""
    shifted = []
    for name, column in columns.items():
        content = _join_contents(column)
        shifted.append((bytes(_SHIFTS[name]) + content)[: len(content)])
    if len(shifted) == 1:
        return shifted[0]
    return reduce(xor, map(int.from_bytes, shifted)).to_bytes(len(shifted[0]))


def _join_contents(column: Column) -> bytes:
    """Return 32 bytes for each row: a hash of all its values, zeros where there is none."""
    if column.counts is None:
        return column.digests
    return b"".join(
        [each if len(each) == DIGEST_SIZE else _summarize(each) if each else _NOTHING for each in column.split()]
    )


def _summarize(digests: bytes) -> bytes:
    return sha256(digests.hex("\n", DIGEST_SIZE).replace("\n", SEPARATOR).encode()).digest()


def _measure(columns: Mapping[str, Column]) -> int:
    """Return the bytes of the identifiers in JSON, approximately."""
    size = 0
    for name, column in columns.items():
        rows = len(column) - column.present.count(0)
        values = len(column.digests) // DIGEST_SIZE
        size += (len(name) + _IDENTIFIER_BYTES) * rows + len(SEPARATOR) * (values - rows)
        size += HASH_LENGTH * values if column.texts is None else sum(map(len, column.texts))
    return size
