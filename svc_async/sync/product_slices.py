"""Slices of products: what a sync compares of them, and the products as they are sent."""

import pickle
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from hashlib import sha256
from typing import Any, Protocol

import attrs
import msgspec

from svc_async.ads.products import Product
from svc_async.batch.report import Failure
from svc_async.batch.source import slice_rows
from svc_async.errors import InvalidArgument
from svc_async.sources.source import find_id
from svc_async.sync.entries import Entries
from svc_async.sync.snapshot import SliceSpill, Snapshot, SnapshotSlice
from svc_async.sync.state import SelectedRows
from svc_async.wire.writing import to_plain

__all__ = ["ListedProducts", "ProductSnapshot", "SpilledProducts", "find_key", "pack_products"]

_KIND = 7
"""The number of products in the state; it must never change."""


class ProductSnapshot(Protocol):
    """All products that a catalog is to have."""

    def entries(self) -> AsyncGenerator[Entries, None]:
        """Read them from the start; it is called once."""
        ...

    def select(self, upserts: SelectedRows) -> Iterable[Product | Mapping[str, Any]]:
        """Return those that are to be sent."""
        ...

    def locate(self, failure: Failure) -> Failure:
        """Return the failure of a product with the place of its row."""
        ...


@attrs.frozen
class ListedProducts:
    """Products that can be iterated again, which a sync does.

    Attributes:
        source: the products.
        check_first: checks the first of them.
    """

    source: Iterable[Product | Mapping[str, Any]] | AsyncIterable[Product | Mapping[str, Any]]
    check_first: Callable[[object], object] | None = None

    async def entries(self) -> AsyncGenerator[Entries, None]:
        """Read them from the start."""
        first = 0
        async with aclosing(slice_rows(self._require_rows())) as parts:
            async for part in parts:
                if self.check_first is not None and first == 0:
                    self.check_first(part[0])
                yield _list_entries(part).shift(first)
                first += len(part)

    def select(self, upserts: SelectedRows) -> Iterator[Product | Mapping[str, Any]]:
        """Select those that are to be sent, reading again from the start."""
        return upserts.choose(self._require_rows())

    def locate(self, failure: Failure) -> Failure:
        """Return the failure itself: its position is the place of the row."""
        return failure

    def _require_rows(self) -> Iterable[Product | Mapping[str, Any]]:
        if isinstance(self.source, Iterator) or not isinstance(self.source, Iterable):
            raise InvalidArgument("products", "must be a file, or a list or another iterable that can be read again")
        return self.source


@attrs.frozen
class SpilledProducts:
    """Products that are read elsewhere, and kept until they are sent.

    Attributes:
        snapshot: the products.
        spill: keeps them.
    """

    snapshot: Snapshot
    spill: SliceSpill

    async def entries(self) -> AsyncGenerator[Entries, None]:
        """Read them, and keep them."""
        async with aclosing(self.snapshot.slices()) as slices:
            async for each in slices:
                yield self.spill.add(each)

    def select(self, upserts: SelectedRows) -> Iterator[Mapping[str, Any]]:
        """Select those that are to be sent."""
        for content, _, selected in self.spill.read(upserts.find):
            products = pickle.loads(content)  # noqa: S301 - what `pack_products` wrote, in a file of this process
            for index in selected:
                yield products[index]

    def locate(self, failure: Failure) -> Failure:
        """Return the failure of a product with the place of its row."""
        return self.snapshot.locate(failure)


def pack_products(products: Sequence[Mapping[str, Any]]) -> SnapshotSlice:
    """Pack a slice of products, so that exactly what was read is sent: values of any type, and rows that fail."""
    return SnapshotSlice(len(products), _list_entries(products), pickle.dumps(products))


def find_key(product_id: str) -> bytes:
    """Return what identifies a product in the state."""
    return sha256(product_id.encode()).digest()[:16]


def _list_entries(part: Sequence[Product | Mapping[str, Any]]) -> Entries:
    encoded = {index: _encode(product) for index, product in enumerate(part)}
    identified = {index: found for index, found in encoded.items() if found is not None}
    products = identified.values()
    return Entries(
        positions=list(identified),
        ids=b"".join([find_key(product_id) + sha256(content).digest()[:8] for product_id, content in products]),
        kinds=bytes([_KIND]) * len(identified),
        rests=bytes(16 * len(identified)),
        names=[product_id.encode() for product_id, _ in products],
        invalid_rows=[index for index, found in encoded.items() if found is None],
        size=sum(len(content) for _, content in products),
    )


def _encode(product: Product | Mapping[str, Any]) -> tuple[str, bytes] | None:
    """Return the id of a product and its content; None if it has no id that can be read.

    A product that has no form in JSON fails when it is sent. It has no content then, as no product of the list, and
    keeps its place there.
    """
    product_id = find_id(product)
    if product_id is None:
        return None
    try:
        plain = product if isinstance(product, Mapping) else to_plain(product)
        return product_id, msgspec.json.encode(plain, order="deterministic")
    except (TypeError, ValueError):
        return product_id, b""
