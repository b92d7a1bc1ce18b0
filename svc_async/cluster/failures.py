"""The failures of a shard, packed as they come: a report lists only the first 10,000 of them."""

import json
import zlib
from collections.abc import Iterator, Sequence

import attrs
import msgspec

from svc_async.batch.report import Failure

__all__ = ["FailureBlocks", "read_block"]

_BLOCK_FAILURES = 10_000
_MAX_BLOCK = 2**26
"""Bytes of a block that is unpacked; a failure takes some hundred."""
_Plain = tuple[int, str, str, str | None, str | None, str | None]


@attrs.define
class FailureBlocks:
    """Failures in blocks of bytes, of which each failure takes a few.

    Attributes:
        count: how many failures there are.
    """

    count: int = attrs.field(default=0, init=False)
    _packed: list[bytes] = attrs.field(factory=list[bytes], init=False)
    _open: list[Failure] = attrs.field(factory=list[Failure], init=False)

    def add(self, failure: Failure) -> None:
        """Add a failure; its position and file are kept as they are."""
        self.count += 1
        self._open.append(failure)
        if len(self._open) >= _BLOCK_FAILURES:
            self._packed.append(_write_block(self._open))
            self._open.clear()

    def pack(self) -> Sequence[bytes]:
        """Return the blocks."""
        return (*self._packed, _write_block(self._open)) if self._open else tuple(self._packed)


def _write_block(failures: Sequence[Failure]) -> bytes:
    return zlib.compress(json.dumps([attrs.astuple(failure) for failure in failures]).encode(), 1)


def read_block(block: bytes) -> Iterator[Failure]:
    """Yield the failures of a block.

    Raises:
        ValueError: the block is damaged.
    """
    stream = zlib.decompressobj()
    try:
        plain = msgspec.convert(json.loads(stream.decompress(block, _MAX_BLOCK)), list[_Plain])
    except (zlib.error, msgspec.ValidationError, RecursionError):
        raise ValueError("no block of failures") from None
    yield from (Failure(*each) for each in plain)
