"""The receiver as adapters use it."""

from collections.abc import AsyncIterable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from svc_async.value_rules import ValueRule
from svc_async.webhooks.verification import Headers, HttpAnswer

__all__ = ["PATH", "Receiver"]

PATH = ValueRule(lambda value: isinstance(value, str) and value.startswith("/"), "a string that begins with a slash")


class Receiver(Protocol):
    """Answers requests while it runs."""

    async def receive(
        self, method: str, raw_query: str | bytes, headers: Headers, chunks: AsyncIterable[bytes]
    ) -> HttpAnswer:
        """Answer a request, reading its body."""
        ...

    def reject_path(self) -> HttpAnswer:
        """Return the answer to a request for a path that is not served."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Run the receiver within the block, unless it runs already."""
        ...
