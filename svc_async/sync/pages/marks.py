"""What a state knows of a row, what a sync does with it, and what an outcome reveals; no I/O.

The mark of a row is a byte and a day. Its lowest bits are the kind of its key, and zero for an unused place; the others
say what is uncertain:

    none           the list has the row, with exactly the content of which the digest is kept, until the day
    DOUBT          the list has the row with that content, or does not have it
    DOUBT | ANY    the list may have the row with any contents that were ever sent for its key
    LISTED         beside DOUBT: the row was on the list before, so it counts for the largest share of removals
    LATE_UPSERT    a request that adds the row may still take effect
    LATE_REMOVAL   a request that removes it may still take effect

A planned row is in doubt from the moment at which the plan is stored. `settle_added` and `settle_moved` return what the
outcomes make of it. A row whose part was not begun is as it was before, unless it was to be removed: it stays in doubt,
since the removal of another row, in this plan or beside it, may have removed it as well.
"""

import enum
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

import attrs

__all__ = [
    "ANY",
    "DOUBT",
    "KIND",
    "LATE",
    "LATE_REMOVAL",
    "LATE_UPSERT",
    "LISTED",
    "NEVER",
    "Action",
    "Before",
    "ComparisonRules",
    "Decision",
    "Reason",
    "RowOutcome",
    "decide",
    "doubt_written",
    "expect_mark",
    "link",
    "settle_added",
    "settle_moved",
]

KIND = 0b111
DOUBT, ANY, LISTED, LATE_UPSERT, LATE_REMOVAL = (1 << bit for bit in range(3, 8))
LATE = LATE_UPSERT | LATE_REMOVAL

NEVER = 0xFFFF
"""The day of a row that stays until it is removed."""

Reason = Literal["addition", "change", "refresh", "linked", "removal", "doubtful", "kept", "unchanged", "expired"]


class RowOutcome(enum.IntEnum):
    """What became of a row that was to be sent."""

    UNDER_WAY = 0
    """Nobody knows, and the request may still take effect."""
    ACCEPTED = 1
    NO_EFFECT = 2
    UNKNOWN = 3
    """Nobody knows, but nothing takes effect any more."""


class Action(enum.IntFlag):
    """What is done with a row that the state knows."""

    NOTHING = 0
    UPSERT = 1
    REMOVE = 2
    REMOVE_LATER = 4
    """The removal waits until no request that adds the row can take effect any more."""
    FORGET = 8
    SAME = 16
    """The upsert has the content of the mark."""
    LINKED = 32
    """The removal of another row may remove this one before it is sent."""


@attrs.frozen(kw_only=True, cache_hash=True)
class ComparisonRules:
    """What a comparison goes by.

    Attributes:
        today: rows that expired before this day are not on the list; days count from 1970.
        soon: rows that expire before this day are sent again.
        replace: whether a row that the list may have with another content is removed before it is sent.
        late: whether requests of earlier runs may still take effect.
        keep_absent: whether rows that the snapshot does not have are left as they are.
    """

    today: int
    soon: int
    replace: bool
    late: bool
    keep_absent: bool = False


@attrs.frozen
class Decision:
    """What is done with a row, and why.

    Attributes:
        reason: as what the plan counts it.
        action: what is done.
        waits: whether the upsert waits until no earlier request can take effect any more.
    """

    reason: Reason
    action: Action
    waits: bool = False


@attrs.frozen
class Before:
    """The mark of a row before a plan."""

    flags: int
    day: int


_UNCHANGED = Decision("unchanged", Action.NOTHING)
_LINKED = Decision("linked", Action.UPSERT | Action.SAME | Action.LINKED)
_EXPIRED = Decision("expired", Action.FORGET)
_KEPT = Decision("kept", Action.NOTHING)


@lru_cache(maxsize=4096)
def decide(flags: int, day: int, rules: ComparisonRules, *, same: bool | None) -> Decision:
    """Return what is done with a row that the state knows.

    Args:
        flags: its mark.
        day: when it expires.
        rules: the comparison.
        same: whether the snapshot has it with the content of the mark; None if the snapshot does not have it.
    """
    if not rules.late:
        flags &= ~LATE
    certain = not flags & DOUBT
    expired = certain and day < rules.today
    if same is None:
        return _KEPT if rules.keep_absent and not expired else _decide_absent(flags, expired=expired)
    if certain and same and not expired:
        return Decision("refresh", Action.UPSERT | Action.SAME) if day < rules.soon else _UNCHANGED
    reason: Reason = "change" if certain and not expired else "addition"
    if same and not flags & ANY:
        return Decision(reason, Action.UPSERT | Action.SAME, bool(flags & LATE_REMOVAL))
    action = Action.UPSERT
    if rules.replace:
        action |= Action.REMOVE_LATER if flags & LATE else Action.REMOVE
    return Decision(reason, action, bool(flags & LATE))


def link(decision: Decision) -> Decision:
    """Return what is done with a row of the snapshot if the removal of another row may remove it."""
    if decision.action is Action.NOTHING:
        return _LINKED
    is_removed = decision.action & (Action.REMOVE | Action.REMOVE_LATER)
    return decision if is_removed else attrs.evolve(decision, action=decision.action | Action.LINKED)


def _decide_absent(flags: int, *, expired: bool) -> Decision:
    if expired:
        return _EXPIRED
    listed = not flags & DOUBT or flags & LISTED
    return Decision("removal" if listed else "doubtful", Action.REMOVE_LATER if flags & LATE else Action.REMOVE)


