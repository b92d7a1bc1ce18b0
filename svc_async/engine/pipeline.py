"""Sends requests: check → with token → with retries → attempt → in turn → once. A stream takes the same path, once."""

import logging
from asyncio import CancelledError, to_thread
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from svc_async.auth.authorization import Authorization
from svc_async.auth.oauth1 import SigningClock
from svc_async.auth.tokens import Tokens
from svc_async.cancellation import in_thread
from svc_async.clock import Clock
from svc_async.drift import DriftReport
from svc_async.engine import retry
from svc_async.engine.call import Call, current_collector, is_logged_at
from svc_async.engine.memory import MemoryBudget
from svc_async.engine.origin import SessionOrigin
from svc_async.engine.retry import Retries
from svc_async.engine.transport import OpenStream, Transport, WireRequest
from svc_async.errors import (
    ApiError,
    SvcError,
    TransportError,
    Unauthorized,
    UnexpectedAnswer,
    WouldWaitTooLong,
)
from svc_async.governor.governor import Governor, Priority, Slot
from svc_async.monitoring import Subscribers
from svc_async.printable import join_first
from svc_async.wire.base_urls import Endpoints
from svc_async.wire.dialect import Dialect
from svc_async.wire.envelope import Answer, CallAnswer, is_withheld, parse_refusal
from svc_async.wire.outcome import RetryBudget, may_have_worked, outcome_of
from svc_async.wire.params import query_string
from svc_async.wire.reading import Reader
from svc_async.wire.route import Blocks, Reply, Request, Surface

if TYPE_CHECKING:
    from svc_async.recording.file import Recording

__all__ = ["Pipeline"]

T = TypeVar("T")
V = TypeVar("V")
_Exchange = Callable[[WireRequest, Callable[[], None]], Awaitable[Answer]]
"""Sends a signed request, calls a function once a connection is open, and returns the answer."""

_log = logging.getLogger("svc_async")
_OK, _TOO_MANY_REQUESTS = int(HTTPStatus.OK), int(HTTPStatus.TOO_MANY_REQUESTS)
"""The look-up in the enum takes longer than the comparison."""
_SMALL = 2**18
"""Bytes of an answer that is read at once; others are read in a thread, so that the event loop goes on meanwhile."""


