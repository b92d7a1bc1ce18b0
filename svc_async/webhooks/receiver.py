"""The receiver: verify, claim, store, acknowledge; then handle, commit.

    request → Verifier → parser → Acceptor: claim → inbox → queue → 200     within the deadline, in a task of its own
                                                              └──→ workers → Dispatcher: handlers → commit
                                                                                         or on_error → release

A caller that is cancelled does not abandon an acceptance half-way: it runs in the receiver's own task group, as the
workers do. CRC checks bypass all of this. What belongs to an event loop is a `Run`, made each time it is entered.

Requests come from an application of aiohttp (`attach`), of ASGI (`asgi`), or of any framework (`handle`).
"""

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    MutableMapping,
)
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

import attrs

from svc_async.clock import Clock, SystemClock, require_event_loop
from svc_async.errors import InvalidArgument, SvcError, WrongState
from svc_async.events.models import Event
from svc_async.events.parser import EventParser
from svc_async.events.router import EventRouter, Handler
from svc_async.monitoring import Subscribers
from svc_async.value_rules import SECONDS_OR_INFINITE, ValueRule, instance_of, or_none, refuse_unknown
from svc_async.webhooks.dispatch import DeliveryContext, Dispatcher, find_task, is_failure
from svc_async.webhooks.log_lines import DueLines
from svc_async.webhooks.run import Acceptor, RejectionLog, Run
from svc_async.webhooks.settings import RECEIVER_KEYWORDS, STATE, Ack, ReceiverOptions, ReceiverSettings
from svc_async.webhooks.stats import Counters, Health, Stats
from svc_async.webhooks.stores.dedupe import DedupeStore, MemoryDedupe
from svc_async.webhooks.stores.inbox import EventState
from svc_async.webhooks.verification import (
    DIALECT,
    Fields,
    Headers,
    HttpAnswer,
    Rejected,
    RejectReason,
    Verifier,
    check_keys,
    name_keys,
    parse_fields,
    reject,
    rename_headers,
)
from svc_async.wire.dialect import Dialect
from svc_async.wire.hmac_sha256 import SigningKey

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["AsgiApp", "WebhookReceiver", "serve"]

H = TypeVar("H", bound=Handler)
_PATH = ValueRule(lambda value: isinstance(value, str) and value.startswith("/"), "a string that begins with a slash")


Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


@attrs.define
class _Bodies:
    """The bodies in memory."""

    settings: ReceiverSettings
    _count: int = attrs.field(default=0, init=False)
    _bytes: int = attrs.field(default=0, init=False)

    @contextmanager
    def admit(self, *, is_running: bool) -> "Generator[_Body]":
        """Yield an empty body, which is forgotten when the block ends.

        Raises:
            Rejected: the receiver does not run, or there are too many bodies.
        """
        if not is_running:
            raise Rejected(RejectReason.NOT_RUNNING)
        if self._count >= self.settings.max_bodies:
            raise Rejected(RejectReason.TOO_MANY_BODIES)
        self._count += 1
        body = _Body(self)
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
        if self._bytes + size > self.settings.max_bytes:
            raise Rejected(RejectReason.TOO_MANY_BODIES)
        self._bytes += size


