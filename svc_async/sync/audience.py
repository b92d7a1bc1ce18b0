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
from svc_async.batch.plan import MAX_TIME
from svc_async.batch.report import Failure, Report
from svc_async.batch.settings import BatchSettings, Reading
from svc_async.batch.source import slice_rows
from svc_async.clock import months_after
from svc_async.errors import InvalidArgument
from svc_async.sync.entries import Entries, Removal, has_name
from svc_async.sync.ledger import PartJob
from svc_async.sync.snapshot import SliceSpill, Snapshot, SnapshotSlice
from svc_async.sync.state import Removals, SelectedRows
from svc_async.sync.user_slices import KINDS, find_users, pack_users, unpack_users
from svc_async.users.digests import restore_hash
from svc_async.users.encoding import EncodedSlices, MemberEncoder
from svc_async.users.identifiers import IDENTIFIERS
from svc_async.users.packed import IdentifierSet
from svc_async.users.tables import Columns, Rows
from svc_async.value_rules import DURATION, or_none

__all__ = ["AudienceTarget", "MemberRows"]

_NAMES: Mapping[int, str] = MappingProxyType({kind: name for name, kind in KINDS.items()})
_MIN_LIFETIME = timedelta(days=1)
"""Members must not expire while a sync that has counted their lifetime still removes others."""


@attrs.frozen
class MemberRows:
    """Members as a snapshot; they can be iterated again when the sync is repeated.

    Attributes:
        members: the members.
        reading: how they are read.
    """

    members: Rows | Columns | Iterable[Any] | AsyncIterable[Any] = attrs.field(repr=False)
    reading: Reading

    async def slices(self) -> AsyncGenerator[SnapshotSlice, None]:
        """Encode them, a slice at a time; see `Snapshot`."""
        encoder = MemberEncoder(**attrs.asdict(self.reading))
        columns = self._columns
        hash_ = encoder.hash if columns is None else encoder.for_rows(columns).hash
        is_first = True
        async with aclosing(slice_rows(self._require_rows())) as parts:
            async for part in parts:
                if is_first and columns is None:
                    encoder.check_first(part[0], "members[0]")
                is_first = False
                yield pack_users(hash_(part))

    def locate(self, failure: Failure) -> Failure:
        """Return the failure itself: its position is the place of the row."""
        return failure

    @property
    def _columns(self) -> Sequence[str] | None:
        """The names of the columns, if the members are a table."""
        if isinstance(self.members, Columns):
            return self.members.names
        return self.members.columns if isinstance(self.members, Rows) else None

    def _require_rows(self) -> Iterable[Any] | Columns:
        table = self.members
        rows = table.batches if isinstance(table, Columns) else table.rows if isinstance(table, Rows) else table
        # An iterator would be empty when the call is repeated to finish the sync, and all members would be removed.
        if isinstance(rows, Iterator) or not isinstance(rows, Iterable):
            raise InvalidArgument("members", "must be a file, or a list or another iterable that can be read again")
        return table if isinstance(table, Columns) else rows


@attrs.frozen(kw_only=True)
class AudienceTarget:
    """An audience, and the members that it is to have.

    A member is identified by the first identifier of its row, in the order in which uploads take identifiers. The state
    keeps its hash (a partner's own id is kept unhashed, since it is sent so), to be able to remove the member.

    Attributes:
        send_part: sends rows of a part: uploads or removes them, with the time when they expire.
        snapshot: all who are to belong to it.
        spill: keeps them until they are sent.
        lifetime: how long members stay that are sent; by default 13 months, as the service has it.
        settings: how rows are sent.

    Raises:
        InvalidArgument: members would leave too early.
    """

    send_part: Callable[[BatchOperationType, Columns | EncodedSlices, PartJob, datetime | None], Awaitable[Report]]
    snapshot: Snapshot = attrs.field(repr=False)
    spill: SliceSpill
    lifetime: timedelta | None = None
    settings: BatchSettings = attrs.field(factory=BatchSettings)

    def __attrs_post_init__(self) -> None:
        or_none(DURATION).check("lifetime", self.lifetime)
        if self.lifetime is not None and self.lifetime < _MIN_LIFETIME:
            raise InvalidArgument("lifetime", f"must be at least {_MIN_LIFETIME.days} day")
        if self.lifetime is not None and self.lifetime > MAX_TIME:
            raise InvalidArgument("lifetime", f"must be at most {MAX_TIME.days:,} days")

    @property
    def removes_for_good(self) -> bool:
        """Whether a member who is removed is lost: no, the next sync adds whoever is in the source."""
        return False

    @property
    def replaces(self) -> bool:
        """Whether members whose identifiers changed are removed before they are sent.

        They are: an Update adds identifiers and removes none.
        """
        # Unspecified: what an Update does with identifiers that it does not name; a removal before it leaves no doubt.
        return True

    def find_expiry(self, now: datetime) -> datetime:
        """Return when members that are sent now cease to be."""
        # Unspecified: how long the service keeps a member at most; this is its default (contract CAU-06c).
        return months_after(now, MEMBERSHIP_MONTHS) if self.lifetime is None else now + self.lifetime

    async def entries(self) -> AsyncIterator[Entries]:
        """Read the members, and keep them as they are sent."""
        async with aclosing(self.snapshot.slices()) as slices:
            async for each in slices:
                yield self.spill.add(each)

    def find_linked(self, removals: Sequence[Removal], select: Callable[[range], Sequence[int]]) -> Iterator[int]:
        """Yield the positions of the members that have an identifier by which others are removed."""
        return find_users(self.spill.read(select), _list_identifiers(removals))

    @property
    def find_invalid(self) -> None:
        """Nothing: members are checked as they are read."""

    def locate(self, failure: Failure) -> Failure:
        """Return the failure of a member with the place of its row."""
        return self.snapshot.locate(failure)

    async def remove(self, removals: Removals, job: PartJob) -> Report:
        """Remove members by the identifier that identifies them."""
        rows = Columns(tuple(IDENTIFIERS), _write_removals(removals))
        return await self.send_part(BatchOperationType.DELETE, rows, job, None)

    async def send(self, upserts: SelectedRows, job: PartJob, *, expires_at: datetime | None) -> Report:
        """Add members or renew them."""
        rows = EncodedSlices(unpack_users(self.spill.read(upserts.find)))
        return await self.send_part(BatchOperationType.UPDATE, rows, job, expires_at)


async def _write_removals(removals: Removals) -> AsyncIterator[Sequence[Sequence[str | None]]]:
    async for some in removals:
        yield [*zip(*map(_write_removal, some), strict=True)]


def _write_removal(removal: Removal) -> Sequence[str | None]:
    text = _read_name(removal) if has_name(removal.kind) else _restore_hash(removal).hex()
    return [text if each == _NAMES[removal.kind] else None for each in IDENTIFIERS]


def _list_identifiers(removals: Sequence[Removal]) -> IdentifierSet:
    """Return the identifiers by which members are removed."""
    named = [removal for removal in removals if has_name(removal.kind)]
    return IdentifierSet(
        hashes=frozenset(_restore_hash(removal) for removal in removals if not has_name(removal.kind)),
        texts=frozenset(IDENTIFIERS[_NAMES[removal.kind]].tokenize(_read_name(removal)) for removal in named),
    )


def _read_name(removal: Removal) -> str:
    return removal.name.decode()


def _restore_hash(removal: Removal) -> bytes:
    return restore_hash(_NAMES[removal.kind], removal.name[:16], removal.name[16:])
