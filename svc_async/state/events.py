"""Events of webhooks in PostgreSQL: which are handled, and those that wait to be handled, for several receivers.

A receiver that runs has a row with a lease, which it renews (`event_lease`). What it claims and stores belongs to it as
long as that row is there. A claim whose answer was lost is found again as `held` in the database and unknown here.
"""

import asyncio
import json
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import groupby
from operator import attrgetter
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self
from uuid import UUID, uuid4

import attrs

from svc_async.clock import Clock, SystemClock, read_boottime
from svc_async.errors import Hint, InvalidArgument, StateUnavailable, SvcError, UnusableState, WrongState
from svc_async.printable import clean
from svc_async.store.postgres import Database, repeat
from svc_async.value_rules import COUNT, DURATION, NAME
from svc_async.webhooks.keyed_queue import KeyedLock
from svc_async.webhooks.stores.dedupe import DEFAULT_TTL, Claim, check_ttl
from svc_async.webhooks.stores.inbox import EventStore, EventTypes, StoredEvent, WaitingEvent

if TYPE_CHECKING:
    import asyncpg

__all__ = ["DEFAULT_LEASE", "SharedEvents"]

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


DEFAULT_LEASE = timedelta(seconds=60)
_LOADS = 4  # in the time of a lease
_MOST_EVENTS = 1_000
_MOST_BYTES = 2**24
_DELAYS = (0.1, 0.5, 2.0)  # seconds before a commit or a removal is repeated; repeating them changes nothing
_ATTEMPTS = 3  # of what another end of the lease undoes
_NIL_UUID = UUID(int=0)


class _State(AbstractAsyncContextManager[object], Protocol):
    """A shared state, as far as its events need it; its module imports this one."""

    @property
    def is_open(self) -> bool: ...

    @property
    def database(self) -> Database: ...