@attrs.define
class _Body:
    """The place of one body.

    Attributes:
        size: the bytes that have arrived.
    """

    _bodies: _Bodies
    size: int = attrs.field(default=0, init=False)

    async def read(self, chunks: AsyncIterable[bytes]) -> bytes:
        """Read the body, but no more of it than is allowed.

        Raises:
            Rejected: it is too large or too slow, there is no room for it, or its connection broke.
        """
        settings = self._bodies.settings
        content = bytearray()
        try:
            async with settings.clock.timeout(settings.read_deadline):
                async for chunk in chunks:
                    if self.size + len(chunk) > settings.max_body:
                        raise Rejected(RejectReason.TOO_LARGE)
                    self._bodies.grow(len(chunk))
                    self.size += len(chunk)
                    content += chunk
        except TimeoutError:
            raise Rejected(RejectReason.TOO_SLOW) from None
        return bytes(content)


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
        dialect: the words of the service, if they are not those of the contract; `Dialect.load` reads them from a file.
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
        dialect: Dialect | None = None,
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
        parser = EventParser() if parser is None else parser
        DIALECT.check("dialect", dialect)
        if dialect is not None:
            keys, parser = rename_headers(check_keys(keys), dialect), attrs.evolve(parser, dialect=dialect)
            crc_key = None if crc_key is None else rename_headers([crc_key], dialect)[0]
        self._settings = settings = ReceiverSettings(
            keys=keys,
            ack=ack,
            dedupe=dedupe,
            router=EventRouter() if router is None else router,
            parser=parser,
            crc_key=crc_key,
            clock=clock,
            **options,
        )
        self._verifier = Verifier(
            keys=settings.keys,
            crc_key=crc_key or settings.keys[0],
            crc_signature=settings.crc_signature,
            max_body=settings.max_body,
            dialect=dialect,
        )
        self._keys = name_keys(settings.keys)
        self._bodies = _Bodies(settings)
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

        Requests that are not HTTP are logged at the level DEBUG from then on, without a traceback.

        Args:
            app: the application.
            path: the path of the route; empty in a sub-application that serves nothing else.

        Raises:
            InvalidArgument: `app` is not an aiohttp application, or `path` is not a path of a route.
        """
        from aiohttp import web  # noqa: PLC0415 - only this server needs it
        from aiohttp.http_exceptions import HttpProcessingError  # noqa: PLC0415 - as above

        from svc_async.webhooks.server import log_malformed_requests_briefly  # noqa: PLC0415 - as above

        instance_of(
            web.Application,
            "an aiohttp Application; with FastAPI, Starlette and other ASGI frameworks use receiver.asgi()",
        ).check("app", app)
        if path != "":
            _PATH.check("path", path)

        async def read(request: web.Request) -> AsyncIterator[bytes]:
            try:
                async for chunk in request.content.iter_any():
                    yield chunk
            except (web.RequestPayloadError, HttpProcessingError, ConnectionError):
                raise Rejected(RejectReason.BROKEN) from None

        async def respond(request: web.Request) -> web.Response:
            status, headers, body = await self.receive(
                request.method, request.rel_url.raw_query_string, request.headers.items(), read(request)
            )
            return web.Response(status=status, headers=headers, body=body)

        async def run(_: web.Application) -> AsyncIterator[None]:
            async with self.running():
                yield

        try:
            app.router.add_route("*", path, respond)
        except ValueError:  # braces without a partner, or a wrong pattern between them
            raise InvalidArgument("path", "must be a path of a route of aiohttp") from None
        app.cleanup_ctx.append(run)
        log_malformed_requests_briefly()

    def asgi(self, path: str | None = None) -> "AsgiApp":
        """Return an ASGI application, an object that servers and frameworks call.

        As the root of a server it starts and drains the receiver. A route or a mounted application gets no lifespan
        events: enter the receiver in the lifespan of the host.

        Args:
            path: the only path to serve, below where the application is mounted; by default every path.

        Raises:
            InvalidArgument: the path is not a string that begins with a slash.
        """
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
        acceptor = Acceptor(
            settings=self._settings,
            dispatcher=Dispatcher(self._settings, self._counters, self._store_failures),
            apps=dict(self._keys.values()),
            counters=self._counters,
        )
        run = self._run = Run(settings=self._settings, acceptor=acceptor, rejections=self._rejections)
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

    async def receive(
        self, method: str, raw_query: str | bytes, headers: Headers, chunks: AsyncIterable[bytes]
    ) -> HttpAnswer:
        """Answer a request; its body is read if its header fields promise a delivery. See `handle`."""
        fields, began = parse_fields(headers), self._settings.clock.monotonic()
        if method != "POST":
            return await self.handle(method, raw_query, fields, b"")
        try:
            self._verifier.check_head(fields)
            with self._bodies.admit(is_running=self.is_running) as body:
                content = await body.read(chunks)
                return await self.handle(method, raw_query, fields, content)
        except Rejected as rejected:
            self._counters.received += 1
            return self._reject(rejected.reason, began)

    def reject_path(self) -> HttpAnswer:
        """Return the answer to a request for a path that is not served, which is counted and logged."""
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
            InvalidArgument: the body is not bytes, or the header fields are not fields.
        """
        self._counters.received += 1
        began = self._settings.clock.monotonic()
        try:
            fields = parse_fields(headers)
            if method == "GET":
                query = raw_query.encode("utf-8", "surrogatepass") if isinstance(raw_query, str) else raw_query
                answer = self._verifier.answer_crc(query, fields)
                self._counters.crc_answered += 1
                self._counters.last_crc_ok = self._settings.clock.now()
                return answer
            if method != "POST":
                return self._reject(RejectReason.METHOD, began, len(body))
            key_id, events = self._verify(fields, body)
        except Rejected as rejected:
            return self._reject(rejected.reason, began, len(body))
        self._counters.verified[key_id] += 1
        context = DeliveryContext(key_id=key_id, received_at=self._settings.clock.now(), body=body)
        reason = await self._run.accept(events, context) if self._run else RejectReason.NOT_RUNNING
        if reason:
            return self._reject(reason, began, len(body))
        self._counters.acknowledge(self._settings.clock.monotonic() - began, events=len(events), size=len(body))
        return HttpAnswer(200, {}, b"")

    def unwrap(self, body: bytes, headers: Headers) -> tuple[Event, ...]:
        """Return the events of a delivery once its signature is verified, for code that handles them itself.

        Nothing is claimed, stored, handled or counted; the receiver need not run.

        Args:
            body: the body, byte for byte.
            headers: the header fields; a mapping, or pairs.

        Raises:
            Rejected: no key signed exactly these bytes, or they are not a delivery; `status` is what to answer with.
        """
        _, events = self._verify(parse_fields(headers), body)
        return events

    def _verify(self, fields: Fields, body: bytes) -> tuple[str, tuple[Event, ...]]:
        """Return the id of the key that signed a delivery, and its events."""
        key, events = self._verifier.read(body, fields, self._settings.parser)
        key_id, _ = self._keys[key]
        return key_id, events

    def _reject(self, reason: RejectReason, began: float, size: int = 0) -> HttpAnswer:
        self._rejections.add(reason, has_failed=self._run is not None and self._run.failure is not None)
        self._counters.reject(reason, self._settings.clock.monotonic() - began, size=size)
        return reject(reason, retry_after=self._settings.retry_after)


