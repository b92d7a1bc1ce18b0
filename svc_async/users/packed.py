"""Users that wait to be sent, many in one object.

There are two stores with the same methods. Users all of whose identifiers are single hashes are stored as digests, half
the size of their hexadecimal digits, and written as JSON when they are sent. All others are stored as text. With an
object for each user, those of a batch would be scattered over memory, and reading them again would cost more than their
hash did.

Methods that write take the template of the users.
"""

import re
from array import array
from binascii import hexlify
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import chain, compress, repeat
from operator import itemgetter
from struct import Struct
from typing import Any, TypeVar

import attrs

from svc_async.users.identifiers import DIGEST_SIZE, HASH_LENGTH, IDENTIFIERS

__all__ = [
    "PLAIN",
    "HashedUsers",
    "IdentifierSet",
    "Joints",
    "PackedUsers",
    "RowTemplate",
    "TextUsers",
    "make_picker",
    "merge_users",
    "partition",
]


@attrs.frozen(eq=False)
class RowTemplate:
    """The JSON before, between and after users, which need not be stored for each of them; ASCII.

    Attributes:
        openings: what is written before the hash of each kind of identifier, where users are stored as digests.
        closing: what is written after each hash.
    """

    before: str
    between: str
    after: str
    openings: Sequence[str] = ("",)
    closing: str = ""

    def change(self, write: Callable[[bytes], bytes]) -> "RowTemplate":
        """Return the same template with what a function makes of its JSON."""
        before, between, after, *openings = (
            write(part.encode()).decode() for part in (self.before, self.between, self.after, *self.openings)
        )
        return RowTemplate(before, between, after, openings, self.closing)


PLAIN = RowTemplate("", ",", "")
"""The template of users that are written out."""


T = TypeVar("T")

_KEY_SIZE = 8
"""Bytes of a key."""
_SEPARATOR = "\n"
"""Between users; JSON escapes it, so no user contains it."""
_TOKENS = re.compile(r'(?:[^"\\\n]|\\.)+')
"""What is between quotes, and what is between those."""
_COMBINATIONS = range(1 << len(IDENTIFIERS))
_SIZES = bytes.fromhex("".join(f"{each.bit_count():02x}" for each in _COMBINATIONS)).ljust(256, b"\0")
"""How many identifiers a user has, by the byte that says which."""


def _list_formats(kind: str, size: int) -> Sequence[str]:
    """Return the format of `struct` that reads the beginning of a user, by the byte that says which digests it has."""
    return ["", *(f"{kind}{each.bit_count() * DIGEST_SIZE - size}x" for each in _COMBINATIONS[1:])]


def _unpack(layout: str, packed: bytes) -> tuple[Any, ...]:
    """Return the values of a layout; `struct.unpack` would keep the last hundred of them, 32 bytes a value."""
    return Struct(layout).unpack(packed)


_KEY_FORMATS = _list_formats("Q", _KEY_SIZE)
_FIRST_FORMATS = _list_formats("B", 1)
_RECORD_FORMATS = ["", *(f"{each.bit_count() * DIGEST_SIZE}s" for each in _COMBINATIONS[1:])]


@attrs.frozen
class Joints:
    """What is written between users.

    Attributes:
        between: the text between two users of an operation.
        per_operation: users in each operation.
        between_operations: the text between the last user of an operation and the first one of the next.
    """

    between: str
    per_operation: int
    between_operations: str


@attrs.frozen
class IdentifierSet:
    """Identifiers to look for.

    Attributes:
        hashes: the hashed ones, 32 bytes each.
        texts: the others, as they are written between the quotes of JSON.
    """

    hashes: frozenset[bytes] = attrs.field(repr=False)
    texts: frozenset[str] = attrs.field(repr=False)

    @cached_property
    def tokens(self) -> frozenset[str]:
        """All of them, as they are written between the quotes of JSON."""
        return self.texts.union(map(bytes.hex, self.hashes))


