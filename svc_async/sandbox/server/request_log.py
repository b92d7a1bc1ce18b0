"""The latest requests that the sandbox received, in order."""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from fnmatch import fnmatchcase

import attrs

from svc_async.sandbox.state.ring import Ring

__all__ = ["LoggedRequest", "RequestLog"]


@attrs.frozen(kw_only=True)
class LoggedRequest:
    """One request and its outcome.

    Attributes:
        headers: names in lower case; signatures and tokens are masked.
        size: of the body, in bytes.
        body: the body, if the sandbox keeps bodies.
        status: None until it is answered, and for good if the answer was withheld.
        operation: the contract's id of the operation; empty if there is none.
        fault: whether an injected fault took part.
    """

    number: int
    time: datetime
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    size: int = 0
    body: bytes | None = attrs.field(default=None, repr=False)
    status: int | None = None
    operation: str = ""
    basis: str = ""
    rule: str = ""
    fault: bool = False


class RequestLog(Ring[LoggedRequest]):
    """The latest requests; each is logged as soon as it has arrived."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._waiting: list[asyncio.Future[None]] = []

    def matching(self, route: str = "*", *, method: str | None = None, answered: bool = False) -> list[LoggedRequest]:
        """Return the requests whose path matches a pattern such as `*/custom_audiences/*/users`."""
        return [
            entry
            for entry in self
            if fnmatchcase(entry.path, route)
            and method in (None, entry.method)
            and (entry.status is not None or not answered)
        ]

    def count(self, route: str = "*", *, method: str | None = None, answered: bool = False) -> int:
        """Count the requests whose path matches a pattern."""
        return len(self.matching(route, method=method, answered=answered))

    async def wait(
        self, *, count: int = 1, route: str = "*", method: str | None = None, answered: bool = False
    ) -> list[LoggedRequest]:
        """Wait until `count` requests have arrived, or were answered, and return them."""
        while len(found := self.matching(route, method=method, answered=answered)) < count:
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(changed)
            await changed
        return found

    def add(self, entry: LoggedRequest) -> None:
        """Log a request."""
        self.append(entry)
        self._wake()

    def update(self, entry: LoggedRequest) -> None:
        """Replace a logged request by its present outcome."""
        self.replace(entry.number, entry)
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
