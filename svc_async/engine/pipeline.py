"""The way of every call: retry( slot( sign + exchange ) → open → read ); and of a stream: slot( sign + connect )."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

import attrs

from svc_async.auth.authorization import Authorization
from svc_async.auth.tokens import Tokens
from svc_async.clock import Clock
from svc_async.engine import retry
from svc_async.engine.retry import Retries, RetryBudget
from svc_async.engine.transport import OpenStream, Transport
from svc_async.errors import (
    ApiError,
    ErrorDetail,
    Sent,
    SvcError,
    TooManyConnections,
    TransportError,
    UnexpectedAnswer,
)
from svc_async.governor.governor import Governor
from svc_async.governor.slot import Priority, Slot
from svc_async.wire.base_urls import Endpoints
from svc_async.wire.envelope import Answer, errors_beside_data, is_withheld, parse_refusal
from svc_async.wire.params import query_string
from svc_async.wire.reading import Reader
from svc_async.wire.route import Reply, Request, Surface

__all__ = ["CallEvent", "Pipeline"]

T = TypeVar("T")

_OK = 200

_log = logging.getLogger("svc_async")


@attrs.frozen(kw_only=True)
class CallEvent:
    """One attempt of one call, told to `Session(on_event=)`; it holds nothing personal and no secret.

    Attributes:
        method: the HTTP method.
        path: the path as the reference prints it, without ids; of `Session.request`, without the account's id only.
        seconds: how long it took, the wait at the governor included.
        status: the answer's status; None when no answer came.
        error: what became of it, if it failed.
        errors: what the main API complains of beside an answer of success.
    """

    method: str
    path: str
    seconds: float
    status: int | None
    error: SvcError | None
    errors: Sequence[ErrorDetail] = ()


@attrs.frozen(kw_only=True, repr=False)  # every service holds one, and a proxy's URL may hold a password
class Pipeline:
    """Sends requests of one session.

    Attributes:
        authorization: proves the calls, unless they carry a token.
        tokens: gives the token that the calls carry, and renews it.
        user: whose rate limits the calls use.
        proxies: the proxy of each surface that has one.
        max_wait: the longest wait at the governor in seconds; None means as long as it takes.
        timeout: seconds for one exchange, when other than the transport's.
        validate: refuse calls that break a known rule, before a request is spent.
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
    tokens: Tokens | None = None
    proxies: Mapping[Surface, str] = attrs.field(factory=dict)
    priority: Priority = Priority.INTERACTIVE
    max_wait: float | None = None
    timeout: float | None = None
    validate: bool = True
    on_event: Callable[[CallEvent], object] | None = None

    def but(self, **changes: Any) -> "Pipeline":
        """Share everything with a pipeline of other settings, named as the attributes are."""
        return attrs.evolve(self, **changes)

    def check(self, request: Request[Any]) -> None:
        """Refuse a call that breaks a known rule, if this session checks.

        Raises:
            InvalidArgument: names the parameter, the rule and the bound.
        """
        if self.validate and request.problem is not None:
            raise request.problem

    async def send(self, request: Request[T]) -> T:
        """Make a call, repeat it while that helps and is safe, and read its answer.

        Raises:
            ApiError: the service refused.
            TransportError: no answer arrived.
            UnexpectedAnswer: the answer cannot be understood.
            WouldWaitTooLong: a rate limit opens too late.
            InvalidArgument: the parameters break a known rule.
        """
        value, _ = await self.send_with_id(request)
        return value

    async def send_with_id(self, request: Request[T]) -> tuple[T, str | None]:
        """Make a call as `send` does, and give the service's name for it beside its answer, if it has one."""
        self.check(request)
        if self.tokens is None:
            return await self._repeat(request, self.authorization)
        return await self.tokens.call_with_token(lambda authorization: self._repeat(request, authorization))

    def _repeat(self, request: Request[T], authorization: Authorization) -> Awaitable[tuple[T, str | None]]:
        return retry.run(
            lambda: self._attempt(request, authorization),
            retries=self.retries,
            safe=request.safe_to_repeat,
            clock=self.clock,
            budget=self.budget,
        )

    @asynccontextmanager
    async def stream(self, request: Request[Any], *, timeout: float) -> AsyncGenerator[OpenStream]:  # noqa: ASYNC109
        """Open a stream, and keep it for as long as the block lasts.

        It is tried once, and waits at the governor as long as it takes.

        Args:
            request: what opens it.
            timeout: seconds until the answer has begun.

        Raises:
            ApiError: the service refused.
            TransportError: no answer began.
            InvalidArgument: the parameters break a known rule.
        """
        self.check(request)
        async with AsyncExitStack() as stack:
            if self.tokens is None:
                yield await self._connect(request, self.authorization, stack, timeout)
            else:
                yield await self.tokens.call_with_token(
                    lambda authorization: self._connect(request, authorization, stack, timeout), any_refusal=True
                )

    async def _connect(
        self, request: Request[Any], authorization: Authorization, stack: AsyncExitStack, seconds: float
    ) -> OpenStream:
        started = self.clock.monotonic()
        try:
            stream = await self._governed(request, authorization, stack, seconds)
            if not stream.answer.is_success:
                raise self._refusal(stream.answer)
        except SvcError as error:
            self._tell(request, started, getattr(error, "status", None), error)
            raise
        self._tell(request, started, stream.answer.status)
        return stream

    async def _governed(
        self, request: Request[Any], authorization: Authorization, stack: AsyncExitStack, seconds: float
    ) -> OpenStream:
        async with self.governor.slot(request, user=self.user, priority=self.priority, max_wait=None) as slot:
            connecting = self._sign_and_open(request, authorization, slot, seconds)
            try:
                stream = await stack.enter_async_context(connecting)
            except TransportError as error:
                if error.sent is not Sent.NO:
                    slot.mark_lost()
                raise
            slot.learn(self._governed_status(stream.answer), stream.answer.headers)
            return stream

    def _governed_status(self, answer: Answer) -> int:
        """Give the status that the governor heeds: too many open streams are not too many requests."""
        crowded = not answer.is_success and isinstance(self._refusal(answer), TooManyConnections)
        return _OK if crowded else answer.status

    async def _attempt(self, request: Request[T], authorization: Authorization) -> tuple[T, str | None]:
        started = self.clock.monotonic()
        try:
            answer = await self._exchange(request, authorization)
            value = self._open(request, answer)
        except SvcError as error:
            self._tell(request, started, getattr(error, "status", None), error)
            raise
        self._tell(request, started, answer.status, answer=answer)
        return value, answer.request_id(self.reader.request_id_header)

    async def _exchange(self, request: Request[Any], authorization: Authorization) -> Answer:
        async with self.governor.slot(request, user=self.user, priority=self.priority, max_wait=self.max_wait) as slot:
            try:
                answer = await self._sign_and_send(request, authorization, slot)
            except TransportError as error:
                if error.sent is not Sent.NO:
                    slot.mark_lost()
                raise
            except UnexpectedAnswer as error:  # it broke off behind its headers
                slot.learn(error.status, error.headers)
                raise
            slot.learn(answer.status, answer.headers)
            return answer

    async def _sign_and_send(self, request: Request[Any], authorization: Authorization, slot: Slot) -> Answer:
        # Signed inside the slot: nonce and timestamp would go stale in the queue.
        url = self.endpoints.of(request.surface) + request.path
        proof = authorization(request.method, url, request.query, request.oauth)
        headers = {"Authorization": proof} if proof else {}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        return await self.transport.exchange(
            request.method,
            _with_query(url, request),
            headers=headers,
            body=request.body,
            proxy=self.proxies.get(request.surface),
            timeout=self.timeout,
            on_sent=slot.mark_sent,
        )

    def _sign_and_open(
        self, request: Request[Any], authorization: Authorization, slot: Slot, seconds: float
    ) -> AbstractAsyncContextManager[OpenStream]:
        url = self.endpoints.of(request.surface) + request.path
        return self.transport.stream(
            request.method,
            _with_query(url, request),
            headers={"Authorization": authorization(request.method, url, request.query)},
            proxy=self.proxies.get(request.surface),
            timeout=seconds,
            on_sent=slot.mark_sent,
        )

    def _open(self, request: Request[T], answer: Answer) -> T:
        if not answer.is_success or (request.surface is Surface.BASE and _is_withheld(request, answer)):
            raise self._refusal(answer)
        return self.reader.read(request, answer)

    def _refusal(self, answer: Answer) -> ApiError:
        return parse_refusal(answer, now=self.clock.now(), request_id_header=self.reader.request_id_header)

    def _tell(
        self,
        request: Request[Any],
        started: float,
        status: int | None,
        error: SvcError | None = None,
        answer: Answer | None = None,
    ) -> None:
        if self.on_event is None:
            return
        event = CallEvent(
            method=request.method,
            path=request.template,
            seconds=self.clock.monotonic() - started,
            status=status,
            error=error,
            errors=errors_beside_data(answer) if answer and request.surface is Surface.BASE else (),
        )
        try:
            self.on_event(event)
        except Exception as problem:  # noqa: BLE001 - whoever looks on must not change what became of the call
            _log.error("on_event itself failed: %s", type(problem).__name__)


def _with_query(url: str, request: Request[Any]) -> str:
    return f"{url}?{query_string(request.query)}" if request.query else url


def _is_withheld(request: Request[Any], answer: Answer) -> bool:
    return request.reply is not Reply.BODY and is_withheld(answer)