@attrs.frozen
class HashedUsers:
    """Users as digests. The key of a user is the head of its first digest.

    Attributes:
        digests: 32 bytes for each identifier that a user has, user after user, in the order of the template.
        present: a byte for each user; bit i says whether it has the i-th identifier of the template. Empty where the
            template has only one, before which it writes nothing.
    """

    digests: bytes
    present: bytes = b""

    def __len__(self) -> int:
        return len(self.present) or len(self.digests) // DIGEST_SIZE

    @property
    def held(self) -> int:
        """The bytes of memory that it takes."""
        return len(self.digests) + len(self.present)

    @property
    def contents(self) -> Sequence[bytes]:
        """What the users are made of: with the same template, equal contents are equal users."""
        return self.present, self.digests

    def measure(self, template: RowTemplate) -> int:
        """Count the bytes of all users in JSON, without what their template has."""
        if not self.present:
            return len(self) * _measure_user(template, 1)
        return sum(self.present.count(each) * _measure_user(template, each) for each in set(self.present))

    def measure_longest(self, template: RowTemplate) -> int:
        """Count the bytes of the longest user in JSON, without what its template has."""
        if not len(self):
            return 0
        return max(_measure_user(template, each) for each in set(self.present) or {1})

    def list_keys(self) -> Sequence[int]:
        """Return the key of each user."""
        size = self.record_size
        if size:
            return memoryview(self.digests).cast("Q")[:: size // _KEY_SIZE]
        return self._unpack(_KEY_FORMATS)

    def list_first_bytes(self) -> bytes:
        """Return the first byte of each key."""
        size = self.record_size
        return self.digests[::size] if size else bytes(self._unpack(_FIRST_FORMATS))

    def find_any(self, identifiers: IdentifierSet) -> Sequence[int]:
        """Return the indexes of the users that have one of these identifiers."""
        digests = _unpack(f"{DIGEST_SIZE}s" * (len(self.digests) // DIGEST_SIZE), self.digests)
        if identifiers.hashes.isdisjoint(digests):
            return ()
        sizes = self.present.translate(_SIZES) if self.present else repeat(1, len(digests))
        owners = chain.from_iterable(map(repeat, range(len(self)), sizes))
        return sorted(set(compress(owners, map(identifiers.hashes.__contains__, digests))))

    def partition(self, partitions: Sequence[int], count: int) -> "Sequence[HashedUsers]":
        """Return the users of each partition, given the partition of each user and the number of partitions."""
        records = partition(self._list_records(), partitions, count)
        if not self.present:
            return [HashedUsers(b"".join(each)) for each in records]
        present = partition(self.present, partitions, count)
        return [HashedUsers(b"".join(each), bytes(some)) for each, some in zip(records, present, strict=True)]

    def distribute(self, groups: Iterable[Sequence[int]]) -> "Iterator[HashedUsers]":
        """Yield the users at the indexes of each group."""
        records = self._list_records()
        for indexes in groups:
            pick = make_picker(indexes)
            yield HashedUsers(b"".join(pick(records)), bytes(pick(self.present)) if self.present else b"")

    def split(self, index: int) -> "tuple[HashedUsers, HashedUsers]":
        """Split the users before an index."""
        first = self.present[:index]
        size = DIGEST_SIZE * (sum(first.translate(_SIZES)) if self.present else index)
        return HashedUsers(self.digests[:size], first), HashedUsers(self.digests[size:], self.present[index:])

    def write(self, template: RowTemplate, joints: Joints, size: int) -> Iterator[bytes]:
        """Write the users, this many at a time."""
        start = 0
        for first in range(0, len(self), size):
            present = self.present[first : first + size]
            end = start + DIGEST_SIZE * (sum(present.translate(_SIZES)) if present else size)
            part = HashedUsers(self.digests[start:end], present)
            yield part._join_fields(template, joints) if present else part._join(joints)
            start = end

    def _join(self, joints: Joints) -> bytes:
        tokens = hexlify(self.digests, b"\n", DIGEST_SIZE)
        if joints.per_operation == 1:
            return tokens.replace(b"\n", joints.between_operations.encode())
        between = joints.between.encode()
        joined = tokens.replace(b"\n", between)
        step = joints.per_operation * (HASH_LENGTH + len(between))
        return joints.between_operations.encode().join(
            [joined[start : start + step - len(between)] for start in range(0, len(joined), step)]
        )

    def _join_fields(self, template: RowTemplate, joints: Joints) -> bytes:
        leads = list(map(_map_leads(template, joints.between, self.present).__getitem__, self.present))
        firsts = self.present[:: joints.per_operation]
        leads[:: joints.per_operation] = map(
            _map_leads(template, joints.between_operations, firsts).__getitem__, firsts
        )
        tokens = hexlify(self.digests, b"\n", DIGEST_SIZE).split(b"\n")
        pieces = [b""] * (2 * len(tokens))
        pieces[::2] = chain.from_iterable(leads)
        pieces[1::2] = tokens
        return b"".join(pieces)[len(template.closing) + len(joints.between_operations) :] + template.closing.encode()

    def to_text(self, template: RowTemplate) -> "TextUsers":
        """Return the same users as text."""
        text = b"".join(self.write(template, Joints(_SEPARATOR, 1, _SEPARATOR), len(self) or 1))
        return TextUsers(array("Q", self.list_keys()).tobytes(), text.decode())

    @property
    def record_size(self) -> int:
        """The bytes of each user; 0 if they differ."""
        if not self.present:
            return DIGEST_SIZE
        first = self.present[0]
        return DIGEST_SIZE * _SIZES[first] if self.present.count(first) == len(self.present) else 0

    def _list_records(self) -> Sequence[bytes]:
        """Return the digests of each user."""
        size = self.record_size
        return _unpack(f"{size}s" * len(self), self.digests) if size else self._unpack(_RECORD_FORMATS)

    def _unpack(self, formats: Sequence[str]) -> tuple[Any, ...]:
        return _unpack("=" + "".join(map(formats.__getitem__, self.present)), self.digests)


@attrs.frozen
class TextUsers:
    """Users in JSON, without what their template has.

    Attributes:
        keys: the keys, 8 bytes each.
        text: the users, separated by line ends; ASCII.
    """

    keys: bytes
    text: str

    @classmethod
    def pack(cls, keys: Iterable[int], users: Iterable[str]) -> "TextUsers":
        """Pack users and their keys."""
        return cls(array("Q", keys).tobytes(), _SEPARATOR.join(users))

    def __len__(self) -> int:
        return len(self.keys) // _KEY_SIZE

    @property
    def held(self) -> int:
        """The bytes of memory that it takes."""
        return len(self.keys) + len(self.text)

    @property
    def contents(self) -> Sequence[bytes]:
        """What the users are made of: with the same template, equal contents are equal users."""
        return (self.text.encode(),)

    def measure(self, _: RowTemplate) -> int:
        """Count the bytes of all users in JSON, without what their template has."""
        return len(self.text) - max(0, len(self) - 1)

    def measure_longest(self, _: RowTemplate) -> int:
        """Count the bytes of the longest user in JSON, without what its template has."""
        return max(map(len, self.list_users()), default=0)

    def list_keys(self) -> Sequence[int]:
        """Return the key of each user."""
        return memoryview(self.keys).cast("Q")

    def list_first_bytes(self) -> bytes:
        """Return the first byte of each key."""
        return self.keys[::_KEY_SIZE]

    def find_any(self, identifiers: IdentifierSet) -> Sequence[int]:
        """Return the indexes of the users that have one of these identifiers."""
        if identifiers.tokens.isdisjoint(_TOKENS.findall(self.text)):
            return ()
        users = enumerate(self.list_users())
        return [index for index, user in users if not identifiers.tokens.isdisjoint(_TOKENS.findall(user))]

    def partition(self, partitions: Sequence[int], count: int) -> "Sequence[TextUsers]":
        """Return the users of each partition, given the partition of each user and the number of partitions."""
        keys = partition(self.list_keys(), partitions, count)
        users = partition(self.list_users(), partitions, count)
        return list(map(TextUsers.pack, keys, users))

    def distribute(self, groups: Iterable[Sequence[int]]) -> "Iterator[TextUsers]":
        """Yield the users at the indexes of each group."""
        keys, users = self.list_keys(), self.list_users()
        for indexes in groups:
            pick = make_picker(indexes)
            yield TextUsers.pack(pick(keys), pick(users))

    def split(self, index: int) -> "tuple[TextUsers, TextUsers]":
        """Split the users before an index."""
        users, size = self.list_users(), _KEY_SIZE * index
        return (
            TextUsers(self.keys[:size], _SEPARATOR.join(users[:index])),
            TextUsers(self.keys[size:], _SEPARATOR.join(users[index:])),
        )

    def write(self, _: RowTemplate, joints: Joints, size: int) -> Iterator[bytes]:
        """Write the users, this many at a time."""
        users, step = self.list_users(), joints.per_operation
        if step > 1:
            users = [joints.between.join(users[start : start + step]) for start in range(0, len(users), step)]
            size //= step
        for start in range(0, len(users), size):
            yield joints.between_operations.join(users[start : start + size]).encode()

    def to_text(self, _: RowTemplate) -> "TextUsers":
        """Return itself."""
        return self

    def list_users(self) -> list[str]:
        """Return each user by itself."""
        return self.text.split(_SEPARATOR) if self.keys else []


PackedUsers = HashedUsers | TextUsers


def merge_users(parts: Iterable[PackedUsers], template: RowTemplate) -> PackedUsers:
    """Merge users of one template: as digests if all of them are stored so."""
    parts = [part for part in parts if len(part)]
    hashed = [part for part in parts if isinstance(part, HashedUsers)]
    if len(hashed) == len(parts):
        return HashedUsers(b"".join([each.digests for each in hashed]), b"".join([each.present for each in hashed]))
    texts = [part.to_text(template) for part in parts]
    return TextUsers(b"".join([each.keys for each in texts]), _SEPARATOR.join([each.text for each in texts]))


def partition(values: Iterable[T], partitions: Sequence[int], count: int) -> Sequence[Sequence[T]]:
    """Return the values of each partition, in their order, given the partition of each value."""
    parts: list[list[T]] = [[] for _ in range(count)]
    appenders = [part.append for part in parts]
    for number, value in zip(partitions, values, strict=True):
        appenders[number](value)
    return parts


def make_picker(indexes: Sequence[int]) -> Callable[[Sequence[T]], Sequence[T]]:
    """Return a function that returns the values at these indexes."""
    if len(indexes) > 1:
        return itemgetter(*indexes)
    return lambda values: [values[index] for index in indexes]  # itemgetter would return the value itself


@lru_cache(maxsize=1_024)
def _measure_user(template: RowTemplate, present: int) -> int:
    """Count the bytes of a user who has these identifiers."""
    return sum(map(len, _list_leads(template, "", present))) + HASH_LENGTH * present.bit_count()


@lru_cache(maxsize=1_024)
def _list_leads(template: RowTemplate, between: str, present: int) -> Sequence[bytes]:
    """Return what is written before each hash of a user who has these identifiers, from the end of the user before."""
    first, *others = (opening for bit, opening in enumerate(template.openings) if present >> bit & 1)
    leads = [f"{template.closing}{between}{first}", *(f"{template.closing},{opening}" for opening in others)]
    return tuple(lead.encode() for lead in leads)


def _map_leads(template: RowTemplate, between: str, present: bytes) -> dict[int, Sequence[bytes]]:
    return {each: _list_leads(template, between, each) for each in set(present)}
