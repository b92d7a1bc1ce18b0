"""Decides which open batches share requests when a source has ended; no I/O."""

import itertools
from collections.abc import Mapping, Sequence
from math import ceil

__all__ = ["group_tails"]

_ROUNDING = 1e-9


def group_tails(tails: Mapping[int, float]) -> list[list[int]]:
    """Group open batches: the rows of a group fill one request after another.

    All groups together take at most one request more than the rows would in one group. Among such ways it takes the
    one whose groups are smallest, since groups are sent at the same time and the requests of one after each other.

    Args:
        tails: the share of a request that each open batch fills, by its number.
    """
    largest_first = sorted(tails, key=lambda number: tails[number], reverse=True)
    fewest = _count_requests(tails, [largest_first])
    ways = (_fill_groups(tails, largest_first, requests) for requests in itertools.count(1))
    return next(groups for groups in ways if _count_requests(tails, groups) <= fewest + 1)


def _fill_groups(tails: Mapping[int, float], order: Sequence[int], requests: int) -> list[list[int]]:
    """Put each batch into the first group that it fits into with this many requests."""
    groups: list[list[int]] = []
    room: list[float] = []
    for number in order:
        size = tails[number]
        index = next((index for index, left in enumerate(room) if size <= left + _ROUNDING), len(groups))
        if index == len(groups):
            groups.append([])
            room.append(requests)
        groups[index].append(number)
        room[index] -= size
    return groups


def _count_requests(tails: Mapping[int, float], groups: Sequence[Sequence[int]]) -> int:
    return sum(ceil(sum(tails[number] for number in group) - _ROUNDING) for group in groups)
