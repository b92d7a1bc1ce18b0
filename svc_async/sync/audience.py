"""A custom audience as the target of a sync."""

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

import attrs

from svc_async.ads.vocabulary import MEMBERSHIP_MONTHS, BatchOperationType
from svc_async.batch.report import Report
from svc_async.batch.settings import MAX_TIME, Reading
from svc_async.batch.slicing import slice_rows
from svc_async.clock import months_after
from svc_async.errors import InvalidArgument
from svc_async.sync.entries import Removal, SelectRows, has_name
from svc_async.sync.ledger import PartJob
from svc_async.sync.snapshot import Snapshot, SnapshotSlice, require_replayable
from svc_async.sync.state import Removals
from svc_async.sync.sync import SyncTarget
from svc_async.sync.user_slices import KINDS, find_users, pack_users, unpack_users
from svc_async.users.digests import restore_hash
from svc_async.users.encoding import EncodedSlices, MemberEncoder
from svc_async.users.identifiers import IDENTIFIERS
from svc_async.users.packed import IdentifierSet
from svc_async.users.tables import Columns, Rows
from svc_async.users.user_columns import UserColumns
from svc_async.value_rules import DURATION, or_none

__all__ = ["AudienceTarget", "MemberRows"]

_NAMES: Mapping[int, str] = MappingProxyType({kind: name for name, kind in KINDS.items()})
_MIN_LIFETIME = timedelta(days=1)
"""Members must not expire while a sync that has counted their lifetime still removes others."""


@attrs.frozen
class MemberRows(Snapshot):
    """Members as a snapshot; they can be iterated again when the sync is repeated.

    Attributes:
        members: the members.
        reading: how they are read.
    """

    members: Rows | Columns | Iterable[Any] | AsyncIterable[Any] = attrs.field(repr=False)
    reading: Reading

    async def slices(self) -> AsyncGenerator[SnapshotSlice, None]:
        """Encode them, a slice at a time; see `Snapshot`."""
        encoder, table = MemberEncoder(**attrs.asdict(self.reading)), self.members
        names: Sequence[str] | None = None
        rows: Any = table
        if isinstance(table, Columns):
            names, rows = table.names, table.batches
        elif isinstance(table, Rows):
            names, rows = table.columns, table.rows
        rows = require_replayable("members", rows)
        hash_: Callable[[Sequence[Any]], UserColumns] = (encoder if names is None else encoder.for_rows(names)).hash
        is_first = names is None
        async with aclosing(slice_rows(table if isinstance(table, Columns) else rows)) as parts:
            async for part in parts:
                if is_first:
                    encoder.check_first(part[0], "members[0]")
                is_first = False
                yield pack_users(hash_(part))


@attrs.frozen(kw_only=True)
class AudienceTarget(SyncTarget):
    """An audience, and the members that it is to have.

    A member is identified by the first identifier of its row, in the order in which uploads take identifiers. The state
    keeps its hash (a partner's own id is kept unhashed, since it is sent so), to be able to remove the member.

    Attributes:
        send_part: sends rows of a part: uploads or removes them, with the time when they expire.
        lifetime: how long members stay that are sent; by default 13 months, as the service has it.

    Raises:
        InvalidArgument: members would leave too early.
    """

    # Unspecified: what an Update does with identifiers that it does not name; a removal before it leaves no doubt.
    replaces = True

    send_part: Callable[[BatchOperationType, Columns | EncodedSlices, PartJob, datetime | None], Awaitable[Report]]
    lifetime: timedelta | None = None

    def __attrs_post_init__(self) -> None:
        or_none(DURATION).check("lifetime", self.lifetime)
        if self.lifetime is not None and self.lifetime < _MIN_LIFETIME:
            raise InvalidArgument("lifetime", f"must be at least {_MIN_LIFETIME.days} day")
        if self.lifetime is not None and self.lifetime > MAX_TIME:
            raise InvalidArgument("lifetime", f"must be at most {MAX_TIME.days:,} days")

    def find_expiry(self, now: datetime) -> datetime:
        """Return when members that are sent now cease to be."""
        # Unspecified: how long the service keeps a member at most; this is its default (contract CAU-06c).
        return months_after(now, MEMBERSHIP_MONTHS) if self.lifetime is None else now + self.lifetime

    def name_key(self, kind: int) -> str:
        """Return the name of the identifier."""
        return _NAMES[kind]

    def find_linked(self, removals: Sequence[Removal], select: SelectRows) -> Iterator[int]:
        """Yield the positions of the members that have an identifier by which others are removed."""
        named = [removal for removal in removals if has_name(removal.kind)]
        identifiers = IdentifierSet(
            hashes=frozenset(_restore_hash(removal) for removal in removals if not has_name(removal.kind)),
            texts=frozenset(IDENTIFIERS[_NAMES[each.kind]].tokenize(each.name.decode()) for each in named),
        )
        return find_users(self.spill.read(select), identifiers)

    async def remove(self, removals: Removals, job: PartJob) -> Report:
        """Remove members by the identifier that identifies them."""
        rows = Columns(tuple(IDENTIFIERS), _write_removals(removals))
        return await self.send_part(BatchOperationType.DELETE, rows, job, None)

    async def send(self, select: SelectRows, job: PartJob, *, expires_at: datetime | None) -> Report:
        """Add members or renew them."""
        rows = EncodedSlices(unpack_users(self.spill.read(select)))
        return await self.send_part(BatchOperationType.UPDATE, rows, job, expires_at)


async def _write_removals(removals: Removals) -> AsyncIterator[Sequence[Sequence[str | None]]]:
    async for some in removals:
        yield [*zip(*map(_write_removal, some), strict=True)]


def _write_removal(removal: Removal) -> Sequence[str | None]:
    text = removal.name.decode() if has_name(removal.kind) else _restore_hash(removal).hex()
    return [text if each == _NAMES[removal.kind] else None for each in IDENTIFIERS]


def _restore_hash(removal: Removal) -> bytes:
    return restore_hash(_NAMES[removal.kind], removal.name[:16], removal.name[16:])
