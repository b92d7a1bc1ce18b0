"""Cuts rows into requests, by count and by exact bytes; no I/O.

    Packer   collects the rows of one lane in a draft and seals it into a batch when the next row would not fit
    Batch    one request: operations that hold users (or are a row each), and the position of every row
    Sheaf    operations of one batch that are framed alike

A batch holds one row of a key. Another row of the same key with equal identifiers takes its place (coalesced); with
other identifiers goes into the next batch, because rows of one key must arrive in their order. Repeats are looked
for when a draft is sealed: in one set then, instead of in many for every row.

Rows come many at a time. A parcel is taken whole if it fits, which is nearly always; otherwise each half is tried
by itself, down to a single row.
"""

import itertools
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Literal, Protocol, TypeVar

import attrs
import msgspec

from svc_async.users.template import PLAIN, Form
from svc_async.wire.route import Blocks

__all__ = [
    "ARRAY",
    "Batch",
    "Frame",
    "Group",
    "Limits",
    "Load",
    "Packer",
    "Parcel",
    "Sheaf",
    "Spreader",
    "rebuilt",
]

T = TypeVar("T")

_BLOCK = 65_536
"""Bytes of a body that are joined at a time."""
_WORTH_KEEPING = 7 / 8
"""A draft that repeats have left as full as this is sealed all the same, or it would be searched again at once."""


@attrs.frozen
class Frame:
    """What stands before and after the users of an operation, or the operations of a body; ASCII."""

    head: str
    tail: str

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return len(self.head) + len(self.tail)


ARRAY = Frame("[", "]")
"""A body that is its operations."""


@attrs.frozen(kw_only=True)
class Limits:
    """What one request may hold.

    Attributes:
        operations: operations in a request.
        size: bytes of a body.
        per_operation: users in an operation.
        wrapper: what stands around the operations of a body; it counts.
        distinct: no key may stand twice in a request, even where no order is asked for.
    """

    operations: int
    size: int
    per_operation: int = 1
    wrapper: Frame = ARRAY
    distinct: bool = False

    def hold(self, group: "Group", form: "Form", user: str) -> bool:
        """Whether a request can hold a row."""
        _, size = _Share(group, form).measure(1, len(user), self.per_operation)
        return self.wrapper.size - 1 + size <= self.size


class Group(Hashable, Protocol):
    """What operations have in common; rows of equal groups share operations."""

    @property
    def overhead(self) -> int:
        """The length of the frame; the same at any time."""
        ...

    def frame(self, now: datetime) -> Frame:
        """Give the frame of a batch that is built now."""
        ...

    def plain(self) -> Any:
        """Give plain values that a group can be made of again."""
        ...


@attrs.frozen
class Load:
    """Encoded rows, in parallel sequences.

    Attributes:
        keys: what tells rows apart; rows of one key keep their order.
        users: the users in JSON, without what their form has in common.
        positions: the rows.
    """

    group: Group
    form: Form
    keys: Sequence[int]
    users: Sequence[str]
    positions: Sequence[int]

    def take(self, places: Sequence[int]) -> "Load":
        """Give these rows, by their places, by themselves."""
        return Load(
            self.group,
            self.form,
            [self.keys[place] for place in places],
            [self.users[place] for place in places],
            [self.positions[place] for place in places],
        )


@attrs.frozen
class Parcel:
    """A load that waits in a draft, packed so that no row is an object.

    With one for each, the rows of a lane would lie far apart in memory, and reading them again would cost more than
    their hash did. The users are strings of many, with a mark between.
    """

    group: Group
    form: Form
    keys: "array[int]" = attrs.field(factory=lambda: array("Q"))
    users: list[str] = attrs.field(factory=list)
    positions: "array[int]" = attrs.field(factory=lambda: array("q"))

    @property
    def letters(self) -> int:
        """The length of all users together."""
        marks = len(self.keys) - len(self.users)
        return sum(map(len, self.users)) - marks

    def parted(self, row: int) -> "tuple[Parcel, Parcel]":
        """Part it before a row."""
        users = _apart(self.users)
        first = Parcel(self.group, self.form, self.keys[:row], [_MARK.join(users[:row])], self.positions[:row])
        return first, Parcel(self.group, self.form, self.keys[row:], [_MARK.join(users[row:])], self.positions[row:])

    def rows(self) -> "Iterator[_Row]":
        """Give each row by itself."""
        for key, user, position in zip(self.keys, _apart(self.users), self.positions, strict=True):
            yield _Row(self.group, self.form, key, user, position)


