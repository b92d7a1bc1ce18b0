"""Reads a fragment for a sync: its rows, in slices that carry what is compared and what is sent.

Users are hashed here; nothing else of them leaves the worker.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from svc_async.batch.packing.positions import PlainRun, Positions
from svc_async.batch.settings import Reading
from svc_async.batch.sync.product_slices import pack_products
from svc_async.batch.sync.snapshot import SnapshotSlice
from svc_async.batch.sync.user_slices import pack_users
from svc_async.cluster.fragments import list_places, open_fragment, read_slices
from svc_async.cluster.plan import Fragment, SourceSettings
from svc_async.sources.blocks.files import unusable
from svc_async.users.encoding import MemberEncoder

__all__ = ["FragmentSlices", "read_fragment"]

_MAX_CONTENT = 268_435_456
"""Bytes of the rows of a fragment, which are in the memory of the process that compares them at once."""


@attrs.frozen
class FragmentSlices:
    """The rows of a fragment.

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


def read_fragment(fragment: Fragment, *, source: SourceSettings, reading: Reading) -> FragmentSlices:
    """Return the rows of a fragment.

    Args:
        fragment: the fragment.
        source: how it is read.
        reading: how users are read.

    Raises:
        UnusableFile: it cannot be parsed; a sync cannot do without any part of its source.
        SourceUnavailable: the file cannot be read here and now, or was changed.
        InvalidArgument: an extra is missing on this machine.
    """
    slices: list[SnapshotSlice] = []
    places: list[Positions] = []
    first = size = 0
    with open_fragment(fragment, source) as opened:
        pack, rows = _open_rows(opened, source, reading)
        for part in read_slices(rows):
            slices.append(pack(part))
            places.append(Positions.pack(list_places(opened, fragment, first, len(part))))
            first += len(part)
            size += len(slices[-1].content)
            if size > _MAX_CONTENT:
                rule = f"has more than {_MAX_CONTENT >> 20} MiB of rows in one fragment; write smaller row groups"
                raise unusable(opened.name, rule)
    return FragmentSlices(slices, Positions.merge(places).to_plain())


def _open_rows(
    opened: Any, source: SourceSettings, reading: Reading
) -> tuple[Callable[[Sequence[Any]], SnapshotSlice], object]:
    """Return what packs a slice of rows, and the rows."""
    if source.is_feed:
        return _pack_products, opened.products()
    settings: Mapping[str, Any] = attrs.asdict(reading)
    encoder = MemberEncoder(names=source.identifiers, **settings).for_rows(opened.columns)
    return lambda part: pack_users(encoder.hash(part)), opened.rows().rows


def _pack_products(part: Sequence[Any]) -> SnapshotSlice:
    return pack_products(list(part))
