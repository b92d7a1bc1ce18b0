"""Reads a fragment for a sync: its rows, in slices that carry what is compared and what is sent.

Users are hashed here; nothing else of them leaves the worker. The slices are returned in parts, each of which fits into
a message of about 10 MiB, however large the row groups of a file are.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from svc_async.batch.job import Job
from svc_async.batch.packing.positions import PlainRun, Positions
from svc_async.batch.sync.product_slices import pack_products
from svc_async.batch.sync.snapshot import SnapshotSlice
from svc_async.batch.sync.user_slices import pack_users
from svc_async.cluster.encode import create_encoder
from svc_async.cluster.fragments import list_places, open_fragment, read_slices
from svc_async.cluster.plan import Fragment
from svc_async.sources.blocks.files import unusable

__all__ = ["FragmentSlices", "count_parts", "read_fragment"]

_MAX_CONTENT = 268_435_456
"""Bytes of the rows of a fragment, which are in the memory of a worker at once."""
_PART_ROWS = 131_072
_PART_TEXT = 8_388_608
"""Bytes of text, which become about as many."""


@attrs.frozen
class FragmentSlices:
    """Consecutive rows of a fragment.

    Attributes:
        slices: the rows, in their order.
        places: where they are in their file, counted from 1: positions as plain values.
    """

    slices: Sequence[SnapshotSlice]
    places: Sequence[PlainRun]

    @property
    def count(self) -> int:
        """How many rows there are."""
        return sum(each.count for each in self.slices)


def count_parts(fragment: Fragment) -> int:
    """Return in how many parts the rows of a fragment are to be returned."""
    if fragment.end is None:
        return max(1, -(-fragment.file.source.size // _PART_TEXT))
    return max(1, -(-(fragment.end - fragment.start) // (_PART_TEXT if fragment.group is None else _PART_ROWS)))


def read_fragment(fragment: Fragment, *, job: Job, parts: int = 1) -> Sequence[FragmentSlices]:
    """Return the rows of a fragment in parts, some of which are empty if it has few rows.

    Args:
        fragment: the fragment.
        job: the sync.
        parts: how many parts.

    Raises:
        UnusableFile: it cannot be parsed; a sync cannot do without any part of its source.
        SourceUnavailable: the file cannot be read here and now, or was changed.
        InvalidArgument: an extra is missing on this machine.
    """
    slices: list[SnapshotSlice] = []
    places: list[Positions] = []
    first = size = 0
    with open_fragment(fragment, job) as opened:
        pack, rows = _open_rows(opened, job)
        for part in read_slices(rows):
            slices.append(pack(part))
            places.append(Positions.pack(list_places(opened, fragment, first, len(part))))
            first += len(part)
            size += len(slices[-1].content)
            if size > _MAX_CONTENT:
                rule = f"has more than {_MAX_CONTENT >> 20} MiB of rows in one fragment; write smaller row groups"
                raise unusable(opened.name, rule)
    ends = [len(slices) * number // parts for number in range(parts + 1)]
    return [
        FragmentSlices(slices[start:end], Positions.merge(places[start:end]).to_plain())
        for start, end in itertools.pairwise(ends)
    ]


def _open_rows(opened: Any, job: Job) -> tuple[Callable[[Sequence[Any]], SnapshotSlice], object]:
    """Return what packs a slice of rows, and the rows."""
    if job.target.kind == "catalog":
        return _pack_products, opened.products()
    encoder = create_encoder(job).for_rows(opened.columns)
    return lambda part: pack_users(encoder.hash(part)), opened.rows().rows


def _pack_products(part: Sequence[Any]) -> SnapshotSlice:
    return pack_products(list(part))
