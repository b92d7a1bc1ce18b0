"""A custom audience as the target of a sync."""

import asyncio
import re
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import islice
from types import MappingProxyType
from typing import Any, Protocol

import attrs
import msgspec

from svc_async.ads.vocabulary import MEMBERSHIP_MONTHS
from svc_async.batch.report import Report
from svc_async.batch.settings import BatchSettings, Observers
from svc_async.batch.sync.plan import Entries
from svc_async.batch.sync.store import SyncStore
from svc_async.clock import months_after
from svc_async.errors import InvalidArgument
from svc_async.users.encoding import SLICE_ROWS, BadIdentifiers, EncodedUsers, MemberEncoder, Rows
from svc_async.users.identifiers import IDENTIFIERS, PartnerId

__all__ = ["AudienceCalls", "AudienceTarget"]

_PREFIXES: Mapping[str, bytes] = MappingProxyType(
    {
        "partner_user_id": b"P",
        "svc_id": b"S",
        "email": b"E",
        "phone_number": b"N",
        "handle": b"H",
        "device_id": b"D",
    }
)
"""What stands for a kind of identifier in the state; it must never change."""
_KINDS: Mapping[bytes, str] = MappingProxyType({prefix: kind for kind, prefix in _PREFIXES.items()})
_MIN_LIFETIME = timedelta(days=1)
"""Members must not expire while a sync that has counted their lifetime still removes others."""
_match_first_identifier = re.compile(r'\{"(\w++)":\["((?:[^"\\]|\\.)*+)"').match


class AudienceCalls(Protocol):
    """The calls that a sync makes."""

    @property
    def upload(self) -> Callable[..., Awaitable[Report]]:
        """Add members or renew them."""
        ...

    @property
    def remove(self) -> Callable[..., Awaitable[Report]]:
        """Remove members."""
        ...


@attrs.frozen(kw_only=True)
class AudienceTarget:
    """An audience, and the members that it is to have.

    A member is identified by the first identifier of its row, in the order in which uploads take identifiers. The state
    keeps its hash (a partner's own id is kept unhashed, since it is sent so), to be able to remove the member.

    Attributes:
        users: the users of the audience.
        members: all who are to belong to it; they can be iterated again.
        phone_region: the region of national phone numbers.
        bad_identifiers: whether a row with an invalid identifier fails, or is sent without it.
        lifetime: how long members stay that are sent; by default 13 months, as the service has it.
        settings: how rows are sent.

    Raises:
        InvalidArgument: members would leave too early.
    """

    users: AudienceCalls
    members: Rows | Iterable[Any] | AsyncIterable[Any]
    phone_region: str | None = None
    bad_identifiers: BadIdentifiers = "fail"
    lifetime: timedelta | None = None
    settings: BatchSettings = attrs.field(factory=BatchSettings)

    def __attrs_post_init__(self) -> None:
        if self.lifetime is not None and self.lifetime < _MIN_LIFETIME:
            raise InvalidArgument("lifetime", f"must be at least {_MIN_LIFETIME.days} day")

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
        """Read the members from the start."""
        encoder = MemberEncoder(phone_region=self.phone_region, bad_identifiers=self.bad_identifiers)
        columns = self.members.columns if isinstance(self.members, Rows) else None
        encode = encoder.encode if columns is None else encoder.for_rows(columns).encode
        rows, first = iter(self.rows()), 0
        while part := list(islice(rows, SLICE_ROWS)):
            if first == 0 and columns is None:
                encoder.check_first(part[0], "members[0]")
            yield _entries(encode(part), first)
            first += len(part)
            await asyncio.sleep(0)

    def rows(self) -> Iterable[Any]:
        """Read the rows of the members from the start."""
        rows = self.members.rows if isinstance(self.members, Rows) else self.members
        if isinstance(rows, Iterator) or not isinstance(rows, Iterable):
            raise InvalidArgument("members", "must be a file, or a list or another iterable that can be read again")
        return rows

    async def remove(self, state: SyncStore, observers: Observers) -> Report:
        """Remove members by the identifier that identifies them."""
        rows = Rows(tuple(IDENTIFIERS), _removals(state))
        return await self.users.remove(rows, **_keywords(self.settings), **_keywords(observers))

    async def send(
        self,
        upserts: Iterable[Any],
        observers: Observers,
        *,
        expires_at: datetime | None,
        on_service_keys: Callable[[Mapping[int, str]], None],  # noqa: ARG002 - the service has no keys of members
    ) -> Report:
        """Add members or renew them."""
        members = Rows(self.members.columns, upserts) if isinstance(self.members, Rows) else upserts
        return await self.users.upload(
            members,
            expires_at=expires_at,
            phone_region=self.phone_region,
            bad_identifiers=self.bad_identifiers,
            **_keywords(self.settings),
            **_keywords(observers),
        )


def _keywords(value: BatchSettings | Observers) -> Mapping[str, Any]:
    return attrs.asdict(value, recurse=False)


def _entries(encoded: EncodedUsers, first: int) -> Entries:
    members = [f"{encoded.template.before}{user}{encoded.template.after}" for user in encoded.users]
    return Entries(
        positions=[first + index for index in encoded.indexes],
        keys=encoded.keys,
        names=[_name(member) for member in members],
        contents=[int.from_bytes(sha256(member.encode()).digest()[:8]) for member in members],
        invalid_rows=sorted(first + index for index in encoded.invalid),
        size=sum(map(len, members)),
    )


def _name(member: str) -> bytes:
    """Return the first identifier of a member, which decides the key; identifiers are encoded in that order."""
    found = _match_first_identifier(member)
    if found is None:
        raise RuntimeError("an encoded row must begin with an identifier")
    kind, token = found.groups()
    if isinstance(IDENTIFIERS[kind], PartnerId):
        return _PREFIXES[kind] + str(msgspec.json.decode(f'"{token}"')).encode()
    return _PREFIXES[kind] + bytes.fromhex(token)


def _removals(state: SyncStore) -> Iterator[Sequence[str | None]]:
    for _, name, _ in state.removals():
        kind, value = _KINDS[name[:1]], name[1:]
        text = value.decode() if isinstance(IDENTIFIERS[kind], PartnerId) else value.hex()
        yield [text if each == kind else None for each in IDENTIFIERS]
