"""Encodes a fragment: its rows as they are sent, divided by key among the shards of a job, and exchanged by workers.

The rows that belong to one shard are packed into one value. So the engine moves a few large values instead of one for
each row, and rows stay in their order. Users are hashed here; nothing else of them leaves the worker.
"""

import itertools
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import attrs
from dask.delayed import delayed
from distributed import get_worker

from svc_async.batch.job import Job
from svc_async.batch.packing.positions import Positions
from svc_async.cluster.fragments import list_places, open_fragment, read_slices
from svc_async.cluster.parts import (
    CatalogRows,
    Piece,
    RefusedRows,
    ShardPart,
    UserRows,
    divide_keys,
    divide_users,
    write_parts,
)
from svc_async.cluster.plan import Fragment, SourcePlan
from svc_async.errors import UnusableFile
from svc_async.jobs.run import find_vocabulary
from svc_async.sources.blocks.files import unusable
from svc_async.sources.file_source import FileSource, TableSource
from svc_async.sources.product_attributes import UnparsedRow
from svc_async.users.encoding import SLICE_ROWS, EncodedUsers, MemberEncoder, RowEncoder
from svc_async.users.packed import PackedUsers, RowTemplate, merge_users

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MOST_PIECES", "choose_shards", "create_encoder", "encode_each", "encode_fragment", "exchange"]

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

    def encode(self, source: TableSource, encoder: RowEncoder) -> None:
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
            kept = [places[index] for index in encoded.indexes] if encoded.invalid else places
            pending.append((encoded, Positions.pack(kept)))
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


def create_encoder(job: Job) -> MemberEncoder:
    """Return what encodes the users of a job."""
    return MemberEncoder(names=[*find_vocabulary(job).keys], **attrs.asdict(job.reading))


def _encode_products(source: FileSource, fragment: Fragment, shards: _Shards, key: str) -> None:
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


MOST_PIECES = 16_384
"""Pieces of a job up to which each is a task, so that the scheduler does not have too much to do."""
_SHARD_SIZE = 33_554_432
"""Bytes of rows of a shard: about sixteen full requests, so that they are nearly all full."""
_ROW_SIZE = 34
"""Bytes of a row with one hash."""
_LARGEST_SHARD = 67_108_864


def choose_shards(plan: SourcePlan, workers: int) -> int:
    """Return into how many shards a source is divided: by the estimated size of its rows, and as many for each worker.

    A large one gets fewer shards if it is exchanged as pieces then, and they do not become too large.

    Args:
        plan: the source.
        workers: how many workers there are; none yet counts as one.
    """
    workers = max(1, workers)
    size = sum(map(_estimate_size, plan.fragments))
    wanted = max(1, -(-size // (workers * _SHARD_SIZE))) * workers
    as_pieces = MOST_PIECES // max(1, len(plan.fragments)) // workers * workers
    return as_pieces if wanted > as_pieces >= max(workers, -(-size // _LARGEST_SHARD)) else wanted


def _estimate_size(fragment: Fragment) -> int:
    if fragment.end is None:
        return _SHARD_SIZE
    return (fragment.end - fragment.start) * (1 if fragment.group is None else _ROW_SIZE)


def exchange(
    plan: SourcePlan, *, shards: int, topic: str | None = None, most_pieces: int = MOST_PIECES
) -> Sequence[Any]:
    """Return the rows of each shard, not computed yet: as arguments of a task they are pieces.

    Rows of one key are in one shard, which is the same in each run. Computing them needs a client of a cluster.

    Args:
        plan: the source.
        shards: the number of shards.
        topic: where each fragment is announced when it is encoded.
        most_pieces: how many pieces are exchanged as tasks.
    """
    if len(plan.fragments) * shards > most_pieces:
        return _shuffle(plan, shards, topic)
    encode = delayed(_encode_pieces, pure=True)
    encoded: list[Any] = [encode(fragment, job=plan.job, shards=shards, topic=topic) for fragment in plan.fragments]
    return [[pieces[shard] for pieces in encoded] for shard in range(shards)]


def encode_each(plan: SourcePlan, *, topic: str | None = None) -> Sequence[Any]:
    """Return the rows of each fragment like `exchange`, where those of one key need not meet: a fragment is a shard.

    Args:
        plan: the source.
        topic: where each fragment is announced when it is encoded.
    """
    encode = delayed(_encode_pieces, pure=True)
    return [encode(fragment, job=plan.job, shards=1, topic=topic) for fragment in plan.fragments]


def _encode(fragment: Fragment, *, job: Job, shards: int, topic: str | None) -> Sequence[bytes]:
    contents = encode_fragment(fragment, job=job, shards=shards)
    if topic is not None:
        get_worker().log_event(topic, {"fragment": (fragment.file.source.path, fragment.number)})
    return contents


def _encode_pieces(fragment: Fragment, **settings: Any) -> Sequence[Piece]:
    return [Piece(content) for content in _encode(fragment, **settings)]


def _shuffle(plan: SourcePlan, shards: int, topic: str | None) -> Sequence[Any]:
    """Return the rows of each shard by Dask's shuffle, which moves records of frames."""
    from dask import dataframe  # noqa: PLC0415 - seconds of CPU on each worker, for very large jobs only

    frames = dataframe.from_map(
        _build_frame,
        plan.fragments,
        job=plan.job,
        shards=shards,
        topic=topic,
        meta=_make_frame([], []),
    )
    # With a division for each shard, each becomes the partition of its number.
    shuffled = frames.set_index("shard", divisions=list(range(shards + 1)), shuffle_method="p2p")
    read = delayed(_list_pieces, pure=True)
    return [read(partition) for partition in shuffled.to_delayed()]


def _build_frame(fragment: Fragment, **settings: Any) -> "pd.DataFrame":
    contents = _encode(fragment, **settings)
    occurring = [shard for shard, content in enumerate(contents) if content]
    return _make_frame(occurring, [contents[shard] for shard in occurring])


def _make_frame(shards: Sequence[int], contents: Sequence[bytes]) -> "pd.DataFrame":
    import pandas as pd  # noqa: PLC0415 - as in `_shuffle`
    import pyarrow as pa  # noqa: PLC0415 - likewise

    column = pd.arrays.ArrowExtensionArray(pa.array(contents, pa.large_binary()))
    return pd.DataFrame({"shard": pd.Series(shards, dtype="int64"), "content": pd.Series(column)})


def _list_pieces(frame: "pd.DataFrame") -> Sequence[Piece]:
    return [Piece(content) for content in frame["content"]]