@attrs.frozen(eq=False, kw_only=True, repr=False)  # every service has one; the URL of a proxy may contain a password
class Pipeline:
    """Sends the requests of one session.

    Attributes:
        authorization: builds the `Authorization` header when no bearer token is used.
        signing_clock: the time of its signatures.
        tokens: provides and renews the bearer token, if one is used.
        user: whose rate limits the calls use.
        proxies: the proxy of each surface that has one.
        max_wait: the longest wait at the governor in seconds; None has no limit.
        timeout: seconds for one exchange, if other than the transport's.
        validate: reject calls that break a known rule before a request is sent.
        dialect: the words of the service, if they are not those of the contract.
        subscribers: what receives the events of the session.
        origin: where another process finds the settings of the session; None if they were given to it.
        drift: what compares answers with the contract, if anything does.
        recording: what is sent and answered is written there, as it goes over the wire.
        before_sending: awaited with a request once the governor has granted a slot, before it is signed and sent; if
            it raises, nothing is sent.
        at_sending: called with a request once a connection is open, directly before its bytes are written; if it
            raises a SvcError, nothing is sent.
    """

    transport: Transport
    endpoints: Endpoints
    authorization: Authorization
    user: str
    governor: Governor
    retries: Retries
    budget: RetryBudget
    reader: Reader
    clock: Clock
    signing_clock: SigningClock = attrs.field(
        default=attrs.Factory(lambda self: SigningClock(self.clock), takes_self=True)
    )
    tokens: Tokens | None = None
    proxies: Mapping[Surface, str] = attrs.field(factory=dict)
    priority: Priority = Priority.INTERACTIVE
    max_wait: float | None = None
    timeout: float | None = None
    validate: bool = True
    dialect: Dialect | None = None
    memory: MemoryBudget = attrs.field(factory=MemoryBudget)
    subscribers: Subscribers = attrs.field(factory=Subscribers)
    origin: SessionOrigin | None = None
    drift: DriftReport | None = None
    recording: "Recording | None" = None
    before_sending: Callable[[Request[Any]], Awaitable[object]] | None = None
    at_sending: Callable[[Request[Any]], object] | None = None

    def but(self, **changes: Any) -> "Pipeline":
        """Return a pipeline with other values for some attributes; everything else is shared."""
        return attrs.evolve(self, **changes)

    def check(self, request: Request[Any]) -> None:
        """Check a request against the known rules, if this session validates.

        Raises:
            InvalidArgument: names the parameter and the rule.
        """
        if self.validate and request.problem is not None:
            raise request.problem

    async def send(self, request: Request[T]) -> T:
        """Send a request, repeat it if that helps and is safe, and return the value of its answer.

        Raises:
            ApiError: the service refused.
            TransportError: no answer arrived.
            UnexpectedAnswer: the answer cannot be parsed.
            WouldWaitTooLong: a rate limit opens too late; if a 429 of this call has closed it, that is the cause.
            InvalidArgument: the parameters break a known rule.
        """
        return await self._send_call(self._create_call(request))

    async def send_with_answer(self, request: Request[T]) -> tuple[T, CallAnswer]:
        """Send a request as `send` does; return the answer beside its value."""
        call = self._create_call(request)
        value = await self._send_call(call)
        return value, call.describe_answer(self.reader.request_id_header)

    def _create_call(self, request: Request[T]) -> Call[T]:
        call = Call(request, self.clock, self.subscribers.functions or is_logged_at(logging.INFO))
        if self.dialect is not None:
            call.written = self.dialect.write_request(request)
        return call

    async def _send_call(self, call: Call[T]) -> T:
        if call.request.problem is not None:
            self.check(call.request)
        try:
            if self.tokens is None:
                value = await self._sign(call.request, lambda: self._send_with_retries(call, self.authorization))
            else:
                value = await self.tokens.call_with_token(
                    lambda authorization: self._send_with_retries(call, authorization)
                )
        except BaseException as error:
            if isinstance(error, WouldWaitTooLong) and call.repeated is not None:
                error.__cause__ = call.repeated  # such as the 429 that has closed the limit
            call.log_end(error)
            raise
        if call.is_watched:
            call.log_end()
        collector = current_collector.get()
        if collector is not None:
            collector.receive(self.transport, call.describe_answer(self.reader.request_id_header))
        return value

    async def _sign(self, request: Request[Any], send: Callable[[], Awaitable[V]]) -> V:
        """Send a request, and once more if the service has refused the time of its signature."""
        ahead = self.signing_clock.ahead
        try:
            return await send()
        except Unauthorized as refusal:
            is_secure = self.endpoints.of(request.surface).startswith("https:")
            if not self.signing_clock.learn(refusal, ahead=ahead, is_secure=is_secure):
                raise
        return await send()

    def _send_with_retries(self, call: Call[T], authorization: Authorization) -> Awaitable[T]:
        return retry.run(
            lambda: self._attempt(call, authorization),
            retries=self.retries,
            safe=call.request.safe_to_repeat,
            clock=self.clock,
            budget=self.budget,
            elapsed=call.measure_time,
            on_repeat=call.log_repeat,
            is_closed=self.transport.is_closed,
        )

    async def _attempt(self, call: Call[T], authorization: Authorization) -> T:
        call.start()
        try:
            answer = await self._send_in_turn(call, authorization, self._exchange, self.max_wait)
            value = (
                self._parse(call, answer) if len(answer.body) <= _SMALL else await to_thread(self._parse, call, answer)
            )
        except BaseException as error:
            if isinstance(error, UnexpectedAnswer):
                secrets = call.find_secrets()
                error.body, error.headers = secrets.hide(error.body), {**secrets.hide_headers(error.headers)}
            self._report(call, error=error)
            raise
        if call.misfits:
            _log.warning(
                "%s %s: the answer does not fit: %s",
                call.request.method,
                call.request.public_path,
                join_first(call.misfits, 3),
            )
        if call.is_watched:
            self._report(call, value=value)
        return value

    async def _send_in_turn(
        self, call: Call[Any], authorization: Authorization, exchange: _Exchange, max_wait: float | None
    ) -> Answer:
        request = call.request
        self.transport.check_open()
        async with self.governor.slot(request, user=self.user, priority=self.priority, max_wait=max_wait) as slot:
            call.slot = slot
            if slot.turn is not None and call.is_watched:
                self.subscribers.notify(call.describe_wait(slot))
            if self.before_sending is not None:
                await self.before_sending(request)
            on_sent = (
                slot.mark_sent if self.at_sending is None else partial(self._begin, self.at_sending, request, slot)
            )
            try:
                # Signed inside the slot: nonce and timestamp would be outdated after a wait.
                call.wire = self._build(call.written, authorization)
                if self.recording is not None:
                    exchange = partial(self._record, self.recording, request, exchange)
                answer = await exchange(call.wire, on_sent)
                if self.dialect is not None:
                    sees_all = self.reader.keep_unknown or self.drift is not None
                    read = partial(self.dialect.read_answer, keep_unknown=sees_all)
                    is_small = len(answer.body) <= _SMALL
                    answer = read(request, answer) if is_small else await to_thread(read, request, answer)
                call.answer = answer
            except SvcError as error:
                if isinstance(error, UnexpectedAnswer):  # it was cut off after its headers
                    slot.learn(error.status, error.headers)
                elif may_have_worked(error):  # the service counts a request that may have arrived
                    slot.mark_lost()
                _complete_failure(error, request, self.reader.request_id_header)
                raise
            status = answer.status
            if status == _TOO_MANY_REQUESTS and not outcome_of(self._parse_refusal(call, answer)).throttled:
                status = _OK  # neither too many open streams nor what a plan includes are too many requests
            slot.learn(status, answer.headers)
            if status == _TOO_MANY_REQUESTS and call.is_watched:
                self.subscribers.notify(call.describe_refusal(slot, self.governor.find_gate(slot)))
            return answer

    def _exchange(self, request: WireRequest, on_sent: Callable[[], None]) -> Awaitable[Answer]:
        return self.transport.exchange(request, timeout=self.timeout, on_sent=on_sent)

    async def _record(
        self,
        recording: "Recording",
        request: Request[Any],
        exchange: _Exchange,
        wire: WireRequest,
        on_sent: Callable[[], None],
    ) -> Answer:
        """Exchange, and record what was sent and answered, or how it failed."""
        begun = recording.begin(
            at=self.clock.now(),
            method=wire.method,
            surface=request.surface.value,
            path=wire.url.removeprefix(self.endpoints.of(request.surface)),
            scope=request.scope,
            hidden_segments=request.hidden_segments,
            headers=wire.headers,
            body=wire.body,
        )
        if begun is None:
            return await exchange(wire, on_sent)
        was_sent = False

        def note_sent() -> None:
            nonlocal was_sent
            on_sent()
            was_sent = True

        async def write(record: Callable[[], None], size: int = 0) -> None:
            size += wire.body.size if isinstance(wire.body, Blocks) else len(wire.body or b"")
            if size > _SMALL or recording.is_busy:
                await in_thread(record)
            else:
                record()

        try:
            answer = await exchange(wire, note_sent)
        except UnexpectedAnswer as error:
            status, headers = error.status, error.headers
            await write(partial(recording.write_answer, begun, status=status, headers=headers, body=b"", is_cut=True))
            raise
        except BaseException as error:
            await write(partial(recording.write_failure, begun, type(error).__name__, was_sent=was_sent))
            raise
        record = partial(
            recording.write_answer,
            begun,
            status=answer.status,
            headers=answer.headers,
            body=answer.body,
            is_stream=answer.is_success and exchange != self._exchange,
        )
        await write(record, len(answer.body))
        return answer

    @staticmethod
    def _begin(at_sending: Callable[[Request[Any]], object], request: Request[Any], slot: Slot) -> None:
        at_sending(request)
        slot.mark_sent()

    def _build(self, request: Request[Any], authorization: Authorization) -> WireRequest:
        url = self.endpoints.of(request.surface) + request.path
        header = authorization(request.method, url, request.query, request.oauth)
        headers = {"Authorization": header} if header else {}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        return WireRequest(
            method=request.method,
            url=f"{url}?{query_string(request.query)}" if request.query else url,
            headers=headers,
            body=request.body,
            proxy=self.proxies.get(request.surface),
        )

    def write_page(self, url: str) -> str:
        """Return the URL of a page of the main API that a browser opens in the words of the service."""
        base_url = self.endpoints.base_url
        return url if self.dialect is None else self.dialect.write_url(url.removeprefix(base_url), base_url)

    def find_pace(self, request: Request[Any]) -> float | None:
        """Return how many requests like this one a second its rate limit admits; None if no limit is known."""
        return self.governor.find_pace(request)

    @property
    def governor_id(self) -> str:
        """What identifies the governor; see `Governor.id`."""
        return self.governor.id

    def restore(self, request: Request[Any], sent_at: Iterable[datetime]) -> None:
        """Count requests like this one that an earlier process sent at these times; see `Governor.restore`."""
        self.governor.restore(request, user=self.user, sent_at=sent_at)

    @asynccontextmanager
    async def stream(self, request: Request[Any], *, timeout: float) -> AsyncGenerator[OpenStream]:  # noqa: ASYNC109 - on the injected clock
        """Open a stream, and keep it open within the block.

        It is attempted once, and waits at the governor without a limit.

        Args:
            request: the request that opens it.
            timeout: seconds until the answer begins.

        Raises:
            ApiError: the service refused.
            TransportError: no answer began.
            InvalidArgument: the parameters break a known rule.
        """
        self.check(request)
        async with AsyncExitStack() as stack:
            if self.tokens is None:
                yield await self._sign(
                    request, lambda: self._attempt_stream(request, self.authorization, stack, timeout)
                )
            else:
                yield await self.tokens.call_with_token(
                    lambda authorization: self._attempt_stream(request, authorization, stack, timeout),
                    any_refusal=True,
                )

    async def _attempt_stream(
        self, request: Request[Any], authorization: Authorization, stack: AsyncExitStack, seconds: float
    ) -> OpenStream:
        opened: list[OpenStream] = []

        async def open_stream(request: WireRequest, on_sent: Callable[[], None]) -> Answer:
            stream = self.transport.stream(request, timeout=seconds, on_sent=on_sent)
            opened.append(await stack.enter_async_context(stream))
            return opened[0].answer

        call = self._create_call(request)
        call.start()
        try:
            answer = await self._send_in_turn(call, authorization, open_stream, None)
            if not answer.is_success:
                raise self._parse_refusal(call, answer)  # noqa: TRY301 - reported as every other end
        except BaseException as error:
            self._report(call, error=error)
            call.log_end(error)
            raise
        self._report(call)
        call.log_end()
        return opened[0]

    def _parse(self, call: Call[T], answer: Answer) -> T:
        request = call.request
        may_be_withheld = request.surface is Surface.BASE and request.reply is not Reply.BODY
        if not answer.is_success or (may_be_withheld and is_withheld(answer)):
            refusal = self._parse_refusal(call, answer)
            if self.drift is not None:
                self.drift.see_refusal(request, refusal)
            raise refusal
        if self.drift is not None:
            self.drift.see(request, answer)
        return self.reader.read(request, answer, on_misfit=call.misfits.append)

    def _parse_refusal(self, call: Call[Any], answer: Answer) -> ApiError:
        header = self.reader.request_id_header
        return parse_refusal(answer, now=self.clock.now(), request_id_header=header, secrets=call.find_secrets())

    def _report(self, call: Call[Any], *, error: BaseException | None = None, value: object = None) -> None:
        """Report an attempt that has ended."""
        if not call.is_watched:
            return
        event = call.describe_attempt(
            self.endpoints,
            self.reader.request_id_header,
            value=value,
            error=error if isinstance(error, SvcError) else None,
            is_cancelled=isinstance(error, CancelledError),
        )
        call.log_attempt(event)
        self.subscribers.notify(event)


def _complete_failure(error: SvcError, request: Request[Any], request_id_header: str | None) -> None:
    """Add to a failure of the transport what only the call knows; its path is that of the log, without ids."""
    if isinstance(error, TransportError):
        error.args = (f"{error.reason}: {request.method} {request.public_path}",)
    elif isinstance(error, UnexpectedAnswer) and request_id_header:
        error.request_id = error.headers.get(request_id_header.lower())