@attrs.frozen
class _Row:
    group: Group
    form: Form
    key: int
    user: str
    position: int

    def as_parcel(self) -> Parcel:
        return Parcel(self.group, self.form, array("Q", [self.key]), [self.user], array("q", [self.position]))

    def is_same_user(self, other: "_Row") -> bool:
        return self.form is other.form and self.user == other.user


_MARK = "\n"
"""JSON escapes it, so no user holds it."""


def _apart(users: Iterable[str]) -> list[str]:
    return _MARK.join(users).split(_MARK)


@attrs.frozen
class Sheaf:
    """Operations of one frame.

    Attributes:
        users: the users of each operation, joined as their form has it.
        per_operation: how many users each of them holds; the last one may hold fewer.
        positions: the rows, in the order of the users.
    """

    frame: Frame
    form: Form
    users: Sequence[str]
    per_operation: int
    positions: "array[int]"

    @property
    def size(self) -> int:
        """The bytes of the operations, each with a comma or bracket after it."""
        return sum(map(len, self.users)) + (len(self._head) + len(self._tail) + 1) * len(self.users)

    def blocks(self) -> Iterator[str]:
        """Write the operations, some tens of kilobytes at a time; a comma ends each."""
        between = f"{self._tail},{self._head}"
        step = max(1, _BLOCK * len(self.users) // self.size)
        for start in range(0, len(self.users), step):
            yield f"{self._head}{between.join(self.users[start : start + step])}{self._tail},"

    def rows(self, operation: int) -> Sequence[int]:
        """Give the positions of the rows in an operation."""
        start = operation * self.per_operation
        return self.positions[start : start + self.per_operation]

    def take(self, operations: Sequence[int]) -> "Sheaf":
        """Give these operations, in their order, by themselves."""
        positions = array("q", itertools.chain.from_iterable(map(self.rows, operations)))
        users = [self.users[operation] for operation in operations]
        return attrs.evolve(self, users=users, positions=positions)

    def regrouped(self, per_operation: int) -> "Sheaf":
        """Hold the same users with another number of them in each operation."""
        users = [user for operation in range(len(self.users)) for user in self._written_out(operation)]
        return Sheaf(self.frame, PLAIN, _joined(users, per_operation, PLAIN), per_operation, self.positions)

    def users_of(self, operation: int) -> str:
        """Give the users of an operation as a JSON array."""
        return f"[{self.form.before}{self.users[operation]}{self.form.after}]"

    def _written_out(self, operation: int) -> Iterator[str]:
        users = msgspec.json.decode(self.users_of(operation), type=list[msgspec.Raw])
        return (bytes(user).decode() for user in users)

    @property
    def _head(self) -> str:
        return self.frame.head + self.form.before

    @property
    def _tail(self) -> str:
        return self.form.after + self.frame.tail


def _concatenated(kind: Literal["q", "Q"], parts: "Iterable[array[int]]") -> "array[int]":
    whole = array(kind)
    for part in parts:
        whole.extend(part)
    return whole


def _joined(users: Sequence[str], per_operation: int, form: Form) -> Sequence[str]:
    if per_operation == 1:
        return users
    starts = range(0, len(users), per_operation)
    return [form.between.join(users[start : start + per_operation]) for start in starts]


def _counted(count: "Callable[[Batch], int]") -> int:
    """Declare a field that is counted once, when a batch is made."""
    factory: int = attrs.Factory(count, takes_self=True)
    counted: int = attrs.field(init=False, default=factory)
    return counted


@attrs.frozen
class Batch:
    """One request: sealed, so the same bytes can be sent again."""

    sheaves: Sequence[Sheaf]
    wrapper: Frame = ARRAY
    built: datetime = datetime(1, 1, 1, tzinfo=UTC)
    """When it was built; what its times are pinned to."""
    dropped: "array[int]" = attrs.field(factory=lambda: array("q"))
    """The positions of rows that gave way to equal ones of it; its parts have none."""
    size: int = _counted(lambda batch: batch.wrapper.size - 1 + sum(sheaf.size for sheaf in batch.sheaves))
    """The bytes of its body, as the sum of the parts."""
    rows: int = _counted(lambda batch: sum(len(sheaf.positions) for sheaf in batch.sheaves))
    """How many rows, and so users, it holds."""
    operations: int = _counted(lambda batch: sum(len(sheaf.users) for sheaf in batch.sheaves))
    """How many operations it holds."""

    @property
    def positions(self) -> "array[int]":
        """The positions of all rows."""
        return _concatenated("q", (sheaf.positions for sheaf in self.sheaves))

    def rows_of(self, operation: int) -> Sequence[int]:
        """Give the positions of the rows in an operation, by its index in the request."""
        sheaf, index = self._locate(operation)
        return sheaf.rows(index)

    def users_of(self, operation: int) -> str:
        """Give the users of an operation as a JSON array."""
        sheaf, index = self._locate(operation)
        return sheaf.users_of(index)

    def _locate(self, operation: int) -> tuple[Sheaf, int]:
        for sheaf in self.sheaves:
            if operation < len(sheaf.users):
                return sheaf, operation
            operation -= len(sheaf.users)
        raise IndexError(operation)

    def body(self) -> Blocks:
        """Write the body; its length is proven to be the size that it was counted with."""
        blocks = [block.encode() for sheaf in self.sheaves for block in sheaf.blocks()]
        blocks[0] = self.wrapper.head.encode() + blocks[0]
        blocks[-1] = blocks[-1][:-1] + self.wrapper.tail.encode()
        written = sum(map(len, blocks))
        if written != self.size:
            raise RuntimeError(f"a body that was counted with {self.size} bytes has {written}")
        return Blocks(blocks, self.size)

    def fits(self, limits: Limits) -> bool:
        """Whether it may be one request."""
        return self.operations <= limits.operations and self.size <= limits.size

    def parted(self, operations: Iterable[int]) -> "tuple[Batch, Batch]":
        """Part these operations, by their index in the request, from the others."""
        named = frozenset(operations)
        chosen: list[Sheaf] = []
        others: list[Sheaf] = []
        first = 0
        for sheaf in self.sheaves:
            indexes = range(len(sheaf.users))
            chosen.append(sheaf.take([index for index in indexes if first + index in named]))
            others.append(sheaf.take([index for index in indexes if first + index not in named]))
            first += len(indexes)
        return self._of(sheaf for sheaf in chosen if sheaf.users), self._of(sheaf for sheaf in others if sheaf.users)

    def halved(self) -> "tuple[Batch, Batch]":
        """Part the batch into two; a lone operation is parted into two with half of the users."""
        if self.operations == 1:
            (sheaf,) = self.sheaves
            return self._of([sheaf.regrouped((self.rows + 1) // 2)]).halved()
        return self.parted(range((self.operations + 1) // 2))

    def singles(self, limits: Limits) -> "Sequence[Batch]":
        """Hold one user in each operation, in as many batches as that takes."""
        return _cut(self._of(sheaf.regrouped(1) for sheaf in self.sheaves), limits)

    def _of(self, sheaves: Iterable[Sheaf]) -> "Batch":
        return Batch(list(sheaves), self.wrapper, self.built)


def rebuilt(
    layout: Iterable[tuple[int, int]],
    rows: Iterable[tuple[int, Group, str]],
    *,
    wrapper: Frame,
    built: datetime,
) -> Batch:
    """Build a batch again as it was.

    Args:
        layout: users an operation and rows, for each sheaf.
        rows: the position, the group and the user, written out, of each row in the order of the body.
        wrapper: what stands around the operations.
        built: when it was built at first.
    """
    following = iter(rows)
    sheaves: list[Sheaf] = []
    for per_operation, count in layout:
        taken = list(itertools.islice(following, count))
        users = _joined([user for _, _, user in taken], per_operation, PLAIN)
        positions = array("q", [position for position, _, _ in taken])
        sheaves.append(Sheaf(taken[0][1].frame(built), PLAIN, users, per_operation, positions))
    return Batch(sheaves, wrapper, built)


def _cut(batch: Batch, limits: Limits) -> Sequence[Batch]:
    if batch.fits(limits) or batch.operations == 1:
        return [batch]
    first, second = batch.halved()
    return [*_cut(first, limits), *_cut(second, limits)]


@attrs.define
class _Share:
    """The rows of one group and form in a draft; its size counts a comma or bracket after each operation."""

    group: Group
    form: Form
    parcels: list[Parcel] = attrs.field(factory=list[Parcel])
    rows: int = 0
    letters: int = 0
    operations: int = 0
    size: int = 0

    @property
    def key(self) -> tuple[Group, Form]:
        return self.group, self.form

    def measure(self, rows: int, letters: int, per_operation: int) -> tuple[int, int]:
        """Count operations and bytes that it would have with so many rows and letters more."""
        rows += self.rows
        operations = -(-rows // per_operation)
        around = len(self.form.before) + len(self.form.after) + self.group.overhead + 1
        return operations, self.letters + letters + len(self.form.between) * (rows - operations) + around * operations

    def grow(self, added: "_Share", operations: int, size: int) -> None:
        self.parcels.extend(added.parcels)
        self.rows += added.rows
        self.letters += added.letters
        self.operations, self.size = operations, size

    def sheaf(self, per_operation: int, now: datetime) -> Sheaf:
        users = _apart(itertools.chain.from_iterable(parcel.users for parcel in self.parcels))
        positions = _concatenated("q", (parcel.positions for parcel in self.parcels))
        joined = _joined(users, per_operation, self.form)
        return Sheaf(self.group.frame(now), self.form, joined, per_operation, positions)


@attrs.define
class _Draft:
    """Parcels, in the order of their rows, that make one request."""

    limits: Limits
    parcels: list[Parcel] = attrs.field(factory=list)
    dropped: "array[int]" = attrs.field(factory=lambda: array("q"))
    rows: int = 0
    letters: int = 0
    operations: int = 0
    size: int = attrs.field(default=attrs.Factory(lambda draft: draft.limits.wrapper.size - 1, takes_self=True))
    """The bytes of the body; the last comma is not written."""
    _shares: dict[tuple[Group, Form], _Share] = attrs.field(factory=dict)

    def add(self, parcel: Parcel) -> bool:
        """Take a parcel, if it fits."""
        share = _Share(parcel.group, parcel.form, [parcel], len(parcel.keys), parcel.letters)
        return self._take([share], [parcel])

    def absorb(self, other: "_Draft") -> bool:
        """Take all parcels of another draft, if they fit."""
        taken = self._take(list(other._shares.values()), other.parcels)  # noqa: SLF001 - of the same class
        if taken:
            self.dropped.extend(other.dropped)
        return taken

    def _take(self, more: Sequence[_Share], in_order: Sequence[Parcel]) -> bool:
        mine = [self._shares.get(share.key) or _Share(share.group, share.form) for share in more]
        measures = [
            share.measure(added.rows, added.letters, self.limits.per_operation)
            for share, added in zip(mine, more, strict=True)
        ]
        operations = self.operations + sum(measure[0] for measure in measures) - sum(each.operations for each in mine)
        size = self.size + sum(measure[1] for measure in measures) - sum(each.size for each in mine)
        if operations > self.limits.operations or size > self.limits.size:
            return False
        self.operations, self.size = operations, size
        for share, added, measure in zip(mine, more, measures, strict=True):
            self._shares[share.key] = share
            share.grow(added, *measure)
            self.rows += added.rows
            self.letters += added.letters
        self.parcels.extend(in_order)
        return True

    def room(self, parcel: Parcel) -> int:
        """How many of its rows the operations leave room for, if that is what parts it; else 0."""
        mine = self._shares.get((parcel.group, parcel.form)) or _Share(parcel.group, parcel.form)
        operations = self.limits.operations - self.operations + mine.operations
        room = operations * self.limits.per_operation - mine.rows
        return room if 0 < room < len(parcel.keys) else 0

    @property
    def has_repeats(self) -> bool:
        keys = _concatenated("Q", (parcel.keys for parcel in self.parcels))
        return len(set(keys.tolist())) < self.rows

    def batch(self, now: datetime) -> Batch:
        sheaves = [share.sheaf(self.limits.per_operation, now) for share in self._shares.values()]
        return Batch(sheaves, self.limits.wrapper, now, self.dropped)


@attrs.define
class Packer:
    """Collects rows, in their order, and seals them into batches.

    Attributes:
        limits: what one request may hold.
        repeats: whether a key may come more than once; if not, nobody looks.
        coalesced: how many rows gave way to an equal row of the same batch.
        too_large: the positions of rows that no request can hold.
    """

    limits: Limits
    repeats: bool = True
    coalesced: int = 0
    too_large: list[int] = attrs.field(factory=list)
    _draft: _Draft = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._draft = _Draft(self.limits)

    @property
    def rows(self) -> int:
        """How many rows wait to be sealed."""
        return self._draft.rows

    @property
    def letters(self) -> int:
        """How many bytes their users have, without what frames them."""
        return self._draft.letters

    @property
    def outstanding(self) -> "Iterator[array[int]]":
        """Give the positions of the rows that wait, and of those that gave way to them."""
        yield from (parcel.positions for parcel in self._draft.parcels)
        yield self._draft.dropped

    def add(self, parcel: Parcel, now: datetime) -> list[Batch]:
        """Take rows and give the batches that they complete, built now."""
        if self._draft.add(parcel):
            return []
        if len(parcel.keys) > 1:
            first, second = parcel.parted(self._draft.room(parcel) or len(parcel.keys) // 2)
            return self.add(first, now) + self.add(second, now)
        batches = self._close(now, entirely=False)
        if self._draft.add(parcel):
            return batches
        batches += self._close(now, entirely=True)
        if not self._draft.add(parcel):
            self.too_large.extend(parcel.positions)
        return batches

    def seal(self, now: datetime) -> list[Batch]:
        """Turn all rows into batches that are built now; only rows of one key make it more than one."""
        return self._close(now, entirely=True)

    def absorb(self, other: "Packer") -> bool:
        """Take over the draft of another packer, which shares no key with this one, if it fits."""
        taken = self._draft.absorb(other._draft)  # noqa: SLF001 - of the same class
        if taken:
            other._draft = _Draft(self.limits)  # noqa: SLF001
        return taken

    def _close(self, now: datetime, *, entirely: bool) -> list[Batch]:
        """Seal the draft; what remains of it after repeats were removed may stay open, unless `entirely`."""
        draft, self._draft = self._draft, _Draft(self.limits)
        if not self.repeats or not draft.has_repeats:
            return [draft.batch(now)] if draft.rows else []
        *sealed, last = self._coalesced(draft) or self._parted(draft)
        if not entirely and last.rows < draft.rows * _WORTH_KEEPING:
            self._draft = last
        else:
            sealed.append(last)
        return [part.batch(now) for part in sealed]

    def _coalesced(self, draft: _Draft) -> Sequence[_Draft]:
        """Let the last of equal rows win, if all rows of one key are equal; else nothing."""
        first = draft.parcels[0]
        if not all(parcel.group == first.group and parcel.form is first.form for parcel in draft.parcels):
            return []
        parcel = _merged(draft.parcels)
        users = _apart(parcel.users)
        user_of = dict(zip(parcel.keys, users, strict=True))
        if len(set(zip(parcel.keys, users, strict=True))) > len(user_of):
            return []
        position_of = dict(zip(parcel.keys, parcel.positions, strict=True))
        kept = set(position_of.values())
        draft.dropped.extend(position for position in parcel.positions if position not in kept)
        self.coalesced += len(users) - len(user_of)
        packed = array("Q", user_of), [_MARK.join(user_of.values())], array("q", position_of.values())
        return [_drafted(self.limits, [Parcel(first.group, first.form, *packed)], draft.dropped)]

    def _parted(self, draft: _Draft) -> Sequence[_Draft]:
        """Let the last of equal rows win, and move a row that differs from the last of its key to the next batch."""
        layers: list[dict[int, _Row]] = []
        dropped = [draft.dropped]
        layer_of: dict[int, int] = {}
        for row in itertools.chain.from_iterable(parcel.rows() for parcel in draft.parcels):
            layer = layer_of.get(row.key, -1)
            if layer >= 0 and layers[layer][row.key].is_same_user(row):
                self.coalesced += 1
                dropped[layer].append(layers[layer][row.key].position)
            else:
                layer += 1
                layer_of[row.key] = layer
                layers += [{}] if layer == len(layers) else []
                dropped += [array("q")] if layer == len(dropped) else []
            layers[layer][row.key] = row
        return [
            _drafted(self.limits, map(_Row.as_parcel, rows.values()), gone)
            for rows, gone in zip(layers, dropped, strict=True)
        ]


def _drafted(limits: Limits, parcels: Iterable[Parcel], dropped: "array[int]") -> _Draft:
    draft = _Draft(limits, dropped=dropped)
    for _, alike in itertools.groupby(parcels, key=lambda parcel: (parcel.group, parcel.form)):
        draft.add(_merged(list(alike)))
    return draft


_GATHERED = 4_096
"""Rows that are spread at a time, since each lane costs a fixed effort."""


@attrs.define
class Spreader:
    """Hands each row to the packer that its key falls to, so that rows of one key stay in their order."""

    packers: Sequence[Packer]
    rows: int = attrs.field(default=0, init=False)
    """How many rows are gathered and not yet handed on."""
    _gathered: list[Load] = attrs.field(factory=list, init=False)

    def add(self, load: Load) -> bool:
        """Gather rows; answers whether it is time to `spread` them."""
        self._gathered.append(load)
        self.rows += len(load.keys)
        return self.rows >= _GATHERED

    def spread(self, now: datetime) -> Iterator[tuple[int, list[Batch]]]:
        """Hand the rows on, a packer at a time; give its index and the batches that they complete."""
        gathered, self._gathered = self._gathered, []
        for _, alike in itertools.groupby(gathered, key=lambda load: (load.group, load.form)):
            for index, parcel in self._sorted(list(alike)):
                self.rows -= len(parcel.keys)
                yield index, self.packers[index].add(parcel, now)

    def _sorted(self, loads: Sequence[Load]) -> Iterator[tuple[int, Parcel]]:
        group, form = loads[0].group, loads[0].form
        keys = _chained(load.keys for load in loads)
        users = _chained(load.users for load in loads)
        positions = _chained(load.positions for load in loads)
        for index, places in enumerate(self._places(keys)):
            if places:
                pick = _picker(places)
                packed = array("Q", pick(keys)), [_MARK.join(pick(users))], array("q", pick(positions))
                yield index, Parcel(group, form, *packed)

    def _places(self, keys: Sequence[int]) -> Sequence[Sequence[int]]:
        count = len(self.packers)
        if count == 1:
            return [range(len(keys))]
        places: list[list[int]] = [[] for _ in self.packers]
        for place, chosen in enumerate(map(places.__getitem__, [key % count for key in keys])):
            chosen.append(place)
        return places


def _picker(places: Sequence[int]) -> Callable[[Sequence[T]], Sequence[T]]:
    if len(places) == 1:  # itemgetter would give the value itself
        return lambda values: [values[places[0]]]
    return itemgetter(*places)


def _chained(parts: Iterable[Sequence[T]]) -> list[T]:
    return list(itertools.chain.from_iterable(parts))


def _merged(parcels: Sequence[Parcel]) -> Parcel:
    if len(parcels) == 1:
        return parcels[0]
    merged = Parcel(parcels[0].group, parcels[0].form)
    for parcel in parcels:
        merged.keys.extend(parcel.keys)
        merged.users.extend(parcel.users)
        merged.positions.extend(parcel.positions)
    return merged
