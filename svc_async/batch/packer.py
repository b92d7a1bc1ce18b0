"""Cuts rows into requests, by count and by exact bytes; no I/O.

    Packer   collects the rows of one lane in a draft and seals it into a batch when the next row would not fit
    Batch    one request: operations that hold users, and the position of every row
    Sheaf    operations of one batch that are framed alike

A draft holds one row of a key. Another row of the same key with equal identifiers takes its place (coalesced); with
other identifiers it seals the draft, because rows of one key must arrive in their order.

Rows come by the slice. A slice is taken whole when none of its keys is known and all of it fits, which is nearly
always; otherwise it is taken row by row.
"""

import itertools
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Protocol

import attrs
import msgspec

from svc_async.wire.endpoint import Blocks

__all__ = ["Batch", "Frame", "Group", "Limits", "Packer", "Sheaf"]

_BLOCK = 65_536
"""Bytes of a body that are joined at a time."""


@attrs.frozen(kw_only=True)
class Limits:
    """What one request may hold.

    Attributes:
        operations: operations in a request.
        size: bytes of a body.
        per_operation: users in an operation.
    """

    operations: int
    size: int
    per_operation: int


@attrs.frozen
class Frame:
    """What stands before and after the users of an operation; ASCII."""

    head: str
    tail: str


class Group(Protocol):
    """What operations have in common; rows of equal groups share operations."""

    @property
    def overhead(self) -> int:
        """The length of the frame; the same at any time."""
        ...

    def frame(self, now: datetime) -> Frame:
        """Give the frame of a batch that is built now."""
        ...