_TEXT = instance_of(
    str, "a string that begins with a slash; if a framework called this, pass it receiver.asgi(), with the parentheses"
)


@attrs.frozen
class AsgiApp:
    """An ASGI application.

    It is an object and not a function, so that frameworks pass the request on instead of calling it as a view.

    Args:
        receiver: the receiver.
        path: the only path to serve, below where the application is mounted; by default every path.

    Raises:
        InvalidArgument: the path is not a string that begins with a slash.
    """

    receiver: WebhookReceiver
    path: str | None = attrs.field(default=None, validator=[or_none(_TEXT), or_none(_PATH)])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a connection, or the lifespan of the server."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close"})
        elif scope["type"] != "http":  # which ASGI has an application refuse
            raise NotImplementedError("the receiver serves HTTP only")
        else:
            if self.path is not None and _find_mounted_path(scope) != self.path:
                status, headers, body = self.receiver.reject_path()
            else:
                status, headers, body = await self.receiver.receive(
                    scope["method"], scope["query_string"], scope["headers"], _read_chunks(receive)
                )
            fields = {**headers, "content-length": str(len(body))}
            encoded = [(name.encode(), value.encode()) for name, value in fields.items()]
            await send({"type": "http.response.start", "status": status, "headers": encoded})
            await send({"type": "http.response.body", "body": body})

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        task, phase = find_task(), "startup"
        try:
            async with self.receiver.running():
                await send({"type": "lifespan.startup.complete"})
                phase = "shutdown"
                await receive()
        except BaseException as error:
            if is_failure(error, task):
                # The server prints it: only the message of an error of the SDK is known to repeat nothing.
                message = str(error) if isinstance(error, SvcError) else type(error).__name__
                await send({"type": f"lifespan.{phase}.failed", "message": message})
            raise
        await send({"type": "lifespan.shutdown.complete"})


def _find_mounted_path(scope: Scope) -> str:
    """Return the path below the mount; servers and frameworks differ in whether `path` contains `root_path`."""
    path: str = scope["path"]
    root = scope.get("root_path", "").rstrip("/")
    return path.removeprefix(root) if path.startswith(f"{root}/") or path == root else path


async def _read_chunks(receive: Receive) -> AsyncIterator[bytes]:
    more_body = True
    while more_body:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Rejected(RejectReason.BROKEN)
        more_body = message.get("more_body", False)
        yield message.get("body", b"")


@asynccontextmanager
async def serve(receiver: WebhookReceiver, *, host: str, port: int, path: str = "/") -> AsyncGenerator[int]:
    """Serve a receiver on its own within the block.

    Args:
        receiver: the receiver.
        host: the address to listen on.
        port: the port; 0 chooses a free one.
        path: the path to serve.

    Yields:
        The port.
    """
    from aiohttp import web  # noqa: PLC0415 - only this server needs it

    from svc_async.webhooks.server import open_server  # noqa: PLC0415 - as above

    app = web.Application()
    receiver.attach(app, path)
    async with open_server(app, host=host, port=port) as taken:
        yield taken
