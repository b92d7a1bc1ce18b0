"""Slices of products: what a sync compares of them, and the products as they are sent."""

import json
import pickle
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from hashlib import sha256
from typing import Any

import attrs
import msgspec

from svc_async.ads.products import CLEARED, Product, normalize_product
from svc_async.batch.slicing import slice_rows
from svc_async.sources.product_attributes import UnparsedRow, find_id
from svc_async.sync.entries import Entries
from svc_async.sync.snapshot import Snapshot, SnapshotSlice, require_replayable
from svc_async.wire.writing import to_plain

__all__ = ["ListedProducts", "find_key", "pack_products", "unpack_products"]

_KIND = 7
"""The number of products in the state; it must never change."""


@attrs.frozen
class ListedProducts(Snapshot):
    """Products as a snapshot; they can be iterated again when the sync is repeated.

    Attributes:
        source: the products.
        check_first: checks the first of them.
    """

    source: Iterable[Product | Mapping[str, Any]] | AsyncIterable[Product | Mapping[str, Any]]
    check_first: Callable[[object], object]

    async def slices(self) -> AsyncGenerator[SnapshotSlice, None]:
        """Pack them, a slice at a time; see `Snapshot`."""
        is_first = True
        async with aclosing(slice_rows(require_replayable("products", self.source))) as parts:
            async for part in parts:
                if is_first:
                    self.check_first(part[0])
                is_first = False
                yield pack_products(part)


def pack_products(products: Iterable[Product | Mapping[str, Any]]) -> SnapshotSlice:
    """Pack a slice of products as they are sent, also values of any type and rows that fail."""
    rows = [*map(_complete, products)]
    try:
        content = pickle.dumps(rows)
        pickle.loads(content)  # noqa: S301 - written above; what cannot be read back would end the sync later
    except Exception:  # noqa: BLE001 - whatever a value raises that cannot be pickled and read back
        content = pickle.dumps([*map(_make_plain, rows)])
    return SnapshotSlice(len(rows), _list_entries(rows), content)


def unpack_products(slices: Iterable[tuple[bytes, range, Sequence[int]]]) -> Iterator[Mapping[str, Any] | Product]:
    """Yield the products of slices, each given by its content, its rows, and those of them that are wanted."""
    for content, _, selected in slices:
        products = pickle.loads(content)  # noqa: S301 - what `pack_products` wrote, in a file of this process
        yield from map(products.__getitem__, selected)


def _complete(product: Any) -> Any:
    """Return a product as it is sent, with an empty text for each optional attribute that it lacks.

    So the service has nothing of it that the source does not have, and a blank value and a missing one are the same.
    """
    normal = product if isinstance(product, UnparsedRow) else normalize_product(product)
    return {**CLEARED, **normal} if type(normal) is dict else normal


def _make_plain(product: Product | Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a product as values for JSON, which can be pickled; one without a form in JSON is a row that fails."""
    if isinstance(product, UnparsedRow):
        return product
    try:
        plain: Mapping[str, Any] = json.loads(json.dumps(to_plain(product), allow_nan=False))
    except Exception:  # noqa: BLE001 - as above
        return UnparsedRow("must contain only values that JSON can represent", find_id(product))
    return plain


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
        return product_id, msgspec.json.encode(product, order="deterministic")
    except (TypeError, ValueError):
        return product_id, b""
