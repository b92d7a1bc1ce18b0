"""What an adapter serves."""

from collections.abc import AsyncIterable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from svc_async.webhooks.verification import Headers, HttpAnswer

__all__ = ["Served"]


class Served(Protocol):
    """A receiver, as adapters see it."""

    async def receive(
        self, method: str, raw_query: str | bytes, headers: Headers, chunks: AsyncIterable[bytes]
    ) -> HttpAnswer:
        """Answer a request whose body is still to come."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Run it within the block, unless it runs already."""
        ...
