"""Exchanges rows between workers, so that those of one key meet in one shard.

Each fragment is encoded into a piece for each shard, and the task that sends a shard takes its pieces from the workers
that have them. Pieces are results of tasks: when a worker is lost, Dask encodes again what only that worker had. There
are as many as fragments times shards, so a very large job leaves the exchange to Dask's shuffle on disk (`p2p`), which
has a task for each fragment and each shard only, but begins anew when a worker is lost.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dask.delayed import delayed
from distributed import get_worker

from svc_async.batch.job import Job
from svc_async.cluster.encode import encode_fragment
from svc_async.cluster.pieces import Piece
from svc_async.cluster.plan import Fragment, SourcePlan

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MOST_PIECES", "choose_shards", "encode_each", "exchange"]

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
