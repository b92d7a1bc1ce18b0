"""The receiver: verify, claim, keep, acknowledge; then handle, commit.

    request → Gate → parser → Intake: claim → inbox → lanes → 200       within the deadline, in a task of its own
                                                        └───→ workers → Handling: handlers → commit
                                                                                          or on_error → release

A delivery that is being taken in is not given up half-way, even if its caller is: it runs in the receiver's own task
group, as the workers do. CRC checks pass all this by.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, get_args

from svc_async.clock import Clock, SystemClock
from svc_async.errors import InvalidArgument
from svc_async.events.models import Event
from svc_async.events.parser import EventParser
from svc_async.events.router import EventRouter, Handler
from svc_async.webhooks.acceptance import Intake
from svc_async.webhooks.ack import Ack
from svc_async.webhooks.dedupe import DedupeStore, MemoryDedupe
from svc_async.webhooks.delivery import DeliveryContext, Job
from svc_async.webhooks.dispatch import DeadLetter, Handling, OnError
from svc_async.webhooks.stats import Health, Stats, Tally
from svc_async.webhooks.verification import (
    CrcSignature,
    Fields,
    Gate,
    Headers,
    HttpAnswer,
    Reason,
    Refused,
    fields_of,
    refusal,
)
from svc_async.wire.hmac_sha256 import SigningKey

if TYPE_CHECKING:
    from aiohttp import web

    from svc_async.webhooks.adapters.asgi import AsgiApp

__all__ = ["WebhookReceiver"]

H = TypeVar("H", bound=Handler)

_log = logging.getLogger("svc_async.webhooks")
_OK = HttpAnswer(200, {}, b"")


def _user(event: Event) -> str | None:
    return event.user_id


class WebhookReceiver:
    """Receives the events of webhooks.

    Use it inside `async with`, or let `attach` or `asgi` start and drain it with an application. Handlers may be
    registered at any time. An event is handled once, unless the process dies between its handlers' end and the commit.

    Args:
        keys: what deliveries may be signed with: the app's consumer secret, and others while secrets change.
        ack: when a delivery is acknowledged.
        dedupe: remembers events that were handled; in memory for 25 hours unless given.
        router: the handlers; shared with streams, or of its own.
        parser: how bodies are read.
        workers: how many events are handled at a time.
        order_by: events with the same key are handled one after another, in the order in which they came; None is
            like no other key. By default the user that the event concerns.
        on_error: is told, as `on_error(event, error)`, when a handler failed or a store did; the event of a store's
            failure may be None.
        dead_letter: is given, as `dead_letter(event, error)`, each event that was accepted and could not be handled.
        crc_key: the key that answers CRC checks, by default the first.
        crc_signature: what to make of a signature of the CRC check itself.
        max_body: bytes of the largest body.
        read_deadline: seconds within which a body must have come.
        retry_after: seconds after which the service may try again what was answered with 503.
        drain_deadline: seconds that closing waits for accepted events; 0 does not wait.
        clock: tells the time.

    Raises:
        InvalidArgument: there is no key, or a setting is out of bounds.
    """

    def __init__(
        self,
        *,
        keys: Iterable[SigningKey],
        ack: Ack | None = None,
        dedupe: DedupeStore | None = None,
        router: EventRouter | None = None,
        parser: EventParser | None = None,
        workers: int = 8,
        order_by: Callable[[Event], str | None] = _user,
        on_error: OnError | None = None,
        dead_letter: DeadLetter | None = None,
        crc_key: SigningKey | None = None,
        crc_signature: CrcSignature = "ignore",
        max_body: int = 2**20,
        read_deadline: float = 5.0,
        retry_after: int = 30,
        drain_deadline: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        keys = tuple(keys)
        if not keys:
            raise InvalidArgument("keys", "must contain at least one key: without one nothing can be verified")
        if crc_signature not in get_args(CrcSignature):
            raise InvalidArgument("crc_signature", f"must be one of {', '.join(get_args(CrcSignature))}")
        _check_at_least(1, workers=workers, max_body=max_body, retry_after=retry_after)
        _check_at_least(0, read_deadline=read_deadline, drain_deadline=drain_deadline)
        self._gate = Gate(keys=keys, crc_key=crc_key or keys[0], crc_signature=crc_signature, max_body=max_body)
        self._key_ids = {key: key.key_id or f"key-{position}" for position, key in enumerate(keys, 1)}
        self._ack = ack or Ack.enqueue()
        self._clock = clock or SystemClock()
        self._dedupe = dedupe or MemoryDedupe(clock=self._clock)
        self._router = router or EventRouter()
        self._parser = parser or EventParser()
        self._tally = Tally()
        self._intake = Intake(
            dedupe=self._dedupe,
            inbox=self._ack.inbox,
            handling=Handling(
                router=self._router,
                dedupe=self._dedupe,
                inbox=self._ack.inbox,
                on_error=on_error,
                dead_letter=dead_letter,
                tally=self._tally,
            ),
            order_by=order_by,
            maxsize=self._ack.maxsize,
            tally=self._tally,
        )
        self._workers = workers
        self._read_deadline = read_deadline
        self._retry_after = retry_after
        self._drain_deadline = drain_deadline
        self._taking: set[asyncio.Task[list[Job] | Reason]] = set()
        self._tasks: asyncio.TaskGroup | None = None
        self._closing = asyncio.Event()
        self._life: asyncio.Task[None] | None = None

    # --- what users say

    def on(self, event_type: str) -> Callable[[H], H]:
        """Register the decorated function, `handler(event, context)`, for events of a type; see `EventRouter.on`."""
        return self._router.on(event_type)

    @property
    def stats(self) -> Stats:
        """What was received, verified, refused, handled, and how fast."""
        lanes = self._intake.lanes
        oldest = lanes.oldest()
        lag = (self._clock.now() - oldest.context.received_at).total_seconds() if oldest else 0.0
        return self._tally.stats(waiting=len(lanes), lag=lag)

    def health(self) -> Health:
        """Judge how the receiver stands with the service."""
        return self._tally.health(running=self.is_running, now=self._clock.now())

    @property
    def is_running(self) -> bool:
        """Whether deliveries are accepted."""
        return self._tasks is not None and not self._closing.is_set()

    def attach(self, app: "web.Application", path: str) -> None:
        """Serve a path of an aiohttp application, which starts and drains the receiver with itself."""
        from svc_async.webhooks.adapters.aiohttp import attach  # noqa: PLC0415 - other servers do without aiohttp's

        attach(app, path, self)

    def asgi(self, path: str | None = None) -> "AsgiApp":
        """Give an ASGI application.

        As the root of a server it starts and drains the receiver with it. A mounted application is told nothing about
        the server's life: enter the receiver in the host's lifespan.

        Args:
            path: the only path to serve, below where the application is mounted; by default every path.
        """
        from svc_async.webhooks.adapters.asgi import asgi_app  # noqa: PLC0415

        return asgi_app(self, path)

    # --- its life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Accept deliveries, and handle what is left in the inbox.

        Raises:
            InvalidArgument: it runs already.
        """
        if self._life is not None:
            raise InvalidArgument("receiver", "must not be started twice")
        self._closing.clear()
        started = asyncio.get_running_loop().create_future()
        life = self._life = asyncio.create_task(self._live(started), name="svc-async webhook receiver")
        try:
            await asyncio.wait({life, started}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not started.done():
                self._life = None
                await _ended(life)
        if life.done():
            life.result()

    async def aclose(self) -> None:
        """Refuse new deliveries, finish what was accepted, within the drain deadline, and stop.

        What is not finished then is left in the inbox, or else is a dead letter.
        """
        life, self._life = self._life, None
        if life is None:
            return
        self._closing.set()
        try:
            await asyncio.shield(life)
        finally:
            await _ended(life)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run it within the block; when somebody runs it already, it stays theirs to close."""
        if self.is_running:
            yield
            return
        async with self:
            yield

    async def _live(self, started: "asyncio.Future[None]") -> None:
        async with AsyncExitStack() as stack:
            for store in (self._dedupe, self._ack.inbox):
                if isinstance(store, AbstractAsyncContextManager):
                    await stack.enter_async_context(store)
            stack.push_async_callback(self._abandon)
            await self._intake.restore(self._parser)
            async with asyncio.TaskGroup() as tasks:
                workers = [tasks.create_task(self._intake.lanes.work()) for _ in range(self._workers)]
                self._tasks = tasks
                started.set_result(None)
                await self._closing.wait()
                await self._drain()
                for task in (*workers, *self._taking):
                    task.cancel()

    async def _drain(self) -> None:
        if not self._drain_deadline:
            return
        try:
            async with self._clock.timeout(self._drain_deadline):
                if self._taking:
                    await asyncio.wait(self._taking)
                await self._intake.lanes.idle()
        except TimeoutError:
            _log.warning("closed with %d events not handled", len(self._intake.lanes))

    async def _abandon(self) -> None:
        self._tasks = None
        for job in self._intake.empty():
            await self._intake.handling.abandon(job)

    # --- what comes in

    async def receive(
        self, method: str, raw_query: str | bytes, headers: Headers, chunks: AsyncIterable[bytes]
    ) -> HttpAnswer:
        """Answer a request whose body is still to come; see `handle`."""
        fields = fields_of(headers)
        if method != "POST":
            return await self.handle(method, raw_query, fields, b"")
        try:
            self._gate.check_encoding(fields)
            async with self._clock.timeout(self._read_deadline):
                body = await self._gate.read(chunks)
        except TimeoutError:
            return self._refuse_early(Reason.TOO_SLOW)
        except Refused as refused:
            return self._refuse_early(refused.reason)
        return await self.handle(method, raw_query, fields, body)

    async def handle(self, method: str, raw_query: str | bytes, headers: Headers, body: bytes) -> HttpAnswer:
        """Answer a request to the webhook URL; for frameworks without an adapter.

        Args:
            method: the HTTP method.
            raw_query: the query as it came, without its question mark.
            headers: the header fields; a mapping, or pairs.
            body: the body, byte for byte.

        Returns:
            Status, headers and body of the answer: 200 for an answered CRC check and for a delivery that was accepted
            (contracts WH-36, WH-41), within the deadline of `ack` (contract WH-42).
        """
        self._tally.received += 1
        try:
            return await self._answer(method, raw_query, fields_of(headers), body)
        except Refused as refused:
            return self._refuse(refused.reason)

    async def _answer(self, method: str, raw_query: str | bytes, fields: Fields, body: bytes) -> HttpAnswer:
        if method == "GET":
            return self._answer_crc(raw_query, fields)
        if method == "POST":
            return await self._answer_delivery(fields, body)
        raise Refused(Reason.METHOD)

    def _answer_crc(self, raw_query: str | bytes, fields: Fields) -> HttpAnswer:
        query = raw_query.encode("utf-8", "surrogatepass") if isinstance(raw_query, str) else raw_query
        answer = self._gate.answer_crc(query, fields)
        self._tally.crc_answered += 1
        self._tally.last_crc_ok = self._clock.now()
        return answer

    async def _answer_delivery(self, fields: Fields, body: bytes) -> HttpAnswer:
        began = self._clock.monotonic()
        self._gate.check_encoding(fields)
        self._gate.check_size(len(body))
        key_id = self._key_ids[self._gate.verified_by(body, fields)]
        self._tally.verified[key_id] += 1
        events = self._read(body)
        context = DeliveryContext(key_id=key_id, received_at=self._clock.now(), body=body)
        reason = await self._taken_in_time(events, context)
        if reason:
            raise Refused(reason)
        self._tally.acknowledge(self._clock.monotonic() - began)
        return _OK

    def _read(self, body: bytes) -> tuple[Event, ...]:
        try:
            return self._parser.parse(body)
        except InvalidArgument:
            raise Refused(Reason.NOT_AN_OBJECT) from None

    async def _taken_in_time(self, events: Sequence[Event], context: DeliveryContext) -> Reason | None:
        if self._tasks is None or self._closing.is_set():
            return Reason.NOT_RUNNING
        task = self._tasks.create_task(self._intake.take(events, context))
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)
        try:
            async with self._clock.timeout(self._ack.deadline):
                await asyncio.wait({task})  # which leaves it alone when the caller is cancelled
                return await self._outcome(task)
        except TimeoutError:
            is_taken = task.done() and self._ack.on_deadline == "ack_and_continue"
            return None if is_taken else Reason.TOO_LATE

    async def _outcome(self, task: "asyncio.Task[list[Job] | Reason]") -> Reason | None:
        taken = Reason.NOT_RUNNING if task.cancelled() else task.result()
        if isinstance(taken, Reason):
            return taken
        if not self._ack.waits or not taken:
            return None
        await asyncio.wait([job.done for job in taken])
        return None if all(job.done.result() for job in taken) else Reason.HANDLER_FAILED

    def _refuse_early(self, reason: Reason) -> HttpAnswer:
        self._tally.received += 1
        return self._refuse(reason)

    def _refuse(self, reason: Reason) -> HttpAnswer:
        self._tally.reject(reason)
        return refusal(reason, retry_after=self._retry_after)


async def _ended(task: asyncio.Task[None]) -> None:
    """Cancel a task, if it still runs, and wait for its end."""
    task.cancel()
    await asyncio.wait({task})


def _check_at_least(least: int, **settings: float) -> None:
    for name, value in settings.items():
        if not value >= least:
            raise InvalidArgument(name, f"must be at least {least}")