@lru_cache(maxsize=4096)
def expect_mark(before: Before, action: Action, expires: int) -> Before:
    """Return the mark of a row that the state knows while its plan is carried out.

    Args:
        before: its mark.
        action: what is done.
        expires: the day on which rows that are sent expire.
    """
    kind = before.flags & KIND
    if not action & Action.UPSERT:
        return Before(_doubt(before.flags), before.day)
    if action & Action.SAME:
        return Before(_doubt(before.flags), min(before.day, expires))
    return Before(kind | DOUBT | ANY | _was_listed(before.flags), expires)


def doubt_written(before: Before, *, adds: bool, late: bool, today: int) -> int:
    """Return the flags of a row after a request beside the syncs named it.

    Args:
        before: its mark.
        adds: whether the request may have added it with other contents; else it may have removed it.
        late: whether the request may still take effect.
        today: rows that expired before this day are not on the list.
    """
    flags = before.flags
    is_listed = bool(flags & DOUBT) or before.day >= today
    if not is_listed and not adds:
        return flags
    flags = _doubt(flags) if is_listed else flags | DOUBT
    if adds:
        flags |= ANY
    if late:
        flags |= LATE_UPSERT if adds else LATE_REMOVAL
    return flags


def settle_added(kind: int, outcome: RowOutcome) -> int:
    """Return the mark of a row that the state did not know."""
    return kind | _ADDED[outcome] if outcome is not RowOutcome.NO_EFFECT else 0


@lru_cache(maxsize=4096)
def settle_moved(
    before: Before, action: Action, *, removal: RowOutcome, upsert: RowOutcome, expires: int
) -> tuple[Before, bool]:
    """Return the mark of a row that the state knew, and whether its content is that of before.

    Args:
        before: its mark.
        action: what was done.
        removal: the outcome of its removal, if there was one.
        upsert: the outcome of sending it, if it was sent.
        expires: the day on which rows that were sent expire.
    """
    if action & (Action.REMOVE | Action.REMOVE_LATER):
        if not action & Action.UPSERT:
            return _settle_removal(before, removal), True
        return _settle_replacement(before, removal, upsert, expires)
    if upsert is RowOutcome.NO_EFFECT:
        return Before(_doubt(before.flags), before.day) if action & Action.LINKED else before, True
    if action & Action.SAME:
        return _settle_repetition(before, upsert, expires), True
    return _settle_overwriting(before, upsert, expires), False


def _settle_removal(before: Before, outcome: RowOutcome) -> Before:
    if outcome is RowOutcome.ACCEPTED:
        return Before(0, NEVER)
    if outcome is RowOutcome.NO_EFFECT:  # the removal of another row may have had one
        return Before(_doubt(before.flags), before.day)
    return Before(_doubt(before.flags) & ~LATE | _REMOVED[outcome], before.day)


def _settle_replacement(before: Before, removal: RowOutcome, upsert: RowOutcome, expires: int) -> tuple[Before, bool]:
    """Return the mark of a row that was removed, then sent."""
    kind = before.flags & KIND
    if removal is RowOutcome.ACCEPTED:  # nothing of before is left
        flags = settle_added(kind, upsert)
        return Before(flags | _was_listed(before.flags) if flags & DOUBT else flags, expires if flags else NEVER), False
    if upsert is RowOutcome.NO_EFFECT:
        return _settle_removal(before, removal), True
    flags = kind | DOUBT | ANY | _was_listed(before.flags) | _REMOVED[removal] | _ADDED[upsert] & LATE
    return Before(flags, expires), False


def _settle_repetition(before: Before, outcome: RowOutcome, expires: int) -> Before:
    """Return the mark of a row that was sent with the content that it had."""
    late = before.flags & LATE_UPSERT  # sent without waiting for the earlier request, which has an earlier expiry
    if outcome is RowOutcome.ACCEPTED:
        return Before(before.flags & KIND | late, min(before.day, expires) if late else expires)
    return Before(_doubt(before.flags) & ~LATE_REMOVAL | late | _ADDED[outcome] & LATE, min(before.day, expires))


def _settle_overwriting(before: Before, outcome: RowOutcome, expires: int) -> Before:
    """Return the mark of a row that was sent with another content, without being removed."""
    kind = before.flags & KIND
    if outcome is RowOutcome.ACCEPTED:
        return Before(kind, expires)
    return Before(kind | DOUBT | ANY | _was_listed(before.flags) | _ADDED[outcome] & LATE, expires)


def _doubt(flags: int) -> int:
    return flags | DOUBT | _was_listed(flags)


def _was_listed(flags: int) -> int:
    return LISTED if not flags & DOUBT else flags & LISTED


_ADDED: Mapping[RowOutcome, int] = MappingProxyType(
    {
        RowOutcome.ACCEPTED: 0,
        RowOutcome.UNKNOWN: DOUBT,
        RowOutcome.UNDER_WAY: DOUBT | LATE_UPSERT,
        RowOutcome.NO_EFFECT: 0,
    }
)
_REMOVED: Mapping[RowOutcome, int] = MappingProxyType(
    {
        RowOutcome.UNDER_WAY: LATE_REMOVAL,
        RowOutcome.ACCEPTED: 0,
        RowOutcome.NO_EFFECT: 0,
        RowOutcome.UNKNOWN: 0,
    }
)
