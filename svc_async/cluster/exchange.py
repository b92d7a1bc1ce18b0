"""Exchanges rows between workers, so that those of one key meet in one shard: by the engine's shuffle, on disk."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dask import dataframe
from dask.delayed import delayed

from svc_async.cluster.encode import FRAME, EncodeSettings, encode_fragment
from svc_async.cluster.plan import SourcePlan

if TYPE_CHECKING:
    from dask.delayed import Delayed

__all__ = ["encode_each", "exchange"]


def exchange(plan: SourcePlan, settings: EncodeSettings, *, shards: int) -> "Sequence[Delayed]":
    """Return the rows of each shard, not computed yet: frames for `ShardRows.read`.

    Rows of one key are in one shard, which is the same in each run. Computing them needs a client of a cluster.

    Args:
        plan: the source.
        settings: how users are encoded.
        shards: the number of shards.
    """
    if not plan.fragments:
        return [delayed(FRAME) for _ in range(shards)]
    frames = dataframe.from_map(
        encode_fragment, plan.fragments, source=plan.settings, settings=settings, shards=shards, meta=FRAME
    )
    # With a division for each shard, each becomes the partition of its number.
    shuffled = frames.set_index("shard", divisions=list(range(shards + 1)), shuffle_method="p2p")
    found: Sequence[Delayed] = shuffled.to_delayed()
    return found


def encode_each(plan: SourcePlan, settings: EncodeSettings) -> "Sequence[Delayed]":
    """Return the rows of each fragment, not computed yet, where rows of one key need not meet: a fragment is a shard.

    Args:
        plan: the source.
        settings: how users are encoded.
    """
    encode = delayed(encode_fragment, pure=True)
    return [encode(fragment, source=plan.settings, settings=settings, shards=1) for fragment in plan.fragments]
