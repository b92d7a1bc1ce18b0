"""The lease of a receiver of webhooks that runs.

Whoever finds the lease of another receiver expired deletes its row and may take over what belonged to it. A receiver
that finds its own row deleted, because it was suspended or could not reach the database, continues with a new row, and
holds nothing of what it held before.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self
from uuid import UUID, uuid4

import attrs

from svc_async.clock import Clock, read_boottime
from svc_async.errors import SvcError
from svc_async.printable import clean
from svc_async.store.postgres import Database

__all__ = ["EventLease"]

_log = logging.getLogger("svc_async.state")

_RENEWALS = 4  # in the time of a lease
_TRUSTED = 0.8  # of a lease: the clock of the database may be faster than that of this machine
_SWEPT = 10_000  # rows that one statement deletes


@attrs.define(kw_only=True)
class EventLease:
    """A lease that is renewed within an `async with` block, and given up at its end.

    Attributes:
        database: where its row is.
        receiver: the name of the receiver.
        length: how long it is respected after a renewal.
        clock: the source of time for waiting.
        read_time: the time of the database, if it is not that of its clock.
        on_loss: called when others have deleted the row.
        owner: identifies the row.
    """

    database: Database
    receiver: str
    length: timedelta
    clock: Clock
    read_time: Callable[[], datetime | None]
    on_loss: Callable[[], object]
    owner: UUID = attrs.field(factory=uuid4, init=False)
    _trusted_until: float = attrs.field(default=0.0, init=False)
    _renewing: asyncio.Lock = attrs.field(factory=asyncio.Lock, init=False)
    _task: "asyncio.Task[None] | None" = attrs.field(default=None, init=False)
    _fails: bool = attrs.field(default=False, init=False)

    @property
    def is_trusted(self) -> bool:
        """Whether nobody else can have found the lease expired."""
        return read_boottime(self.clock) < self._trusted_until

    @property
    def is_abandoned(self) -> bool:
        """Whether the event loop was closed in which it is renewed."""
        return self._task is not None and self._task.get_loop().is_closed()

    async def __aenter__(self) -> Self:
        await self._register()
        self._task = asyncio.create_task(self._keep(), name="svc-async lease of a webhook receiver")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        with suppress(Exception):  # otherwise it expires
            await self.database.execute(
                "SELECT end_event_receivers($1, coalesce($2, clock_timestamp()))", self.owner, self.read_time()
            )

    async def renew(self) -> None:
        """Renew the lease; if others have deleted its row, begin a new one.

        Raises:
            StateUnavailable: the database cannot be reached.
        """
        async with self._renewing:
            began = read_boottime(self.clock)
            renewed = await self.database.fetch_row(
                "UPDATE event_receivers SET expires_at = coalesce($2, clock_timestamp()) + $3::interval "
                "WHERE id = $1 RETURNING id",
                self.owner,
                self.read_time(),
                self.length,
            )
            if renewed is None:
                _log.warning("the receiver %s was away for longer than its lease", clean(self.receiver))
                await self._register()
            else:
                self._trust(began)

    async def _register(self) -> None:
        began = read_boottime(self.clock)
        owner = uuid4()
        await self.database.execute(
            "INSERT INTO event_receivers (id, receiver, process, expires_at) "
            "VALUES ($1, $2, $3, coalesce($4, clock_timestamp()) + $5::interval)",
            owner,
            self.receiver,
            f"{socket.gethostname()} {os.getpid()}",
            self.read_time(),
            self.length,
        )
        self.owner = owner
        self.on_loss()
        self._trust(began)

    def _trust(self, began: float) -> None:
        self._trusted_until = began + self.length.total_seconds() * _TRUSTED

    async def _keep(self) -> None:
        while True:
            await self.clock.sleep(self.length.total_seconds() / _RENEWALS)
            try:
                await self.renew()
                await self._sweep()
                self._fails = False
            except Exception as error:  # noqa: BLE001 - whatever it is, the next renewal may succeed
                if not self._fails:
                    reason = error if isinstance(error, SvcError) else type(error).__name__
                    _log.warning("the lease of the receiver %s is not renewed: %s", clean(self.receiver), reason)
                self._fails = True

    async def _sweep(self) -> None:
        """Delete what need not be remembered any more."""
        await self.database.execute(
            "DELETE FROM event_claims WHERE ctid = ANY (ARRAY("
            "SELECT ctid FROM event_claims WHERE handled_until <= coalesce($1, clock_timestamp()) "
            "LIMIT $2 FOR UPDATE SKIP LOCKED))",
            self.read_time(),
            _SWEPT,
        )
