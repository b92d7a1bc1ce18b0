"""The members of audiences, and whether there are enough of them.

A user is identified by a key: the first identifier present, in the order of `KEY_ORDER`. An Update of an existing key
adds new identifiers and replaces the two dates. A Delete removes every user that has any of the given identifiers.

A change holds for members at once. Size and reasons follow when it was processed, some hours after the last change.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

import attrs

from svc_async.sandbox.clock import Clock

__all__ = ["KEY_ORDER", "PROCESSING", "SMALLEST", "Audience", "AudienceView", "Member"]

# Unspecified: which users of two requests are the same; ASM-116 states only what a Delete matches.
KEY_ORDER = ("partner_user_id", "svc_id", "email", "phone_number", "handle", "device_id")

# Unspecified: how long after the last change, of 6 to 8 hours (ASM-116, ASM-118).
PROCESSING = timedelta(hours=6)
# Unspecified: which users are active enough to count (ASM-116); here each one is.
SMALLEST = 100

User = dict[str, list[str]]
Identifier = tuple[str, str]


class Member(NamedTuple):
    """A user of an audience; a tuple, since there may be millions."""

    identifiers: User
    effective_at: datetime
    expires_at: datetime


@attrs.define
class Audience:
    """The users of one custom audience, or of a do-not-reach list.

    Attributes:
        changed_at: when it was created, or the last change of its users.
    """

    id: str
    account_id: str
    changed_at: datetime
    _size_before: int | None = None
    """The size before the changes that are still processed; None if none was known."""
    _members: dict[Identifier, Member] = attrs.field(factory=dict[Identifier, Member], repr=False)
    _index: dict[Identifier, set[Identifier]] | None = attrs.field(default=None, repr=False)
    """The keys of users by identifier: built by the first Delete, since many audiences never have one."""

    def begin_change(self, now: datetime) -> None:
        """Note that users change now; the size stays what it is until that is processed (CA-08)."""
        self._size_before = self.find_size(now)
        self.changed_at = now

    def find_size(self, now: datetime) -> int | None:
        """Return the size as it was last processed; None before the first time (CA-07)."""
        return self._size_before if self._is_processing(now) else self.count(now)

    def list_reasons(self, now: datetime) -> list[str]:
        """Return why nothing can target it; none if it can be (CA-03, CA-06)."""
        if (self.find_size(now) or 0) >= SMALLEST:
            return []
        return ["PROCESSING", "TOO_SMALL"] if self._is_processing(now) else ["TOO_SMALL"]

    def _is_processing(self, now: datetime) -> bool:
        return now < self.changed_at + PROCESSING

    def update(self, user: User, effective_at: datetime, expires_at: datetime) -> None:
        """Add a user, or merge it into an existing one."""
        key = next(((kind, user[kind][0]) for kind in KEY_ORDER if user.get(kind)), ("", ""))
        known = self._members.get(key)
        identifiers = user if known is None else _merge(known.identifiers, user)
        self._members[key] = Member(identifiers, effective_at, expires_at)
        if self._index is not None:
            for identifier in _list_identifiers(user):
                self._index.setdefault(identifier, set()).add(key)

    def remove(self, user: User) -> None:
        """Remove every user that has any of these identifiers."""
        if self._index is None:
            self._index = {}
            for key, member in self._members.items():
                for identifier in _list_identifiers(member.identifiers):
                    self._index.setdefault(identifier, set()).add(key)
        index = self._index
        keys = {key for identifier in _list_identifiers(user) for key in index.get(identifier, ())}
        for key in keys:
            for identifier in _list_identifiers(self._members.pop(key).identifiers):
                index[identifier].discard(key)

    def members(self, now: datetime) -> list[Member]:
        """Return the users that have not expired, in the order of their addition."""
        return [member for member in self._members.values() if member.expires_at > now]

    def count(self, now: datetime) -> int:
        """Return how many users have not expired."""
        return sum(member.expires_at > now for member in self._members.values())


def _merge(known: User, user: User) -> User:
    merged = {kind: list(values) for kind, values in known.items()}
    for kind, values in user.items():
        held = merged.setdefault(kind, [])
        held.extend(value for value in values if value not in held)
    return merged


def _list_identifiers(user: User) -> Iterator[Identifier]:
    for kind, values in user.items():
        for value in values:
            yield kind, value


@attrs.frozen
class AudienceView:
    """The present state of a custom audience."""

    _audience: Audience
    _clock: Clock

    @property
    def id(self) -> str:
        """The audience's id."""
        return self._audience.id

    @property
    def account_id(self) -> str:
        """The account that owns it."""
        return self._audience.account_id

    @property
    def members(self) -> list[Member]:
        """The users that have not expired, with their dates, in the order of their addition."""
        return self._audience.members(self._clock.now())

    @property
    def users(self) -> list[dict[str, list[str]]]:
        """Their identifiers only: `{kind: [hash]}`."""
        return [member.identifiers for member in self.members]