class SharedEvents(EventStore):
    """The inbox and the dedupe store of receivers that share a database.

    It is open within an `async with` block, and opens a state that is not open. Bodies are stored as received,
    including messages of users, until their events are handled; of handled events only digests of their keys.

    Args:
        state: the shared state.
        receiver: receivers with the same name handle the same events, each event once; those with other handlers, or
            of other apps, need another name.
        ttl: how long a handled event is remembered.
        lease: how long the others respect what a receiver holds that they do not hear of. A handler that blocks the
            event loop for longer may have its event handled elsewhere at the same time.
        clock: the source of time for waiting.
        read_time: for tests: the time of the database.
    """

    def __init__(
        self,
        state: _State,
        *,
        receiver: str = "webhooks",
        ttl: timedelta = DEFAULT_TTL,
        lease: timedelta = DEFAULT_LEASE,
        clock: Clock | None = None,
        read_time: Callable[[], datetime | None] | None = None,
    ) -> None:
        check_ttl(ttl)
        DURATION.check("lease", lease)
        if not timedelta(seconds=1) <= lease <= timedelta(days=1):
            raise InvalidArgument("lease", "must be from one second to one day")
        NAME.check("receiver", receiver)
        self._state = state
        self._receiver = receiver
        self._ttl = ttl
        self._length = lease
        self._clock = clock or SystemClock()
        self._read_time = read_time or (lambda: None)
        self._locks = KeyedLock()
        self._claimed: set[str] = set()
        self._loading = asyncio.Lock()
        self._loads_again = False
        self._stack = AsyncExitStack()
        self._lease: EventLease | None = None

    @property
    def load_interval(self) -> float:
        """Seconds after which a running receiver looks for events to take over."""
        return self._length.total_seconds() / _LOADS

    async def __aenter__(self) -> Self:
        await self._close()  # it was left open in an event loop that was closed
        self._loading = asyncio.Lock()
        async with AsyncExitStack() as stack:
            if not self._state.is_open:
                await stack.enter_async_context(self._state)
            self._lease = await stack.enter_async_context(
                EventLease(
                    database=self._state.database,
                    receiver=self._receiver,
                    length=self._length,
                    clock=self._clock,
                    read_time=self._read_time,
                    on_loss=self._claimed.clear,
                )
            )
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        self._claimed.clear()
        lease, self._lease = self._lease, None
        stack, self._stack = self._stack, AsyncExitStack()
        if lease is not None and not lease.is_abandoned:
            await stack.aclose()

    async def claim(self, key: str) -> Claim:
        """Claim an event, unless it is claimed or was handled already; return which.

        Raises:
            StateUnavailable: the database cannot be reached.
        """
        async with self._locks.hold([key]):
            if key in self._claimed:
                return Claim.HELD
            found = await self._claim(key)
            if found is Claim.HELD:  # by a call whose answer was lost
                found = Claim.TAKEN
            if found is Claim.TAKEN:
                self._claimed.add(key)
            return found

    async def confirm(self, key: str) -> bool:
        """Return whether the claim still holds; if its lease has ended and nobody has claimed the event, claim it.

        Raises:
            StateUnavailable: the database cannot be reached, or the lease ends before its answers are read.
        """
        lease = self._require_open()
        for _ in range(_ATTEMPTS):
            if not lease.is_trusted:
                await lease.renew()
            if key not in self._claimed:
                if await self.claim(key) is not Claim.TAKEN:
                    return False
                statement = "UPDATE event_inbox SET owner = $3 WHERE receiver = $1 AND digest = $2"
                await self._database.execute(statement, self._receiver, _compute_digest(key), lease.owner)
            if lease.is_trusted and key in self._claimed:  # now: this process may have been suspended meanwhile
                return True
        raise self._make_end_error()

    async def commit(self, key: str) -> None:
        """Remember an event as handled.

        Raises:
            StateUnavailable: the database cannot be reached.
        """
        lease = self._require_open()
        statement = (
            "INSERT INTO event_claims (receiver, digest, owner, handled_until) "
            "VALUES ($1, $2, $3, coalesce($4, clock_timestamp()) + $5::interval) "
            "ON CONFLICT (receiver, digest) DO UPDATE SET handled_until = excluded.handled_until"
        )
        arguments = (self._receiver, _compute_digest(key), lease.owner, self._read_time(), self._ttl)
        await repeat(lambda: self._database.execute(statement, *arguments), _DELAYS, sleep=self._clock.sleep)
        self._claimed.discard(key)

    async def release(self, key: str) -> None:
        """Release a claim of this receiver, so that a repeated delivery may claim the event again.

        Raises:
            StateUnavailable: the database cannot be reached; this receiver can claim the event again all the same.
        """
        self._claimed.discard(key)
        await self._database.execute(
            "DELETE FROM event_claims WHERE receiver = $1 AND digest = $2 AND owner = $3 AND handled_until IS NULL",
            self._receiver,
            _compute_digest(key),
            self._require_open().owner,
        )

    async def store(self, events: Sequence[StoredEvent]) -> Mapping[str, int]:
        """Store all of the events or none; when this returns they are durable. Skip those that are stored already.

        Returns:
            How often handling of those that are stored already has begun, by their keys.

        Raises:
            StateUnavailable: the database cannot be reached, or the lease has ended.
        """
        owner = self._require_open().owner
        stored: dict[str, int] = {}
        async with self._database.transaction() as connection:
            for body, parts in groupby(events, key=attrgetter("body")):  # the events of a delivery share its body
                group = list(parts)
                known = await connection.fetchval(
                    "SELECT store_events($1, $2, $3, $4, $5, $6, $7)",
                    self._receiver,
                    owner,
                    body,
                    [_compute_digest(each.key) for each in group],
                    [_encode(each.key) for each in group],
                    [each.key_id for each in group],
                    [each.received_at for each in group],
                )
                if known is None:
                    raise self._make_end_error()
                if known != "{}":
                    counts: dict[str, int] = json.loads(known)
                    digests = {_compute_digest(each.key).hex(): each.key for each in group}
                    stored |= {digests[digest]: count for digest, count in counts.items()}
        return stored

    async def remove(self, key: str) -> None:
        """Remove an event.

        Raises:
            StateUnavailable: the database cannot be reached.
        """
        self._require_open()
        statement = "SELECT remove_event($1, $2)"
        arguments = (self._receiver, _compute_digest(key))
        await repeat(lambda: self._database.execute(statement, *arguments), _DELAYS, sleep=self._clock.sleep)

    async def load(self) -> Sequence[StoredEvent]:
        """Take over the oldest events that belong to no running receiver, at most 1,000 and about 16 MiB; return them.

        Raises:
            StateUnavailable: the database cannot be reached.
            UnusableState: one of them is damaged.
        """
        async with self._loading:  # another call would take what this one has taken for lost
            rows, bodies = await self._take_events()
        try:
            return [
                StoredEvent(
                    key=_decode(row["key"]),
                    body=bodies[row["body_id"]],
                    key_id=row["key_id"],
                    received_at=row["received_at"],
                    attempts=row["attempts"],
                )
                for row in rows
            ]
        except (UnicodeError, LookupError):
            raise self._make_damage_error() from None

    async def begin(self, key: str) -> int | None:
        """Count an attempt to handle an event; when this returns it is durable.

        Returns:
            How many there are; None if the event is not in the inbox any more.

        Raises:
            StateUnavailable: the database cannot be reached.
        """
        statement = (
            "UPDATE event_inbox SET attempts = attempts + 1 WHERE receiver = $1 AND digest = $2 RETURNING attempts"
        )
        row = await self._database.fetch_row(statement, self._receiver, _compute_digest(key))
        return None if row is None else int(row["attempts"])

    async def end(self, keys: Sequence[str]) -> None:
        """Take back the latest attempt of events that stay in the inbox: it ended, by an error or with the receiver.

        Raises:
            StateUnavailable: the database cannot be reached.
        """
        owner = self._require_open().owner
        statement = (
            "UPDATE event_inbox SET attempts = greatest(attempts - 1, 0) "
            "WHERE receiver = $1 AND owner = $2 AND digest = ANY ($3)"
        )
        await self._database.execute(statement, self._receiver, owner, [_compute_digest(key) for key in keys])

    async def list_events(self, *, limit: int = 1_000) -> Sequence[WaitingEvent]:
        """Return the events that the inbox holds, those with most attempts first, then in the order of arrival.

        Args:
            limit: how many at most.

        Raises:
            StateUnavailable: the database cannot be reached.
            UnusableState: one of them is damaged.
        """
        COUNT.check("limit", limit)
        statement = (
            "SELECT key, body_id, received_at, attempts FROM event_inbox WHERE receiver = $1 "
            "ORDER BY attempts DESC, position LIMIT $2"
        )
        types = EventTypes()
        events: list[WaitingEvent] = []
        for row in await self._database.fetch(statement, self._receiver, limit):
            try:
                key, body_id = _decode(row["key"]), row["body_id"]
            except UnicodeError:
                raise self._make_damage_error() from None
            if not types.has(body_id):
                found = await self._database.fetch_row("SELECT body FROM event_bodies WHERE id = $1", body_id)
                types.read(body_id, bytes(found["body"]) if found else b"{}")  # it may have been handled meanwhile
            event_type = types.find(key)
            events.append(
                WaitingEvent(key=key, event_type=event_type, received_at=row["received_at"], attempts=row["attempts"])
            )
        return events

    async def discard(self, key: str) -> bool:
        """Remove an event that is not to be handled; return whether it was there.

        Raises:
            StateUnavailable: the database cannot be reached.
        """
        statement = "SELECT remove_event($1, $2) AS removed"
        row = await self._database.fetch_row(statement, self._receiver, _compute_digest(key))
        return row is not None and bool(row["removed"])

    async def retry(self, key: str) -> bool:
        """Forget the attempts of an event, so that a receiver handles it; return whether it is there.

        A receiver that runs takes it over like the events of one that has ended.

        Raises:
            StateUnavailable: the database cannot be reached.
        """
        statement = "UPDATE event_inbox SET attempts = 0, owner = $3 WHERE receiver = $1 AND digest = $2 RETURNING 1"
        row = await self._database.fetch_row(statement, self._receiver, _compute_digest(key), _NIL_UUID)
        return row is not None

    async def _take_events(self) -> "tuple[Sequence[asyncpg.Record], Mapping[int, bytes]]":
        """Take over events; return them, and their bodies by their ids."""
        lease = self._require_open()
        if not lease.is_trusted:
            await lease.renew()
        if self._loads_again:
            await self._free_events(lease.owner)
        self._loads_again = True  # until the answer is here
        async with self._database.transaction() as connection:
            rows = await connection.fetch(
                "SELECT * FROM take_events($1, $2, $3, $4, coalesce($5, clock_timestamp())) ORDER BY position",
                self._receiver,
                lease.owner,
                _MOST_EVENTS,
                _MOST_BYTES,
                self._read_time(),
            )
            ids = list({row["body_id"] for row in rows})
            found = await connection.fetch("SELECT id, body FROM event_bodies WHERE id = ANY ($1)", ids)
        self._loads_again = False
        return rows, {row["id"]: bytes(row["body"]) for row in found}

    async def _claim(self, key: str) -> Claim:
        lease = self._require_open()
        statement = "SELECT claim_event($1, $2, $3, coalesce($4, clock_timestamp())) AS found"
        for _ in range(_ATTEMPTS):
            owner = lease.owner
            row = await self._database.fetch_row(
                statement, self._receiver, _compute_digest(key), owner, self._read_time()
            )
            if row is None or row["found"] == "gone":
                await lease.renew()
            elif lease.owner == owner:  # else others may have deleted the claim with the row of that owner
                return Claim(row["found"])
        raise self._make_end_error()

    def _make_end_error(self) -> StateUnavailable:
        return StateUnavailable(self._database.name, "the lease of this receiver has ended")

    def _make_damage_error(self) -> UnusableState:
        return UnusableState(self._database.name, "holds an event that is damaged", hint=Hint.RESTORE_THE_DATABASE)

    async def _free_events(self, owner: UUID) -> None:
        """Release what a load whose answer was lost took over: what this receiver owns and has not claimed."""
        await self._database.execute(
            "UPDATE event_inbox AS inbox SET owner = $3 WHERE receiver = $1 AND owner = $2 AND NOT EXISTS ("
            "SELECT 1 FROM event_claims AS claim WHERE claim.receiver = $1 AND claim.digest = inbox.digest "
            "AND claim.owner = $2)",
            self._receiver,
            owner,
            _NIL_UUID,
        )

    def _require_open(self) -> EventLease:
        if self._lease is None:
            raise WrongState("the event store is closed")
        return self._lease

    @property
    def _database(self) -> Database:
        self._require_open()
        return self._state.database


def _encode(key: str) -> bytes:
    """Return a key as it is stored: PostgreSQL takes no text with NUL or a lone surrogate."""
    return key.encode("utf-8", "surrogatepass")


def _decode(key: bytes) -> str:
    return key.decode("utf-8", "surrogatepass")


def _compute_digest(key: str) -> bytes:
    return sha256(_encode(key)).digest()
