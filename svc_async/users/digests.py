"""Rows as fixed numbers of bytes: what identifies a row, and a digest of all its identifiers, a slice at a time.

The identifiers are hashes already, so nothing is hashed again. Each column is one large number, in which a row has 32
bytes. The columns are shifted by a few bytes, each by a different number, and combined with XOR; 8 bytes of each row
are the digest. The first identifier of a row is its key, as in an upload.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from types import MappingProxyType

import attrs
import msgspec

from svc_async.users.encoding import TokenColumns
from svc_async.users.identifiers import HASH_LENGTH, IDENTIFIERS, PartnerId
from svc_async.users.tokens import SEPARATOR

__all__ = ["MemberDigests", "digest", "restore_hash"]

_HASH_SIZE = HASH_LENGTH // 2
_WORDS = _HASH_SIZE // 8
_DIGEST_WORD = 2
"""The digest is the third word of 8 bytes; no column is shifted so far that bytes of another row come there."""
_SHIFTS: Mapping[str, int] = MappingProxyType({name: 3 * 8 * number for number, name in enumerate(IDENTIFIERS)})
_MARKED = 15
"""The byte of a key that is combined with the number of its kind: the same text as two kinds makes two keys."""
_MARKS: Mapping[str, int] = MappingProxyType({name: number for number, name in enumerate(IDENTIFIERS, 1)})
_MARK_TABLES: Mapping[str, bytes] = MappingProxyType(
    {name: bytes(value ^ mark for value in range(256)) for name, mark in _MARKS.items()}
)
_MEMBER_BYTES, _IDENTIFIER_BYTES = len("{},") - 1, len('"":[""],')


@attrs.frozen
class MemberDigests:
    """The rows of a slice that can be sent.

    Attributes:
        ids: 24 bytes for each row: 16 of its key, 8 of the digest.
        rests: 16 bytes for each row: the second half of the hash of its first identifier.
        kinds: the kind of the first identifier of each row.
        names: the partner's own id of each row that is identified by it, else nothing; none if no row is.
        size: bytes of the rows in JSON, approximately.
        has_lists: whether a row has several values of one kind.
    """

    ids: bytearray
    rests: bytearray
    kinds: Sequence[str]
    names: Sequence[bytes]
    size: int
    has_lists: bool


def digest(tokens: TokenColumns) -> MemberDigests:
    """Return what identifies the rows of a slice, and the digests of their contents."""
    count, columns = len(tokens.indexes), tokens.columns
    contents = 0
    for name, column in columns.items():
        contents ^= int.from_bytes(_join_hashes(name, column)) >> _SHIFTS[name]
    kinds = _find_kinds(columns, count)
    firsts = _find_firsts(columns, kinds)
    hashes = memoryview(_join_keys(kinds, firsts)).cast("Q")
    ids, rests = bytearray(24 * count), bytearray(16 * count)
    words = memoryview(ids).cast("Q")
    words[0::3], words[1::3] = hashes[0::_WORDS], hashes[1::_WORDS]
    words[2::3] = memoryview(contents.to_bytes(_HASH_SIZE * count)).cast("Q")[_DIGEST_WORD::_WORDS]
    words.release()  # or the keys could not be changed
    ids[_MARKED::24] = _mark(ids[_MARKED::24], kinds)
    words = memoryview(rests).cast("Q")
    words[0::2], words[1::2] = hashes[2::_WORDS], hashes[3::_WORDS]
    return MemberDigests(
        ids=ids,
        rests=rests,
        kinds=kinds,
        names=_find_names(kinds, firsts),
        size=_measure(columns, count),
        has_lists=any(SEPARATOR in token for column in columns.values() if _has_long(column) for token in column),
    )


def restore_hash(kind: str, key: bytes, rest: bytes) -> bytes:
    """Return the hash of a row's first identifier, given its key and the rest."""
    return key[:_MARKED] + bytes([key[_MARKED] ^ _MARKS[kind]]) + key[_MARKED + 1 :] + rest


def _mark(values: bytearray, kinds: Sequence[str]) -> bytes | bytearray:
    if len(set(kinds)) == 1:
        return values.translate(_MARK_TABLES[kinds[0]])
    return bytes(value ^ _MARKS[kind] for value, kind in zip(values, kinds, strict=True))


def _find_kinds(columns: Mapping[str, Sequence[str]], count: int) -> Sequence[str]:
    """Return the kind of the first identifier of each row."""
    (name, first), *others = columns.items()
    if "" not in first:
        return [name] * count
    kinds = [name if token else "" for token in first]
    for other, column in others:
        kinds = [kind or (other if token else "") for kind, token in zip(kinds, column, strict=True)]
    return kinds


def _find_firsts(columns: Mapping[str, Sequence[str]], kinds: Sequence[str]) -> Sequence[str]:
    """Return the first identifier of each row."""
    if not kinds:
        return []
    if len(set(kinds)) == 1:
        return columns[kinds[0]]
    return [columns[kind][row] for row, kind in enumerate(kinds)]


def _is_hashed(kind: str) -> bool:
    return not isinstance(IDENTIFIERS[kind], PartnerId)


def _join_hashes(name: str, column: Sequence[str]) -> bytes:
    """Return 32 bytes for each token of a column: zeros where there is none."""
    joined = "".join(column)
    if _is_hashed(name) and not _has_long(column) and len(joined) == HASH_LENGTH * len(column):
        return bytes.fromhex(joined)
    if _is_hashed(name):
        return bytes.fromhex("".join([_pad(token) for token in column]))
    return b"".join([sha256(token.encode()).digest() if token else bytes(_HASH_SIZE) for token in column])


def _pad(token: str) -> str:
    if len(token) > HASH_LENGTH:
        return sha256(token.encode()).hexdigest()
    return token or "0" * HASH_LENGTH


def _has_long(column: Sequence[str]) -> bool:
    return max(map(len, column), default=0) > HASH_LENGTH


def _join_keys(kinds: Sequence[str], firsts: Sequence[str]) -> bytes:
    """Return 32 bytes for each row: the hash by which it is identified."""
    joined = "".join(firsts)
    if len(set(kinds)) == 1 and _is_hashed(kinds[0]) and len(joined) == HASH_LENGTH * len(firsts):
        return bytes.fromhex(joined)
    return b"".join(
        [
            bytes.fromhex(token[:HASH_LENGTH]) if _is_hashed(kind) else sha256(_first_of(token).encode()).digest()
            for kind, token in zip(kinds, firsts, strict=True)
        ]
    )


def _find_names(kinds: Sequence[str], firsts: Sequence[str]) -> Sequence[bytes]:
    if all(map(_is_hashed, set(kinds))):
        return ()
    return [
        b"" if _is_hashed(kind) else str(msgspec.json.decode(f'"{_first_of(token)}"')).encode()
        for kind, token in zip(kinds, firsts, strict=True)
    ]


def _first_of(token: str) -> str:
    return token.split(SEPARATOR, 1)[0]


def _measure(columns: Mapping[str, Sequence[str]], count: int) -> int:
    size = _MEMBER_BYTES * count
    for name, column in columns.items():
        size += sum(map(len, column)) + (len(name) + _IDENTIFIER_BYTES) * sum(map(bool, column))
    return size
