"""Encodes a fragment: its rows as they are sent, divided by key among the shards of a job.

The rows that belong to one shard are packed into one value. So the engine moves a few large values instead of one for
each row, and rows stay in their order. Users are hashed here; nothing else of them leaves the worker.
"""

import itertools
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import attrs

from svc_async.batch.job import Job
from svc_async.batch.packing.positions import Positions
from svc_async.cluster.dividing import divide_keys, divide_users
from svc_async.cluster.fragments import list_places, open_fragment, read_slices
from svc_async.cluster.parts import CatalogRows, RefusedRows, ShardPart, UserRows, write_parts
from svc_async.cluster.plan import Fragment
from svc_async.errors import UnusableFile
from svc_async.jobs.run import find_vocabulary
from svc_async.sources.blocks.files import unusable
from svc_async.sources.source import ProductFeed, UnparsedRow, UserSource
from svc_async.users.encoding import SLICE_ROWS, EncodedUsers, MemberEncoder, RowEncoder
from svc_async.users.packed import PackedUsers, merge_users
from svc_async.users.template import RowTemplate

__all__ = ["create_encoder", "encode_fragment"]

_FLUSH_ROWS = 64_512
"""Rows that are divided among the shards at a time: two bytes are enough for the distance between most of them."""

_MAX_ENCODED = 268_435_456
"""Bytes of users of a fragment, which are in memory at once."""


def encode_fragment(fragment: Fragment, *, job: Job, shards: int) -> Sequence[bytes]:
    """Return the rows of a fragment for each shard, as `parts.write_parts` writes them.

    A fragment that cannot be parsed becomes one row that fails, with the reason; none of its rows is sent.

    Args:
        fragment: the fragment.
        job: the job.
        shards: the number of shards; a key is in the same shard in each fragment.

    Raises:
        SourceUnavailable: the file cannot be read here and now, or was changed.
        InvalidArgument: an extra is missing on this machine.
    """
    rows = _Shards.start(fragment, shards)
    try:
        with open_fragment(fragment, job) as opened:
            if job.target.kind == "catalog":
                _encode_products(opened, fragment, rows, "product_key" if job.operation == "remove" else "id")
            else:
                encoder = create_encoder(job).for_rows(opened.columns)
                _UserEncoder(fragment, rows, max(_FLUSH_ROWS, SLICE_ROWS * shards)).encode(opened, encoder)
    except UnusableFile as error:
        rows = _Shards.start(fragment, shards)
        reason = f"{fragment.name} is left out: the file {error.problem}"
        rows.refuse(Positions.pack([fragment.before + 1]), [(reason, None)])
    return [write_parts(fragment.number, parts) for parts in rows.parts]


@attrs.frozen
class _Shards:
    """The rows of a fragment, by their shard.

    Attributes:
        own: the shard of rows without a key.
        parts: the rows of each shard.
    """

    own: int
    parts: Sequence[list[ShardPart]]

    @classmethod
    def start(cls, fragment: Fragment, count: int) -> "_Shards":
        return cls(fragment.number % count, [[] for _ in range(count)])

    def refuse(self, rows: Positions, reasons: Iterable[tuple[str, str | None]], partly_valid: int = 0) -> None:
        """Add rows that fail, each with the rule and the identifier that it is about."""
        self.parts[self.own].append(RefusedRows.pack(rows, reasons, partly_valid))

    def add_users(self, template: RowTemplate, users: PackedUsers, rows: Positions) -> None:
        """Add users."""
        for shard, part, places in divide_users(users, rows, len(self.parts)):
            self.parts[shard].append(UserRows(template, part, places))

    def add_products(self, keys: Sequence[int], products: Sequence[Any], rows: Positions) -> None:
        """Add products, or keys of products."""
        groups = list(divide_keys(keys, len(self.parts)))
        for (shard, indexes), places in zip(groups, rows.distribute([each for _, each in groups]), strict=True):
            self.parts[shard].append(CatalogRows.pack([products[index] for index in indexes], places))


@attrs.frozen
class _UserEncoder:
    """Encodes the users of a fragment."""

    fragment: Fragment
    shards: _Shards
    flush_rows: int

    def encode(self, source: UserSource, encoder: RowEncoder) -> None:
        pending: list[tuple[EncodedUsers, Positions]] = []
        first = waiting = size = 0
        for part in read_slices(source.rows().rows):
            encoded = encoder.encode(part)
            size += encoded.users.held
            if size > _MAX_ENCODED:
                rule = f"has more than {_MAX_ENCODED >> 20} MiB of users in one fragment; write smaller row groups"
                raise unusable(source.name, rule)
            places = list_places(source, self.fragment, first, len(part))
            first, waiting = first + len(part), waiting + len(part)
            self._refuse(encoded, places)
            pending.append((encoded, _select(places, encoded)))
            if waiting >= self.flush_rows:
                self._flush(pending)
                pending, waiting = [], 0
        self._flush(pending)

    def _refuse(self, encoded: EncodedUsers, places: Sequence[int]) -> None:
        if encoded.invalid or encoded.partly_valid:
            refused = sorted(encoded.invalid.items())
            rows = Positions.pack([places[index] for index, _ in refused])
            reasons = [(rule, encoded.attributes.get(index)) for index, rule in refused]
            self.shards.refuse(rows, reasons, encoded.partly_valid)

    def _flush(self, pending: Sequence[tuple[EncodedUsers, Positions]]) -> None:
        for _, alike in itertools.groupby(pending, key=lambda each: type(each[0].users)):
            slices, places = zip(*alike, strict=True)
            template = slices[0].template
            users = merge_users([each.users for each in slices], template)
            self.shards.add_users(template, users, Positions.merge(places))


def _select(places: Sequence[int], encoded: EncodedUsers) -> Positions:
    """Return the rows of the users that can be sent."""
    return Positions.pack([places[index] for index in encoded.indexes] if encoded.invalid else places)


def create_encoder(job: Job) -> MemberEncoder:
    """Return what encodes the users of a job."""
    return MemberEncoder(names=[*find_vocabulary(job).keys], **attrs.asdict(job.reading))


def _encode_products(source: ProductFeed, fragment: Fragment, shards: _Shards, key: str) -> None:
    first = 0
    for part in read_slices(source.products()):
        places = list_places(source, fragment, first, len(part))
        first += len(part)
        parsed = [index for index, row in enumerate(part) if not isinstance(row, UnparsedRow)]
        if len(parsed) < len(part):
            refused = [index for index, row in enumerate(part) if isinstance(row, UnparsedRow)]
            rows = Positions.pack([places[index] for index in refused])
            shards.refuse(rows, [(part[index].reason, None) for index in refused])
        products = [part[index] for index in parsed]
        keys = [_hash_key(product.get(key)) for product in products]
        if key == "product_key":
            products = [product.get("product_key") for product in products]
        shards.add_products(keys, products, Positions.pack([places[index] for index in parsed]))


def _hash_key(value: object) -> int:
    """Return the number that decides the shard of a product."""
    return int.from_bytes(sha256(str(value).encode(errors="replace")).digest()[:8])