@attrs.frozen
class Sheaf:
    """Operations of one frame.

    Attributes:
        users: the users of each operation in JSON, joined by commas.
        per_operation: how many users each of them holds; the last one may hold fewer.
        positions: the rows, in the order of the users.
    """

    frame: Frame
    users: Sequence[str]
    per_operation: int
    positions: Sequence[int]

    @property
    def size(self) -> int:
        """The bytes of the operations, joined by commas."""
        each = len(self.frame.head) + len(self.frame.tail) + 1
        return sum(map(len, self.users)) + each * len(self.users) - 1

    def blocks(self) -> Iterator[str]:
        """Write the operations, some tens of kilobytes at a time; a comma ends each."""
        between = f"{self.frame.tail},{self.frame.head}"
        step = max(1, _BLOCK * len(self.users) // self.size)
        for start in range(0, len(self.users), step):
            yield f"{self.frame.head}{between.join(self.users[start : start + step])}{self.frame.tail},"

    def rows(self, operation: int) -> Sequence[int]:
        """Give the positions of the rows in an operation."""
        start = operation * self.per_operation
        return self.positions[start : start + self.per_operation]

    def take(self, operations: Sequence[int]) -> "Sheaf":
        """Give these operations, in their order, by themselves."""
        positions = itertools.chain.from_iterable(map(self.rows, operations))
        users = [self.users[operation] for operation in operations]
        return Sheaf(self.frame, users, self.per_operation, array("q", positions))

    def regrouped(self, per_operation: int) -> "Sheaf":
        """Hold the same users with another number of them in each operation."""
        users = [user for joined in self.users for user in _separate(joined)]
        return Sheaf(self.frame, _joined(users, per_operation), per_operation, self.positions)


@attrs.frozen
class Batch:
    """One request: sealed, so the same bytes can be sent again."""

    sheaves: Sequence[Sheaf]

    @property
    def positions(self) -> Iterable[int]:
        """The positions of all rows."""
        return itertools.chain.from_iterable(sheaf.positions for sheaf in self.sheaves)

    @property
    def rows(self) -> int:
        """How many rows, and so users, it holds."""
        return sum(len(sheaf.positions) for sheaf in self.sheaves)

    @property
    def operations(self) -> int:
        """How many operations it holds."""
        return sum(len(sheaf.users) for sheaf in self.sheaves)

    @property
    def size(self) -> int:
        """The bytes of its body, as the sum of the parts."""
        return sum(sheaf.size + 1 for sheaf in self.sheaves) + 1

    def body(self) -> Blocks:
        """Write the body; its length is proven to be the size that it was counted with."""
        blocks = [block.encode() for sheaf in self.sheaves for block in sheaf.blocks()]
        blocks[0] = b"[" + blocks[0]
        blocks[-1] = blocks[-1][:-1] + b"]"
        if sum(map(len, blocks)) != self.size:
            raise RuntimeError(f"a body of {self.size} bytes was written with {sum(map(len, blocks))}")
        return Blocks(blocks, self.size)

    def fits(self, limits: Limits) -> bool:
        """Whether it may be one request."""
        return self.operations <= limits.operations and self.size <= limits.size

    def parted(self, operations: Iterable[int]) -> "tuple[Batch, Batch]":
        """Part these operations, by their index in the request, from the others."""
        named = frozenset(operations)
        parts: tuple[list[Sheaf], list[Sheaf]] = [], []
        first = 0
        for sheaf in self.sheaves:
            for part, wanted in zip(parts, (True, False), strict=True):
                chosen = [index for index in range(len(sheaf.users)) if (first + index in named) is wanted]
                if chosen:
                    part.append(sheaf.take(chosen))
            first += len(sheaf.users)
        return Batch(parts[0]), Batch(parts[1])

    def halved(self) -> "tuple[Batch, Batch]":
        """Part the batch into two; a lone operation is parted into two with half of the users."""
        if self.operations == 1:
            (sheaf,) = self.sheaves
            return Batch([sheaf.regrouped((self.rows + 1) // 2)]).halved()
        return self.parted(range((self.operations + 1) // 2))

    def singles(self, limits: Limits) -> "list[Batch]":
        """Hold one user in each operation, in as many batches as that takes."""
        return list(_cut(Batch([sheaf.regrouped(1) for sheaf in self.sheaves]), limits))


def _cut(batch: Batch, limits: Limits) -> Iterator[Batch]:
    if batch.fits(limits):
        yield batch
    else:
        for half in batch.halved():
            yield from _cut(half, limits)


def _separate(joined: str) -> Iterator[str]:
    raw: list[msgspec.Raw] = msgspec.json.decode(f"[{joined}]", type=list[msgspec.Raw])
    return (bytes(user).decode() for user in raw)


def _joined(users: Sequence[str], per_operation: int) -> Sequence[str]:
    if per_operation == 1:
        return users
    return [",".join(users[start : start + per_operation]) for start in range(0, len(users), per_operation)]


@attrs.define
class _Share:
    """The rows of one group in a draft, by key."""

    users: dict[str, str] = attrs.field(factory=dict)
    positions: dict[str, int] = attrs.field(factory=dict)
    letters: int = 0

    def add(self, users: dict[str, str], positions: Iterable[int], letters: int) -> None:
        self.positions.update(zip(users, positions, strict=True))
        self.users.update(users)
        self.letters += letters

    def drop(self, key: str) -> str:
        user = self.users.pop(key)
        del self.positions[key]
        self.letters -= len(user)
        return user

    def sealed(self, frame: Frame, per_operation: int) -> Sheaf:
        users = _joined(list(self.users.values()), per_operation)
        return Sheaf(frame, users, per_operation, array("q", self.positions.values()))


@attrs.define
class Packer:
    """Collects rows, in their order, and seals them into batches.

    Attributes:
        limits: what one request may hold.
        coalesced: how many rows gave way to an equal row of the same batch.
        too_large: the positions of rows that no request can hold.
    """

    limits: Limits
    coalesced: int = 0
    too_large: list[int] = attrs.field(factory=list)
    _shares: dict[Group, _Share] = attrs.field(factory=dict, init=False)

    @property
    def rows(self) -> int:
        """How many rows the draft holds."""
        return sum(len(share.users) for share in self._shares.values())

    @property
    def size(self) -> int:
        """The bytes of the body that the draft would make now."""
        return self._measure()[1]

    def add(
        self, group: Group, keys: Sequence[str], users: Sequence[str], positions: Sequence[int], now: datetime
    ) -> list[Batch]:
        """Take rows and give the batches that they complete."""
        if len(keys) == 1:
            return self._add_one(group, keys[0], users[0], positions[0], now)
        if self._add_whole(group, keys, users, positions):
            return []
        half = len(keys) // 2
        first = self.add(group, keys[:half], users[:half], positions[:half], now)
        return first + self.add(group, keys[half:], users[half:], positions[half:], now)

    def seal(self, now: datetime) -> Batch | None:
        """Turn the draft into a batch that is built now, if it holds rows, and begin a new draft."""
        if not self.rows:
            self._shares.clear()
            return None
        per = self.limits.per_operation
        batch = Batch([share.sealed(group.frame(now), per) for group, share in self._shares.items() if share.users])
        self._shares.clear()
        return batch

    def absorb(self, other: "Packer") -> bool:
        """Take over the draft of another packer, which shares no key with this one, if it fits."""
        shares = other._shares  # noqa: SLF001 - of the same class
        grown = {group: (len(share.users), share.letters) for group, share in shares.items()}
        if not self._within_limits(*self._measure(grown)):
            return False
        for group, share in shares.items():
            self._share(group).add(share.users, share.positions.values(), share.letters)
        shares.clear()
        return True

    def _add_whole(self, group: Group, keys: Sequence[str], users: Sequence[str], positions: Sequence[int]) -> bool:
        fresh = dict(zip(keys, users, strict=True))
        known = len(fresh) < len(keys) or not all(
            share.users.keys().isdisjoint(fresh) for share in self._shares.values()
        )
        letters = sum(map(len, users))
        if known or not self._has_room(group, len(users), letters):
            return False
        self._share(group).add(fresh, positions, letters)
        return True

    def _add_one(self, group: Group, key: str, user: str, position: int, now: datetime) -> list[Batch]:
        sealed = [self._yield_to(key, user, now)]
        if not self._has_room(group, 1, len(user)):
            sealed.append(self.seal(now))
        if self._has_room(group, 1, len(user)):
            self._share(group).add({key: user}, [position], len(user))
        else:
            self.too_large.append(position)
        return [batch for batch in sealed if batch is not None]

    def _yield_to(self, key: str, user: str, now: datetime) -> Batch | None:
        """Make way for a row: drop the equal row of its key, seal the draft before a different one."""
        for share in self._shares.values():
            if key in share.users:
                if share.users[key] != user:
                    return self.seal(now)
                share.drop(key)
                self.coalesced += 1
                break
        return None

    def _share(self, group: Group) -> _Share:
        return self._shares.setdefault(group, _Share())

    def _has_room(self, group: Group, users: int, letters: int) -> bool:
        return self._within_limits(*self._measure({group: (users, letters)}))

    def _within_limits(self, operations: int, size: int) -> bool:
        return operations <= self.limits.operations and size <= self.limits.size

    def _measure(self, grown: Mapping[Group, tuple[int, int]] = MappingProxyType({})) -> tuple[int, int]:
        """Count the operations and the bytes of the draft with so many more users and letters in its groups."""
        operations, size = 0, 1
        for group in self._shares.keys() | grown.keys():
            share, (users, letters) = self._shares.get(group, _EMPTY), grown.get(group, (0, 0))
            users += len(share.users)
            frames = -(-users // self.limits.per_operation)
            operations += frames
            # Each user is followed by a comma or by the end of its operation, each operation by a comma or bracket.
            size += share.letters + letters + users - frames + frames * (group.overhead + 1)
        return operations, size


_EMPTY = _Share()
