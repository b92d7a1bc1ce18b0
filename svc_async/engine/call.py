"""One call in progress: what its attempts waited for and answered; how it is reported and logged."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Mapping
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlsplit

import attrs

from svc_async.clock import Clock
from svc_async.engine.transport import WireRequest
from svc_async.errors import InvalidArgument, RateLimited, Sent, SvcError, TransportError, WrongState
from svc_async.governor.governor import Slot
from svc_async.monitoring import CallEvent, LimitExceededEvent, LimitWaitEvent
from svc_async.printable import clean
from svc_async.wire.base_urls import Endpoints
from svc_async.wire.envelope import Answer, CallAnswer, Page, errors_beside_data
from svc_async.wire.redaction import NO_SECRETS, Secrets, find_secrets
from svc_async.wire.route import FORM, Blocks, Request, Surface

__all__ = ["AnswerCollector", "Call", "await_with_answer", "current_collector", "is_logged_at", "log_repeat"]

T = TypeVar("T")

_UNANSWERED: Final = "no call of this session was answered within the awaitable"
_NEXT_STEP: Final = "check what it has done before you repeat it"
_CALL_OF_ANOTHER: Final = f"but one of another session was: await with_answer() of that one; {_NEXT_STEP}"
_NO_CALL: Final = f"as when a job has nothing to send: await it without with_answer(); {_NEXT_STEP}"


@attrs.define(eq=False)
class AnswerCollector:
    """Receives the answers of the calls that a block makes in one session.

    Attributes:
        session: what all calls of that session have in common.
        outer: what receives the answers for the surrounding block.
        last: the last answer.
        has_others: whether calls of another session were answered.
    """

    session: object
    outer: "AnswerCollector | None"
    last: CallAnswer | None = None
    has_others: bool = False

    def receive(self, session: object, answer: CallAnswer) -> None:
        """Note an answer; it counts for the surrounding blocks as well."""
        if self.session is session:
            self.last = answer
        else:
            self.has_others = True
        if self.outer is not None:
            self.outer.receive(session, answer)


current_collector: ContextVar[AnswerCollector | None] = ContextVar("svc_async_answers", default=None)
"""What receives the answers of the calls made in this context."""


async def await_with_answer(awaitable: Awaitable[T], session: object) -> tuple[T, CallAnswer]:
    """Return the value of an awaitable, and the last answer that the session received meanwhile on its behalf.

    Raises:
        InvalidArgument: the awaitable is a task, which may have begun.
        WrongState: the session received no answer; what the awaitable did instead is not known.
    """
    if asyncio.isfuture(awaitable) or not isinstance(awaitable, Awaitable):
        rule = "must be a call that has not begun, such as session.accounts.get(id): neither a function nor a task"
        raise InvalidArgument("awaitable", rule)
    collector = AnswerCollector(session, current_collector.get())
    token = current_collector.set(collector)
    try:
        value = await awaitable
    finally:
        current_collector.reset(token)
    if collector.last is None:
        error = WrongState(f"{_UNANSWERED}, {_CALL_OF_ANOTHER if collector.has_others else _NO_CALL}")
        error.sent = Sent.MAYBE  # whatever the awaitable did, it has done it
        raise error
    return value, collector.last


_log = logging.getLogger("svc_async.http")
_SHOWN = 100  # characters of a request id
_MANY_SECONDS = 1_000  # from which on they are shown without a fraction
_PORTS: Mapping[str, int] = {"http": 80, "https": 443}


is_logged_at = _log.isEnabledFor
"""Whether the log of calls has a level."""


class Call(Generic[T]):
    """One call, from its first attempt to its last.

    It is made for each call, so its attributes begin as those of the class.

    Attributes:
        request: what is sent.
        written: the same in the words of the service, if a dialect has other ones.
        is_watched: whether something receives its events, or its log.
        attempts: how many times it was attempted, the present attempt included.
        answer: the answer to the present attempt, once it is there.
        misfits: what does not fit in it.
        slot: the slot of the present attempt, once it is granted.
        wire: what is sent in the present attempt, once it is signed.
        repeated: the failure of the attempt before, if the call was repeated.
    """

    attempts = 0
    answer: Answer | None = None
    slot: Slot | None = None
    wire: WireRequest | None = None
    repeated: SvcError | None = None
    _began = _started = _waited_before = _backoff = _next_backoff = 0.0

    def __init__(self, request: Request[T], clock: Clock, is_watched: object) -> None:
        self.request = self.written = request
        self.is_watched = is_watched
        self.misfits: list[str] = []
        self._clock = clock

    def start(self) -> None:
        """Begin an attempt."""
        self._started = self._clock.monotonic()
        self.attempts += 1
        if self.attempts == 1:
            self._began = self._started
        else:
            self._waited_before = self._waited + self._next_backoff
            self._backoff, self._next_backoff = self._next_backoff, 0.0
            self.answer, self.slot, self.wire, self.misfits = None, None, None, []

    def find_secrets(self) -> Secrets:
        """Return what the present attempt proves itself with."""
        if self.wire is None:
            return NO_SECRETS
        body = self.request.body if self.request.content_type == FORM else b""
        query = [*self.request.query, *(self.request.oauth or {}).items()]
        return find_secrets(self.wire.headers.get("Authorization", ""), query, body if isinstance(body, bytes) else b"")

    def measure_time(self) -> float:
        """Return the seconds since the first attempt began."""
        return self._clock.monotonic() - self._began

    def log_repeat(self, error: SvcError, wait: float) -> None:
        """Note that the call is repeated in some seconds."""
        self.repeated = error
        self._next_backoff = wait
        log_repeat(self.request, error, wait, max_wait=None if self.slot is None else self.slot.max_wait)

    def describe_answer(self, request_id_header: str | None) -> CallAnswer:
        """Return the answer of a call that has succeeded."""
        assert self.answer is not None  # noqa: S101 - it has succeeded
        seconds = self.measure_time()
        return CallAnswer(
            status=self.answer.status,
            headers=self.answer.headers,
            body=self.answer.received,
            request_id=self.answer.request_id(request_id_header),
            attempts=self.attempts,
            seconds=seconds,
            waited=min(self._waited, seconds),
        )

    def log_end(self, error: BaseException | None = None) -> None:
        """Log what has become of the call."""
        if not is_logged_at(logging.INFO):
            return
        result = f"HTTP {self.answer.status}" if self.answer else "no answer"
        if error is not None:
            result = _describe(error)
        if not self.attempts:  # there was no token to send it with
            _log.info("%s: %s, not sent", self._name, result)
            return
        tries = f", {self.attempts} attempts" if self.attempts > 1 else ""
        waited = f", waited {self._waited:.3f} s" if self._waited else ""
        _log.info("%s: %s in %.3f s%s%s", self._name, result, self.measure_time(), tries, waited)

    def log_attempt(self, event: CallEvent) -> None:
        """Log the attempt that has just ended."""
        if not is_logged_at(logging.DEBUG):
            return
        result = "CancelledError" if event.is_cancelled else f"HTTP {event.status}"
        _log.debug(
            "%s: attempt %d: %s in %.3f s, %.3f s of them at the rate limit, %d bytes sent, %d received%s",
            self._name,
            event.attempt,
            result if event.error is None else _describe(event.error),
            event.seconds,
            event.waited,
            event.bytes_sent,
            event.bytes_received,
            f", request id {clean(event.request_id[:_SHOWN])}" if event.request_id else "",
        )

    def describe_wait(self, slot: Slot) -> LimitWaitEvent:
        """Return the event of a wait at the governor."""
        return LimitWaitEvent(
            limit=self._name_limit(slot),
            account=self._account,
            seconds=slot.waited,
            priority="bulk" if slot.is_bulk else "interactive",
        )

    def describe_refusal(self, slot: Slot, closed_until: datetime | None) -> LimitExceededEvent:
        """Return the event of a 429."""
        return LimitExceededEvent(limit=self._name_limit(slot), account=self._account, closed_until=closed_until)

    def describe_attempt(
        self,
        endpoints: Endpoints,
        request_id_header: str | None,
        *,
        error: SvcError | None = None,
        value: object = None,
        is_cancelled: bool,
    ) -> CallEvent:
        """Return the event of the attempt that has just ended."""
        request, answer = self.request, self.answer
        scheme, host, port, base_path = _find_server(endpoints, request.surface)
        seconds, slot = self._clock.monotonic() - self._started, self.slot
        sent = request.body if slot is not None and slot.was_sent else None
        may_have_errors = answer and error is None and request.surface is Surface.BASE
        reasons = errors_beside_data(answer, self.find_secrets) if answer and may_have_errors else ()
        return CallEvent(
            method=request.method,
            path=request.public_path,
            base_path=base_path,
            host=host,
            port=port,
            is_secure=scheme == "https",
            account=self._account,
            attempt=self.attempts,
            started=self._clock.now() - timedelta(seconds=seconds),
            monotonic=self._started,
            seconds=seconds,
            waited=seconds if slot is None else min(slot.waited, seconds),  # ticks round otherwise than floats
            backoff=self._backoff,
            bytes_sent=sent.size if isinstance(sent, Blocks) else len(sent or b""),
            bytes_received=len(answer.body) if answer else 0,
            status=answer.status if answer else getattr(error, "status", None),
            request_id=answer.request_id(request_id_header) if answer else getattr(error, "request_id", None),
            error=error,
            is_cancelled=is_cancelled,
            errors=reasons,
            misfits=tuple(self.misfits),
            unreadable=len(value.unreadable) if isinstance(value, Page) else 0,
        )

    def _name_limit(self, slot: Slot) -> str:
        """Return the name of a limit; one that is not in the table has that of the endpoint, which may contain ids."""
        endpoint = f"{self.request.method} {self.request.template}"
        return self._name if slot.limit == endpoint else slot.limit

    @property
    def _waited(self) -> float:
        return self._waited_before + (0.0 if self.slot is None else self.slot.waited)

    @property
    def _account(self) -> str | None:
        return self.request.scope.get("account_id")

    @property
    def _name(self) -> str:
        return _name(self.request)


def log_repeat(request: Request[Any], error: SvcError, wait: float, *, max_wait: float | None = None) -> None:
    """Log that a request is repeated in some seconds, or after a wait at the governor of up to `max_wait`, and why."""
    # After a 429 the governor knows when, and its wait is part of the next attempt.
    if not isinstance(error, RateLimited) or wait:
        when = f"in {_format_seconds(wait)}"
    elif max_wait is None or max_wait == math.inf:
        when = "when the rate limit opens"
    else:
        when = f"if the rate limit opens within {_format_seconds(max_wait)}"
    _log.warning("%s: %s; repeated %s", _name(request), _describe(error), when)


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < _MANY_SECONDS else f"{seconds:,.0f} s"


def _name(request: Request[Any]) -> str:
    return f"{request.method} {request.public_path}"


def _find_server(endpoints: Endpoints, surface: Surface) -> tuple[str, str, int, str]:
    try:
        url = urlsplit(endpoints.of(surface))
    except InvalidArgument:  # there is no such host, and nothing was sent
        return "", "", 0, ""
    return url.scheme, url.hostname or "", url.port or _PORTS[url.scheme], url.path


def _describe(error: BaseException) -> str:
    """Return what failed without the words of the service, which may name what was asked for."""
    status = getattr(error, "status", None)
    if status is not None:
        return f"{type(error).__name__} (HTTP {status})"
    sent = f" (sent: {error.sent})" if isinstance(error, SvcError) and error.sent is not Sent.NO else ""
    reason = f": {error.reason}" if isinstance(error, TransportError) else ""
    return f"{type(error).__name__}{reason}{sent}"
