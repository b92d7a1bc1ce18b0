"""An audience as the target of a diff sync."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from itertools import islice
from types import MappingProxyType
from typing import Any

import attrs
import msgspec

from svc_async.batch.lists.audience_users import AudienceUsers
from svc_async.batch.report import Report
from svc_async.batch.settings import Observers
from svc_async.batch.sync.state import Entries, Snapshots
from svc_async.errors import InvalidArgument
from svc_async.sources.source import UserSource
from svc_async.users.encoding import EncodedUsers, MemberEncoder, RowEncoder, Rows
from svc_async.users.identifiers import IDENTIFIERS, PartnerId

__all__ = ["AudienceTarget"]

_SLICE = 512
_LETTERS: Mapping[str, bytes] = MappingProxyType(
    {
        "partner_user_id": b"P",
        "svc_id": b"S",
        "email": b"E",
        "phone_number": b"N",
        "handle": b"H",
        "device_id": b"D",
    }
)
"""What stands for a kind of identifier in the file; it must never change."""
_KINDS: Mapping[bytes, str] = MappingProxyType({letter: kind for kind, letter in _LETTERS.items()})
_first_identifier = re.compile(r'\{"(\w++)":\["((?:[^"\\]|\\.)*+)"').match


@attrs.frozen(kw_only=True)
class AudienceTarget:
    """An audience, and the file of people that it is to hold.

    A person is known by the first identifier of a row, in the order in which uploads know rows. The state keeps its
    hash (a partner's own id is kept as it is, since it is sent so), to be able to take the person out.

    Attributes:
        users: the users of the audience.
        source: all who belong to it.
        phone_region: the region of national phone numbers.
        settings: more keywords for `users.upload` and `users.remove`.
    """

    users: AudienceUsers
    source: UserSource
    phone_region: str | None = None
    settings: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def replaces(self) -> bool:
        """Whether people whose identifiers changed are taken out before they are sent.

        They are: an Update adds identifiers and takes none away.
        """
        # Unspecified: what an Update does with identifiers that it does not name; a removal before it leaves no doubt.
        return True

    async def entries(self) -> AsyncIterator[Entries]:
        """Read the file from its start."""
        rows = self.source.rows()
        encoder = MemberEncoder(phone_region=self.phone_region).for_rows(rows.columns)
        walk, first = iter(self.rows()), 0
        while part := list(islice(walk, _SLICE)):
            yield _entries(encoder, part, first)
            first += len(part)
            await asyncio.sleep(0)

    def rows(self) -> Iterable[Sequence[Any]]:
        """Read the rows of the file from its start."""
        rows = self.source.rows().rows
        if not isinstance(rows, Iterable):
            raise InvalidArgument("source", "must be one that can be read again")
        return rows

    async def remove(self, leaving: Snapshots, observers: Observers) -> Report:
        """Take people out by the identifier by which they are known."""
        rows = Rows(tuple(IDENTIFIERS), _named(leaving))
        return await self.users.remove(rows, **self.settings, **attrs.asdict(observers, recurse=False))

    async def send(
        self,
        coming: Iterable[Sequence[Any]],
        observers: Observers,
        *,
        expires_at: datetime | None,
        named: Callable[[Mapping[int, str]], None],  # noqa: ARG002 - people have no key of the service's
    ) -> Report:
        """Add people or renew them."""
        return await self.users.upload(
            Rows(self.source.rows().columns, coming),
            expires_at=expires_at,
            phone_region=self.phone_region,
            **self.settings,
            **attrs.asdict(observers, recurse=False),
        )


def _entries(encoder: RowEncoder, part: Sequence[Sequence[object]], first: int) -> Entries:
    encoded = encoder.encode(part)
    members = [f"{encoded.template.before}{user}{encoded.template.after}" for user in encoded.users]
    return Entries(
        positions=[first + place for place in encoded.indexes],
        keys=encoded.keys,
        names=[_name(member) for member in members],
        contents=[int.from_bytes(sha256(member.encode()).digest()[:8]) for member in members],
        misfits=_misfits(encoded, first),
        size=sum(map(len, members)),
    )


def _misfits(encoded: EncodedUsers, first: int) -> Sequence[int]:
    return sorted(first + place for place in encoded.invalid)


def _name(member: str) -> bytes:
    """Name a person by the first identifier, which decides the key; identifiers stand in that order."""
    found = _first_identifier(member)
    if found is None:
        raise RuntimeError("an encoded row must begin with an identifier")
    kind, token = found.groups()
    if isinstance(IDENTIFIERS[kind], PartnerId):
        return _LETTERS[kind] + str(msgspec.json.decode(f'"{token}"')).encode()
    return _LETTERS[kind] + bytes.fromhex(token)


def _named(leaving: Snapshots) -> Iterator[Sequence[str | None]]:
    for _, name, _ in leaving.leaving():
        kind, value = _KINDS[name[:1]], name[1:]
        text = value.decode() if isinstance(IDENTIFIERS[kind], PartnerId) else value.hex()
        yield [text if each == kind else None for each in IDENTIFIERS]
