"""Holds the bodies of deliveries that are not answered yet, up to a number and a size in total."""

from collections.abc import AsyncIterable, Generator
from contextlib import contextmanager

import attrs

from svc_async.clock import Clock
from svc_async.webhooks.verification import Rejected, RejectReason

__all__ = ["Bodies", "Body"]


@attrs.define(kw_only=True)
class Bodies:
    """The bodies in memory.

    Attributes:
        largest: the largest body, in bytes.
        max_count: how many there may be.
        max_bytes: how many bytes they may have in total.
        read_deadline: seconds within which each must arrive.
        clock: the source of time.
    """

    largest: int
    max_count: int
    max_bytes: int
    read_deadline: float
    clock: Clock
    _count: int = attrs.field(default=0, init=False)
    _bytes: int = attrs.field(default=0, init=False)

    @contextmanager
    def admit(self) -> "Generator[Body]":
        """Yield an empty body, which is forgotten when the block ends.

        Raises:
            Rejected: there are too many.
        """
        if self._count >= self.max_count:
            raise Rejected(RejectReason.TOO_MANY_BODIES)
        self._count += 1
        body = Body(self)
        try:
            yield body
        finally:
            self._count -= 1
            self._bytes -= body.size

    def grow(self, size: int) -> None:
        """Make room for bytes that have arrived.

        Raises:
            Rejected: the bodies are too large in total.
        """
        if self._bytes + size > self.max_bytes:
            raise Rejected(RejectReason.TOO_MANY_BODIES)
        self._bytes += size


@attrs.define
class Body:
    """The place of one body.

    Attributes:
        size: the bytes that have arrived.
    """

    _bodies: Bodies
    size: int = attrs.field(default=0, init=False)

    async def read(self, chunks: AsyncIterable[bytes]) -> bytes:
        """Read the body, but no more of it than is allowed.

        Raises:
            Rejected: it is too large or too slow, there is no room for it, or its connection broke.
        """
        try:
            async with self._bodies.clock.timeout(self._bodies.read_deadline):
                return await self._read(chunks)
        except TimeoutError:
            raise Rejected(RejectReason.TOO_SLOW) from None

    async def _read(self, chunks: AsyncIterable[bytes]) -> bytes:
        content = bytearray()
        async for chunk in chunks:
            if self.size + len(chunk) > self._bodies.largest:
                raise Rejected(RejectReason.TOO_LARGE)
            self._bodies.grow(len(chunk))
            self.size += len(chunk)
            content += chunk
        return bytes(content)
