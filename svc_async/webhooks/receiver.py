"""The receiver: verify, claim, store, acknowledge; then handle, commit.

    request → Verifier → parser → Acceptor: claim → inbox → queue → 200     within the deadline, in a task of its own
                                                              └──→ workers → Dispatcher: handlers → commit
                                                                                         or on_error → release

A caller that is cancelled does not abandon an acceptance half-way: it runs in the receiver's own task group, as the
workers do. CRC checks bypass all of this. What belongs to an event loop is a `Run`, made each time it is entered.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from contextlib import AbstractContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from svc_async.clock import Clock, SystemClock, require_event_loop
from svc_async.errors import WrongState
from svc_async.events.models import Event
from svc_async.events.parser import EventParser
from svc_async.events.router import EventRouter, Handler
from svc_async.monitoring import Subscribers
from svc_async.value_rules import SECONDS_OR_INFINITE, refuse_unknown
from svc_async.webhooks.acceptance import Acceptor
from svc_async.webhooks.delivery import Bodies, Body, DeliveryContext
from svc_async.webhooks.dispatch import Dispatcher
from svc_async.webhooks.keyed_queue import name_keys
from svc_async.webhooks.log_lines import DueLines
from svc_async.webhooks.run import RejectionLog, Run
from svc_async.webhooks.settings import RECEIVER_KEYWORDS, STATE, Ack, ReceiverOptions, ReceiverSettings
from svc_async.webhooks.stats import Counters, Health, Stats
from svc_async.webhooks.stores.dedupe import DedupeStore, MemoryDedupe
from svc_async.webhooks.stores.inbox import EventState
from svc_async.webhooks.verification import (
    Fields,
    Headers,
    HttpAnswer,
    Rejected,
    RejectReason,
    Verifier,
    parse_fields,
    reject,
)
from svc_async.wire.hmac_sha256 import SigningKey

if TYPE_CHECKING:
    from aiohttp import web

    from svc_async.webhooks.adapters.asgi import AsgiApp

__all__ = ["WebhookReceiver"]

H = TypeVar("H", bound=Handler)


class WebhookReceiver:
    """Receives the events of webhooks.

    Use it inside `async with`, or let `attach` or `asgi` start and drain it with an application. Handlers may be
    registered at any time. An event is handled once, unless the process dies within its handlers or before the commit
    that follows.

    Args:
        keys: the keys that may sign deliveries: the app's consumer secret, and others while secrets are rotated. Each
            of several names its app; an event is handled once for each app that signed it.
        ack: when a delivery is acknowledged.
        dedupe: remembers handled events; by default in memory for 25 hours.
        state: a shared state, which stores events before they are acknowledged and remembers those that were handled,
            for several receivers; `ack` and `dedupe` come before it. One that is not open is opened and closed with the
            receiver.
        router: the handlers; by default a new router, which may also be shared with streams.
        parser: parses bodies.
        workers: how many events are handled concurrently, by default 8.
        order_by: events with the same key are handled one after another, in the order in which they were received;
            None equals no other key. By default the user that the event concerns.
        on_error: called as `on_error(event, error)` when a handler or a store fails, or a handler has not returned at
            the drain deadline (`NotHandled`); the event is None if a store fails for a whole delivery.
        dead_letter: called as `dead_letter(event, error)` with each accepted event that could not be handled.
        crc_key: the key that answers CRC checks, by default the first.
        crc_signature: how to treat a signature of the CRC check itself; by default it is ignored.
        max_body: the largest body, in bytes; 1 MiB by default.
        max_bodies: how many deliveries may be read or wait for their answer at a time, by default 1,000; a further one
            is answered with 503 before it is read.
        max_bytes: how many bytes their bodies may have in total, by default 64 MiB.
        read_deadline: seconds within which a body must be received, by default 5.
        retry_after: seconds after which the service may retry a request that was answered with 503, by default 30.
        drain_deadline: seconds that closing waits for accepted events, by default 30, by the clock or by the event
            loop, whichever is first; 0 does not wait.
        on_event: called with every event of `svc_async.monitoring` that the receiver reports; a plain function.
        clock: the source of time.

    Raises:
        InvalidArgument: there is no key, one of several keys names no app, or a setting is out of bounds.
    """

    def __init__(
        self,
        *,
        keys: Iterable[SigningKey],
        ack: Ack | None = None,
        dedupe: DedupeStore | None = None,
        state: EventState | None = None,
        router: EventRouter | None = None,
        parser: EventParser | None = None,
        crc_key: SigningKey | None = None,
        clock: Clock | None = None,
        **options: Unpack[ReceiverOptions],
    ) -> None:
        refuse_unknown("WebhookReceiver", options, RECEIVER_KEYWORDS)
        STATE.check("state", state)
        shared = None if state is None else state.events()
        if ack is None:
            ack = Ack.enqueue() if shared is None else Ack.durable(shared)
        clock = SystemClock() if clock is None else clock
        if dedupe is None:
            dedupe = MemoryDedupe(clock=clock) if shared is None else shared
        self._settings = settings = ReceiverSettings(
            keys=keys,
            ack=ack,
            dedupe=dedupe,
            router=EventRouter() if router is None else router,
            parser=EventParser() if parser is None else parser,
            crc_key=crc_key,
            clock=clock,
            **options,
        )
        self._verifier = Verifier(
            keys=settings.keys,
            crc_key=crc_key or settings.keys[0],
            crc_signature=settings.crc_signature,
            max_body=settings.max_body,
        )
        self._keys = name_keys(settings.keys)
        self._bodies = Bodies(settings)
        self._rejections = RejectionLog(DueLines(clock))
        self._store_failures = DueLines(clock)
        self._counters = Counters(subscribers=Subscribers(settings.on_event), clock=clock)
        self._run: Run | None = None

    def on(self, event_type: str) -> Callable[[H], H]:
        """Register the decorated function, `handler(event, context)`, for events of a type; see `EventRouter.on`."""
        return self._settings.router.on(event_type)

    def subscribe(self, function: Callable[[Any], object]) -> Callable[[], None]:
        """Call a function with every event of this receiver from now on; return a function that ends this."""
        return self._counters.subscribers.add(function)

    @property
    def stats(self) -> Stats:
        """What was received, verified, rejected and handled, and how fast."""
        waiting, lag = self._run.measure_queue() if self._run else (0, 0.0)
        return self._counters.stats(waiting=waiting, lag=lag)

    def health(self) -> Health:
        """Return whether the receiver runs and the service should hold its webhook valid."""
        return self._counters.health(running=self.is_running, now=self._settings.clock.now())

    @property
    def is_running(self) -> bool:
        """Whether deliveries are accepted."""
        return self._run is not None and self._run.is_accepting

    def attach(self, app: "web.Application", path: str) -> None:
        """Serve a path of an aiohttp application, which starts and drains the receiver; see `asgi` for others.

        Raises:
            InvalidArgument: the application is none of aiohttp, or the path none of a route.
        """
        from svc_async.webhooks.adapters.aiohttp import attach  # noqa: PLC0415 - only this server needs aiohttp.web

        attach(app, path, self)

    def asgi(self, path: str | None = None) -> "AsgiApp":
        """Return an ASGI application, an object that servers and frameworks call.

        As the root of a server it starts and drains the receiver. A route or a mounted application gets no lifespan
        events: enter the receiver in the lifespan of the host.

        Args:
            path: the only path to serve, below where the application is mounted; by default every path.

        Raises:
            InvalidArgument: the path is no string that begins with a slash.
        """
        from svc_async.webhooks.adapters.asgi import AsgiApp  # noqa: PLC0415 - only this server needs it

        return AsgiApp(self, path)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Start to accept deliveries in this event loop, and handle what the inbox still holds.

        Raises:
            WrongState: it was started already, and its event loop is not closed; or no event loop of asyncio runs.
        """
        require_event_loop("a receiver")
        former = self._run
        if former is not None and not former.has_ended:
            raise WrongState("the receiver was started already")
        run = self._run = self._create_run()
        try:
            if former is not None:  # its event loop was closed, and the receiver was not
                await former.abandon()
            await run.start()
        except BaseException:
            self._run = None
            raise

    async def aclose(self) -> None:
        """Reject new deliveries, finish accepted events within the drain deadline, and stop.

        Events that are not finished by then stay in the inbox or, without one, become dead letters.
        A handler or a callback that awaits this does not wait: the receiver closes when its own event is finished, too.
        An unexpected exception that has ended the receiver is raised; no exception of a handler or a callback ends it.
        """
        run = self._run
        if run is None:
            return
        try:
            await run.close()
        finally:
            if self._run is run and run.has_ended:
                self._run = None

    async def wait_until_idle(self, deadline: float = 30.0) -> None:
        """Wait until every accepted event is handled or given up, as `asyncio.Queue.join` does.

        Events that are accepted meanwhile are waited for, too. A receiver that does not run is idle.

        Args:
            deadline: seconds, by the event loop also if the receiver has another clock; `math.inf` for no deadline.

        Raises:
            NotHandled: events are left at the deadline; it names the handlers that have not returned.
            WrongState: a handler or a callback waits, and so for itself; the receiver runs in another event loop, or an
                unexpected exception has ended it.
        """
        SECONDS_OR_INFINITE.check("deadline", deadline)
        if self._run is not None:
            await self._run.wait_until_idle(deadline)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run the receiver within the block, unless it runs already in this event loop; then leave it running."""
        if self._run is not None and self._run.is_accepting:
            self._run.check_loop()
            yield
            return
        async with self:
            yield

    def _create_run(self) -> Run:
        acceptor = Acceptor(
            settings=self._settings,
            dispatcher=Dispatcher(self._settings, self._counters, self._store_failures),
            apps=dict(self._keys.values()),
            counters=self._counters,
        )
        return Run(settings=self._settings, acceptor=acceptor, rejections=self._rejections)

    async def receive(
        self, method: str, raw_query: str | bytes, headers: Headers, chunks: AsyncIterable[bytes]
    ) -> HttpAnswer:
        """Answer a request; its body is read if its header fields promise a delivery. See `handle`."""
        fields, began = parse_fields(headers), self._settings.clock.monotonic()
        if method != "POST":
            return await self.handle(method, raw_query, fields, b"")
        try:
            self._verifier.check_head(fields)
            with self._admit() as body:
                content = await body.read(chunks)
                return await self.handle(method, raw_query, fields, content)
        except Rejected as rejected:
            self._counters.received += 1
            return self._reject(rejected.reason, began)

    def _admit(self) -> AbstractContextManager[Body]:
        if not self.is_running:
            raise Rejected(RejectReason.NOT_RUNNING)
        return self._bodies.admit()

    def reject_path(self) -> HttpAnswer:
        """Return the answer to a request for a path that is not served, which is counted and logged; for adapters."""
        self._counters.received += 1
        return self._reject(RejectReason.NOT_FOUND, self._settings.clock.monotonic())

    async def handle(self, method: str, raw_query: str | bytes, headers: Headers, body: bytes) -> HttpAnswer:
        """Answer a request to the webhook URL; for frameworks without an adapter.

        Args:
            method: the HTTP method.
            raw_query: the query as received, without its question mark.
            headers: the header fields; a mapping, or pairs.
            body: the body, byte for byte.

        Returns:
            Status, headers and body of the answer: 200 for a CRC check that was answered and for a delivery that was
            accepted (contracts WH-36, WH-41), within the deadline of `ack` (contract WH-42).

        Raises:
            InvalidArgument: the body is not bytes, or the header fields are no fields.
        """
        self._counters.received += 1
        began = self._settings.clock.monotonic()
        try:
            fields = parse_fields(headers)
            if method == "GET":
                return self._answer_crc(raw_query, fields)
            if method == "POST":
                return await self._answer_delivery(fields, body, began)
            return self._reject(RejectReason.METHOD, began, len(body))
        except Rejected as rejected:
            return self._reject(rejected.reason, began, len(body))

    def unwrap(self, body: bytes, headers: Headers) -> tuple[Event, ...]:
        """Return the events of a delivery once its signature is verified, for code that handles them itself.

        Nothing is claimed, stored, handled or counted; the receiver need not run.

        Args:
            body: the body, byte for byte.
            headers: the header fields; a mapping, or pairs.

        Raises:
            Rejected: no key signed exactly these bytes, or they are no delivery; `status` is the status to answer with.
        """
        _, events = self._verify(parse_fields(headers), body)
        return events

    def _answer_crc(self, raw_query: str | bytes, fields: Fields) -> HttpAnswer:
        query = raw_query.encode("utf-8", "surrogatepass") if isinstance(raw_query, str) else raw_query
        answer = self._verifier.answer_crc(query, fields)
        self._counters.crc_answered += 1
        self._counters.last_crc_ok = self._settings.clock.now()
        return answer

    async def _answer_delivery(self, fields: Fields, body: bytes, began: float) -> HttpAnswer:
        key_id, events = self._verify(fields, body)
        self._counters.verified[key_id] += 1
        context = DeliveryContext(key_id=key_id, received_at=self._settings.clock.now(), body=body)
        reason = await self._run.accept(events, context) if self._run else RejectReason.NOT_RUNNING
        if reason:
            raise Rejected(reason)
        self._counters.acknowledge(self._settings.clock.monotonic() - began, events=len(events), size=len(body))
        return HttpAnswer(200, {}, b"")

    def _verify(self, fields: Fields, body: bytes) -> tuple[str, tuple[Event, ...]]:
        """Return the id of the key that signed a delivery, and its events."""
        key, events = self._verifier.read(body, fields, self._settings.parser)
        key_id, _ = self._keys[key]
        return key_id, events

    def _reject(self, reason: RejectReason, began: float, size: int = 0) -> HttpAnswer:
        self._rejections.add(reason, has_failed=self._run is not None and self._run.failure is not None)
        self._counters.reject(reason, self._settings.clock.monotonic() - began, size=size)
        return reject(reason, retry_after=self._settings.retry_after)
